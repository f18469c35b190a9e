"""PPO's settings (Schulman et al. 2017).

The defaults are those of CleanRL's ppo.py, with the normalization of its ppo_continuous_action.py; but values are not
clipped, and the learning rate is constant.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from seedzero.config import options, shared
from seedzero.core import errors


@dataclasses.dataclass(frozen=True)
class PPOConfig(options.AgentSection):
    SUMMARY = "learns several times from its newest steps: quick environments, little tuning"
    SECTIONS = ("league", "seats")
    SAMPLES = False
    MAX_PLAYERS = 2
    PLAYS_CONTINUOUS = True

    DEFAULTS = options.values(
        optimizer=dict(learning_rate=2.5e-4, decay_updates=0, epsilon=1e-5, clip_norm=0.5),
        network=dict(shared.TORSO, width=64, channels=0, lstm_width=0, normalize_observations=True),
        reward=dict(discount=0.99, scale=1.0, clip=0.0, normalize=True),
    )
    CHOICES: ClassVar = {"network.kind": ("auto", "mlp", "conv", "nature", "patches")}
    START = "unroll_length batch_size max_lag num_epochs num_minibatches trace_decay entropy_weight"
    ADVANCED = "wait_seconds value_loss_weight clip_value bonus_place initial_std decay_clip"

    unroll_length: int = shared.unroll_length(128, high=10_000)
    batch_size: int = options.at_creation(
        32, "unrolls in one update: the number of environments, or acting outruns learning", low=1
    )
    max_lag: int = shared.max_lag(1)
    wait_seconds: float = shared.wait_seconds(10.0)
    num_epochs: int = options.on_resume(4, "times that an update learns from each of its steps", low=1, high=1000)
    num_minibatches: int = options.on_resume(
        4, "parts of an epoch, in random order, each with one optimizer step; with an LSTM, of whole unrolls", low=1
    )
    clip_ratio: float = options.on_resume(0.2, "clip range of the probability ratio (epsilon)", low=0, high=math.inf)
    trace_decay: float = options.on_resume(0.95, "lambda of generalized advantage estimation", low=0, high=1)
    entropy_weight: float = shared.entropy_weight(0.01)
    value_loss_weight: float = shared.value_loss_weight(0.5)
    clip_value: float = options.on_resume(
        0.0, "largest change of a value in one update; 0: no limit", "scaled return", low=0, high=math.inf
    )
    central_value: bool = options.at_creation(
        False, "several agents (MAPPO): the value sees the joint observation of all while training; acting never does"
    )
    normalize_advantages: bool = options.on_resume(
        True, "normalize the advantages of each minibatch to mean 0 and variance 1"
    )
    bonus: str = options.at_creation("", "your own MODULE:FUNCTION that returns a bonus on rewards; empty: none")
    bonus_place: str = options.at_creation(
        "after",
        "before: the bonus is in the environment's units, and scaled and clipped with its rewards, which are not "
        "normalized then; after: it is added to the result",
        choices=("before", "after"),
    )
    initial_std: float = options.at_creation(
        1.0, "continuous actions: first standard deviation, where the bounds are -1 and 1", low=1e-3, high=10
    )
    squash: bool = options.at_creation(
        False, "continuous actions: keep them within the bounds by tanh, instead of clipping"
    )
    decay_clip: bool = options.on_resume(
        False, "let ppo.clip_ratio fall like the learning rate, over optimizer.decay_updates"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        num_steps = self.batch_size * self.unroll_length
        if self.num_minibatches > num_steps:
            raise errors.ConfigError(
                f"num_minibatches is {self.num_minibatches}; an update has {num_steps} steps (ppo.batch_size x "
                "ppo.unroll_length), give at most that many"
            )

    def shared(self, config: Any) -> dict[str, int]:
        return {"ppo.batch_size": self.batch_size}


# Presets ----------------------------------------------------------------------------------------------------------

# As many unrolls as a preset's worker has environments: 2 groups of worker.envs_per_group.
_SMALL = options.values(ppo=dict(batch_size=32), evaluation=dict(every_updates=10))
_MEMORY = options.values(
    _SMALL,
    ppo=dict(unroll_length=64, num_epochs=10, entropy_weight=0.0),
    network=dict(lstm_width=64),
    optimizer=dict(learning_rate=1e-3),
)
_IMAGES = options.values(
    ppo=dict(batch_size=256, num_minibatches=16, clip_ratio=0.1),
    reward=dict(clip=1.0, normalize=False),
    network=dict(frame_stack=4, width=512),
    training=dict(publish_every=1),
    evaluation=dict(every_updates=50),
)
_IMAGES_ON_CPU = options.values(ppo=dict(batch_size=16, num_minibatches=4), evaluation=dict(every_updates=50))
# Two cores step ALE some four thousand times a second: small frames, and convolutions that an update affords 24 times.
# The budget's decay, 1,465 updates of 32 unrolls of 64, makes the last updates small.
_ATARI_ON_CPU = options.values(
    run=dict(max_env_steps=3_000_000),
    env=dict(frame_size=42),
    worker=dict(envs_per_group=16),
    ppo=dict(unroll_length=64, batch_size=32, num_epochs=3, num_minibatches=8, clip_ratio=0.15, decay_clip=False),
    optimizer=dict(learning_rate=7e-4, decay_updates=1_470),
    network=dict(kind="patches", width=256, channels=64, normalize_pixels=True),
    evaluation=dict(every_updates=200, episodes=10, num_envs=10),
)
_FOOTBALL = options.part(
    _IMAGES,
    ppo=dict(batch_size=32, num_minibatches=8),
    reward=dict(discount=0.997, normalize=False),
    on_cpu=_IMAGES_ON_CPU,
)

# Games of seats have short episodes, and their rows come unevenly: batches of half the rows, of up to three updates.
_SEATS = options.values(
    ppo=dict(batch_size=64, unroll_length=16, max_lag=4, num_epochs=2, trace_decay=1.0, entropy_weight=0.15),
    reward=dict(discount=1.0),
    optimizer=dict(learning_rate=1e-3),
)

# Half of the matches against the past, each snapshot alike: win rates say little where stakes differ.
# With less entropy the player becomes deterministic, snapshots are alike, and their mixture is no better than one.
_PAST = options.values(_SEATS, ppo=dict(entropy_weight=0.1), league=dict(self_play=0.5, weighting="uniform"))

# Boards: results are -1, 0 and 1 already, and lie at most some dozen moves ahead.
_BOARD = options.values(
    worker=dict(envs_per_group=64),
    ppo=dict(batch_size=128, unroll_length=32, num_minibatches=8, trace_decay=0.9, entropy_weight=0.02),
    reward=dict(discount=1.0, normalize=False),
    network=dict(width=128),
    optimizer=dict(learning_rate=1e-3),
    evaluation=dict(every_updates=50),
)

_FOOTBALL_SIDES = options.values(
    ppo=dict(batch_size=32, unroll_length=64, max_lag=4, num_epochs=4),
    reward=dict(discount=0.993),
    network=dict(width=128),
    optimizer=dict(learning_rate=5e-4),
)

PARTS: Mapping[str, options.Part] = {
    **dict.fromkeys(("spiel", "pgx", "hex", "othello", "go9"), options.part(_BOARD)),
    "tictactoe": options.part(_BOARD, run=dict(max_updates=500)),
    "connect_four": options.part(_BOARD, run=dict(max_updates=3_000)),
    "league-tictactoe": options.part(_BOARD, run=dict(max_updates=500), league=dict(freeze_every=100_000)),
    "league-connect-four": options.part(_BOARD, run=dict(max_updates=3_000), league=dict(freeze_every=500_000)),
    "seats": options.part(_SEATS),
    # Agents move in turn in some environments, or end early: rows come unevenly there.
    # With a discount of 0.99 values of simple_spread still fall after 1.5 million steps, and returns stand still.
    "agents": options.part(
        _SMALL,
        ppo=dict(batch_size=128, unroll_length=32, max_lag=4, num_epochs=10),
        reward=dict(discount=0.95),
        optimizer=dict(learning_rate=1e-3),
        evaluation=dict(every_updates=20),
    ),
    # Where a player is nearly deterministic, advantages are, too, and with a standard deviation of 1 the rare other
    # actions vanish: it would never leave its bias.
    "league-brps": options.part(
        _PAST,
        ppo=dict(entropy_weight=0.2, normalize_advantages=False),
        league=dict(self_play=0.0, builder="biased", builder_args='{"nash_conv": 25, "every": 5000}', build_every=10),
    ),
    "league-kuhn": options.part(_PAST, league=dict(freeze_every=20_000)),
    "league-leduc": options.part(_PAST, league=dict(freeze_every=50_000)),
    # The exploiters of the table in experiments/notes/league.md, which are reset after each snapshot.
    "league-goofspiel": options.part(
        _SEATS,
        league=dict(
            builder="alphastar",
            builder_args='{"min_games": 100, "min_steps": 3000, "max_steps": 8000, "reset_probability": 1}',
            weighting="uniform",
            build_every=10,
        ),
    ),
    # A goal may be a hundred moves away, and without a discount a player in no hurry learns nothing from it.
    "league-soccer": options.part(
        _PAST,
        ppo=dict(unroll_length=32, trace_decay=0.95, entropy_weight=0.02, num_epochs=4),
        reward=dict(discount=0.99),
        league=dict(freeze_every=100_000),
    ),
    # Throws pay at once, and shape a bot's next ones; all bots count alike, so none is met more often than another.
    # The learning rate falls over the 12 million throws: with a constant one, returns stop at four fifths.
    "roshambo": options.part(
        run=dict(max_env_steps=12_000_000),
        ppo=dict(batch_size=32, unroll_length=50, max_lag=4, num_epochs=2, entropy_weight=0.01),
        network=dict(width=128, lstm_width=128),
        reward=dict(discount=0.9),
        optimizer=dict(learning_rate=1e-3, decay_updates=7_500),
        league=dict(builder="self_play", members="roshambo:all", self_play=0.0, weighting="uniform", active=43),
    ),
    "catch": options.part(_SMALL, ppo=dict(unroll_length=20), optimizer=dict(learning_rate=2e-3)),
    "cartpole": options.part(
        _SMALL,
        ppo=dict(unroll_length=32, num_epochs=10, entropy_weight=0.0),
        optimizer=dict(learning_rate=1e-3),
        evaluation=dict(every_updates=20),
    ),
    "chance": options.part(_SMALL, ppo=dict(batch_size=64)),
    "discrete": options.part(_SMALL),
    "memory-cartpole": options.part(_MEMORY, ppo=dict(unroll_length=32), evaluation=dict(every_updates=20)),
    "memory-tmaze": options.part(_MEMORY),
    "memory-repeat": options.part(_MEMORY, reward=dict(discount=0.9)),
    "vector": options.part(
        _SMALL,
        ppo=dict(unroll_length=256, trace_decay=0.98, num_minibatches=64),
        reward=dict(discount=0.999),
        optimizer=dict(learning_rate=5e-4),
    ),
    "continuous": options.part(
        _SMALL,
        ppo=dict(num_epochs=10, num_minibatches=64, entropy_weight=0.0),
        reward=dict(discount=0.97),
        optimizer=dict(learning_rate=1e-3),
        # Pendulum's actions matter for some ten steps. LunarLanderContinuous never lands with its settings.
        elsewhere=options.values(reward=dict(discount=0.99), optimizer=dict(learning_rate=3e-4)),
    ),
    "minatar": options.part(
        _SMALL,
        ppo=dict(batch_size=64, num_minibatches=16),
        network=dict(width=128),
        optimizer=dict(learning_rate=1e-3),
        evaluation=dict(every_updates=50),
    ),
    "mujoco": options.part(
        _SMALL,
        ppo=dict(unroll_length=128, num_epochs=10, num_minibatches=64, entropy_weight=0.0),
        reward=dict(discount=0.99),
        optimizer=dict(learning_rate=3e-4),
    ),
    "football": _FOOTBALL,
    "football-sides": options.part(_FOOTBALL_SIDES, seats=dict(policies='{"left_*": "left", "right_*": "right"}')),
    "league-football": options.part(_FOOTBALL_SIDES, league=dict(freeze_every=500_000)),
    "football-checkpoints": _FOOTBALL,
    "pixels": options.part(_IMAGES, ppo=dict(batch_size=128), on_cpu=_IMAGES_ON_CPU),
    "atari-100k": options.part(  # 98 updates of 8 unrolls of 128
        _IMAGES,
        ppo=dict(batch_size=8),
        evaluation=dict(every_updates=10),
        on_cpu=options.values(ppo=dict(num_minibatches=4), evaluation=dict(every_updates=10)),
    ),
    "atari-large": options.part(_IMAGES, ppo=dict(batch_size=512)),
    # 50 million steps are 1,526 updates of 256 unrolls of 128.
    "atari": options.part(
        _IMAGES,
        env=dict(frame_size=84, full_action_space=False, life_loss=True),
        ppo=dict(decay_clip=True),
        optimizer=dict(decay_updates=1_560),
        on_cpu=_ATARI_ON_CPU,
    ),
}
