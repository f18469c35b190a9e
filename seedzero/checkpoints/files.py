"""Checkpoints on the disk: where they lie, whether they are whole, which ones stay, and loading parameters alone.

    DIRECTORY/steps/000000001000/     manifest.json and one Orbax directory a part: params, state, replay
    DIRECTORY/segments/NAME/          observations of the replay, shared between steps
    DIRECTORY/best/000000000500/      manifest.json and params

Reading writes nothing, so it is safe beside a running learner.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal

from seedzero.checkpoints import durable, manifest, trees
from seedzero.core import errors

STEPS = "steps"
SEGMENTS = "segments"
BEST = "best"
PARAMS = "params"

Step = int | Literal["last", "best"]


def step_directory(directory: pathlib.Path, step: int) -> pathlib.Path:
    """Returns where a step's checkpoint lies."""
    return directory / STEPS / f"{step:012d}"


def finished(parent: pathlib.Path) -> list[int]:
    """Returns the steps of the finished checkpoints in a directory, oldest first."""
    if not parent.is_dir():
        return []
    return sorted(int(path.name) for path in parent.iterdir() if path.name.isdigit())


def prepare(directory: pathlib.Path) -> None:
    """Makes the directories and deletes what a crash left in them; only the run's owner may.

    Raises:
      CheckpointError: the directory cannot be written.
    """
    try:
        for name in (STEPS, SEGMENTS, BEST):
            (directory / name).mkdir(parents=True, exist_ok=True)
            durable.remove_leftovers(directory / name)
        remove_unreferenced(directory)
        # Fails here rather than at the first checkpoint where the directory is read-only.
        with durable.new_directory(directory / STEPS / "writable"):
            pass
        durable.remove(directory / STEPS / "writable")
    except OSError as error:
        raise errors.CheckpointError(
            f"the checkpoint directory {directory} cannot be written: {error.strerror}; "
            f"make it writable or choose another --run_dir"
        ) from error


def manifests(directory: pathlib.Path) -> Iterator[manifest.Manifest]:
    """Yields the readable manifests of all steps, oldest first."""
    for step in finished(directory / STEPS):
        try:
            yield manifest.read(step_directory(directory, step))
        except errors.CheckpointError:
            continue


def remove_unreferenced(directory: pathlib.Path) -> None:
    """Deletes the segments that no step needs.

    Raises:
      OSError: one could not be deleted.
    """
    referenced = {name for found in manifests(directory) for name in found.segments}
    for path in (directory / SEGMENTS).iterdir():
        if path.name not in referenced:
            durable.remove(path)


def kept_steps(
    steps: Collection[int], *, for_good: Collection[int], keep: int, newest: int, unusable: Collection[int]
) -> set[int]:
    """Returns which steps stay.

    Args:
      steps: that are there.
      for_good: those of them that are kept for good.
      keep: so many of the newest stay besides.
      newest: the step just written; later ones are of a past that was given up.
      unusable: steps found damaged.
    """
    usable = sorted(step for step in steps if step <= newest and step not in unusable)
    return {*usable[-keep:], *(step for step in usable if step in for_good)}


def make_room(directory: pathlib.Path, *, keep: int, newest: int, unusable: Collection[int]) -> None:
    """Deletes the steps and segments that are not kept.

    Args:
      directory: of the checkpoints.
      keep: so many of the newest stay, besides those kept for good.
      newest: the step just written; later ones are of a past that was given up.
      unusable: steps found damaged.

    Raises:
      OSError: something could not be deleted.
    """
    steps = finished(directory / STEPS)
    for_good = {found.step for found in manifests(directory) if found.kept_for_good}
    kept = kept_steps(steps, for_good=for_good, keep=keep, newest=newest, unusable=unusable)
    for step in steps:
        if step not in kept:
            durable.remove(step_directory(directory, step))
    remove_unreferenced(directory)


def verified(
    directory: pathlib.Path, path: pathlib.Path, *, content: bool = True, params_only: bool = False
) -> manifest.Manifest:
    """Returns the manifest of a checkpoint that is whole.

    Args:
      directory: of all checkpoints.
      path: of this one.
      content: true: compare all checksums; false: sizes only.
      params_only: true: look at the parameters alone.

    Raises:
      CheckpointError: something is missing or damaged.
    """
    found = manifest.read(path)
    if params_only:
        params = {name: file for name, file in found.files.items() if name.startswith(f"{PARAMS}/")}
        manifest.check(path, params, content=content)
        return found
    manifest.check(path, found.files, content=content)
    for name, files in found.segments.items():
        manifest.check(directory / SEGMENTS / name, files, content=content)
    return found


