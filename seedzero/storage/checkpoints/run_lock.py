"""Locks a directory for one process at a time; the kernel releases the lock however that process ends."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pathlib
from collections.abc import Callable, Iterator

from seedzero.core import errors, forks, plain_files

NAME = "lock"
UNKNOWN = "unknown"
"""Takes the place of a pid if this user may not read the lock file, or it contains none."""
_MODE = 0o600
"""Permissions of a lock file, because anyone who can read it could hold the lock."""


def take(
    path: pathlib.Path,
    undo: contextlib.ExitStack,
    *,
    name: str = NAME,
    who: str = "learner",
    way_out: str = "end that one or give another --run_dir",
) -> io.FileIO:
    """Takes the lock and returns its open file. Raises Occupied if another process, described by `who`, holds it."""
    while True:
        file = _open(path / name, os.O_RDWR | os.O_CREAT)
        undo.callback(release, file)
        if not _try_lock(file):
            raise errors.Occupied(f"{path} is in use by {_described(file, path / name, who)}; {way_out}")
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path / name), os.fstat(file.fileno())):
                break
        release(file)  # its holder has deleted the file in the meantime, so another process may hold a new one
    with contextlib.suppress(OSError):  # the file belongs to another user of a shared directory
        os.fchmod(file.fileno(), _MODE)
    file.truncate(0)
    os.pwrite(file.fileno(), f"{os.getpid()}\n".encode(), 0)
    return file


def release(file: io.FileIO) -> None:
    """Releases a lock, even if processes that were forked in the meantime have copies of its descriptor."""
    if not file.closed:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
        file.close()


def _open(path: pathlib.Path, flags: int) -> io.FileIO:
    descriptor = plain_files.open_regular(path, flags | os.O_NOFOLLOW, _MODE)
    file = io.FileIO(descriptor, "r+" if flags & os.O_RDWR else "r")
    forks.keep(file)
    return file


def _try_lock(file: io.FileIO) -> bool:
    """Takes the lock if it is free, and returns whether that worked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _written_pid(file: io.FileIO) -> str:
    pid = os.pread(file.fileno(), 32, 0).decode(errors="replace").strip()
    return pid if pid.isascii() and pid.isdigit() else UNKNOWN


def _described(file: io.FileIO, path: pathlib.Path, who: str) -> str:
    """Describes the holder of a lock, with a pid only if that process really holds it."""
    pid = _written_pid(file)
    if pid != UNKNOWN and _has_open(pid, file):
        return f"the {who} with pid {pid}"
    return (
        f"a {who} on another machine or in a container, or a process that was forked by one that has ended "
        f"(`fuser {path}` lists those of this machine)"
    )


def _has_open(pid: str, file: io.FileIO) -> bool:
    """Returns whether a process of this machine has a file open; true if that cannot be determined."""
    there = os.fstat(file.fileno())
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.stat(entry.path), there):
                        return True
    except PermissionError:  # it belongs to another user
        return True
    except OSError:  # it has ended or is on another machine, or this system has no /proc
        return not os.path.exists("/proc/self/fd")
    return False


def holder(path: str | os.PathLike[str]) -> str | None:
    """Returns the pid, on its own machine, of the learner that has locked a run directory, or None if nobody has.

    Returns `UNKNOWN` if only the lock's owner can know. Takes a free lock for a moment.
    """
    try:
        file = _open(pathlib.Path(path) / NAME, os.O_RDONLY)
    except PermissionError:
        return UNKNOWN
    except OSError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # the lock is held, or the file system has no locks, and then nobody can know
            return _written_pid(file)
    return None


def wait_until_free(path: str | os.PathLike[str], report: Callable[[str], None]) -> None:
    """Waits until no learner uses a run directory, if it exists. Raises ResumeError if it cannot be read.

    report: called with a sentence about the learner that uses it.
    """
    path = pathlib.Path(path)
    with contextlib.ExitStack() as undo, as_resume_errors(path):
        try:
            file = _open(path / NAME, os.O_RDWR)
        except (FileNotFoundError, NotADirectoryError):
            return
        undo.callback(release, file)
        if not _try_lock(file):
            report(f"waits until {_described(file, path / NAME, 'learner')} has left {path}")
            fcntl.flock(file, fcntl.LOCK_EX)


@contextlib.contextmanager
def as_resume_errors(path: pathlib.Path, problem: str = "cannot use {} as run directory") -> Iterator[None]:
    """Turns OSErrors into ResumeErrors. problem: how the message begins, with {} for the path."""
    try:
        yield
    except OSError as error:
        raise errors.ResumeError(
            f"{problem.format(path)}: {error.strerror}; give --run_dir=DIR that can be written"
        ) from None
