"""Answers any program with the actions of saved agents: the server, and its clients' sessions, rows and leases."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple, Protocol

import grpc
import numpy as np

from seedzero.config import sections
from seedzero.core import errors
from seedzero.transport import (
    codec,
    grpc_status,
    inference_pb2,
    listeners,
    loop_thread,
    policy_codec,
    security,
    sessions,
    streams,
)

# Handles a policy server's clients: their sessions, rows, leases and sequence numbers.
#
# - A request takes this way: Streams.serve -> PolicySide.receive -> _on_rows -> PolicyPlayer.act.
# - An answer takes this one: PolicyServer.answer -> PolicySide.deliver -> Stream.put -> Outbox -> the stream.
#
# Everything here runs on the server's event-loop thread. Shape letters: N rows of a request.
_NO_HELLO = "{} came before PolicyHello; expected PolicyHello first"
_TWICE = "{} came twice; the session is open"
_NEW, _ASSIGNED, STARTED, _RESTARTED, CLOSED = sessions.StreamPhase
TRANSITIONS: sessions.Transitions = {
    "hello": (STARTED, _TWICE, _TWICE, _TWICE, CLOSED),
    "rows": (_NO_HELLO, _NO_HELLO, STARTED, _NO_HELLO, CLOSED),
    "heartbeat": tuple(sessions.StreamPhase),
    "goodbye": tuple(sessions.StreamPhase),
    "": ("a message without content; expected PolicyHello, Rows, Heartbeat or Goodbye",) * 5,
}
"""The phases of a client's stream, which is new, then started, then closed."""


class PolicyRequest(NamedTuple):
    """Checked rows that wait for their actions.

    Attributes:
      slots: [N] int32, places in the server's memory.
      asked: takes the answer instead of a session.
      memory: [N, ...] what the rows carry, if they have no places.
    """

    session_id: str
    sequence: int
    player: str
    slots: np.ndarray
    rows: policy_codec.PolicyRows
    asked: futures.Future[policy_codec.PolicyAnswer | grpc_status.Failure] | None = None
    memory: Any = None


class PolicyPlayer(Protocol):
    """The agents behind a policy server. No method may block."""

    num_slots: int

    def offer(self) -> policy_codec.PolicyOffer:
        """Returns the server's description."""

    def act(self, request: PolicyRequest) -> None:
        """Queues a request for `PolicyServer.answer`. A session has at most one."""


class PolicySession:
    """A client's rows, from its hello to its goodbye or the end of its lease."""

    def __init__(self, session_id: str, player: str, slots: np.ndarray, lease_seconds: float, now: float) -> None:
        self.session_id, self.player, self.slots = session_id, player, slots
        self.is_unused = np.ones(len(slots), bool)  # rows whose memory another client has
        self.progress = sessions.Group(np.zeros(0, bool), math.inf)
        self.stream: Any = None
        self._lease_seconds = lease_seconds
        self.restart_deadlines(now)

    def restart_deadlines(self, now: float) -> None:
        """Restarts the lease."""
        self.expires_at = now + self._lease_seconds


