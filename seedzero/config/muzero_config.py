"""MuZero's settings: the agent, its search, exploration and reanalysis."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from seedzero.config import options, shared


@dataclasses.dataclass(frozen=True)
class SearchSection(options.Section):
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
        "Gumbel: most rounds of sequential halving, each of which drops half of the actions behind it; 0: as many as "
        "leave two actions; 1: none is dropped, and search.num_simulations equal to search.num_considered then takes "
        "a single network call behind the root's",
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
        "smallest range by which a node's Q values are scaled, so that noise in equal values is no preference",
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
    epsilon: float = options.on_resume(
        0.0, "probability that a training step starts a repetition of a random action; 0: off", low=0, high=1
    )
    spread: bool = options.on_resume(
        False, "give each environment its own epsilon, from 1 to epsilon^2, with epsilon as the geometric mean"
    )
    first_steps: int = options.on_resume(
        0,
        "each environment begins with about this many steps of repeated random actions, until its first reward above "
        "0 or its first terminal state (not at a time limit); a repetition that has begun is finished; 0: off",
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
        "recurrent core behind the representation; acting carries its state, and searches begin with it",
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
    fresh_share: float = options.at_creation(
        0.0,
        "fraction of each batch's windows that an update searches again before it learns from them "
        "(EfficientZero V2: 1), with the target network, or without one with the newest parameters; all "
        "windows then bootstrap from that network",
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
