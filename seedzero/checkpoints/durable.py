"""Files that survive a crash: checksums, fsync, and directories that appear whole or not at all.

A finished directory is written under a temporary name, flushed, renamed, and its parent flushed; only then is it
durable. A directory that goes away is renamed first, so that nobody takes a half-deleted one for a finished one.
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


@dataclasses.dataclass(frozen=True)
class Checksum:
    """What a file must be.

    Attributes:
      num_bytes: its size.
      sha256: of its content, hexadecimal.
    """

    num_bytes: int
    sha256: str


def token() -> str:
    """Returns eight characters that no earlier name has."""
    return secrets.token_hex(4)


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

    What was at `final` before goes away. After an error nothing is left of the temporary directory.
    """
    temporary = final.with_name(f"{final.name}.{token()}{TEMPORARY_SUFFIX}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        flush_tree(temporary)
        remove(final)
        temporary.rename(final)
        flush(final.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove(path: pathlib.Path) -> None:
    """Deletes a directory if it is there; a crash in between leaves it whole or out of sight."""
    trash = path.with_name(f"{path.name}.{token()}{TRASH_SUFFIX}")
    try:
        path.rename(trash)
    except FileNotFoundError:
        return
    shutil.rmtree(trash)


def remove_leftovers(parent: pathlib.Path) -> None:
    """Deletes what a crash left half written or half deleted in a directory."""
    for path in parent.iterdir():
        if path.suffix in (TEMPORARY_SUFFIX, TRASH_SUFFIX):
            shutil.rmtree(path)
