"""MuZero's settings: the agent, its search, exploration, network, optimizer and reanalysis."""

from __future__ import annotations

import dataclasses
from typing import Any

from seedzero.config import options


@dataclasses.dataclass(frozen=True)
class SearchConfig(options.Section):
    policy: str = options.option("gumbel", "root policy and policy target", choices=("gumbel", "puct"))
    num_simulations: int = options.option(16, "network calls a move", minimum=1, maximum=10_000)
    num_considered: int = options.option(16, "Gumbel: root actions at the start of sequential halving", minimum=1)
    num_sampled: int = options.option(
        16,
        "continuous actions: samples at each node; Gumbel considers at most num_considered of them at the root",
        minimum=2,
        maximum=1000,
    )
    uniform_share: float = options.option(
        0.1,
        "continuous actions: share of the samples from the whole range instead of the policy, in each dimension",
        minimum=0,
        maximum=1,
    )
    max_depth: int = options.option(0, "longest path from the root; 0: no limit", minimum=0)
    gumbel_scale: float = options.option(1.0, "Gumbel: scale of the root noise while training", minimum=0)
    value_scale: float = options.option(0.1, "Gumbel: scale of completed Q values", minimum=0)
    max_visit_init: float = options.option(
        50.0, "Gumbel: visits added to the largest count when Q values are scaled", minimum=0
    )
    min_value_range: float = options.option(
        1e-8,
        "Gumbel: smallest range that a node's Q values are scaled by: noise in equal values becomes no preference",
        unit="return",
        minimum=1e-8,
    )
    dirichlet_alpha: float = options.option(0.3, "PUCT: concentration of the root noise", minimum=1e-6)
    dirichlet_fraction: float = options.option(
        0.25, "PUCT: share of noise in the root prior while training", minimum=0, maximum=1
    )
    pb_c_init: float = options.option(1.25, "PUCT: c1 of MuZero's equation 2", minimum=0)
    pb_c_base: float = options.option(19652.0, "PUCT: c2 of MuZero's equation 2", minimum=1)
    temperature: float = options.option(1.0, "PUCT: temperature of the visit counts while training", minimum=0)


@dataclasses.dataclass(frozen=True)
class ExploreConfig(options.Section):
    epsilon: float = options.option(
        0.0, "probability that a training step begins to repeat one random action; 0: off", minimum=0, maximum=1
    )
    exponent: float = options.option(2.0, "probability of n repetitions in proportion to n ^ -this", minimum=0)
    max_length: int = options.option(
        100, "most repetitions in a row", unit="environment steps", minimum=1, maximum=10_000
    )


@dataclasses.dataclass(frozen=True)
class NetworkConfig(options.Section):
    kind: str = options.option(
        "auto",
        "auto: mlp for vectors, conv for small grids, resnet for pixels",
        choices=("auto", "mlp", "conv", "resnet"),
    )
    frame_stack: int = options.option(1, "newest frames in one observation", unit="frames", minimum=1, maximum=16)
    width: int = options.option(64, "mlp and conv: numbers of a hidden state, units of a hidden layer", minimum=1)
    channels: int = options.option(0, "conv: channels of the two convolutions; 0: half of network.width", minimum=0)
    resnet_size: str = options.option(
        "small",
        "resnet: small (64 channels), middle (128), large (256, 10+6 blocks)",
        choices=("small", "middle", "large"),
    )
    head_width: int = options.option(64, "units of the heads' hidden layer", minimum=1)
    num_bins: int = options.option(121, "bins of the categorical value and reward", minimum=3)
    action_bins: int = options.option(
        15, "continuous actions: bins of the policy in each dimension", minimum=2, maximum=255
    )
    support_limit: float = options.option(30.0, "largest transformed value and reward, on both sides", minimum=1)
    compute_dtype: str = options.option(
        "auto", "auto: bfloat16 on accelerators, float32 on a CPU", choices=("auto", "float32", "bfloat16")
    )


