"""The learner's end of one worker's stream. Everything here runs on the server's event-loop thread."""

from __future__ import annotations

import asyncio
import collections

from grpc import aio

from seedzero.core import errors
from seedzero.transport import codec, messages, sessions, status

_MAX_OUTBOX = messages.MAX_GROUPS + 16

Context = aio.ServicerContext[bytes, bytes]


class Stream:
    """One stream, and what waits to be written to it.

    Attributes:
      run: that the stream carries; None before Hello and after Restart.
      restarted: Restart was sent; until the next Hello, what comes belongs to the run that is over.
      ready: Start was sent, so answers may be.
      heard_at: when the last message came, by the server's clock.
      max_message_bytes: larger messages are refused.
      failure: how the stream ends; None: OK.
      closing: close() was called.
    """

    def __init__(self, context: Context, now: float) -> None:
        self.run: sessions.Run[Stream] | None = None
        self.restarted = False
        self.ready = False
        self.heard_at = now
        self.max_message_bytes = codec.HANDSHAKE_BYTES
        self.failure: status.Failure | None = None
        self._context = context
        self._outbox: collections.deque[bytes] = collections.deque()
        self._wake = asyncio.Event()
        self.closing = False

    async def read(self) -> bytes | None:
        """Returns the next message; None: the worker has closed its side."""
        data = await self._context.read()
        return data if isinstance(data, bytes) else None

    def put(self, data: bytes) -> None:
        """Has a message written; never blocks. A worker that does not read its answers loses its stream."""
        if len(self._outbox) >= _MAX_OUTBOX:
            self.close(status.failure_of(errors.InvalidMessage(f"{_MAX_OUTBOX} answers wait to be read; read them")))
            return
        self._outbox.append(data)
        self._wake.set()

    def close(self, failure: status.Failure | None = None) -> None:
        """Ends the stream: at once with a failure, else once all is written. The first call counts."""
        if not self.closing:
            self.closing, self.failure = True, failure
            self._wake.set()

    async def write_until_closed(self) -> None:
        """Writes what is put, until close()."""
        while self.failure is None:
            if self._outbox:
                await self._context.write(self._outbox.popleft())
            elif self.closing:
                return
            else:
                self._wake.clear()
                await self._wake.wait()
