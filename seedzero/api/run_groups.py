"""Groups runs that differ in their seed alone, and finds the settings in which groups differ. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from seedzero.api import run_places
from seedzero.config import configs, ends, options
from seedzero.core import errors

PRESET, SEED = "preset", "run.seed"
_OF_THE_HOST = {"transport", "tls", "metrics", "bucket", "checkpoint", "evaluation"}
"""Sections of settings that do not change what is learned."""
_OF_THE_MACHINE = {"training.num_devices", "replay.num_slots", "replay.num_envs"}
"""Settings that are saved with a run but set automatically by the machine and its workers."""

Values = Mapping[str, options.Value]


@dataclasses.dataclass(frozen=True)
class RunGroup:
    """Runs that differ in their seed alone, or in settings that were not asked for.

    settings: values by SECTION.KEY in which the group differs from others. hidden: settings that count and in which
    its own runs differ.
    """

    settings: Values
    runs: tuple[run_places.RunRecord, ...]
    hidden: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Returns the settings as on a command line, by their short names; "" if there is one group."""
        return ", ".join(f"{short(name)}={options.shown(value)}" for name, value in self.settings.items())


def values(run: run_places.RunRecord) -> dict[str, options.Value]:
    """Returns the settings of a run that its agent reads, by SECTION.KEY, the preset first."""
    config = run.saved.config
    read = {name: value for name, value in configs.flatten(config).items() if configs.is_read(name, config)}
    return {PRESET: run.saved.preset, **read}


def different(every: Sequence[Values]) -> list[str]:
    """Returns the names of settings whose values differ, or that some runs lack."""
    names = dict.fromkeys(name for each in every for name in each)
    return [name for name in names if any(each.get(name) != every[0].get(name) for each in every)]


def group(runs: Sequence[run_places.RunRecord], by: Sequence[str] | None = None) -> list[RunGroup]:
    """Returns the groups of runs, in the order of their settings' values.

    by: the settings that count, as `read_names` returns them. None: all except the seed, the ends of runs, settings of
    files, network and evaluations, and those that the machine chooses or each start sets, unless they were given.
    """
    known = [values(run) for run in runs]
    counted = [name for name in different(known) if _counts(name, runs)]
    names = counted if by is None else list(by)
    found: dict[tuple[options.Value | None, ...], list[int]] = {}
    for index, each in enumerate(known):
        found.setdefault(tuple(each.get(name) for name in names), []).append(index)
    keys = sorted(found, key=lambda key: [_order(value) for value in key])
    shown = _telling(names, keys, runs)
    result = []
    for key in keys:
        members = [known[index] for index in found[key]]
        settings = {name: members[0][name] for name in shown if name in members[0]}
        hidden = tuple(name for name in different(members) if name in counted)
        result.append(RunGroup(settings, tuple(runs[index] for index in found[key]), hidden))
    return result


def read_names(text: str, runs: Sequence[run_places.RunRecord]) -> list[str]:
    """Returns the settings in a list such as agent,optimizer.learning_rate.

    Raises UsageError for an unknown name or the seed. runs: they know the settings of your own agents.
    """
    known = dict.fromkeys([*configs.fields(), *(name for run in runs for name in values(run))])
    found = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        full = configs.ALIASES.get(name, name)
        if full != PRESET and full not in known:
            nearest = configs.suggestion(name, [PRESET, *known, *configs.ALIASES], configs.agent_names()[0])
            raise errors.UsageError(f"--by={text}: there is no setting {name}{nearest}")
        if full == SEED:
            raise errors.UsageError(f"--by={text}: the mean is over seeds; leave {name} out")
        found.append(full)
    return found


def short(name: str) -> str:
    """Returns a setting's short name, such as agent for run.agent."""
    return configs.flag(name).removeprefix("--")


def _counts(name: str, runs: Sequence[run_places.RunRecord]) -> bool:
    """Returns whether runs with other values of a setting are different experiments."""
    if name == PRESET:
        return True
    if name == SEED or name in ends.NONE or name.partition(".")[0] in _OF_THE_HOST:
        return False
    field = configs.fields().get(name)  # None: a setting of your own agent
    is_chosen = name in _OF_THE_MACHINE or (field is not None and field.metadata["resumable"] == options.ANY_TIME)
    return not is_chosen or any(name in run.saved.given for run in runs)


def _telling(
    names: Sequence[str], keys: Collection[tuple[options.Value | None, ...]], runs: Sequence[run_places.RunRecord]
) -> list[str]:
    """Returns the names that distinguish the groups: the given settings if these do, otherwise all that differ."""
    columns = [(name, {key[place] for key in keys}) for place, name in enumerate(names)]
    differing = [name for name, found in columns if len(found) > 1]
    given = [name for name in differing if name == PRESET or any(name in run.saved.given for run in runs)]
    places = [names.index(name) for name in given]
    return given if len({tuple(key[place] for place in places) for key in keys}) == len(keys) else differing


def _order(value: options.Value | None) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))
