"""Seats players in a league: learning players meet themselves, each other, their past, and scripted members.

A match is a whole game in one slot, a game of two seats, in which the home has the first row, or an episode of agents
on two sides, of which the home has one.
"""

from __future__ import annotations

import functools
import secrets
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from seedzero.agents import base
from seedzero.config import configs, league_rules
from seedzero.core import errors, opponents, types, user_code
from seedzero.device import apart, batches, meshes, setups, states
from seedzero.league import matches, matchmaking, members, payoffs
from seedzero.learner.league_play import league_draws, snapshot_pools
from seedzero.learner.loop import places, players, rosters, seatings

# Keeps who meets whom: the matches in progress, and the opponent in each game.
_SELF = -1
"""Takes the place of an opponent's number if the home plays against itself."""
_LOST = -2
"""Takes the place of an opponent's number if the match is cancelled; the home then makes all moves until it ends."""


class Mover(NamedTuple):
    """The rows of a batch that a player moves."""

    mine: np.ndarray  # [B] bool
    opponent: str  # its name; "" for the home, also in the place of a lost opponent
    is_home: bool  # whether the home moves for itself


class Meetings:
    """The matches in progress by their games' slots [S]."""

    def __init__(self, boards: matches.Boards, report: Callable[[str], None]) -> None:
        """boards: without matches. report: shows the user a message."""
        self._boards, self._report = boards, report
        self._opponent = np.full(len(boards.number), _SELF)  # index in `_names` of each game's opponent
        self._names: list[str] = []

    def follow(self, joined: batches.Batch) -> matches.Moves:
        """Follows the matches through a batch, and returns what its rows mean."""
        summed_to_zero = self._boards.sums_to_zero
        self._boards, moves = self._boards.advance(
            joined.slot,
            reward=joined.reward,
            first=joined.first,
            terminated=joined.terminated,
            truncated=joined.truncated,
            game=joined.game,
            chair=joined.task,
        )
        if summed_to_zero and not self._boards.sums_to_zero:
            self._report("league: returns of this game do not sum to zero; the own return of each side counts")
        return moves

    def begin(self, game: int) -> None:
        """Begins a match of the home against itself."""
        self._opponent[game] = _SELF

    def join(self, game: int, opponent: str) -> None:
        """Makes another player the home's opponent in a match that begins."""
        if opponent not in self._names:
            self._names.append(opponent)
        self._opponent[game] = self._names.index(opponent)

    def opponent(self, game: int) -> str:
        """Returns the opponent in a game, or "" if the home plays against itself."""
        place = self._opponent[game]
        return "" if place == _SELF else self._names[place]

    def movers(self, joined: batches.Batch, moves: matches.Moves) -> Iterator[Mover]:
        """Yields the movers of a batch, the home first."""
        movers = np.where(moves.home, _SELF, self._opponent[joined.game])
        for place in sorted(set(movers.tolist())):
            yield Mover(movers == place, self._names[place] if place >= 0 else "", place == _SELF)

    def lose(self, slots: np.ndarray, *, goes_on: bool) -> int:
        """Cancels the matches in slots [B] and returns their number. goes_on: as in `matches.Boards.lose`."""
        self._boards, num_void = self._boards.lose(slots, goes_on=goes_on)
        return num_void

    def free(self, name: str) -> np.ndarray:
        """Removes a player as opponent and returns the slots of games that had it."""
        number = self._names.index(name) if name in self._names else len(self._names)
        slots = np.flatnonzero(self._opponent == number)
        self._opponent[slots] = _LOST
        return slots


# Copies the acting parameters of learning players to other places for matches there.
class _Visitor(NamedTuple):
    """A copy, and a weak reference to a leaf of its source, which returns None once that is deleted."""

    params: base.Params
    source: Any


class Visitors:
    """The newest copies that are ready, so that no match waits for an update in another place.

    In lock step, copies are always of the newest published parameters, and calls wait for these. Used by the loop's
    thread.
    """

    def __init__(self, *, lock_step: bool) -> None:
        self._lock_step = lock_step
        self._copies: dict[tuple[str, int], _Visitor] = {}

    def welcome(self, player: players.Player, here: Sequence[places.Place]) -> None:
        """Makes the first copies of a player before its updates begin. here: all places of the run."""
        for place in here:
            self.params(player, place)

    def params(self, player: players.Player, place: places.Place) -> base.Params:
        """Returns a player's published parameters on a place's devices.

        Only the first copy may have to be waited for.
        """
        if player.place is place:
            return player.params
        newest = jax.tree.leaves(player.params)[0]
        found = self._copies.get((player.name, place.number))
        is_old = found is None or found.source() is not newest
        if found is None or (is_old and (self._lock_step or apart.is_there(player.params))):
            copied = jax.device_put(player.params, meshes.replicated(place.setup.mesh))
            found = self._copies[player.name, place.number] = _Visitor(copied, weakref.ref(newest))
        return found.params

    def forget(self, name: str) -> None:
        """Drops the copies of a retired player."""
        self._copies = {key: copy for key, copy in self._copies.items() if key[0] != name}


