"""Lines about a long call, such as a compilation, from a thread of its own: nobody waits in silence."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from seedzero.core import printable

EVERY_SECONDS = 10.0
"""Between two lines, as between two lines of training."""


@contextlib.contextmanager
def beside(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """While entered, works on a thread of its own; work: returns once the event is set."""
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
    """While entered, says every few seconds how far the work is.

    Args:
      state: any thread: returns the work under way; "": nothing to say now.
      say: prints a line; errors of a closed stream are ignored.
    """
    began = clock()

    def tell(over: threading.Event) -> None:
        while not over.wait(every_seconds):
            if text := state():
                with contextlib.suppress(OSError, ValueError):
                    say(f"{text}, {clock() - began:.0f} s so far")

    with beside("patience", tell):
        yield
