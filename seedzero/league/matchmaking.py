"""Draws opponents by prioritized fictitious self-play (PFSP; AlphaStar, Vinyals et al. 2019, supplement).

A learning player's active set is a few opponents, drawn by its win rates. Groups of environments take its entries in
turn, so only a few players act at the same time and their batches stay large. Every draw depends only on its key, so
it does not depend on the order of messages, and is the same after a resume.

AlphaStar's rules by kind of player, as fractions of the draws:
  main              itself or another main player 0.35; exploiters and their snapshots by win rate 0.15; otherwise
                    frozen players by win rate. (AlphaStar takes only exploiters' snapshots, once they win.)
  main exploiter    a main player, or that player's past by win rate while it wins less than 0.1 against it
  league exploiter  frozen players by win rate
Scripted members are drawn like frozen players. If there is no such opponent, a player meets the main players.
A builder may give a player a single opponent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seedzero.config import league_config
from seedzero.league import members, payoffs

WEIGHTINGS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda rates: 1 - rates,
    "linear_capped": lambda rates: np.minimum(0.5, 1 - rates),
    "squared": lambda rates: np.square(1 - rates),
    "variance": lambda rates: rates * (1 - rates),
    "uniform": np.ones_like,
}
"""Weights of opponents by the player's win rates against them."""

_EXPLOITERS = 0.15
"""Fraction of a main player's draws for exploiters and their snapshots (AlphaStar)."""
_MAIN_EXPLOITER_FLOOR = 0.1
"""Up to this win rate against a main player, a main exploiter meets that player's past instead (AlphaStar)."""

_MATCH, _ACTIVE = 3, 5
"""Second numbers of the random keys, for a group's first entry and for entries of the active set."""


def shares(rates: np.ndarray, weighting: str) -> np.ndarray:
    """Returns the probability of each opponent [N] from the player's win rates [N]; equal if all weights are 0."""
    weights = WEIGHTINGS[weighting](np.asarray(rates, np.float64))
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1 / max(1, len(weights)))


class Branch(NamedTuple):
    """The opponents that one rule gives."""

    share: float  # fraction of all draws
    names: tuple[str, ...]
    shares: np.ndarray  # [N] fractions of the branch's draws, which sum to 1


def branches(
    payoff: payoffs.Payoff, pool: members.Pool, home: str, settings: league_config.LeagueConfig
) -> tuple[Branch, ...]:
    """Returns a learning player's opponents by the rules for its kind; the shares of all branches sum to 1."""

    def pfsp(share: float, names: Sequence[str], weighting: str) -> Branch:
        return Branch(share, tuple(names), shares(_rates(payoff, home, names), weighting))

    kind, fixed, mains = pool.of(home).kind, members.fixed(pool), pool.learning_of(members.MAIN)
    if (rival := pool.of(home).rival) in fixed:
        return (pfsp(1.0, (rival,), "uniform"),)
    if kind == members.LEAGUE_EXPLOITER:
        return (pfsp(1.0, fixed, "linear_capped") if fixed else pfsp(1.0, mains, "uniform"),)
    if kind == members.MAIN_EXPLOITER:
        is_behind = _rates(payoff, home, mains) <= _MAIN_EXPLOITER_FLOOR
        own = [pool.past(parent=main) if behind else () for main, behind in zip(mains, is_behind, strict=True)]
        return tuple(pfsp(1 / len(mains), own[at] or (main,), "variance") for at, main in enumerate(mains))
    exploiters = [one.name for one in pool.members if one.line != members.MAIN and not one.retired]
    of_exploiters = min(_EXPLOITERS, 1 - settings.self_play) if exploiters else 0.0
    of_mains = settings.self_play if fixed else 1 - of_exploiters
    rules = (
        pfsp(of_mains, mains, "uniform"),
        pfsp(of_exploiters, exploiters, settings.weighting),
        pfsp(1 - of_mains - of_exploiters, fixed, settings.weighting),
    )
    return tuple(rule for rule in rules if rule.names)


def active_set(
    payoff: payoffs.Payoff,
    pool: members.Pool,
    home: str,
    settings: league_config.LeagueConfig,
    *,
    seed: int,
    number: int,
) -> tuple[str, ...]:
    """Returns `settings.active` opponents of a learning player, drawn independently with replacement.

    number: how many active sets the player has had before in this run.
    """
    rules, place = branches(payoff, pool, home, settings), pool.of(home).number
    return tuple(
        _drawn(rules, *uniform(seed, _ACTIVE, number, entry, *_of_home(place))) for entry in range(settings.active)
    )


def chances(
    payoff: payoffs.Payoff, pool: members.Pool, home: str, settings: league_config.LeagueConfig
) -> dict[str, float]:
    """Returns the probability of each player in a learning player's next draws, with the player itself first."""
    found = dict.fromkeys((home, *pool.learning, *pool.frozen, *members.scripted(pool)), 0.0)
    for rule in branches(payoff, pool, home, settings):
        for name, share in zip(rule.names, rule.shares.tolist(), strict=True):
            found[name] += rule.share * share
    return found


def active_rate(payoff: payoffs.Payoff, player: str, active: Sequence[str]) -> float | None:
    """Returns the player's mean win rate against the others in its active set, or None if there are no others."""
    rates = _rates(payoff, player, [name for name in active if name != player]).tolist()
    return sum(rates) / len(rates) if rates else None


def turn(*, seed: int, first_slot: int, epoch: int, number: int, size: int, home: int = 0) -> int:
    """Returns which entry of the active set a group's draw takes.

    A group begins at a random entry and takes the entries in turn. Each round begins one entry later than the last, so
    that a slot, whose sides alternate, too, meets every entry on both sides.

    Args:
      first_slot: first slot of the group.
      epoch: epoch of the run's environments; a reset of all of them begins the next one.
      number: number of the group's draw in the epoch, from 0.
      size: size of the active set.
      home: number of the group's learning player.
    """
    start = int(uniform(seed, _MATCH, first_slot, epoch, *_of_home(home))[0] * size)
    return (start + number + number // size) % size


def _rates(payoff: payoffs.Payoff, player: str, names: Sequence[str]) -> np.ndarray:
    return np.array([payoff.win_rate(player, name) for name in names])


def _drawn(rules: Sequence[Branch], of_rule: float, of_player: float) -> str:
    """Returns the opponent that two numbers in [0, 1) choose."""
    ends = np.cumsum([rule.share for rule in rules])
    rule = rules[min(int(np.searchsorted(ends, of_rule, side="right")), len(rules) - 1)]
    ends = np.cumsum(rule.shares)
    return rule.names[min(int(np.searchsorted(ends, of_player * ends[-1], side="right")), len(rule.names) - 1)]


def _of_home(number: int) -> tuple[int, ...]:
    """Returns a learning player's part of a key; empty for the first one, as in leagues with only one."""
    return (number,) if number else ()


def uniform(*key: int) -> tuple[float, float]:
    """Returns two numbers in [0, 1) for a key."""
    one, other = np.random.SeedSequence(key).generate_state(2, np.uint64) >> np.uint64(11)
    return float(one) * 2**-53, float(other) * 2**-53
