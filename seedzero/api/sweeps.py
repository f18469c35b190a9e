"""Runs a sweep: every combination of settings' values, each in a directory of its own."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from seedzero.api import request, run_groups
from seedzero.checkpoints import run_dirs
from seedzero.config import configs, options
from seedzero.core import env_ids, errors

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


def read_values(name: str, text: str) -> list[str]:
    """Returns the values in a list with commas; a value that contains a comma is in double quotes, as in CSV.

    A value may have several lines, as JSON often has; line ends count as spaces. Raises UsageError for a value that
    occurs twice or is too long, and ConfigError for one of the wrong type.
    """
    try:
        (found,) = csv.reader([" ".join(text.splitlines())], skipinitialspace=True)
    except csv.Error as error:
        raise errors.UsageError(
            f"--{run_groups.short(name)} has {len(text):,} letters that are no list of values: {error}"
        ) from None
    if name != run_groups.PRESET:
        kind = type(configs.fields()[name].default)
        found = [_plain(options.parse(run_groups.short(name), value, kind)) for value in found or [""]]
    if twice := {value for value in found if found.count(value) > 1}:
        raise errors.UsageError(f"--{run_groups.short(name)}={text}: {min(twice)} occurs twice; leave it out once")
    return found


def _plain(value: options.Value) -> str:
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
    if both := values.keys() & {**flags, **settings}.keys():
        name = run_groups.short(min(both))
        raise errors.UsageError(f"--{name} is given before -- and after it; give it once")
    names = [name for name in values if name not in swept(values)] + swept(values)
    planned = []
    for chosen in itertools.product(*(values[name] for name in names)):
        own = dict(zip(names, chosen, strict=True))
        preset = {name: own.pop(name) for name in (run_groups.PRESET,) if name in own}
        planned.append(PlannedRun("", {**flags, **preset}, {**settings, **own}))
    first = planned[0]
    if run_groups.PRESET not in first.flags and "env.id" not in first.settings:
        raise errors.UsageError(
            "nothing to train on is given: --env=ENV or --preset=NAME, as in `seedzero sweep --seeds=1,2,3 -- "
            "--env=gym:CartPole-v1 --agent=ppo`"
        )
    root = pathlib.Path(directory or _default_directory(values, first, flags, settings))
    named = [run._replace(name=_name({**run.flags, **run.settings}, swept(values))) for run in planned]
    return [run._replace(flags={**run.flags, "run_dir": str(root / run.name)}) for run in named]


def _default_directory(
    values: Mapping[str, Sequence[str]], first: PlannedRun, flags: Mapping[str, str], settings: Mapping[str, str]
) -> str:
    fixed = {**flags, **settings, **{name: found[0] for name, found in values.items() if len(found) == 1}}
    fixed.pop(run_groups.SEED, None)
    is_mixed = any(len(values.get(name, ())) > 1 for name in ("env.id", run_groups.PRESET))
    what = "several" if is_mixed else first.settings.get("env.id") or first.flags["preset"]
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:6]
    return f"runs/sweep-{env_ids.file_name(what)}-{digest}"


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
    is_same = (preset, run.settings) == (saved.preset, saved.given)
    return str(status.get("finished") or "") if is_same else ""
