"""Runs an asyncio event loop on the thread that uses it.

A thread of its own would have to be woken for each message, and would wake the user's thread for each answer, which
costs as much as the message. While the user is busy with something else, a keeper's thread runs the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar, TypeVarTuple

from seedzero.transport import loop_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
AWAY_SECONDS = 0.1
"""The keeper runs the loop once the owner has let it stand for this long, at most twice as long."""


class CallerLoop:
    """An event loop of one owner. Only `wake` may be called from other threads; the loop's callbacks may call `check`.

    Either the owner's thread or the keeper's runs the loop, never both. The owner takes it back at once.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._running = threading.Lock()  # held by the thread that runs the loop
        self._is_wanted = False  # by the owner
        self._num_turns = 0  # of the owner
        self._is_due: Callable[[], bool] = _never
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=name, daemon=True)
        self._keeper.start()

    def call(self, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Calls a function that uses the loop's objects. What it starts continues with the loop."""
        with self._turn():
            callback(*args)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine until it ends and returns the result."""
        with self._turn():
            task = self._loop.create_task(coroutine)
            task.add_done_callback(lambda _: self.check())
            self._run_until(task.done)
            return task.result()

    def wait(self, is_due: Callable[[], bool]) -> None:
        """Runs the loop until `is_due`; whatever makes it true also calls `check` or `wake`."""
        with self._turn():
            self._run_until(is_due)

    def check(self) -> None:
        """Ends the owner's wait if it is due. For callbacks of the loop."""
        if self._is_due():
            self._loop.stop()

    def wake(self) -> None:
        """Looks whether the owner's wait is due. Any thread or signal handler may call it, also after close()."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._loop.stop)

    def close(self) -> None:
        """Cancels all tasks, then ends the loop and the keeper."""
        self._closing.set()
        self.wake()
        self._keeper.join()
        self.run(loop_thread.cancel_others())
        self._loop.close()

    def _run_until(self, is_due: Callable[[], bool]) -> None:
        self._is_due = is_due
        try:
            while not is_due():
                self._loop.run_forever()
        finally:
            self._is_due = _never

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """While entered, the loop is the owner's."""
        self._num_turns += 1
        self._is_wanted = True
        if self._running.locked():
            self.wake()  # the keeper, which then stops
        with self._running:
            outer = asyncio._get_running_loop()  # the owner's thread may run another loop, as in a notebook
            asyncio._set_running_loop(None)
            try:
                yield
            finally:
                asyncio._set_running_loop(outer)
                self._is_wanted = False

    def _keep(self) -> None:
        """Runs the loop whenever the owner has been away for a while."""
        seen = -1
        while not self._closing.wait(AWAY_SECONDS):
            seen, before = self._num_turns, seen
            if seen != before or not self._running.acquire(blocking=False):
                continue
            try:
                while not self._is_wanted and not self._closing.is_set():
                    self._loop.run_forever()
            finally:
                self._running.release()


def _never() -> bool:
    return False
