"""Finds runs and reads their scores; groups those that differ in their seed alone, and finds how groups differ."""

from __future__ import annotations

import dataclasses
import glob
import math
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.config import configs, options, presets
from seedzero.core import errors
from seedzero.monitoring import metrics_log, series
from seedzero.storage.bucket import bucket, lease, run_copy
from seedzero.storage.checkpoints import run_dirs, run_lock

# Finds runs by directory, by directory of runs, by pattern and in buckets, and reads their settings and metrics.
TRAINING, FINISHED, STOPPED, UNKNOWN = "training", "finished", "stopped", run_lock.UNKNOWN
"""The states of a run: a learner is running; a budget or a return ended it; it can be resumed."""


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A run as its directory shows it. place: the user's name for it. finished: why it ended, or ""."""

    place: str
    saved: run_dirs.SavedConfig
    series: series.Series
    frames_per_step: int
    state: str
    finished: str = ""


def find_runs(places: Sequence[str], note: Callable[[str], object]) -> list[str]:
    """Returns the runs at places, each once and in order; runs below a directory are sorted by name.

    places: run directories, directories of runs, patterns of either, and runs in buckets. note: takes a sentence about
    a directory that looks like a run and is none. Raises ResumeError for a place without a run.
    """
    found: dict[str, str] = {}
    for place in places:
        if "://" in place:
            found.setdefault(place, place)
            continue
        paths = [place] if os.path.exists(place) else sorted(glob.glob(place, recursive=True))
        runs = [run for path in paths for run in _below(path, note)]
        if not runs:
            missing = (
                "there is no such directory" if not paths else f"there is no {run_dirs.CONFIG_FILE} in or below it"
            )
            raise errors.ResumeError(
                f"{place} holds no run: {missing}; give a run directory, a directory of runs or a pattern of these"
            )
        for run in runs:
            found.setdefault(os.path.realpath(run), run)
    return list(found.values())


def _below(path: str, note: Callable[[str], object]) -> Iterator[str]:
    """Yields the run directories at and below a path.

    Links to a run are followed, but not links to directories of runs.
    """
    if os.path.exists(os.path.join(path, run_dirs.CONFIG_FILE)):
        yield path
        return
    for folder, names, _ in os.walk(path):
        names.sort()
        for name in list(names):
            run = os.path.join(folder, name)
            if not os.path.exists(os.path.join(run, run_dirs.CONFIG_FILE)):
                continue
            names.remove(name)
            try:
                run_dirs.read_saved(run)
            except errors.ResumeError as error:
                note(f"left out: {error}")
            else:
                yield run


def read_runs(places: Sequence[str], wanted: Sequence[str], note: Callable[[str], object]) -> list[RunRecord]:
    """Returns the runs that `find` finds, with series as of `read`, without those that cannot be read.

    note: takes a sentence about each that is left out. Raises as `find`, and as `read` if no run can be read.
    """
    runs, failures = list[RunRecord](), list[errors.Error]()
    for place in find_runs(places, note):
        try:
            runs.append(read_run(place, wanted))
        except (errors.ResumeError, errors.BucketError) as error:
            failures.append(error)
    if not runs and failures:
        raise failures[0]
    for failure in failures:
        note(f"left out: {failure}")
    return runs


def read_run(place: str, wanted: Sequence[str]) -> RunRecord:
    """Returns a run with a series of metrics, as `series.read` does; in a bucket it is the last upload.

    Raises ResumeError if there is no run, and BucketError.
    """
    with run_copy.local(place, _fetch) as path:
        saved, spec, status = run_dirs.read_saved(path), run_dirs.read_spec(path), run_dirs.read_status(path) or {}
        found = series.read(path, wanted)
        holder = run_dirs.holder(path)
        is_training = holder is not None if (url := bucket.parse(place)) is None else _is_leased(path, url)
    finished = str(status.get("finished") or "")
    state = UNKNOWN if holder == run_lock.UNKNOWN else TRAINING if is_training else FINISHED if finished else STOPPED
    return RunRecord(place, saved, found, spec.frames_per_step if spec else 1, state, finished)


def _fetch(copy: run_copy.Copy) -> None:
    for name in (metrics_log.METRICS_FILE, lease.NAME):
        copy.fetch(name)


def _is_leased(path: pathlib.Path, url: bucket.Url) -> bool:
    """Returns whether a learner uses a run in a bucket: the last status of a dead one still calls it alive."""
    file = path / lease.NAME
    return file.exists() and lease.parse(file.read_bytes(), url).is_fresh(time.time())


