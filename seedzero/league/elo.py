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
_LONGEST_STEP = 2.0
"""Most that a strength changes in one step of Newton's method, which may begin far from the maximum."""
_SMALL = 1e-9
"""Newton's method stops after a step smaller than this, because the remaining error is about its square."""


def fit(
    pairs: Mapping[tuple[str, str], payoffs.Tally], *, anchor: str, virtual_draws: float = 1.0
) -> dict[str, float]:
    """Returns the players' ratings in points, sorted by name.

    Players without a chain of matches to the anchor cannot be rated, and are left out.

    Args:
      pairs: counts of each pair of different players that has met, as from `Payoff.pairs`.
      anchor: the player whose rating is 0.
      virtual_draws: draws added to each pair, above 0.
    """
    scores = _scores(pairs, virtual_draws)
    names = sorted(_connected(set(scores), anchor))
    place = {name: index for index, name in enumerate(names)}
    kept = sorted(pair for pair in scores if pair[0] in place)
    if not kept:
        return {anchor: 0.0}
    ends = np.array([[place[one], place[other]] for one, other in kept])
    counts = np.array([scores[pair] for pair in kept])
    strength = _maximum(ends, counts[:, 0], counts[:, 1], len(names))
    return dict(zip(names, (POINTS * (strength - strength[place[anchor]])).tolist(), strict=True))


class Rating(NamedTuple):
    """A player's rating with its standard error, which is 0 for an anchor."""

    points: float
    stderr: float


def rate(
    pairs: Mapping[tuple[str, str], payoffs.Tally], anchors: Mapping[str, float], *, virtual_draws: float = 1.0
) -> dict[str, Rating]:
    """Returns the players' ratings, sorted by name, while the ratings of some players are fixed.

    The standard errors are conditional on the anchors, from the curvature at the maximum (the inverse of the Fisher
    information of the free ratings). Players without a chain of matches to an anchor are left out.

    Args:
      pairs, virtual_draws: as in `fit`.
      anchors: points of at least one player.
    """
    scores = _scores(pairs, virtual_draws)
    found = {name: Rating(points, 0.0) for name, points in anchors.items()}
    known = sorted(set().union(*(_connected(set(scores), anchor) for anchor in anchors)))
    free = [name for name in known if name not in anchors]
    place = {name: index for index, name in enumerate(free)}
    kept = sorted(pair for pair in scores if pair[0] in known and not {*pair} <= anchors.keys())
    if not free:
        return found
    strength, hessian = np.zeros(len(free)), np.eye(len(free))
    for _ in range(_MOST_STEPS):
        gradient, hessian = np.zeros(len(free)), np.zeros((len(free), len(free)))
        for one, other in kept:
            score, games = scores[one, other]
            values = [strength[place[name]] if name in place else anchors[name] / POINTS for name in (one, other)]
            chance = 1 / (1 + math.exp(values[1] - values[0]))
            ends = np.array([place[name] for name in (one, other) if name in place])
            signs = np.array([sign for name, sign in ((one, 1.0), (other, -1.0)) if name in place])
            gradient[ends] += signs * (score - games * chance)
            hessian[np.ix_(ends, ends)] += np.outer(signs, signs) * games * chance * (1 - chance)
        step = np.linalg.solve(hessian, gradient)
        strength += step * min(1.0, _LONGEST_STEP / np.abs(step).max()) if step.any() else step
        if np.abs(step).max() <= _SMALL:
            break
    errors = POINTS * np.sqrt(np.diag(np.linalg.inv(hessian)))
    found |= {name: Rating(POINTS * float(strength[at]), float(errors[at])) for name, at in place.items()}
    return dict(sorted(found.items()))


def _scores(
    pairs: Mapping[tuple[str, str], payoffs.Tally], virtual_draws: float
) -> dict[tuple[str, str], tuple[float, float]]:
    """Returns score and games for each pair that has met, for the player whose name comes first."""
    scores: dict[tuple[str, str], tuple[float, float]] = {}
    for (one, other), row in pairs.items():
        if row.games and one != other:
            low, high, score = (one, other, row.score) if one < other else (other, one, row.games - row.score)
            before = scores.get((low, high), (0.5 * virtual_draws, virtual_draws))
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


def _maximum(ends: np.ndarray, score: np.ndarray, games: np.ndarray, number: int) -> np.ndarray:
    """Returns the strengths [number] of maximum likelihood, with mean 0, by Newton's method with step halving.

    ends: [P, 2] indices of each pair's players. score, games: [P] of the first player, 0 < score < games.
    """
    one, other = ends.T
    strength = np.zeros(number)

    def likelihood(values: np.ndarray) -> float:
        difference = values[one] - values[other]
        return float(np.sum(score * difference - games * np.logaddexp(0.0, difference)))

    best = likelihood(strength)
    for _ in range(_MOST_STEPS):
        rate = 1 / (1 + np.exp(strength[other] - strength[one]))
        excess = score - games * rate
        gradient = np.bincount(one, excess, number) - np.bincount(other, excess, number)
        step = _solved(one, other, games * rate * (1 - rate), gradient)
        step -= step.mean()
        if np.abs(step).max() <= _SMALL:
            return np.asarray(strength + step)
        while (found := likelihood(strength + step)) < best and np.abs(step).max() > _SMALL:
            step /= 2
        strength, best = strength + step, found
    return strength


def _solved(one: np.ndarray, other: np.ndarray, weight: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Returns a step [N] of Newton's method from the gradient [N], by conjugate gradients.

    The Hessian is never built as a matrix, because only pairs that have met have entries, and they are few. one,
    other, weight: [P].
    """
    number = len(gradient)
    diagonal = np.bincount(one, weight, number) + np.bincount(other, weight, number)
    # only rounding gives it a mean, for which there is no solution
    step, rest = np.zeros(number), gradient - gradient.mean()
    scaled = direction = rest / diagonal
    least = _SMALL * np.abs(rest).max()
    for _ in range(_MOST_STEPS):
        if np.abs(rest).max() <= least:
            break
        flow = weight * (direction[one] - direction[other])
        product = np.bincount(one, flow, number) - np.bincount(other, flow, number)
        size = rest @ scaled
        length = size / (direction @ product)
        step, rest = step + length * direction, rest - length * product
        scaled = rest / diagonal
        direction = scaled + rest @ scaled / size * direction
    return step
