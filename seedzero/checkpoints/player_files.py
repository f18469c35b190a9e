"""Frozen players: a player's acting parameters at one update, as immutable files that checkpoints share.

A directory has a manifest of its own, so it can be checked alone. The checkpoints that need it have its checksums in
their manifests, as with segments of the replay.
"""

from __future__ import annotations

import pathlib
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from seedzero.checkpoints import durable, manifest, saved_files, trees
from seedzero.core import errors


class Frozen(NamedTuple):
    """A frozen player: its acting parameters as arrays of numpy, random keys as integers."""

    params: trees.Tree
    scales: trees.Tree  # statistics that values count in, by name; {}: none, or of an earlier version
    step: int  # updates of the player that it is a copy of
    info: Mapping[str, Any]  # as given to `write`


def names(directory: pathlib.Path) -> list[str]:
    """Returns the names of the frozen players below the directory of checkpoints."""
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
    """Writes a frozen player, durably, replacing one of its name; an error leaves nothing. Returns its files.

    Args:
      directory: of the checkpoints.
      name: PLAYER-DIGITS, 12 hexadecimal ones, new after any resume.
      step: updates of the player.
      params: arrays, random keys as integers.
      info: a JSON object.
      time: in seconds since the epoch.
      scales: statistics that the values of the parameters count in, by name, likewise.

    Raises CheckpointError for another name; OSError, ValueError, RuntimeError from the disk.
    """
    if not saved_files.FROZEN_NAME.fullmatch(name):
        raise errors.CheckpointError(f"a frozen player cannot have the name {name!r}; expected PLAYER-0123456789ab")
    root = directory / saved_files.FROZEN
    parts = {saved_files.PARAMS: {saved_files.PARAMS: params}}
    parts |= {saved_files.SCALES: {saved_files.SCALES: dict(scales)}} if scales else {}
    if not root.is_dir():  # no start makes it: runs without a league have none
        root.mkdir(parents=True, exist_ok=True)
        durable.flush(directory)
    described = manifest.Manifest(step, time, 0, counters={"name": name, "info": info})
    written = manifest.write_directory(root / name, parts, described)
    return {manifest.NAME: durable.checksum(root / name / manifest.NAME), **written.files}


def read(
    directory: pathlib.Path, name: str, like: trees.Tree, scales: Mapping[str, trees.Tree] = types.MappingProxyType({})
) -> Frozen:
    """Returns a frozen player, checked by its own manifest.

    Raises CheckpointError if it is missing or damaged, ResumeError if it does not fit `like`, a template of arrays or
    `jax.ShapeDtypeStruct`s. scales: likewise, of the statistics to read.
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
            if part in found.arrays
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
    """Returns the whole frozen players of a manifest, and a sentence for each missing or damaged player.

    content: compare all checksums; false: sizes alone.
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
