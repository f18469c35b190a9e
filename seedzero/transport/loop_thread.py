"""Runs an asyncio event loop on a separate thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class LoopThread:
    """Runs coroutines and callbacks on a daemon thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        """Returns whether the caller runs on the loop's thread."""
        return threading.get_ident() == self._thread.ident

    def post(self, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Runs a callback soon. Any thread or signal handler may call it; it does nothing after stop()."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine until it ends and returns the result. Any other thread may call it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def stop(self) -> None:
        """Cancels all tasks, then ends the loop and the thread."""
        if self._loop.is_closed():
            return
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
