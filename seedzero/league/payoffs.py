"""Counts the results of matches, as totals that never decay and as decaying win rates for matchmaking.

A match adds to one row for each of its two sides, so the games of all rows are twice the matches. This is also true of
a player's match against itself, which counts once as first and once as second mover.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from seedzero.core import opponents
from seedzero.league import members

SELF_PLAY, PAST, EVALUATION = "self_play", "past", "evaluation"
MAINS, EXPLOITERS = "mains", "exploiters"
BETWEEN = (PAST, MAINS, EXPLOITERS, members.MAIN_EXPLOITER, members.LEAGUE_EXPLOITER, members.SCRIPTED)
"""Types of training matches between two players, which depend on the player at home.

A main player: against the past of main players, another main player that learns, or an exploiter and its past. A main
exploiter, or a league exploiter: against any player. Any player: against a scripted one.
"""
TYPES = (SELF_PLAY, *BETWEEN, EVALUATION)
"""Types of all matches: of a player against itself, between two players, and in evaluations."""

WIN, DRAW, LOSS = 1, 0, -1
_Z = 1.96  # half width of an interval of 95 %, in standard deviations

DECAY = 0.99
"""Factor by which each new match of a pair reduces the weight of earlier ones in the recent win rate."""


class Match(NamedTuple):
    """A finished match from the view of one of its players."""

    type: str  # one of TYPES
    player: str
    opponent: str
    side: int  # the player's side
    outcome: int  # the player's WIN, DRAW or LOSS
    total: float  # sum of the player's rewards
    other: float | None = None  # sum of the opponent's rewards; None: the negative of the player's

    @property
    def mirrored(self) -> Match:
        """The match from the opponent's view."""
        sums = (-self.total, None) if self.other is None else (self.other, self.total)
        return Match(self.type, self.opponent, self.player, 1 - self.side, -self.outcome, *sums)


class Key(NamedTuple):
    """Identifies a row."""

    type: str
    player: str
    opponent: str
    side: int


class Tally(NamedTuple):
    """The counts in a row; `total` is the sum of the player's returns."""

    wins: int = 0
    draws: int = 0
    losses: int = 0
    total: float = 0.0

    @property
    def games(self) -> int:
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float:
        """Wins plus half of the draws."""
        return self.wins + 0.5 * self.draws

    @property
    def mean_return(self) -> float:
        return self.total / self.games if self.games else 0.0

    def plus(self, other: Tally) -> Tally:
        """Returns the sum of both rows."""
        return Tally(*map(operator.add, self, other))

    def minus(self, other: Tally) -> Tally:
        """Returns the counts since an earlier state of the row."""
        return Tally(*map(operator.sub, self, other))


class Recent(NamedTuple):
    """A player's decayed counts against an opponent, over both sides; each game has a score from 0 to 1."""

    score: float = 0.0
    games: float = 0.0

    def plus(self, score: float) -> Recent:
        """Returns the counts after one more match, with older matches weighted by DECAY."""
        return Recent(DECAY * self.score + score, DECAY * self.games + 1.0)


