"""Serves workers' streams, as the learner's side of the protocol.

- A step takes this way: Streams.serve -> receive -> LearnerSide.receive -> _on_step -> Handler.step.
- An answer takes this one: Server.reply -> LearnerSide.deliver -> Stream.put -> Outbox -> the stream.

Everything here runs on the server's event-loop thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import grpc
from grpc import aio

from seedzero.config import sections
from seedzero.core import errors
from seedzero.transport import (
    codec,
    compression,
    grpc_status,
    handshake,
    inference_pb2,
    links,
    messages,
    outbox,
    sessions,
)

_MAX_UNREAD = links.MAX_GROUPS + 16
_SILENT_SECONDS = 30.0
_MAX_NAMED = 3
_MAX_TICK_SECONDS = 1.0
_TICKS_A_LEASE = 20

Context = grpc_status.Context
Session = sessions.LearnerSession["Stream"]


class Side(Protocol):
    """The server's side of a protocol of streams and sessions; `LearnerSide` is for workers, others for clients."""

    settings: sections.TransportConfig
    clock: Callable[[], float]
    sessions: dict[str, Any]

    def receive(self, stream: Stream, data: bytes) -> None:
        """Handles a message. Raises Error for a breach of the protocol, or to reject it."""

    def expire(self) -> None:
        """Ends sessions that are past a deadline."""

    def end(self, session: Any, reason: str) -> None:
        """Ends a session, once."""


SideT = TypeVar("SideT", bound=Side)


class Streams(Generic[SideT]):
    """All streams of workers or other clients, from beginning to end; `side` handles their messages."""

    def __init__(self, side: SideT, elsewhere: Callable[[], str] = lambda: "") -> None:
        """elsewhere: returns the address of a host with more room, for rejected workers, or ""."""
        self.side, self._elsewhere = side, elsewhere
        self._open: set[Stream] = set()
        self.farewell: Callable[[Stream], None] | None = None  # dismisses a worker; None: serving continues
        self._empty = asyncio.Event()
        self._watched_at = math.inf

    def begin(self, context: Context) -> Stream:
        """Returns a worker's new stream."""
        stream = Stream(context, self.side.clock())
        self._open.add(stream)
        return stream

    async def serve(self, context: Context) -> None:
        """Serves a worker's stream from beginning to end."""
        stream = self.begin(context)
        reader = asyncio.create_task(self._read(stream))
        reader.add_done_callback(functools.partial(self._reading_ended, stream))
        if self.farewell:
            self.farewell(stream)
        elif len(self._open) > self.side.settings.max_workers:
            many = f"{self.side.settings.max_workers} clients are connected; transport.max_workers allows no more"
            stream.close(grpc_status.failure_of(errors.SlotsExhausted(many)))
        try:
            await stream.write_until_closed()
        finally:
            reader.cancel()
            self._forget(stream)
        if stream.failure:
            await self._with_hint(stream.failure).abort(context)

    def watch_leases(self) -> None:
        """Ends sessions and streams that are past a deadline, now and from now on."""
        lease = self.side.settings.lease_seconds
        loop, now = asyncio.get_running_loop(), self.side.clock()
        loop.call_later(min(lease / _TICKS_A_LEASE, _MAX_TICK_SECONDS), self.watch_leases)
        if self.farewell:
            return
        # this process stood still, and its workers' messages wait unread
        if loop.time() - self._watched_at > lease / 2:
            for session in self.side.sessions.values():
                session.restart_deadlines(now)
            for stream in self._open:
                stream.idle_since = now
        self._watched_at = loop.time()
        self.side.expire()
        for stream in self._open:
            if stream.session is None and now - stream.idle_since >= lease:
                silent = f"no Hello came for {lease:g} s on a stream without a session"
                stream.close(grpc_status.Failure(grpc.StatusCode.DEADLINE_EXCEEDED, silent))

    async def dismiss(self, finished: bool, reason: str, grace_seconds: float) -> None:
        """Dismisses all workers, later ones too, and waits until all leave, at most `grace_seconds`."""
        gone = grpc_status.Failure(grpc.StatusCode.UNAVAILABLE, f"the learner stops: {reason}")
        end = codec.from_learner(end=dict(reason=reason))
        self.farewell = (lambda stream: stream.put(end)) if finished else (lambda stream: stream.close(gone))
        for stream in self._open:
            self.farewell(stream)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                while self._open:
                    self._empty.clear()  # a worker may come back just as the last one leaves
                    await self._empty.wait()

    def receive(self, stream: Stream, data: object) -> bool:
        """Handles a message, and returns whether to read on. Anything but bytes: the worker has closed its side."""
        if not isinstance(data, bytes) or stream.phase is sessions.CLOSED:
            return False
        if not self.farewell:
            self.side.receive(stream, data)
        return True

    async def _read(self, stream: Stream) -> None:
        # No variable here keeps a message, so that its memory is free for the next one.
        while self.receive(stream, await stream.context.read()):
            pass

    def _reading_ended(self, stream: Stream, task: asyncio.Task[None]) -> None:
        """Ends a stream: its worker closed it or broke the protocol, or an unexpected error occurred here."""
        error = None if task.cancelled() else task.exception()
        failure = None if error is None or isinstance(error, aio.BaseError) else grpc_status.failure_of(error)
        stream.close(failure)
        if failure and stream.session:
            self.side.end(stream.session, messages.FAILED + failure.details)

    def _with_hint(self, failure: grpc_status.Failure) -> grpc_status.Failure:
        """Adds the address of another host to a rejection for lack of room; returns other failures unchanged."""
        if failure.kind != errors.SlotsExhausted.__name__:
            return failure
        try:
            return dataclasses.replace(failure, elsewhere=self._elsewhere())
        except Exception as error:  # its text must not reach the worker
            return grpc_status.failure_of(error)

    def _forget(self, stream: Stream) -> None:
        """Drops a stream; its session remains until the lease expires."""
        self._open.discard(stream)
        if stream.session:
            stream.session.stream = None
            stream.session = None
        if not self._open:
            self._empty.set()


