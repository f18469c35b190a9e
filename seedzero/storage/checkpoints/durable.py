"""Writes files that survive crashes: checksums, fsync, and directories with all of their content or none.

A new directory is written under a temporary name, flushed and renamed; once its parent is flushed it is durable. A
directory is renamed before it is deleted, so a half-deleted one never looks finished. A new directory that replaces
another one exchanges names with it. If the disk cannot do that, the old one gets a name of its own, different from
that of deleted directories, so that after a crash it can be renamed back.

Among a user's own files (an export), a temporary directory contains a mark, and only marked ones are deleted there.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import functools
import hashlib
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Iterator

from seedzero.core import plain_files

TEMPORARY_SUFFIX = ".tmp"
TRASH_SUFFIX = ".trash"
REPLACED_SUFFIX = ".replaced"
LEFTOVERS = (TEMPORARY_SUFFIX, TRASH_SUFFIX, REPLACED_SUFFIX)
"""Suffixes of directories that a crash may leave behind."""
MARK = ".seedzero-leftover"
"""The file that marks a temporary directory among a user's files. Its text is the number in the directory's name, so a
renamed copy is not marked. The process that writes the directory locks the file."""
_NUMBER = re.compile(r"[0-9]{12,18}")
_LEFTOVER = re.compile(rf".+\.[0-9a-f]+({'|'.join(map(re.escape, LEFTOVERS))})")


@dataclasses.dataclass(frozen=True)
class Checksum:
    """The size of a file and the hexadecimal digest of its content."""

    num_bytes: int
    sha256: str


def checksum(path: pathlib.Path) -> Checksum:
    """Returns the checksum of a file."""
    with plain_files.opened(path) as file:
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
    """Makes a directory and everything below it survive a crash."""
    for path in root.rglob("*"):
        flush(path)
    flush(root)


def write_whole(path: pathlib.Path, content: bytes, *, mode: int = 0o666) -> None:
    """Writes a file completely or not at all; a link is replaced. It may not survive every crash.

    mode: permissions, less the process's umask. Raises OSError if the disk is full or cannot be written; the old file
    is kept.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        temporary.unlink(missing_ok=True)  # left by a crash
        # "x" makes a new file, so a link that somebody puts there in between is not followed.
        with open(temporary, "xb", opener=functools.partial(os.open, mode=mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def new_file(final: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields an empty temporary file that becomes `final` if the block succeeds, and otherwise is deleted.

    Its name is random: if several processes write the same file, each writes a whole one, and the last one is kept. It
    is for files among a user's own, where any fixed name may be taken. Raises OSError; the old file is kept.
    """
    temporary = _aside(final, secrets.token_hex(4), ".part")
    temporary.touch(exist_ok=False)
    try:
        yield temporary
        flush(temporary)
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)


def links(*directories: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the links among directories and their entries; writing or deleting there would happen elsewhere."""
    for directory in directories:
        if directory.is_symlink():
            yield directory
        elif directory.is_dir():
            yield from (path for path in directory.iterdir() if path.is_symlink())


@contextlib.contextmanager
def new_directory(final: pathlib.Path, *, is_marked: bool = False) -> Iterator[pathlib.Path]:
    """Yields an empty temporary directory that durably becomes `final` if the block succeeds.

    It replaces an earlier `final`, which is deleted once the new one is in its place. After an error the temporary
    directory is deleted.

    is_marked: whether `final` is among a user's files; `remove_marked_leftovers` cleans up there after a crash.
    """
    token = secrets.token_hex(4)
    temporary = _aside(final, token, TEMPORARY_SUFFIX)
    temporary.mkdir(parents=True)
    with contextlib.ExitStack() as marks:
        marks.callback(shutil.rmtree, temporary, ignore_errors=True)
        if is_marked:
            marks.callback(_unmark, final)
            marks.enter_context(_marked(temporary, token))
        yield temporary
        flush_tree(temporary)
        if is_marked and final.is_dir():
            marks.enter_context(_marked(final, token))  # marks the one that will be deleted
        replaced: pathlib.Path | None = temporary
        if not _exchange(temporary, final):
            replaced = _move_aside(final, token, REPLACED_SUFFIX)
            temporary.rename(final)
        flush(final.parent)
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)  # the next start deletes what remains


@contextlib.contextmanager
def _marked(directory: pathlib.Path, token: str) -> Iterator[None]:
    """Marks a directory, while entered, as one that this process is writing."""
    (directory / MARK).unlink(missing_ok=True)  # left by a crash, or a link that somebody put there
    with (directory / MARK).open("x") as file:
        with contextlib.suppress(OSError):  # some disks have no locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.write(token)
        file.flush()
        yield


def _unmark(directory: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        (directory / MARK).unlink()


def _exchange(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Exchanges the names of two directories atomically.

    Returns False if one is missing or the system cannot do that.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux only
    at_current, exchange = -100, 2
    return rename is not None and rename(at_current, os.fsencode(one), at_current, os.fsencode(other), exchange) == 0


def remove(path: pathlib.Path) -> None:
    """Deletes a directory if it exists. After a crash the directory is whole, or at least renamed."""
    trash = _move_aside(path, secrets.token_hex(4), TRASH_SUFFIX)
    if trash is not None:
        shutil.rmtree(trash)


def _move_aside(path: pathlib.Path, token: str, suffix: str) -> pathlib.Path | None:
    """Renames a directory so that `remove_leftovers` finds it.

    Returns the new path, or None if there is no directory.
    """
    aside = _aside(path, token, suffix)
    try:
        path.rename(aside)
    except FileNotFoundError:
        return None
    return aside


def _aside(path: pathlib.Path, token: str, suffix: str) -> pathlib.Path:
    return path.with_name(f"{path.name}.{token}{suffix}")


def numbered(parent: pathlib.Path) -> list[int]:
    """Returns, sorted, the numbers of directories whose names are numbers of at least twelve digits."""
    if not parent.is_dir():
        return []
    names = (path.name for path in parent.iterdir() if _NUMBER.fullmatch(path.name))
    return sorted(int(name) for name in names if name == f"{int(name):012d}")


def remove_leftovers(parent: pathlib.Path) -> None:
    """Deletes directories that a crash left half written or half deleted, and renames replaced ones back if necessary.

    `parent` must be the program's alone, because names decide. Among a user's files use `remove_marked_leftovers`.
    """
    for path in _leftovers(parent):
        _clear(path)


def remove_marked_leftovers(final: pathlib.Path) -> None:
    """Deletes marked directories that `new_directory` left in a crash beside `final`, or renames them back.

    Other directories are kept, whatever their names, and so is one that another process is still writing.
    """
    for path in _leftovers(final.parent):
        if _place(path) == final and _is_abandoned(path):
            _clear(path)
            _unmark(final)


def _leftovers(parent: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in parent.iterdir() if _LEFTOVER.fullmatch(path.name) and path.is_dir()]


def _place(leftover: pathlib.Path) -> pathlib.Path:
    """Returns the path that a leftover directory had, or was going to have."""
    return leftover.with_suffix("").with_suffix("")


def _clear(leftover: pathlib.Path) -> None:
    if leftover.suffix == REPLACED_SUFFIX and not _place(leftover).exists():
        leftover.rename(_place(leftover))
    else:
        shutil.rmtree(leftover)


def _is_abandoned(leftover: pathlib.Path) -> bool:
    """Returns whether a directory has its own mark, which no process locks."""
    with contextlib.suppress(OSError), plain_files.opened(leftover / MARK, follow=False) as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return b"." + file.read(64) == os.fsencode(leftover.with_suffix("").suffix)
    return False
