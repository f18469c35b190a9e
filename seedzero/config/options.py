"""Fields of configuration sections: default, help, unit, choices and bounds; all checked when a section is made."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from seedzero.core import errors

Value = bool | int | float | str

AUTO = 0
"""Marks an integer that is chosen at start from the machine's cores and devices."""


def option(
    default: Value,
    help_text: str,
    *,
    unit: str = "",
    choices: tuple[str, ...] = (),
    minimum: float = -math.inf,
    maximum: float = math.inf,
    resumable: bool = False,
    sampled: bool = False,
) -> Any:
    """Returns a field of a section.

    Args:
      default: its type is the field's.
      help_text: one line, without the unit.
      unit: of the value.
      choices: allowed values; empty: any.
      minimum: smallest allowed number.
      maximum: largest allowed number.
      resumable: a run directory may be resumed with another value.
      sampled: only agents that sample windows from a replay read it.
    """
    metadata = {
        "help": help_text,
        "unit": unit,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "resumable": resumable,
        "sampled": sampled,
    }
    return dataclasses.field(default=default, metadata=metadata)


class Section:
    """Checks the fields of a section against their types, choices and bounds."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, meta = getattr(self, field.name), field.metadata
            if meta["choices"] and value not in meta["choices"]:
                raise errors.ConfigError(f"{field.name} is {value!r}; choose one of {', '.join(meta['choices'])}")
            if isinstance(value, (int, float)) and not meta["minimum"] <= value <= meta["maximum"]:
                bounds = f"from {meta['minimum']:g} to {meta['maximum']:g}"
                raise errors.ConfigError(f"{field.name} is {value}; it must be {bounds}")


class AgentSection(Section):
    """The settings of an agent; the section's name is the agent's."""

    SECTIONS: tuple[str, ...] = ()
    """Other sections that only agents which name them read."""
    SAMPLES = True
    """Whether it samples windows from a replay; else it consumes a queue."""
    MAX_PLAYERS = 1
    PLAYS_CONTINUOUS = False

    def window_steps(self, config: Any) -> int:
        """Returns the fewest steps that a slot of a replay must hold for one window."""
        return 1

    def notes(self, config: Any) -> list[str]:
        """Returns what a user should know about these settings."""
        return []

    def shared(self, config: Any) -> dict[str, int]:
        """Returns the numbers by SECTION.KEY of which every device takes an equal part."""
        raise NotImplementedError
