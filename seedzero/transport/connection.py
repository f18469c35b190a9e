"""A worker's stream on its event loop: handshake, heartbeats, reconnecting, repeating what was not answered."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import time
from collections.abc import Callable

from grpc import aio

from seedzero.config import config
from seedzero.core import errors, types
from seedzero.transport import codec, inference_pb2, messages, options, outbox, security, status

_CONNECT_SECONDS = 10.0
_FIRST_BACKOFF_SECONDS = 0.1
_COMPLAINT_SECONDS = 30.0
_MIN_HEARTBEAT_SECONDS = 0.01
_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Started:
    """The learner takes steps."""


Event = types.Assignment | Started | messages.Actions | messages.Restart | messages.End | Exception
"""What the worker's thread is told. In its queue there are at most one Actions a group, and one of each other kind."""


@dataclasses.dataclass
class _Run:
    """The run that goes on.

    Attributes:
      assignment: as first received.
      spec: None before the worker has told it.
      started: the worker has been told so.
      max_message_bytes: larger ones are not sent.
      unanswered: sequence number and content of each group's step that has no answer yet.
      answered: sequence number of each group's last answer.
    """

    assignment: types.Assignment
    spec: types.EnvSpec | None = None
    started: bool = False
    max_message_bytes: int = codec.HANDSHAKE_BYTES
    unanswered: dict[int, tuple[int, types.EnvStep]] = dataclasses.field(default_factory=dict)
    answered: dict[int, int] = dataclasses.field(default_factory=dict)


class _Stream:
    """One stream and what waits to be written to it: at most a step a group, a heartbeat and the handshake.

    Attributes:
      call: gRPC's side of it.
      outbox: to be written.
      assigned: Assign has come, so the spec may be sent.
      ready: Start has come, so steps may be sent.
    """

    def __init__(self, call: aio.StreamStreamCall[bytes, bytes]) -> None:
        self.call = call
        self.outbox = outbox.Outbox()
        self.assigned = False
        self.ready = False
        self._tasks = [asyncio.create_task(self._write())]

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
            if not self.outbox:  # what waits already renews the lease as well
                self.outbox.put(codec.HEARTBEAT)

    async def _write(self) -> None:
        """Writes what the outbox holds, until it or the stream is closed; the reader tells why the stream broke."""
        try:
            while (data := await self.outbox.get()) is not None:
                await self.call.write(data)
                del data  # its memory is free for the next one
            await self.call.done_writing()
        except (aio.AioRpcError, aio.BaseError, asyncio.InvalidStateError):
            return


