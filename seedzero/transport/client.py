"""Connects a worker to its learner: a blocking interface over one gRPC stream that reconnects by itself.

    with client.Client(address, hello) as learner:
        while (assignment := learner.join()) is not None:          # None: training is over
            ... make and reset the environments that the assignment names ...
            learner.start(spec)
            for group, step in enumerate(first_steps):
                learner.send(group, step)
            while isinstance(event := learner.receive(), messages.Actions):
                learner.send(event.group, environments[event.group].step(event.actions))
            if isinstance(event, messages.End):
                break                                               # messages.Restart: join again

The stream has its own thread, which sends heartbeats while the worker's thread steps slow environments. When the
stream breaks, it reconnects, however long that takes, and repeats steps without an answer. The worker notices at most
a Restart, if the learner has ended the session meanwhile. Permanent errors are raised. With several hosts, it leaves a
full or silent one for another, see hosts.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import logging
import math
import queue
import random
import time
import types as python_types
from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc
from grpc import aio

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.transport import (
    addresses,
    codec,
    compression,
    grpc_status,
    handshake,
    inference_pb2,
    links,
    loop_thread,
    messages,
    options,
    outbox,
    security,
    sessions,
)

# A worker's choice among the hosts of a run, which are the addresses of its --server; most runs have one host.
#
# order a worker sorts the list by a hash of its name and the address: workers begin evenly on all hosts, and a dead
# host's workers go evenly to the others, wherever they stand in the list full the host that the refusal names, if the
# list has it and this round has not asked it yet; else the next no answer the same host for as long as it would keep a
# session, for workers that have none yet as well, since all may start together; then the next at once, until one gives
# an assignment round every host once, a tenth of a second apart; between rounds a pause that doubles
_FIRST_BACKOFF_SECONDS = 0.1
_COMPLAINT_SECONDS = 30.0
_MOST_LETTERS = 100


class Trouble(NamedTuple):
    """How a stream, or an attempt, ended, after which a worker tries again."""

    text: str
    is_full: bool = False
    elsewhere: str = ""  # the address that the host names, untrusted, or ""


class Hosts:
    """The hosts in a worker's order, pauses, and complaints without repetition. `present`: the host to connect to."""

    def __init__(self, listed: Sequence[security.ClientSecurity], worker_id: str, max_backoff_seconds: float) -> None:
        def place(host: security.ClientSecurity) -> bytes:
            return hashlib.sha256(f"{worker_id} {host.address}".encode(errors="surrogateescape")).digest()

        self._order, self._max_backoff_seconds = sorted(listed, key=place), max_backoff_seconds
        self.present = self._order[0]
        self._asked: set[str] = set()  # addresses, in this round
        self._backoff_seconds = _FIRST_BACKOFF_SECONDS
        self._complaints: dict[str, tuple[str, float]] = {}  # the last one about each address, and its time

    def retry(self, trouble: Trouble, release: Callable[[bool], bool]) -> float:
        """Chooses the host of the next attempt, and returns the pause before it in seconds.

        release: takes the trouble's is_full and returns whether another host may follow.
        """
        here, goal, text, hint = self.present.address, "again", trouble.text, trouble.elsewhere
        if hint and all(hint != host.address for host in self._order):
            text += f"; it names {hint[:_MOST_LETTERS]!r}, which --server does not: ignored"
        pause_seconds, is_new_round = self._backoff_seconds, True
        if len(self._order) > 1 and release(trouble.is_full):
            is_new_round = self._move(hint)
            goal = self.present.address
        if is_new_round:
            self._backoff_seconds = min(2 * self._backoff_seconds, self._max_backoff_seconds)
        else:
            pause_seconds = _FIRST_BACKOFF_SECONDS
        self._complain(here, text, goal)
        return pause_seconds * random.uniform(0.5, 1.0)

    def heard(self, kind: str | None) -> None:
        """Notes a message: an Assign ends complaints and the round, and Actions end the doubling."""
        if kind == "assign":
            self._asked.clear()
            if self._complaints:
                self._complaints.clear()
                _logger.info("learner at %s: connected", self.present.address)
        elif kind == "actions":
            self._backoff_seconds = _FIRST_BACKOFF_SECONDS

    def _move(self, hint: str) -> bool:
        """Goes to another host, if possible the one of the hint; returns whether a new round begins."""
        place = self._order.index(self.present)
        others = self._order[place + 1 :] + self._order[:place]
        self._asked.add(self.present.address)
        new = [host for host in others if host.address not in self._asked]
        if not new:
            self._asked.clear()
        self.present = next((host for host in new or others if host.address == hint), (new or others)[0])
        return not new

    def _complain(self, here: str, trouble: str, goal: str) -> None:
        kind, now = f"{trouble.partition(':')[0]} {goal}", time.monotonic()
        last, at = self._complaints.get(here, ("", 0.0))
        if kind != last or now - at >= _COMPLAINT_SECONDS:
            self._complaints[here] = (kind, now)
            _logger.warning("learner at %s: %s; trying %s", here, trouble, goal)


