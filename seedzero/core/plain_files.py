"""Safely opens and names the files of a run directory, whose content others may have written."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pathlib
import stat
from collections.abc import Iterator

from seedzero.core import errors, printable

# Finds the user's cache directory.
CACHE_REMEDY = "set HOME or XDG_CACHE_HOME to a directory that this user may write"


def cache_directory() -> pathlib.Path | None:
    """Returns the directory, or None for a user id without a home, as in a container that runs under a bare number."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return pathlib.Path(given)
    try:
        return pathlib.Path.home() / ".cache"
    except RuntimeError:  # neither HOME nor an entry in the table of users
        return None


MOST_BYTES = 64 << 20
"""Largest file that is read as a whole: settings, a status, the manifest of a checkpoint."""
MOST_LINE_BYTES = 4 << 20


def opener(path: str, flags: int) -> int:
    """Opens a file for `open(path, mode, opener=opener)`; raises OSError for a link, or for what is not a file."""
    return open_regular(path, flags | os.O_NOFOLLOW)


def open_regular(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Returns the descriptor of a regular file. Opening a pipe could block forever, and reading a device never end."""
    no_file = OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        raise no_file if error.errno == errno.ENXIO else error from None  # a socket, or a pipe that nobody reads
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path)) if stat.S_ISDIR(kind) else no_file


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], *, follow: bool = True) -> Iterator[io.BufferedReader]:
    """Yields a regular file for reading. Raises OSError. follow: whether to follow links."""
    with os.fdopen(open_regular(path, os.O_RDONLY if follow else os.O_RDONLY | os.O_NOFOLLOW), "rb") as stream:
        yield stream


def read(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """Returns the content of a regular file. Raises OSError, also if it has more than `most_bytes`."""
    with opened(path) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes", os.fspath(path))
    return content


def lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yields the lines of a regular file. Raises OSError, also for a link and for a very long line."""
    with opened(path, follow=False) as stream:
        while line := stream.readline(MOST_LINE_BYTES + 1):
            if len(line) > MOST_LINE_BYTES:
                raise OSError(errno.EFBIG, f"a line has more than {MOST_LINE_BYTES:,} bytes", os.fspath(path))
            yield line


def given(name: str, path: object) -> str:
    """Returns a path, or another name, that a caller gave. Raises UsageError unless it is a text or a path object."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or "\0" in text:
        raise errors.UsageError(f"{name}={path!r}: expected a text or a pathlib.Path, without null characters")
    return text


def check_name(path: str | os.PathLike[str]) -> None:
    """Raises ResumeError for a path outside UTF-8, which tensorstore and gRPC could not use."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise errors.ResumeError(
            f"the path {printable.escape(os.fspath(path))} has bytes that are no UTF-8, and a run directory may have "
            "none: rename it, or give another --run_dir"
        ) from None
