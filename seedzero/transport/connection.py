"""A worker's connection: one stream after another, until the learner says End, an error is permanent, or close().

way of a step:    Client.send -> WorkerSide.submit -> WorkerStream.put -> the stream
way of an answer: Connection._use -> WorkerSide.receive -> Client.receive

Everything here runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import time
from collections.abc import Callable

import grpc
from grpc import aio

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.transport import codec, handshake, inference_pb2, messages, options, proxy, security, sessions
from seedzero.transport import status as grpc_status

_CONNECT_SECONDS = 10.0
_FIRST_BACKOFF_SECONDS = 0.1
_COMPLAINT_SECONDS = 30.0
_MIN_HEARTBEAT_SECONDS = 0.01
_logger = logging.getLogger(__name__)

Event = types.Assignment | messages.Actions | messages.Restart | messages.End | Exception
"""For the worker's thread. Its queue holds at most one Actions a group, and one of each other kind."""


@dataclasses.dataclass
class WorkerSession:
    """The present session. unanswered: number and content of each group's step without an answer."""

    assignment: types.Assignment  # as first received
    spec: types.EnvSpec | None = None  # before the worker's start()
    max_message_bytes: int = handshake.HANDSHAKE_BYTES  # larger messages are not sent
    unanswered: dict[int, tuple[int, types.EnvStep]] = dataclasses.field(default_factory=dict)
    answered: dict[int, int] = dataclasses.field(default_factory=dict)  # number of each group's last answer


class WorkerStream:
    """A stream and the waiting messages: at most a step a group, a heartbeat and the handshake."""

    def __init__(self, call: aio.StreamStreamCall[bytes, bytes]) -> None:
        self.call = call  # gRPC's side of it
        self.phase = sessions.NEW
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._write())]

    def put(self, data: bytes | None) -> None:
        """Queues a message; None: the stream ends after the waiting messages."""
        self._outbox.put_nowait(data)

    def beat_every(self, seconds: float) -> None:
        """Has heartbeats written from now on."""
        for task in self._tasks[1:]:
            task.cancel()
        self._tasks[1:] = [asyncio.create_task(self._beat(seconds))]

    async def stop(self) -> None:
        """Writes no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _beat(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            if self._outbox.empty():  # a message that waits renews the lease as well
                self.put(codec.HEARTBEAT)

    async def _write(self) -> None:
        """Writes messages until None or the stream's end; the reader knows the reason of the latter."""
        try:
            while (data := await self._outbox.get()) is not None:
                await self.call.write(data)
                del data  # its memory is free for the next one
            await self.call.done_writing()
        except (aio.AioRpcError, aio.BaseError, asyncio.InvalidStateError):
            return


