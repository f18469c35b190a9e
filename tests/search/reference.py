"""Gumbel and PUCT search written plainly, one root at a time: the engine has to find the same.

Danihelka et al. 2022, "Policy improvement by planning with Gumbel", and Schrittwieser et al. 2020, appendix B.
Numbers have 64 bits, so that this is what exact arithmetic decides; `Found.margin` tells how close the closest
decision was, that is, whether 32 bits may have decided otherwise. Below it are the random models and batches that
the tests share. Shape letters: A actions, B batch, M models, S states.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero import search as mcts

Model = Callable[[Any, int], tuple[mcts.Prediction, Any]]
"""(state, action) -> (prediction without a batch axis, next state)."""

TINY = float(np.finfo(np.float32).tiny)
"""Least probability of a visited action in the mixed value, as in mctx."""


@dataclasses.dataclass
class Node:
    """A position of the tree and what was found below it; reward and discount belong to the edge that leads here."""

    state: Any
    logits: np.ndarray
    raw_value: float
    depth: int = 0
    reward: float = 0.0
    discount: float = 1.0
    visits: int = 1
    total: float = 0.0
    children: dict[int, Node] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total = self.raw_value

    @property
    def value(self) -> float:
        """Mean of the network's value and of everything backed up."""
        return self.total / self.visits

    @functools.cached_property
    def prior(self) -> np.ndarray:
        """[A]; read when `logits` are final."""
        return softmax(self.logits)

    def q_values(self) -> np.ndarray:
        """[A], 0 where unvisited."""
        q = np.zeros(len(self.logits))
        for action, child in self.children.items():
            q[action] = child.reward + child.discount * child.value
        return q

    def visit_counts(self) -> np.ndarray:
        """[A] int."""
        counts = np.zeros(len(self.logits), int)
        for action, child in self.children.items():
            counts[action] = child.visits
        return counts


class Found(NamedTuple):
    """What one root's search found, as `search.Result`, and the closest decision."""

    action: int
    action_weights: np.ndarray
    root_value: float
    visit_counts: np.ndarray
    q_values: np.ndarray
    max_depth: int
    mean_depth: float
    margin: float  # least difference of score between what was chosen, anywhere in the tree, and what came next


class Search:
    """The simulations of one root: the model, how a node chooses, and a record of depths and close decisions."""

    def __init__(self, model: Model, choose: Callable[[Search, Node], int], config: mcts.SearchConfig) -> None:
        self.model = model
        self.choose = choose
        self.config = config
        self.max_depth = config.max_depth or config.num_simulations
        self.depths: list[int] = []
        self.margin = math.inf

    def simulate(self, root: Node, action: int) -> None:
        """One simulation that takes `action` at the root."""
        root.total += self._visit(root, action)
        root.visits += 1

    def _visit(self, node: Node, action: int) -> float:
        """Goes over one edge and on; returns the value that this simulation finds for `node`."""
        child = node.children.get(action)
        if child is None:
            child = node.children[action] = self._expand(node, action)
            found = child.raw_value
        else:
            # A position at the largest depth is evaluated again; the model says the same as before.
            at_bound = child.depth == self.max_depth
            found = child.raw_value if at_bound else self._visit(child, self.choose(self, child))
            child.total += found
            child.visits += 1
        if not child.children:
            self.depths.append(child.depth)
        return child.reward + child.discount * found

    def _expand(self, node: Node, action: int) -> Node:
        prediction, state = self.model(node.state, action)
        return Node(
            state=state,
            logits=np.asarray(prediction.prior_logits, float),
            raw_value=float(prediction.value),
            depth=node.depth + 1,
            reward=float(prediction.reward),
            discount=float(prediction.discount),
        )

    def best(self, actions: np.ndarray, scores: np.ndarray, num: int = 1) -> np.ndarray:
        """Returns the `num` of `actions` with the largest scores, best first, the lower action if they are equal."""
        order: np.ndarray = actions[np.argsort(-scores[actions], kind="stable")]
        if num < len(order):
            self.margin = min(self.margin, float(scores[order[num - 1]] - scores[order[num]]))
        return order[:num]

    def found(self, root: Node, action: int, action_weights: np.ndarray) -> Found:
        return Found(
            action=action,
            action_weights=action_weights,
            root_value=root.value,
            visit_counts=root.visit_counts(),
            q_values=root.q_values(),
            max_depth=max(self.depths),
            mean_depth=float(np.mean(self.depths)),
            margin=self.margin,
        )


