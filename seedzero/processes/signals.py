"""Ctrl-C, SIGTERM and SIGHUP: training saves and leaves on the first, and leaves at once on a second.

SIGHUP is never the second: a terminal that closes sends several, and systemd one after SIGTERM. Where it is ignored
(nohup), it stays so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from seedzero.core import descendants, exit_codes, forks

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ECHO_SECONDS = 0.1
"""A second signal within this time is the first one's echo: `timeout` signals the process and its group."""


class StopSignals:
    """While entered, turns the signals into a stop request: sets `requested`. Enter it on the main thread.

    A thread of its own handles signals, woken by the C handler with a byte on a socket: the main thread may sit in a
    compilation for minutes, and a second Ctrl-C must not wait for it; callbacks may take locks. A forked child has the
    handlers of before: a signal that it gets is its own.
    """

    were_entered = False  # whether some have been entered in this process
    _entered: StopSignals | None = None  # that handle signals now

    def __init__(
        self,
        on_stop: Callable[[], None],
        *,
        say: Callable[[str], None],
        cleanup: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        leave: Callable[[int], Any] = os._exit,
    ) -> None:
        """cleanup: called before leaving at once: ends children by their own pids; must not block."""
        self.requested = threading.Event()
        self._on_stop, self._say, self._cleanup = on_stop, say, cleanup
        self._clock, self._leave = clock, leave
        self._first_time = 0.0

    def __enter__(self) -> StopSignals:
        self._reader, self._writer = socket.socketpair()
        forks.keep(self._reader, self._writer)
        self._writer.setblocking(False)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
        # A Python handler must be there for the C handler to write to the wake-up socket.
        self._old_handlers = {number: signal.signal(number, lambda *_: None) for number in {*STOP_SIGNALS} - ignored}
        StopSignals.were_entered, StopSignals._entered = True, self
        return self

    def __exit__(self, *_: object) -> None:
        StopSignals._entered = None
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        with contextlib.suppress(OSError):  # in a forked child it is no socket any more
            self._writer.shutdown(socket.SHUT_WR)  # the thread reads the end, whoever has a copy of the descriptor
        self._writer.close()
        self._thread.join()
        self._reader.close()

    def _let_go(self) -> None:
        """In a forked child: restores the handlers of before."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)

    # A child that gets a signal at once has its own handlers first: signals wait around a fork.

    @classmethod
    def _before_fork(cls) -> None:
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS if cls._entered else ())

    @classmethod
    def _after_fork(cls) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)

    @classmethod
    def _in_child(cls) -> None:
        if cls._entered is not None:
            cls._entered._let_go()
        cls._after_fork()

    def _listen(self) -> None:
        while byte := self._reader.recv(1):
            if byte[0] in STOP_SIGNALS:
                self._received(byte[0])

    def _received(self, number: int) -> None:
        now = self._clock()
        if not self.requested.is_set():
            self._first_time = now
            self.requested.set()
            self._on_stop()
            self._say("saving and leaving; press Ctrl-C again to leave at once")
        elif number != signal.SIGHUP and now - self._first_time > ECHO_SECONDS:
            try:
                self._cleanup()
            finally:
                self._leave(exit_codes.INTERRUPTED)


_masks = threading.local()
os.register_at_fork(
    before=StopSignals._before_fork,
    after_in_parent=StopSignals._after_fork,
    after_in_child=StopSignals._in_child,
)


def terminate_with_input() -> None:
    """Sends the process SIGTERM once its standard input is closed, as by the end of its supervisor."""
    descendants.at_end_of_input(lambda: os.kill(os.getpid(), signal.SIGTERM))
