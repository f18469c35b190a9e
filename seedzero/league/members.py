"""Players of a league: learning players, and their frozen past."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from seedzero.config import league_config

LEARNING, FROZEN = league_config.LEARNING, "frozen"
MAIN, MAIN_EXPLOITER, LEAGUE_EXPLOITER = LEARNING
KINDS = (*LEARNING, FROZEN)
INITIAL = "initial"
"""Source of a reset: the parameters that the player began with."""

_FROZEN_SEED = 4
"""Second number of the random keys of names."""
_NUM_DIGITS = 12
_NAME = re.compile(r"[a-z][a-z0-9_]*(-[0-9a-f]+)?")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclasses.dataclass(frozen=True)
class Member:
    """A player of the league; version and env_steps: updates and training steps behind its parameters.

    A reset gives a learning player other parameters; its counts go on. A snapshot keeps its parent's resets.
    """

    name: str
    kind: str  # of KINDS
    learns: bool
    version: int = 0
    env_steps: int = 0
    parent: str = ""  # the player that it is a snapshot of; "": none
    line: str = MAIN  # of LEARNING: its own kind, or its parent's
    retired: bool = False  # matchmaking leaves it out
    frozen_version: int = 0  # the counts at a learning player's newest snapshot, though it may be refused or lost
    frozen_env_steps: int = 0
    resets: int = 0
    reset_version: int = 0  # the counts at the newest reset
    reset_env_steps: int = 0
    source: str = ""  # of the newest reset: INITIAL, or a player; "": none
    reason: str = ""  # of the snapshot, or of a learning player's newest reset
    rival: str = ""  # a learning player's only opponent while that is there; "": matchmaking draws them

    def __post_init__(self) -> None:
        """Raises ValueError for values that no player has, as of a damaged file."""
        is_frozen = self.kind == FROZEN
        expected = {
            "name": isinstance(self.name, str) and bool(_NAME.fullmatch(self.name)),
            "kind": self.kind in KINDS,
            "learns": self.learns is not is_frozen,
            "version": _is_count(self.version),
            "env_steps": _is_count(self.env_steps),
            "parent": isinstance(self.parent, str) and bool(self.parent) is is_frozen,
            "line": self.line in LEARNING and (is_frozen or self.line == self.kind),
            "retired": self.retired is False or (self.retired is True and is_frozen),
            "frozen_version": _is_count(self.frozen_version) and (not is_frozen or not self.frozen_version),
            "frozen_env_steps": _is_count(self.frozen_env_steps) and (not is_frozen or not self.frozen_env_steps),
            "resets": _is_count(self.resets),
            "reset_version": _is_count(self.reset_version) and (self.resets > 0 or not self.reset_version),
            "reset_env_steps": _is_count(self.reset_env_steps) and (self.resets > 0 or not self.reset_env_steps),
            "source": isinstance(self.source, str) and bool(self.source) is (self.resets > 0),
            "reason": isinstance(self.reason, str),
            "rival": isinstance(self.rival, str) and (not is_frozen or not self.rival),
        }
        if wrong := [name for name, fits in expected.items() if not fits]:
            raise ValueError(f"a player's {wrong[0]} is {getattr(self, wrong[0])!r} in {repr(self)[:200]}")

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by their names."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Pool:
    """The players, in the order of their beginnings. num_frozen: snapshots so far, removed players included."""

    members: tuple[Member, ...] = (Member(MAIN, MAIN, learns=True),)
    num_frozen: int = 0

    def __post_init__(self) -> None:
        names = [member.name for member in self.members]
        if len(set(names)) < len(names):
            raise ValueError(f"the players' names are {names}; expected each once")

    @property
    def learning(self) -> tuple[str, ...]:
        """The learning players' names; a place there is a player's number, main's 0."""
        return tuple(member.name for member in self.members if member.learns)

    @property
    def frozen(self) -> tuple[str, ...]:
        """The frozen players' names, retired players included: their parameters are kept."""
        return tuple(member.name for member in self.members if member.kind == FROZEN)

    def past(self, *, parent: str = "") -> tuple[str, ...]:
        """Returns the names of frozen players for matchmaking, of all parents or of one; no retired players."""
        return tuple(
            member.name
            for member in self.members
            if member.kind == FROZEN and not member.retired and parent in ("", member.parent)
        )

    def learning_of(self, *kinds: str) -> tuple[str, ...]:
        """Returns the names of learning players of some kinds."""
        return tuple(member.name for member in self.members if member.kind in kinds and member.learns)

    def of(self, name: str) -> Member:
        """Returns the player of a name. Raises ValueError, with the names there are."""
        for member in self.members:
            if member.name == name:
                return member
        raise ValueError(f"no player is named {name!r}; there are {', '.join(member.name for member in self.members)}")

    def since(self, name: str) -> tuple[int, int]:
        """Returns a learning player's updates and training steps at its newest snapshot or reset; (0, 0): none."""
        member = self.of(name)
        found = [(one.version, one.env_steps) for one in self.members if one.parent == name]  # of earlier versions
        found += [(member.reset_version, member.reset_env_steps), (member.frozen_version, member.frozen_env_steps)]
        return max(found, key=lambda counts: counts[::-1])

    def trained(self, name: str, *, version: int, env_steps: int) -> Pool:
        """Returns the pool with a learning player's newest counts."""
        return _changed(self, dataclasses.replace(self.of(name), version=version, env_steps=env_steps))

    def freeze(self, name: str, digits: str, *, version: int, env_steps: int, reason: str = "") -> tuple[Pool, Member]:
        """Returns the pool with a snapshot of a learning player, and the snapshot's entry.

        digits: hexadecimal, random or of `digits_of`. Raises ValueError for a name that is taken.
        """
        parent = self._learner(name, "frozen")
        counts: dict[str, Any] = dict(version=version, env_steps=env_steps)
        changes: dict[str, Any] = dict(kind=FROZEN, learns=False, parent=name, frozen_version=0, frozen_env_steps=0)
        member = dataclasses.replace(parent, name=f"{name}-{digits}", reason=reason, rival="", **counts, **changes)
        pool = _changed(self, dataclasses.replace(parent, frozen_version=version, frozen_env_steps=env_steps))
        return Pool((*pool.members, member), self.num_frozen + 1), member

    def reset(self, name: str, *, source: str, version: int, env_steps: int, reason: str = "") -> Pool:
        """Returns the pool with a learning player that takes other parameters.

        source: INITIAL, or the player whose parameters it takes. version, env_steps: of the reset player, which go on.
        """
        member = self._learner(name, "reset")
        if source != INITIAL and self.of(source).name == name:
            raise ValueError(f"player {name} takes its own parameters; expected {INITIAL} or another player")
        counts: dict[str, Any] = dict(
            version=version, env_steps=env_steps, reset_version=version, reset_env_steps=env_steps
        )
        return _changed(
            self, dataclasses.replace(member, resets=member.resets + 1, source=source, reason=reason, **counts)
        )

    def meet(self, name: str, rival: str) -> Pool:
        """Returns the pool with a learning player that meets a frozen one alone; "": whom matchmaking draws."""
        if rival and rival not in self.past():
            raise ValueError(
                f"player {rival} is no frozen player that plays; there are {', '.join(self.past()) or '-'}"
            )
        return _changed(self, dataclasses.replace(self._learner(name, "given an opponent"), rival=rival))

    def retire(self, name: str) -> Pool:
        """Returns the pool with a frozen player that matchmaking leaves out; its counts and parameters stay."""
        if (member := self.of(name)).kind != FROZEN:
            raise ValueError(f"player {name} is {member.kind}; only a frozen one can retire")
        return _changed(self, dataclasses.replace(member, retired=True))

    def without(self, name: str) -> Pool:
        """Returns the pool without a frozen player, for one of damaged or missing parameters."""
        if self.of(name).kind != FROZEN:
            raise ValueError(f"player {name} is {self.of(name).kind}; only a frozen one can be removed")
        return dataclasses.replace(self, members=tuple(member for member in self.members if member.name != name))

    def _learner(self, name: str, change: str) -> Member:
        if not (member := self.of(name)).learns:
            raise ValueError(f"player {name} is {member.kind}; only a learning one can be {change}")
        return member

    def to_json(self) -> dict[str, Any]:
        """Returns the content for a checkpoint."""
        return {"members": [member.to_json() for member in self.members], "num_frozen": self.num_frozen}

    @classmethod
    def from_json(cls, values: Any) -> Pool:
        """Returns the pool of a checkpoint. Raises ValueError for a damaged one."""
        if not isinstance(values, dict) or values.keys() != {"members", "num_frozen"}:
            raise ValueError(f"pool is {repr(values)[:100]}; expected an object of members and num_frozen")
        if not isinstance(values["members"], list):
            raise ValueError(f"pool: members is {repr(values['members'])[:100]}; expected a list")
        pool = cls(tuple(map(_member, values["members"])), values["num_frozen"])
        if not _is_count(pool.num_frozen) or pool.num_frozen < len(pool.frozen):
            raise ValueError(
                f"pool: num_frozen is {pool.num_frozen!r}; expected a whole number of at least {len(pool.frozen)}"
            )
        if not any(member.learns for member in pool.members):
            raise ValueError(f"pool: none of {[member.name for member in pool.members]} learns; expected one")
        return pool


