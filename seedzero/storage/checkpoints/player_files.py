"""Stores frozen players: a player's acting parameters at one update, as immutable files that checkpoints share.

Each directory has its own manifest, so it can be checked without a checkpoint. The checkpoints that need it list its
checksums, as they do for segments of the replay.
"""

from __future__ import annotations

import pathlib
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from seedzero.core import errors
from seedzero.storage.checkpoints import durable, manifest, saved_files, trees


class Frozen(NamedTuple):
    """A frozen player: its acting parameters, with random keys as integers; `read` returns numpy arrays."""

    params: trees.Tree
    scales: trees.Tree  # statistics that the parameters depend on, by name; empty if it has none
    step: int  # number of updates when it was frozen
    info: Mapping[str, Any]  # as it was given to `write`


def names(directory: pathlib.Path) -> list[str]:
    """Returns the names of all frozen players below the directory of checkpoints."""
    root = directory / saved_files.FROZEN
    found = root.iterdir() if root.is_dir() else ()
    return sorted(path.name for path in found if saved_files.FROZEN_NAME.fullmatch(path.name))


def write(
    directory: pathlib.Path,
    name: str,
    step: int,
    params: trees.Tree,
    info: Mapping[str, Any],
    *,
    time: float,
    scales: Mapping[str, trees.Tree] = types.MappingProxyType({}),
) -> manifest.Files:
    """Writes a frozen player durably, replacing one of the same name, or nothing after an error. Returns its files.

    Args:
      directory: directory of the checkpoints.
      name: PLAYER-DIGITS with 12 hexadecimal digits, which are new after each resume.
      step: number of updates of the player.
      params: arrays, with random keys as integers.
      info: a JSON object.
      time: seconds since the epoch.
      scales: statistics that the parameters depend on, by name, with random keys as integers.

    Raises CheckpointError for a name of another form, and OSError, ValueError or RuntimeError from the disk.
    """
    if not saved_files.FROZEN_NAME.fullmatch(name):
        raise errors.CheckpointError(f"a frozen player cannot have the name {name!r}; expected PLAYER-0123456789ab")
    root = directory / saved_files.FROZEN
    parts = {saved_files.PARAMS: {saved_files.PARAMS: params}}
    parts |= {saved_files.SCALES: {saved_files.SCALES: dict(scales)}} if scales else {}
    if not root.is_dir():  # made here, because runs without a league do not need it
        root.mkdir(parents=True, exist_ok=True)
        durable.flush(directory)
    described = manifest.Manifest(step, time, 0, counters={"name": name, "info": info})
    written = manifest.write_directory(root / name, parts, described)
    return {manifest.NAME: durable.checksum(root / name / manifest.NAME), **written.files}


def read(
    directory: pathlib.Path, name: str, like: trees.Tree, scales: Mapping[str, trees.Tree] = types.MappingProxyType({})
) -> Frozen:
    """Returns a frozen player after checking it by its own manifest.

    `like` and `scales` are templates of arrays or `jax.ShapeDtypeStruct`s; `scales` has the statistics to read. Raises
    CheckpointError if the player is missing or damaged, ResumeError if it does not fit `like`.
    """
    path = directory / saved_files.FROZEN / name
    try:
        if name not in names(directory):
            raise errors.CheckpointError("it is not there")
        found = manifest.read(path, has_step=False)
        if found.counters.get("name") != name:
            raise errors.CheckpointError(f"{manifest.NAME} is that of {found.counters.get('name')}")
        manifest.check(path, found.files, content=True)
        wanted = {saved_files.PARAMS: like} | ({saved_files.SCALES: dict(scales)} if scales else {})
        trees_of = {
            part: jax.tree.unflatten(
                jax.tree.structure(tree), saved_files.load_arrays(path, found, {part: tree}, (part,))
            )
            for part, tree in wanted.items()
            if part in found.arrays  # not those of another agent, or of one without statistics
        }
    except errors.CheckpointError as error:
        others = ", ".join(other for other in names(directory) if other != name) or "none"
        raise errors.CheckpointError(
            f"the frozen player {name} in {directory} cannot be used: {error}; others there: {others}"
        ) from error
    params, kept = trees_of[saved_files.PARAMS], trees_of.get(saved_files.SCALES, {})
    return Frozen(params, kept, found.step, found.counters["info"])


def usable(
    directory: pathlib.Path, frozen: Mapping[str, manifest.Files], *, content: bool = True
) -> tuple[dict[str, manifest.Files], list[str]]:
    """Returns the undamaged frozen players of a manifest, and a sentence for each missing or damaged one.

    content: whether to compare checksums; otherwise only sizes.
    """
    whole, problems = {}, []
    for name, files in frozen.items():
        try:
            saved_files.check_frozen(directory, name, files, content=content)
            whole[name] = files
        except errors.CheckpointError as error:
            place = directory / saved_files.FROZEN / name
            problems.append(
                f"{error}; to keep it, end the run now, put a copy of its files into {place} and start again; "
                f"otherwise the run continues without it"
            )
    return whole, problems
