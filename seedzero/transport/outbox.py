"""Messages that wait to be written to a stream. For one event loop."""

from __future__ import annotations

import asyncio
import collections


class Outbox:
    """A queue from callbacks, which never wait, to the one coroutine that writes.

    Attributes:
      closed: nothing more will be written once the queue is empty.
    """

    def __init__(self) -> None:
        self.closed = False
        self._waiting: collections.deque[bytes] = collections.deque()
        self._writer: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, data: bytes) -> None:
        """Adds a message. Who puts also bounds: the protocol says how many can wait."""
        self._waiting.append(data)
        self._wake()

    def close(self) -> None:
        """Lets the writer end after what waits."""
        self.closed = True
        self._wake()

    async def get(self) -> bytes | None:
        """Returns the next message; None: closed, and all is written."""
        while not self._waiting:
            if self.closed:
                return None
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer
        return self._waiting.popleft()

    def _wake(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)
