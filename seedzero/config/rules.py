"""Rules between settings: what an entry of the table in `combinations` is, and how it is evaluated."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping, Set
from typing import Any, NamedTuple

from seedzero.config import configs, options
from seedzero.core import errors


class Severity(enum.Enum):
    """What a rule does where it applies."""

    ERROR = enum.auto()  # the settings are rejected
    WARNING = enum.auto()  # the user reads that a setting changes nothing, or is likely a mistake
    NOTE = enum.auto()  # a setting that the user did not give gets another value, and the user reads why


class Needs(enum.Enum):
    """What must be known to evaluate a rule, besides the settings."""

    SETTINGS = enum.auto()  # nothing
    SPEC = enum.auto()  # the environment's spec
    DEVICES = enum.auto()  # the number of devices, training.num_devices


@dataclasses.dataclass(frozen=True)
class Situation:
    """What a rule may ask. The configuration's sections and properties are attributes, as in `c.replay.num_slots`.

    Attributes:
      config: all settings.
      given: names SECTION.KEY of what the user set.
      preset_env: the environment that the preset was made for.
      spec: a `types.EnvSpec`, once it is known.
      seated_by: what makes rows seats; "" if they are none, or that is unknown.
      is_begun: whether the run is resumed, and keeps its slots.
      name, this: the first setting that the rule is about, and its value.
    """

    config: configs.Config
    given: Set[str] = frozenset()
    preset_env: str = ""
    spec: Any = None
    seated_by: str = ""
    is_begun: bool = False
    name: str = ""
    this: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.config, name)

    def value(self, name: str) -> Any:
        """Returns the value of a setting SECTION.KEY."""
        section, _, key = name.partition(".")
        return getattr(getattr(self.config, section), key)

    def words(self) -> dict[str, Any]:
        """Returns what a text may name in braces."""
        sections = {field.name: getattr(self.config, field.name) for field in dataclasses.fields(self.config)}
        return {**vars(self), **sections}


class SettingsRule(NamedTuple):
    """An entry of the table.

    Attributes:
      severity: what it does.
      about: settings SECTION.KEY, by spaces; {section} is the agent's. Without the first one, or if the agent does not
        read it, the rule does not apply.
      applies: whether it applies. A mapping has more words for the text, and another text is the word {why}.
      text: what is wrong and what to do; "" for nothing. Words in braces are values: {replay.num_slots} of a setting,
        {it} of the first one as on a command line, such as --seed=3, and {name} its name.
      needs: what must be known.
      value: of a note: what the settings become, as text.
    """

    severity: Severity
    about: str
    applies: Callable[[Situation], object]
    text: str
    needs: Needs = Needs.SETTINGS
    value: str = ""


error = functools.partial(SettingsRule, Severity.ERROR)
"""Makes a rule by which settings are rejected."""
warning = functools.partial(SettingsRule, Severity.WARNING)
"""Makes a rule that tells of a setting without effect, or of a likely mistake."""


def note(
    about: str, value: str, applies: Callable[[Situation], object], text: str = "", needs: Needs = Needs.SETTINGS
) -> SettingsRule:
    """Returns a rule that implies a value of settings, unless the user gave one of them."""
    return SettingsRule(Severity.NOTE, about, applies, text, needs, value)


class Applied(NamedTuple):
    """A rule that applies to a case: the names of its settings, its text, and for a note their value."""

    rule: SettingsRule
    settings: tuple[str, ...]
    text: str
    value: str


def find(rule: SettingsRule, c: Situation) -> Applied | None:
    """Returns what the user reads of a rule, or None if it does not apply."""
    names = tuple(rule.about.format(section=c.config.section).split())
    section, _, key = names[0].partition(".")
    if not hasattr(getattr(c.config, section), key) or not configs.is_read(names[0], c.config):
        return None
    c = dataclasses.replace(c, name=names[0], this=c.value(names[0]))
    if not (found := rule.applies(c)):
        return None
    words = {**c.words(), "it": f"{configs.flag(c.name)}={options.shown(c.this)}"}
    words |= found if isinstance(found, Mapping) else {"why": found}
    return Applied(rule, names, rule.text.format_map(words), rule.value.format_map(words))


def why(function: Callable[..., object], *arguments: object) -> str:
    """Returns the message of the error by which a function rejects its arguments, or ""."""
    try:
        function(*arguments)
    except (ValueError, errors.ConfigError) as error:
        return str(error)
    return ""
