"""Computes Elo ratings by maximum likelihood (Bradley and Terry 1952; Hunter 2004); a draw counts as half a win.

All counts enter at once, so the order of matches does not matter. Every pair that has met gets a virtual draw, which
bounds the rating of a player that won or lost every match. Pairs that never met get none, because otherwise a player
of few matches would be rated at the mean of a large league, whatever its results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from seedzero.league import payoffs

POINTS = 400 / math.log(10)
"""Elo points for one unit of log odds: odds of ten to one are 400 points."""

_MOST_STEPS = 200
_SMALL = 1e-9
"""Newton's method stops after a step smaller than this, because the remaining error is about its square."""


class Rating(NamedTuple):
    """A player's rating with its standard error, which is 0 for an anchor."""

    points: float
    stderr: float


def fit(pairs: Mapping[tuple[str, str], payoffs.Tally], anchors: Mapping[str, float]) -> dict[str, float]:
    """Returns the players' ratings in points, sorted by name, while the ratings of some players are fixed.

    Players without a chain of matches to an anchor cannot be rated, and are left out.

    Args:
      pairs: counts of each pair of different players that has met, as from `Payoff.pairs`.
      anchors: points of at least one player.
    """
    scores = _scores(pairs)
    names = sorted(set().union(*(_connected(set(scores), anchor) for anchor in anchors)))
    place = {name: index for index, name in enumerate(names)}
    kept = sorted(pair for pair in scores if pair[0] in place)
    middle = sum(anchors.values()) / len(anchors)  # the others begin there
    points = np.array([anchors.get(name, middle) for name in names])
    if kept:
        ends = np.array([[place[one], place[other]] for one, other in kept])
        counts = np.array([scores[pair] for pair in kept])
        is_free = np.array([name not in anchors for name in names])
        found = POINTS * _maximum(ends, counts[:, 0], counts[:, 1], points / POINTS, is_free)
        points = np.where(is_free, found, points)
    return dict(zip(names, points.tolist(), strict=True))


def rate(pairs: Mapping[tuple[str, str], payoffs.Tally], anchors: Mapping[str, float]) -> dict[str, Rating]:
    """Returns the ratings of `fit`, which has the arguments, with their standard errors.

    These are conditional on the anchors, from the curvature at the maximum (the inverse of the Fisher information of
    the free ratings).
    """
    points = fit(pairs, anchors)
    place = {name: index for index, name in enumerate(name for name in points if name not in anchors)}
    information = np.zeros((len(place), len(place)))
    for pair, (_, games) in _scores(pairs).items():
        if pair[0] in points:
            chance = 0.5 + 0.5 * math.tanh(0.5 * (points[pair[0]] - points[pair[1]]) / POINTS)
            signs = {place[name]: sign for name, sign in zip(pair, (1.0, -1.0), strict=True) if name in place}
            signed = np.array(list(signs.values()))
            information[np.ix_(list(signs), list(signs))] += np.outer(signed, signed) * games * chance * (1 - chance)
    errors = dict(zip(place, (POINTS * np.sqrt(np.diag(np.linalg.inv(information)))).tolist(), strict=True))
    return {name: Rating(found, errors.get(name, 0.0)) for name, found in points.items()}


def _scores(pairs: Mapping[tuple[str, str], payoffs.Tally]) -> dict[tuple[str, str], tuple[float, float]]:
    """Returns score and games for each pair that has met, for the player whose name comes first."""
    scores: dict[tuple[str, str], tuple[float, float]] = {}
    for (one, other), row in pairs.items():
        if row.games and one != other:
            low, high, score = (one, other, row.score) if one < other else (other, one, row.games - row.score)
            before = scores.get((low, high), (0.5, 1.0))  # the virtual draw
            scores[low, high] = before[0] + score, before[1] + row.games
    return scores


def _connected(pairs: set[tuple[str, str]], anchor: str) -> set[str]:
    """Returns the players connected to the anchor by a chain of pairs, including itself."""
    beside: dict[str, set[str]] = {}
    for one, other in pairs:
        beside.setdefault(one, set()).add(other)
        beside.setdefault(other, set()).add(one)
    found, waiting = {anchor}, [anchor]
    while waiting:
        new = beside.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def _maximum(
    ends: np.ndarray, score: np.ndarray, games: np.ndarray, strength: np.ndarray, is_free: np.ndarray
) -> np.ndarray:
    """Returns the strengths [N] of maximum likelihood by Newton's method with step halving; only free ones change.

    ends: [P, 2] indices of each pair's players. score, games: [P] of the first player, 0 < score < games. strength:
    [N] to begin with. is_free: [N] bool.
    """
    one, other = ends.T

    def likelihood(values: np.ndarray) -> float:
        difference = values[one] - values[other]
        return float(np.sum(score * difference - games * np.logaddexp(0.0, difference)))

    best = likelihood(strength)
    for _ in range(_MOST_STEPS):
        rate = 1 / (1 + np.exp(strength[other] - strength[one]))
        excess = score - games * rate
        gradient = _by_player(ends, excess, -excess, is_free)
        if not gradient.any():
            return strength
        step = _solved(ends, games * rate * (1 - rate), gradient, is_free)
        if np.abs(step).max() <= _SMALL:
            return np.asarray(strength + step)
        while (found := likelihood(strength + step)) < best and np.abs(step).max() > _SMALL:
            step /= 2
        strength, best = strength + step, found
    return strength


def _by_player(ends: np.ndarray, first: np.ndarray, second: np.ndarray, is_free: np.ndarray) -> np.ndarray:
    """Returns the sums [N] over the pairs' numbers [P] for their first and second players; 0 for fixed players."""
    number = len(is_free)
    sums: np.ndarray = np.bincount(ends[:, 0], first, number) + np.bincount(ends[:, 1], second, number)
    return np.where(is_free, sums, 0.0)


def _solved(ends: np.ndarray, weight: np.ndarray, gradient: np.ndarray, is_free: np.ndarray) -> np.ndarray:
    """Returns a step [N] of Newton's method from the gradient [N], by conjugate gradients.

    The Hessian is never built as a matrix, because only pairs that have met have entries, and they are few. weight:
    [P].
    """
    diagonal = _by_player(ends, weight, weight, is_free) + ~is_free
    step, rest = np.zeros(len(gradient)), gradient
    scaled = direction = rest / diagonal
    least = _SMALL * np.abs(rest).max()
    for _ in range(_MOST_STEPS):
        if np.abs(rest).max() <= least:
            break
        flow = weight * (direction[ends[:, 0]] - direction[ends[:, 1]])
        product = _by_player(ends, flow, -flow, is_free)
        size = rest @ scaled
        length = size / (direction @ product)
        step, rest = step + length * direction, rest - length * product
        scaled = rest / diagonal
        direction = scaled + rest @ scaled / size * direction
    return step
