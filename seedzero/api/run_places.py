"""Finds runs by directory, by directory of runs, by pattern and in buckets, and reads their settings and metrics."""

from __future__ import annotations

import dataclasses
import glob
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence

from seedzero.core import errors
from seedzero.monitoring import metrics_log, series
from seedzero.storage.bucket import bucket, lease, run_copy
from seedzero.storage.checkpoints import run_dirs, run_lock, spec_file

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


def find(places: Sequence[str], note: Callable[[str], object]) -> list[str]:
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


def read_all(places: Sequence[str], wanted: Sequence[str], note: Callable[[str], object]) -> list[RunRecord]:
    """Returns the runs that `find` finds, with series as of `read`, without those that cannot be read.

    note: takes a sentence about each that is left out. Raises as `find`, and as `read` if no run can be read.
    """
    runs, failures = list[RunRecord](), list[errors.Error]()
    for place in find(places, note):
        try:
            runs.append(read(place, wanted))
        except (errors.ResumeError, errors.BucketError) as error:
            failures.append(error)
    if not runs and failures:
        raise failures[0]
    for failure in failures:
        note(f"left out: {failure}")
    return runs


def read(place: str, wanted: Sequence[str]) -> RunRecord:
    """Returns a run with a series of metrics, as `series.read` does; in a bucket it is the last upload.

    Raises ResumeError if there is no run, and BucketError.
    """
    with run_copy.local(place, _fetch) as path:
        saved, spec, status = run_dirs.read_saved(path), spec_file.read(path), run_dirs.read_status(path) or {}
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
