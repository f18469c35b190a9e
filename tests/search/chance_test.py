"""Chance nodes: against a loop over one tree, against exact values, and the laws that visits of codes keep."""

from __future__ import annotations

import functools
from typing import Any

import chance_models  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import mctx  # type: ignore[import-untyped]
import numpy as np
import pytest

from seedzero import search as mcts

pytestmark = pytest.mark.thorough

PUCT = mcts.SearchConfig(policy="puct", num_simulations=24)


def _search(
    root: mcts.Root, model: Any, config: mcts.SearchConfig, *, return_tree: bool = False, **changes: Any
) -> mcts.Result:
    explore = np.zeros(len(root.value), bool)
    run = functools.partial(mcts.search, recurrent_fn=model, config=config, return_tree=return_tree, **changes)
    found: mcts.Result = jax.jit(lambda root: run({}, jax.random.key(0), root, explore=explore))(root)
    return found


class _Node:
    """A node of the loop: a decision (state) or an afterstate (state, action)."""

    def __init__(self, place: Any, prior: np.ndarray, value: float, came_by: tuple[int, int] = (-1, -1)) -> None:
        self.place, self.prior, self.value = place, prior, value
        self.came_by = came_by  # number of the parent, and its edge
        self.visits, self.q_values = np.zeros(len(prior)), np.zeros(len(prior))
        self.children: dict[int, int] = {}

    def mean(self) -> float:
        return float((self.value + (self.visits * self.q_values).sum()) / (1 + self.visits.sum()))

    def decide(self, config: mcts.SearchConfig) -> int:
        """PUCT, as `selection.puct_scores` has it."""
        number, own = 1 + self.visits.sum(), self.mean()
        exploration = config.pb_c_init + np.log((number + config.pb_c_base + 1) / config.pb_c_base)
        known = np.where(self.visits > 0, self.q_values, own)
        low, high = min(own, known.min()), max(own, known.max())
        scaled = np.where(self.visits > 0, self.q_values - low, 0) / max(high - low, config.min_value_range)
        return int(np.argmax(scaled + exploration * np.sqrt(number) * self.prior / (self.visits + 1)))

    def draw(self, *, as_mctx: bool = False) -> int:
        if as_mctx:
            return int(np.argmax(self.prior / (self.visits + 1)))
        return int(np.argmax(self.prior - self.visits / (1 + self.visits.sum())))

    def count(self, edge: int, returned: float) -> None:
        self.visits[edge] += 1
        self.q_values[edge] += (returned - self.q_values[edge]) / self.visits[edge]


def _loop(
    game: chance_models.Game,
    value: np.ndarray,
    config: mcts.SearchConfig,
    logits: np.ndarray | None = None,
    *,
    as_mctx: bool = False,
) -> list[_Node]:
    """Returns a tree's nodes; as_mctx: codes by the paper's rule, and simulations that end at a new afterstate."""
    prior = np.exp(np.zeros(game.probability.shape[:2]) if logits is None else logits)
    prior /= prior.sum(axis=1, keepdims=True)
    nodes = [_Node(0, prior[0], value[0])]

    def child(parent: int, edge: int) -> tuple[int, bool]:
        """Returns the number of the node behind an edge, and whether it is new."""
        place, children = nodes[parent].place, nodes[parent].children
        if edge in children:
            return children[edge], False
        children[edge] = len(nodes)
        if isinstance(place, tuple):
            state = int(game.following[(*place, edge)])
            nodes.append(_Node(state, prior[state], value[state], (parent, edge)))
        else:
            at = (place, edge)
            behind = game.reward[at] + game.discount[at] * value[game.following[at]]
            nodes.append(_Node(at, game.probability[at], game.probability[at] @ behind, (parent, edge)))
        return children[edge], True

    for _ in range(config.num_simulations):
        node, is_leaf, path = 0, False, list[tuple[int, int, float, float]]()
        new_afterstate = None
        while not is_leaf:
            action = nodes[node].decide(config)
            path.append((node, action, 0.0, 1.0))
            after, is_new = child(node, action)
            if is_new:
                new_afterstate = after
            if is_new and as_mctx:
                node = after
                break
            code = nodes[after].draw(as_mctx=as_mctx)
            place = (*nodes[after].place, code)
            path.append((after, code, game.reward[place], game.discount[place]))
            node, is_leaf = child(after, code)
        returned = nodes[node].value
        for node, edge, reward, discount in reversed(path):
            returned = reward + discount * returned
            nodes[node].count(edge, returned)
            if node == new_afterstate:
                returned = nodes[node].value  # an expectation; the return behind one code says less
    return nodes