# Keeps a worker connected: one stream after another, until a learner says End, an error is permanent, or close().
_CONNECT_SECONDS = 10.0
_MIN_HEARTBEAT_SECONDS = 0.01
_logger = logging.getLogger(__name__)

Event = types.Assignment | messages.Actions | messages.Restart | messages.End | Exception
"""What the worker's thread sees. Its queue holds at most one Actions for each group, and one of each other kind."""


@dataclasses.dataclass
class WorkerSession:
    """The present session. unanswered: number and content of each group's step that has no answer yet."""

    assignment: types.Assignment  # as first received
    spec: types.EnvSpec | None = None  # before the worker's start()
    max_message_bytes: int = handshake.HANDSHAKE_BYTES  # larger messages are not sent
    unanswered: dict[int, tuple[int, types.EnvStep]] = dataclasses.field(default_factory=dict)
    answered: dict[int, int] = dataclasses.field(default_factory=dict)  # number of each group's last answer
    arrived: dict[int, float] = dataclasses.field(default_factory=dict)  # time of each answer that has no step yet
    measured: links.LinkReport = dataclasses.field(default_factory=links.LinkReport)


class WorkerStream:
    """A stream and its waiting messages: at most a step for each group, the handshake, and heartbeats."""

    def __init__(self, call: aio.StreamStreamCall[bytes, bytes]) -> None:
        self.call = call  # gRPC's side of it
        self.phase = sessions.NEW
        self.packer = compression.Packer()
        self._outbox = outbox.Outbox(lambda data: call.write(data))
        self._tasks = [asyncio.create_task(self._write())]

    def put(self, data: bytes | None) -> None:
        """Queues a message. None ends the stream after the waiting messages."""
        self._outbox.put(data)

    def beat_every(self, seconds: float, beat: Callable[[], bytes]) -> None:
        """Writes heartbeats from now on."""
        for task in self._tasks[1:]:
            task.cancel()
        self._tasks[1:] = [asyncio.create_task(self._beat(seconds, beat))]

    async def stop(self) -> None:
        """Stops writing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _beat(self, seconds: float, beat: Callable[[], bytes]) -> None:
        while True:
            await asyncio.sleep(seconds)
            self.put(beat())  # behind waiting steps, too, because slow links are the ones to measure

    async def _write(self) -> None:
        """Writes messages until None or the end of the stream, whose reason the reader knows."""
        try:
            await self._outbox.write_all()
            await self.call.done_writing()
        except (aio.AioRpcError, aio.BaseError, asyncio.InvalidStateError):
            return


class WorkerSide:
    """The worker's side of the protocol. `wanted` is set while a session exists or is requested."""

    def __init__(
        self, at: Hosts, hello: messages.Hello, deliver: Callable[[Event], None], patience_seconds: float
    ) -> None:
        """patience_seconds: longest wait for a host that does not answer, until one reports its lease."""
        self.wanted = asyncio.Event()
        self._hosts, self._hello, self.deliver = at, hello, deliver
        self._patience_seconds = patience_seconds
        # time since which the worker has waited for an Assign; infinity if it is not waiting
        self._alone_since = math.inf
        self._session: WorkerSession | None = None
        self._stream: WorkerStream | None = None

    # --- from the worker's thread ---

    def join(self) -> None:
        self.wanted.set()
        if self._stream:
            self._stream.put(handshake.encode_hello(self._hello))
        else:
            self._alone_since = min(self._alone_since, time.monotonic())

    def start(self, session_id: str, spec: types.EnvSpec) -> None:
        if session := self._current(session_id):
            session.spec = spec
            if self._stream and self._stream.phase in (sessions.ASSIGNED, sessions.STARTED):
                self._put(self._stream, lambda: handshake.encode_spec(spec))

    def submit(
        self, session_id: str, group: int, sequence: int, step: types.EnvStep, step_seconds: float = 0.0
    ) -> None:
        """Sends a step, now and after every reconnect until its answer comes. step_seconds: that it took."""
        if session := self._current(session_id):
            session.unanswered[group] = (sequence, step)
            if self._stream and self._stream.phase is sessions.STARTED:
                self._send(self._stream, session, group)
            if (arrived := session.arrived.pop(group, None)) is not None:
                session.measured = session.measured.plus(step_seconds, time.perf_counter() - arrived)

    def _current(self, session_id: str) -> WorkerSession | None:
        """Returns the session of this id, or None if it is over."""
        return self._session if self._session and self._session.assignment.session_id == session_id else None

    # --- from the connection ---

    def attach(self, stream: WorkerStream) -> None:
        """Takes a new stream and says Hello."""
        self._stream = stream
        session_id = self._session.assignment.session_id if self._session else ""
        stream.put(handshake.encode_hello(dataclasses.replace(self._hello, session_id=session_id)))

    def leave(self, reason: str, failed: bool) -> bool:
        """Says Goodbye and ends an open stream; returns whether there was one."""
        if self._stream is None:
            return False
        told = reason[: codec.MAX_REASON].encode(errors="replace").decode()  # a file's name may be no text
        self._stream.put(codec.from_worker(goodbye=dict(reason=told, failed=failed)))
        self._stream.put(None)
        return True

    def detach(self) -> None:
        """Drops the stream but keeps the session."""
        self._stream = None
        self._alone_since = min(self._alone_since, time.monotonic())

    def release(self, is_refused: bool) -> bool:
        """Returns whether the worker may go to another host. Ends a session that its host must have ended by now.

        is_refused: whether the host has no room.
        """
        if is_refused and self._session is None:
            return True
        if time.monotonic() - self._alone_since < self._patience_seconds:
            return False
        self._on_restart(f"no connection for {self._patience_seconds:g} s")
        return True

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
                self._on_restart(message.restart.reason, stream)
            case "end":
                self.deliver(messages.End(message.end.reason))
            case "compress":
                stream.packer.is_on = message.compress.gzip
            case _:
                raise errors.InvalidMessage("the learner sent a message without content")

    def _on_assign(self, stream: WorkerStream, fields: inference_pb2.Assign) -> None:
        assignment = handshake.assignment_of(fields)
        stream.phase = stream.phase.after("assign")
        stream.packer.forget()
        stream.beat_every(
            max(fields.heartbeat_seconds, _MIN_HEARTBEAT_SECONDS),
            lambda: codec.heartbeat(self._session.measured) if self._session else codec.HEARTBEAT,
        )
        self._alone_since, self._patience_seconds = math.inf, fields.lease_seconds
        if self._session is None:
            self._session = WorkerSession(assignment)
            self.deliver(assignment)
        elif assignment.session_id != self._session.assignment.session_id:
            expected = f"{self._session.assignment.session_id} or a Restart"
            raise errors.InvalidMessage(f"the learner assigned session {assignment.session_id}; expected {expected}")
        elif self._session.spec is not None:
            stream.put(handshake.encode_spec(self._session.spec))

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
        assigned = session.assignment
        actions = codec.actions_of(fields, assigned.envs_per_group, session.spec, len(assigned.bots))
        del session.unanswered[group]
        session.answered[group] = sequence
        session.arrived[group] = time.perf_counter()
        self.deliver(actions)

    def _on_restart(self, reason: str, stream: WorkerStream | None = None) -> None:
        if self._session is None:
            return
        over, self._session = self._session.assignment.session_id, None
        _logger.warning("learner at %s: session %s is over: %s", self._hosts.present.address, over, reason)
        self.wanted.clear()
        if stream:
            stream.phase = stream.phase.after("restart")
        self.deliver(messages.Restart(reason))

    def _send(self, stream: WorkerStream, session: WorkerSession, group: int) -> None:
        """Encodes on the calling thread, while the worker's thread steps environments."""

        def encode() -> bytes:
            data = codec.encode_step(group, *session.unanswered[group], stream.packer)
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


