"""Describes the players of a league: learning players, their frozen past, and scripted members."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.config import league_config
from seedzero.core import opponents

LEARNING, FROZEN = league_config.LEARNING, "frozen"
MAIN, MAIN_EXPLOITER, LEAGUE_EXPLOITER = LEARNING
SCRIPTED = "scripted"
"""Kind of a player without parameters, which moves at random or is a bot that workers play."""
KINDS = (*LEARNING, FROZEN, SCRIPTED)
INITIAL = "initial"
"""Source of new parameters, from the player's own seed, with which it also began."""

_FROZEN_SEED = 4
"""Second number of the random keys for names of snapshots."""
_NUM_DIGITS = 12
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(-[0-9a-f]+)?")


def is_count(value: Any) -> bool:
    """Returns whether a value from a file is a whole number of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclasses.dataclass(frozen=True)
class Member:
    """A player of the league. version, env_steps: updates and training steps behind its parameters.

    A reset gives a learning player other parameters, and its counts continue. A snapshot keeps its parent's resets. A
    learning player that retires keeps its entry, so that its name and number are never used again.
    """

    name: str
    kind: str  # one of KINDS
    learns: bool
    version: int = 0
    env_steps: int = 0
    parent: str = ""  # the player that it is a snapshot of, or ""
    line: str = MAIN  # one of LEARNING: its own kind, or its parent's
    retired: bool = False  # whether matchmaking ignores it
    frozen_version: int = 0  # counts at a learning player's newest snapshot, even if that was rejected or lost
    frozen_env_steps: int = 0
    resets: int = 0
    reset_version: int = 0  # counts at the newest reset
    reset_env_steps: int = 0
    source: str = ""  # of the newest reset: INITIAL or a player; "" before any
    reason: str = ""  # reason of the snapshot, or of a learning player's newest reset
    rival: str = ""  # a learning player's only opponent as long as it plays; "": matchmaking draws opponents
    number: int = 0  # of a learning player, counted over all so far; a part of its random keys
    # for a player that a builder added: INITIAL, or the player whose parameters it began with; else ""
    origin: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for values that no player can have, for example from a damaged file."""
        is_frozen, is_scripted, is_learner = self.kind == FROZEN, self.kind == SCRIPTED, self.kind in LEARNING
        is_name = opponents.is_member if is_scripted else _NAME.fullmatch
        expected = {
            "name": isinstance(self.name, str) and bool(is_name(self.name)),
            "kind": self.kind in KINDS,
            "learns": self.learns is (self.kind in LEARNING and not self.retired),
            "version": is_count(self.version),
            "env_steps": is_count(self.env_steps),
            "parent": isinstance(self.parent, str) and bool(self.parent) is is_frozen,
            "line": self.line in LEARNING and (is_frozen or self.line == (MAIN if is_scripted else self.kind)),
            "retired": isinstance(self.retired, bool),
            "frozen_version": is_count(self.frozen_version) and (is_learner or not self.frozen_version),
            "frozen_env_steps": is_count(self.frozen_env_steps) and (is_learner or not self.frozen_env_steps),
            "resets": is_count(self.resets),
            "reset_version": is_count(self.reset_version) and (self.resets > 0 or not self.reset_version),
            "reset_env_steps": is_count(self.reset_env_steps) and (self.resets > 0 or not self.reset_env_steps),
            "source": isinstance(self.source, str) and bool(self.source) is (self.resets > 0),
            "reason": isinstance(self.reason, str),
            "rival": isinstance(self.rival, str) and (self.learns or not self.rival),
            "number": is_count(self.number) and (is_learner or not self.number),
            "origin": isinstance(self.origin, str) and (is_learner or not self.origin),
        }
        if wrong := [name for name, fits in expected.items() if not fits]:
            raise ValueError(f"a player's {wrong[0]} is {getattr(self, wrong[0])!r} in {repr(self)[:200]}")

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Pool:
    """All players in the order in which they began.

    num_frozen: number of snapshots so far, including removed ones. max_players: most players that may learn at the
    same time.
    """

    members: tuple[Member, ...] = (Member(MAIN, MAIN, learns=True),)
    num_frozen: int = 0
    max_players: int = 1

    def __post_init__(self) -> None:
        names = [member.name for member in self.members]
        if len(set(names)) < len(names):
            raise ValueError(f"the players' names are {names}; expected each once")

    @property
    def learning(self) -> tuple[str, ...]:
        """Names of the learning players, main players first."""
        return tuple(member.name for member in self.members if member.learns)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Names of the frozen players, including retired ones, whose parameters are kept."""
        return tuple(member.name for member in self.members if member.kind == FROZEN)

    @property
    def has_room(self) -> bool:
        """Whether another player may be added."""
        return len(self.learning) < self.max_players

    def past(self, *, parent: str = "") -> tuple[str, ...]:
        """Returns the names of frozen players that matchmaking may draw, of one parent or of all."""
        return tuple(
            member.name
            for member in self.members
            if member.kind == FROZEN and not member.retired and parent in ("", member.parent)
        )

    def learning_of(self, *kinds: str) -> tuple[str, ...]:
        """Returns the names of learning players of these kinds."""
        return tuple(member.name for member in self.members if member.kind in kinds and member.learns)

    def of(self, name: str) -> Member:
        """Returns the player with this name. Raises ValueError, which lists the names."""
        for member in self.members:
            if member.name == name:
                return member
        raise ValueError(f"no player is named {name!r}; there are {', '.join(member.name for member in self.members)}")

    def since(self, name: str) -> tuple[int, int]:
        """Returns a learning player's updates and training steps at its newest snapshot or reset.

        (0, 0) before any.
        """
        member = self.of(name)
        found = [(member.reset_version, member.reset_env_steps), (member.frozen_version, member.frozen_env_steps)]
        return max(found, key=lambda counts: counts[::-1])

    def trained(self, name: str, *, version: int, env_steps: int) -> Pool:
        """Returns the pool with new counts of a learning player."""
        return _changed(self, dataclasses.replace(self.of(name), version=version, env_steps=env_steps))

    def freeze(self, name: str, digits: str, *, version: int, env_steps: int, reason: str = "") -> tuple[Pool, Member]:
        """Returns the pool with a new snapshot of a learning player, and the snapshot.

        digits: hexadecimal, random or from `digits_of`. Raises ValueError if the name is taken.
        """
        parent = _learning(self, name, "frozen")
        counts: dict[str, Any] = dict(version=version, env_steps=env_steps)
        changes: dict[str, Any] = dict(kind=FROZEN, learns=False, parent=name, frozen_version=0, frozen_env_steps=0)
        changes |= dict(number=0, origin="")
        member = dataclasses.replace(parent, name=f"{name}-{digits}", reason=reason, rival="", **counts, **changes)
        pool = _changed(self, dataclasses.replace(parent, frozen_version=version, frozen_env_steps=env_steps))
        return dataclasses.replace(pool, members=(*pool.members, member), num_frozen=self.num_frozen + 1), member

    def reset(self, name: str, *, source: str, version: int, env_steps: int, reason: str = "") -> Pool:
        """Returns the pool after a learning player was given other parameters.

        source: INITIAL, or the player whose parameters it takes. version, env_steps: the player's counts, which
        continue.
        """
        member = _learning(self, name, "reset")
        if source != INITIAL and _giver(self, source).name == name:
            raise ValueError(f"player {name} takes its own parameters; expected {INITIAL} or another player")
        counts: dict[str, Any] = dict(
            version=version, env_steps=env_steps, reset_version=version, reset_env_steps=env_steps
        )
        return _changed(
            self, dataclasses.replace(member, resets=member.resets + 1, source=source, reason=reason, **counts)
        )

    def meet(self, name: str, rival: str) -> Pool:
        """Returns the pool in which a player meets only this frozen or scripted one; "" returns it to matchmaking."""
        if rival and rival not in fixed(self):
            raise ValueError(
                f"player {rival} is not a frozen or scripted player; there are {', '.join(fixed(self)) or '-'}"
            )
        return _changed(self, dataclasses.replace(_learning(self, name, "given an opponent"), rival=rival))

    def retire(self, name: str, reason: str = "") -> Pool:
        """Returns the pool in which matchmaking ignores a player, whose counts and parameters are kept.

        A learning player stops learning, with the counts of its last snapshot. Raises ValueError for the first main
        player, because evaluations and the checkpoint `best` are its own.
        """
        if (member := self.of(name)).kind not in LEARNING:
            return _changed(self, dataclasses.replace(member, retired=True))
        if _learning(self, name, "retired").name == MAIN:
            raise ValueError(f"player {MAIN} is evaluated, and can't retire; reset it, or retire another one")
        counts: dict[str, Any] = dict(version=member.frozen_version, env_steps=member.frozen_env_steps)
        ended = dataclasses.replace(member, learns=False, retired=True, rival="", reason=reason, **counts)
        return _changed(self, ended)

    def without(self, name: str) -> Pool:
        """Returns the pool without a frozen player whose parameters are damaged or missing."""
        if self.of(name).kind != FROZEN:
            raise ValueError(f"player {name} is {self.of(name).kind}; only a frozen one can be removed")
        return dataclasses.replace(self, members=tuple(member for member in self.members if member.name != name))

    def to_json(self) -> dict[str, Any]:
        """Returns the pool in the form of a checkpoint."""
        return {"members": [member.to_json() for member in self.members], "num_frozen": self.num_frozen}

    @classmethod
    def from_json(cls, values: Any) -> Pool:
        """Returns the pool in a checkpoint, with no room for more players. Raises ValueError if it is damaged."""
        if not isinstance(values, dict) or values.keys() != {"members", "num_frozen"}:
            raise ValueError(f"pool is {repr(values)[:100]}; expected an object of members and num_frozen")
        if not isinstance(values["members"], list):
            raise ValueError(f"pool: members is {repr(values['members'])[:100]}; expected a list")
        pool = cls(_members(values["members"]), values["num_frozen"])
        numbers = [member.number for member in pool.members if member.kind in LEARNING]
        if numbers != list(range(len(numbers))):
            raise ValueError(f"pool: the learning players' numbers are {numbers}; expected {len(numbers)} in turn")
        pool = dataclasses.replace(pool, max_players=max(1, len(pool.learning)))
        if not is_count(pool.num_frozen) or pool.num_frozen < len(pool.frozen):
            raise ValueError(
                f"pool: num_frozen is {pool.num_frozen!r}; expected a whole number of at least {len(pool.frozen)}"
            )
        if not any(member.learns for member in pool.members):
            raise ValueError(f"pool: none of {[member.name for member in pool.members]} learns; expected one")
        return pool


def add(pool: Pool, kind: str, *, source: str = INITIAL, reason: str = "") -> tuple[Pool, Member]:
    """Returns the pool with a new learning player, and that player.

    source: INITIAL, or the player whose parameters it begins with. Raises ValueError for other kinds, and if there are
    `max_players` already.
    """
    if kind not in LEARNING:
        raise ValueError(f"{kind!r} is not a kind of learning player; expected {', '.join(LEARNING)}")
    if source != INITIAL:
        _giver(pool, source)
    if not pool.has_room:
        raise ValueError(
            f"{len(pool.learning)} players learn, and --league.max_players={pool.max_players} allows no more; "
            "retire one of them first, or give a larger --league.max_players to a new run"
        )
    number = sum(member.kind in LEARNING for member in pool.members)
    member = _learner(kind, sum(member.kind == kind for member in pool.members), number)
    member = dataclasses.replace(member, origin=source, reason=reason)
    return dataclasses.replace(pool, members=(*pool.members, member)), member


def _learning(pool: Pool, name: str, change: str) -> Member:
    """Returns a learning player. Raises ValueError for any other, with the change that was tried."""
    if not (member := pool.of(name)).learns:
        kind = "retired" if member.kind in LEARNING else member.kind
        raise ValueError(f"player {name} is {kind}; only a learning one can be {change}")
    return member


def _giver(pool: Pool, name: str) -> Member:
    """Returns a player whose parameters others can take. Raises ValueError if it has none."""
    if pool.of(name).kind == SCRIPTED:
        raise ValueError(f"player {name} is scripted, and has no parameters; expected another player, or {INITIAL}")
    if (member := pool.of(name)).kind in LEARNING and not member.learns:
        last = [one.name for one in pool.members if one.parent == name]
        raise ValueError(f"player {name} is retired; its parameters are those of {last[-1] if last else '-'}")
    return member


def initial_pool(settings: league_config.LeagueConfig) -> Pool:
    """Returns the players of a new run: learning players, main players first, and scripted members."""
    counts = (settings.main_players, settings.main_exploiters, settings.league_exploiters)
    places = [(kind, at) for kind, count in zip(LEARNING, counts, strict=True) for at in range(count)]
    players = tuple(_learner(kind, at, number) for number, (kind, at) in enumerate(places))
    scripted_members = tuple(Member(name, SCRIPTED, learns=False) for name in settings.scripted)
    return Pool((*players, *scripted_members), max_players=settings.most_players)


def of_policies(names: Sequence[str]) -> Pool:
    """Returns the players of a run without a league, one for each named policy."""
    return Pool(tuple(Member(name, MAIN, learns=True, number=at) for at, name in enumerate(names)))


def scripted(pool: Pool) -> tuple[str, ...]:
    """Returns the names of scripted members that matchmaking may draw."""
    return tuple(member.name for member in pool.members if member.kind == SCRIPTED and not member.retired)


def fixed(pool: Pool) -> tuple[str, ...]:
    """Returns the names of players that matchmaking may draw and that never change: frozen and scripted ones."""
    return (*pool.past(), *scripted(pool))


def in_checkpoint(counters: Mapping[str, Any], begun: Pool) -> Pool:
    """Returns the players in a checkpoint's counters.

    begun: the players of a new run, which are also those of a run without a league. Raises LookupError, TypeError or
    ValueError for damaged counters.
    """
    if "league" not in counters:
        return begun
    return dataclasses.replace(Pool.from_json(counters["league"]["pool"]), max_players=begun.max_players)


def _learner(kind: str, place: int, number: int) -> Member:
    """Returns a new player. place: its number among all of its kind; number: among all that have ever learned."""
    return Member(MAIN if kind == MAIN and not place else f"{kind}_{place}", kind, True, line=kind, number=number)


def labels(pool: Pool) -> dict[str, str]:
    """Returns names to show to users; a frozen player's has its number and update, because digits say nothing."""
    places = {name: number for number, name in enumerate(pool.frozen, 1)}
    return {
        one.name: f"{one.name} (#{places[one.name]}, update {one.version:,})" if one.name in places else one.name
        for one in pool.members
    }


