"""Memory that the C library keeps after it was freed."""

from __future__ import annotations

import contextlib
import ctypes


def trim_heap() -> None:
    """Returns freed memory to the system; no effect without glibc.

    Writing a checkpoint frees hundreds of megabytes in pieces, and glibc would keep them in the thread's own heap.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
