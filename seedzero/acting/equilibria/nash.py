"""Computes the exact NashConv of players and of their mixtures in a game of two seats.

A policy is a vector [S] of a seat's action probabilities by sequence (`game_tree`). A plan is the vector [S] of their
products along the way, the seat's own reach probabilities. Plans mix linearly but policies do not: a mixture of
players plays pi(a|I) = sum_i s_i r_i(I) pi_i(a|I) / sum_i s_i r_i(I), where r_i is player i's own reach (Kuhn 1953).

Shape letters: N players, I information states of a seat, S sequences of a seat.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seedzero.acting.equilibria import game_tree

SMALLEST_WEIGHT = 1e-6
"""Smaller weights in a mixture count as 0, because the linear program's solver is exact to 1e-7."""
SMALLEST_RETURN = 1e-6
"""Smaller mean returns between two players count as 0, because probabilities are float32."""


class Players(NamedTuple):
    """Players' plans for each seat, and their returns against each other."""

    plans: tuple[np.ndarray, np.ndarray]  # [N, S] for each seat
    returns: np.ndarray  # [N, N] exact return of player i in seat 0 against player j in seat 1
    second: np.ndarray  # [N, N] player j's return in that match


def players(tree: game_tree.GameTree, policies: tuple[np.ndarray, np.ndarray]) -> Players:
    """Returns the players that have these policies [N, S] in each seat."""
    one, other = (to_plans(seat, policy) for seat, policy in zip(tree.seats, policies, strict=True))
    first = (one @ tree.payoff) @ other.T
    return Players((one, other), first, -first if tree.second is None else (one @ tree.second) @ other.T)


def to_plans(seat: game_tree.InfoStates, policies: np.ndarray) -> np.ndarray:
    """Returns the plans [..., S] of a seat's policies [..., S]."""
    plans = np.array(policies, np.float64)
    plans[..., 0] = 1.0
    for parent, begin, end in _places(seat):
        plans[..., begin:end] *= plans[..., parent, np.newaxis]
    return plans


def best_response(seat: game_tree.InfoStates, gains: np.ndarray) -> float:
    """Returns a seat's largest return against a fixed plan of the other seat.

    gains: [S] for each own sequence, the sum over terminal states of its return times the probabilities of chance and
    of the other seat.
    """
    values = gains.tolist()
    for parent, begin, end in reversed(_places(seat)):
        values[parent] += max(values[begin:end])
    return float(values[0])


def nash_conv(tree: game_tree.GameTree, plans: tuple[np.ndarray, np.ndarray]) -> float:
    """Returns NashConv, the gain of best responses summed over both seats; 0 at an equilibrium. plans: [S] by seat."""
    one = best_response(tree.seats[0], tree.payoff @ plans[1])
    if tree.second is None:  # the returns of the plans themselves cancel
        return one + best_response(tree.seats[1], -(plans[0] @ tree.payoff))
    own = float(plans[0] @ tree.payoff @ plans[1]) + float(plans[0] @ tree.second @ plans[1])
    return one + best_response(tree.seats[1], plans[0] @ tree.second) - own


def equilibrium(returns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mixtures [N] for seats 0 and 1 with the best worst-case return, from returns [N, N].

    It solves two linear programs. The mixtures are an equilibrium between these players only if returns sum to zero.
    """
    return _maximin(returns), _maximin(-returns.T)


def _maximin(returns: np.ndarray) -> np.ndarray:
    """Returns the mixture [N] of rows that maximizes the smallest mean over the columns of [N, M]."""
    from scipy import optimize  # type: ignore[import-untyped]  # takes half a second, and little else needs it

    num_rows, num_columns = returns.shape
    # Variables (weights, value): value - weights @ returns[:, j] <= 0 for each j; weights sum to 1; maximizes value.
    found = optimize.linprog(
        c=[*[0.0] * num_rows, -1.0],
        A_ub=np.hstack([-returns.T, np.ones((num_columns, 1))]),
        b_ub=np.zeros(num_columns),
        A_eq=[[*[1.0] * num_rows, 0.0]],
        b_eq=[1.0],
        bounds=[*[(0.0, None)] * num_rows, (None, None)],
        method="highs",
    )
    assert found.status == 0, found.message  # it is always feasible, and bounded by the largest return
    weights = np.where(found.x[:-1] > SMALLEST_WEIGHT, found.x[:-1], 0.0)
    return np.asarray(weights / weights.sum())


def cyclic_triples(players: Players) -> int:
    """Returns how many triples of players beat each other in a cycle, by mean returns over both seats."""
    lead = players.returns - players.second  # lead of player i in seat 0 over player j
    beats = ((lead - lead.T) / 4 > SMALLEST_RETURN).astype(np.int64)
    return int(np.trace(beats @ beats @ beats)) // 3


def _places(seat: game_tree.InfoStates) -> list[tuple[int, int, int]]:
    """Returns the parent's sequence, and the first and the end of its own sequences, for each information state."""
    begins = seat.begins.tolist()
    return list(zip(seat.parents.tolist(), begins[:-1], begins[1:], strict=True))
