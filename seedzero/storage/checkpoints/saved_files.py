"""Finds, checks and deletes checkpoints on the disk, and loads only their parameters.

    DIRECTORY/steps/000000001000/     manifest.json and a directory of arrays for each part: params, state, replay
                                      (for several players, players/NAME/params and players/NAME/state)
                                      (host I > 0 of several has only the replay; host 0 has the rest for all)
    DIRECTORY/segments/NAME/          observations of the replay, shared between steps
    DIRECTORY/frozen/NAME/            manifest.json and params of a frozen player, shared between steps
    DIRECTORY/best/000000000500/      manifest.json and params

Reading never writes, and is safe while a learner runs.
"""

from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from seedzero.config import league_config
from seedzero.core import errors, plain_files
from seedzero.storage.checkpoints import durable, manifest, trees

STEPS = "steps"
SEGMENTS = "segments"
FROZEN = "frozen"
BEST = "best"
PARAMS = "params"
SCALES = "scales"
"""A frozen player's statistics that its parameters depend on."""
PLAYERS = "players"
REPLAY = "replay"
_SEGMENT = re.compile(r"[0-9]{12,}-[0-9a-f]{8}-[0-9]{4,}")
FROZEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*-[0-9a-f]{12}")
"""Names of segments and of frozen players; anything else in their directories does not belong to the run."""

finished = durable.numbered
"""Returns the steps of the finished checkpoints in a directory, oldest first."""

Step = int | Literal["last", "best"]

Scope = Literal["all", "replay", "state", "params"]
"""Which files of a checkpoint are meant.

"all": all files; "replay": all but the frozen players'; "state": these without the replay's; "params": only the
parameters'.
"""


def step_directory(directory: pathlib.Path, step: int) -> pathlib.Path:
    """Returns the directory of a step's checkpoint."""
    return directory / STEPS / f"{step:012d}"


def prepare(directory: pathlib.Path) -> None:
    """Makes the directories and deletes the leftovers of a crash; only the run's owner may call it.

    Raises CheckpointError if the directory cannot be written or has links, or if a manifest cannot be read.
    """
    places = [directory / name for name in (STEPS, SEGMENTS, BEST)]
    frozen = directory / FROZEN  # only a league needs it
    for link in durable.links(*places, frozen):
        raise errors.CheckpointError(f"{link} is a link: what it points to might be deleted; put a directory there")
    try:
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
        for place in (*places, *([frozen] if frozen.is_dir() else [])):
            durable.remove_leftovers(place)
        # nothing can be resumed, so a new run must not show the best of a lost one
        if not finished(directory / STEPS):
            for step in finished(directory / BEST):
                durable.remove(directory / BEST / f"{step:012d}")
        remove_unreferenced(directory)
        # A read-only directory fails here instead of at the first checkpoint.
        with durable.new_directory(directory / STEPS / "writable"):
            pass
        durable.remove(directory / STEPS / "writable")
    except OSError as error:
        raise errors.CheckpointError(
            f"the checkpoint directory {directory} cannot be written: {error.strerror}; "
            f"make it writable or choose another --run_dir"
        ) from error


def manifests(directory: pathlib.Path, kind: str = STEPS) -> Iterator[manifest.Manifest]:
    """Yields the undamaged manifests of all steps, or of the best ones, oldest first.

    Raises CheckpointError if one cannot be read, because it may be whole, and what it names must not be deleted.
    """
    for step in finished(directory / kind):
        path = directory / kind / f"{step:012d}" / manifest.NAME
        try:
            yield manifest.parse(plain_files.read(path), step)
        except (FileNotFoundError, NotADirectoryError, errors.CheckpointError):
            continue
        except OSError as error:
            raise errors.CheckpointError(
                f"{path} cannot be read: {error.strerror}; if that persists, move its directory elsewhere to "
                f"continue without it"
            ) from error


def remove_unreferenced(directory: pathlib.Path, pending: Collection[str] = ()) -> None:
    """Deletes the segments and frozen players that no checkpoint needs.

    pending: names that the next checkpoint may need. Raises OSError, or CheckpointError as `manifests` does.
    """
    found = [*manifests(directory), *manifests(directory, BEST)]
    needed = {name for one in found for name in (*one.segments, *one.frozen)}.union(pending)
    for kind, pattern in ((SEGMENTS, _SEGMENT), (FROZEN, FROZEN_NAME)):
        place = directory / kind
        for path in place.iterdir() if place.is_dir() else ():
            if path.name not in needed and pattern.fullmatch(path.name):
                durable.remove(path)