class LearnerSide:
    """Sessions, and what each message of a worker does."""

    def __init__(
        self,
        learner: messages.Handler,
        settings: sections.TransportConfig,
        clock: Callable[[], float],
        regroup: messages.Regroup = lambda *_: "",
    ) -> None:
        self._learner, self.settings, self.clock, self._regroup = learner, settings, clock, regroup
        self.sessions: dict[str, Session] = {}
        self.silent = ""  # names workers that send only heartbeats, or "". Any thread may read it

    # --- from the learner ---

    def deliver(self, session_id: str, group: int, sequence: int, reply: bytes, asks_bots: bool = False) -> None:
        """Answers a step; does nothing for an ended session. asks_bots: whether the reply names bots."""
        session = self.sessions.get(session_id)
        is_new = session is not None and session.answer(group, sequence, reply, self.clock(), asks_bots=asks_bots)
        if is_new and session and session.stream and session.stream.phase is sessions.STARTED:
            session.stream.put(reply)

    def restart(self, session_id: str, reason: str) -> None:
        """Ends a session without Handler.end; the worker joins again."""
        session = self.sessions.pop(session_id, None)
        if session and session.stream:
            self._send_restart(session.stream, reason)

    def present(self) -> list[messages.Presence]:
        """Any thread: returns all sessions with their last signs of life."""
        now = self.clock()
        return [
            messages.Presence(
                session.assignment.session_id,
                session.worker_id,
                session.assignment.role,
                session.assignment.num_groups,
                session.assignment.envs_per_group,
                _state(session, now),
                max(0.0, now - session.expires_at + self.settings.lease_seconds),
                session.meter.link,
                bool(session.stream and session.stream.trial and session.stream.trial.is_on),
            )
            for session in list(self.sessions.values())
        ]

    # --- from the streams ---

    def expire(self) -> None:
        """Ends sessions of workers that send nothing, or only heartbeats for too long, which it reports first."""
        now, settings = self.clock(), self.settings
        for session in [session for session in self.sessions.values() if session.expires_at <= now]:
            if session.stream and session.spec is None:
                # It is making environments, perhaps in one call that leaves its Python no time for heartbeats, as
                # ALE does. HTTP/2's pings, which need no Python, end the stream of a dead worker.
                session.renew(now)
                continue
            explanation = f"nothing came for {settings.lease_seconds:g} s"
            if session.stream:
                explanation += (
                    ", not even heartbeats; where one call of an environment holds up all of its Python for as long, "
                    "give the learner a longer --transport.lease_seconds"
                )
            self._end_and_restart(session, f"{messages.WORKER_LOST}: {explanation}", explanation)
        silent = []
        for session in list(self.sessions.values()):
            seconds = now - session.owed_since
            debt = "made no environments" if session.spec is None else "sent no step"
            text = f"worker {session.worker_id} has {debt} for {seconds:.0f} s"
            if seconds >= settings.limit_seconds:
                explanation = f"{text}; --transport.step_seconds={settings.step_seconds:g} allows no more"
                self._end_and_restart(session, messages.OVERDUE + explanation, explanation)
            elif seconds >= _SILENT_SECONDS:
                silent.append(text)
        rest = [f"{len(silent) - _MAX_NAMED} more"] if len(silent) > _MAX_NAMED else []
        self.silent = "; ".join(silent[:_MAX_NAMED] + rest)

    def _end_and_restart(self, session: Session, reason: str, explanation: str) -> None:
        """Ends a session; the worker joins again."""
        self._learner.end(session.assignment.session_id, reason)
        self.restart(session.assignment.session_id, explanation)

    def end(self, session: Session, reason: str) -> None:
        """Ends a session, once, and informs the learner."""
        if self.sessions.pop(session.assignment.session_id, None):
            self._learner.end(session.assignment.session_id, reason)

    def receive(self, stream: Stream, data: bytes) -> None:
        """Handles a message. Raises ProtocolError for a breach of the protocol, or the learner's rejection."""
        stream.check_unread()
        codec.check_size(data, stream.max_message_bytes)
        message, observation = codec.decode_worker(data)
        if session := stream.session:
            session.renew(self.clock())
            session.meter.num_bytes += len(data)
        kind = message.WhichOneof("message") or ""
        stream.phase = stream.phase.after(kind, session.assignment.session_id if session else "")
        match kind:
            case "step" if session:
                self._on_step(stream, session, message.step, observation)
            case "hello":
                self._on_hello(stream, message.hello)
            case "spec" if session:
                self._on_spec(stream, session, message.spec)
            case "heartbeat" if session:
                self._on_report(stream, session, codec.report_of(message.heartbeat))
            case "goodbye":
                self._on_goodbye(stream, message.goodbye)

    def _on_hello(self, stream: Stream, fields: inference_pb2.Hello) -> None:
        hello = handshake.hello_of(fields)
        session = self.sessions.get(hello.session_id) if hello.session_id else self._create(hello)
        if session is None:
            unknown = f"session {hello.session_id!r} is unknown: its lease expired or the learner is new"
            return self._send_restart(stream, unknown)
        if session.stream:
            taken = f"another stream took over session {hello.session_id}"
            session.stream.session = None
            session.stream.close(grpc_status.Failure(grpc.StatusCode.ABORTED, taken))
        session.stream, stream.session, stream.phase = stream, session, stream.phase.after("assign")
        session.meter.restart()
        session.renew(self.clock())
        if self.settings.compression == "auto" and compression.KNOWN and fields.knows_gzip and not fields.key:
            stream.trial = stream.trial or compression.Trial()
        if stream.unpacker:
            stream.unpacker.forget()
        assignment = dataclasses.replace(session.assignment, resumed=bool(hello.session_id))
        stream.put(handshake.encode_assign(assignment, self.settings))

    def _create(self, hello: messages.Hello) -> Session:
        for session in list(self.sessions.values()):
            if session.stream is None and session.worker_id == hello.worker_id:
                self.end(session, messages.WORKER_LOST)
        assignment = self._learner.assign(hello)
        session = Session(hello.worker_id, assignment, self.settings.lease_seconds, self.clock())
        return self.sessions.setdefault(assignment.session_id, session)

    def _on_spec(self, stream: Stream, session: Session, fields: inference_pb2.Spec) -> None:
        num_envs = session.assignment.envs_per_group
        spec = handshake.spec_of(fields, num_envs, self.settings.max_message_bytes)
        if session.begin(spec, self.clock()):
            self._learner.begin(session.assignment.session_id, spec)
        stream.phase = stream.phase.after("start")
        stream.max_message_bytes = handshake.max_message_bytes(spec, num_envs)
        stream.put(codec.from_learner(start=dict(max_message_bytes=stream.max_message_bytes, seats=spec.seats)))

    def _on_step(self, stream: Stream, session: Session, fields: inference_pb2.Step, observation: memoryview) -> None:
        answer = session.look_up(fields.group, fields.sequence)
        if stream.unpacker and answer is not sessions.Repeat.NEW:
            stream.unpacker.remember(fields, observation, session.layout.observation_bytes)
        if isinstance(answer, bytes):
            stream.put(answer)
        elif answer is sessions.Repeat.NEW:
            step = codec.step_of(fields, observation, session.layout, stream.unpacker)
            session.arrive(fields.group, self.clock())
            self._learner.step(session.accept(fields.group, fields.sequence, step))

    def _on_report(self, stream: Stream, session: Session, report: links.LinkReport) -> None:
        if not report.num_steps or session.spec is None:
            return
        now = self.clock()
        session.meter.report(report, now)
        if self._compress(stream, session):
            return  # other groups are a matter for the link as it will be
        session_id = session.assignment.session_id
        if reason := self._regroup(session_id, session.meter.link, session.meter.problem, now):
            self._end_and_restart(session, messages.REGROUPED + reason, reason)

    def _compress(self, stream: Stream, session: Session) -> bool:
        """Makes a worker behind a slow link compress, or no longer; returns whether anything changes."""
        link, size = session.meter.link, session.layout.observation_bytes
        if stream.trial is None or (is_on := stream.trial.decide(link, size)) is None:
            return False
        stream.unpacker = stream.unpacker or compression.Unpacker()
        stream.put(codec.from_learner(compress=dict(gzip=is_on)))
        session.meter.restart()
        return True

    def _on_goodbye(self, stream: Stream, fields: inference_pb2.Goodbye) -> None:
        if stream.session:
            failure = messages.FAILED + fields.reason[: codec.MAX_REASON]
            self.end(stream.session, failure if fields.failed else messages.GOODBYE)
        stream.close()

    def _send_restart(self, stream: Stream, reason: str) -> None:
        stream.session, stream.phase = None, stream.phase.after("restart")
        stream.idle_since = self.clock()
        stream.max_message_bytes = max(stream.max_message_bytes, handshake.HANDSHAKE_BYTES)
        stream.put(codec.from_learner(restart=dict(reason=reason)))


