"""MuZero's settings: the agent, its search, exploration and reanalysis; its part of each preset."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from seedzero.config import options, shared


@dataclasses.dataclass(frozen=True)
class SearchSection(options.Section):
    START = "num_simulations min_value_range"
    ADVANCED = "policy rounds temperature value_scale"

    policy: str = options.on_resume(
        "gumbel", "search at the root: its choice of actions and the policy target", choices=("gumbel", "puct")
    )
    num_simulations: int = options.on_resume(
        16, "simulations for each move; Gumbel runs them in batches", low=1, high=10_000
    )
    num_considered: int = options.on_resume(
        16, "Gumbel: root actions considered when sequential halving begins", low=1
    )
    rounds: int = options.on_resume(
        0,
        "Gumbel: most rounds of sequential halving, each of which drops half of the actions; 0: until two actions are "
        "left; 1: no action is dropped, which takes a single network call after the root's if "
        "search.num_simulations equals search.num_considered",
        low=0,
        high=20,
    )
    num_sampled: int = options.at_creation(
        16,
        "continuous actions: actions sampled at each node; Gumbel considers at most num_considered of them "
        "at the root",
        low=2,
        high=1000,
    )
    gumbel_scale: float = options.on_resume(1.0, "Gumbel: scale of the root noise in training", low=0)
    value_scale: float = options.on_resume(0.1, "Gumbel: scale of completed Q values", low=0)
    min_value_range: float = options.on_resume(
        0.01,
        "smallest range by which a node's Q values are scaled, so that noise does not look like a preference",
        "usual rewards, see reward.normalize",
        low=1e-8,
    )
    temperature: float = options.on_resume(1.0, "PUCT: temperature of the visit counts in training", low=0)

    # The papers' constants: fields of `seedzero.search.SearchConfig`, no settings.
    max_depth = 0
    max_visit_init = 50.0
    dirichlet_alpha = 0.3
    dirichlet_fraction = 0.25
    pb_c_init = 1.25
    pb_c_base = 19652.0


@dataclasses.dataclass(frozen=True)
class ExploreConfig(options.Section):
    START = "first_steps"
    ADVANCED = "max_length"

    epsilon: float = options.on_resume(
        0.0, "probability that a training step starts a repetition of a random action; 0: off", low=0, high=1
    )
    spread: bool = options.on_resume(
        False, "give each environment its own epsilon, from 1 to epsilon^2, with epsilon as the geometric mean"
    )
    first_steps: int = options.on_resume(
        0,
        "each environment begins with about this many steps of repeated random actions, at most until the "
        "end of the repetition in which it gets a reward above 0 or its episode terminates; 0: off",
        "environment steps",
        low=0,
    )
    exponent: float = options.on_resume(
        2.0, "an action is repeated n times with a probability proportional to n ^ -exponent", low=0
    )
    max_length: int = options.on_resume(
        100, "largest number of repetitions in a row", "environment steps", low=1, high=10_000
    )


@dataclasses.dataclass(frozen=True)
class MuZeroConfig(options.AgentSection):
    SUMMARY = "plans with a learned model: the most from each step, for the most computation"
    PLAYS_SEATS = False
    SECTIONS = ("search", "explore", "network", "optimizer", "reward", "reanalyse", "league")
    UNREAD = ("optimizer.kind", "optimizer.epsilon", "optimizer.rmsprop_decay", "network.lstm_width", "reward.scale")
    CHOICES: ClassVar = {"network.kind": ("auto", "mlp", "conv", "resnet")}
    MAX_PLAYERS = 2
    PLAYS_CONTINUOUS = True
    STATE_EVERY = 4
    """Rows from one stored state of a memory to the next; a window begins at one, so its burn-in is up to 3 longer."""
    START = "n_step entropy_weight"
    ADVANCED = (
        "value_loss_weight policy_gradient_weight off_policy_correction search_value_age search_value_start "
        "stored_value value_prefix consistency_steps intensity_scale memory_width"
    )

    predict_ends: bool = options.at_creation(
        False, "also predict whether the episode ends, and weight values by the probability that it continues"
    )
    unroll_steps: int = options.on_resume(5, "steps for which training unrolls the model (K)", low=1, high=64)
    n_step: int = options.on_resume(5, "rewards in a value target before it bootstraps (n)", low=1, high=1000)
    value_loss_weight: float = shared.value_loss_weight(0.25)
    entropy_weight: float = options.on_resume(
        0.0, "weight of the entropy bonus, which keeps the policy undecided between actions of equal value", low=0
    )
    policy_gradient_weight: float = options.at_creation(
        0.0,
        "weight of a policy gradient by the actual returns, in addition to the search's policy; it helps if "
        "the model does not distinguish actions; 0: off",
        low=0,
    )
    target_network_updates: int = options.at_creation(
        0,
        "bootstrap from a target network, copied every this many updates; 0: from root values stored when acting",
        "updates",
        low=0,
    )
    off_policy_correction: bool = options.at_creation(
        False,
        "correct value targets by V-trace: weight rewards by how likely the bootstrapping network's policy "
        "would take the stored actions, to the end of the window",
    )
    search_value_age: int = options.on_resume(
        0,
        "for steps at least this old, use the stored search value as the target instead of the n-step "
        "return (EfficientZero V2); 0: off",
        "updates",
        low=0,
    )
    search_value_start: int = options.on_resume(
        0, "updates before search_value_age applies (EfficientZero V2: 30000)", "updates", low=0
    )
    stored_value: str = options.at_creation(
        "policy",
        "stored search value: policy, the expected Q under the improved policy; root, the mean over all "
        "simulations, including moves that the search only tried",
        choices=("root", "policy"),
    )
    shift_pixels: int = options.on_resume(0, "largest random shift of images in training; 0: off", "pixels", low=0)
    value_prefix: bool = options.at_creation(
        False, "predict sums of rewards along unrolled steps with an LSTM, instead of each reward (EfficientZero)"
    )
    consistency_weight: float = options.at_creation(
        0.0,
        "weight of the consistency loss between unrolled states and later observations (EfficientZero: 2); 0: off",
        low=0,
    )
    consistency_steps: int = options.on_resume(
        0,
        "unrolled steps with the consistency loss, each of which encodes one more observation; 0: all",
        low=0,
        high=64,
    )
    intensity_scale: float = options.on_resume(
        0.0,
        "multiply images in training by 1 + this * noise, normal and clipped at 2; 0: off; 0.05 is usual",
        low=0,
        high=0.5,
    )

    chance_codes: int = options.at_creation(
        0,
        "codes of outcomes in a model with chance (Stochastic MuZero: 32): an action leads to an afterstate, and a "
        "code to what follows; 0: off, an action has one outcome",
        low=0,
        high=1024,
    )
    memory: str = options.at_creation(
        "none",
        "recurrent core after the representation; acting carries its state, and searches begin with it",
        choices=("none", "lstm", "gru"),
    )
    memory_width: int = options.at_creation(64, "units of the recurrent core", low=1, high=4096)
    burn_in: int = options.at_creation(
        20,
        "steps before a sampled one that update the core's state and through which it learns what to keep",
        "environment steps",
        low=0,
        high=1000,
    )

    @property
    def num_before(self) -> int:
        """Rows before a window that come along: the burn-in, with the row of its stored state."""
        return 0 if self.memory == "none" else self.burn_in + self.STATE_EVERY - 1

    def window_steps(self, config: Any) -> int:
        return int(config.network.frame_stack + self.num_before + self.unroll_steps + self.n_step + 1)

    def decay_end(self, config: Any) -> tuple[str, int]:
        optimizer = config.optimizer
        if optimizer.schedule not in ("cosine", "linear") or optimizer.decay_rate or not optimizer.decay_updates:
            return "", 0
        return "optimizer.decay_updates", optimizer.warmup_updates + optimizer.decay_updates

    def shared(self, config: Any) -> dict[str, int]:
        refreshed = {"reanalyse.batch_size": config.reanalyse.batch_size} if config.reanalyse.per_insert else {}
        return {**super().shared(config), **refreshed}


@dataclasses.dataclass(frozen=True)
class ReanalyseConfig(options.Section):
    ADVANCED = "batch_size"

    fresh_share: float = options.at_creation(
        0.0,
        "fraction of each batch's windows that an update searches again before it learns from them "
        "(EfficientZero V2: 1), with the target network, if there is one, or the newest parameters; all "
        "windows then bootstrap from it",
        low=0,
        high=1,
    )
    per_insert: float = options.at_creation(  # rings store more arrays where it is above 0
        0.0,
        "replayed positions that are searched again with the newest parameters for each stored step; 0: none",
        low=0,
        high=1000,
    )
    batch_size: int = options.at_creation(
        128,
        "positions in one call; more cost hardly more time on an accelerator, but delay acting on a CPU",
        low=1,
    )


# Two cores afford a few calls of a small network a step, and small batches.
_PIXELS_ON_CPU = options.values(
    search=dict(num_simulations=4, num_considered=4),
    optimizer=dict(learning_rate=0.0005, warmup_updates=100),
    replay=dict(capacity=100_000, min_steps=500, batch_size=16, samples_per_insert=0.5),
)
# Small frames, one strided convolution and a vector as the hidden state: an observation costs as much as one of
# MinAtar's, and two cores act and learn a thousand steps a second. Pixels normalized one by one take a third of the
# steps. docs/agents/muzero.md says more.
_ATARI_ON_CPU = options.values(
    run=dict(max_env_steps=4_000_000),
    env=dict(frame_size=42),
    search=dict(num_simulations=8, num_considered=4, min_value_range=0.3),
    explore=dict(first_steps=500),  # Freeway pays only who walks up for a hundred steps
    network=dict(
        kind="conv",
        first_stride=4,
        channels=16,
        width=128,
        pooled=True,
        gated=True,
        normalize_pixels=True,
        num_bins=121,
        support_limit=30.0,
    ),
    muzero=dict(
        shift_pixels=0,
        value_loss_weight=1.0,
        policy_gradient_weight=0.5,
        entropy_weight=0.05,
        consistency_weight=2.0,
        consistency_steps=1,
    ),
    reward=dict(discount=0.99),
    optimizer=dict(
        learning_rate=0.001, schedule="exponential", warmup_updates=100, decay_rate=0.3, decay_updates=24_000
    ),
    replay=dict(capacity=100_000, min_steps=3_000, batch_size=128, samples_per_insert=2.0),
    reanalyse=dict(per_insert=0.0),
    worker=dict(envs_per_group=16),
    evaluation=dict(every_updates=3_000, episodes=10, num_envs=10),
)
_PIXELS = options.values(
    search=dict(num_simulations=16, num_considered=8),
    network=dict(frame_stack=4, num_bins=601, support_limit=60.0),
    muzero=dict(n_step=10, shift_pixels=4),
    optimizer=dict(learning_rate=8e-4, warmup_updates=500),
)
# An episode returns 2 at most with checkpoints, and a match a few goals. Shifted images would move the goals.
_FOOTBALL = options.part(
    _PIXELS,
    network=dict(num_bins=101, support_limit=10.0),
    muzero=dict(shift_pixels=0),
    reward=dict(discount=0.997),
    replay=dict(capacity=200_000, min_steps=5_000, batch_size=256, samples_per_insert=4.0),
    on_cpu=options.values(
        _PIXELS_ON_CPU, replay=dict(capacity=20_000, min_steps=500, batch_size=16, samples_per_insert=0.5)
    ),
)

# The openings bring positions that its own moves, all good by the end, leave out.
_TICTACTOE = options.values(
    search=dict(num_simulations=32, num_considered=9, gumbel_scale=4.0, min_value_range=1.0),
    network=dict(width=64, num_bins=21, support_limit=1.0),
    muzero=dict(n_step=2),
    reward=dict(discount=1.0),
    optimizer=dict(schedule="cosine", decay_updates=30_000),
    replay=dict(capacity=64_000, min_steps=1_000, batch_size=256, samples_per_insert=16.0),
)
# Random openings show it more positions than noise in its moves, and leave the values of its moves as they are.
_CONNECT_FOUR = options.values(
    search=dict(num_simulations=32, num_considered=5, min_value_range=1.0),
    network=dict(width=128, head_width=128, num_bins=21, support_limit=1.0),
    muzero=dict(n_step=2),
    reward=dict(discount=1.0),
    optimizer=dict(schedule="cosine", decay_updates=50_000),
    replay=dict(capacity=64_000, min_steps=1_000, batch_size=256, samples_per_insert=8.0),
)
# With a discount of 0.99 LunarLander's runs often learn to hover: landing is too far away to count for much.
_VECTOR = options.values(
    search=dict(num_simulations=16, num_considered=4),
    network=dict(width=64, head_width=64),
    muzero=dict(n_step=20, target_network_updates=100),
    reward=dict(discount=0.995),
    optimizer=dict(learning_rate=0.002),
    replay=dict(capacity=128_000, min_steps=1_280, batch_size=256, samples_per_insert=16.0),
)
# The reward says nothing but that the pole still stands, and a drift to the side ends the episode a hundred steps
# later: long returns and the prediction of ends tell of it early. Few bins and unrolled steps make quick updates.
_CARTPOLE = options.values(
    search=dict(num_simulations=16, num_considered=2, value_scale=0.03),
    network=dict(width=64, gated=True, num_bins=41, support_limit=20.0),
    muzero=dict(unroll_steps=3, n_step=50, target_network_updates=100, predict_ends=True),
    optimizer=dict(learning_rate=0.002),
    replay=dict(capacity=64_000, min_steps=1_280, batch_size=256, samples_per_insert=16.0),
)
# Stored root values: a target network would look at each window's burn-in and all its positions once more.
_MEMORY = options.values(
    _VECTOR,
    muzero=dict(memory="lstm", n_step=20, target_network_updates=0),
    replay=dict(capacity=64_000, min_steps=2_000, batch_size=128, samples_per_insert=8.0),
)

PARTS: Mapping[str, options.Part] = {
    "catch": options.part(
        search=dict(num_simulations=8, num_considered=3),
        network=dict(width=32, num_bins=21, support_limit=2.0),
        muzero=dict(n_step=9),
        replay=dict(capacity=32_000, min_steps=500, batch_size=128, samples_per_insert=16.0),
    ),
    "cartpole": options.part(_CARTPOLE),
    "tictactoe": options.part(_TICTACTOE),
    "connect_four": options.part(_CONNECT_FOUR),
    # 48 and 32 snapshots in the presets' budgets.
    "league-tictactoe": options.part(_TICTACTOE, league=dict(freeze_every=10_000)),
    "league-connect-four": options.part(_CONNECT_FOUR, league=dict(freeze_every=50_000)),
    **dict.fromkeys(
        ("spiel", "pgx"),
        options.part(
            search=dict(num_simulations=32, num_considered=16, gumbel_scale=2.0, min_value_range=1.0),
            network=dict(width=256, head_width=128, num_bins=121, support_limit=6.0),
            muzero=dict(n_step=4),
            reward=dict(discount=1.0),
            optimizer=dict(learning_rate=0.001),
            replay=dict(capacity=256_000, min_steps=2_000, batch_size=256, samples_per_insert=8.0),
        ),
    ),
    # Scores of 2048 reach hundreds of usual rewards; returns of pig and backgammon are 1 at most, and as well told.
    "chance": options.part(
        search=dict(num_simulations=16, num_considered=4),
        network=dict(width=128, gated=True, num_bins=121, support_limit=30.0),
        muzero=dict(chance_codes=32, n_step=10, consistency_weight=2.0, consistency_steps=1),
        reward=dict(discount=0.999),
        optimizer=dict(learning_rate=0.001),
        replay=dict(capacity=256_000, min_steps=2_000, batch_size=128, samples_per_insert=4.0),
    ),
    # Stored root values, not a target network: its six observations a window would take most of an update's time.
    # The smallest range of values and the entropy keep the policy undecided where all actions are alike: without
    # them agents go the same way every time, and never see what would have saved them where it ends. Larger ones
    # hold up Asterix, whose actions' values differ by hundredths for a long time. Of the network docs/agents/muzero.md
    # says more. Convolutions are most of an update's time: 32 channels would double it.
    "minatar": options.part(
        search=dict(num_simulations=8, num_considered=4, min_value_range=0.3),
        network=dict(width=128, channels=16, pooled=True, gated=True),
        muzero=dict(predict_ends=True, n_step=5, entropy_weight=0.15, consistency_weight=2.0, consistency_steps=1),
        reward=dict(discount=0.99),
        optimizer=dict(learning_rate=0.001, schedule="cosine", decay_updates=60_000),
        replay=dict(capacity=256_000, min_steps=2_000, batch_size=128, samples_per_insert=4.0),
    ),
    # Repeated actions find rewards that single random ones do not: Acrobot needs some all along, MountainCar a start
    # of nothing else. LunarLander's training returns are lower for them, its evaluations are not.
    "vector": options.part(_VECTOR, explore=dict(epsilon=0.02, first_steps=500)),
    # Where a cart will be tells its velocity, so the consistency loss teaches the memory what to keep. Stored values
    # spare an update the target network's walk over 50 steps. With a constant learning rate good returns do not last,
    # and it takes more episodes to tell the best of them.
    "memory-cartpole": options.part(
        _CARTPOLE,
        muzero=dict(memory="lstm", burn_in=10, target_network_updates=0, consistency_weight=2.0, consistency_steps=1),
        optimizer=dict(schedule="cosine", decay_updates=4_000),
        evaluation=dict(episodes=40, num_envs=40),
    ),
    "memory-tmaze": options.part(_MEMORY, muzero=dict(burn_in=40)),  # from the cue to the turn, with steps that stand
    "memory-repeat": options.part(_MEMORY, muzero=dict(burn_in=8, n_step=5), reward=dict(discount=0.9)),
    # Numbers that look nothing alike, chance, and rewards that a random walk hardly meets. What each setting is for:
    # - the correction and fresh searches: returns and policies of the first, random steps stay in the replay, and make
    #   what was not tried lately look bad;
    # - the entropy and the range of values: noise in nearly equal values does not become a policy;
    # - the random steps at the start and the repeated ones: Taxi's pick-ups and drop-offs fail wherever they are tried
    #   but in eight places, so that an agent first learns never to try.
    "discrete": options.part(
        search=dict(num_simulations=4, num_considered=4, min_value_range=0.1),
        explore=dict(epsilon=0.1, exponent=3.0, max_length=10),
        muzero=dict(
            unroll_steps=3, n_step=10, target_network_updates=100, off_policy_correction=True, entropy_weight=0.3
        ),
        reward=dict(discount=0.995),
        optimizer=dict(learning_rate=0.002, schedule="cosine", decay_updates=20_000),
        replay=dict(capacity=128_000, min_steps=25_000, batch_size=256, samples_per_insert=16.0),
        reanalyse=dict(fresh_share=1.0),
    ),
    # MountainCarContinuous: with a discount of 0.97 a goal a hundred steps away is not worth the cost of going there.
    "continuous": options.part(
        search=dict(num_simulations=16, num_sampled=16, num_considered=8),
        explore=dict(first_steps=300),
        network=dict(width=64, head_width=64),
        muzero=dict(n_step=10, target_network_updates=100),
        reward=dict(discount=0.99),
        optimizer=dict(learning_rate=0.002),
        replay=dict(capacity=128_000, min_steps=1_280, batch_size=256, samples_per_insert=16.0),
    ),
    "mujoco": options.part(
        search=dict(num_simulations=16, num_sampled=16, num_considered=8),
        network=dict(width=256, head_width=256),
        muzero=dict(n_step=5, target_network_updates=100),
        reward=dict(discount=0.99),
        optimizer=dict(learning_rate=5e-4),
        replay=dict(capacity=1_000_000, min_steps=10_000, batch_size=256, samples_per_insert=16.0),
    ),
    "football": _FOOTBALL,
    "football-checkpoints": _FOOTBALL,
    "pixels": options.part(
        _PIXELS,
        replay=dict(capacity=200_000, min_steps=5_000, batch_size=256, samples_per_insert=4.0),
        on_cpu=options.values(_PIXELS_ON_CPU, optimizer=dict(learning_rate=1e-3)),
    ),
    "dmlab": options.part(
        _PIXELS,
        replay=dict(capacity=200_000, min_steps=5_000, batch_size=256, samples_per_insert=1.0),
        on_cpu=_PIXELS_ON_CPU,
    ),
    # With the small network, on one H200 and without sticky actions, training episodes of Pong return 18 after 216 s
    # and 2.2 million steps. The middle one is for what comes after the first minutes of a harder game.
    "atari": options.part(
        _PIXELS,
        network=dict(resnet_size="middle"),
        reward=dict(discount=0.997),
        # 390 thousand updates are 200 million frames.
        optimizer=dict(clip_norm=5.0, schedule="cosine", decay_updates=390_000),
        replay=dict(capacity=500_000, min_steps=10_000, batch_size=512, samples_per_insert=4.0),
        reanalyse=dict(per_insert=0.25),
        on_cpu=_ATARI_ON_CPU,
    ),
    # EfficientZero V2 (Wang et al. 2024) and its published settings; experiments/notes/atari.md has the differences.
    # Few environments, so that acting is never far from the newest parameters.
    "atari-100k": options.part(
        _PIXELS,
        search=dict(num_simulations=16, num_considered=4),
        muzero=dict(
            n_step=5,
            search_value_age=5_000,
            search_value_start=30_000,
            target_network_updates=200,
            value_prefix=True,
            value_loss_weight=0.25,
            consistency_weight=5.0,
            intensity_scale=0.05,
        ),
        # Their discount is 0.997 a frame, and a step has four.
        reward=dict(discount=0.988, clip=1.0),
        optimizer=dict(learning_rate=0.0005, warmup_updates=1_000, clip_norm=5.0),
        replay=dict(
            capacity=100_000,
            min_steps=2_000,
            batch_size=256,
            samples_per_insert=256.0,
            final_updates=20_000,
            priority_alpha=1.0,
            priority_beta=1.0,
            importance_min=0.1,
        ),
        reanalyse=dict(fresh_share=1.0),
        # The small network of preset atari, an update for each step with a quarter of the windows, and old searches
        # renewed by the way instead of a target network. Pong scores 19.6, -17.4 and -14.0 with the random shifts
        # (three seeds), -14.0 without (one).
        on_cpu=options.values(
            _ATARI_ON_CPU,
            run=dict(max_env_steps=100_000),
            muzero=dict(
                shift_pixels=2,
                policy_gradient_weight=0.0,
                entropy_weight=0.0,
                search_value_age=0,
                target_network_updates=0,
                value_prefix=False,
                value_loss_weight=0.5,
                consistency_weight=2.0,
                consistency_steps=1,
                intensity_scale=0.0,
            ),
            optimizer=dict(
                learning_rate=0.001, schedule="cosine", warmup_updates=500, decay_rate=0.05, decay_updates=97_500
            ),
            replay=dict(
                capacity=100_000,
                min_steps=2_000,
                batch_size=64,
                samples_per_insert=64.0,
                final_updates=0,
                priority_alpha=0.0,
            ),
            reanalyse=dict(fresh_share=0.0, per_insert=8.0, batch_size=256),
            worker=dict(envs_per_group=4),
            evaluation=dict(every_updates=20_000, episodes=10, num_envs=10),
        ),
    ),
    # MuKoe's numbers: 256 channels with 10 and 6 blocks, batches of 512, cosine decay from 1e-4. Its 8 samples are for
    # each sequence of 160 steps: with ours, 64 million steps are learned in its million updates.
    "atari-large": options.part(
        _PIXELS,
        search=dict(num_simulations=50, num_considered=16),
        network=dict(resnet_size="large", head_width=256),
        reward=dict(discount=0.99),
        optimizer=dict(
            learning_rate=0.0001, schedule="cosine", warmup_updates=1_000, decay_updates=1_000_000, clip_norm=32.0
        ),
        replay=dict(capacity=1_000_000, min_steps=50_000, batch_size=512, samples_per_insert=8.0),
    ),
}
