"""Matchmaking by prioritized fictitious self-play (PFSP; AlphaStar, Vinyals et al. 2019, supplement).

The active set is a few opponents, drawn by the learning player's win rates; groups of environments take its entries
in turn, so few players act at a time and their batches stay wide. Every draw follows from its key alone, so it is
independent of the order of messages, and equal after a resume.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from seedzero.config import sections
from seedzero.league import payoff as payoffs

WEIGHTINGS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda rates: 1 - rates,
    "squared": lambda rates: np.square(1 - rates),
    "variance": lambda rates: rates * (1 - rates),
    "uniform": np.ones_like,
}
"""Weights of opponents from the player's win rates."""

_MATCH, _ACTIVE = 3, 5
"""Second numbers of the random keys: a group's first entry, and entries of the active set."""


def shares(rates: np.ndarray, weighting: str) -> np.ndarray:
    """Returns each opponent's share of the draws [N] from the player's win rates [N]; equal if all weights are 0."""
    weights = WEIGHTINGS[weighting](np.asarray(rates, np.float64))
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1 / len(weights))


def active_set(
    payoff: payoffs.Payoff,
    player: str,
    frozen: Sequence[str],
    settings: sections.LeagueConfig,
    *,
    seed: int,
    number: int,
) -> tuple[str, ...]:
    """Returns `settings.active` opponents, drawn independently with replacement; the player itself: self-play.

    Args:
      frozen: names of the frozen players; without any, all entries are self-play.
      number: of the active set in the run, from 0.
    """
    if not frozen:
        return (player,) * settings.active
    prior = dict(prior=settings.prior, prior_games=settings.prior_games)
    rates = np.array([payoff.win_rate(player, name, **prior) for name in frozen])
    ends = np.cumsum(shares(rates, settings.weighting))
    drawn = []
    for entry in range(settings.active):
        of_type, of_player = _uniform(seed, _ACTIVE, number, entry)
        place = min(int(np.searchsorted(ends, of_player * ends[-1], side="right")), len(frozen) - 1)
        drawn.append(player if of_type < settings.self_play else frozen[place])
    return tuple(drawn)


def active_rate(
    payoff: payoffs.Payoff, player: str, active: Sequence[str], settings: sections.LeagueConfig
) -> float | None:
    """Returns the player's mean win rate against the frozen players of the active set; None: it has none."""
    prior = dict(prior=settings.prior, prior_games=settings.prior_games)
    rates = [payoff.win_rate(player, name, **prior) for name in active if name != player]
    return sum(rates) / len(rates) if rates else None


def turn(*, seed: int, first_slot: int, epoch: int, number: int, size: int) -> int:
    """Returns the place in the active set of a group's draw.

    A group begins anywhere and takes the entries in turn; each round begins one entry later than the last, so that a
    slot, whose sides take turns too, meets every entry on both sides.

    Args:
      first_slot: of the group.
      epoch: of the run's environments; a reset of all of them begins the next one.
      number: of the group's draw in the epoch, from 0.
      size: of the active set.
    """
    start = int(_uniform(seed, _MATCH, first_slot, epoch)[0] * size)
    return (start + number + number // size) % size


def _uniform(*key: int) -> tuple[float, float]:
    """Returns two numbers from 0 to below 1 by a key."""
    one, other = np.random.SeedSequence(key).generate_state(2, np.uint64) >> np.uint64(11)
    return float(one) * 2**-53, float(other) * 2**-53
