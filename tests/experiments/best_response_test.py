"""The judge of connect four: positions and best responses against plain recursion on OpenSpiel's states."""

from __future__ import annotations

from typing import Any

import best_response
import numpy as np
import pytest

from seedzero.envs import spiel

pytest.importorskip("pyspiel")

BOARDS = [(3, 3, 3), (3, 4, 3), (4, 3, 4)]


def _game(rows: int, columns: int, in_row: int) -> spiel.Game:
    return spiel.Game(f"connect_four(rows={rows},columns={columns},x_in_row={in_row})")


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


@pytest.mark.thorough
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
