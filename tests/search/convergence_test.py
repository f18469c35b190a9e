"""With a perfect model more simulations come closer to perfect play: tic-tac-toe by minimax, small MDPs exactly.

Nothing is learned: priors are even, values 0 or noisy, so whatever is found was found by search.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero import search as mcts

Board = tuple[int, ...]
"""Nine squares, row by row, as the player to move sees them: 1 own, -1 the other's, 0 empty."""

LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])
NUM_POSITIONS = 120


def moves(board: Board) -> list[int]:
    """Returns the empty squares; none behind the end of a game."""
    lost = any(all(board[square] == -1 for square in line) for line in LINES)
    return [] if lost else [square for square in range(9) if board[square] == 0]


def play(board: Board, move: int) -> Board:
    return tuple(-1 if square == move else -owner for square, owner in enumerate(board))


@functools.cache
def minimax(board: Board) -> int:
    """Returns 1, 0 or -1: the player to move wins, draws or loses with perfect play."""
    if any(all(board[square] == -1 for square in line) for line in LINES):
        return -1
    return max((-minimax(play(board, move)) for move in moves(board)), default=0)


def best_moves(board: Board) -> list[int]:
    return [move for move in moves(board) if -minimax(play(board, move)) == minimax(board)]


def reachable() -> list[Board]:
    """Returns every position of every game, ends included, in a fixed order."""
    found: dict[Board, None] = {(0,) * 9: None}
    todo = list(found)
    while todo:
        board = todo.pop()
        new = [following for move in moves(board) if (following := play(board, move)) not in found]
        found.update(dict.fromkeys(new))
        todo += new
    return list(found)


def test_the_games_are_all_there() -> None:
    boards = reachable()
    assert len(boards) == 5478
    assert minimax((0,) * 9) == 0
    assert sum(1 for board in boards if moves(board)) == 4520


def game_step(params: Any, action: jax.Array, board: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
    """Tic-tac-toe on boards [R, 9] int8. An illegal move loses at once; its prior is 0, so that no search tries it."""
    illegal = jnp.take_along_axis(board, action[:, None], axis=1)[:, 0] != 0
    board = jnp.where(jax.nn.one_hot(action, 9, dtype=bool), jnp.int8(1), board)
    won = (board[:, LINES] == 1).all(axis=-1).any(axis=-1)
    end = won | illegal | (board != 0).all(axis=-1)
    prediction = mcts.Prediction(
        reward=jnp.where(illegal, -1.0, won.astype(jnp.float32)),
        discount=jnp.where(end, 0.0, -1.0),
        prior_logits=jnp.where(board == 0, 0.0, -1e9),
        value=jnp.zeros(len(action)),
    )
    return prediction, -board


def compiled(step: Any, policy: str, num_simulations: int) -> Any:
    config = mcts.SearchConfig(policy=policy, num_simulations=num_simulations)
    run = functools.partial(mcts.search, recurrent_fn=step, config=config)
    return jax.jit(run)


@functools.cache
def positions() -> tuple[jax.Array, np.ndarray]:
    """Returns positions [B, 9] int8 in which a move can be wrong, and [B, 9] bool which moves are best."""
    open_ones = [board for board in reachable() if len(best_moves(board)) < len(moves(board))]
    chosen = np.random.default_rng(0).choice(len(open_ones), NUM_POSITIONS, replace=False)
    boards = [open_ones[index] for index in chosen]
    best = np.array([[square in best_moves(board) for square in range(9)] for board in boards])
    return jnp.array(boards, jnp.int8), best


# Random legal moves are best in 0.40 of these positions.
@pytest.mark.slow
@pytest.mark.parametrize(("policy", "least_share"), [("gumbel", 0.95), ("puct", 0.94)])
def test_more_simulations_find_the_moves_of_perfect_tic_tac_toe(policy: str, least_share: float) -> None:
    boards, best = positions()
    root = mcts.Root(jnp.where(boards == 0, 0.0, -1e9), jnp.zeros(len(boards)), boards)
    shares: list[float] = []
    for num_simulations in (8, 200):
        result = compiled(game_step, policy, num_simulations)(
            (), jax.random.key(0), root, invalid_actions=boards != 0, explore=jnp.zeros(len(boards), bool)
        )
        shares.append(float(np.take_along_axis(best, np.asarray(result.action)[:, None], axis=1).mean()))
    assert np.all(np.diff(shares) > 0.0)
    assert shares[0] > 0.7
    assert shares[-1] >= least_share


NUM_MDPS, NUM_STATES, NUM_ACTIONS = 20, 12, 4
DISCOUNT = 0.9


@functools.cache
def mdps() -> tuple[Any, np.ndarray]:
    """Returns deterministic MDPs in one table, the values they are given, and the true Q values [S, A] of all states.

    The values are the true ones with noise of 0.5. (Values of 0 would mislead both searches: rewards are positive, so
    that a long line looks better than a good one, the longer the better.)
    """
    rng = np.random.default_rng(0)
    shape = (NUM_MDPS, NUM_STATES, NUM_ACTIONS)
    first = np.arange(NUM_MDPS)[:, None, None] * NUM_STATES
    next_state = (first + rng.integers(NUM_STATES, size=shape)).reshape(-1, NUM_ACTIONS)
    reward = rng.random(next_state.shape)
    q = np.zeros(next_state.shape)
    for _ in range(300):
        q = reward + DISCOUNT * q.max(axis=1)[next_state]
    value = q.max(axis=1) + 0.5 * rng.normal(size=len(q))
    return (jnp.array(next_state, jnp.int32), jnp.array(reward, jnp.float32), jnp.array(value, jnp.float32)), q


def mdp_step(params: Any, action: jax.Array, state: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
    next_state, reward, value = params
    following = next_state[state, action]
    even = jnp.zeros((len(action), NUM_ACTIONS))
    discount = jnp.full(len(action), DISCOUNT)
    return mcts.Prediction(reward[state, action], discount, even, value[following]), following


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["gumbel", "puct"])
def test_more_simulations_find_better_actions_of_small_mdps(policy: str) -> None:
    params, q = mdps()
    states = jnp.arange(len(q))
    root = mcts.Root(jnp.zeros(q.shape), params[2], states)
    shares: list[float] = []
    regrets: list[float] = []
    for num_simulations in (8, 128):
        run = compiled(mdp_step, policy, num_simulations)
        result = run(params, jax.random.key(0), root, explore=jnp.zeros(len(q), bool))
        loss = q.max(axis=1) - np.take_along_axis(q, np.asarray(result.action)[:, None], axis=1)[:, 0]
        shares.append(float((loss < 1e-6).mean()))
        regrets.append(float(loss.mean()))
    assert np.all(np.diff(shares) > 0.0)
    assert np.all(np.diff(regrets) < 0.0)
    assert shares[-1] > 0.75
    # An action at random loses 0.37.
    assert regrets[-1] < 0.03
