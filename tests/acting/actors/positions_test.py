"""True positions of a tree's nodes in games of Pgx: those that the search saw, by the game's rules and its chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import policies
import pytest

import seedzero
from seedzero.acting.actors import acting_program, positions
from seedzero.core import packing, types
from seedzero.envs import pgx_env, pgx_games, pgx_rules

DICE = "jax_nim:DICE"


def _think(name: str, seen: np.ndarray, mask: np.ndarray, **changes: Any) -> seedzero.Thought:
    spec = pgx_rules.game(name).spec(has_state=True)
    given = {"env__id": f"pgx:{name}", "run__agent": "alphazero", "search__min_value_range": 1.0, **changes}
    return policies.policy(spec, **given).think(seen, action_mask=mask)


def _after(name: str, moves: list[int]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns the observation by its names, and the mask, after moves."""
    game = pgx_games.PgxGame(name, has_state=True)
    state = game.initial()
    for move in moves:
        state = game.apply(state, move)
    named = packing.unpack(game.spec.packed, game.observe(state)[np.newaxis])
    return {key: array[0] for key, array in named.items()}, game.legal_mask(state)


@pytest.mark.thorough
def test_nodes_have_the_boards_that_the_search_saw() -> None:
    moves = [0, 1, 2, 4, 3, 5, 7]  # 6 or 8 is left to O, then the other one to X
    thought = _think("tic_tac_toe", *_after("tic_tac_toe", moves), search__num_simulations=8)
    assert thought.root is not None
    assert thought.root.position == " 3 X O X\n 2 X O O\n 1 . X .\n   a b c"
    assert {choice.name for choice in thought.choices if choice.is_legal} == {"a1", "c1"}
    ends, marks = set(), {0: "O", 1: "X"}
    for node in thought.nodes[1:]:
        parent = thought.nodes[node.parent or 0]
        if parent.position is None or "." not in parent.position:
            assert not node.is_legal and node.position is None  # the search goes on behind an end
            continue
        assert node.is_legal and node.name in ("a1", "c1")
        cell = parent.position.index(".", 0 if node.name == "a1" else parent.position.index("X ."))
        mark = marks[node.depth - 1]
        assert node.position == parent.position[:cell] + mark + parent.position[cell + 1 :]
        ends |= {node.position} if "." not in node.position else set()
    assert len(ends) == 2 and "X O X" in thought.to_svg()


@pytest.mark.thorough
def test_outcomes_of_chance_are_those_of_the_search() -> None:
    rules, env = pgx_rules.game(DICE), pgx_env.PgxGames(pgx_rules.game(DICE), 1, has_state=True)
    step = env.reset([0])
    named = {key: array[0] for key, array in packing.unpack(env.spec.packed, step.observation).items()}
    settings = {"search__num_simulations": 48, "search__num_considered": 3, "search__rounds": 1}
    thought = _think(DICE, named, step.action_mask[0], **settings)
    key = acting_program.key_of(0, 0)
    place = positions.of_observation(f"pgx:{DICE}", env.spec, step.observation, step.action_mask, key)
    assert place is not None and thought.root is not None and len(thought.nodes) > 40
    rewards = set()
    for node in thought.nodes[1:]:
        if node.is_afterstate:
            assert node.position == f"{thought.root.position}\nafter {node.name}, before chance" and node.is_legal
            continue
        action, parent = thought.nodes[node.parent or 0].action, thought.nodes[node.parent or 0]
        if parent.depth > 1 or not node.is_legal:
            continue
        after = place.after(place.after(place.state, action), node.action)
        assert node.reward == pytest.approx(float(after.now.rewards[0, 0])) and node.position == thought.root.position
        assert place.legal(after) == [] and node.name == f"code {node.action}"
        rewards.add((action, round(node.reward, 3)))
    assert rewards == {(0, 0.6), (1, 0.0), (1, 1.0), (2, 0.0), (2, 1.0)}
    assert rules.has_chance


def test_observations_without_a_state_have_no_position() -> None:
    env = pgx_env.PgxGames(pgx_rules.game("tic_tac_toe"), 1)
    step = env.reset([0])
    key = acting_program.key_of(0, 0)
    given = (env.spec, step.observation, step.action_mask, key)
    assert positions.of_observation("pgx:tic_tac_toe", *given) is None
    vector = types.EnvSpec((4,), "float32", 3)
    assert positions.of_observation("catch", vector, np.zeros((1, 4)), np.ones((1, 3), bool), key) is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "moves", "expected"),
    [
        ("connect_four", [3, 3], ["3", ". . . O . . .\n. . . X . . .\n0 1 2 3 4 5 6"]),
        ("hex(size=3)", [4], ["c1", " 3 . . .\n 2  . X .\n 1   . . .\n      a b c"]),
        ("jax_nim:NIM", [], ["2", "0 0 0"]),
    ],
)
def test_games_are_shown_as_a_person_sees_them(name: str, moves: list[int], expected: list[str]) -> None:
    named, mask = _after(name, moves)
    spec = pgx_rules.game(name).spec(has_state=True)
    packed = packing.pack(spec.packed, {key: array[np.newaxis] for key, array in named.items()})
    place = positions.of_observation(f"pgx:{name}", spec, packed, mask[np.newaxis], acting_program.key_of(0, 0))
    assert place is not None
    last = 3 if name == "connect_four" else 8 if name.startswith("hex") else 2
    assert place.name(place.state, last) == expected[0] and expected[1] in place.text(place.state)
    assert place.legal(place.state) == np.flatnonzero(mask).tolist()