class Connection:
    """Keeps a worker connected; open() starts the connection."""

    def __init__(self, at: Hosts, settings: sections.TransportConfig, side: WorkerSide) -> None:
        self._hosts, self._settings, self._side = at, settings, side
        self._closing = False

    async def open(self) -> None:
        """Starts the task that connects, once there is a message."""
        self._task = asyncio.create_task(self._keep_connected())
        self._task.add_done_callback(self._ended)

    async def close(self, reason: str, failed: bool, timeout_seconds: float) -> None:
        """Says Goodbye on an open stream and waits until it is sent, at most `timeout_seconds`."""
        self._closing = True
        if self._side.leave(reason, failed):
            await asyncio.wait([self._task], timeout=timeout_seconds)
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _keep_connected(self) -> None:
        while not self._closing:
            await self._side.wanted.wait()
            trouble = await self._converse(self._hosts.present)
            if trouble is None or self._closing:
                return
            await asyncio.sleep(self._hosts.retry(trouble, self._side.release))

    async def _converse(self, host: security.ClientSecurity) -> Trouble | None:
        """Runs one stream from beginning to end; returns the reason to try again, or None.

        Raises a permanent error.
        """
        async with security.channel(host, aio, options.client(self._settings)) as channel:
            connect = channel.stream_stream(codec.CONNECT_METHOD, bytes, bytes)
            call = connect(metadata=host.metadata)  # written and read below
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):  # wait_for may swallow a cancellation
                    await call.wait_for_connection()
                return await self._use(WorkerStream(call))
            except TimeoutError:
                return Trouble(f"no connection within {_CONNECT_SECONDS:g} s{addresses.proxy_remark(host.address)}")
            except aio.AioRpcError as error:
                code, details = error.code(), error.details() or ""
                # On a thread, because it may try the port.
                final = grpc_status.error_of(error) or await asyncio.to_thread(security.explain, code, details, host)
                if final is not None:
                    raise final from None
                told = grpc_status.of_proxy(code, details) or f"{code.name}: {details}"
                told += addresses.proxy_remark(host.address) if code is grpc.StatusCode.UNAVAILABLE else ""
                is_full = code is grpc.StatusCode.RESOURCE_EXHAUSTED
                return Trouble(told, is_full, grpc_status.elsewhere_of(error))
            finally:
                call.cancel()

    async def _use(self, stream: WorkerStream) -> Trouble | None:
        self._side.attach(stream)
        try:
            while isinstance(data := await stream.call.read(), bytes):
                message = codec.decode_learner(data)
                kind = message.WhichOneof("message")
                self._side.receive(stream, message)
                self._hosts.heard(kind)
                if kind == "end":
                    return None
            return Trouble("the learner closed the stream")
        finally:
            self._side.detach()
            await stream.stop()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Delivers the permanent error that ended the connection, because the worker may be waiting for an answer."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._side.deliver(error)