class Connection:
    """Keeps a worker connected. Everything here runs on the event loop's thread."""

    def __init__(
        self,
        secured: security.ClientSecurity,
        hello: messages.Hello,
        settings: config.TransportConfig,
        deliver: Callable[[Event], None],
    ) -> None:
        """Prepares only; see open().

        Args:
          secured: where the learner is, token and TLS.
          hello: who we are.
          settings: keepalive, ping timeout, back-off.
          deliver: takes events to the worker's thread.
        """
        self._security = secured
        self._address = secured.address
        self._hello = hello
        self._settings = settings
        self._deliver = deliver
        self._backoff_seconds = _FIRST_BACKOFF_SECONDS
        self._complaint = ""
        self._complained_at = 0.0
        self._run: _Run | None = None
        self._joining = False
        self._closing = False
        self._stream: _Stream | None = None

    # --- what the worker's thread asks for ---

    async def open(self) -> None:
        """Starts the task that connects, as soon as there is something to say."""
        self._wanted = asyncio.Event()
        self._task = asyncio.create_task(self._keep_connected())
        self._task.add_done_callback(self._ended)

    def join(self) -> None:
        """Asks for a new run."""
        self._joining = True
        self._wanted.set()
        if self._stream:
            self._stream.outbox.put(codec.encode_hello(self._hello))

    def start(self, session_id: str, spec: types.EnvSpec) -> None:
        """Tells the run's spec."""
        if self._run is None or self._run.assignment.session_id != session_id:
            return
        self._run.spec = spec
        if self._stream and self._stream.assigned:
            self._stream.outbox.put(codec.encode_spec(spec))

    def submit(self, session_id: str, group: int, sequence: int, step: types.EnvStep) -> None:
        """Sends a step, now and after every reconnect until it is answered."""
        run = self._run
        if run is None or run.assignment.session_id != session_id:
            return
        run.unanswered[group] = (sequence, step)
        if self._stream and self._stream.ready:
            self._send(self._stream, run, group, sequence, step)

    def leave(self, reason: str) -> None:
        """Tells the worker's thread to end."""
        self._deliver(messages.End(reason))

    async def close(self, reason: str, failed: bool, timeout_seconds: float) -> None:
        """Says goodbye if there is someone to say it to, and waits a little until that is through."""
        self._closing = True
        if self._stream:
            self._stream.outbox.put(codec.encode_goodbye(reason, failed))
            self._stream.outbox.close()
            await asyncio.wait([self._task], timeout=timeout_seconds)
        self._task.cancel()
        await asyncio.wait([self._task])

    def _send(self, stream: _Stream, run: _Run, group: int, sequence: int, step: types.EnvStep) -> None:
        """Encodes here, not on the worker's thread: that one may step its environments meanwhile."""
        try:
            data = codec.encode_step(group, sequence, step)
            codec.check_size(data, run.max_message_bytes)
        except errors.InvalidMessage as error:
            self._deliver(error)
        else:
            stream.outbox.put(data)

    # --- connecting ---

    async def _keep_connected(self) -> None:
        """Connects again and again until the learner says End, an error is final, or close()."""
        while not self._closing:
            await self._wanted.wait()
            trouble = await self._converse()
            if trouble is None:
                return
            if self._closing:
                return
            self._complain(trouble)
            await asyncio.sleep(self._backoff_seconds * random.uniform(0.5, 1.0))
            self._backoff_seconds = min(2 * self._backoff_seconds, self._settings.max_backoff_seconds)

    async def _converse(self) -> str | None:
        """Has one stream from beginning to end; returns why it must be tried again, None if it need not.

        Raises:
          Error: trying again cannot heal it.
        """
        async with security.aio_channel(self._security, options.client(self._settings)) as channel:
            connect = channel.stream_stream(codec.CONNECT_METHOD, bytes, bytes)
            # Written to and read from below.
            call = connect(metadata=self._security.metadata)  # type: ignore[call-arg]
            try:
                await asyncio.wait_for(call.wait_for_connection(), _CONNECT_SECONDS)
                return await self._use(_Stream(call))
            except TimeoutError:
                return f"no connection within {_CONNECT_SECONDS:g} s"
            except aio.AioRpcError as error:
                final = status.error_of(error) or await self._explain(error)
                if final is not None:
                    raise final from None
                return status.describe(error)
            finally:
                call.cancel()

    async def _explain(self, error: aio.AioRpcError) -> errors.AccessDenied | None:
        """Returns why the learner cannot be talked to as asked; on a thread, since that may try the port itself."""
        return await asyncio.to_thread(security.explain, error.code(), error.details() or "", self._security)

    async def _use(self, stream: _Stream) -> str | None:
        self._stream = stream
        session_id = self._run.assignment.session_id if self._run else ""
        if self._run or self._joining:
            stream.outbox.put(codec.encode_hello(dataclasses.replace(self._hello, session_id=session_id)))
        try:
            return await self._read(stream)
        finally:
            self._stream = None
            await stream.stop()

    def _complain(self, trouble: str) -> None:
        now, kind = time.monotonic(), trouble.partition(":")[0]
        if kind != self._complaint or now - self._complained_at >= _COMPLAINT_SECONDS:
            self._complaint, self._complained_at = kind, now
            _logger.warning("learner at %s: %s; trying again", self._address, trouble)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Whatever ended the connection for good must reach the worker, which may wait for an answer."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._deliver(error)

    # --- what the learner says ---

    async def _read(self, stream: _Stream) -> str | None:
        while True:
            data = await stream.call.read()
            if not isinstance(data, bytes):
                return "the learner closed the stream"
            message = codec.decode_learner(data)
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
                    self._closing = True
                    self._deliver(messages.End(message.end.reason))
                    return None
                case _:
                    raise errors.InvalidMessage("the learner sent a message without content")

    def _on_assign(self, stream: _Stream, fields: inference_pb2.Assign) -> None:
        assignment = codec.assignment_of(fields)
        stream.assigned = True
        stream.beat_every(max(fields.heartbeat_seconds, _MIN_HEARTBEAT_SECONDS))
        if self._complaint:
            self._complaint = ""
            _logger.info("learner at %s: connected", self._address)
        if self._run is None:
            self._joining = False
            self._run = _Run(assignment)
            self._deliver(assignment)
        elif assignment.session_id != self._run.assignment.session_id:
            raise errors.InvalidMessage(
                f"the learner assigned run {assignment.session_id}; expected {self._run.assignment.session_id} or a Restart"
            )
        elif self._run.spec is not None:
            stream.outbox.put(codec.encode_spec(self._run.spec))

    def _on_start(self, stream: _Stream, fields: inference_pb2.Start) -> None:
        if self._run is None or self._run.spec is None:
            raise errors.InvalidMessage("the learner sent Start before a Spec")
        stream.ready = True
        self._run.max_message_bytes = fields.max_message_bytes
        for group, (sequence, step) in self._run.unanswered.items():
            self._send(stream, self._run, group, sequence, step)
        if not self._run.started:
            self._run.started = True
            self._deliver(Started())

    def _on_actions(self, fields: inference_pb2.Actions) -> None:
        run, group = self._run, fields.group
        if run is None or run.spec is None:
            raise errors.InvalidMessage("the learner sent Actions before Start")
        if fields.sequence <= run.answered.get(group, -1):
            return
        sequence, _ = run.unanswered.get(group, (-1, None))
        if fields.sequence != sequence:
            raise errors.InvalidMessage(
                f"the learner answered step {fields.sequence} of group {group}, which waits for no such answer"
            )
        actions = codec.actions_of(fields, run.assignment.envs_per_group, run.spec)
        del run.unanswered[group]
        run.answered[group] = sequence
        self._backoff_seconds = _FIRST_BACKOFF_SECONDS
        self._deliver(actions)

    def _on_restart(self, stream: _Stream, reason: str) -> None:
        if self._run is None:
            return
        _logger.warning("learner at %s: run %s is over: %s", self._address, self._run.assignment.session_id, reason)
        self._run = None
        self._wanted.clear()
        stream.assigned = stream.ready = False
        self._deliver(messages.Restart(reason))
