"""Players of a league: the learning one, and its frozen past."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

MAIN, FROZEN = "main", "frozen"
KINDS = (MAIN, FROZEN)

_FROZEN_SEED = 4
"""Second number of the random keys of names."""
_NUM_DIGITS = 12
_NAME = re.compile(r"[a-z][a-z0-9_]*(-[0-9a-f]+)?")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclasses.dataclass(frozen=True)
class Member:
    """A player of the league; version and env_steps: updates and training steps behind its parameters."""

    name: str
    kind: str  # of KINDS
    learns: bool
    version: int = 0
    env_steps: int = 0
    parent: str = ""  # the player that it is a snapshot of; "": none

    def __post_init__(self) -> None:
        """Raises ValueError for values that no player has, as of a damaged file."""
        expected = {
            "name": isinstance(self.name, str) and bool(_NAME.fullmatch(self.name)),
            "kind": self.kind in KINDS,
            "learns": self.learns is (self.kind != FROZEN),
            "version": _is_count(self.version),
            "env_steps": _is_count(self.env_steps),
            "parent": isinstance(self.parent, str) and bool(self.parent) is (self.kind == FROZEN),
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
    def frozen(self) -> tuple[str, ...]:
        """The frozen players' names."""
        return tuple(member.name for member in self.members if member.kind == FROZEN)

    def of(self, name: str) -> Member:
        """Returns the player of a name. Raises ValueError, with the names there are."""
        for member in self.members:
            if member.name == name:
                return member
        raise ValueError(f"no player is named {name!r}; there are {', '.join(member.name for member in self.members)}")

    def trained(self, name: str, *, version: int, env_steps: int) -> Pool:
        """Returns the pool with a learning player's newest counts."""
        member = dataclasses.replace(self.of(name), version=version, env_steps=env_steps)
        return dataclasses.replace(self, members=tuple(member if x.name == name else x for x in self.members))

    def freeze(self, name: str, digits: str, *, version: int, env_steps: int) -> tuple[Pool, Member]:
        """Returns the pool with a snapshot of a player, and the snapshot's entry.

        digits: hexadecimal, random or of `digits_of`. Raises ValueError for a name that is taken.
        """
        member = Member(f"{self.of(name).name}-{digits}", FROZEN, False, version, env_steps, name)
        return Pool((*self.members, member), self.num_frozen + 1), member

    def without(self, name: str) -> Pool:
        """Returns the pool without a frozen player, for one of damaged or missing parameters."""
        if self.of(name).kind != FROZEN:
            raise ValueError(f"player {name} is {self.of(name).kind}; only a frozen one can be removed")
        return dataclasses.replace(self, members=tuple(member for member in self.members if member.name != name))

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


def digits_of(seed: int, number: int) -> str:
    """Returns the hexadecimal digits of a deterministic run's snapshot; number: `Pool.num_frozen` before it."""
    (state,) = np.random.SeedSequence([seed, _FROZEN_SEED, number]).generate_state(1, np.uint64)
    return f"{int(state):016x}"[:_NUM_DIGITS]


def _member(values: Any) -> Member:
    names = [field.name for field in dataclasses.fields(Member)]
    if not isinstance(values, dict) or values.keys() != set(names):
        raise ValueError(f"pool: a player is {repr(values)[:100]}; expected {', '.join(names)}")
    return Member(**values)