@dataclasses.dataclass(frozen=True)
class MuZeroConfig(options.AgentSection):
    SECTIONS = ("search", "explore", "network", "optimizer", "reanalyse")
    MAX_PLAYERS = 2
    PLAYS_CONTINUOUS = True

    discount: float = options.option(0.997, "discount of one environment step", minimum=0, maximum=1)
    unroll_steps: int = options.option(5, "steps that training unrolls the model for (K)", minimum=1, maximum=64)
    n_step: int = options.option(5, "rewards before the value target bootstraps (n)", minimum=1, maximum=1000)
    value_loss_weight: float = options.option(0.25, "weight of the value loss", minimum=0)
    reward_loss_weight: float = options.option(1.0, "weight of the reward loss", minimum=0)
    policy_loss_weight: float = options.option(1.0, "weight of the policy loss", minimum=0)
    entropy_weight: float = options.option(
        0.0, "weight of the entropy bonus: no preference stays where the search finds all actions alike", minimum=0
    )
    target_network_updates: int = options.option(
        0,
        "bootstrap from a network copied every so many updates; 0: from root values stored when acting",
        unit="updates",
        minimum=0,
    )
    n_step_decay_age: int = options.option(
        0,
        "one reward less in value targets for each so many updates of a step's age, but at least one "
        "(EfficientZero: 0.3 of all updates); 0: off",
        unit="updates",
        minimum=0,
    )
    search_value_age: int = options.option(
        0,
        "steps of this age have the stored search value as target instead of the n-step return (EfficientZero V2); "
        "0: off",
        unit="updates",
        minimum=0,
    )
    search_value_start: int = options.option(
        0, "updates before any step has it (EfficientZero V2: 40000)", unit="updates", minimum=0
    )
    stored_value: str = options.option(
        "root",
        "stored search value: root, the mean over all simulations; policy, the expected Q under the improved policy",
        choices=("root", "policy"),
    )
    shift_pixels: int = options.option(
        0, "largest random shift of images in training; 0: off", unit="pixels", minimum=0
    )
    value_prefix: bool = options.option(
        False, "predict sums of rewards along unrolled steps by an LSTM, instead of each reward (EfficientZero)"
    )
    value_prefix_horizon: int = options.option(5, "rewards in such a sum before it begins anew", minimum=1, maximum=64)
    consistency_weight: float = options.option(
        0.0,
        "weight of the consistency loss of unrolled states and later observations (EfficientZero: 2); 0: off",
        minimum=0,
    )
    consistency_steps: int = options.option(
        0, "unrolled steps with that loss, each costs an observation to represent; 0: all", minimum=0, maximum=64
    )
    intensity_scale: float = options.option(
        0.0,
        "images are multiplied by 1 + this * noise in training, normal and clipped at 2; 0: off; 0.05 is usual",
        minimum=0,
        maximum=0.5,
    )

    def window_steps(self, config: Any) -> int:
        return int(config.network.frame_stack + self.unroll_steps + self.n_step + 1)

    def shared(self, config: Any) -> dict[str, int]:
        refreshed = {"reanalyse.batch_size": config.reanalyse.batch_size} if config.reanalyse.per_insert else {}
        return {"replay.batch_size": config.replay.batch_size, **refreshed}


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(options.Section):
    learning_rate: float = options.option(2e-3, "AdamW: peak learning rate", minimum=0)
    schedule: str = options.option(
        "constant",
        "course of the learning rate after the warm-up",
        choices=("constant", "cosine", "exponential", "linear"),
    )
    warmup_updates: int = options.option(0, "linear warm-up", unit="updates", minimum=0)
    decay_updates: int = options.option(
        1_000_000,
        "cosine and linear: updates to the end; exponential: updates of a decay by decay_rate",
        unit="updates",
        minimum=1,
    )
    decay_rate: float = options.option(
        0.1,
        "cosine and linear: final share of the rate; exponential: factor every decay_updates",
        minimum=0,
        maximum=1,
    )
    weight_decay: float = options.option(1e-4, "AdamW: decoupled weight decay", minimum=0)
    clip_norm: float = options.option(5.0, "largest global norm of the gradients; 0: no limit", minimum=0)


@dataclasses.dataclass(frozen=True)
class ReanalyseConfig(options.Section):
    per_insert: float = options.option(
        0.0,
        "replayed positions searched anew with the newest parameters for each stored step; 0: none",
        minimum=0,
        maximum=1000,
    )
    min_age: int = options.option(
        10,
        "targets of parameters at most so many updates old are left as they are",
        unit="updates",
        minimum=0,
        resumable=True,
    )
    batch_size: int = options.option(
        128,
        "positions of one call: more cost hardly more time on an accelerator, but acting waits longer on a CPU",
        minimum=1,
    )
