"""Handles early signals, before a command does."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

from seedzero.api import environment
from seedzero.cli import output
from seedzero.core import errors
from seedzero.learner.processes import signals


@contextlib.contextmanager
def leaving_at_once(work: str) -> Iterator[None]:
    """Makes SIGINT, SIGTERM and SIGHUP end the process with exit code 0 while entered: nothing needs saving yet.

    Python itself would die of SIGTERM, and as a container's first process not even receive it. After training, the
    first signal does nothing, because the process is about to end with its own exit code. work: what is being done,
    for the message.
    """
    signals.StopSignals.were_entered = False
    late: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        if signals.StopSignals.were_entered:
            late.append(number)
            if len(late) > 1:
                os._exit(errors.INTERRUPTED)
            return
        if environment.is_asking():  # its process must end first, and shows where it was
            raise KeyboardInterrupt
        output.say(f"stopped before {work} began")
        os._exit(0)

    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM, *hangup)}
    try:
        yield
    except KeyboardInterrupt as place:
        output.say(f"stopped before {work} began{place}")
        os._exit(0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
