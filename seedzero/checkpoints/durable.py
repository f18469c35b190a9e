"""Files that survive a crash: checksums, fsync, and directories that appear whole or not at all.

A new directory is written under a temporary name, flushed and renamed; after a flush of its parent it is durable.
A directory is renamed before it is deleted, so a half-deleted one never looks finished. One that is replaced gets
another name than one that is deleted: a crash may come before the new one has its place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import secrets
import shutil
from collections.abc import Iterator

TEMPORARY_SUFFIX = ".tmp"
TRASH_SUFFIX = ".trash"
REPLACED_SUFFIX = ".replaced"
LEFTOVERS = (TEMPORARY_SUFFIX, TRASH_SUFFIX, REPLACED_SUFFIX)
"""Suffixes of directories that a crash may leave."""


@dataclasses.dataclass(frozen=True)
class Checksum:
    """The size of a file, and the digest of its content, hexadecimal."""

    num_bytes: int
    sha256: str


def checksum(path: pathlib.Path) -> Checksum:
    """Returns the checksum of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Checksum(os.fstat(file.fileno()).st_size, digest)


def checksums(root: pathlib.Path) -> dict[str, Checksum]:
    """Returns the checksums of all files below a directory, by their path relative to it."""
    return {path.relative_to(root).as_posix(): checksum(path) for path in sorted(root.rglob("*")) if path.is_file()}


def flush(path: pathlib.Path) -> None:
    """Makes one file's content, or one directory's entries, survive a crash."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_tree(root: pathlib.Path) -> None:
    """Makes a directory and everything below it survive a crash."""
    for path in root.rglob("*"):
        flush(path)
    flush(root)


@contextlib.contextmanager
def new_directory(final: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields an empty temporary directory that becomes `final`, durably, when the block ends without an error.

    It replaces an earlier `final`, which is deleted when the new one stands. An error deletes the temporary directory.
    """
    temporary = final.with_name(f"{final.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        flush_tree(temporary)
        replaced = _move_aside(final, REPLACED_SUFFIX)
        temporary.rename(final)
        flush(final.parent)
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)  # the next start deletes the rest
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove(path: pathlib.Path) -> None:
    """Deletes a directory, if it exists; a crash leaves it whole or under another name."""
    trash = _move_aside(path, TRASH_SUFFIX)
    if trash is not None:
        shutil.rmtree(trash)


def _move_aside(path: pathlib.Path, suffix: str) -> pathlib.Path | None:
    """Gives a directory a name that `remove_leftovers` knows; returns it, None if there is no directory."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}{suffix}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return None
    return aside


def remove_leftovers(parent: pathlib.Path) -> None:
    """Deletes half-written and half-deleted directories that a crash left; one whose place is empty returns there."""
    for path in list(parent.iterdir()):
        final = path.with_suffix("").with_suffix("")
        if path.suffix == REPLACED_SUFFIX and not final.exists():
            path.rename(final)
        elif path.suffix in LEFTOVERS:
            shutil.rmtree(path)
