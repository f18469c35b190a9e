"""Crash-safe files: checksums, fsync, and directories with all of their content or none.

A new directory is written under a temporary name, flushed and renamed; after a flush of its parent it is durable.
A directory is renamed before it is deleted, so a half-deleted one never looks finished. One that is replaced exchanges
its name with the new one. Where the disk cannot do that, it gets another name than one that is deleted: a crash may
come before the new one has its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Iterator

TEMPORARY_SUFFIX = ".tmp"
TRASH_SUFFIX = ".trash"
REPLACED_SUFFIX = ".replaced"
LEFTOVERS = (TEMPORARY_SUFFIX, TRASH_SUFFIX, REPLACED_SUFFIX)
"""Suffixes of directories that a crash may leave."""
_NUMBER = re.compile(r"[0-9]{12,18}")
_LEFTOVER = re.compile(rf".+\.[0-9a-f]+({'|'.join(map(re.escape, LEFTOVERS))})")


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
    """Returns the checksums of all files below a directory, by relative path."""
    return {path.relative_to(root).as_posix(): checksum(path) for path in sorted(root.rglob("*")) if path.is_file()}


def flush(path: pathlib.Path) -> None:
    """Makes a file's content, or a directory's entries, survive a crash."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_tree(root: pathlib.Path) -> None:
    """Makes a directory and everything below survive a crash."""
    for path in root.rglob("*"):
        flush(path)
    flush(root)


def write_whole(path: pathlib.Path, content: bytes, *, mode: int = 0o666) -> None:
    """Writes a file as a whole or not at all, without surviving every crash. Replaces a link.

    mode: permissions, less the process's umask. Raises OSError if the disk is full or cannot be written; an old file
    stays.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        temporary.unlink(missing_ok=True)  # of a crash
        # New: a link that somebody put there in between is not followed.
        with open(temporary, "xb", opener=functools.partial(os.open, mode=mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def links(*directories: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the links among directories and their entries: deleting or writing there would happen elsewhere."""
    for directory in directories:
        if directory.is_symlink():
            yield directory
        elif directory.is_dir():
            yield from (path for path in directory.iterdir() if path.is_symlink())


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
        replaced: pathlib.Path | None = temporary
        if not _exchange(temporary, final):
            replaced = _move_aside(final, REPLACED_SUFFIX)
            temporary.rename(final)
        flush(final.parent)
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)  # the next start deletes the rest
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _exchange(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Exchanges the names of two directories in one change; returns False if one is missing, or the disk cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # of Linux
    at_current, exchange = -100, 2
    return rename is not None and rename(at_current, os.fsencode(one), at_current, os.fsencode(other), exchange) == 0


def remove(path: pathlib.Path) -> None:
    """Deletes a directory, if present; a crash leaves a whole directory, possibly renamed."""
    trash = _move_aside(path, TRASH_SUFFIX)
    if trash is not None:
        shutil.rmtree(trash)


def _move_aside(path: pathlib.Path, suffix: str) -> pathlib.Path | None:
    """Renames a directory for `remove_leftovers` to find; returns the new path, None without a directory."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}{suffix}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return None
    return aside


def numbered(parent: pathlib.Path) -> list[int]:
    """Returns the numbers of directories with numeric names of twelve digits or more, in order."""
    if not parent.is_dir():
        return []
    names = (path.name for path in parent.iterdir() if _NUMBER.fullmatch(path.name))
    return sorted(int(name) for name in names if name == f"{int(name):012d}")


def remove_leftovers(parent: pathlib.Path, name: str = "") -> None:
    """Deletes a crash's half-written and half-deleted directories; renames one back into an empty place.

    name: of the only directory that is looked after; "": all.
    """
    for path in list(parent.iterdir()):
        final = path.with_suffix("").with_suffix("")
        if not _LEFTOVER.fullmatch(path.name) or not path.is_dir() or name not in ("", final.name):
            continue  # somebody else's
        if path.suffix == REPLACED_SUFFIX and not final.exists():
            path.rename(final)
        else:
            shutil.rmtree(path)
