"""MuZero's settings: the agent, its search, exploration, network, optimizer and reanalysis."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from seedzero.config import options


@dataclasses.dataclass(frozen=True)
class SearchConfig(options.Section):
    policy: str = options.tunable("gumbel", "root policy and policy target", choices=("gumbel", "puct"))
    num_simulations: int = options.tunable(16, "network calls a move", low=1, high=10_000)
    num_considered: int = options.tunable(16, "Gumbel: root actions at the start of sequential halving", low=1)
    num_sampled: int = options.fixed(
        16,
        "continuous actions: samples at each node; Gumbel considers at most num_considered of them at the root",
        low=2,
        high=1000,
    )
    uniform_share: float = options.tunable(
        0.1,
        "continuous actions: share of the samples from the whole range instead of the policy, in each dimension",
        low=0,
        high=1,
    )
    max_depth: int = options.tunable(0, "longest path from the root; 0: no limit", low=0)
    gumbel_scale: float = options.tunable(1.0, "Gumbel: scale of the root noise while training", low=0)
    value_scale: float = options.tunable(0.1, "Gumbel: scale of completed Q values", low=0)
    max_visit_init: float = options.tunable(
        50.0, "Gumbel: visits added to the largest count when Q values are scaled", low=0
    )
    min_value_range: float = options.tunable(
        0.01,
        "smallest range that a node's Q values are scaled by: noise in equal values becomes no preference",
        "usual rewards, see muzero.scale_rewards",
        low=1e-8,
    )
    dirichlet_alpha: float = options.tunable(0.3, "PUCT: concentration of the root noise", low=1e-6)
    dirichlet_fraction: float = options.tunable(
        0.25, "PUCT: share of noise in the root prior while training", low=0, high=1
    )
    pb_c_init: float = options.tunable(1.25, "PUCT: c1 of MuZero's equation 2", low=0)
    pb_c_base: float = options.tunable(19652.0, "PUCT: c2 of MuZero's equation 2", low=1)
    temperature: float = options.tunable(1.0, "PUCT: temperature of the visit counts while training", low=0)


@dataclasses.dataclass(frozen=True)
class ExploreConfig(options.Section):
    epsilon: float = options.tunable(
        0.0, "probability that a training step begins to repeat one random action; 0: off", low=0, high=1
    )
    exponent: float = options.tunable(2.0, "probability of n repetitions in proportion to n ^ -this", low=0)
    max_length: int = options.tunable(100, "most repetitions in a row", "environment steps", low=1, high=10_000)


@dataclasses.dataclass(frozen=True)
class NetworkConfig(options.Section):
    kind: str = options.fixed(
        "auto",
        "auto: mlp for vectors, conv for small grids, resnet for pixels",
        choices=("auto", "mlp", "conv", "resnet"),
    )
    module: str = options.fixed(
        "", "MODULE:FUNCTION of your own that returns a network in place of network.kind's; empty: none"
    )
    frame_stack: int = options.fixed(1, "newest frames in one observation", "frames", low=1, high=16)
    width: int = options.fixed(64, "mlp and conv: numbers of a hidden state, units of a hidden layer", low=1)
    channels: int = options.fixed(0, "conv: channels of the two convolutions; 0: half of network.width", low=0)
    resnet_size: str = options.fixed(
        "small",
        "resnet: small (64 channels), middle (128), large (256, 10+6 blocks)",
        choices=("small", "middle", "large"),
    )
    head_width: int = options.fixed(64, "units of the heads' hidden layer", low=1)
    normalize_observations: bool = options.fixed(
        True,
        "scale each feature by its running mean and variance, where bounds do not tell its scale",
        earlier=False,
    )
    num_bins: int = options.fixed(121, "bins of the categorical value and reward", low=3)
    action_bins: int = options.fixed(15, "continuous actions: bins of the policy in each dimension", low=2, high=255)
    support_limit: float = options.fixed(30.0, "largest transformed value and reward, on both sides", low=1)
    value_transform: str = options.fixed(
        "hyperbolic",
        "transform of values and rewards: hyperbolic, about a square root (MuZero); symlog (DreamerV3), with a "
        "support_limit of 10 up to 22 thousand usual rewards",
        choices=("hyperbolic", "symlog"),
    )
    compute_dtype: str = options.tunable(
        "auto", "auto: bfloat16 on accelerators, float32 on a CPU", choices=("auto", "float32", "bfloat16")
    )


@dataclasses.dataclass(frozen=True)
class MuZeroConfig(options.AgentSection):
    SUMMARY = "plans with a learned model: the most from each step, for the most computation"
    SECTIONS = ("search", "explore", "network", "optimizer", "reanalyse")
    MAX_PLAYERS = 2
    PLAYS_CONTINUOUS = True

    discount: float = options.fixed(0.997, "discount of one environment step", low=0, high=1)
    scale_rewards: bool = options.fixed(
        True, "learn in units of the usual reward, the root mean square of rewards that are not 0", earlier=False
    )
    reward_clip: float = options.fixed(0.0, "clip rewards at this size before learning; 0: off", "return", low=0)
    unroll_steps: int = options.tunable(5, "steps that training unrolls the model for (K)", low=1, high=64)
    n_step: int = options.tunable(5, "rewards before the value target bootstraps (n)", low=1, high=1000)
    value_loss_weight: float = options.tunable(0.25, "weight of the value loss", low=0)
    reward_loss_weight: float = options.tunable(1.0, "weight of the reward loss", low=0)
    policy_loss_weight: float = options.tunable(1.0, "weight of the policy loss", low=0)
    entropy_weight: float = options.tunable(
        0.0, "weight of the entropy bonus: no preference stays where the search finds all actions alike", low=0
    )
    target_network_updates: int = options.fixed(
        0,
        "bootstrap from a network copied every so many updates; 0: from root values stored when acting",
        "updates",
        low=0,
    )
    n_step_decay_age: int = options.tunable(
        0,
        "one reward less in value targets for each so many updates of a step's age, but at least one "
        "(EfficientZero: 0.3 of all updates); 0: off",
        "updates",
        low=0,
    )
    off_policy_correction: bool = options.fixed(
        False,
        "V-trace: rewards of value targets count as far as the bootstrapping network's policy would take the stored "
        "actions too, to the end of the window",
    )
    search_value_age: int = options.tunable(
        0,
        "steps of this age have the stored search value as target instead of the n-step return (EfficientZero V2); "
        "0: off",
        "updates",
        low=0,
    )
    search_value_start: int = options.tunable(
        0, "updates before any step has it (EfficientZero V2: 40000)", "updates", low=0
    )
    stored_value: str = options.fixed(
        "policy",
        "stored search value: policy, the expected Q under the improved policy; root, the mean over all simulations, "
        "which counts moves that the search had to try",
        choices=("root", "policy"),
    )
    shift_pixels: int = options.tunable(0, "largest random shift of images in training; 0: off", "pixels", low=0)
    value_prefix: bool = options.fixed(
        False, "predict sums of rewards along unrolled steps by an LSTM, instead of each reward (EfficientZero)"
    )
    value_prefix_horizon: int = options.fixed(5, "rewards in such a sum before it begins anew", low=1, high=64)
    consistency_weight: float = options.fixed(
        0.0,
        "weight of the consistency loss of unrolled states and later observations (EfficientZero: 2); 0: off",
        low=0,
    )
    consistency_steps: int = options.tunable(
        0, "unrolled steps with that loss, each costs an observation to represent; 0: all", low=0, high=64
    )
    intensity_scale: float = options.tunable(
        0.0,
        "images are multiplied by 1 + this * noise in training, normal and clipped at 2; 0: off; 0.05 is usual",
        low=0,
        high=0.5,
    )

    def window_steps(self, config: Any) -> int:
        return int(config.network.frame_stack + self.unroll_steps + self.n_step + 1)

    def shared(self, config: Any) -> dict[str, int]:
        refreshed = {"reanalyse.batch_size": config.reanalyse.batch_size} if config.reanalyse.per_insert else {}
        return {"replay.batch_size": config.replay.batch_size, **refreshed}


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(options.Section):
    learning_rate: float = options.tunable(2e-3, "AdamW: peak learning rate", low=0)
    schedule: str = options.tunable(
        "constant",
        "course of the learning rate after the warm-up",
        choices=("constant", "cosine", "exponential", "linear"),
    )
    warmup_updates: int = options.tunable(0, "linear warm-up", "updates", low=0)
    decay_updates: int = options.tunable(
        1_000_000,
        "cosine and linear: updates to the end; exponential: updates of a decay by decay_rate",
        "updates",
        low=1,
    )
    decay_rate: float = options.tunable(
        0.1, "cosine and linear: final share of the rate; exponential: factor every decay_updates", low=0, high=1
    )
    weight_decay: float = options.tunable(1e-4, "AdamW: decoupled weight decay", low=0)
    clip_norm: float = options.tunable(5.0, "largest global norm of the gradients; 0: no limit", low=0)


@dataclasses.dataclass(frozen=True)
class ReanalyseConfig(options.Section):
    fresh_share: float = options.fixed(
        0.0,
        "share of each batch's windows that an update searches anew before it learns from them (EfficientZero V2: 1), "
        "with the target network or else the newest parameters; all windows then bootstrap from that network",
        low=0,
        high=1,
    )
    per_insert: float = options.fixed(
        0.0,
        "replayed positions searched anew with the newest parameters for each stored step; 0: none",
        low=0,
        high=1000,
    )
    min_age: int = options.free(
        10, "targets of parameters at most so many updates old are left as they are", "updates", low=0
    )
    batch_size: int = options.fixed(
        128,
        "positions of one call: more cost hardly more time on an accelerator, but acting waits longer on a CPU",
        low=1,
    )


# Presets ----------------------------------------------------------------------------------------------------------

# Two cores afford a few calls of a small network a step, and small batches.
_PIXELS_ON_CPU = options.values(
    search=dict(num_simulations=4, num_considered=4),
    optimizer=dict(learning_rate=0.0005, warmup_updates=100),
    replay=dict(capacity=100_000, min_steps=500, batch_size=16, samples_per_insert=0.5),
)
_PIXELS = options.values(
    search=dict(num_simulations=16, num_considered=8),
    network=dict(frame_stack=4, num_bins=601, support_limit=60.0),
    muzero=dict(n_step=10, shift_pixels=4),
    optimizer=dict(learning_rate=8e-4, warmup_updates=500),
)

# With a discount of 0.99 LunarLander's runs often learn to hover: landing is too far away to count for much.
_VECTOR = options.values(
    search=dict(num_simulations=16, num_considered=4),
    network=dict(width=64, head_width=64),
    muzero=dict(discount=0.995, n_step=20, target_network_updates=100),
    optimizer=dict(learning_rate=0.002),
    replay=dict(capacity=128_000, min_steps=1_280, batch_size=256, samples_per_insert=16.0),
)

PARTS: Mapping[str, options.Part] = {
    "catch": options.part(
        search=dict(num_simulations=8, num_considered=3),
        network=dict(width=32, num_bins=21, support_limit=2.0),
        muzero=dict(n_step=9),
        replay=dict(capacity=32_000, min_steps=500, batch_size=128, samples_per_insert=16.0),
    ),
    # The CartPole probe of the design: a greedy mean of 475 in 20 to 72 s on two cores.
    "cartpole": options.part(
        search=dict(num_simulations=16, num_considered=2),
        network=dict(width=64),
        muzero=dict(n_step=20, target_network_updates=100),
        optimizer=dict(learning_rate=0.002),
        replay=dict(capacity=64_000, min_steps=1_280, batch_size=256, samples_per_insert=32.0),
    ),
    # The openings bring positions that its own moves, all good by the end, leave out.
    "tictactoe": options.part(
        search=dict(num_simulations=32, num_considered=9, gumbel_scale=4.0, min_value_range=1.0),
        network=dict(width=64, num_bins=21, support_limit=1.0),
        muzero=dict(discount=1.0, n_step=2),
        optimizer=dict(schedule="cosine", decay_updates=30_000),
        replay=dict(capacity=64_000, min_steps=1_000, batch_size=256, samples_per_insert=16.0),
    ),
    # Random openings show it more positions than noise in its moves, and leave the values of its moves as they are.
    "connect_four": options.part(
        search=dict(num_simulations=32, num_considered=5, min_value_range=1.0),
        network=dict(width=128, head_width=128, num_bins=21, support_limit=1.0),
        muzero=dict(discount=1.0, n_step=2),
        optimizer=dict(schedule="cosine", decay_updates=50_000),
        replay=dict(capacity=64_000, min_steps=1_000, batch_size=256, samples_per_insert=8.0),
    ),
    "spiel": options.part(
        search=dict(num_simulations=32, num_considered=16, gumbel_scale=2.0, min_value_range=1.0),
        network=dict(width=256, head_width=128, num_bins=121, support_limit=6.0),
        muzero=dict(discount=1.0, n_step=4),
        optimizer=dict(learning_rate=0.001),
        replay=dict(capacity=256_000, min_steps=2_000, batch_size=256, samples_per_insert=8.0),
    ),
    # Stored root values, not a target network: its six observations a window would take most of an update's time.
    # The smallest range of values and the entropy keep the policy undecided where all actions are alike: without
    # them agents go the same way every time, and never see what would have saved them where it ends.
    "minatar": options.part(
        search=dict(num_simulations=8, num_considered=4, min_value_range=1.0),
        network=dict(width=64),
        muzero=dict(discount=0.99, n_step=5, entropy_weight=0.5),
        optimizer=dict(learning_rate=0.001, schedule="cosine", decay_updates=60_000),
        replay=dict(capacity=256_000, min_steps=2_000, batch_size=128, samples_per_insert=4.0),
    ),
    "vector": options.part(_VECTOR),
    **dict.fromkeys(("memory-cartpole", "memory-tmaze", "memory-repeat"), options.part(_VECTOR)),  # it has no memory
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
            discount=0.995,
            unroll_steps=3,
            n_step=10,
            target_network_updates=100,
            off_policy_correction=True,
            entropy_weight=0.3,
        ),
        optimizer=dict(learning_rate=0.002, schedule="cosine", decay_updates=20_000),
        replay=dict(capacity=128_000, min_steps=50_000, batch_size=256, samples_per_insert=16.0),
        reanalyse=dict(fresh_share=1.0),
    ),
    "continuous": options.part(
        search=dict(num_simulations=16, num_sampled=16, num_considered=8),
        network=dict(width=64, head_width=64),
        muzero=dict(discount=0.97, n_step=10, target_network_updates=100),
        optimizer=dict(learning_rate=0.002),
        replay=dict(capacity=128_000, min_steps=1_280, batch_size=256, samples_per_insert=16.0),
    ),
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
        muzero=dict(discount=0.997),
        # 390 thousand updates are 200 million frames.
        optimizer=dict(clip_norm=5.0, schedule="cosine", decay_updates=390_000),
        replay=dict(capacity=500_000, min_steps=10_000, batch_size=512, samples_per_insert=4.0),
        reanalyse=dict(per_insert=0.25),
        on_cpu=options.values(_PIXELS_ON_CPU, network=dict(resnet_size="small"), reanalyse=dict(per_insert=0.0)),
    ),
    # EfficientZero V2 (Wang et al. 2024) and its published settings; docs/agents/muzero.md has the differences. Few
    # environments, so that acting is never far from the newest parameters.
    "atari-100k": options.part(
        _PIXELS,
        search=dict(num_simulations=16, num_considered=4),
        # Their discount is 0.997 a frame, and a step has four.
        muzero=dict(
            discount=0.988,
            n_step=5,
            n_step_decay_age=30_000,
            search_value_age=5_000,
            search_value_start=30_000,
            target_network_updates=200,
            reward_clip=1.0,
            value_prefix=True,
            value_loss_weight=0.5,
            entropy_weight=0.005,
            consistency_weight=5.0,
            intensity_scale=0.05,
        ),
        optimizer=dict(learning_rate=0.0005, warmup_updates=1_000, clip_norm=5.0),
        replay=dict(
            capacity=100_000,
            min_steps=2_000,
            batch_size=256,
            samples_per_insert=256.0,
            final_updates=20_000,
            priority_alpha=1.0,
            priority_beta=1.0,
        ),
        reanalyse=dict(fresh_share=1.0),
        on_cpu=options.values(_PIXELS_ON_CPU, muzero=dict(value_prefix=False), reanalyse=dict(fresh_share=0.0)),
    ),
    # MuKoe's numbers: 256 channels with 10 and 6 blocks, batches of 512, 8 samples per insert, cosine decay from
    # 1e-4.
    "atari-large": options.part(
        _PIXELS,
        search=dict(num_simulations=50, num_considered=16),
        network=dict(resnet_size="large", head_width=256),
        muzero=dict(discount=0.99),
        optimizer=dict(
            learning_rate=0.0001, schedule="cosine", warmup_updates=1_000, decay_updates=1_000_000, clip_norm=32.0
        ),
        replay=dict(capacity=1_000_000, min_steps=50_000, batch_size=512, samples_per_insert=8.0),
    ),
}
