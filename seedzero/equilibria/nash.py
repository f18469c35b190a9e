"""The exact judge of players in a game of two seats: mixtures, and their NashConv.

A policy is a vector [S] of the probabilities of a seat's actions by sequence (`game_tree`); a plan is the vector [S]
of the products on the way, the seat's own reach probabilities. Plans mix linearly, policies do not: the mixture of
players plays pi(a|I) = sum_i s_i r_i(I) pi_i(a|I) / sum_i s_i r_i(I), with r_i player i's own reach (Kuhn 1953).

Shape letters: N players, I information states of a seat, S sequences of a seat.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seedzero.equilibria import game_tree

SMALLEST_WEIGHT = 1e-6
"""Smaller weights of a mixture by the linear programme are 0: its solver is exact to 1e-7."""
SMALLEST_RETURN = 1e-6
"""Smaller mean returns between two players are 0: probabilities are float32."""


class Players(NamedTuple):
    """Players' plans by seat, and their returns against each other."""

    plans: tuple[np.ndarray, np.ndarray]  # [N, S] by seat
    returns: np.ndarray  # [N, N] of player i in seat 0 against player j in seat 1, exact
    second: np.ndarray  # [N, N] of player j in that match


def players(tree: game_tree.GameTree, policies: tuple[np.ndarray, np.ndarray]) -> Players:
    """Returns the players of policies [N, S] by seat."""
    one, other = (to_plans(seat, policy) for seat, policy in zip(tree.seats, policies, strict=True))
    first = (one @ tree.payoff) @ other.T
    return Players((one, other), first, -first if tree.second is None else (one @ tree.second) @ other.T)


def to_plans(seat: game_tree.InfoStates, policies: np.ndarray) -> np.ndarray:
    """Returns the plans [..., S] of policies [..., S] of a seat."""
    plans = np.array(policies, np.float64)
    plans[..., 0] = 1.0
    for parent, begin, end in _places(seat):
        plans[..., begin:end] *= plans[..., parent, np.newaxis]
    return plans


def to_policy(seat: game_tree.InfoStates, plan: np.ndarray) -> np.ndarray:
    """Returns the policy [S] of a plan [S] of a seat, as of a mixture; uniform behind states that it never reaches."""
    policy = np.ones_like(plan)
    for parent, begin, end in _places(seat):
        policy[begin:end] = plan[begin:end] / plan[parent] if plan[parent] > 0 else 1 / (end - begin)
    return policy


def best_response(seat: game_tree.InfoStates, gains: np.ndarray) -> float:
    """Returns the largest return of a seat against a fixed plan.

    gains: [S] of the seat, sums over ends of its return times the probabilities of chance and of the other seat.
    """
    values = gains.tolist()
    for parent, begin, end in reversed(_places(seat)):
        values[parent] += max(values[begin:end])
    return float(values[0])


def nash_conv(tree: game_tree.GameTree, plans: tuple[np.ndarray, np.ndarray]) -> float:
    """Returns the sum over both seats of the gain by a best response; 0: an equilibrium. plans: [S] by seat."""
    one = best_response(tree.seats[0], tree.payoff @ plans[1])
    if tree.second is None:  # the plans' own returns add up to zero
        return one + best_response(tree.seats[1], -(plans[0] @ tree.payoff))
    own = float(plans[0] @ tree.payoff @ plans[1]) + float(plans[0] @ tree.second @ plans[1])
    return one + best_response(tree.seats[1], plans[0] @ tree.second) - own


def equilibrium(returns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mixtures [N] of seats 0 and 1 with the best worst return, by linear programmes on [N, N] returns.

    They are an equilibrium of these players where returns sum to zero, and there alone.
    """
    return _maximin(returns), _maximin(-returns.T)


def _maximin(returns: np.ndarray) -> np.ndarray:
    """Returns the rows' mixture [N] of the largest smallest mean over the columns of [N, M]."""
    from scipy import optimize  # type: ignore[import-untyped]  # takes half a second, and only the judge needs it

    num_rows, num_columns = returns.shape
    # Of (weights, value): value - weights @ returns[:, j] <= 0 for each j; the weights add up to 1; value is largest.
    found = optimize.linprog(
        c=[*[0.0] * num_rows, -1.0],
        A_ub=np.hstack([-returns.T, np.ones((num_columns, 1))]),
        b_ub=np.zeros(num_columns),
        A_eq=[[*[1.0] * num_rows, 0.0]],
        b_eq=[1.0],
        bounds=[*[(0.0, None)] * num_rows, (None, None)],
        method="highs",
    )
    assert found.status == 0, found.message  # always feasible, and bounded by the largest return
    weights = np.where(found.x[:-1] > SMALLEST_WEIGHT, found.x[:-1], 0.0)
    return np.asarray(weights / weights.sum())


def cyclic_triples(players: Players) -> int:
    """Returns the number of three players of whom each beats the next one, by mean returns over both seats."""
    lead = players.returns - players.second  # of player i in seat 0 over player j
    beats = ((lead - lead.T) / 4 > SMALLEST_RETURN).astype(np.int64)
    return int(np.trace(beats @ beats @ beats)) // 3


def _places(seat: game_tree.InfoStates) -> list[tuple[int, int, int]]:
    """Returns the parent's sequence, the first own sequence and the end of each information state."""
    begins = seat.begins.tolist()
    return list(zip(seat.parents.tolist(), begins[:-1], begins[1:], strict=True))
