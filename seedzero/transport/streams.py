"""The learner's end of one worker's stream. Everything here runs on the server's event-loop thread."""

from __future__ import annotations

import asyncio

from grpc import aio

from seedzero.core import errors
from seedzero.transport import handshake, messages, sessions
from seedzero.transport import status as grpc_status

_MAX_UNREAD = messages.MAX_GROUPS + 16

Context = aio.ServicerContext[bytes, bytes]


class Stream:
    """One stream, and the messages that wait to be written to it.

    Attributes:
      session: the one on this stream; None before Hello and after Restart.
      restarted: Restart was sent; messages until the next Hello belong to the session that is over.
      ready: Start was sent, so answers may follow.
      idle_since: time since which it has had no session, by the server's clock; means nothing while it has one.
      max_message_bytes: larger messages are refused.
      closed: nothing more is written after the messages that wait.
      failure: end of the stream; None: OK.
    """

    def __init__(self, context: Context, now: float) -> None:
        self.session: sessions.LearnerSession[Stream] | None = None
        self.restarted = False
        self.ready = False
        self.idle_since = now
        self.max_message_bytes = handshake.HANDSHAKE_BYTES
        self.failure: grpc_status.Failure | None = None
        self.closed = False
        self._context = context
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def read(self) -> bytes | None:
        """Returns the next message; None: the worker has closed its side."""
        data = await self._context.read()
        return data if isinstance(data, bytes) else None

    def put(self, data: bytes) -> None:
        """Has a message written; never blocks. The protocol bounds how many wait."""
        if not self.closed:
            self._outbox.put_nowait(data)

    def check_unread(self) -> None:
        """Raises InvalidMessage if a worker keeps asking without reading its answers."""
        if (waiting := self._outbox.qsize()) > _MAX_UNREAD:
            raise errors.InvalidMessage(f"{waiting} answers wait to be read; read them before asking again")

    def close(self, failure: grpc_status.Failure | None = None) -> None:
        """Ends the stream once all is written. The first call counts."""
        if not self.closed:
            self.closed, self.failure = True, failure
            self._outbox.put_nowait(None)

    async def write_until_closed(self) -> None:
        """Writes messages until close()."""
        while (data := await self._outbox.get()) is not None:
            await self._context.write(data)
