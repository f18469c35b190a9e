"""Ctrl-C and SIGTERM: the first asks training to save and leave, the second leaves at once."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_CODE = 130
"""Exit code of leaving at once."""
ECHO_SECONDS = 0.1
"""A signal so soon after the first is the same one: `timeout` sends its signal to the process and to its group."""


class StopSignals:
    """While it is entered, turns SIGINT and SIGTERM into a stop request. Enter it on the main thread.

    Signals are handled on a thread of its own, which the C handler wakes by a byte on a socket: the main thread may
    sit in a compilation for minutes, and a second Ctrl-C must not wait for it; callbacks may take locks.

    Attributes:
      requested: set by the first signal.
    """

    def __init__(
        self,
        on_stop: Callable[[], None],
        *,
        say: Callable[[str], None],
        cleanup: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        leave: Callable[[int], Any] = os._exit,
    ) -> None:
        """
        Args:
          on_stop: called once, on the first signal.
          say: tells the user.
          cleanup: called before leaving at once: ends children by their own pids; must not block.
          clock: monotonic seconds.
          leave: ends the process with an exit code.
        """
        self.requested = threading.Event()
        self._on_stop, self._say, self._cleanup = on_stop, say, cleanup
        self._clock, self._leave = clock, leave
        self._first_time = 0.0

    def __enter__(self) -> StopSignals:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._old_handlers = {number: signal.signal(number, _wake_only) for number in STOP_SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._writer.close()
        self._thread.join()
        self._reader.close()

    def _listen(self) -> None:
        while byte := self._reader.recv(1):
            if byte[0] in STOP_SIGNALS:
                self._received()

    def _received(self) -> None:
        now = self._clock()
        if not self.requested.is_set():
            self._first_time = now
            self.requested.set()
            self._on_stop()
            self._say("saving and leaving; press Ctrl-C again to leave at once")
        elif now - self._first_time > ECHO_SECONDS:
            try:
                self._cleanup()
            finally:
                self._leave(EXIT_CODE)


def terminate_with_input() -> None:
    """Starts a thread that sends this process SIGTERM once its standard input is closed.

    That is a pipe which whoever supervises this process holds open: it closes when the supervisor ends, however that
    happens.
    """
    threading.Thread(target=_watch_input, name="supervisor", daemon=True).start()


def _watch_input() -> None:
    # Not through sys.stdin: a thread that waits in it makes Python's own end fatal.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _wake_only(number: int, frame: FrameType | None) -> None:
    """Does nothing: a Python handler must be there for the C handler to write to the wake-up socket."""