def initial_pool(settings: league_config.LeagueConfig) -> Pool:
    """Returns the learning players of a new run, main players first."""
    counts = (settings.main_players, settings.main_exploiters, settings.league_exploiters)
    return Pool(
        tuple(
            Member(MAIN if kind == MAIN and number == 0 else f"{kind}_{number}", kind, learns=True, line=kind)
            for kind, count in zip(LEARNING, counts, strict=True)
            for number in range(count)
        )
    )


def labels(pool: Pool) -> dict[str, str]:
    """Returns the players' names for users: digits tell nothing, so a frozen player's order and update follow."""
    places = {name: number for number, name in enumerate(pool.frozen, 1)}
    return {
        one.name: f"{one.name} (#{places[one.name]}, update {one.version:,})" if one.name in places else one.name
        for one in pool.members
    }


def is_frozen(name: str) -> bool:
    """Returns whether a name is a frozen player's: its parent's, a hyphen, and digits."""
    return "-" in name


def digits_of(seed: int, number: int) -> str:
    """Returns the hexadecimal digits of a deterministic run's snapshot; number: `Pool.num_frozen` before it."""
    (state,) = np.random.SeedSequence([seed, _FROZEN_SEED, number]).generate_state(1, np.uint64)
    return f"{int(state):016x}"[:_NUM_DIGITS]


def _changed(pool: Pool, changed: Member) -> Pool:
    members = tuple(changed if member.name == changed.name else member for member in pool.members)
    return dataclasses.replace(pool, members=members)


def _member(values: Any) -> Member:
    fields = dataclasses.fields(Member)
    names, parts = [field.name for field in fields], {"name", "kind", "learns", "version", "env_steps", "parent"}
    if not isinstance(values, dict) or not parts <= values.keys() <= set(names):  # earlier versions saved these parts
        raise ValueError(f"pool: a player is {repr(values)[:100]}; expected {', '.join(names)}")
    return Member(**values)
