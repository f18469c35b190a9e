"""Runs a sweep: every combination of settings' values, each in a directory of its own."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from seedzero.api import request, run_groups
from seedzero.config import configs, options, sections
from seedzero.core import env_ids, errors
from seedzero.storage.checkpoints import run_dirs

FINISHED, STOPPED, FAILED, SKIPPED = "finished", "stopped", "failed", "finished before"
"""States of a sweep's run."""
_MOST_LETTERS = 120
"""Longest name of a directory; a longer one ends with a hash."""


class PlannedRun(NamedTuple):
    """A run of a sweep. name: its directory's.

    flags, settings: those of `seedzero train`; run_dir is among the flags.
    """

    name: str
    flags: Mapping[str, str]
    settings: Mapping[str, str]

    @property
    def path(self) -> pathlib.Path:
        return pathlib.Path(self.flags["run_dir"])


def kind_of(texts: Mapping[str, str], settings: Mapping[str, str]) -> type[configs.Config]:
    """Returns the configuration class of the agent that a sweep's texts or settings name, for the values' types.

    Raises UsageError for settings of an agent of your own beside other agents, and ConfigError as `configs.kind_of`.
    """
    agent = texts.get("run.agent") or settings.get("run.agent", "")
    kind = configs.kind_of("" if "," in agent else agent)
    if unknown := sorted(texts.keys() - configs.fields(kind).keys() - {run_groups.PRESET}):
        raise errors.UsageError(
            f"--{unknown[0]} is a setting of one agent, and --agent={agent} names several; sweep one agent at a time"
        )
    return kind


def read_values(name: str, text: str, kind: type[configs.Config] = configs.Config) -> list[str]:
    """Returns the values in a list with commas; a value that contains a comma is in double quotes, as in CSV.

    A value may have several lines, as JSON often has; line ends count as spaces. Raises UsageError for a value that
    occurs twice or is too long, and ConfigError for one of the wrong type. kind: see `kind_of`.
    """
    try:
        (found,) = csv.reader([" ".join(text.splitlines())], skipinitialspace=True)
    except csv.Error as error:
        raise errors.UsageError(
            f"--{run_groups.short(name)} has {len(text):,} letters that are no list of values: {error}"
        ) from None
    found = found or [""]
    if name != run_groups.PRESET:
        of_setting = type(configs.fields(kind)[name].default)
        found = [plain(options.parse(run_groups.short(name), value, of_setting)) for value in found]
    if twice := {value for value in found if found.count(value) > 1}:
        raise errors.UsageError(f"--{run_groups.short(name)}={text}: {min(twice)} occurs twice; leave it out once")
    return found


def plain(value: options.Value) -> str:
    """Returns a value as on a command line."""
    return value if isinstance(value, str) else options.shown(value)


