"""Reads the league of a run, with its players, matches and ratings, from the newest whole checkpoint."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from seedzero.acting.actors import agent_choice
from seedzero.api import figures
from seedzero.config import configs, league_config
from seedzero.core import errors, opponents
from seedzero.league import elo, matchmaking, members, payoffs
from seedzero.monitoring.metrics import counts
from seedzero.storage.checkpoints import run_dirs, saved_files
from seedzero.transport import security


class SavedLeague(NamedTuple):
    """The league in a checkpoint. update, env_steps: counters of the checkpoint.

    active: opponents being drawn, by player.
    """

    update: int
    env_steps: int
    settings: league_config.LeagueConfig
    pool: members.Pool
    payoff: payoffs.Payoff
    active: Mapping[str, tuple[str, ...]]
    num_void: int
    # of each learning player; {} if they all share them
    devices: Mapping[str, tuple[int, ...]] = types.MappingProxyType({})

    def opponents(self, player: str = members.MAIN) -> list[dict[str, Any]]:
        """Returns a learning player's opponents, itself included, with their shares of coming draws."""
        shares = matchmaking.chances(self.payoff, self.pool, player, self.settings)
        return [
            {
                "opponent": name,
                "active": self.active.get(player, ()).count(name),
                "share": share,
                "recent_win_rate": None if name == player else self.payoff.win_rate(player, name),
            }
            for name, share in shares.items()
        ]

    def ratings(self) -> tuple[dict[str, float], dict[str, int]]:
        """Returns Elo ratings and numbers of games by player; the oldest rated frozen player has 0 points."""
        pairs = self.payoff.pairs()
        found = elo.fit(pairs, {members.MAIN: 0.0})
        zero = next((found[name] for name in self.pool.frozen if name in found), 0.0)
        return {name: rating - zero for name, rating in found.items()}, _num_games(pairs, found)

    def rated(self, anchors: Mapping[str, float]) -> tuple[dict[str, elo.Rating], dict[str, int]]:
        """Returns Elo ratings with their errors by player, where anchors keep their ratings, and games by player.

        With anchors, evaluations count as well, because `main` plays opponents there that never change, without noise.
        With {}, the oldest rated frozen player, or else `main`, is the anchor with 0 points.
        """
        kinds = (*payoffs.BETWEEN, payoffs.EVALUATION) if anchors else payoffs.BETWEEN
        pairs = self.payoff.pairs(kinds)
        met = {name for pair in pairs for name in pair}
        if unknown := sorted(anchors.keys() - met):
            raise errors.UsageError(
                f"--anchors: player {unknown[0]} has played no match here; it may be one of {', '.join(sorted(met))}"
            )
        zero = next((name for name in self.pool.frozen if name in met), members.MAIN)
        found = elo.rate(pairs, anchors or {zero: 0.0})
        return found, _num_games(pairs, found)

    def win_rates(self, names: Sequence[str] | None = None) -> figures.WinRates:
        """Returns win rates and mean returns between players over all matches of training.

        names: the players; None for all.
        """
        names = [member.name for member in self.pool.members] if names is None else names
        place = {name: index for index, name in enumerate(names)}
        rates: list[list[float | None]] = [[None] * len(names) for _ in names]
        games, means = [[0] * len(names) for _ in names], self.payoff.mean_returns()
        returns = [[means.get((one, other)) for other in names] for one in names]
        for pair, row in self.payoff.pairs().items():
            if row.games and place.keys() >= {*pair}:
                one, other = (place[name] for name in pair)
                games[one][other] = games[other][one] = row.games
                rates[one][other] = row.score / row.games
                rates[other][one] = (row.games - row.score) / row.games
        return figures.WinRates(names, rates, games, returns)

    def lineage(self) -> list[dict[str, Any]]:
        """Returns the learning players with their snapshots and resets."""
        return members.lineage_tree(self.pool)

    def to_json(self) -> dict[str, Any]:
        """Returns everything that the checkpoint has of the league except its history."""
        ratings, games = self.ratings()
        return {
            "update": self.update,
            "env_steps": self.env_steps,
            "settings": dataclasses.asdict(self.settings),
            "players": [member.to_json() for member in self.pool.members],
            "lineage": self.lineage(),
            "active": {name: list(opponents) for name, opponents in self.active.items()},
            "opponents": {name: self.opponents(name) for name in self.pool.learning},
            "payoff": self.payoff.table(),
            "types": self.payoff.num_matches(),
            "void": self.num_void,
            "win_rates": self.win_rates()._asdict(),
            "ratings": ratings,
            "games": games,
        }


def _num_games(pairs: Mapping[tuple[str, str], payoffs.Tally], names: Iterable[str]) -> dict[str, int]:
    games = dict.fromkeys(names, 0)
    for pair, row in pairs.items():
        for name in games.keys() & pair:
            games[name] += row.games
    return games


