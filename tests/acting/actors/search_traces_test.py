"""A thought: the search's own numbers, real positions of games, and the ways to show it."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import types as python_types
import xml.dom.minidom
from typing import Any

import jax
import numpy as np
import policies
import pytest

import seedzero
from seedzero import search as mcts
from seedzero.acting.actors import acting_policy, search_traces
from seedzero.config import options
from seedzero.core import errors, types
from seedzero.envs import spiel

_VECTOR = types.EnvSpec((4,), "float32", 3)
_SEEN = np.random.default_rng(0).normal(size=4).astype(np.float32)


def _policy(spec: types.EnvSpec = _VECTOR, **changes: options.Value) -> acting_policy.Policy:
    return policies.policy(spec, **changes)


@pytest.mark.thorough
def test_the_numbers_are_those_of_the_policy_s_search_bit_for_bit() -> None:
    policy = _policy()
    found, thought = policy.search(_SEEN, return_tree=True), policy.think(_SEEN)
    assert thought.action == found.action == thought.choices[int(found.action)].number
    assert (thought.value, thought.network_value) == (float(found.value), float(found.network_value))
    assert thought.num_simulations == 3
    for choice in thought.choices:
        number = choice.number
        assert choice.prior == float(found.prior[number]) and choice.policy == float(found.policy[number])
        assert choice.visits == int(found.visit_counts[number])
        assert choice.q_value == (float(found.q_values[number]) if choice.visits else None)
        assert choice.completed_q == float(found.completed_q[number])
    tree = jax.tree.map(lambda x: x[0], found.tree)
    assert tree is not None
    made = tree.num_visits > 0
    nodes = thought.nodes
    assert [node.number for node in nodes] == list(range(4)) and made.sum() == 4
    for name in ("visits", "reward", "value", "discount", "depth"):
        expected = tree.num_visits if name == "visits" else getattr(tree, name)
        assert [getattr(node, name) for node in nodes] == expected[made].tolist()
    for node in nodes[1:]:
        assert node.parent is not None and node in nodes[node.parent].children
        parent = int(np.flatnonzero(made)[node.parent])
        assert node.prior == float(tree.prior[parent, node.action])
        assert int(tree.parent[made][node.number]) == parent and int(tree.action[made][node.number]) == node.action


@pytest.mark.thorough
def test_the_numbers_are_those_of_the_search_alone() -> None:
    # rewards in one unit inside the search and outside
    saved = policies.saved(_VECTOR, reward__normalize=False)
    model = saved.agent.model
    assert model is not None

    @jax.jit
    def run(params: Any, observation: Any, key: Any) -> tuple[mcts.Result, Any]:
        def step(params: Any, action: Any, parent: Any) -> tuple[mcts.Prediction, Any]:
            child, reward = model.dynamics(params, parent, action)
            discount = jax.numpy.full_like(reward, model.discount)
            return mcts.Prediction(reward, discount, *model.predict(params, child)), child

        embedding = model.represent(params, {types.OBSERVATION: observation})
        root = mcts.Root(*model.predict(params, embedding), embedding)
        explore = np.zeros(1, bool)
        result = mcts.search(params, key, root, step, config=saved.config.search, explore=explore)
        visits = result.visit_counts.astype(np.float32)
        prior = jax.nn.softmax(root.prior_logits)
        return result, mcts.completed_q(prior.T, root.value, visits.T, result.q_values.T).T

    key = jax.random.fold_in(jax.random.key(0), 0)
    result, completed = jax.tree.map(np.asarray, run(saved.params, _SEEN[np.newaxis], key))
    thought = _policy(reward__normalize=False).think(_SEEN)
    assert [choice.visits for choice in thought.choices] == result.visit_counts[0].tolist()
    assert thought.action == result.action[0]
    np.testing.assert_array_equal([choice.policy for choice in thought.choices], result.action_weights[0])
    np.testing.assert_array_equal([choice.q_value or 0.0 for choice in thought.choices], result.q_values[0])
    np.testing.assert_array_equal([choice.completed_q for choice in thought.choices], completed[0])
    assert thought.root is not None and thought.root.value == result.root_value[0]


@pytest.mark.thorough
def test_thinking_changes_neither_memory_nor_draws() -> None:
    policy = _policy(network__frame_stack=3)
    policy(_SEEN)
    carried, calls = policy._carried, policy._num_calls
    first, second = policy.think(_SEEN * 2), policy.think(_SEEN * 2)
    assert first == second and (policy._carried, policy._num_calls) == (carried, calls)
    assert first.action == policy(_SEEN * 2)


@pytest.mark.thorough
def test_other_numbers_of_simulations_are_searched() -> None:
    thought = _policy().think(_SEEN, num_simulations=5)
    assert thought.num_simulations == 5 and len(thought.nodes) == 6


def test_lines_follow_the_most_visited_children_and_the_chosen_one_is_first() -> None:
    thought = _policy().think(_SEEN)
    assert thought.root is not None
    children = thought.root.children
    for chosen in children:  # a search may choose an action that others have as many visits as
        first, *others = dataclasses.replace(thought, action=chosen.action, name=chosen.name).lines
        assert first.nodes[0] is chosen
        assert [line.nodes[0] for line in others] == [child for child in children if child is not chosen]
    lines = dataclasses.replace(thought, name=children[0].name).lines
    for line, child in zip(lines, children, strict=True):
        assert line.nodes[0] is child and not line.nodes[-1].children
        assert all(after is before.children[0] for before, after in zip(line.nodes, line.nodes[1:], strict=False))
        assert line.q_value == pytest.approx(thought.choices[child.action or 0].q_value, abs=1e-5)
        assert line.text.startswith(" ".join(node.name for node in line.nodes))


@functools.cache
def _game() -> spiel.Game:
    return spiel.Game("tic_tac_toe")


def _think(played: list[int], **given: Any) -> seedzero.Thought:
    game, state = _game(), _game().initial()
    for move in played:
        state = game.apply(state, move)
    policy = _policy(game.spec, env__id="spiel:tic_tac_toe")
    return policy.think(game.observe(state), action_mask=game.legal_mask(state), **given)


@pytest.mark.thorough
def test_nodes_of_games_have_real_positions_or_are_marked() -> None:
    pytest.importorskip("pyspiel")
    moves = [0, 1, 2, 4, 3, 5, 7]  # x plays 6 or 8 is left to o
    thought = _think(moves, moves=moves)
    assert thought.root is not None and thought.root.position == "xox\nxoo\n.x."
    assert {choice.name for choice in thought.choices if choice.is_legal} == {"o(2,0)", "o(2,2)"}
    assert all(choice.completed_q is None and choice.policy == 0 for choice in thought.choices if not choice.is_legal)
    child = thought.root.children[0]
    assert child.is_legal and child.position is not None and child.position.count(".") == 1
    imagined = [node for node in thought.nodes if node.is_legal is False]
    assert imagined and all(node.position is None and node.name == str(node.action) for node in imagined)
    for node in thought.nodes[1:]:
        assert node.parent is not None
        assert node.is_legal or not any(below.is_legal for below in node.children)
    assert "[x]" in thought.lines[0].text and "illegal" in thought.to_svg()
    without = _think(moves)
    assert without.root is not None
    assert all(node.is_legal is None and node.position is None for node in without.nodes)
    assert [node.visits for node in without.nodes] == [node.visits for node in thought.nodes]


@pytest.mark.parametrize(
    ("moves", "told"),
    [
        ([0, 0], "the game does not allow 0 after 1 moves"),
        ([1], "another observation; expected all moves"),
        ([0, 1, 2, 4], "another observation; expected all moves"),
    ],
)
def test_moves_to_another_observation_are_refused(moves: list[int], told: str) -> None:
    pytest.importorskip("pyspiel")
    with pytest.raises(errors.UsageError, match=rf"moves={re.escape(str(moves))}.* {told}"):
        _think([0], moves=moves)


def test_moves_are_for_games() -> None:
    with pytest.raises(errors.UsageError, match=r"moves=.*\[0\]"):
        _policy().think(_SEEN, moves=[0])


def test_an_agent_without_a_search_shows_its_probabilities() -> None:
    policy = _policy(run__agent="ppo")
    thought = policy.think(_SEEN, reward=0.0)
    assert thought.action == policy(_SEEN) and thought.value is None and thought.nodes == () == thought.lines
    assert sum(choice.policy for choice in thought.choices) == pytest.approx(1.0, abs=1e-5)
    assert max(thought.choices, key=lambda choice: choice.policy).number == thought.action
    assert thought.choices[0].prior is None and "nodes" not in thought.to_json()
    xml.dom.minidom.parseString(thought.to_svg())
    assert str(thought).count("\n") == 4


def test_an_agent_without_probabilities_and_a_batch_are_refused() -> None:
    with pytest.raises(errors.UsageError, match="agent apex has neither a search nor probabilities"):
        _policy(run__agent="apex").think(_SEEN)
    with pytest.raises(errors.UsageError, match="one observation, not a batch of 2"):
        _policy().think([_SEEN, _SEEN])


@pytest.mark.thorough
def test_vectors_are_those_sampled_at_the_root() -> None:
    spec = types.EnvSpec((4,), "float32", 0, action_low=(-2.0, 0.0), action_high=(2.0, 1.0))
    policy = _policy(spec, search__num_sampled=3)
    found, thought = policy.search(_SEEN), policy.think(_SEEN)
    assert found.sampled is not None and len(thought.choices) == 3
    np.testing.assert_array_equal(thought.action, found.action)
    chosen = next(choice for choice in thought.choices if choice.name == thought.name)
    np.testing.assert_allclose(found.sampled[chosen.number], thought.action, rtol=1e-6)
    assert json.loads(json.dumps(thought.to_json()))["action"] == thought.action.tolist()


def test_the_game_s_names_stand_for_legal_actions_and_the_environment_s_for_others() -> None:
    place: Any = python_types.SimpleNamespace(
        state=0, legal=lambda state: [1], name=lambda state, action: f"move {action}"
    )
    found = search_traces.names(np.arange(3), np.array([False, True, False]), place, ("left", "stay", "\x1b"))
    assert found == ["left", "move 1", "\\x1b"]


@pytest.mark.thorough
def test_the_table_names_the_chosen_action_and_the_best_ones() -> None:
    many = types.EnvSpec((4,), "float32", 20)
    text = str(_policy(many).think(_SEEN))
    title, head, *rows = text.splitlines()
    assert "muzero of update 7: action " in title and "3 simulations" in title
    assert head.split() == ["action", "prior", "visits", "Q", "completed", "Q", "policy"]
    assert rows[12] == "8 more actions" and rows[13].startswith("line: ")
    assert repr(_policy(many).think(_SEEN)) == text


def test_json_has_every_number_and_is_strict() -> None:
    thought = _policy().think(_SEEN)
    found = json.loads(json.dumps(thought.to_json(), allow_nan=False))
    assert (found["format"], found["version"], found["agent"], found["step"]) == ("seedzero.thought", 1, "muzero", 7)
    assert found.keys() == {
        *("format", "version", "env", "agent", "step", "action", "name", "value", "network_value"),
        *("num_simulations", "choices", "lines", "nodes"),
    }
    assert found["choices"] == [vars(choice) for choice in thought.choices]
    for node, shown in zip(thought.nodes, found["nodes"], strict=True):
        assert shown["value"] == node.value and shown["children"] == [child.number for child in node.children]
    assert found["lines"][0]["nodes"] == [node.number for node in thought.lines[0].nodes]


def test_a_notebook_gets_a_picture() -> None:
    thought = _policy().think(_SEEN)
    picture = thought._repr_svg_()
    xml.dom.minidom.parseString(picture)
    assert picture.count("<g>") == 4 and thought.to_svg(most_nodes=3).count("<g>") == 3


@pytest.mark.thorough
def test_afterstates_and_codes_are_nodes_with_their_probabilities() -> None:
    policy = _policy(muzero__chance_codes=4)
    found, thought = policy.search(_SEEN, return_tree=True), policy.think(_SEEN)
    assert found.tree is not None and thought.root is not None
    nodes, prior = thought.nodes, np.asarray(found.tree.prior[0][found.tree.num_visits[0] > 0])
    assert sum(not node.is_afterstate for node in nodes) == 1 + 3  # the root, and one for each simulation
    for node in nodes[1:]:
        parent = nodes[node.parent or 0]
        assert node.is_afterstate != parent.is_afterstate
        if parent.is_afterstate:
            assert node.name == f"code {node.action}" and node.depth == parent.depth + 1
            assert node.prior == prior[parent.number, node.action]
    code = thought.lines[0].nodes[1]
    assert thought.lines[0].nodes[0].is_afterstate and code.name in thought.lines[0].text
    assert 'rx="18"' in thought.to_svg() and f"{code.name}: {code.prior:.2f}" in thought.to_svg()
    assert [node["is_afterstate"] for node in thought.to_json()["nodes"]] == [node.is_afterstate for node in nodes]