_DEFAULTS = sections.TransportConfig()
CLOSE_SECONDS = 5.0
"""Longest time that close() spends on its Goodbye."""


class Client(contextlib.AbstractContextManager["Client"]):
    """A worker's connection to a learner. Only `leave` may be called from other threads.

    Every method may raise the permanent error that ended the connection, and then every later one does: AccessDenied,
    VersionMismatch, SpecMismatch, InvalidMessage, SequenceError.
    """

    def __init__(
        self,
        address: str,
        hello: messages.Hello,
        *,
        settings: sections.TransportConfig = _DEFAULTS,
        access: security.Access = security.PLAIN,
    ) -> None:
        """Starts the transport thread, which connects at the first join(). The learner sets the pace of heartbeats.

        address: one address, or the hosts of one run, "A,B"; `access` is used for all. Raises UsageError if the
        address, or a file of `access`, cannot be read.
        """
        secured = [security.for_client(entry, access) for entry in addresses.listed(address)]
        self._hosts = Hosts(secured, hello.worker_id, settings.beat_seconds)
        # Bounded by the protocol: at most one answer for each group and one of each other kind of event, see
        # connection.py.
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._assignment: types.Assignment | None = None
        self._next_sequence: dict[int, int] = {}
        self._unanswered: set[int] = set()
        self._received: dict[int, float] = {}  # time at which the worker took each group's actions
        self._over: messages.End | Exception | None = None
        self._closed = False
        self._side = WorkerSide(self._hosts, hello, self._inbox.put, settings.lease_seconds)
        self._connection = Connection(self._hosts, settings, self._side)
        self._thread = loop_thread.LoopThread("seedzero-client")
        self._thread.run(self._connection.open())

    @property
    def address(self) -> str:
        """Address of the learner that assigned the session, or that is asked for one."""
        return self._hosts.present.address

    def join(self) -> types.Assignment | None:
        """Waits for an assignment, however long the learner is away or full.

        Call it for the first session and after each Restart; at other times it raises UsageError. Then reset all
        environments with the assignment's seeds. None means that training is over or `leave` was called, so exit with
        success.
        """
        if self._assignment is not None:
            session = f"session {self._assignment.session_id}"
            raise errors.UsageError(f"join() while {session} continues; join again after a Restart")
        self._thread.post(self._side.join)
        assignment = self._take()
        if isinstance(assignment, messages.End):
            return None
        assert isinstance(assignment, types.Assignment)  # other events belong to a session
        self._assignment = assignment
        self._next_sequence, self._unanswered = dict.fromkeys(range(assignment.num_groups), 0), set()
        self._received = {}
        return assignment

    def start(self, spec: types.EnvSpec) -> None:
        """Sends the environments' spec without blocking. Steps are sent once the learner accepts them.

        The next receive() raises SpecMismatch if the learner's networks were built for another spec.
        """
        self._thread.post(self._side.start, self._running().session_id, spec)

    def send(self, group: int, step: types.EnvStep) -> None:
        """Sends the newest step of a group without blocking.

        A group's first step shows first observations; each later one follows the group's Actions. The transport thread
        reads the arrays, and again after a reconnect, so do not change them until those Actions have come. A later
        call raises the error of a step that is too large or refused.

        Raises InvalidMessage if there is no such group, and SequenceError before the answer to its last step.
        """
        assignment = self._running()
        if (sequence := self._next_sequence.get(group)) is None:
            raise errors.InvalidMessage(f"group {group} is not one of 0 to {assignment.num_groups - 1}")
        if group in self._unanswered:
            raise errors.SequenceError(f"group {group} has an unanswered step; receive its actions first")
        if self._over:
            return
        self._next_sequence[group] = sequence + 1
        self._unanswered.add(group)
        now = time.perf_counter()
        step_seconds = now - self._received.pop(group, now)
        self._thread.post(self._side.submit, assignment.session_id, group, sequence, step, step_seconds)

    def receive(self) -> messages.Actions | messages.Restart | messages.End:
        """Waits for the learner's next message.

        Returns:
          Actions: step that group and send the result.
          Restart: the session is over; reset all environments, then join() again.
          End: training is over or `leave` was called, so exit with success. Later calls return it again.
        """
        event = self._take()
        assert not isinstance(event, types.Assignment)  # only join() asks for one
        if isinstance(event, messages.Actions):
            self._unanswered.discard(event.group)
            self._received[event.group] = time.perf_counter()
        elif isinstance(event, messages.Restart):
            self._assignment = None
        return event

    def leave(self, reason: str) -> None:
        """Makes join() return None and receive() return End soon. Any thread and signal handlers may call it."""
        self._inbox.put(messages.End(reason))

    def close(self, reason: str, failed: bool = False) -> None:
        """Says Goodbye on an open stream and ends the transport thread. Further calls do nothing.

        failed: whether the environments failed, so that a restart of this process would fail again.
        """
        if self._closed:
            return
        self._closed = True
        self._thread.run(self._connection.close(reason, failed, CLOSE_SECONDS))
        self._thread.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: python_types.TracebackType | None
    ) -> None:
        reason = "done" if error is None else str(error) or type(error).__name__
        self.close(reason, failed=isinstance(error, errors.EnvironmentFailure))

    def _running(self) -> types.Assignment:
        if self._assignment is None:
            raise errors.UsageError("no session; call join() first")
        return self._assignment

    def _take(self) -> types.Assignment | messages.Actions | messages.Restart | messages.End:
        """Returns the next event; after an error or End, all later calls give the same."""
        event = self._over or self._inbox.get()
        if isinstance(event, (messages.End, Exception)):
            self._over = event
        if isinstance(event, Exception):
            raise event
        return event
