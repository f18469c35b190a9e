"""The learner's end of one worker's stream. Everything here runs on the server's event-loop thread."""

from __future__ import annotations

from grpc import aio

from seedzero.core import errors
from seedzero.transport import codec, messages, outbox, sessions, status

_MAX_UNREAD = messages.MAX_GROUPS + 16

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
    """

    def __init__(self, context: Context, now: float) -> None:
        self.run: sessions.Session[Stream] | None = None
        self.restarted = False
        self.ready = False
        self.heard_at = now
        self.max_message_bytes = codec.HANDSHAKE_BYTES
        self.failure: status.Failure | None = None
        self._context = context
        self._outbox = outbox.Outbox()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._outbox.closed

    async def read(self) -> bytes | None:
        """Returns the next message; None: the worker has closed its side."""
        data = await self._context.read()
        return data if isinstance(data, bytes) else None

    def put(self, data: bytes) -> None:
        """Has a message written; never blocks."""
        if not self.closed:
            self._outbox.put(data)

    def check_unread(self) -> None:
        """Raises InvalidMessage if a worker asks on and on without reading what it is answered."""
        if len(self._outbox) > _MAX_UNREAD:
            raise errors.InvalidMessage(f"{len(self._outbox)} answers wait to be read; read them before asking again")

    def close(self, failure: status.Failure | None = None) -> None:
        """Ends the stream once all is written. The first call counts."""
        if not self.closed:
            self.failure = failure
            self._outbox.close()

    async def write_until_closed(self) -> None:
        """Writes what is put, until close()."""
        while (data := await self._outbox.get()) is not None:
            await self._context.write(data)