@pytest.mark.parametrize("name", chance_models.GAMES)
def test_visits_and_values_are_those_of_a_loop_over_one_tree(name: str) -> None:
    game = chance_models.GAMES[name]()
    value = chance_models.noisy(game, 3, 0.1)
    found = _search(*chance_models.model(game, value), PUCT)
    for row in range(3):
        root = _loop(game, np.float32(value[row]), PUCT)[0]
        np.testing.assert_array_equal(found.visit_counts[row], root.visits)
        np.testing.assert_allclose(found.q_values[row], root.q_values, atol=1e-5)


@pytest.mark.parametrize("name", chance_models.GAMES)
def test_with_the_papers_rules_the_loop_grows_mctxs_tree_node_by_node(name: str) -> None:
    """So what ours does otherwise is the choice of codes, and simulations that go on behind a new afterstate."""
    game = chance_models.GAMES[name]()
    random, num_nodes = np.random.default_rng(5), 80
    value = chance_models.noisy(game, 3, 0.1)
    logits = random.normal(size=game.probability.shape[:2])  # mctx breaks ties of actions by noise
    uneven = game.probability * np.linspace(1.0, 1.0837, game.probability.shape[2])  # and no ties of codes by rounding
    game = game._replace(probability=uneven / uneven.sum(axis=2, keepdims=True))
    root, model = chance_models.model(game, value, logits)

    def decide(params: Any, key: Any, action: jax.Array, state: Any) -> Any:
        found, after = model.decide(params, action, state)
        return mctx.DecisionRecurrentFnOutput(chance_logits=found.code_logits, afterstate_value=found.value), after

    def resolve(params: Any, key: Any, code: jax.Array, after: Any) -> Any:
        found, state = model.resolve(params, code, after)
        more = {name: number for name, number in found._asdict().items() if name != "prior_logits"}
        return mctx.ChanceRecurrentFnOutput(action_logits=found.prior_logits, **more), state

    policy = functools.partial(mctx.stochastic_muzero_policy, {}, jax.random.key(0))
    run = jax.jit(lambda root: policy(root, decide, resolve, num_nodes, dirichlet_fraction=0.0).search_tree)
    tree: Any = jax.tree.map(np.asarray, run(mctx.RootFnOutput(**root._asdict())))
    config = mcts.SearchConfig(policy="puct", num_simulations=num_nodes, min_value_range=1e-8)
    num_actions = game.probability.shape[1]  # mctx counts codes from there
    for row in range(3):
        nodes = _loop(game, np.float32(value[row]), config, logits, as_mctx=True)
        assert len(nodes) == 1 + num_nodes
        np.testing.assert_array_equal(tree.parents[row], [node.came_by[0] for node in nodes])
        edges = [
            edge + num_actions * isinstance(nodes[parent].place, tuple)
            for parent, edge in (node.came_by for node in nodes[1:])
        ]
        np.testing.assert_array_equal(tree.action_from_parent[row, 1:], edges)
        np.testing.assert_array_equal(tree.node_visits[row], [1 + node.visits.sum() for node in nodes])
        np.testing.assert_allclose(tree.node_values[row], [node.mean() for node in nodes], atol=1e-5)


@pytest.mark.parametrize("policy", ["gumbel", "puct"])
def test_with_one_code_the_search_is_the_one_without_chance(policy: str) -> None:
    game = chance_models.slippery_grid()
    likeliest = np.argmax(game.probability, axis=2)[..., None]
    certain = [np.take_along_axis(table, likeliest, axis=2) for table in game[1:4]]
    game = chance_models.Game(np.ones_like(certain[0]), *certain, game.value)
    root, model = chance_models.model(game, chance_models.noisy(game, 4, 0.1))

    def step(params: Any, action: jax.Array, embedding: Any) -> tuple[mcts.Prediction, Any]:
        _, after = model.decide(params, action, embedding)
        prediction, behind = model.resolve(params, jnp.zeros_like(action), after)
        return prediction, behind

    for max_depth in (0, 2):
        config = mcts.SearchConfig(policy=policy, num_simulations=20, max_depth=max_depth)
        with_chance, without = _search(root, model, config), _search(root, step, config)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), with_chance, without)
        assert max_depth == 0 or int(with_chance.max_depth.max()) == max_depth