def _state(session: Session, now: float) -> str:
    if session.stream is None:
        return "the connection is lost"
    if session.spec is None:
        return "makes its environments"
    owed = now - session.owed_since
    return "waits for actions" if owed == -math.inf else f"steps for {owed:.1f} s" if owed >= 1 else "steps"


class Stream:
    """A stream, and the messages that wait to be written."""

    def __init__(self, context: Context, now: float) -> None:
        self.context = context  # gRPC's side of it
        self.phase = sessions.NEW
        self.session: Session | None = None  # before Hello and after Restart
        self.idle_since = now  # time since which it has had no session; means nothing while it has one
        self.max_message_bytes = handshake.HANDSHAKE_BYTES  # larger messages are rejected
        self.trial: compression.Trial | None = None  # None: nothing is to be compressed
        self.unpacker: compression.Unpacker | None = None  # from the first Compress on
        self.failure: grpc_status.Failure | None = None  # how the stream ended; None: OK
        self._outbox = outbox.Outbox(lambda data: context.write(data))

    def put(self, data: bytes) -> None:
        """Queues a message without blocking. The protocol bounds how many wait."""
        if self.phase is not sessions.CLOSED:
            self._outbox.put(data)

    def check_unread(self) -> None:
        """Raises InvalidMessage if a worker sends requests without reading answers."""
        if (waiting := len(self._outbox.waiting)) > _MAX_UNREAD:
            raise errors.InvalidMessage(f"{waiting} answers wait to be read; read them before asking again")

    def close(self, failure: grpc_status.Failure | None = None) -> None:
        """Ends the stream once everything is written. The first call counts."""
        if self.phase is not sessions.CLOSED:
            self.phase, self.failure = self.phase.after("close"), failure
            self._outbox.put(None)

    async def write_until_closed(self) -> None:
        """Writes messages until close()."""
        await self._outbox.write_all()