def short_names(places: Sequence[str]) -> list[str]:
    """Returns the places without the directories that they share, but always with the last name."""
    parts = [pathlib.PurePath(place).parts for place in places]
    shared = 0
    while all(len(part) > shared + 1 for part in parts) and len({part[shared] for part in parts}) == 1:
        shared += 1
    return [str(pathlib.PurePath(*part[shared:])) for part in parts]


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
    runs: tuple[RunRecord, ...]
    hidden: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Returns the settings as on a command line, by their short names; "" if there is one group."""
        return ", ".join(f"{short(name)}={options.shown(value)}" for name, value in self.settings.items())


def values(run: RunRecord) -> dict[str, options.Value]:
    """Returns the settings of a run that its agent reads, by SECTION.KEY, the preset first."""
    config = run.saved.config
    read = {name: value for name, value in configs.flatten(config).items() if configs.is_read(name, config)}
    return {PRESET: run.saved.preset, **read}


def different(every: Sequence[Values]) -> list[str]:
    """Returns the names of settings whose values differ, or that some runs lack."""
    names = dict.fromkeys(name for each in every for name in each)
    return [name for name in names if any(each.get(name) != every[0].get(name) for each in every)]


def group(runs: Sequence[RunRecord], by: Sequence[str] | None = None) -> list[RunGroup]:
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


def read_names(text: str, runs: Sequence[RunRecord]) -> list[str]:
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


def _counts(name: str, runs: Sequence[RunRecord]) -> bool:
    """Returns whether runs with other values of a setting are different experiments."""
    if name == PRESET:
        return True
    if name == SEED or name in presets.NO_END or name.partition(".")[0] in _OF_THE_HOST:
        return False
    field = configs.fields().get(name)  # None: a setting of your own agent
    is_chosen = name in _OF_THE_MACHINE or (field is not None and field.metadata["resumable"] == options.ANY_TIME)
    return not is_chosen or any(name in run.saved.given for run in runs)


def _telling(
    names: Sequence[str], keys: Collection[tuple[options.Value | None, ...]], runs: Sequence[RunRecord]
) -> list[str]:
    """Returns the names that distinguish the groups: the given settings if these do, otherwise all that differ."""
    columns = [(name, {key[place] for key in keys}) for place, name in enumerate(names)]
    differing = [name for name, found in columns if len(found) > 1]
    given = [name for name in differing if name == PRESET or any(name in run.saved.given for run in runs)]
    places = [names.index(name) for name in given]
    return given if len({tuple(key[place] for place in places) for key in keys}) == len(keys) else differing


def _order(value: options.Value | None) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))


METRICS = (series.EVALUATION, "evaluation_std_return", "evaluation_episodes")
"""The metrics that are read of a run."""


class SavedScore(NamedTuple):
    """An evaluation of a run during training. stderr: standard error over episodes, None with one episode."""

    mean: float
    stderr: float | None
    episodes: int
    update: int
    env_steps: int


class Difference(NamedTuple):
    """A setting in which runs differ.

    values: one for each group, as on a command line; None if its agent does not read the setting. given: whether a
    command line of the group's runs named it.
    """

    name: str
    values: tuple[str | None, ...]
    given: tuple[bool, ...]


def last(run: RunRecord) -> SavedScore | None:
    """Returns the last whole evaluation, or None if there is none yet."""
    return _score(run, -1) if len(run.series.values) else None


def best(run: RunRecord) -> SavedScore | None:
    """Returns the first evaluation with the highest mean return; the baseline, of the first period, does not count."""
    means, every = run.series.values[:, 0], run.saved.config.evaluation.every_updates
    begin = int(np.count_nonzero(run.series.places[:1, 0] < every))  # the series lacks one that was cut short
    return _score(run, begin + int(np.argmax(means[begin:]))) if len(means) > begin else None


def _score(run: RunRecord, index: int) -> SavedScore:
    place = series.RowPlace(*run.series.places[index])
    mean, std, episodes = run.series.values[index]
    number = int(episodes) if math.isfinite(episodes) else 0
    stderr = float(std) / math.sqrt(number - 1) if number > 1 and math.isfinite(std) else None
    return SavedScore(float(mean), stderr, number, int(place.update), int(place.env_steps))


def score_of_run(run: RunRecord) -> dict[str, Any]:
    """Returns a run's totals and scores as JSON."""
    place, found = run.series.last, {"last": last(run), "best": best(run)}
    return {
        "run_dir": run.place,
        "seed": run.saved.config.run.seed,
        "state": run.state,
        "finished": run.finished or None,
        "env_steps": int(place.env_steps),
        "updates": int(place.update),
        "seconds": round(place.seconds, 1),
        "env_steps_per_second": place.env_steps / place.seconds if place.seconds else None,
        **{name: score._asdict() if score else None for name, score in found.items()},
    }


def score_of_group(group: RunGroup) -> dict[str, Any]:
    """Returns a group's scores as JSON: the mean over its runs with a 95 % interval, and the median."""
    scores = {"last": [last(run) for run in group.runs], "best": [best(run) for run in group.runs]}
    return {
        "settings": dict(group.settings),
        "runs": [run.place for run in group.runs],
        **{name: _over([score.mean for score in found if score]) for name, found in scores.items()},
    }


def _over(means: Sequence[float]) -> dict[str, Any] | None:
    """Returns statistics over runs, or None if no run has a score."""
    if not means:
        return None
    return {"runs": len(means), **series.interval(means)._asdict(), "median": statistics.median(means)}


def differences(groups: Sequence[RunGroup]) -> list[Difference]:
    """Returns the settings in which the runs differ, except the seed."""
    known = [[values(run) for run in group.runs] for group in groups]
    names = different([each for members in known for each in members])
    return [_difference(name, groups, known) for name in names if name != SEED]


def _difference(name: str, groups: Sequence[RunGroup], known: Sequence[Sequence[Values]]) -> Difference:
    values, given = [], []
    for group, members in zip(groups, known, strict=True):
        shown = dict.fromkeys(options.shown(each[name]) for each in members if name in each)
        values.append(" | ".join(shown) or None)
        given.append(any(name in run.saved.given for run in group.runs))
    return Difference(short(name), tuple(values), tuple(given))
