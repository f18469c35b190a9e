"""The lock of a directory, held by one process at a time; the kernel releases it at any end of that process."""

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
"""Instead of a pid: this user may not read the lock's file, or it names none."""
_MODE = 0o600
"""Whoever may read a lock's file can hold the lock."""


def take(
    path: pathlib.Path,
    undo: contextlib.ExitStack,
    *,
    name: str = NAME,
    who: str = "learner",
    way_out: str = "end that one or give another --run_dir",
) -> io.FileIO:
    """Takes the lock and returns its open file. Raises Occupied for a lock of another process, `who`."""
    while True:
        file = _open(path / name, os.O_RDWR | os.O_CREAT)
        undo.callback(release, file)
        if not _try_lock(file):
            raise errors.Occupied(f"{path} is in use by {_described(file, path / name, who)}; {way_out}")
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path / name), os.fstat(file.fileno())):
                break
        release(file)  # its holder has deleted it meanwhile: another process may have taken a new one
    with contextlib.suppress(OSError):  # another user's, in a directory of a group
        os.fchmod(file.fileno(), _MODE)  # earlier versions left it readable
    file.truncate(0)
    os.pwrite(file.fileno(), f"{os.getpid()}\n".encode(), 0)
    return file


def release(file: io.FileIO) -> None:
    """Releases a lock, though processes that were forked meanwhile have a copy of its descriptor."""
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
    """Takes a free lock; returns whether it was."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _written_pid(file: io.FileIO) -> str:
    pid = os.pread(file.fileno(), 32, 0).decode(errors="replace").strip()
    return pid if pid.isascii() and pid.isdigit() else UNKNOWN


def _described(file: io.FileIO, path: pathlib.Path, who: str) -> str:
    """Returns a phrase about the holder of a lock. Its pid is that of a process that does hold it, or is not named."""
    pid = _written_pid(file)
    if pid != UNKNOWN and _has_open(pid, file):
        return f"the {who} with pid {pid}"
    return (
        f"a {who} on another machine or in a container, or a process that was forked by one that has ended "
        f"(`fuser {path}` lists those of this machine)"
    )


def _has_open(pid: str, file: io.FileIO) -> bool:
    """Whether a process of this machine has a file open; true if that cannot be known."""
    there = os.fstat(file.fileno())
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.stat(entry.path), there):
                        return True
    except PermissionError:  # of another user
        return True
    except OSError:  # it has ended, or is on another machine; some systems have no /proc
        return not os.path.exists("/proc/self/fd")
    return False


def holder(path: str | os.PathLike[str]) -> str | None:
    """Returns the pid, on its own machine, of the learner holding a run directory's lock; None: no holder.

    `UNKNOWN`: only the lock's owner may know. Takes the lock for a moment where none does.
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
        except OSError:  # held, or a file system without locks: then nobody can tell
            return _written_pid(file)
    return None


def wait_until_free(path: str | os.PathLike[str], report: Callable[[str], None]) -> None:
    """Blocks until no learner uses a run directory, if present. Raises ResumeError for an unreadable one.

    `report` receives a sentence about the learner that uses it.
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
    """Raises OSErrors as ResumeErrors; problem: the sentence's beginning, with the path in its braces."""
    try:
        yield
    except OSError as error:
        raise errors.ResumeError(
            f"{problem.format(path)}: {error.strerror}; give --run_dir=DIR that can be written"
        ) from None
