"""The manifest of a checkpoint: its files and arrays, with checksums, its own included."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from seedzero.checkpoints import durable, trees
from seedzero.core import errors, json_object

NAME = "manifest.json"
_FORMAT = 1

Files = Mapping[str, durable.Checksum]
"""Checksums by a path relative to the directory that holds the files."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of a checkpoint.

    Attributes:
      step: updates done.
      time: of writing, in seconds since the epoch.
      ordinal: number of checkpoints of this run up to this one.
      kept_for_good: never deleted to make room.
      arrays: {part: descriptions of its arrays}.
      host: counters of the host; a JSON object.
      files: all files of the checkpoint's directory but the manifest.
      segments: {name: its files} of the replay; empty without replay.
      has_replay: whether the checkpoint includes the replay.
    """

    step: int
    time: float
    ordinal: int
    kept_for_good: bool = False
    arrays: Mapping[str, tuple[trees.Leaf, ...]] = dataclasses.field(default_factory=dict)
    host: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    files: Files = dataclasses.field(default_factory=dict)
    segments: Mapping[str, Files] = dataclasses.field(default_factory=dict)
    has_replay: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes on the disk, shared replay segments included."""
        all_files = [self.files, *self.segments.values()]
        return sum(file.num_bytes for files in all_files for file in files.values())


def write(directory: pathlib.Path, manifest: Manifest) -> None:
    """Writes the manifest into a checkpoint's directory."""
    body = json.dumps({"format": _FORMAT, **dataclasses.asdict(manifest)}, sort_keys=True)
    text = json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "body": body})
    (directory / NAME).write_text(text)


def read(directory: pathlib.Path) -> Manifest:
    """Returns the manifest of a checkpoint. Raises CheckpointError if it is missing, damaged, or of another format."""
    try:
        content = (directory / NAME).read_bytes()
    except OSError as error:
        raise errors.CheckpointError(f"{NAME} cannot be read: {error.strerror}") from error
    return parse(content)


def parse(content: bytes) -> Manifest:
    """Returns the manifest in a file's content. Raises CheckpointError if it is damaged, or of another format."""
    try:
        outer = json_object.parse(content)
        body = outer["body"]
        if hashlib.sha256(body.encode()).hexdigest() != outer["sha256"]:
            raise errors.CheckpointError(f"{NAME} is damaged: its checksum does not fit")
        fields = json_object.parse(body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.CheckpointError(f"{NAME} is damaged: {error}") from error
    if fields.pop("format") != _FORMAT:
        raise errors.CheckpointError(f"{NAME} has another format than {_FORMAT}, which this version reads")
    arrays = {part: tuple(trees.Leaf(**x) for x in leaves) for part, leaves in fields["arrays"].items()}
    segments = {name: _files(files) for name, files in fields["segments"].items()}
    return Manifest(**{**fields, "arrays": arrays, "files": _files(fields["files"]), "segments": segments})


def _files(fields: Mapping[str, Mapping[str, Any]]) -> Files:
    return {path: durable.Checksum(**file) for path, file in fields.items()}


def check(root: pathlib.Path, files: Files, *, content: bool) -> None:
    """Compares files below `root` with their checksums, or with `content` false, only their sizes.

    Raises:
      CheckpointError: a file is missing or damaged.
    """
    for name, expected in files.items():
        path = root / name
        try:
            num_bytes = path.stat().st_size
            found = durable.checksum(path) if content else durable.Checksum(num_bytes, expected.sha256)
        except OSError as error:
            raise errors.CheckpointError(f"{root.name}/{name} cannot be read: {error.strerror}") from error
        if found.num_bytes != expected.num_bytes:
            raise errors.CheckpointError(
                f"{root.name}/{name} is damaged: {found.num_bytes} bytes, expected {expected.num_bytes}"
            )
        if found != expected:
            raise errors.CheckpointError(f"{root.name}/{name} is damaged: its checksum does not fit")
