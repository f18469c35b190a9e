"""Carries out the decisions of a league's builder: players are added, saved as snapshots, reset and retired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from seedzero.agents import base
from seedzero.config import configs
from seedzero.core import errors
from seedzero.device import states
from seedzero.league import builders, members
from seedzero.learner.league_play import league_seating
from seedzero.learner.loop import device_loop, dispatchers, places, players

Make: TypeAlias = Callable[[str, int, places.Place], players.Player]
"""Maps (name, number, place) to a new learning player, which is not at home in any group yet."""


class Building:
    """Runs a league's builder after every Nth update, counted over all players; used by the loop's thread.

    It does nothing for `past`, which follows training steps instead (`Seating.freezes`), for `self_play`, which has no
    rules, and without a league.
    """

    def __init__(
        self, config: configs.Config, dispatcher: dispatchers.Dispatcher, hooks: device_loop.Hooks, make: Make
    ) -> None:
        """make: makes the players that a builder adds. Raises ConfigError for an unknown builder."""
        self._settings, self._seed, self._make = config.league, config.run.seed, make
        self._dispatcher, self._hooks = dispatcher, hooks
        is_idle = not config.league.on or config.league.builder in ("past", "self_play")
        self._builder = None if is_idle else builders.load(config.league.builder)

    def after_update(self) -> None:
        """Carries out decisions if they are due. Raises BuilderError if a user's builder fails."""
        learning, seating, every = self._dispatcher.players, self._dispatcher.seating, self._settings.build_every
        num_updates = self._dispatcher.everyone.num_updates
        if self._builder is None or not isinstance(seating, league_seating.LeagueSeating) or num_updates % every:
            return
        counts = {player.name: self._learned(player) for player in learning}
        actions = builders.run(
            self._builder,
            seating.members,
            seating.payoff,
            counts,
            self._settings.arguments(),
            builders.key_of(self._seed, num_updates // every),
            name=self._settings.builder,
        )
        unsaved = set[str]()  # not reset nor replaced: their newest parameters exist nowhere else
        for action in actions:
            if action.kind == builders.ADD:  # names a kind
                is_lost = bool(unsaved) and not seating.members.has_room
            else:  # one that was not added has no name
                is_lost = action.player in unsaved or all(one.name != action.player for one in seating.members.members)
            if not is_lost and not self._carry_out(action, seating):
                unsaved.add(action.player)

    def _learned(self, player: players.Player) -> builders.Learned:
        counts = player.counts

        def judge() -> float:
            found = self._hooks.judge(player.copy_params())
            self._hooks.note({"event": "judged", "player": player.name, "nash_conv": found, **counts})
            self._hooks.report(f"league: player {player.name} has a NashConv of {found:.4g}")
            return found

        return builders.Learned(player.num_updates, player.env_steps, judge)

    def _carry_out(self, action: builders.Action, seating: league_seating.LeagueSeating) -> bool:
        """Carries out an action and returns whether that worked; with a full disk there is no snapshot."""
        home = {player.name: number for number, player in enumerate(self._dispatcher.players)}.get(action.player, -1)
        player = self._dispatcher.players[home]
        decision: dict[str, Any] = {"event": action.kind, "player": action.player}
        counts = player.counts  # before a retirement or reset discards steps
        if action.kind == builders.FREEZE:
            return dispatchers.freeze(seating, home, player, self._hooks.freeze, action.reason)
        if action.kind == builders.ADD:
            source = action.source or members.INITIAL
            decision |= {"player": self._add(action, source, seating), "source": source}
        elif action.kind == builders.RETIRE and home >= 0:
            if not self._end(player, action.reason, seating):
                return False
            decision |= counts
        elif action.kind == builders.RETIRE:
            seating.change(seating.members.retire(action.player), seating.payoff)
        elif action.kind == builders.MEET:
            seating.change(seating.members.meet(action.player, action.source), seating.payoff)
            decision["source"] = action.source
        else:
            reset(player, seating, action.source, action.reason)
            decision |= {"source": action.source, **counts}
        self._hooks.note({**decision, "reason": action.reason})
        return True

    def _add(self, action: builders.Action, source: str, seating: league_seating.LeagueSeating) -> str:
        """Begins a learning player in the place with the fewest players, and returns its name."""
        pool, member = members.add(seating.members, action.player, source=source, reason=action.reason)
        learning = self._dispatcher.players
        place = min(self._dispatcher.places, key=lambda place: sum(player.place is place for player in learning))
        player = self._make(member.name, member.number, place)
        player.train = begun(player, player.train, seating, source)
        player.publish()
        seating.visitors.welcome(player, self._dispatcher.places)
        self._seat(seating, pool, (*learning, player))
        return member.name

    def _end(self, player: players.Player, reason: str, seating: league_seating.LeagueSeating) -> bool:
        """Turns a learning player into a frozen one; returns whether it could be saved."""
        snapshot, counts = players.snapshot(player), player.counts
        digits = seating.digits(seating.members.num_frozen)
        pool, member = seating.members.freeze(player.name, digits, **counts, reason=reason)
        last = dispatchers.NewPlayer(member.name, player.name, **counts, snapshot=snapshot, reason=reason)
        if not self._hooks.freeze(last):
            return False
        seating.pool.add(member.name, snapshot, player.place.number)
        others = tuple(one for one in self._dispatcher.players if one is not player)
        self._seat(seating, pool.retire(player.name, reason), others)
        seating.visitors.forget(player.name)
        return True

    def _seat(
        self, seating: league_seating.LeagueSeating, pool: members.Pool, learning: tuple[players.Player, ...]
    ) -> None:
        """Changes which players learn, each in its own groups."""
        seating.homes.where = {pool.of(player.name).number: player.place.number for player in learning}
        seating.change(pool, seating.payoff, live={player.name: player for player in learning})
        dispatchers.set_players(self._dispatcher, learning, seating.homes.mine())


def begun(
    player: players.Player,
    train: base.TrainState,
    seating: league_seating.LeagueSeating,
    source: str,
) -> base.TrainState:
    """Returns a player's initial train state with the parameters of a source.

    source: INITIAL keeps `train`; otherwise the player whose parameters it takes, with the statistics that these
    depend on. Raises CheckpointError if they are lost.
    """
    setup = player.place.setup
    if source == members.INITIAL:
        return train
    if seating.params(source, player.place) is None:
        raise errors.CheckpointError(
            f"player {player.name} cannot begin as {source}: the parameters of {source} are lost; run the same "
            f"command again: the league continues from the last checkpoint without {source}"
        )
    live = seating.live.get(source)
    given = seating.pool.get(source, player.place.number) if live is None else players.snapshot(live)
    return states.with_snapshot(setup, train, given)


def reset(
    player: players.Player,
    seating: league_seating.LeagueSeating,
    source: str,
    reason: str,
) -> None:
    """Gives a learning player other parameters and a new optimizer.

    Its rows are deleted and its matches cancelled. Its counts continue, because random numbers and the versions of
    stored rows depend on them.

    source: as in `begun`.
    """
    train = begun(player, player.place.make_train(np.int32(player.seed)), seating, source)
    player.train = train._replace(num_updates=player.train.num_updates)
    player.place.forget(player.mine)
    player.accounting.restart(player.num_updates)
    player.publish()
    pool = seating.members.reset(player.name, source=source, reason=reason, **player.counts)
    seating.change(pool, seating.payoff.reset(player.name), void=player.name)
