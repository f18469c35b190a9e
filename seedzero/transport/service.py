"""The protocol as the learner speaks it, on the server's event-loop thread.

way of a step:    connect -> _read -> _receive -> _on_step -> Handler.step
way of an answer: Server.reply -> Service.deliver -> Stream.put -> connect
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import logging
import math
from collections.abc import Callable
from typing import Any

import grpc
from grpc import aio

from seedzero.config import config
from seedzero.core import errors
from seedzero.transport import codec, handler, inference_pb2, messages, security, sessions, status, streams

_MAX_TICK_SECONDS = 1.0
_TICKS_A_LEASE = 20
_MAX_REASON = 1000
_logger = logging.getLogger(__name__)


class Service:
    """Answers the calls of workers."""

    def __init__(
        self,
        learner: handler.Handler,
        settings: config.TransportConfig,
        clock: Callable[[], float],
        guard: security.Guard,
    ) -> None:
        """Prepares only; see watch_leases().

        Args:
          learner: takes what workers send.
          settings: leases, heartbeats, most workers.
          clock: seconds, for leases.
          guard: decides who may call.
        """
        self._guard = guard
        self._learner = learner
        self._settings = settings
        self._clock = clock
        self._sessions: sessions.Sessions[streams.Stream] = sessions.Sessions(settings.lease_seconds)
        self._streams: set[streams.Stream] = set()
        self._farewell: Callable[[streams.Stream], None] | None = None
        self._empty = asyncio.Event()
        self._watched_at = math.inf
        self._receivers: dict[str, Callable[[streams.Stream, Any], None]] = {
            "hello": self._on_hello,
            "spec": self._on_spec,
            "heartbeat": self._on_heartbeat,
            "goodbye": self._on_goodbye,
        }

    def methods(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Returns both methods for a grpc.aio server. Connect takes raw bytes: decoding them is our own affair."""
        handlers = {
            "Connect": grpc.stream_stream_rpc_method_handler(self.connect),
            "Status": grpc.unary_unary_rpc_method_handler(
                self.status, response_serializer=inference_pb2.StatusReply.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(codec.SERVICE, handlers)

    async def status(self, request: bytes, context: streams.Context) -> inference_pb2.StatusReply:
        """Returns the learner's counters and state."""
        await self._refuse_strangers(context)
        try:
            return inference_pb2.StatusReply(json=json.dumps(dict(self._learner.status())))
        except Exception as error:  # the text of an unexpected error must not reach the caller
            failure = status.failure_of(error)
        await context.abort(failure.code, failure.details)

    async def connect(self, requests: object, context: streams.Context) -> None:
        """Has one worker's stream from its beginning to its end."""
        await self._refuse_strangers(context)
        stream = streams.Stream(context, self._clock())
        self._streams.add(stream)
        reader = asyncio.create_task(self._read(stream))
        reader.add_done_callback(functools.partial(self._reading_ended, stream))
        self._greet(stream)
        try:
            await stream.write_until_closed()
        finally:
            reader.cancel()
            self._forget(stream)
        if stream.failure:
            trailer = ((status.ERROR_KEY, stream.failure.kind),) if stream.failure.kind else ()
            await context.abort(stream.failure.code, stream.failure.details, trailer)

    def deliver(self, session_id: str, group: int, sequence: int, reply: bytes) -> None:
        """Answers a step; does nothing if its run is over."""
        run = self._sessions.find(session_id)
        if run and run.answer(group, sequence, reply) and run.stream and run.stream.ready:
            run.stream.put(reply)

    def restart(self, session_id: str, reason: str) -> None:
        """Ends a run without a word to the learner, and has its worker join again."""
        run = self._sessions.remove(session_id)
        if run and run.stream:
            self._send_restart(run.stream, reason)

    def watch_leases(self) -> None:
        """Gives up silent runs, now and from now on."""
        lease = self._settings.lease_seconds
        loop, now = asyncio.get_running_loop(), self._clock()
        loop.call_later(min(lease / _TICKS_A_LEASE, _MAX_TICK_SECONDS), self.watch_leases)
        if self._farewell:
            return
        if loop.time() - self._watched_at > lease / 2:  # this process stood still; its workers' heartbeats wait unread
            self._sessions.renew_all(now)
        self._watched_at = loop.time()
        for run in self._sessions.expired(now):
            self._end(run, handler.WORKER_LOST)
            if run.stream:
                self._send_restart(run.stream, f"nothing came for {lease:g} s; send heartbeats")
        for stream in self._streams:
            if stream.run is None and now - stream.heard_at >= lease:
                silent = f"nothing came for {lease:g} s on a stream without a run"
                stream.close(status.Failure(grpc.StatusCode.DEADLINE_EXCEEDED, silent))

    async def dismiss(self, finished: bool, reason: str, grace_seconds: float) -> None:
        """Sends all workers home, and those that still come; waits until they are gone, but not for long."""
        gone = status.Failure(grpc.StatusCode.UNAVAILABLE, f"the learner stops: {reason}")
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
            failure = status.failure_of(error)
            await context.abort(failure.code, failure.details, ((status.ERROR_KEY, failure.kind),))

    # --- streams ---

    def _greet(self, stream: streams.Stream) -> None:
        if self._farewell:
            self._farewell(stream)
        elif len(self._streams) > self._settings.max_workers:
            many = f"{self._settings.max_workers} workers are connected; transport.max_workers allows no more"
            stream.close(status.failure_of(errors.SlotsExhausted(many)))

    async def _read(self, stream: streams.Stream) -> None:
        # No name here holds on to a message: its memory is free for the next one.
        while self._receive(stream, await stream.read()):
            pass

    def _reading_ended(self, stream: streams.Stream, task: asyncio.Task[None]) -> None:
        """Ends a stream whose worker closed it, sent something wrong, or met an unexpected error of ours."""
        error = None if task.cancelled() else task.exception()
        if error is None or isinstance(error, aio.BaseError):
            stream.close()
            return
        failure = status.failure_of(error)
        stream.close(failure)
        if stream.run:
            self._end(stream.run, handler.FAILED + failure.details)

    def _forget(self, stream: streams.Stream) -> None:
        """Lets a stream go; its run lives on until the lease expires."""
        self._streams.discard(stream)
        if stream.run:
            stream.run.stream = None
            stream.run = None
        if not self._streams:
            self._empty.set()

    def _end(self, run: sessions.Session[streams.Stream], reason: str) -> None:
        """Ends a run if it is not over yet, and tells the learner."""
        if self._sessions.remove(run.assignment.session_id):
            self._learner.end(run.assignment.session_id, reason)

    def _send_restart(self, stream: streams.Stream, reason: str) -> None:
        stream.run, stream.restarted, stream.ready = None, True, False
        stream.heard_at = self._clock()  # it has a whole lease's time to say Hello
        stream.max_message_bytes = max(stream.max_message_bytes, codec.HANDSHAKE_BYTES)
        stream.put(codec.encode_restart(reason))

    # --- messages ---

    def _receive(self, stream: streams.Stream, data: bytes | None) -> bool:
        """Does what a message asks for; returns whether another one may follow."""
        if data is None or stream.closed:
            return False
        if self._farewell:
            return True
        stream.check_unread()
        codec.check_size(data, stream.max_message_bytes)
        message, observation = codec.decode_worker(data)
        kind = message.WhichOneof("message")
        stream.heard_at = self._clock()
        if stream.run:
            self._sessions.renew(stream.run, stream.heard_at)
        if kind == "step":
            self._on_step(stream, message.step, observation)
        elif kind in self._receivers:
            self._receivers[kind](stream, getattr(message, kind))
        else:
            raise errors.InvalidMessage("a message without content; expected Hello, Spec, Step, Heartbeat or Goodbye")
        return True

    def _on_hello(self, stream: streams.Stream, fields: inference_pb2.Hello) -> None:
        hello = codec.hello_of(fields)
        if stream.run:
            raise errors.InvalidMessage(f"Hello came twice; run {stream.run.assignment.session_id} goes on")
        stream.restarted = False
        run = self._sessions.find(hello.session_id) if hello.session_id else self._create(hello)
        if run is None:
            self._send_restart(stream, f"run {hello.session_id!r} is unknown: its lease expired or the learner is new")
            return
        if run.stream:
            taken = status.Failure(grpc.StatusCode.ABORTED, f"another stream took over run {hello.session_id}")
            run.stream.run = None
            run.stream.close(taken)
        run.stream, stream.run = stream, run
        self._sessions.renew(run, stream.heard_at)
        assignment = dataclasses.replace(run.assignment, resumed=bool(hello.session_id))
        stream.put(
            codec.encode_assign(
                assignment,
                heartbeat_seconds=self._settings.heartbeat_seconds,
                lease_seconds=self._settings.lease_seconds,
            )
        )

    def _create(self, hello: messages.Hello) -> sessions.Session[streams.Stream]:
        for lost in self._sessions.abandoned(hello.worker_id):
            self._end(lost, handler.WORKER_LOST)
        return self._sessions.create(hello.worker_id, self._learner.assign(hello), self._clock())

    def _on_spec(self, stream: streams.Stream, fields: inference_pb2.Spec) -> None:
        if (run := self._run_of(stream, "Spec")) is None:
            return
        num_envs = run.assignment.envs_per_group
        spec = codec.spec_of(fields, num_envs)
        if run.begin(spec):
            self._learner.begin(run.assignment.session_id, spec)
        stream.ready = True
        stream.max_message_bytes = codec.max_message_bytes(spec, num_envs)
        stream.put(codec.encode_start(stream.max_message_bytes))

    def _on_step(self, stream: streams.Stream, fields: inference_pb2.Step, observation: memoryview) -> None:
        if (run := self._run_of(stream, "Step")) is None:
            return
        if run.layout is None or not stream.ready:
            raise errors.InvalidMessage("a Step came before Spec; expected Spec after every Assign")
        answer = run.look_up(fields.group, fields.sequence)
        if isinstance(answer, bytes):
            stream.put(answer)
        elif answer is sessions.Repeat.NEW:
            step = codec.step_of(fields, observation, run.layout)
            self._learner.step(run.accept(fields.group, fields.sequence, step))

    def _on_heartbeat(self, stream: streams.Stream, fields: inference_pb2.Heartbeat) -> None:
        """Nothing to do: every message renews the lease."""

    def _on_goodbye(self, stream: streams.Stream, fields: inference_pb2.Goodbye) -> None:
        if stream.run:
            self._end(stream.run, handler.FAILED + fields.reason[:_MAX_REASON] if fields.failed else handler.GOODBYE)
            stream.run = None
        stream.close()

    def _run_of(self, stream: streams.Stream, what: str) -> sessions.Session[streams.Stream] | None:
        """Returns the stream's run; None: the message belongs to a run that Restart has ended.

        Raises:
          InvalidMessage: no Hello has come.
        """
        if stream.run is None and not stream.restarted:
            raise errors.InvalidMessage(f"{what} came before Hello; expected Hello first")
        return stream.run
