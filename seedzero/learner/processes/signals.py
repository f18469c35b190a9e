"""Handles Ctrl-C, SIGTERM and SIGHUP: training saves and leaves on the first, and leaves at once on a second.

SIGHUP is never the second, because a closing terminal sends several, and systemd sends one after SIGTERM. If it is
ignored (nohup), it stays ignored.
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

from seedzero.core import descendants, errors, forks

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ECHO_SECONDS = 0.1
"""A second signal within this time, once the first is handled, is its echo: `timeout` signals the group, too."""


class StopSignals:
    """Turns signals into a stop request while the context is entered, on the main thread: sets `requested`.

    A separate thread handles signals, woken by the C handler with a byte on a socket, because the main thread may be
    compiling for minutes, and a second Ctrl-C must not wait for it; callbacks may also take locks. A forked child has
    the earlier handlers, so a signal sent to it affects only itself.
    """

    were_entered = False  # whether any were entered in this process
    _entered: StopSignals | None = None  # the ones that handle signals now

    def __init__(
        self,
        on_stop: Callable[[], None],
        *,
        say: Callable[[str], None],
        cleanup: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        leave: Callable[[int], Any] = os._exit,
    ) -> None:
        """cleanup: called before leaving at once; ends children by their pids, and must not block."""
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
        # The C handler writes to the wake-up socket only if there is a Python handler.
        self._old_handlers = {number: signal.signal(number, lambda *_: None) for number in {*STOP_SIGNALS} - ignored}
        StopSignals.were_entered, StopSignals._entered = True, self
        return self

    def __exit__(self, *_: object) -> None:
        StopSignals._entered = None
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        with contextlib.suppress(OSError):  # in a forked child it is no longer a socket
            # the thread reads the end even if others have copies of the descriptor
            self._writer.shutdown(socket.SHUT_WR)
        self._writer.close()
        self._thread.join()
        self._reader.close()

    def _let_go(self) -> None:
        """Restores the earlier handlers, in a forked child."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)

    # Signals are blocked around a fork, so that a child which gets one at once already has its own handlers.

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
        if not self.requested.is_set():
            self.requested.set()
            self._on_stop()
            self._first_time = self._clock()
            self._say("saving and leaving; press Ctrl-C again to leave at once")
        elif number != signal.SIGHUP and self._clock() - self._first_time > ECHO_SECONDS:
            try:
                self._cleanup()
            finally:
                self._leave(errors.INTERRUPTED)


_masks = threading.local()
os.register_at_fork(
    before=StopSignals._before_fork,
    after_in_parent=StopSignals._after_fork,
    after_in_child=StopSignals._in_child,
)


def terminate_with_input() -> None:
    """Sends SIGTERM to this process once its standard input is closed, as when its supervisor ends."""
    descendants.at_end_of_input(lambda: os.kill(os.getpid(), signal.SIGTERM))
