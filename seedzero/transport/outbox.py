"""Messages that wait to be written to a gRPC stream. Everything here runs on an event loop's thread."""

from __future__ import annotations

import asyncio
import collections
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

Write: TypeAlias = Callable[[bytes], Coroutine[Any, Any, None]]
"""The write method of a stream: a coroutine that only waits for futures, like those of grpc.aio."""


class Outbox:
    """Writes one message after another, by callbacks, because waking a task costs as much as a message.

    waiting: messages, where None is the end.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self.waiting: collections.deque[bytes | None] = collections.deque()
        self._is_idle = False  # whether it is writing while nothing waits
        self._over: asyncio.Future[None]  # set by write_all()

    def put(self, data: bytes | None) -> None:
        """Queues a message without blocking; None is the end."""
        self.waiting.append(data)
        if self._is_idle:
            self._is_idle = False
            # After all messages that can be read, because reading and writing in turn takes longer.
            self._over.get_loop().call_soon(self._write_next)

    async def write_all(self) -> None:
        """Writes messages until the end; raises the error of a write."""
        self._over = asyncio.get_running_loop().create_future()
        self._write_next()
        await self._over

    def _write_next(self) -> None:
        self._is_idle = not self.waiting
        if self._is_idle or self._over.done():
            return
        if (data := self.waiting.popleft()) is None:
            self._over.set_result(None)
        else:
            self._go_on(self._write(data))

    def _go_on(self, write: Coroutine[Any, Any, None], waited: object = None) -> None:
        """Runs a write until it waits or ends."""
        try:
            write.send(None).add_done_callback(functools.partial(self._go_on, write))
        except StopIteration:
            self._write_next()
        except asyncio.CancelledError:  # for example because the call is over
            self._over.cancel()
        except Exception as error:
            if not self._over.done():
                self._over.set_exception(error)