# Makes the moves of a league's scripted members: uniformly random ones, and those of bots that workers play.
_MOVES = 8
"""Second number of the random keys for moves."""


class Scripts:
    """Returns the hands of scripted members. Random moves depend on the seed, the slot, and its earlier such moves."""

    def __init__(self, bots: Sequence[str], seed: int, num_slots: int, num_actions: int) -> None:
        """bots: names of the members that workers play, in the order of `types.Assignment.bots`."""
        self._numbers = {name: number for number, name in enumerate(bots, 1)}
        self._seed, self._num_actions = seed, num_actions
        self._num_moves = np.zeros(num_slots, np.int64)
        self._epoch = 0

    def reset(self, epoch: int) -> None:
        """Begins again, because all environments do. epoch: a different number each time."""
        self._num_moves[:], self._epoch = 0, epoch

    def hand(self, name: str, joined: batches.Batch, mine: np.ndarray) -> seatings.Hand:
        """Returns a member's hand for rows of a home's messages. mine: [N] bool."""
        if name != opponents.RANDOM:
            return seatings.Hand(mine, bot=self._numbers[name])
        slots, masks = joined.slot[mine], joined.action_mask
        legal = np.ones((len(slots), self._num_actions), bool) if masks is None else masks[mine]
        keys = ((self._seed, _MOVES, slot, self._epoch, int(self._num_moves[slot])) for slot in slots.tolist())
        drawn = [matchmaking.uniform(*key)[0] for key in keys]
        self._num_moves[slots] += 1
        return seatings.Hand(mine, given=uniform(legal, np.array(drawn)))