@dataclasses.dataclass(frozen=True)
class Payoff:
    """All results so far. `recent` counts rated matches between two players, by player and opponent.

    before: rows of players that were reset, as they were at that time. spread: the smallest and the largest return in
    these matches, if returns are scores.
    """

    rows: Mapping[Key, Tally] = dataclasses.field(default_factory=dict)
    recent: Mapping[tuple[str, str], Recent] = dataclasses.field(default_factory=dict)
    before: Mapping[Key, Tally] = dataclasses.field(default_factory=dict)
    spread: tuple[float, float] | None = None

    @property
    def sums_to_zero(self) -> bool:
        """Whether the returns of both sides sum to zero in every row."""
        return all(row.total + self.rows[_other(key)].total == 0 for key, row in self.rows.items())

    def num_matches(self) -> dict[str, int]:
        """Returns the number of matches of each type."""
        games = {name: sum(row.games for key, row in self.rows.items() if key.type == name) // 2 for name in TYPES}
        return {name: number for name, number in games.items() if number or name != members.SCRIPTED}

    def win_rate(self, player: str, opponent: str) -> float:
        """Returns the decayed win rate, or mean score, for matchmaking, with a prior of one match worth a half."""
        recent = self.recent.get((player, opponent), Recent())
        return (recent.score + 0.5) / (recent.games + 1.0)

    def since_reset(self, player: str, opponent: str) -> Tally:
        """Returns a player's counts in rated matches with an opponent since either was reset, over both sides."""
        found = Tally()
        for kind, side in itertools.product(BETWEEN, (0, 1)):
            key = Key(kind, player, opponent, side)
            found = found.plus(self.rows.get(key, Tally())).minus(self.before.get(key, Tally()))
        return found

    def reset(self, player: str) -> Payoff:
        """Returns the results after a player got other parameters: counts are kept, and win rates begin again."""
        before = {key: row for key, row in self.rows.items() if player in (key.player, key.opponent)}
        recent = {pair: counts for pair, counts in self.recent.items() if player not in pair}
        return dataclasses.replace(self, recent=recent, before={**self.before, **before})

    def pairs(self, types: Iterable[str] = BETWEEN) -> dict[tuple[str, str], Tally]:
        """Returns the counts of each pair over both sides, for the player whose name comes first."""
        return {pair: row for pair, row in self._by_pair(types).items() if pair[0] < pair[1]}

    def mean_returns(self) -> dict[tuple[str, str], float]:
        """Returns each player's mean return against each other player, over all training matches between them."""
        return {pair: row.mean_return for pair, row in self._by_pair(BETWEEN).items()}

    def _by_pair(self, types: Iterable[str]) -> dict[tuple[str, str], Tally]:
        """Returns the counts over both sides, by player and opponent."""
        chosen, found = set(types), dict[tuple[str, str], Tally]()
        for key in sorted(self.rows):
            if key.type in chosen:
                pair = (key.player, key.opponent)
                found[pair] = found.get(pair, Tally()).plus(self.rows[key])
        return found

    def table(self) -> list[dict[str, Any]]:
        """Returns the rows in a form for users, sorted by type, player, opponent and side."""
        return [
            {
                "type": key.type,
                "player": key.player,
                "opponent": key.opponent,
                "side": opponents.SIDES[key.side],
                "games": row.games,
                "wins": row.wins,
                "draws": row.draws,
                "losses": row.losses,
                "mean_return": row.mean_return,
            }
            for key, row in sorted(self.rows.items(), key=lambda item: (TYPES.index(item[0].type), item[0]))
        ]

    def to_json(self) -> dict[str, Any]:
        """Returns the payoff in the form of a checkpoint; equal payoffs give equal texts."""
        recent = [[*pair, *counts] for pair, counts in sorted(self.recent.items())]
        found: dict[str, Any] = {"rows": _listed(self.rows), "recent": recent}
        found |= {"before": _listed(self.before)} if self.before else {}
        return found | ({"spread": list(self.spread)} if self.spread else {})

    @classmethod
    def from_json(cls, values: Any) -> Payoff:
        """Returns the payoff in a checkpoint. Raises ValueError if it is damaged."""
        if not isinstance(values, dict) or values.keys() - {"before", "spread"} != {"rows", "recent"}:
            raise ValueError(f"payoff is {_shown(values)}; expected an object of rows and recent")
        rows = dict(_row(row) for row in _list("rows", values["rows"]))
        recent = dict(_recent(row) for row in _list("recent", values["recent"]))
        before = dict(_row(row) for row in _list("before", values.get("before", [])))
        for key, row in rows.items():
            seen = rows.get(other := _other(key), Tally())
            if (row.wins, row.draws, row.losses) != (seen.losses, seen.draws, seen.wins):
                raise ValueError(
                    f"payoff: the row of {tuple(key)} is {row}, of {tuple(other)} {rows.get(other)}; expected equal "
                    "games, and wins as losses"
                )
        for key, row in before.items():
            least = rows.get(key, Tally()).minus(row)
            if min(least.wins, least.draws, least.losses) < 0:
                raise ValueError(f"payoff: the row of {tuple(key)} was {row} at a reset, and is {rows.get(key)} now")
        if (len(rows), len(recent)) != (len(values["rows"]), len(values["recent"])):
            raise ValueError("payoff: a row occurs twice; expected each once")
        return cls(rows, recent, before, _spread(values["spread"]) if "spread" in values else None)


def type_of(home: members.Member, opponent: members.Member) -> str:
    """Returns the type of a training match."""
    if home.name == opponent.name:
        return SELF_PLAY
    if opponent.kind == members.SCRIPTED:
        return members.SCRIPTED
    if home.line != members.MAIN:
        return home.line
    if opponent.line != members.MAIN:
        return EXPLOITERS
    return MAINS if opponent.learns else PAST


def record(payoff: Payoff, matches: Sequence[Match], *, by_return: bool = False) -> Payoff:
    """Returns the payoff after finished matches, recorded in their order.

    by_return: whether a match's score for matchmaking is the player's return, scaled so that the smallest one so far,
    including this match, is 0 and the largest 1 (a half if all are equal). Otherwise a win is 1 and a draw a half.
    """
    rows, recent, spread = dict(payoff.rows), dict(payoff.recent), payoff.spread
    for match in matches:
        _check(match)
        if by_return and match.type in BETWEEN:
            sums = (match.total, match.mirrored.total, *(spread or ()))
            spread = min(sums), max(sums)
        for seen in (match, match.mirrored):
            key = Key(seen.type, seen.player, seen.opponent, seen.side)
            counts = (int(seen.outcome == WIN), int(seen.outcome == DRAW), int(seen.outcome == LOSS))
            rows[key] = rows.get(key, Tally()).plus(Tally(*counts, seen.total))
            if seen.type in BETWEEN:
                pair = (seen.player, seen.opponent)
                score = _share(seen.total, *spread) if by_return and spread else (1 + seen.outcome) / 2
                recent[pair] = recent.get(pair, Recent()).plus(score)
    return dataclasses.replace(payoff, rows=rows, recent=recent, spread=spread)


def evaluated(results: Iterable[tuple[str, float]]) -> list[Match]:
    """Returns the main player's matches in an evaluation.

    results: task and return of each episode; tasks that name no opponent are ignored.
    """
    found = []
    for task, total in results:
        opponent, side = opponents.of_task(task)
        if opponent:
            found.append(Match(EVALUATION, members.MAIN, opponent, side, (total > 0) - (total < 0), total))
    return found


def wilson(score: float, games: int) -> tuple[float, float]:
    """Returns Wilson's interval of 95 % of a win rate (Wilson 1927), or (0, 1) without games.

    A draw counts as half a win. Its variance is less than that of a win or a loss, so the interval is wide enough.
    """
    if not games:
        return 0.0, 1.0
    rate, share = score / games, _Z * _Z / games
    middle = (rate + share / 2) / (1 + share)
    half = _Z / (1 + share) * math.sqrt(rate * (1 - rate) / games + share / (4 * games))
    return max(0.0, middle - half), min(1.0, middle + half)


def _check(match: Match) -> None:
    if match.type not in TYPES or match.side not in (0, 1) or match.outcome not in (WIN, DRAW, LOSS):
        raise ValueError(f"match {match}: expected a type of {', '.join(TYPES)}, side 0 or 1, outcome -1, 0 or 1")
    if (match.type == SELF_PLAY) is not (match.player == match.opponent):
        raise ValueError(f"match {match}: expected one player in {SELF_PLAY}, and two elsewhere")


def _share(total: float, low: float, high: float) -> float:
    """Scales a return to [0, 1] between the smallest and the largest one."""
    return (total - low) / (high - low) if high > low else 0.5


def _other(key: Key) -> Key:
    """Returns the key of the other side's row."""
    return Key(key.type, key.opponent, key.player, 1 - key.side)


def _listed(rows: Mapping[Key, Tally]) -> list[list[Any]]:
    return [[*key, *row] for key, row in sorted(rows.items())]


def _row(values: Any) -> tuple[Key, Tally]:
    if isinstance(values, list) and len(values) == 8:
        *key, wins, draws, losses, total = values
        kinds = (key[0] in TYPES, _is_name(key[1]), _is_name(key[2]), members.is_count(key[3]) and key[3] < 2)
        if all(kinds) and all(map(members.is_count, (wins, draws, losses))) and _is_number(total):
            return Key(*key), Tally(wins, draws, losses, float(total))
    raise ValueError(
        f"payoff: a row is {_shown(values)}; expected type, player, opponent, side, wins, draws, losses and the sum "
        "of returns"
    )


def _recent(values: Any) -> tuple[tuple[str, str], Recent]:
    if isinstance(values, list) and len(values) == 4:
        player, opponent, score, games = values
        if _is_name(player) and _is_name(opponent) and _is_number(score) and _is_number(games) and 0 <= score <= games:
            return (player, opponent), Recent(float(score), float(games))
    raise ValueError(f"payoff: recent is {_shown(values)}; expected player, opponent, score and games")


def _spread(values: Any) -> tuple[float, float]:
    if isinstance(values, list) and len(values) == 2 and all(map(_is_number, values)) and values[0] <= values[1]:
        return float(values[0]), float(values[1])
    raise ValueError(f"payoff: spread is {_shown(values)}; expected the smallest and the largest return")


def _list(name: str, values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise ValueError(f"payoff: {name} is {_shown(values)}; expected a list")
    return values


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _shown(value: Any) -> str:
    return repr(value)[:100]
