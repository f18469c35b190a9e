"""R2D2's settings (Kapturowski et al. 2019); the defaults are the paper's for Atari, table 2."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from seedzero.config import options


@dataclasses.dataclass(frozen=True)
class R2D2Config(options.AgentSection):
    SUMMARY = "Ape-X with an LSTM: where one observation does not show all that matters"
    LEARNS_THROUGH = "sequence_length"

    discount: float = options.fixed(0.997, "discount of one environment step", low=0, high=1)
    n_step: int = options.tunable(5, "steps of a return", "environment steps", low=1, high=1000)
    sequence_length: int = options.fixed(
        80, "steps of a sequence that are learned", "environment steps", low=1, high=1000
    )
    burn_in: int = options.fixed(
        40, "steps before them that only bring the LSTM's state up to date", "environment steps", low=0, high=1000
    )
    period: int = options.fixed(
        40,
        "sequences begin every so many steps; the LSTM's state is stored there",
        "environment steps",
        low=1,
        high=1000,
    )
    priority_eta: float = options.tunable(
        0.9, "a sequence's priority is eta x its largest error + (1 - eta) x the mean", low=0, high=1
    )
    epsilon: float = options.tunable(
        0.4,
        "probability of a random action: environment i of N has epsilon ^ (1 + exponent i / (N - 1))",
        low=0,
        high=1,
    )
    epsilon_exponent: float = options.tunable(7.0, "see r2d2.epsilon", low=0)
    target_updates: int = options.tunable(2_500, "updates between copies of the target network", "updates", low=1)
    rescale_values: bool = options.fixed(True, "learn values as h(x) = sign(x)(sqrt(|x| + 1) - 1) + x / 1000")
    reward_scale: float = options.fixed(1.0, "factor of rewards in training", low=1e-6)
    clip_reward: float = options.fixed(0.0, "largest absolute reward, after scaling; 0: no limit", "reward", low=0)
    optimizer: str = options.fixed("adam", "optimizer; rmsprop: the centered one", choices=("rmsprop", "adam"))
    learning_rate: float = options.tunable(1e-4, "learning rate", low=0)
    rmsprop_decay: float = options.tunable(0.95, "RMSProp: decay of its averages", low=0, high=1)
    optimizer_epsilon: float = options.tunable(1e-3, "added to the divisor of a step", low=1e-12)
    clip_norm: float = options.tunable(40.0, "largest global norm of the gradients; 0: no limit", low=0)
    torso: str = options.fixed(
        "auto",
        "auto: mlp for vectors, conv for small grids, nature (DQN's three convolutions) for images; deep: IMPALA's "
        "residual network",
        choices=("auto", "mlp", "conv", "nature", "deep"),
    )
    width: int = options.fixed(512, "units of the hidden layers", low=1)
    lstm_width: int = options.fixed(512, "units of the LSTM", low=1)
    frame_stack: int = options.fixed(1, "newest frames in one observation", "frames", low=1, high=16)
    compute_dtype: str = options.tunable(
        "auto", "auto: bfloat16 on accelerators, float32 on a CPU", choices=("auto", "float32", "bfloat16")
    )

    @property
    def num_positions(self) -> int:
        """Positions of a window: the burn-in, the steps that are learned, and the observation behind them."""
        return self.burn_in + self.sequence_length + 1

    def window_steps(self, config: Any) -> int:
        return self.frame_stack + self.num_positions + self.period - 1

    def notes(self, config: Any) -> list[str]:
        num_envs, num_steps, min_steps = config.worker.num_envs, self.num_positions, config.replay.min_steps
        if config.worker.num_remote or min_steps >= num_envs * num_steps:
            return []
        return [
            f"replay.min_steps={min_steps}, but updates find nothing to learn from before each of {num_envs} "
            f"environments has {num_steps} steps, those of a sequence with its burn-in; "
            f"give --replay.min_steps={num_envs * num_steps}"
        ]


# Presets ----------------------------------------------------------------------------------------------------------

_SMALL = options.values(
    r2d2=dict(
        discount=0.99,
        sequence_length=20,
        burn_in=10,
        period=10,
        learning_rate=1e-3,
        optimizer_epsilon=1e-8,
        target_updates=50,
        # As in Ape-X's presets: the squared loss wants values below about 10.
        rescale_values=False,
        reward_scale=0.1,
        width=64,
        lstm_width=64,
    ),
    replay=dict(
        capacity=100_000, min_steps=2_000, batch_size=32, samples_per_insert=1.0, priority_alpha=0.9, priority_beta=0.6
    ),
    evaluation=dict(every_updates=500),
)
_IMAGES = options.values(
    r2d2=dict(frame_stack=4),
    replay=dict(
        capacity=4_000_000,
        min_steps=200_000,
        batch_size=64,
        samples_per_insert=0.02,
        priority_alpha=0.9,
        priority_beta=0.6,
    ),
)
_IMAGES_ON_CPU = options.values(
    r2d2=dict(lstm_width=256, width=256), replay=dict(capacity=50_000, min_steps=5_000, batch_size=16)
)

PARTS: Mapping[str, options.Part] = {
    "catch": options.part(_SMALL),
    "cartpole": options.part(_SMALL),
    "vector": options.part(_SMALL),
    "discrete": options.part(_SMALL),
    "memory-cartpole": options.part(_SMALL),
    # Returns of about 1; a sequence reaches from the cue to the turn. At the first update each environment has a whole
    # sequence, also of the longest task.
    "memory-tmaze": options.part(
        _SMALL,
        r2d2=dict(reward_scale=1.0, sequence_length=40, period=20),
        replay=dict(samples_per_insert=0.5, min_steps=4_000),
        evaluation=dict(every_updates=250),
    ),
    # What an action is worth shows in its own reward.
    "memory-repeat": options.part(_SMALL, r2d2=dict(discount=0.9), replay=dict(min_steps=4_000)),
    "minatar": options.part(_SMALL, r2d2=dict(width=128, lstm_width=128), evaluation=dict(every_updates=5_000)),
    **dict.fromkeys(
        ("pixels", "dmlab", "football", "football-checkpoints"), options.part(_IMAGES, on_cpu=_IMAGES_ON_CPU)
    ),
    # Kapturowski et al. 2019: batches of 64 sequences; 5 of these and 16.6 thousand steps a second.
    "atari": options.part(
        _IMAGES, env=dict(frame_size=84, full_action_space=True, sticky_actions=0.0), on_cpu=_IMAGES_ON_CPU
    ),
}