def uniform(legal: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Returns uniformly random legal actions [B] int32.

    legal: [B, A] bool, with at least one true value in each row. drawn: [B], random numbers in [0, 1).
    """
    ranks = (drawn * legal.sum(axis=1)).astype(np.int64)
    found: np.ndarray = np.argmax(np.cumsum(legal, axis=1) > ranks[:, np.newaxis], axis=1)
    return found.astype(np.int32)


class LeagueSeating(seatings.Seating):
    """A league of matches between two players in turn, in which the player at home learns.

    A group has a home and one opponent at a time: a frozen player, a scripted member, or another learning player,
    which moves with its acting parameters. Each of its slots takes a new opponent with its next match, so for the
    length of a match a group may have two. Against scripted members alone each slot has an opponent of its own.
    """

    def __init__(
        self,
        config: configs.Config,
        spec: types.EnvSpec,
        num_slots: int,
        pool: snapshot_pools.ParamsPool,
        digits: Callable[[int], str],
        report: Callable[[str], None],
        *,
        knows_bots: Callable[[int], bool] = lambda slot: True,
        places: np.ndarray | None = None,
    ) -> None:
        """Seats the players of a new run.

        Args:
          digits: returns the hexadecimal digits in the name of the Nth snapshot.
          report: shows the user a message.
          knows_bots: whether the worker of a slot can play bots.
          places: [S] as in `setups.places_table`; None for a single place.
        """
        self._has_seats, self._knows_bots = bool(spec.seats), knows_bots
        self.sides = league_rules.sides(config, spec)
        num_rows = num_slots + config.evaluation.num_envs  # the slots of evaluations follow the others
        self._scripts = Scripts(config.league.bots, config.run.seed, num_rows, spec.num_actions)
        self.random_hand = functools.partial(self._scripts.hand, opponents.RANDOM)
        self._settings = config.league
        self.pool, self.digits, self._report = pool, digits, report
        self.members = members.initial_pool(config.league)
        self.payoff = payoffs.Payoff()
        self.live: Mapping[str, players.Player] = {}  # the learning players by name, set once they exist
        self.visitors = Visitors(lock_step=config.run.deterministic)
        self.homes = league_draws.GroupHomes(num_slots, config.worker.envs_per_group, self.members, places)
        self._draws = league_draws.Draws(config.league, config.run.seed, self.members, self.homes.table)
        self._num_void = 0
        # Training steps at the newest snapshot, even if that was rejected or lost
        self._frozen_at = dict.fromkeys(self.members.learning, 0)
        self._draws.redraw(self.payoff, self.members)
        self.reset()

    def home(self, slots: np.ndarray) -> int:
        return int(self.homes.table[slots[0]])

    def reset(self) -> None:
        zero = self.payoff.sums_to_zero
        size = len(self.homes.table)
        boards = matches.Boards.empty(size, has_seats=self._has_seats, sums_to_zero=zero, sides=self.sides)
        self._meetings = Meetings(boards, self._report)
        self._draws.reset()
        self._scripts.reset(sum(home.num_matches for home in self._draws.homes))

    # ------------------------------------------------------------------------------------ matches

    def deal(self, joined: batches.Batch, at: int) -> Sequence[seatings.Hand]:
        home = self._draws.homes[at].name
        where = self.live[home].place if home in self.live else None
        moves, in_order = self._meetings.follow(joined), np.argsort(joined.slot)
        self._num_void += int(np.count_nonzero(moves.void))
        ended = []
        for row in in_order[moves.ended[in_order]].tolist():
            opponent = self._meetings.opponent(joined.game[row]) or home
            ended.append(_match(self.members, moves, row, home, opponent))
        self.count(ended)

        def can_meet(group: int, name: str) -> bool:
            return name not in self._settings.bots or self._knows_bots(group)

        for row in in_order[moves.begins[in_order]].tolist():
            game, group = int(joined.game[row]), int(joined.group[row])
            name = self._draws.next(
                game, group, joined.game[joined.group == group], functools.partial(can_meet, group)
            )
            self._meetings.begin(game)
            if name != home and (opponents.is_member(name) or self.params(name, where) is not None):
                self._meetings.join(game, name)
        hands = []
        for mine, name, is_home in self._meetings.movers(joined, moves):
            if opponents.is_member(name):
                hand = self._scripts.hand(name, joined, mine)
            else:
                params = self.params(name, where) if name else None
                mode = types.EXPLORE if params is None else types.MODES[self._settings.opponents]
                hand = seatings.Hand(mine, params, mode)
            hands.append(hand._replace(stored=is_home or not self._has_seats))
        return hands if len(hands) > 1 else [hands[0]._replace(mine=None)]

    def count(self, ended: Sequence[payoffs.Match]) -> None:
        """Counts finished matches in their order, and draws opponents that are due."""
        if ended:
            self.payoff = payoffs.record(self.payoff, ended, by_return=self._settings.score == "return")
            if due := self._draws.count(ended):
                self._draws.redraw(self.payoff, self.members, due)

    def params(self, name: str, where: places.Place | None = None) -> base.Params | None:
        """Returns an opponent's parameters on the devices of a place, or None if they are lost.

        In that case the league continues without this player: its matches in progress are cancelled, and the home
        makes all moves until they end. where: None for the first place.
        """
        if name in self.live:
            player = self.live[name]
            return self.visitors.params(player, where or player.place)
        try:
            if name in self.members.frozen:
                return self.pool.get(name, where.number if where else 0).params
        except errors.CheckpointError as error:
            self._report(f"the league continues without player {name}: {error}")
            self.remove(name)
        return None

    def lose(self, slots: np.ndarray, *, goes_on: bool = False) -> None:
        """Cancels the matches in these slots.

        goes_on: whether their games are played until they end, before new matches begin.
        """
        self._num_void += self._meetings.lose(slots, goes_on=goes_on)
        self._draws.release(slots)

    # ------------------------------------------------------------------------------------ players

    def change(
        self,
        pool: members.Pool,
        payoff: payoffs.Payoff,
        *,
        void: str = "",
        live: Mapping[str, players.Player] | None = None,
    ) -> None:
        """Continues with changed players and results, and draws new opponents.

        `void`: a player whose matches in progress are cancelled. live: the new learning players by name, or None if
        they are the same. Matches in groups that change their home, and matches against a player that no longer
        learns, are cancelled.
        """
        self.members, self.payoff = pool, payoff
        gone = {void} if live is None else self.live.keys() - live.keys()
        if live is not None:
            moved, self.live = self.homes.change(pool), live
            self._draws.change(pool, self.homes.table, moved)
            self._frozen_at = {name: self._frozen_at.get(name, 0) for name in live}
            self.lose(moved, goes_on=True)
        if void in self.live:
            self.lose(np.flatnonzero(self.homes.table == list(self.live).index(void)), goes_on=True)
        for name in sorted(gone):
            self.lose(self._meetings.free(name), goes_on=True)
        self._draws.redraw(self.payoff, self.members)

    def freezes(self, home: int, env_steps: int) -> bool:
        every = self._settings.freeze_every if self._settings.builder == "past" else 0
        return every > 0 and env_steps // every > self._frozen_at[self._draws.homes[home].name] // every

    def freeze(
        self, home: int, snapshot: states.PlayerSnapshot, *, version: int, env_steps: int, reason: str = ""
    ) -> str:
        name, digits = self._draws.homes[home].name, self.digits(self.members.num_frozen)
        pool, member = self.members.freeze(name, digits, version=version, env_steps=env_steps, reason=reason)
        self._frozen_at[name] = env_steps
        self.pool.add(member.name, snapshot, self.live[name].place.number if name in self.live else 0)
        self.change(pool, self.payoff)
        return member.name

    def remove(self, name: str) -> None:
        self.pool.forget(name)
        self.members = self.members.without(name)
        self.lose(self._meetings.free(name), goes_on=True)

    def frozen(self) -> tuple[str, ...]:
        return self.members.frozen

    # ------------------------------------------------------------------------------------ counters

    def num_matches(self) -> Mapping[str, int]:
        of_members = dict.fromkeys([members.SCRIPTED] if self._settings.scripted else [], 0)
        return {**of_members, **self.payoff.num_matches(), "void": self._num_void}

    def win_rate(self) -> float | None:
        first = self._draws.homes[0]
        return matchmaking.active_rate(self.payoff, first.name, first.active)

    def to_json(self) -> dict[str, Any]:
        return {
            "league": {
                "pool": self.members.to_json(),
                "payoff": self.payoff.to_json(),
                **self._draws.to_json(),
                **({"envs_per_group": self.homes.size} if self._settings.most_players > 1 else {}),
                **({"homes_of_groups": self.homes.of_groups} if self._settings.homes_change else {}),
                "num_void": self._num_void,
            }
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        found = saved["league"]
        if (size := found.get("envs_per_group", self.homes.size)) != self.homes.size:
            raise errors.ResumeError(
                f"--worker.envs_per_group={self.homes.size}: the players of this run are at home in groups of "
                f"{size} environments, whose steps the replay holds; give --worker.envs_per_group={size}"
            )
        self.members = members.in_checkpoint(saved, self.members)
        self.homes.restore(found.get("homes_of_groups"), self.members)
        self.payoff = payoffs.Payoff.from_json(found["payoff"])
        self._num_void = found["num_void"]
        self._frozen_at = {name: self.members.since(name)[1] for name in self.members.learning}
        counts = self.payoff.num_matches()
        num_matches = sum(counts.get(name, 0) for name in (payoffs.SELF_PLAY, *payoffs.BETWEEN))
        self._draws.restore(found, num_matches, self.homes.table)
        self.reset()


def make(
    config: configs.Config,
    here: Sequence[places.Place],
    learning: Sequence[players.Player],
    members_now: members.Pool,
    load: Callable[[str], states.PlayerSnapshot],
    report: Callable[[str], None],
    roster: rosters.Roster,
) -> LeagueSeating:
    """Returns the seating of a run's league; gives its learning players their slots if there are several.

    load: as in `snapshot_pools.ParamsPool`.
    """

    def put(place: places.Place) -> Callable[[states.PlayerSnapshot], states.PlayerSnapshot]:
        return functools.partial(jax.device_put, device=meshes.replicated(place.setup.mesh))

    pool = snapshot_pools.ParamsPool(
        load,
        *map(put, here),
        on_devices=snapshot_pools.most_on_devices(config, max(place.setup.num_players for place in here)),
        on_host=snapshot_pools.most_on_host(config),
    )

    def digits(number: int) -> str:
        return members.digits_of(config.run.seed, number) if config.run.deterministic else secrets.token_hex(6)

    for name in filter(opponents.is_of_user, config.league.bots):
        user_code.load(name)  # a missing function is reported here, not by each worker
    num_slots, table = here[0].setup.layout.num_slots, setups.places_table([place.setup.layout for place in here])
    where = {members_now.of(player.name).number: player.place.number for player in learning}
    if config.league.most_players > 1:  # deals the groups of environments to the players
        homes = league_draws.GroupHomes(num_slots, config.worker.envs_per_group, members_now, table, where)
        for player, own in zip(learning, homes.mine(), strict=True):
            player.mine = own
    found = LeagueSeating(
        config,
        here[0].setup.spec,
        num_slots,
        pool,
        digits,
        report,
        knows_bots=functools.partial(rosters.knows_bots, roster),
        places=table,
    )
    found.live = {player.name: player for player in learning}
    found.homes.where |= where
    for player in learning:
        found.visitors.welcome(player, here)
    return found


def _match(pool: members.Pool, moves: matches.Moves, row: int, home: str, opponent: str) -> payoffs.Match:
    kind = payoffs.type_of(pool.of(home), pool.of(opponent))
    side, outcome, total = int(moves.side[row]), int(moves.outcome[row]), float(moves.total[row])
    other = None if moves.other[row] == -total else float(moves.other[row])
    return payoffs.Match(kind, home, opponent, side, outcome, total, other)