class PolicySide:
    """Sessions, and what each message of a client does; a `streams.Side`."""

    def __init__(self, player: PolicyPlayer, settings: sections.TransportConfig, clock: Callable[[], float]) -> None:
        self._player, self.settings, self.clock = player, settings, clock
        self._offer = player.offer()  # only its players change
        self.sessions: dict[str, PolicySession] = {}
        self._free = list(range(player.num_slots))[::-1]
        self._leaving: dict[str, np.ndarray] = {}  # slots of ended sessions whose request is not answered yet

    # --- from the player ---

    def deliver(self, session_id: str, sequence: int, reply: bytes | grpc_status.Failure) -> None:
        """Answers a request, or ends its session; frees the rows of a session that has ended meanwhile."""
        session = self.sessions.get(session_id)
        if session is None:
            self._free += self._leaving.pop(session_id, np.zeros(0, np.int32)).tolist()
            return
        session.progress.pending, stream = False, session.stream
        if isinstance(reply, grpc_status.Failure):
            self.end(session, reply.details)
            if stream is not None:
                stream.close(reply)
            return
        session.progress.last_reply = reply
        if stream is not None:
            stream.put(reply)

    # --- from the streams ---

    def expire(self) -> None:
        """Ends sessions of silent clients."""
        now, seconds = self.clock(), self.settings.lease_seconds
        for session in [session for session in self.sessions.values() if session.expires_at <= now]:
            stream = session.stream
            self.end(session, "its lease has expired")
            if stream is not None:
                silent = f"nothing came for {seconds:g} s, not even a heartbeat; begin a new session"
                stream.close(grpc_status.Failure(grpc.StatusCode.DEADLINE_EXCEEDED, silent))

    def end(self, session: PolicySession, reason: str) -> None:
        """Ends a session, once; its rows become free once no request of it is being answered."""
        if self.sessions.pop(session.session_id, None) is None:
            return
        if session.stream is not None:
            session.stream.session = None
            session.stream = None
        if session.progress.pending:
            self._leaving[session.session_id] = session.slots
        else:
            self._free += session.slots.tolist()

    def receive(self, stream: streams.Stream, data: bytes) -> None:
        """Handles a message.

        Raises ProtocolError for a breach of the protocol, and UsageError for an unknown player.
        """
        stream.check_unread()
        codec.check_size(data, stream.max_message_bytes)
        message, observation = policy_codec.decode_client(data)
        session: Any = stream.session
        kind = message.WhichOneof("message") or ""
        stream.phase = stream.phase.after(kind, session.session_id if session else "", TRANSITIONS)
        if session:
            session.restart_deadlines(self.clock())
        match kind:
            case "rows" if session:
                self._on_rows(session, message.rows, observation)
            case "hello" if stream.phase is not CLOSED:
                self._on_hello(stream, message.hello)
            case "goodbye":
                if session:
                    self.end(session, "goodbye")
                stream.close()

    def _on_hello(self, stream: Any, fields: inference_pb2.PolicyHello) -> None:
        policy_codec.check_hello(fields, self._offer.max_rows)
        if fields.session_id:
            if (session := self.sessions.get(fields.session_id)) is None:
                gone = "this session is unknown: its lease has expired, or the server is new; begin a new one"
                stream.close(grpc_status.Failure(grpc.StatusCode.NOT_FOUND, gone))
                return
            if session.stream is not None:
                session.stream.session = None
                taken = f"another stream took over session {session.session_id[:8]}"
                session.stream.close(grpc_status.Failure(grpc.StatusCode.ABORTED, taken))
        else:
            session = self._create(fields.player, fields.num_rows)
        session.stream, stream.session = stream, session
        session.restart_deadlines(self.clock())
        stream.max_message_bytes = policy_codec.max_message_bytes(self._offer.spec, len(session.slots))
        times = self.settings.beat_seconds, self.settings.lease_seconds
        stream.put(policy_codec.encode_welcome(session.session_id, *times, stream.max_message_bytes))

    def _create(self, player: str, num_rows: int) -> PolicySession:
        players = self._player.offer().players
        name = player or next(iter(players))
        if name not in players:
            raise errors.UsageError(f"no player {name!r} is served here; expected one of {', '.join(players)}")
        if num_rows > len(self._free):
            raise errors.SlotsExhausted(
                f"{num_rows} rows were asked for and {len(self._free)} of {self._player.num_slots} are free; ask for "
                "fewer, or give the server more by --max_rows"
            )
        slots = np.array([self._free.pop() for _ in range(num_rows)], np.int32)
        session = PolicySession(secrets.token_hex(16), name, slots, self.settings.lease_seconds, self.clock())
        self.sessions[session.session_id] = session
        return session

    def _on_rows(self, session: PolicySession, fields: inference_pb2.Rows, observation: memoryview) -> None:
        answer = session.progress.look_up(0, fields.sequence)
        if isinstance(answer, bytes):
            session.stream.put(answer)
        elif answer is sessions.Repeat.NEW:
            offer = self._offer
            rows = policy_codec.rows_of(
                fields, observation, offer.spec, len(session.slots), reads_reward=offer.reads_reward
            )
            rows = rows._replace(first=rows.first | session.is_unused[rows.row])
            if not rows.only_look:
                session.is_unused[rows.row] = False
            session.progress.next_sequence, session.progress.pending = fields.sequence + 1, True
            slots = session.slots[rows.row]
            self._player.act(PolicyRequest(session.session_id, fields.sequence, session.player, slots, rows))


MAX_WATCHING = 64
"""The most streams of Watch; each holds one announcement at a time."""
Answer = tuple[str, int, bytes | grpc_status.Failure]
"""The session's id, the sequence number, and the message, or a failure that ends the session."""


