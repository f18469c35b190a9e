"""The thread that writes checkpoints. Waiting for it ends if the disk does not answer."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from seedzero.core import errors

PATIENCE_SECONDS = 300.0
"""Longest time for one step of a save: a segment of the replay, the arrays of a checkpoint, or a frozen player."""
HURRIED_SECONDS = 30.0
"""The same limit once the run was interrupted."""
_LOOK_SECONDS = 0.5


class SaveThread(concurrent.futures.ThreadPoolExecutor):
    """Runs the steps of saves in order. Any thread may call `hurry` and `check`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, look_seconds: float = _LOOK_SECONDS) -> None:
        super().__init__(1, thread_name_prefix="checkpoint")
        self._clock, self._look_seconds = clock, look_seconds
        self._limit_seconds, self._began = PATIENCE_SECONDS, None

    _began: float | None  # when the present step began to write; None between two steps, and during uploads

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """On this thread: limits the time of what runs within."""
        self._began = self._clock()
        try:
            yield
        finally:
            self._began = None

    def hurry(self) -> None:
        """Waits less from now on, because the run was interrupted."""
        self._limit_seconds = HURRIED_SECONDS

    def check(self) -> None:
        """Raises CheckpointError if the present step takes too long."""
        began = self._began
        if began is not None and (seconds := self._clock() - began) > self._limit_seconds:
            raise errors.CheckpointError(
                f"the checkpoint in progress has waited {seconds:.0f} s for the disk, which does not answer; "
                "earlier checkpoints are kept. See whether the run directory can be written"
            )

    def wait(self, *pending: concurrent.futures.Future[Any] | None) -> None:
        """Waits for futures and raises their exceptions. Raises CheckpointError as `check` does."""
        for one in pending:
            while one is not None and not concurrent.futures.wait([one], self._look_seconds).done:
                self.check()
            if one is not None:
                one.result()

    @contextlib.contextmanager
    def holding(self, lock: threading.RLock) -> Iterator[None]:
        """Holds a lock that this thread may have. Raises CheckpointError as `check` does."""
        while not lock.acquire(timeout=self._look_seconds):
            self.check()
        try:
            yield
        finally:
            lock.release()


def trim_heap() -> None:
    """Returns freed memory to the system; does nothing without glibc.

    Writing a checkpoint frees hundreds of megabytes in small pieces, which glibc would keep in the thread's heap.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