def gumbel(model: Model, root: Node, noise: np.ndarray, *, config: mcts.SearchConfig, legal: np.ndarray) -> Found:
    """Gumbel MuZero search from one root.

    Args:
      model: what it plans with.
      root: fresh.
      noise: [A] Gumbel noise, scaled already; zeros for a row that does not explore.
      config: budget and constants.
      legal: [A] bool, at least one of them true.
    """
    root.logits = np.where(legal, root.logits, -np.inf)
    run = Search(model, _choose_gumbel, config)
    considered = np.flatnonzero(legal)
    scores = noise + root.logits
    for width in sweep_widths(min(config.num_considered, len(considered)), config.num_simulations):
        # Whoever is still considered has equally many visits, so that scores may be compared; between two sweeps of
        # one width this drops nobody.
        considered = run.best(considered, scores, width)
        for index in considered:
            run.simulate(root, int(index))
        scores = noise + root.logits + scaled_completed_q(root, config)
    counts = root.visit_counts()
    action = int(run.best(np.flatnonzero(counts == counts.max()), scores)[0])
    return run.found(root, action, softmax(root.logits + scaled_completed_q(root, config)))


def sweep_widths(num_considered: int, num_simulations: int) -> list[int]:
    """Sequential Halving (Karnin et al. 2013): how many actions each sweep visits once.

    The log2(num_considered) phases have equal shares of the simulations; a phase has half as many actions as the one
    before it, and what rounding leaves over goes to the last two. The last sweep may be cut short.
    """
    num_phases = max(1, math.ceil(math.log2(num_considered)))
    widths: list[int] = []
    width = num_considered
    while sum(widths) < num_simulations:
        for _ in range(max(1, num_simulations // (num_phases * width))):
            widths.append(min(width, num_simulations - sum(widths)))
        width = max(min(2, num_considered), width // 2)
    return [width for width in widths if width]


def scaled_completed_q(node: Node, config: mcts.SearchConfig) -> np.ndarray:
    """Returns sigma of the completed Q values [A]: the paper's equation 8 with Q values rescaled to [0, 1].

    Illegal actions of the root are completed like unvisited ones and take part in the rescaling, as in mctx.
    """
    counts, q = node.visit_counts(), node.q_values()
    completed = np.where(counts > 0, q, mixed_value(node, counts, q))
    low, high = completed.min(), completed.max()
    rescaled = (completed - low) / max(high - low, config.min_value_range)
    return np.asarray((config.max_visit_init + counts.max()) * config.value_scale * rescaled)


def mixed_value(node: Node, counts: np.ndarray, q: np.ndarray) -> float:
    """The paper's appendix D, equation 33: the network's value and the visited Q values, weighted by the prior."""
    if not node.children:
        return node.raw_value
    prior = np.maximum(node.prior, TINY) * (counts > 0)
    weighted_q = float(prior @ q / prior.sum())
    return float((node.raw_value + counts.sum() * weighted_q) / (1 + counts.sum()))


def _choose_gumbel(run: Search, node: Node) -> int:
    """Below the root, the paper's equation 14: visits in proportion to the improved policy."""
    counts = node.visit_counts()
    improved = softmax(node.logits + scaled_completed_q(node, run.config))
    return int(run.best(np.arange(len(counts)), improved - counts / (1 + counts.sum()))[0])


def puct(model: Model, root: Node, *, config: mcts.SearchConfig, legal: np.ndarray) -> Found:
    """MuZero's search from one root, without noise; the arguments are those of `gumbel`."""
    root.logits = np.where(legal, root.logits, -np.inf)
    run = Search(model, _choose_puct, config)
    for _ in range(config.num_simulations):
        run.simulate(root, _choose_puct(run, root))
    counts = root.visit_counts()
    # Equal visits are decided by the prior.
    action = int(run.best(np.arange(len(counts)), counts + 0.5 * softmax(root.logits))[0])
    return run.found(root, action, counts / counts.sum())


def _choose_puct(run: Search, node: Node) -> int:
    """MuZero's equation 2, with Q values rescaled over the node's own value and its children's."""
    counts, q = node.visit_counts(), node.q_values()
    low = min([node.value, *q[counts > 0]])
    high = max([node.value, *q[counts > 0]])
    exploitation = np.where(counts > 0, q - low, 0.0) / max(high - low, run.config.min_value_range)
    factor = run.config.pb_c_init + math.log((node.visits + run.config.pb_c_base + 1) / run.config.pb_c_base)
    exploration = math.sqrt(node.visits) * factor * node.prior / (1 + counts)
    return int(run.best(np.flatnonzero(node.logits > -np.inf), exploitation + exploration)[0])


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


class Tables(NamedTuple):
    """M random models of S states each as tables, so that every precision and batch reads the same numbers."""

    next_state: Any  # [M * S, A] int32; a model's states lead to its own states only
    reward: Any  # [M * S, A]
    discount: Any  # [M * S, A]
    prior_logits: Any  # [M * S, A]
    value: Any  # [M * S]


DISCOUNTS = ("0.97", "-1", "-0.9", "terminals", "random")
"""What random models do with discounts; "terminals" ends a game with sign flips, "random" has any from -1 to 1."""


NUM_STATES = 32
"""S, of a random model."""

KEY = jax.random.key(1)
"""Of every case's search."""


def random_tables(rng: np.random.Generator, num_actions: int, *, num_models: int) -> Tables:
    """Returns models that differ in discounts and in how far rewards, values and logits spread."""
    shape = (num_models, NUM_STATES, num_actions)
    first = np.arange(num_models)[:, None, None] * NUM_STATES
    spread = rng.choice([0.3, 1.0, 3.0], (3, num_models, 1, 1))
    # Every fourth model has no rewards, as a board game in the middle; every third one's priors rule out most actions.
    spread[0, ::4] = 0.0
    spread[1, ::3] = 40.0
    kinds = {
        "0.97": np.full(shape, 0.97),
        "-1": np.full(shape, -1.0),
        "-0.9": np.full(shape, -0.9),
        "terminals": -1.0 * (rng.random(shape) > 0.2),
        "random": rng.uniform(-1.0, 1.0, shape) * (rng.random(shape) > 0.2),
    }
    discount = np.stack([kinds[DISCOUNTS[model % len(DISCOUNTS)]][model] for model in range(num_models)])
    rows = (num_models * NUM_STATES, num_actions)
    return Tables(
        next_state=(first + rng.integers(NUM_STATES, size=shape)).reshape(rows).astype(np.int32),
        reward=(spread[0] * rng.normal(size=shape)).reshape(rows).astype(np.float32),
        discount=discount.reshape(rows).astype(np.float32),
        prior_logits=(spread[1] * rng.normal(size=shape)).reshape(rows).astype(np.float32),
        value=(spread[2] * rng.normal(size=(*shape[:2], 1))).reshape(-1).astype(np.float32),
    )


def step(tables: Tables, action: Any, state: Any) -> tuple[mcts.Prediction, Any]:
    """The tables as a model, for numpy and JAX, with and without a batch."""
    following = tables.next_state[state, action]
    reward, discount = tables.reward[state, action], tables.discount[state, action]
    return mcts.Prediction(reward, discount, tables.prior_logits[following], tables.value[following]), following


def smooth_step(params: jax.Array, action: jax.Array, state: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
    """A random but fixed model: params [A, D] for states [R, D] of numbers from -1 to 1; some ends are terminal."""
    state = jnp.tanh(1.3 * state + params[action])
    discount = jnp.where(state[:, 2] > 0.8, 0.0, 0.9)
    return mcts.Prediction(state[:, 0], discount, state[:, : len(params)], 2.0 * state[:, 1]), state


@dataclasses.dataclass(frozen=True)
class Case:
    """One compiled search and the random batch that it gets; every row has a model of its own."""

    num_actions: int
    batch_size: int
    config: mcts.SearchConfig
    masked: bool = False

    def __str__(self) -> str:
        config = self.config
        considered = f"-{config.num_considered}considered" * (config.policy == "gumbel")
        return (
            f"{config.policy}-{self.num_actions}actions-{config.num_simulations}simulations{considered}"
            f"-depth{config.max_depth}{'-masked' * self.masked}"
        )


def case(
    policy: str, num_actions: int, num_simulations: int, batch_size: int, masked: bool = False, **changes: Any
) -> Case:
    config = mcts.SearchConfig(policy=policy, num_simulations=num_simulations, **changes)
    return Case(num_actions, batch_size, config, masked)


class Batch(NamedTuple):
    """What a case's search gets, as numpy arrays."""

    tables: Tables  # one model for each row
    states: np.ndarray  # [B] int32 the roots
    legal: np.ndarray  # [B, A] bool, at least one action in every row
    explore: np.ndarray  # [B] bool; no row with PUCT, whose noise is nobody else's


@functools.cache
def batch_of(case: Case) -> Batch:
    rng = np.random.default_rng([case.num_actions, case.batch_size, case.config.num_simulations])
    tables = random_tables(rng, case.num_actions, num_models=case.batch_size)
    rows = np.arange(case.batch_size)
    # With a mask, rows have 1, 2, 3, ... legal actions in turn.
    rank = rng.permuted(np.tile(np.arange(case.num_actions), (case.batch_size, 1)), axis=1)
    num_legal = 1 + rows % case.num_actions if case.masked else np.full(case.batch_size, case.num_actions)
    explore = (rows % 3 > 0) & (case.config.policy == "gumbel")
    return Batch(tables, (rows * NUM_STATES).astype(np.int32), rank < num_legal[:, None], explore)


@functools.cache
def engine(case: Case) -> mcts.Result:
    """Returns what the package finds for the case's batch, as numpy arrays."""
    return engine_again(case)


def engine_again(case: Case) -> mcts.Result:
    batch = batch_of(case)
    result = _compiled(case.config)(
        jax.tree.map(jnp.asarray, batch.tables),
        KEY,
        batch_root(batch),
        invalid_actions=jnp.asarray(~batch.legal) if case.masked else None,
        explore=jnp.asarray(batch.explore),
    )
    found: mcts.Result = jax.tree.map(np.asarray, result)
    return found


@functools.cache
def _compiled(config: mcts.SearchConfig) -> Any:
    run = functools.partial(mcts.search, recurrent_fn=step, config=config)
    return jax.jit(run)


def batch_root(batch: Batch) -> mcts.Root:
    logits, value = batch.tables.prior_logits[batch.states], batch.tables.value[batch.states]
    return mcts.Root(jnp.asarray(logits), jnp.asarray(value), jnp.asarray(batch.states))


@functools.cache
def gumbel_noise(case: Case) -> np.ndarray:
    """Returns the noise [B, A] that the package and mctx add at the root; 0 in rows that do not explore."""
    batch = batch_of(case)
    noise = np.asarray(_standard_noise(batch.legal.shape))
    return noise * np.float32(case.config.gumbel_scale) * batch.explore[:, None]


@functools.partial(jax.jit, static_argnums=0)
def _standard_noise(shape: tuple[int, ...]) -> jax.Array:
    return jax.random.gumbel(jax.random.split(KEY)[1], shape)


def reference_of(case: Case, row: int) -> Found:
    """Returns what the plain search finds for one row of the case's batch."""
    batch = batch_of(case)

    def model(state: int, action: int) -> tuple[mcts.Prediction, int]:
        return step(batch.tables, action, state)

    state = int(batch.states[row])
    root = Node(state, np.asarray(batch.tables.prior_logits[state], float), float(batch.tables.value[state]))
    if case.config.policy == "puct":
        return puct(model, root, config=case.config, legal=batch.legal[row])
    return gumbel(model, root, gumbel_noise(case)[row], config=case.config, legal=batch.legal[row])
