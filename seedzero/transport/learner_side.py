"""The learner's side of the protocol: sessions, and the effect of each message of a worker.

way of a step:    Service.connect -> receive -> _on_step -> Handler.step
way of an answer: Server.reply -> deliver -> Stream.put -> Service.connect
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import grpc

from seedzero.config import sections
from seedzero.core import errors
from seedzero.transport import codec, handshake, inference_pb2, messages, sessions, streams
from seedzero.transport import status as grpc_status

_MAX_REASON = 1000
_SILENT_SECONDS = 30.0
_MAX_NAMED = 3

Session = sessions.LearnerSession[streams.Stream]


class LearnerSide:
    """Everything here runs on the server's event-loop thread.

    Attributes:
      silent: names workers that send heartbeats alone; "": there are none. Any thread may read it.
    """

    def __init__(
        self, learner: messages.Handler, settings: sections.TransportConfig, clock: Callable[[], float]
    ) -> None:
        self._learner = learner
        self._settings = settings
        self._clock = clock
        self._sessions: sessions.Sessions[streams.Stream] = sessions.Sessions(settings.lease_seconds)
        self.silent = ""

    # --- from the learner ---

    def deliver(self, session_id: str, group: int, sequence: int, reply: bytes) -> None:
        """Answers a step; does nothing if its session is over."""
        session = self._sessions.get(session_id)
        if session is None or not session.answer(group, sequence, reply, self._clock()):
            return
        if session.stream and session.stream.ready:
            session.stream.put(reply)

    def restart(self, session_id: str, reason: str) -> None:
        """Ends a session without Handler.end, and has its worker join again."""
        session = self._sessions.pop(session_id, None)
        if session and session.stream:
            self._send_restart(session.stream, reason)

    # --- from the service ---

    def renew_all(self) -> None:
        """Starts all leases and deadlines anew."""
        self._sessions.renew_all(self._clock())

    def expire(self) -> None:
        """Ends sessions of workers that send nothing, or heartbeats alone for too long; names the latter before."""
        now, settings = self._clock(), self._settings
        for session in self._sessions.expired(now):
            explanation = f"nothing came for {settings.lease_seconds:g} s"
            if session.stream:
                explanation += (
                    ", not even heartbeats; where one call of an environment holds up all of its Python for as long, "
                    "give the learner a longer --transport.lease_seconds"
                )
            self._end_and_restart(session, f"{messages.WORKER_LOST}: {explanation}", explanation)
        silent = []
        for session in list(self._sessions.values()):
            seconds = now - session.owed_since
            if session.spec is None:
                setting, limit, debt = "spec_seconds", settings.spec_seconds, "made no environments"
            else:
                setting, limit, debt = "step_seconds", settings.step_seconds, "sent no step"
            text = f"worker {session.worker_id} has {debt} for {seconds:.0f} s"
            if 0 < limit <= seconds:
                explanation = f"{text}; --transport.{setting}={limit:g} allows no more"
                self._end_and_restart(session, messages.OVERDUE + explanation, explanation)
            elif seconds >= _SILENT_SECONDS:
                silent.append(text)
        rest = [f"{len(silent) - _MAX_NAMED} more"] if len(silent) > _MAX_NAMED else []
        self.silent = "; ".join(silent[:_MAX_NAMED] + rest)

    def _end_and_restart(self, session: Session, reason: str, explanation: str) -> None:
        """Ends a session and has its worker join again."""
        self.end(session, reason)
        if session.stream:
            self._send_restart(session.stream, explanation)

    def end(self, session: Session, reason: str) -> None:
        """Ends a session, once, and informs the learner."""
        if self._sessions.pop(session.assignment.session_id, None):
            self._learner.end(session.assignment.session_id, reason)

    def receive(self, stream: streams.Stream, data: bytes) -> None:
        """Handles a message; raises ProtocolError if it breaks the protocol, or the learner refuses it."""
        stream.check_unread()
        codec.check_size(data, stream.max_message_bytes)
        message, observation = codec.decode_worker(data)
        if stream.session:
            self._sessions.renew(stream.session, self._clock())
        match message.WhichOneof("message"):
            case "step":
                self._on_step(stream, message.step, observation)
            case "hello":
                self._on_hello(stream, message.hello)
            case "spec":
                self._on_spec(stream, message.spec)
            case "goodbye":
                self._on_goodbye(stream, message.goodbye)
            case "heartbeat":
                pass  # every message renews the lease
            case _:
                expected = "Hello, Spec, Step, Heartbeat or Goodbye"
                raise errors.InvalidMessage(f"a message without content; expected {expected}")

    def _on_hello(self, stream: streams.Stream, fields: inference_pb2.Hello) -> None:
        hello = handshake.hello_of(fields)
        if stream.session:
            raise errors.InvalidMessage(f"Hello came twice; session {stream.session.assignment.session_id} goes on")
        stream.restarted = False
        session = self._sessions.get(hello.session_id) if hello.session_id else self._create(hello)
        if session is None:
            unknown = f"session {hello.session_id!r} is unknown: its lease expired or the learner is new"
            self._send_restart(stream, unknown)
            return
        if session.stream:
            taken = grpc_status.Failure(
                grpc.StatusCode.ABORTED, f"another stream took over session {hello.session_id}"
            )
            session.stream.session = None
            session.stream.close(taken)
        session.stream, stream.session = stream, session
        self._sessions.renew(session, self._clock())
        assignment = dataclasses.replace(session.assignment, resumed=bool(hello.session_id))
        beat, lease = self._settings.heartbeat_seconds, self._settings.lease_seconds
        stream.put(handshake.encode_assign(assignment, heartbeat_seconds=beat, lease_seconds=lease))

    def _create(self, hello: messages.Hello) -> Session:
        for lost in self._sessions.abandoned(hello.worker_id):
            self.end(lost, messages.WORKER_LOST)
        return self._sessions.create(hello.worker_id, self._learner.assign(hello), self._clock())

    def _on_spec(self, stream: streams.Stream, fields: inference_pb2.Spec) -> None:
        if (session := self._session_of(stream, "Spec")) is None:
            return
        num_envs = session.assignment.envs_per_group
        spec = handshake.spec_of(fields, num_envs, self._settings.max_message_bytes)
        if session.begin(spec, self._clock()):
            self._learner.begin(session.assignment.session_id, spec)
        stream.ready = True
        stream.max_message_bytes = handshake.max_message_bytes(spec, num_envs)
        stream.put(handshake.encode_start(stream.max_message_bytes))

    def _on_step(self, stream: streams.Stream, fields: inference_pb2.Step, observation: memoryview) -> None:
        if (session := self._session_of(stream, "Step")) is None:
            return
        if session.layout is None or not stream.ready:
            raise errors.InvalidMessage("a Step came before Spec; expected Spec after every Assign")
        answer = session.look_up(fields.group, fields.sequence)
        if isinstance(answer, bytes):
            stream.put(answer)
        elif answer is sessions.Repeat.NEW:
            step = codec.step_of(fields, observation, session.layout)
            self._learner.step(session.accept(fields.group, fields.sequence, step))

    def _on_goodbye(self, stream: streams.Stream, fields: inference_pb2.Goodbye) -> None:
        if stream.session:
            failure = messages.FAILED + fields.reason[:_MAX_REASON]
            self.end(stream.session, failure if fields.failed else messages.GOODBYE)
            stream.session = None
        stream.close()

    def _session_of(self, stream: streams.Stream, message: str) -> Session | None:
        """Returns the stream's session; None: the message belongs to a session that Restart has ended."""
        if stream.session is None and not stream.restarted:
            raise errors.InvalidMessage(f"{message} came before Hello; expected Hello first")
        return stream.session

    def _send_restart(self, stream: streams.Stream, reason: str) -> None:
        stream.session, stream.restarted, stream.ready = None, True, False
        stream.idle_since = self._clock()
        stream.max_message_bytes = max(stream.max_message_bytes, handshake.HANDSHAKE_BYTES)
        stream.put(codec.encode_restart(reason))
