"""Reads and writes the manifest of a checkpoint: its files and arrays with checksums, and its own checksum."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import pathlib
import shutil
import types
from collections.abc import Mapping, Sequence
from typing import Any

from seedzero.core import errors, json_object, plain_files
from seedzero.storage.checkpoints import durable, formats, trees

NAME = "manifest.json"

Files = Mapping[str, durable.Checksum]
"""Checksums by path, relative to the directory that contains the files."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a checkpoint contains."""

    step: int  # updates done
    time: float  # when it was written, in seconds since the epoch
    ordinal: int  # this is the run's Nth checkpoint
    kept_for_good: bool = False  # whether it is never deleted
    arrays: Mapping[str, tuple[trees.TreeLeaf, ...]] = dataclasses.field(default_factory=dict)  # arrays of each part
    counters: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # a JSON object
    # all files in the checkpoint's directory except the manifest
    files: Files = dataclasses.field(default_factory=dict)
    segments: Mapping[str, Files] = dataclasses.field(default_factory=dict)  # files of each segment of the replay
    has_replay: bool = False  # whether the checkpoint includes the replay
    frozen: Mapping[str, Files] = dataclasses.field(default_factory=dict)  # files of each frozen player
    state_sha256: str = ""  # digest of the state, which host 0 saves for all; "" for a single host

    @property
    def has_state(self) -> bool:
        """Whether the checkpoint has parameters; of several hosts only host 0's has."""
        return not self.state_sha256 or "params" in self.arrays

    @property
    def num_bytes(self) -> int:
        """Bytes on the disk, including shared replay segments and frozen players."""
        all_files = [self.files, *self.segments.values(), *self.frozen.values()]
        return sum(file.num_bytes for files in all_files for file in files.values())


def write(directory: pathlib.Path, manifest: Manifest) -> None:
    """Writes the manifest into a checkpoint's directory, without fields that few runs use where these are empty."""
    seldom = ("frozen", "state_sha256")
    fields = {name: value for name, value in dataclasses.asdict(manifest).items() if value or name not in seldom}
    body = json.dumps({"format": formats.FORMAT, **fields}, sort_keys=True)
    text = json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "body": body})
    (directory / NAME).write_text(text)


def write_directory(
    directory: pathlib.Path,
    parts: Mapping[str, trees.Tree],
    described: Manifest,
    kept: Mapping[str, pathlib.Path] = types.MappingProxyType({}),
) -> Manifest:
    """Writes parts and their manifest durably into a new directory, or nothing after an error; returns the manifest.

    parts: arrays by name, which are added to those of `described`. kept: directories of other parts, which are copied.
    """
    with durable.new_directory(directory) as temporary:
        for name, path in kept.items():
            shutil.copytree(path, temporary / name)
        for name, part in parts.items():
            trees.save(temporary / name, part)
        arrays = {**described.arrays, **{name: trees.describe(part) for name, part in parts.items()}}
        described = dataclasses.replace(described, arrays=arrays, files=durable.checksums(temporary))
        write(temporary, described)
    return described


def read(directory: pathlib.Path, *, has_step: bool = True) -> Manifest:
    """Returns the manifest of a checkpoint. Raises CheckpointError if it is missing, or as `parse` does.

    has_step: whether the directory's name is the checkpoint's step.
    """
    try:
        content = plain_files.read(directory / NAME)
    except OSError as error:
        raise errors.CheckpointError(f"{NAME} cannot be read: {error.strerror}") from error
    return parse(content, int(directory.name) if has_step else None)


def parse(content: bytes, step: int | None) -> Manifest:
    """Parses the content of a manifest.

    step: the expected step, or None for any. Raises CheckpointError if the manifest is damaged, of another format, or
    of another step.
    """
    try:
        outer = json_object.parse(content)
        body = outer["body"]
        if hashlib.sha256(body.encode()).hexdigest() != outer["sha256"]:
            raise ValueError("its checksum does not fit")
        fields = json_object.parse(body)
        if (found := fields.pop("format")) == formats.FORMAT:
            return _checked({"frozen": {}, **fields}, step)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise errors.CheckpointError(f"{NAME} is damaged: {reason}") from error
    raise errors.CheckpointError(f"{NAME} cannot be read: {formats.explain(found)}")


def _checked(fields: Mapping[str, Any], step: int | None) -> Manifest:
    """Checks the fields and returns the manifest. Raises ValueError, KeyError, TypeError or AttributeError."""
    arrays = {part: tuple(_leaf(**leaf) for leaf in leaves) for part, leaves in fields["arrays"].items()}
    shared = {kind: {name: _files(files) for name, files in fields[kind].items()} for kind in ("segments", "frozen")}
    found = Manifest(**{**fields, "arrays": arrays, "files": _files(fields["files"]), **shared})
    kinds = [type(value) for value in (found.step, found.ordinal, found.kept_for_good, found.has_replay)]
    if kinds != [int, int, bool, bool] or type(found.time) not in (int, float) or not math.isfinite(found.time):
        raise ValueError("a number in it is of another kind")
    if step not in (None, found.step):
        raise ValueError(f"it is that of checkpoint {found.step}, not {step}")
    if not isinstance(found.counters, Mapping):
        raise ValueError("its counters are none")
    if not isinstance(found.state_sha256, str):
        raise ValueError("its state's checksum is none")
    directories = [found.files, *(files for named in shared.values() for files in (named, *named.values()))]
    for name in itertools.chain(*directories):
        if {"", ".", ".."} & set(name.split("/")):  # they are used as paths
            raise ValueError(f"it names {name!r}")
    return found


def _leaf(path: Sequence[str], shape: Sequence[int], dtype: str) -> trees.TreeLeaf:
    if not (all(isinstance(key, str) for key in path) and all(type(size) is int and size >= 0 for size in shape)):
        raise ValueError(f"it has an array {path} of the shape {shape}")
    leaf = trees.TreeLeaf(path, shape, dtype)
    leaf.num_bytes  # noqa: B018  raises an error for an unknown dtype
    return leaf


def _files(fields: Mapping[str, Mapping[str, Any]]) -> Files:
    return {path: _checksum(**file) for path, file in fields.items()}


def _checksum(num_bytes: int, sha256: str) -> durable.Checksum:
    if type(num_bytes) is not int or not isinstance(sha256, str):
        raise ValueError(f"it has a file of {num_bytes!r} bytes")
    return durable.Checksum(num_bytes, sha256)


def check(root: pathlib.Path, files: Files, *, content: bool) -> None:
    """Raises CheckpointError for a missing or damaged file below `root`, by checksum or only by size.

    Anything else there must be a file or a directory, because a library may open it.
    """
    for path in root.rglob("*"):
        if not (path.is_file() or path.is_dir()):
            raise errors.CheckpointError(f"{root.name}/{path.relative_to(root)} is neither a file nor a directory")
    for name, expected in files.items():
        path = root / name
        try:
            num_bytes = path.stat().st_size
            is_read = content and num_bytes == expected.num_bytes
            found = durable.checksum(path) if is_read else durable.Checksum(num_bytes, expected.sha256)
        except OSError as error:
            raise errors.CheckpointError(f"{root.name}/{name} cannot be read: {error.strerror}") from error
        if found != expected:
            sizes = f"{found.num_bytes} bytes, expected {expected.num_bytes}"
            reason = sizes if found.num_bytes != expected.num_bytes else "its checksum does not fit"
            raise errors.CheckpointError(f"{root.name}/{name} is damaged: {reason}")
