"""Small games of chance as tables, with their exact values, for tests and experiments of searches.

Shape letters: S states, A actions, C codes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero import search as mcts

NUM_DECISIONS = 6
"""Decisions of each game; then it is over."""
SIZE = 3
"""Height and width of the grid."""
TARGET = 8
"""Points that win pig."""


class Game(NamedTuple):
    """A game of chance; state 0 is the first one."""

    probability: np.ndarray  # [S, A, C] of the codes
    reward: np.ndarray  # [S, A, C]
    discount: np.ndarray  # [S, A, C] of the next state's value: 0 at an end, negative if the other player moves there
    following: np.ndarray  # [S, A, C] int, the next state
    value: np.ndarray  # [S] of optimal play

    @property
    def q_values(self) -> np.ndarray:
        """[S, A], exact."""
        behind = self.reward + self.discount * self.value[self.following]
        found: np.ndarray = np.sum(self.probability * behind, axis=-1)
        return found

    @property
    def spread(self) -> float:
        """The range of values."""
        return float(np.ptp(self.q_values))


Outcome = tuple[float, float, float, Any]
"""Probability, reward, discount and the next state."""


def _tabulate(first: Any, play: Callable[[Any, int], Sequence[Outcome]], num_actions: int, num_codes: int) -> Game:
    """Returns a game by its rules; a state is (anything, decisions left), its value 0 where none is left."""
    number, todo = {first: 0}, [first]
    rows: dict[int, list[list[Outcome]]] = {}
    for state in todo:
        rows[number[state]] = []
        for action in range(num_actions):
            outcomes = list(play(state, action)) if state[-1] else [(1.0, 0.0, 0.0, state)]
            rows[number[state]].append(outcomes)
            for *_, after in outcomes:
                if after not in number:
                    number[after] = len(number)
                    todo.append(after)
    shape = (len(number), num_actions, num_codes)
    probability, reward, discount, following = (np.zeros(shape, kind) for kind in (float, float, float, int))
    for state, actions in rows.items():
        for action, outcomes in enumerate(actions):
            for code, (*numbers, after) in enumerate(outcomes):
                probability[state, action, code], reward[state, action, code], discount[state, action, code] = numbers
                following[state, action, code] = number[after]
    game = Game(probability, reward, discount, following, np.zeros(shape[0]))
    for _ in range(NUM_DECISIONS + 1):
        game = game._replace(value=game.q_values.max(axis=1))
    return game


@functools.cache
def slippery_grid() -> Game:
    """A walk over 3x3 cells, which slips to either side in a third of the cases each; the far corner pays 1."""
    moves = [(0, -1), (1, 0), (0, 1), (-1, 0)]

    def play(state: Any, action: int) -> list[Outcome]:
        row, column, left = state
        outcomes = []
        for turn in (-1, 0, 1):
            down, right = moves[(action + turn) % 4]
            at = (min(max(row + down, 0), SIZE - 1), min(max(column + right, 0), SIZE - 1))
            is_goal, is_hole = at == (SIZE - 1, SIZE - 1), at == (1, 0)
            outcomes.append((1 / 3, float(is_goal), 0.0 if is_goal or is_hole or left == 1 else 0.95, (*at, left - 1)))
        return outcomes

    return _tabulate((0, 0, NUM_DECISIONS), play, 4, 3)


@functools.cache
def short_pig() -> Game:
    """Pig to 8 points with a die of 4: roll and add, a 1 loses the turn's points and the turn; or hold."""

    def play(state: Any, action: int) -> list[Outcome]:
        mine, others, total, left = state
        if action == 1:
            won = mine + total >= TARGET
            return [(1.0, float(won), 0.0 if won or left == 1 else -1.0, (others, mine + total, 0, left - 1))]
        goes = 0.0 if left == 1 else 1.0
        lost = (1 / 4, 0.0, -goes, (others, mine, 0, left - 1))
        return [lost, *((1 / 4, 0.0, goes, (mine, others, total + eyes, left - 1)) for eyes in (2, 3, 4))]

    return _tabulate((5, 4, 0, NUM_DECISIONS), play, 2, 4)


@functools.cache
def two_armed_gamble() -> Game:
    """One arm pays 0.4, the other 1 with probability 0.45 and else ends the game."""

    def play(state: Any, action: int) -> list[Outcome]:
        (left,) = state
        goes = 0.0 if left == 1 else 1.0
        if action == 0:
            return [(1.0, 0.4, goes, (left - 1,))]
        return [(0.45, 1.0, goes, (left - 1,)), (0.55, 0.0, 0.0, (left - 1,))]

    return _tabulate((NUM_DECISIONS,), play, 2, 2)


GAMES: dict[str, Callable[[], Game]] = {
    "slippery grid": slippery_grid,
    "short pig": short_pig,
    "two-armed gamble": two_armed_gamble,
}


def model(game: Game, value: np.ndarray, logits: np.ndarray | None = None) -> tuple[mcts.Root, mcts.ChanceFn]:
    """Returns the root at state 0, and the exact model with given values [B, S] of states.

    logits: [S, A] of actions; None: even priors. An afterstate's value is the expected one of the states behind it. An
    embedding is (row of `value`, state), an afterstate's state is S + state * A + action.
    """
    num_states, num_actions, num_codes = game.probability.shape
    numbers = (game.probability, game.reward, game.discount)
    probability, reward, discount = (jnp.asarray(table.reshape(-1, num_codes), jnp.float32) for table in numbers)
    following = jnp.asarray(game.following.reshape(-1, num_codes), jnp.int32)
    values = jnp.asarray(value, jnp.float32)
    of_actions = jnp.zeros((num_states, num_actions)) if logits is None else jnp.asarray(logits, jnp.float32)

    def decide(params: Any, action: jax.Array, embedding: Any) -> tuple[mcts.Afterstate, Any]:
        row, state = embedding
        at = jnp.clip(state, 0, num_states - 1) * num_actions + jnp.clip(action, 0, num_actions - 1)
        logits = jnp.log(jnp.maximum(probability[at], 1e-30))
        behind = reward[at] + discount[at] * values[row[:, None], following[at]]
        return mcts.Afterstate(logits, jnp.sum(probability[at] * behind, axis=-1)), (row, num_states + at)

    def resolve(params: Any, code: jax.Array, embedding: Any) -> tuple[mcts.Prediction, Any]:
        row, state = embedding
        at, code = jnp.clip(state - num_states, 0), jnp.clip(code, 0, num_codes - 1)
        after = following[at, code]
        prediction = mcts.Prediction(reward[at, code], discount[at, code], of_actions[after], values[row, after])
        return prediction, (row, after)

    num_rows = len(value)
    rows = jnp.arange(num_rows, dtype=jnp.int32)
    root = mcts.Root(jnp.tile(of_actions[:1], (num_rows, 1)), values[:, 0], (rows, jnp.zeros_like(rows)))
    return root, mcts.ChanceFn(decide, resolve, num_codes)


def noisy(game: Game, num_rows: int, scale: float, seed: int = 0) -> np.ndarray:
    """Returns values [B, S]: the exact ones with even noise up to `scale` of their range, none at ends."""
    noise = np.random.default_rng(seed).uniform(-1, 1, size=(num_rows, len(game.value)))
    is_over = ~game.discount.any(axis=(1, 2)) & (game.value == 0)
    return game.value + scale * game.spread * np.where(is_over, 0.0, noise)