class WorkerSide:
    """The worker's side of the protocol. `wanted` is set while a session goes on or is asked for."""

    def __init__(self, address: str, hello: messages.Hello, deliver: Callable[[Event], None]) -> None:
        self.wanted = asyncio.Event()
        self._address, self._hello, self.deliver = address, hello, deliver
        self._session: WorkerSession | None = None
        self._stream: WorkerStream | None = None

    # --- from the worker's thread ---

    def join(self) -> None:
        self.wanted.set()
        if self._stream:
            self._stream.put(handshake.encode_hello(self._hello))

    def start(self, session_id: str, spec: types.EnvSpec) -> None:
        if session := self._current(session_id):
            session.spec = spec
            if self._stream and self._stream.phase in (sessions.ASSIGNED, sessions.STARTED):
                self._put(self._stream, lambda: codec.from_worker(spec=dataclasses.asdict(spec)))

    def submit(self, session_id: str, group: int, sequence: int, step: types.EnvStep) -> None:
        """Sends a step, now and after every reconnect until its answer."""
        if session := self._current(session_id):
            session.unanswered[group] = (sequence, step)
            if self._stream and self._stream.phase is sessions.STARTED:
                self._send(self._stream, session, group)

    def _current(self, session_id: str) -> WorkerSession | None:
        """Returns the session of this id; None: it is over."""
        return self._session if self._session and self._session.assignment.session_id == session_id else None

    # --- from the connection ---

    def attach(self, stream: WorkerStream) -> None:
        """Takes a new stream and says Hello."""
        self._stream = stream
        session_id = self._session.assignment.session_id if self._session else ""
        stream.put(handshake.encode_hello(dataclasses.replace(self._hello, session_id=session_id)))

    def leave(self, reason: str, failed: bool) -> bool:
        """Says Goodbye and ends an open stream; returns whether one was open."""
        if self._stream is None:
            return False
        self._stream.put(codec.from_worker(goodbye=dict(reason=reason[: codec.MAX_REASON], failed=failed)))
        self._stream.put(None)
        return True

    def detach(self) -> None:
        """Drops the stream; the session stays."""
        self._stream = None

    def receive(self, stream: WorkerStream, message: inference_pb2.LearnerMessage) -> None:
        """Handles a message; raises InvalidMessage for a breach of the protocol."""
        match message.WhichOneof("message"):
            case "actions":
                self._on_actions(message.actions)
            case "assign":
                self._on_assign(stream, message.assign)
            case "start":
                self._on_start(stream, message.start)
            case "restart":
                self._on_restart(stream, message.restart.reason)
            case "end":
                self.deliver(messages.End(message.end.reason))
            case _:
                raise errors.InvalidMessage("the learner sent a message without content")

    def _on_assign(self, stream: WorkerStream, fields: inference_pb2.Assign) -> None:
        assignment = handshake.assignment_of(fields)
        stream.phase = stream.phase.after("assign")
        stream.beat_every(max(fields.heartbeat_seconds, _MIN_HEARTBEAT_SECONDS))
        if self._session is None:
            self._session = WorkerSession(assignment)
            self.deliver(assignment)
        elif assignment.session_id != self._session.assignment.session_id:
            expected = f"{self._session.assignment.session_id} or a Restart"
            raise errors.InvalidMessage(f"the learner assigned session {assignment.session_id}; expected {expected}")
        elif self._session.spec is not None:
            stream.put(codec.from_worker(spec=dataclasses.asdict(self._session.spec)))

    def _on_start(self, stream: WorkerStream, fields: inference_pb2.Start) -> None:
        if self._session is None or self._session.spec is None:
            raise errors.InvalidMessage("the learner sent Start before a Spec")
        if (seats := self._session.spec.seats) != tuple(fields.seats):
            raise errors.VersionMismatch(
                f"these environments have the seats {', '.join(seats)}, and the learner's version knows no seats; "
                "install the same version of seedzero on both"
            )
        stream.phase = stream.phase.after("start")
        self._session.max_message_bytes = fields.max_message_bytes
        for group in self._session.unanswered:
            self._send(stream, self._session, group)

    def _on_actions(self, fields: inference_pb2.Actions) -> None:
        session, group = self._session, fields.group
        if session is None or session.spec is None:
            raise errors.InvalidMessage("the learner sent Actions before Start")
        if fields.sequence <= session.answered.get(group, -1):
            return
        sequence, _ = session.unanswered.get(group, (-1, None))
        if fields.sequence != sequence:
            step = f"step {fields.sequence} of group {group}"
            raise errors.InvalidMessage(f"the learner answered {step}, which waits for no such answer")
        actions = codec.actions_of(fields, session.assignment.envs_per_group, session.spec)
        del session.unanswered[group]
        session.answered[group] = sequence
        self.deliver(actions)

    def _on_restart(self, stream: WorkerStream, reason: str) -> None:
        if self._session is None:
            return
        over, self._session = self._session.assignment.session_id, None
        _logger.warning("learner at %s: session %s is over: %s", self._address, over, reason)
        self.wanted.clear()
        stream.phase = stream.phase.after("restart")
        self.deliver(messages.Restart(reason))

    def _send(self, stream: WorkerStream, session: WorkerSession, group: int) -> None:
        """Encodes on the calling thread, while the worker's thread steps environments."""

        def encode() -> bytes:
            data = codec.encode_step(group, *session.unanswered[group])
            codec.check_size(data, session.max_message_bytes)
            return data

        self._put(stream, encode)

    def _put(self, stream: WorkerStream, encode: Callable[[], bytes]) -> None:
        """Sends a message, or delivers an encoding error."""
        try:
            stream.put(encode())
        except errors.Error as error:
            self.deliver(error)
        except Exception as error:  # a user's arrays may raise anything, and the event loop would only log it
            self.deliver(errors.InvalidMessage(f"a message cannot be made: {type(error).__name__}: {error}"))


class _Retries:
    """Pauses, doubled from attempt to attempt, and complaints without repetition."""

    def __init__(self, address: str, max_backoff_seconds: float) -> None:
        self._address, self._max_backoff_seconds = address, max_backoff_seconds
        self._backoff_seconds = _FIRST_BACKOFF_SECONDS
        self._complaint, self._complained_at = "", 0.0

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
    """Keeps a worker connected; open() starts the connection."""

    def __init__(self, secured: security.ClientSecurity, settings: sections.TransportConfig, side: WorkerSide) -> None:
        self._security, self._settings, self._side = secured, settings, side
        self._retries = _Retries(secured.address, settings.max_backoff_seconds)
        self._closing = False

    async def open(self) -> None:
        """Starts the connecting task, as soon as there is a message."""
        self._task = asyncio.create_task(self._keep_connected())
        self._task.add_done_callback(self._ended)

    async def close(self, reason: str, failed: bool, timeout_seconds: float) -> None:
        """Says Goodbye on an open stream, and waits for its sending, at most `timeout_seconds`."""
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
        async with security.channel(self._security, aio, options.client(self._settings)) as channel:
            connect = channel.stream_stream(codec.CONNECT_METHOD, bytes, bytes)
            call = connect(metadata=self._security.metadata)  # written to and read from below
            try:
                await asyncio.wait_for(call.wait_for_connection(), _CONNECT_SECONDS)
                return await self._use(WorkerStream(call))
            except TimeoutError:
                return f"no connection within {_CONNECT_SECONDS:g} s{proxy.remark(self._security.address)}"
            except aio.AioRpcError as error:
                code, details = error.code(), error.details() or ""
                # On a thread, since it may try the port.
                final = grpc_status.error_of(error) or await asyncio.to_thread(
                    security.explain, code, details, self._security
                )
                if final is not None:
                    raise final from None
                told = grpc_status.of_proxy(code, details) or f"{code.name}: {details}"
                return told + (proxy.remark(self._security.address) if code is grpc.StatusCode.UNAVAILABLE else "")
            finally:
                call.cancel()

    async def _use(self, stream: WorkerStream) -> str | None:
        self._side.attach(stream)
        try:
            while isinstance(data := await stream.call.read(), bytes):
                message = codec.decode_learner(data)
                kind = message.WhichOneof("message")
                self._side.receive(stream, message)
                self._retries.heard(kind)
                if kind == "end":
                    return None
            return "the learner closed the stream"
        finally:
            self._side.detach()
            await stream.stop()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Delivers the permanent error that ended the connection: the worker may wait for an answer."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._side.deliver(error)