class PolicyServer:
    """Serves clients on a separate thread. Any other thread may call its methods."""

    def __init__(
        self,
        player: PolicyPlayer,
        settings: sections.TransportConfig,
        *,
        secured: security.ServerSecurity = security.OPEN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Only prepares; see start()."""
        self._settings, self._secured = settings, secured
        self._side = PolicySide(player, settings, clock)
        self._streams = streams.Streams(self._side)
        self._service = PolicyService(player, self._streams, security.Guard(secured.token, clock))
        self._thread: loop_thread.LoopThread | None = None

    def start(self) -> str:
        """Binds the address, serves from now on and returns the address.

        Raises UsageError if it is in use or impossible.
        """
        self._thread = loop_thread.LoopThread("seedzero-policy")
        try:
            return self._thread.run(self._serve())
        except errors.UsageError:
            self._thread.stop()
            self._thread = None
            raise

    def answer(self, answers: Sequence[Answer]) -> None:
        """Answers requests, with one wake-up for all."""
        if (thread := self._thread) is not None:
            thread.post(self._deliver, answers)

    def announce(self, players: Mapping[str, int]) -> None:
        """Announces players and versions to all watchers."""
        if (thread := self._thread) is not None:
            thread.post(self._service.announce, players)

    @property
    def num_sessions(self) -> int:
        """Number of sessions at the moment."""
        return len(self._side.sessions)

    def stop(self, reason: str, grace_seconds: float = 2.0) -> None:
        """Ends all streams and the server."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self._shut_down(reason, grace_seconds))
            thread.stop()

    def _deliver(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self._side.deliver(*answer)

    async def _serve(self) -> str:
        self._listener = listeners.Listener(
            self._service.methods(), self._settings, self._secured, flags="--port and --host"
        )
        bound = await self._listener.start(self._settings.listen)
        self._streams.watch_leases()
        return bound

    async def _shut_down(self, reason: str, grace_seconds: float) -> None:
        await self._streams.dismiss(False, reason, grace_seconds)
        await self._listener.stop()


class PolicyService:
    """Answers calls, reading nothing before the token is checked. Runs on the server's event-loop thread."""

    def __init__(
        self,
        player: PolicyPlayer,
        clients: streams.Streams[PolicySide],
        guard: security.Guard,
    ) -> None:
        self._player, self._streams, self._guard = player, clients, guard
        self._health = listeners.Health(lambda: clients.farewell is None)
        self._num_watching = 0
        self._players = player.offer().players
        self._changed = asyncio.Event()

    def methods(self) -> tuple[grpc.GenericRpcHandler[bytes, bytes], ...]:
        """Returns all methods for a grpc.aio server as streams, because gRPC would read a unary request."""
        description = inference_pb2.Description.SerializeToString
        ours = {
            "Describe": grpc.stream_unary_rpc_method_handler(self.describe, None, description),
            "Act": grpc.stream_stream_rpc_method_handler(self.act),
            "Watch": grpc.stream_stream_rpc_method_handler(
                self.watch, None, inference_pb2.Announcement.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(policy_codec.SERVICE, ours), self._health.methods()

    async def describe(self, requests: object, context: listeners.Context) -> inference_pb2.Description:
        """Returns the spec, the players and their versions."""
        await listeners.refuse_strangers(self._guard, context)
        return policy_codec.encode_offer(self._player.offer())

    async def act(self, requests: object, context: listeners.Context) -> None:
        """Serves a client's stream from beginning to end."""
        await listeners.refuse_strangers(self._guard, context)
        await self._streams.serve(context)

    async def watch(self, requests: object, context: Any) -> None:
        """Sends players and versions, now and after every change."""
        await listeners.refuse_strangers(self._guard, context)
        if self._num_watching == MAX_WATCHING:
            many = f"{MAX_WATCHING} streams watch this server already; ask by Describe instead"
            await grpc_status.failure_of(errors.SlotsExhausted(many)).abort(context)
        self._num_watching += 1
        try:
            while True:
                changed = self._changed
                await context.write(inference_pb2.Announcement(players=policy_codec.served(self._players)))
                await changed.wait()
        finally:
            self._num_watching -= 1

    def announce(self, players: Mapping[str, int]) -> None:
        """Wakes all watchers; a slow one misses what comes in between."""
        self._players = players
        before, self._changed = self._changed, asyncio.Event()
        before.set()
