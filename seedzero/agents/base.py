"""The interface of every agent: pure functions, and the data that they learn from.

Shape letters: B batch (rows of one acting call, or windows of one update), A actions, S slots. An agent holds no
arrays. Its state is a train state, which learns, and a memory with one row for each environment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax

from seedzero import search as mcts
from seedzero.core import types
from seedzero.replay import sources, windowing

Params: TypeAlias = Any
"""A pytree of arrays of any dtypes."""

Memory: TypeAlias = Any
"""A pytree of arrays [S, ...]; an empty tuple if the agent remembers nothing."""

Metrics: TypeAlias = dict[str, jax.Array]
"""Scalars, float32."""

TrainState: TypeAlias = Any
"""The learning state: a NamedTuple with at least `num_updates` and `num_rejected`, such as `learning.TrainState`."""


class Inputs(NamedTuple):
    """The observations of B environments. Padding rows may hold any finite numbers."""

    # {name: [B, *shape]} of the arrays in `EnvSpec.arrays`; stacked frames are on the last axis, the oldest first
    observation: Mapping[str, jax.Array]
    reward: jax.Array  # [B], received on the way to the observation
    first: jax.Array  # [B] bool, true: the first observation of an episode or session
    terminated: jax.Array  # [B] bool, true: the episode ended here in a terminal state; false in evaluations
    action_mask: jax.Array  # [B, A] bool, true: legal; all true where the spec has no mask
    # [B] int8: GREEDY, SAMPLE or EXPLORE of core/types. Actor-critics explore by sampling; without a policy
    # (`Agent.has_policy`) SAMPLE is greedy.
    action_mode: jax.Array
    slot: jax.Array  # [B] int32, the number of the environment's slot; environments take slots in order
    num_slots: int  # number of the run's training slots; the slots after them evaluate
    # [B] int32, place in `EnvSpec.tasks`; 0 if the run has one task. An agent that learns by tasks stores it.
    task: jax.Array
    num_updates: jax.Array | int = 0  # scalar int32, updates of the acting parameters, for exploration that anneals
    own: jax.Array | bool = True  # scalar bool, false: a league's other player moves, as in `rings.OWN`

    @property
    def draws(self) -> jax.Array:
        """[B] bool, true: the action is random; false: it is greedy."""
        return self.action_mode != types.GREEDY

    @property
    def explores(self) -> jax.Array:
        """[B] bool, true: with the noise of training."""
        return self.action_mode == types.EXPLORE


class Outputs(NamedTuple):
    """The result of acting."""

    action: jax.Array  # [B] int32, or [B, D] float32 within the spec's bounds for continuous actions
    # {name: [B, ...]} stored with the observation; shapes and dtypes are those of `Agent.stored`
    stored: dict[str, jax.Array]
    # [B] of the transitions that these observations complete; None or a non-finite number takes the largest one so far
    priority: jax.Array | None = None
    # {name: [B]} averaged over training rows, except NaN, for the rows of metrics.jsonl
    metrics: Mapping[str, jax.Array] = {}


class Searched(NamedTuple):
    """What a search found for B observations. With continuous actions, A is the number of sampled ones."""

    action: jax.Array  # the chosen action, [B] int32 or [B, D] float32 in the environment's units
    policy: jax.Array  # [B, A] probabilities of the search's policy
    value: jax.Array  # [B] of that policy; values and rewards are in the environment's units
    prior: jax.Array  # [B, A] probabilities of the policy network
    network_value: jax.Array  # [B] of the value network
    visit_counts: jax.Array  # [B, A] int32
    q_values: jax.Array  # [B, A]; 0 if unvisited
    # [B, A]; like `q_values`, but the search's mixed value where it did not visit (`search.completed_q`)
    completed_q: jax.Array
    max_depth: jax.Array  # [B] int32, edges of the longest path
    mean_depth: jax.Array  # [B], mean number of edges of a path
    sampled: jax.Array | None = None  # [B, A, D] the sampled continuous actions; None: actions are discrete
    tree: mcts.Tree | None = None  # all visited nodes, if requested


class ChanceModel(NamedTuple):
    """The two parts of a step in a model with chance; embeddings are as in `Model`."""

    decide: Callable[[Params, Any, jax.Array], Any]  # (params, embedding, action) -> embedding of the afterstate
    resolve: Callable[[Params, Any, jax.Array], Any]  # (params, afterstate, code [B] int32) -> of the next state


class Model(NamedTuple):
    """A learned model as functions. An embedding is a pytree of arrays [B, ...]; actions are [B] int32 or [B, D]."""

    # (params, observation {name: [B, *shape]}) -> embedding; stacked frames are on the last axis, the oldest first
    represent: Callable[[Params, Mapping[str, jax.Array]], Any]
    # (params, embedding) -> (policy logits [B, A], value [B])
    predict: Callable[[Params, Any], tuple[jax.Array, jax.Array]]
    # (params, embedding, action) -> (embedding of the next state, reward [B] on the way to it); with chance, the
    # likeliest ones
    dynamics: Callable[[Params, Any, jax.Array], tuple[Any, jax.Array]]
    # of the next state's value; negative if two players alternate. Where one may move again, it has no sign
    discount: float
    # whether acting's embeddings come from its memory; `represent` then sees one observation and nothing earlier
    remembers: bool = False
    chance: ChanceModel | None = None  # None: each action has one outcome


class Reanalyse(NamedTuple):
    """How to compute stored targets again with newer parameters (MuZero Reanalyse)."""

    per_insert: float  # rows to reanalyse for each stored training step
    batch_size: int  # rows of one call
    min_age: int  # targets stay as they are if their parameters are at most this many updates old
    length: int  # positions of a window; the stale row is the first
    observe: tuple[int, ...]  # positions whose observations are needed; 0 is the first
    # (params, windows, key) -> (fresh {name: [B, ...]} float32 of position 0, metrics {name: [B]}). The arrays of
    # these names must be in `Agent.stored`.
    compute: Callable[[Params, windowing.Windows, jax.Array], tuple[dict[str, jax.Array], dict[str, jax.Array]]]
    before: int = 0  # rows before a window that are included, as in `sources.Replay`


class Agent(NamedTuple):
    """An algorithm as pure functions. The caller jits them."""

    data: sources.Data  # which windows of the stored rows an update receives
    stack: int  # newest frames in one observation
    # arrays that `act` leaves for each row, by name, besides the runtime's own: versions, and `rings.OWN`
    stored: Mapping[str, sources.Stored]
    init: Callable[[jax.Array], TrainState]  # key -> train state
    # train state, or its shapes -> the params that `act` takes and that are published, evaluated and exported,
    # by their fields' own names: `params`, or a NamedTuple of fields
    acting: Callable[[TrainState], Params]
    initial_memory: Callable[[int], Memory]  # num_slots -> memory [S, ...]
    # (params, memory rows [B, ...], Inputs, key) -> (memory rows, Outputs)
    act: Callable[[Params, Memory, Inputs, jax.Array], tuple[Memory, Outputs]]
    # (train state, windows, key, axis_name) -> (train state, priority [B] of the windows or None, metrics). Priorities
    # are at least 0, or not finite if unknown. With an axis name, gradients and metrics are averaged over
    # that mapped axis; metrics hold at least "loss", "grad_norm" and "num_rejected".
    update: Callable[
        [TrainState, windowing.Windows, jax.Array, str | None], tuple[TrainState, jax.Array | None, Metrics]
    ]
    # (params, memory rows, Inputs) -> probabilities [B, A] of `act`'s draws, 0 for illegal actions; None: the agent
    # learns only values, searches, or has continuous actions
    policy: Callable[[Params, Memory, Inputs], jax.Array] | None = None
    # fields of the train state whose units its values have, besides `acting`; snapshots keep them too
    scales: tuple[str, ...] = ()
    has_policy: bool = True  # whether it has one to draw actions from; false: the agent learns only values
    reanalyse: Reanalyse | None = None  # None: stored targets never change
    # (params, memory rows, Inputs, key, return_tree) -> Searched, as `act` searches; None: it does not search
    search: Callable[[Params, Memory, Inputs, jax.Array, bool], Searched] | None = None
    model: Model | None = None  # that it searches with; None: it has none
    reads_reward: bool = False  # whether actions depend on the reward
    # num_slots -> memory [S, ...] with which a process begins to train; None: the initial memory
    first_memory: Callable[[int], Memory] | None = None

    @property
    def num_kept(self) -> int:
        """Number of rows up to a sampled one that must be in the ring: its frames, and earlier rows with theirs."""
        return self.stack + sources.num_before(self.data)

    @property
    def ring_multiple(self) -> int:
        """Divisor of the number of rows of a replay's ring, because rows are kept or drawn at multiples of it."""
        stride = self.data.stride if isinstance(self.data, sources.Replay) else 1
        return math.lcm(stride, *(kept.every for kept in self.stored.values()))

    @property
    def samples(self) -> bool:
        """Whether updates sample a replay; if not, they consume a queue."""
        return isinstance(self.data, sources.Replay)
