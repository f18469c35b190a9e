"""A worker's connection: one stream after another, until the learner says End, an error is permanent, or close()."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from grpc import aio

from seedzero.config import sections
from seedzero.transport import codec, options, security, worker_side
from seedzero.transport import status as grpc_status

_CONNECT_SECONDS = 10.0
_FIRST_BACKOFF_SECONDS = 0.1
_COMPLAINT_SECONDS = 30.0
_logger = logging.getLogger(__name__)


class _Retries:
    """Pauses that double from attempt to attempt, and complaints that do not repeat themselves."""

    def __init__(self, address: str, max_backoff_seconds: float) -> None:
        self._address = address
        self._max_backoff_seconds = max_backoff_seconds
        self._backoff_seconds = _FIRST_BACKOFF_SECONDS
        self._complaint = ""
        self._complained_at = 0.0

    async def pause(self, trouble: str) -> None:
        """Sleeps before the next attempt."""
        now, kind = time.monotonic(), trouble.partition(":")[0]
        if kind != self._complaint or now - self._complained_at >= _COMPLAINT_SECONDS:
            self._complaint, self._complained_at = kind, now
            _logger.warning("learner at %s: %s; trying again", self._address, trouble)
        await asyncio.sleep(self._backoff_seconds * random.uniform(0.5, 1.0))
        self._backoff_seconds = min(2 * self._backoff_seconds, self._max_backoff_seconds)

    def heard(self, kind: str | None) -> None:
        """Takes note of a message: an Assign ends a complaint, Actions end the doubling."""
        if kind == "assign" and self._complaint:
            self._complaint = ""
            _logger.info("learner at %s: connected", self._address)
        elif kind == "actions":
            self._backoff_seconds = _FIRST_BACKOFF_SECONDS


class Connection:
    """Keeps a worker connected. Everything here runs on the event loop's thread; open() starts it."""

    def __init__(
        self,
        secured: security.ClientSecurity,
        settings: sections.TransportConfig,
        side: worker_side.WorkerSide,
        deliver: Callable[[worker_side.Event], None],
    ) -> None:
        self._security = secured
        self._settings = settings
        self._side = side
        self._deliver = deliver
        self._retries = _Retries(secured.address, settings.max_backoff_seconds)
        self._closing = False

    async def open(self) -> None:
        """Starts the task that connects, as soon as there is something to say."""
        self._task = asyncio.create_task(self._keep_connected())
        self._task.add_done_callback(self._ended)

    async def close(self, reason: str, failed: bool, timeout_seconds: float) -> None:
        """Says Goodbye where a stream is open, and waits until it is through, at most `timeout_seconds`."""
        self._closing = True
        if self._side.leave(reason, failed):
            await asyncio.wait([self._task], timeout=timeout_seconds)
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _keep_connected(self) -> None:
        while not self._closing:
            await self._side.wanted.wait()
            trouble = await self._converse()
            if trouble is None or self._closing:
                return
            await self._retries.pause(trouble)

    async def _converse(self) -> str | None:
        """Holds one stream from beginning to end; returns the reason to try again, None for none.

        Raises a permanent error.
        """
        async with security.aio_channel(self._security, options.client(self._settings)) as channel:
            connect = channel.stream_stream(codec.CONNECT_METHOD, bytes, bytes)
            # Written to and read from below.
            call = connect(metadata=self._security.metadata)  # type: ignore[call-arg]
            try:
                await asyncio.wait_for(call.wait_for_connection(), _CONNECT_SECONDS)
                return await self._use(worker_side.WorkerStream(call))
            except TimeoutError:
                return f"no connection within {_CONNECT_SECONDS:g} s"
            except aio.AioRpcError as error:
                code, details = error.code(), error.details() or ""
                # On a thread, since it may try the port.
                final = grpc_status.error_of(error) or await asyncio.to_thread(
                    security.explain, code, details, self._security
                )
                if final is not None:
                    raise final from None
                return grpc_status.of_proxy(code, details) or f"{code.name}: {details}"
            finally:
                call.cancel()

    async def _use(self, stream: worker_side.WorkerStream) -> str | None:
        self._side.attach(stream)
        try:
            while isinstance(data := await stream.call.read(), bytes):
                message = codec.decode_learner(data)
                kind = message.WhichOneof("message")
                self._side.receive(stream, message)
                self._retries.heard(kind)
                if kind == "end":
                    self._closing = True
                    return None
            return "the learner closed the stream"
        finally:
            self._side.detach()
            await stream.stop()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Delivers the permanent error that ended the connection: the worker may wait for an answer."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._deliver(error)