def is_frozen(name: str) -> bool:
    """Returns whether a name is that of a frozen player: its parent's, a hyphen, and digits."""
    return "-" in name and not opponents.is_member(name)


def digits_of(seed: int, number: int) -> str:
    """Returns the hexadecimal digits for a snapshot in a deterministic run. number: `Pool.num_frozen` before it."""
    (state,) = np.random.SeedSequence([seed, _FROZEN_SEED, number]).generate_state(1, np.uint64)
    return f"{int(state):016x}"[:_NUM_DIGITS]


def _changed(pool: Pool, changed: Member) -> Pool:
    members = tuple(changed if member.name == changed.name else member for member in pool.members)
    return dataclasses.replace(pool, members=members)


def _members(listed: list[Any]) -> tuple[Member, ...]:
    """Returns the players in a checkpoint."""
    names = [field.name for field in dataclasses.fields(Member)]
    for values in listed:
        if not isinstance(values, dict) or values.keys() != set(names):
            raise ValueError(f"pool: a player is {repr(values)[:100]}; expected {', '.join(names)}")
    return tuple(Member(**values) for values in listed)


ADD, FREEZE, RESET, RETIRE = "add", "freeze", "reset", "retire"


def lineage_tree(pool: Pool) -> list[dict[str, Any]]:
    """Returns the players that learn or have learned, each with its snapshots and resets in order.

    The events of a player that a builder added begin with that, and those of a retired player end with its retirement.
    Only the reason of the newest decision on a player itself is kept; earlier ones are "". Removed snapshots are
    missing, and so are resets that only these recorded.
    """
    return [{**one.to_json(), "events": _events(pool, one)} for one in pool.members if one.kind in LEARNING]


