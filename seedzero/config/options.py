"""Defines fields of configuration sections, which are checked when a section is made, and their values in presets."""

from __future__ import annotations

import dataclasses
import decimal
import functools
import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from seedzero.core import errors

Value = bool | int | float | str

LARGEST, LARGEST_COUNT = 2**31 - 1, 2**63 - 1
"""Largest whole number, because devices and messages have 32 bits; largest count of steps, updates or bytes."""

LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
"""Largest finite number of 32 bits, in which devices compute."""

LONGEST_WAIT = 1e9
"""Longest time in seconds that a thread can wait, with a margin."""

AUTO = 0
"""Marks an integer that is chosen at the start by the machine's cores and devices."""


def at_creation(
    default: Value,
    help_text: str,
    unit: str = "",
    *,
    choices: tuple[str, ...] = (),
    low: float = -LARGEST_FLOAT,
    high: float = LARGEST_FLOAT,
    resumable: str = "",
) -> Any:
    """Returns a field whose value never changes in a run directory, because it is chosen when the run is created.

    Args:
      default: the default value, whose type is the field's.
      help_text: one line, without the unit.
      choices: allowed values; empty allows any.
      high: largest allowed number; by default LARGEST for whole numbers, and no infinity unless it is the default.
      resumable: ANY_TIME, ON_RESUME or "", see `any_time` and `on_resume`.
    """
    if isinstance(default, int) and high == LARGEST_FLOAT:
        high = LARGEST
    if default == math.inf:
        high = math.inf
    metadata = dict(help=help_text, unit=unit, choices=choices, low=low, high=high, resumable=resumable)
    return dataclasses.field(default=default, metadata=metadata)


ANY_TIME, ON_RESUME = "any time", "on resume"
any_time = functools.partial(at_creation, resumable=ANY_TIME)
"""Makes a field that takes its value from the newest command line, or from its preset."""
on_resume = functools.partial(at_creation, resumable=ON_RESUME)
"""Makes a field that keeps its value in a run directory unless the command line of a resume changes it."""


_MOST_DIGITS = 30
"""Most digits of a whole number; a number such as 1e999999 would fill the memory."""
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def parse(key: str, raw: Value | str, kind: type[Any]) -> Any:
    """Returns text as a value of a type: bool, int (also as 1e6 or 3.0), float or str.

    Raises:
      ConfigError: the text is no such value; the message has the key.
    """
    read = {bool: lambda text: BOOLEANS[text.lower()], int: _whole}.get(kind, kind)
    try:
        value = read(str(raw))
    except (KeyError, ValueError, decimal.InvalidOperation):
        value = math.nan
    if value != value:
        raise errors.ConfigError(f"--{key}={raw}: expected {_NAMES[kind]}")
    return value


def _whole(text: str) -> int:
    """Returns the whole number in a text.

    Raises ValueError or InvalidOperation if it is none, or has too many digits.
    """
    number = decimal.Decimal(text)
    if not number.is_finite() or number.adjusted() > _MOST_DIGITS or number != int(number):
        raise ValueError(text)
    return int(number)


def check(field: dataclasses.Field[Any], value: Value) -> None:
    """Checks a value against a field's choices and bounds; raises a ConfigError that begins with the field's name."""
    choices, low, high = (field.metadata[key] for key in ("choices", "low", "high"))
    if choices and value not in choices:
        raise errors.ConfigError(f"{field.name} is {value!r}; choose one of {', '.join(choices)}")
    if isinstance(value, (int, float)) and not low <= value <= high:
        raise errors.ConfigError(f"{field.name} is {value}; it must be {_range(low, high)}")


START, USUAL, ADVANCED = "start here", "usual", "advanced"
"""Marks of settings: what to change first, at most 12 of what an agent reads; usual ones; what few runs need."""


class Section:
    """A section, which checks its fields against choices and bounds."""

    START: ClassVar[str] = ""
    """Names of the fields with that mark: presets change them most, or docs/troubleshooting.md names them."""
    ADVANCED: ClassVar[str] = ""
    """Names of the fields with that mark."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            check(field, getattr(self, field.name))


def shown(value: Value) -> str:
    """Returns a value as on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value) or "(empty)"


def _range(low: float, high: float) -> str:
    """Describes bounds in words; the largest numbers are no bound that a user sets."""
    if high == LARGEST_FLOAT:
        return (f"at least {low:g} and " if low > -LARGEST_FLOAT else "") + "finite"
    if high in (math.inf, LARGEST, LARGEST_COUNT):
        return f"at least {low:g}" + (f" and at most {high}" if high != math.inf else "")
    return f"from {low:g} to {high:g}"


class AgentSection(Section):
    """The settings of an agent; the section has the agent's name."""

    SUMMARY = ""
    """What the agent is, and when to choose it."""
    SECTIONS: tuple[str, ...] = ()
    """Other sections that only agents read that name them here."""
    DEFAULTS: ClassVar[Mapping[str, Value]] = {}
    """Settings of the sections optimizer, network and reward that it reads, by SECTION.KEY, with its defaults."""
    UNREAD: ClassVar[tuple[str, ...]] = ()
    """Settings of `SECTIONS` that it does not read."""
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Its choices for settings that other agents have, too, by SECTION.KEY."""
    SAMPLES = True
    """Whether it samples windows from a replay; if not, it consumes a queue."""
    MAX_PLAYERS = 1
    PLAYS_SEATS = True
    """Whether it plays games whose rows are seats (`EnvSpec.seats`)."""
    PLAYS_CONTINUOUS = False
    PLAYS_DISCRETE = True
    FAMILIES: tuple[str, ...] = ()
    """The prefixes of the families of environments that it plays; () for all."""

    def window_steps(self, config: Any) -> int:
        """Returns the fewest steps of a replay's slot for one window."""
        return 1

    def first_update(self, config: Any) -> int:
        """Returns about how many training steps come before the first update: those of a whole batch, or min_steps."""
        if self.SAMPLES:
            return int(config.replay.min_steps)
        return math.prod(getattr(self, name) for name in ("batch_size", "unroll_length"))

    def decay_end(self, config: Any) -> tuple[str, int]:
        """Returns the setting after which the learning rate is 0, and its number of updates.

        ("", 0) if it never is.
        """
        name, num_updates = "optimizer.decay_updates", config.optimizer.decay_updates
        return (name, num_updates) if num_updates and name in self.DEFAULTS else ("", 0)

    def shared(self, config: Any) -> dict[str, int]:
        """Returns the numbers by SECTION.KEY that every device takes an equal part of."""
        return {"replay.batch_size": config.replay.batch_size}


class Part(NamedTuple):
    """An agent's part of a preset: values by SECTION.KEY that replace the shared values."""

    values: Mapping[str, Value]  # for all environments, and for the preset's own
    on_cpu: Mapping[str, Value] = {}  # without an accelerator
    elsewhere: Mapping[str, Value] = {}  # for environments that are not the preset's own


def part(
    base: Mapping[str, Value] = {},
    /,
    *,
    on_cpu: Mapping[str, Value] = {},
    elsewhere: Mapping[str, Value] = {},
    **sections: Mapping[str, Value],
) -> Part:
    """Returns a part of `values(base, **sections)`."""
    return Part(values(base, **sections), on_cpu, elsewhere)


def values(base: Mapping[str, Value] = {}, /, **sections: Mapping[str, Value]) -> dict[str, Value]:
    """Returns values by SECTION.KEY: first `base`, then each section's by KEY."""
    own = {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}
    return {**base, **own}
