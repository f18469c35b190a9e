"""The server's calls: access, streams from beginning to end, leases, the end of serving."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
from collections.abc import Callable

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2

from seedzero.config import sections
from seedzero.core import errors
from seedzero.transport import codec, inference_pb2, learner_side, messages, security, streams
from seedzero.transport import status as grpc_status

_MAX_TICK_SECONDS = 1.0
_TICKS_A_LEASE = 20
_MAX_WATCHING = 2
"""Streams of strangers that stay: each may hold some megabytes that nobody reads."""
_HEALTH_SERVICE = "grpc.health.v1.Health"
_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
_NOT_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)


class Service:
    """Answers workers; `side` handles messages. Everything here runs on the server's event-loop thread."""

    def __init__(
        self,
        learner: messages.Handler,
        settings: sections.TransportConfig,
        clock: Callable[[], float],
        guard: security.Guard,
    ) -> None:
        self.side = learner_side.LearnerSide(learner, settings, clock)
        self._guard = guard
        self._learner = learner
        self._settings = settings
        self._clock = clock
        self._streams: set[streams.Stream] = set()
        self._farewell: Callable[[streams.Stream], None] | None = None
        self._num_watching = 0
        self._empty = asyncio.Event()
        self._watched_at = math.inf

    def methods(self) -> tuple[grpc.GenericRpcHandler[bytes, bytes], ...]:
        """Returns all methods for a grpc.aio server.

        Each is a stream to gRPC, which would read and keep the whole request of a unary one before the token is looked
        at. Connect alone reads, raw bytes: `codec` decodes them.
        """
        reply, state = inference_pb2.StatusReply.SerializeToString, health_pb2.HealthCheckResponse.SerializeToString
        ours = {
            "Connect": grpc.stream_stream_rpc_method_handler(self.connect),
            "Status": grpc.stream_unary_rpc_method_handler(self.status, response_serializer=reply),
        }
        health = {
            "Check": grpc.stream_unary_rpc_method_handler(self.check, response_serializer=state),
            "Watch": grpc.stream_stream_rpc_method_handler(self.watch, response_serializer=state),
        }
        return (
            grpc.method_handlers_generic_handler(codec.SERVICE, ours),
            grpc.method_handlers_generic_handler(_HEALTH_SERVICE, health),
        )

    async def check(self, requests: object, context: streams.Context) -> health_pb2.HealthCheckResponse:
        """Returns the learner's health; the same for every service that the request, which is not read, may name."""
        return _NOT_SERVING if self._farewell else _SERVING

    async def watch(self, requests: object, context: streams.Context) -> None:
        """Sends the learner's health, which changes with the server's end alone."""
        if self._num_watching == _MAX_WATCHING:
            many = f"{_MAX_WATCHING} streams watch the learner's health already; ask by Check instead"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, many)
        self._num_watching += 1
        try:
            await context.write(await self.check(requests, context))
            await asyncio.Event().wait()  # until either end cancels it
        finally:
            self._num_watching -= 1

    async def status(self, requests: object, context: streams.Context) -> inference_pb2.StatusReply:
        """Returns the learner's counters and state."""
        await self._refuse_strangers(context)
        try:
            return inference_pb2.StatusReply(json=json.dumps(dict(self._learner.status())))
        except Exception as error:  # the text of an unexpected error must not reach the caller
            failure = grpc_status.failure_of(error)
        await context.abort(failure.code, failure.details)

    async def connect(self, requests: object, context: streams.Context) -> None:
        """Serves one worker's stream from beginning to end."""
        await self._refuse_strangers(context)
        stream = streams.Stream(context, self._clock())
        self._streams.add(stream)
        reader = asyncio.create_task(self._read(stream))
        reader.add_done_callback(functools.partial(self._reading_ended, stream))
        if self._farewell:
            self._farewell(stream)
        elif len(self._streams) > self._settings.max_workers:
            many = f"{self._settings.max_workers} workers are connected; transport.max_workers allows no more"
            stream.close(grpc_status.failure_of(errors.SlotsExhausted(many)))
        try:
            await stream.write_until_closed()
        finally:
            reader.cancel()
            self._forget(stream)
        if stream.failure:
            trailer = ((grpc_status.ERROR_KEY, stream.failure.kind),) if stream.failure.kind else ()
            await context.abort(stream.failure.code, stream.failure.details, trailer)

    def watch_leases(self) -> None:
        """Ends sessions and streams that are past a deadline, now and from now on."""
        lease = self._settings.lease_seconds
        loop, now = asyncio.get_running_loop(), self._clock()
        loop.call_later(min(lease / _TICKS_A_LEASE, _MAX_TICK_SECONDS), self.watch_leases)
        if self._farewell:
            return
        if loop.time() - self._watched_at > lease / 2:  # this process stood still; its workers' messages wait unread
            self.side.renew_all()
            for stream in self._streams:
                stream.idle_since = now
        self._watched_at = loop.time()
        self.side.expire()
        for stream in self._streams:
            if stream.session is None and now - stream.idle_since >= self._settings.hello_seconds:
                silent = f"no Hello came for {self._settings.hello_seconds:g} s on a stream without a session"
                stream.close(grpc_status.Failure(grpc.StatusCode.DEADLINE_EXCEEDED, silent))

    async def dismiss(self, finished: bool, reason: str, grace_seconds: float) -> None:
        """Dismisses all workers, later ones too; waits until they are gone, at most `grace_seconds`."""
        gone = grpc_status.Failure(grpc.StatusCode.UNAVAILABLE, f"the learner stops: {reason}")
        end = codec.encode_end(reason)
        self._farewell = (lambda stream: stream.put(end)) if finished else (lambda stream: stream.close(gone))
        for stream in self._streams:
            self._farewell(stream)
        self._empty.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                while self._streams:
                    await self._empty.wait()

    async def _refuse_strangers(self, context: streams.Context) -> None:
        try:
            self._guard.check(context.invocation_metadata() or (), context.peer())
        except errors.AccessDenied as error:
            failure = grpc_status.failure_of(error)
            await context.abort(failure.code, failure.details, ((grpc_status.ERROR_KEY, failure.kind),))

    # --- streams ---

    async def _read(self, stream: streams.Stream) -> None:
        # No name here holds on to a message: its memory is free for the next one.
        while self._receive(stream, await stream.read()):
            pass

    def _reading_ended(self, stream: streams.Stream, task: asyncio.Task[None]) -> None:
        """Ends a stream: its worker closed it, broke the protocol, or an unexpected error occurred here."""
        error = None if task.cancelled() else task.exception()
        failure = None if error is None or isinstance(error, aio.BaseError) else grpc_status.failure_of(error)
        stream.close(failure)
        if failure and stream.session:
            self.side.end(stream.session, messages.FAILED + failure.details)

    def _forget(self, stream: streams.Stream) -> None:
        """Drops a stream; its session lives on until the lease expires."""
        self._streams.discard(stream)
        if stream.session:
            stream.session.stream = None
            stream.session = None
        if not self._streams:
            self._empty.set()

    def _receive(self, stream: streams.Stream, data: bytes | None) -> bool:
        """Handles a message; returns whether another one may follow."""
        if data is None or stream.closed:
            return False
        if not self._farewell:
            self.side.receive(stream, data)
        return True