def lineage_text(pool: Pool) -> str:
    """Returns the tree as text for a terminal."""
    lines = []
    for player in lineage_tree(pool):
        lines.append(f"{player['name']} ({player['kind']}): {_counts(player)}")
        for event in player["events"]:
            name = {
                ADD: f"added as {event.get('source')}",
                RESET: f"reset {event.get('number')} to {event.get('source')}",
                RETIRE: "retired",
            }.get(event["event"], event.get("player"))
            mark = "└─" if event is player["events"][-1] else "├─"
            rest = "; ".join(filter(None, (_counts(event), event["reason"], "retired" * event.get("retired", False))))
            lines.append(f"{mark} {name}: {rest}")
    return "\n".join(lines)


def _events(pool: Pool, player: Member) -> list[dict[str, Any]]:
    snapshots = [member for member in pool.members if member.parent == player.name]
    reset = {member.resets: member for member in (*snapshots, player) if member.resets}
    found: dict[tuple[int, int, int], dict[str, Any]] = {
        (number, 0, 0): {
            "event": RESET,
            "number": number,
            "source": member.source,
            "version": member.reset_version,
            "env_steps": member.reset_env_steps,
            "reason": member.reason if member.learns else "",
        }
        for number, member in reset.items()
    }
    if player.origin:
        reason = player.reason if player.learns and not player.resets else ""
        found[-1, 0, 0] = {"event": ADD, "source": player.origin, "version": 0, "env_steps": 0, "reason": reason}
    if player.retired:
        counts = dict(version=player.version, env_steps=player.env_steps)
        found[player.resets, 2, 0] = {"event": RETIRE, **counts, "reason": player.reason}
    for place, member in enumerate(snapshots):
        values = {name: getattr(member, name) for name in ("version", "env_steps", "reason", "retired")}
        found[member.resets, 1, place] = {"event": FREEZE, "player": member.name, **values}
    return [event for _, event in sorted(found.items())]


def _counts(values: dict[str, Any]) -> str:
    return f"update {values['version']:,}, {values['env_steps']:,} steps"
