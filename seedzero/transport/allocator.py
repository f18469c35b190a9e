"""The C library's allocator and the memory of messages."""

from __future__ import annotations

# glibc raises its thresholds to the size of the largest mapped block ever freed, up to 32 MiB.
_BLOCK_BYTES = 32 * 2**20 - 64 * 2**10


def keep_freed_memory() -> None:
    """Makes the process reuse the memory of freed messages instead of returning it to the system.

    Otherwise the pages of every large message are returned, mapped and cleared anew: about 30 page faults and a tenth
    of a millisecond for 590 kB. The block below is never touched and costs nothing; without glibc it has no effect.
    """
    bytes(_BLOCK_BYTES)