def kept_steps(
    steps: Collection[int], *, for_good: Collection[int], keep: int, newest: int, unusable: Collection[int]
) -> set[int]:
    """Returns the steps to keep: those in `for_good`, and the newest `keep`, without damaged (`unusable`) ones.

    Steps later than `newest`, which was just written, belong to an abandoned past.
    """
    usable = sorted(step for step in steps if step <= newest and step not in unusable)
    return {*usable[-keep:], *(step for step in usable if step in for_good)}


def own_files(found: manifest.Manifest, scope: Scope) -> dict[str, durable.Checksum]:
    """Returns the files of this scope in a checkpoint's own directory, without the manifest."""
    return {
        name: file
        for name, file in found.files.items()
        if scope in ("all", "replay") or (part_of(name) == PARAMS if scope == "params" else part_of(name) != REPLAY)
    }


def part_of(name: str) -> str:
    """Returns the part that a file belongs to, whichever player's it is."""
    words = name.split("/")
    return words[2] if words[0] == PLAYERS else words[0]


def verified(
    directory: pathlib.Path, path: pathlib.Path, *, content: bool = True, scope: Scope = "all"
) -> manifest.Manifest:
    """Checks the checkpoint at `path` and returns its manifest.

    Checks the files of `scope`: their checksums, or only their sizes if `content` is false. Raises CheckpointError if
    a file is missing or damaged.
    """
    found = manifest.read(path)
    manifest.check(path, own_files(found, scope), content=content)
    if scope in ("all", "replay"):
        check_segments(directory, found.segments, content=content)
    if scope == "all":
        for name, files in found.frozen.items():
            check_frozen(directory, name, files, content=content)
    return found


def check_has_state(run: object, found: manifest.Manifest) -> None:
    """Raises ResumeError if this host leaves its parameters to host 0. run: the run's path or URL."""
    if not found.has_state:
        raise errors.ResumeError(
            f"{run} is the part of one of several learner hosts, without parameters: host 0 saves them "
            "for all; give the run directory of host 0, which is the one above hosts/"
        )


def check_segments(directory: pathlib.Path, segments: Mapping[str, manifest.Files], *, content: bool) -> None:
    """Raises CheckpointError for a missing or damaged file of a segment. segments: each segment's files."""
    for name, files in segments.items():
        manifest.check(directory / SEGMENTS / name, files, content=content)


def check_frozen(directory: pathlib.Path, name: str, files: manifest.Files, *, content: bool) -> None:
    """Raises CheckpointError for a missing or damaged file of a frozen player."""
    try:
        manifest.check(directory / FROZEN / name, files, content=content)
    except errors.CheckpointError as error:
        raise errors.CheckpointError(f"the frozen player {name} cannot be used: {error}") from error


def newest_verified(directory: pathlib.Path, scope: Scope = "all") -> tuple[manifest.Manifest | None, dict[int, str]]:
    """Returns the newest whole checkpoint, or None, and why newer ones were skipped, by step.

    Checks as `verified` does.
    """
    skipped: dict[int, str] = {}
    while steps := [step for step in finished(directory / STEPS) if step not in skipped]:
        try:
            return verified(directory, step_directory(directory, steps[-1]), scope=scope), skipped
        except errors.CheckpointError as error:
            skipped[steps[-1]] = f"checkpoint {steps[-1]} is skipped: {error}"
    return None, skipped


def find(
    directory: pathlib.Path, step: Step, scope: Scope = "all"
) -> tuple[pathlib.Path, manifest.Manifest, dict[int, str]]:
    """Returns a whole checkpoint's path and manifest, and for "last" why newer ones were skipped, by step.

    step: number of updates, "last" (the newest whole one) or "best". Raises CheckpointError if it is missing, or a
    file of this scope is damaged, and ResumeError if parameters are asked for and it has none.
    """
    path, found, skipped = _find(directory, step, scope)
    if scope == "params":
        check_has_state(directory.parent, found)
    return path, found, skipped


