"""Names and files of a run directory; others may have written their content."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from seedzero.core import errors, printable

MOST_BYTES = 64 << 20
"""Longest file that is read as a whole: settings, a status, the manifest of a checkpoint."""


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Returns the descriptor of a file. Raises OSError, for a pipe, a socket or a device too: reading one may hang."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    return descriptor


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], *, flags: int = 0) -> Iterator[BinaryIO]:
    """Yields a regular file for reading; flags: further ones, such as O_NOFOLLOW. Raises OSError."""
    with os.fdopen(open_regular(path, os.O_RDONLY | flags), "rb") as stream:
        yield stream


def read(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """Returns the content of a regular file. Raises OSError, for more bytes than `most_bytes` too."""
    with opened(path) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes", os.fspath(path))
    return content


def opener(path: str, flags: int) -> int:
    """Opens a file for `open(path, mode, opener=opener)`; a link in its place is an OSError, and is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def check_name(path: str | os.PathLike[str]) -> None:
    """Raises ResumeError for a path outside UTF-8: tensorstore and gRPC could not name the run directory's files."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise errors.ResumeError(
            f"the path {printable.escape(os.fspath(path))} has bytes that are no UTF-8, and a run directory may have "
            "none: rename it, or give another --run_dir"
        ) from None
