"""A disk that is full for a moment, for tests of what writes files."""

from __future__ import annotations

import contextlib
import pathlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def after(path: pathlib.Path, num_bytes: int) -> Iterator[None]:
    """Within it, this process writes no file beyond the size of `path` and some bytes: half of a write succeeds."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
