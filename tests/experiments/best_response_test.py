"""The judge of connect four: positions and best responses against plain recursion on OpenSpiel's states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import best_response
import numpy as np
import pytest
import solver

from seedzero.envs import spiel

pytest.importorskip("pyspiel")

BOARDS = [(3, 3, 3), (3, 4, 3), (4, 3, 4)]


def _game(rows: int, columns: int, in_row: int) -> spiel.Game:
    return spiel.Game(f"connect_four(rows={rows},columns={columns},x_in_row={in_row})")


def _positions(game: spiel.Game) -> dict[str, Any]:
    """Returns every position in which a move is to be made, once."""
    found, waiting = {}, [game.initial()]
    while waiting:
        state = waiting.pop()
        if str(state) not in found and not state.is_terminal():
            found[str(state)] = state
            waiting += [game.apply(state, action) for action in state.legal_actions()]
    return found


def _recursion(game: spiel.Game, policy: best_response.Policy) -> tuple[float, float]:
    """Returns the best responses' returns to the policy as first and as second player."""
    values: dict[tuple[str, int], float] = {}

    def value(state: Any, side: int) -> float:
        if state.is_terminal():
            return float(state.returns()[1 - side])
        key = str(state), side
        if key not in values:
            after = {action: value(game.apply(state, action), side) for action in state.legal_actions()}
            if game.mover(state) == side:
                (probabilities,) = policy(game.observe(state)[None], game.legal_mask(state)[None])
                values[key] = sum(probabilities[action] * found for action, found in after.items())
            else:
                values[key] = max(after.values())
        return values[key]

    return value(game.initial(), 0), value(game.initial(), 1)


def _random(seed: int, *, zeros: bool) -> best_response.Policy:
    """Returns a random policy that depends on the position alone; zeros: some legal moves have no probability."""
    weights = np.random.default_rng(seed).normal(size=(6, 6, 4, 6))

    def policy(observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
        _, rows, columns, _ = observations.shape
        logits = np.einsum("bhwc,hwca->ba", observations, weights[:rows, :columns, :, : masks.shape[1]])
        drawn = np.where(masks, np.exp(2 * np.sin(5 * logits)), 0)
        kept = drawn >= (0.3 * drawn.max(axis=1, keepdims=True) if zeros else 0)
        return drawn * kept / (drawn * kept).sum(axis=1, keepdims=True)

    return policy


@pytest.mark.parametrize("board", BOARDS)
def test_positions_masks_and_observations_are_those_of_openspiel(board: tuple[int, int, int]) -> None:
    game, rules = _game(*board), best_response.ConnectFour(*board)
    states = [*_positions(game).values()]
    plies = [*best_response.plies(rules, lambda number, keys: rules.legal(keys))]
    seen = np.concatenate([rules.observe(ply.keys, number % 2) for number, ply in enumerate(plies)])
    legal = np.concatenate([rules.legal(ply.keys) for ply in plies])
    expected = np.stack([game.observe(state) for state in states])
    keys, others = np.concatenate([ply.keys for ply in plies]), rules.keys(expected)
    assert len(keys) == len(states) == best_response.Perfect(rules).num_positions
    order, other_order = np.argsort(keys), np.argsort(others)
    np.testing.assert_array_equal(seen[order], expected[other_order])
    masks = np.stack([game.legal_mask(state) for state in states])
    np.testing.assert_array_equal(legal[order], masks[other_order])
    np.testing.assert_array_equal(rules.keys(seen), keys)


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(
    "policy",
    [best_response.uniform, _random(0, zeros=False), _random(1, zeros=True)],
    ids=["uniform", "random", "random with zeros"],
)
def test_bounds_close_around_a_plain_recursion(board: tuple[int, int, int], policy: best_response.Policy) -> None:
    expected = _recursion(_game(*board), policy)
    found = [
        best_response.best_response(best_response.ConnectFour(*board), policy, threshold=threshold, batch_size=100)
        for threshold in (0.5, 0.1, 0.02, 0.001, 0.0)
    ]
    for response in found:
        for (low, high), value in zip((response.to_first, response.to_second), expected, strict=True):
            assert low - 1e-12 <= value <= high + 1e-12
        assert response.exploitability == pytest.approx(np.mean([response.to_first, response.to_second], axis=0))
    widths = [high - low for low, high in (response.exploitability for response in found)]
    assert widths == sorted(widths, reverse=True) and widths[0] > 0.1 > 0.02 > widths[-2] and widths[-1] == 0
    asked = [response.num_positions for response in found]
    assert asked == sorted(asked) and asked[0] < asked[-1]


@pytest.mark.parametrize("board", [*BOARDS, (4, 4, 4)])
def test_a_perfect_policy_has_no_exploitability(board: tuple[int, int, int]) -> None:
    rules = best_response.ConnectFour(*board)
    perfect = best_response.Perfect(rules)
    found = best_response.best_response(rules, perfect.policy, perfect=perfect)
    assert found.exploitability == (0, 0) and found.to_second == (perfect.value,) * 2 == (-found.to_first[0],) * 2
    first = best_response.deterministic(lambda observations, masks: perfect.keeps(observations).argmax(axis=1))
    alone = best_response.best_response(rules, first, perfect=perfect)
    assert alone.exploitability == (0, 0) and alone.num_positions < found.num_positions


@pytest.mark.parametrize("board", BOARDS)
def test_perfect_play_is_that_of_the_solver(board: tuple[int, int, int]) -> None:
    game, rules = _game(*board), best_response.ConnectFour(*board)
    exact, perfect = solver.Solver(game), best_response.Perfect(rules)
    assert perfect.value == exact.value(game.initial())
    states = [*_positions(game).values()]
    kept = perfect.keeps(np.stack([game.observe(state) for state in states]))
    for state, row in zip(states[::7], kept[::7], strict=True):
        values = exact.action_values(state)
        assert set(np.flatnonzero(row)) == {action for action in values if values[action] == max(values.values())}


def _with(change: Callable[[np.ndarray], object]) -> best_response.Policy:
    def policy(observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
        found = best_response.uniform(observations, masks)
        change(found)
        return found

    return policy


@pytest.mark.parametrize(
    "policy",
    [
        _with(lambda found: found.fill(0.5)),
        _with(lambda found: found.fill(np.nan)),
        _with(lambda found: found.__setitem__((0, slice(0, 2)), (-1.0, 1.0 + 2 / 3))),
        lambda observations, masks: np.full(masks.shape, 1 / 3),  # of full columns too
        lambda observations, masks: np.ones(len(masks)),
    ],
)
def test_probabilities_that_are_none_are_refused(policy: best_response.Policy) -> None:
    with pytest.raises(ValueError, match="probabilities"):
        best_response.best_response(best_response.ConnectFour(3, 3, 3), policy)


def test_rules_follow_from_the_name_of_the_game() -> None:
    assert best_response.ConnectFour.of("connect_four(rows=4,columns=5)") == best_response.ConnectFour(4, 5)
    assert best_response.ConnectFour.of("connect_four(x_in_row=3,rows=3,columns=3)") == best_response.ConnectFour(
        3, 3, 3
    )
    with pytest.raises(ValueError, match="6x7"):
        best_response.ConnectFour.of("connect_four")
    with pytest.raises(ValueError, match="'tic_tac_toe'"):
        best_response.ConnectFour.of("tic_tac_toe")
