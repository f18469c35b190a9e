"""The lock of a run directory, held by one learner at a time; the kernel releases it at any end of a process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Callable, Iterator

from seedzero.core import errors

NAME = "lock"


def take(path: pathlib.Path, undo: contextlib.ExitStack) -> int:
    """Takes the lock and returns its descriptor. Raises Occupied for a lock of another learner."""
    descriptor = os.open(path / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    undo.callback(os.close, descriptor)
    if (holder := _try_lock(descriptor)) is not None:
        raise errors.Occupied(
            f"{path} is in use by the learner with pid {holder}; end that one or give another --run_dir"
        )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _try_lock(descriptor: int) -> str | None:
    """Takes a free lock, else returns the pid of its holder."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _written_pid(descriptor)
    return None


def _written_pid(descriptor: int) -> str:
    return os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"


def holder(path: str | os.PathLike[str]) -> str | None:
    """Returns the pid, on its own machine, of the learner holding a run directory's lock; None: no holder.

    Takes the lock for a moment where none does.
    """
    try:
        descriptor = os.open(pathlib.Path(path) / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held, or a file system without locks: then nobody can tell
        return _written_pid(descriptor)
    finally:
        os.close(descriptor)
    return None


def wait_until_free(path: str | os.PathLike[str], report: Callable[[str], None]) -> None:
    """Blocks until no learner uses a run directory, if present. Raises ResumeError for an unreadable one.

    `report` receives a sentence about the learner that uses it.
    """
    path = pathlib.Path(path)
    with contextlib.ExitStack() as undo, as_resume_errors(path):
        try:
            descriptor = os.open(path / NAME, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return
        undo.callback(os.close, descriptor)
        if (holder := _try_lock(descriptor)) is not None:
            report(f"waits until the learner with pid {holder} has left {path}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextlib.contextmanager
def as_resume_errors(path: pathlib.Path, problem: str = "cannot use {} as run directory") -> Iterator[None]:
    """Raises OSErrors as ResumeErrors; problem: the sentence's beginning, with the path in its braces."""
    try:
        yield
    except OSError as error:
        raise errors.ResumeError(
            f"{problem.format(path)}: {error.strerror}; give --run_dir=DIR that can be written"
        ) from None
