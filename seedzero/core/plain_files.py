"""Names and files of a run directory; others may have written their content."""

from __future__ import annotations

import os

from seedzero.core import errors, printable


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