@pytest.mark.parametrize("num_codes", [2, 5, 32])
def test_visits_follow_the_probabilities_of_codes_within_one_visit(num_codes: int) -> None:
    """Of one action, whose value is the expected one within 1/n of the range."""
    num_rows, n = 6, 40
    random = np.random.default_rng(num_codes)
    probability = random.dirichlet(np.full(num_codes, 0.5), num_rows)
    values = random.uniform(size=(num_rows, num_codes))

    def decide(params: Any, action: jax.Array, row: jax.Array) -> tuple[mcts.Afterstate, jax.Array]:
        expected = jnp.sum(jnp.asarray(probability * values, jnp.float32), axis=1)
        return mcts.Afterstate(jnp.log(jnp.asarray(probability, jnp.float32))[row], expected[row]), row

    def resolve(params: Any, code: jax.Array, row: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
        value = jnp.asarray(values, jnp.float32)[row, code]
        zeros = jnp.zeros_like(value)
        return mcts.Prediction(zeros, zeros + 1, zeros[:, None], value), row

    root = mcts.Root(jnp.zeros((num_rows, 1)), jnp.zeros(num_rows), jnp.arange(num_rows))
    # One action deep: each visit of a code shows its value anew.
    config = mcts.SearchConfig(policy="puct", num_simulations=n, max_depth=1)
    found = _search(root, mcts.ChanceFn(decide, resolve, num_codes), config, return_tree=True)
    assert found.tree is not None and found.tree.is_afterstate is not None
    drawn = np.where(np.asarray(found.tree.parent) == 1, found.tree.action, -1)  # node 1 is the afterstate
    visits = np.stack([np.bincount(row[row >= 0], minlength=num_codes) for row in drawn])
    assert np.all(visits.sum(axis=1) == n)
    assert np.abs(visits - n * probability).max() < 1
    expected, spread = np.sum(probability * values, axis=1), np.ptp(values, axis=1)
    assert np.all(np.abs(found.q_values[:, 0] - expected) < num_codes / n * spread)
    for row in range(num_rows):
        node = _Node(0, probability[row], 0.0)
        for number in range(1, 257):  # the rule itself, for each number of visits
            node.count(node.draw(), 0.0)
            assert np.abs(node.visits - number * probability[row]).max() < 1


@pytest.mark.parametrize("policy", ["gumbel", "puct"])
def test_decisions_and_afterstates_alternate_and_edges_have_their_numbers(policy: str) -> None:
    game = chance_models.short_pig()
    value = chance_models.noisy(game, 2, 0.1)
    config = mcts.SearchConfig(policy=policy, num_simulations=12)
    found = _search(*chance_models.model(game, value), config, return_tree=True)
    assert found.tree is not None
    tree: Any = jax.tree.map(lambda table: np.asarray(table[1]), found.tree)
    places: dict[int, Any] = {0: 0}
    assert np.count_nonzero((tree.num_visits > 0) & ~tree.is_afterstate) == 1 + 12
    for node in np.flatnonzero(tree.num_visits > 0)[1:]:
        parent, edge = int(tree.parent[node]), int(tree.action[node])
        assert tree.is_afterstate[node] != tree.is_afterstate[parent]
        of_node = tree.num_visits[tree.parent == node].sum()
        if tree.is_afterstate[node]:
            places[node] = (places[parent], edge)
            assert (tree.reward[node], tree.discount[node]) == (0, 1) and tree.depth[node] == tree.depth[parent]
            assert tree.num_visits[node] == of_node
            np.testing.assert_allclose(tree.prior[node][:4], game.probability[places[node]], atol=1e-6)
        else:
            place = (*places[parent], edge)
            places[node] = int(game.following[place])
            np.testing.assert_allclose(
                (tree.reward[node], tree.discount[node]), (game.reward[place], game.discount[place])
            )
            assert tree.depth[node] == tree.depth[parent] + 1 and tree.num_visits[node] == 1 + of_node
            assert not tree.prior[node][2:].any()
    assert "shape=ellipse" in mcts.to_dot(found.tree)
    assert mcts.tree_bytes(2, 2, config, num_codes=4) > mcts.tree_bytes(2, 4, config)


@pytest.mark.parametrize("policy", ["gumbel", "puct"])
@pytest.mark.parametrize("name", chance_models.GAMES)
def test_the_best_action_and_its_value_are_those_of_value_iteration(name: str, policy: str) -> None:
    game = chance_models.GAMES[name]()
    root, model = chance_models.model(game, chance_models.noisy(game, 3, 0.1))
    found = _search(root, model, mcts.SearchConfig(policy=policy, num_simulations=256))
    best = int(np.argmax(game.q_values[0]))
    assert np.all(np.asarray(found.action) == best)
    assert np.all(np.abs(found.q_values[:, best] - game.q_values[0, best]) < 0.06 * game.spread)
