"""How the C library's allocator treats the memory of messages."""

from __future__ import annotations

# glibc raises its thresholds to the size of the largest mapped block ever freed, up to 32 MiB.
_BLOCK_BYTES = 32 * 2**20 - 64 * 2**10


def keep_freed_memory() -> None:
    """Has the process reuse the memory of freed messages instead of giving it back to the system every time.

    Otherwise the pages of every large message are returned, mapped and cleared anew: about 30 page faults and a tenth
    of a millisecond for 590 kB. The block below is never touched, so it costs nothing; elsewhere than on glibc it does
    nothing.
    """
    bytes(_BLOCK_BYTES)