def _find(directory: pathlib.Path, step: Step, scope: Scope) -> tuple[pathlib.Path, manifest.Manifest, dict[int, str]]:
    if step == "last":
        newest, skipped = newest_verified(directory, scope)
        if newest is None:
            reasons = "; ".join(skipped.values()) or "none was written yet"
            way_out = "give another --run_dir" if skipped else "train it longer, or give another --run_dir"
            raise errors.CheckpointError(f"no usable checkpoint in {directory}: {reasons}; {way_out}")
        return step_directory(directory, newest.step), newest, skipped
    parent = directory / (BEST if step == "best" else STEPS)
    steps = finished(parent)
    if step not in ("best", *steps) and step in finished(directory / BEST):  # it is kept only there
        parent, steps = directory / BEST, finished(directory / BEST)
    if not steps or (step != "best" and step not in steps):
        available = ", ".join(map(str, finished(directory / STEPS))) or "none"
        raise errors.CheckpointError(f"no checkpoint {step} in {directory}; there are: {available}")
    path = parent / f"{steps[-1] if step == 'best' else step:012d}"
    try:
        return path, verified(directory, path, scope=scope), {}
    except errors.CheckpointError as error:
        if not path.is_dir():  # a running learner has deleted it in the meantime
            return _find(directory, step, scope)
        raise errors.CheckpointError(f"checkpoint {step} in {directory} cannot be used: {error}") from error


def load(
    path: pathlib.Path, found: manifest.Manifest, like: Mapping[str, trees.Tree], names: tuple[str, ...]
) -> dict[str, trees.Tree]:
    """Returns some parts of a checkpoint as a tree like the template. Errors are those of `checkpoint.restore`."""
    placed: dict[str, trees.Tree] = trees.place(load_arrays(path, found, like, names), like)
    return placed


def load_arrays(
    path: pathlib.Path, found: manifest.Manifest, like: Mapping[str, trees.Tree], names: tuple[str, ...]
) -> list[np.ndarray]:
    """Returns some parts of a checkpoint as arrays in the order of a template's leaves. Errors are those of `load`."""
    leaves = {name: found.arrays.get(name, ()) for name in names}
    trees.check_fits([leaf for part in leaves.values() for leaf in part], like)
    arrays: dict[str, np.ndarray] = {}
    for name, part in leaves.items():
        arrays |= {leaf.name: array for leaf, array in zip(part, trees.load(path / name, part), strict=True)}
    return [arrays[leaf.name] for leaf in trees.describe(like)]


def restore_params(
    directory: pathlib.Path, step: Step, like: trees.Tree, player: str = league_config.MAIN
) -> tuple[trees.Tree, manifest.Manifest]:
    """Returns a player's parameters in a checkpoint that `find` finds, and its manifest.

    player: a learning player. A checkpoint of a single player, such as the best one, has those of the first.

    Raises CheckpointError if it is missing or damaged, ResumeError if it does not fit `like`, a template of arrays or
    `jax.ShapeDtypeStruct`s.
    """
    path, found, _ = find(directory, step, "params")
    try:
        alone = PARAMS in found.arrays
        name = PARAMS if alone and player == league_config.MAIN else f"{PLAYERS}/{player}/{PARAMS}"
        if name not in found.arrays:
            there = (
                [league_config.MAIN]
                if alone
                else [part.split("/")[1] for part in found.arrays if part_of(part) == PARAMS]
            )
            raise errors.CheckpointError(
                f"checkpoint {found.step} in {directory} has no player {player}; there are {', '.join(there)}"
            )
        return load(path, found, {name: like}, (name,))[name], found
    except errors.CheckpointError:
        if path.is_dir():
            raise
        return restore_params(directory, step, like, player)  # a running learner has deleted it in the meantime


def list_steps(
    directory: pathlib.Path, *, content: bool = False, check: Callable[[pathlib.Path], object] | None = None
) -> list[dict[str, Any]]:
    """Returns a row for each checkpoint, oldest first and the best one last, without those deleted in the meantime.

    check: raises CheckpointError for a damaged checkpoint; None: `verified`, with or without `content`.
    """
    steps, bests = directory / STEPS, directory / BEST
    found = [steps / f"{step:012d}" for step in finished(steps)]
    found += [bests / f"{step:012d}" for step in finished(bests)[-1:]]
    check = check or functools.partial(verified, directory, content=content)
    return [row for path in found if (row := _row(path, check)) is not None]


def _row(path: pathlib.Path, check: Callable[[pathlib.Path], object]) -> dict[str, Any] | None:
    row = dict.fromkeys(("step", "best", "ok", "reason", "bytes", "time", "has_replay", "kept_for_good"))
    row |= {"step": int(path.name), "best": path.parent.name == BEST, "ok": True}
    try:
        found = manifest.read(path)
        row |= {name: getattr(found, name) for name in ("time", "has_replay", "kept_for_good")}
        row["bytes"] = found.num_bytes
        check(path)
    except errors.CheckpointError as error:
        if not path.is_dir():  # a running learner has deleted it in the meantime
            return None
        row |= {"ok": False, "reason": str(error)}
    return row