def swept(values: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the settings with several values. The seed comes last and names a directory even with a single value."""
    several = [name for name, found in values.items() if len(found) > 1 and name != run_groups.SEED]
    return [*several, *([run_groups.SEED] if run_groups.SEED in values else [])]


def plan(
    values: Mapping[str, Sequence[str]], flags: Mapping[str, str], settings: Mapping[str, str], directory: str
) -> list[PlannedRun]:
    """Returns every combination of values; the last setting changes first.

    Args:
      values: the values of each SECTION.KEY, or of "preset".
      flags, settings: those that all runs share.
      directory: where to put the runs. "" is a directory in ./runs named by environment, agent and the settings of all
        runs, so that the same sweep finds it again.

    Raises UsageError for a setting that is both shared and varied, and if nothing to train on is given.
    """
    root = find_root(values, flags, settings, directory)
    names = [name for name in values if name not in swept(values)] + swept(values)
    every = [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*(values[name] for name in names))]
    return [make(root / _name({**flags, **settings, **own}, swept(values)), own, flags, settings) for own in every]


def make(
    path: pathlib.Path, own: Mapping[str, str], flags: Mapping[str, str], settings: Mapping[str, str]
) -> PlannedRun:
    """Returns a run with values of its own, by SECTION.KEY or "preset"."""
    preset = {name: value for name, value in own.items() if name == run_groups.PRESET}
    others = {name: value for name, value in {**settings, **own}.items() if name not in preset}
    if origin := others.get(run_dirs.ORIGIN_SETTING):
        others[run_dirs.ORIGIN_SETTING] = run_dirs.parse_origin(
            origin
        ).text  # as the run directory saves it, see `finished`
    return PlannedRun(path.name, {**flags, **preset, "run_dir": str(path)}, others)


def find_root(
    values: Mapping[str, Sequence[str]],
    flags: Mapping[str, str],
    settings: Mapping[str, str],
    directory: str,
    kind: str = "sweep",
) -> pathlib.Path:
    """Returns the directory of a sweep's runs. kind: begins its name in ./runs. Raises UsageError, as `plan`."""
    if both := values.keys() & {**flags, **settings}.keys():
        name = run_groups.short(min(both))
        raise errors.UsageError(f"--{name} is given before -- and after it; give it once")
    first = {**flags, **settings, **{name: found[0] for name, found in values.items()}}
    if not {run_groups.PRESET, "env.id"} & first.keys():
        raise errors.UsageError(
            "nothing to train on is given: --env=ENV or --preset=NAME, as in `seedzero sweep --seeds=1,2,3 -- "
            "--env=gym:CartPole-v1 --agent=ppo`"
        )
    several = {name for name, found in values.items() if len(found) > 1}
    is_mixed = not several.isdisjoint({"env.id", run_groups.PRESET})
    what = "several" if is_mixed else first.get("env.id") or first[run_groups.PRESET]
    fixed = {name: value for name, value in first.items() if name not in {*several, run_groups.SEED}}
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:6]
    return pathlib.Path(directory or f"runs/{kind}-{env_ids.file_name(what)}-{digest}")


def _name(own: Mapping[str, str], names: Sequence[str]) -> str:
    """Returns a name such as optimizer.learning_rate=0.001_seed=1. It has no commas, where gRPC splits addresses."""
    text = "_".join(f"{run_groups.short(name)}={own[name]}" for name in names) or "run"
    safe = re.sub(r"[^\w.=+-]", "-", text, flags=re.ASCII)
    if safe == text and len(text) <= _MOST_LETTERS:
        return text
    return f"{safe[:_MOST_LETTERS]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def check(planned: Sequence[PlannedRun]) -> None:
    """Rejects wrong settings of any run, as `seedzero train` would.

    Runs that differ only in the seed are checked once.
    """
    seen = set()
    for run in planned:
        asked = request.make(run.flags, run.settings)
        key = json.dumps([asked.preset, {**run.settings, run_groups.SEED: ""}], sort_keys=True)
        if key not in seen:
            seen.add(key)
            request.check_early(asked)


def finished(run: PlannedRun) -> str:
    """Returns why a run ended; "" if it has not ended, or ended with other settings than now."""
    if not os.path.exists(run.path / run_dirs.CONFIG_FILE):
        return ""
    saved, status = run_dirs.read_saved(run.path), run_dirs.read_status(run.path) or {}
    preset = run.flags.get(run_groups.PRESET, saved.preset)
    kept = {name: value for name, value in run.settings.items() if name not in sections.OF_A_PROCESS}
    is_same = (preset, kept) == (saved.preset, saved.given)
    return str(status.get("finished") or "") if is_same else ""


class Grid:
    """The runs of a sweep and their ends: every combination of values, each trained once.

    planned: those known so far, of `total`. varied: the settings in which they differ, except the seed. states:
    name -> state and reason of each run that has ended.
    """

    def __init__(self, planned: Sequence[PlannedRun], root: pathlib.Path, total: int, varied: Sequence[str]) -> None:
        self.planned, self.root, self.total, self.varied = list(planned), root, total, varied
        found = [(run.name, finished(run)) for run in planned]
        self.states = {name: (SKIPPED, reason) for name, reason in found if reason}

    def todo(self) -> Iterator[PlannedRun]:
        """Yields the runs to train, each when there is room for it."""
        yield from [run for run in self.planned if run.name not in self.states]

    def is_bad(self, run: PlannedRun) -> bool:
        """Returns whether to end a run now; called whenever it prints a line."""
        return False

    def end(self, run: PlannedRun, failure: str) -> tuple[str, str]:
        """Takes the end of a run, with what it failed of; returns state and reason."""
        reason = failure or finished(run)
        self.states[run.name] = FAILED if failure else FINISHED if reason else STOPPED, reason
        return self.states[run.name]