def has_league(config: configs.Config) -> bool:
    """Returns whether a run has a league."""
    return "league" in config.agent.SECTIONS and config.league.on


def read(path: pathlib.Path, place: str, step: saved_files.Step = "last") -> SavedLeague:
    """Reads the league of a run directory from the newest checkpoint with whole parameters, without writing a file.

    place: the run's name in messages. step: another checkpoint to read. Raises UsageError for a run without a league,
    and CheckpointError if the checkpoint is missing or damaged.
    """
    settings = run_dirs.read_saved(path).config
    if not has_league(settings):
        raise errors.UsageError(
            f"{place} has no league: only one player plays its games; `./run_local.sh league`, or `seedzero "
            "train --preset=league-tictactoe`, trains a run that has one"
        )
    if not saved_files.finished(path / "checkpoints" / saved_files.STEPS):
        raise errors.CheckpointError(
            f"{place} has no checkpoint yet, and its league is read from there; wait for the first one "
            f"(--checkpoint.every_seconds={settings.checkpoint.every_seconds:g}), or resume the run"
        )
    _, found, _ = saved_files.find(path / "checkpoints", step, "params")
    try:
        return _parse(found.counters, settings.league)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise errors.CheckpointError(
            f"the league in checkpoint {found.step} of {place} cannot be read ({error!r}); read it with the "
            "version of seedzero that saved it, or move that checkpoint elsewhere to take an earlier one"
        ) from error


def play(
    choice: agent_choice.AgentChoice,
    place: str,
    players: tuple[str, str],
    num_games: int,
    access: security.Access = security.PLAIN,
) -> dict[str, Any]:
    """Plays games between two players of a run's league, without noise and from both sides; returns the statistics.

    Args:
      players: names of the two. A learning player plays with its newest checkpoint. They may also be opponents as of
        `opponents.parse`, or addresses of policy servers.
      choice: its seed decides the random openings, one for each pair of games, or chance and the drawn moves of
        players of seats.
      access: how to reach the policy servers.

    Raises as `read`, and UsageError for any other name.
    """
    is_guest = {name: opponents.is_known(name) or opponents.is_address(name) for name in players}
    needs_league = any(name != members.MAIN and not is_guest[name] for name in players)
    pool = read(choice.path, place).pool if needs_league else members.Pool()
    try:
        kinds = ["" if is_guest[name] else pool.of(name).kind for name in players]
    except ValueError as error:
        raise errors.UsageError(f"{place}: {error}; `seedzero league show` lists them") from None
    if members.SCRIPTED in kinds:
        raise errors.UsageError(
            f"{place}: player {players[kinds.index(members.SCRIPTED)]} is a scripted member without parameters; "
            "`seedzero league payoff` has its results"
        )
    from seedzero.acting.actors import remote_players
    from seedzero.acting.tables import scoring  # JAX

    names = [
        remote_players.Served(name, access) if opponents.is_address(name) else None if name == members.MAIN else name
        for name in players
    ]
    found = scoring.against_each_other(choice, names, num_games)
    score, games = found["wins"] + 0.5 * found["draws"], found["episodes"]
    low, high = payoffs.wilson(score, games)
    counted = ("wins", "draws", "losses", "first", "second")
    rest = {
        name: found[name] for name in (*counted, "mean_return", "stderr_return", "versions", "policy") if name in found
    }
    return {"players": list(players), "games": games, "score": score / games, "low": low, "high": high, **rest}


def _parse(counters: Mapping[str, Any], settings: league_config.LeagueConfig) -> SavedLeague:
    saved, update = counters["league"], int(counters["num_updates"])
    env_steps = counts.Counts(**counters["ledger"]).env_steps
    pool = members.Pool.from_json(saved["pool"])
    for member in pool.members:
        if member.learns:
            # each learning player's own, if there are several
            own = counters.get("players", {}).get(member.name, counters)
            totals = dict(version=int(own["num_updates"]), env_steps=int(own["ledger"]["stored"]))
            pool = pool.trained(member.name, **totals)
    payoff = payoffs.Payoff.from_json(saved["payoff"])
    homes = saved.get("homes", [{"name": members.MAIN, "active": saved["active"]}])
    active = {home["name"]: tuple(home["active"]) for home in homes}
    devices, numbers = dict[str, tuple[int, ...]](), itertools.accumulate((0, *counters.get("places", ())))
    each = counters.get("players", {members.MAIN: counters})  # a single player's counters are the run's
    for place, (first, end) in enumerate(itertools.pairwise(numbers)):
        here = [name for name, own in each.items() if own["place"] == place]
        devices |= dict.fromkeys(here, tuple(range(first, end)))
    return SavedLeague(update, env_steps, settings, pool, payoff, active, int(saved["num_void"]), devices)