def newest_verified(
    directory: pathlib.Path, *, params_only: bool = False
) -> tuple[manifest.Manifest | None, dict[int, str]]:
    """Returns the newest checkpoint that is whole, None if there is none, and why newer ones are not.

    Args:
      directory: of the checkpoints.
      params_only: true: whose parameters are whole.
    """
    skipped: dict[int, str] = {}
    while True:
        steps = [step for step in finished(directory / STEPS) if step not in skipped]
        if not steps:
            return None, skipped
        try:
            return verified(directory, step_directory(directory, steps[-1]), params_only=params_only), skipped
        except errors.CheckpointError as error:
            skipped[steps[-1]] = f"checkpoint {steps[-1]} is skipped: {error}"


def find(directory: pathlib.Path, step: Step, *, params_only: bool = False) -> tuple[pathlib.Path, manifest.Manifest]:
    """Returns a checkpoint that is whole.

    Args:
      directory: of the checkpoints.
      step: updates done, "last" (the newest that is whole) or "best".
      params_only: true: one whose parameters are whole.

    Raises:
      CheckpointError: there is none, or it is damaged.
    """
    if step == "last":
        found, skipped = newest_verified(directory, params_only=params_only)
        if found is None:
            reasons = "; ".join(skipped.values()) or "none was written yet"
            raise errors.CheckpointError(f"no usable checkpoint in {directory}: {reasons}")
        return step_directory(directory, found.step), found
    parent = directory / (BEST if step == "best" else STEPS)
    steps = finished(parent)
    if not steps or (step != "best" and step not in steps):
        available = ", ".join(map(str, finished(directory / STEPS))) or "none"
        raise errors.CheckpointError(f"no checkpoint {step} in {directory}; there are: {available}")
    path = parent / f"{steps[-1] if step == 'best' else step:012d}"
    try:
        return path, verified(directory, path, params_only=params_only)
    except errors.CheckpointError as error:
        raise errors.CheckpointError(f"checkpoint {step} in {directory} cannot be used: {error}") from error


def restore_params(directory: pathlib.Path, step: Step, like: trees.Tree = None) -> tuple[trees.Tree, dict[str, Any]]:
    """Returns the parameters of a checkpoint and what is known of it.

    Args:
      directory: of the checkpoints.
      step: updates done, "last" (the newest that is whole) or "best".
      like: arrays or `jax.ShapeDtypeStruct`s to restore into; None: dicts of dicts, on the default device.

    Raises:
      CheckpointError: there is none, or it is damaged.
      ResumeError: it does not fit `like`.
    """
    path, found = find(directory, step, params_only=True)
    leaves = found.arrays[PARAMS]
    if like is not None:
        trees.check_fits(leaves, {PARAMS: like})
    arrays = trees.load(path / PARAMS, leaves)
    info = {"step": found.step, "time": found.time, "host": found.host}
    if like is not None:
        return trees.place(arrays, like), info
    return trees.nested(leaves, arrays)[PARAMS], info


def list_steps(directory: pathlib.Path) -> list[dict[str, Any]]:
    """Returns a row for each checkpoint, oldest first, the best one last; files are not read."""
    return _rows(directory, functools.partial(verified, directory, content=False))


def verify(directory: pathlib.Path) -> list[dict[str, Any]]:
    """Returns a row for each checkpoint, oldest first, the best one last; every file is read."""
    return _rows(directory, functools.partial(verified, directory))


def list_manifests(directory: pathlib.Path, missing: Callable[[str], list[str]]) -> list[dict[str, Any]]:
    """Returns rows as `list_steps` where only manifests are on this disk.

    Args:
      directory: of the checkpoints.
      missing: returns the files that a checkpoint lacks elsewhere, by its path in the directory.
    """

    def check(path: pathlib.Path) -> None:
        names = missing(path.relative_to(directory).as_posix())
        if names:
            raise errors.CheckpointError(f"{names[0]} is missing")

    return _rows(directory, check)


def _rows(directory: pathlib.Path, check: Callable[[pathlib.Path], object]) -> list[dict[str, Any]]:
    found = [(directory / STEPS, step) for step in finished(directory / STEPS)]
    found += [(directory / BEST, step) for step in finished(directory / BEST)[-1:]]
    return [_row(parent, step, check) for parent, step in found]


def _row(parent: pathlib.Path, step: int, check: Callable[[pathlib.Path], object]) -> dict[str, Any]:
    row: dict[str, Any] = {"step": step, "best": parent.name == BEST, "ok": True, "reason": None}
    path = parent / f"{step:012d}"
    row |= {"bytes": None, "time": None, "has_replay": None, "kept_for_good": None}
    try:
        row |= _facts(manifest.read(path))
        check(path)
    except errors.CheckpointError as error:
        row |= {"ok": False, "reason": str(error)}
    return row


def _facts(found: manifest.Manifest) -> Mapping[str, Any]:
    return {
        "bytes": found.num_bytes,
        "time": found.time,
        "has_replay": found.has_replay,
        "kept_for_good": found.kept_for_good,
    }
