"""Prints messages during a long call, such as a compilation, from a separate thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from seedzero.core import printable

EVERY_SECONDS = 10.0
"""Time between two messages, as between two rows of training."""


@contextlib.contextmanager
def beside(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs `work` on a thread while entered; `work` returns once its event is set."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def telling(
    state: Callable[[], str],
    say: Callable[[str], None] = printable.say,
    *,
    every_seconds: float = EVERY_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """While entered, reports every few seconds what is in progress.

    Args:
      state: called on any thread; returns what is in progress, or "" to report nothing now.
      say: prints a message; errors of a closed stream are ignored.
    """
    began = clock()

    def tell(over: threading.Event) -> None:
        while not over.wait(every_seconds):
            if text := state():
                with contextlib.suppress(OSError, ValueError):
                    say(f"{text}, {clock() - began:.0f} s so far")

    with beside("patience", tell):
        yield
