"""A blocking client of a policy server, whose session survives lost connections.

    with PolicyClient("127.0.0.1:50052", num_rows=8) as client:
        acted = client.act(rows)

gRPC's own thread writes requests, and heartbeats in between.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from typing import Any, NamedTuple

import grpc
import numpy as np

from seedzero.config import sections
from seedzero.core import errors, forks
from seedzero.transport import addresses, grpc_status, inference_pb2, options, policy_codec, security

_DESCRIBE_SECONDS = 5.0
_FEW = 3
"""How often to try to reach a server whose connection broke."""
_FIRST_BEAT_SECONDS = 0.5
"""Time between heartbeats until the server reports its own."""
_SETTINGS = sections.TransportConfig()
_AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.ABORTED)
_LOST = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.DEADLINE_EXCEEDED)
"""The session is over, so its rows no longer have a memory."""


def describe(secured: security.ClientSecurity) -> policy_codec.PolicyOffer:
    """Returns a server's description.

    Raises AccessDenied if the server refuses the token, or the two ends do not agree on TLS, and ProtocolError if no
    policy server answers.
    """
    with security.channel(secured) as channel:
        method = f"/{policy_codec.SERVICE}/Describe"
        call = channel.unary_unary(method, None, inference_pb2.Description.FromString)
        try:
            found = call(b"", timeout=_DESCRIBE_SECONDS, metadata=secured.metadata)
        except grpc.RpcError as error:
            raise explained(error, secured) from None
    return policy_codec.offer_of(found)


class PolicyClient(contextlib.AbstractContextManager["PolicyClient"]):
    """A session of some rows with a player, for one thread at a time."""

    def __init__(
        self, secured: security.ClientSecurity, offer: policy_codec.PolicyOffer, *, player: str = "", num_rows: int = 1
    ) -> None:
        """Connects at the first request. player: "" is the server's first one."""
        self.num_rows = num_rows
        self._secured, self._offer, self._player = secured, offer, player
        self._session_id, self._sequence = "", 0
        self._stream: _Stream | None = None
        self._begun = np.zeros(num_rows, bool)  # rows that have a memory in the present session

    def act(self, rows: policy_codec.PolicyRows) -> policy_codec.PolicyAnswer:
        """Waits for the answer to some rows, as long as it takes, and returns it.

        A new session follows a lost one if all rows begin an episode; others of the lost one cannot continue theirs.
        Every error, and an interrupt such as Ctrl-C, ends the session, because a late answer would be taken for that
        to the next request.

        Raises ProtocolError if the server refuses the request or cannot be reached, or the session is over because its
        lease has expired or the server is new. Raises AccessDenied as `describe` does, and UsageError in a process
        that was forked while gRPC was in use.
        """
        forks.check("gRPC")
        if not (rows.first | self._begun[rows.row]).all():
            raise errors.ProtocolError("the session is over: an earlier request failed or was interrupted; call reset")
        try:
            found = self._acted(rows)
        except BaseException:
            self._forget()
            raise
        self._begun[rows.row] = True
        return found

    def _acted(self, rows: policy_codec.PolicyRows) -> policy_codec.PolicyAnswer:
        for attempt in range(1, _FEW + 1):
            try:
                stream = self._stream or self._open()
                stream.put(policy_codec.encode_rows(self._sequence, rows))
                reply = stream.take()
                while reply.WhichOneof("message") == "acted" and reply.acted.sequence < self._sequence:
                    reply = stream.take()  # an answer that came twice, as around a lost connection
                if reply.WhichOneof("message") != "acted" or reply.acted.sequence != self._sequence:
                    raise errors.InvalidMessage(f"the server sent no answer to request {self._sequence}")
                self._sequence += 1
                return policy_codec.acted_of(reply.acted, len(rows.row), self._offer.spec)
            except grpc.RpcError as error:
                self._drop()
                if is_lost := error.code() in _LOST:
                    self._forget()
                goes_on = error.code() in _AGAIN or (is_lost and bool(rows.first.all()))
                if not goes_on or attempt == _FEW:
                    raise explained(error, self._secured) from None
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Frees the session's rows at the server. Further calls, and those in a forked process, do nothing."""
        if forks.is_lost("gRPC"):
            return
        if self._stream is not None:
            self._stream.leave()
            self._stream.finish()
        self._drop()

    def __del__(self) -> None:
        if self._stream is not None:  # otherwise its thread would keep the session by heartbeats
            self._stream.leave()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> _Stream:
        """Opens a stream, and begins a session or resumes the present one."""
        self._stream = _Stream(self._secured)
        fields: dict[str, Any] = dict(protocol_version=policy_codec.VERSION, session_id=self._session_id)
        fields |= dict(player=self._player, num_rows=self.num_rows)
        self._stream.put(policy_codec.from_client(hello=fields))
        reply = self._stream.take()
        if reply.WhichOneof("message") != "welcome":
            raise errors.InvalidMessage("the server answered the hello with something else than a welcome")
        if not self._session_id:
            self._session_id, self._sequence = reply.welcome.session_id, 0
        self._stream.beat_every(reply.welcome.heartbeat_seconds)
        return self._stream

    def _forget(self) -> None:
        self._drop()
        self._session_id, self._sequence = "", 0
        self._begun[:] = False

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.drop()
            self._stream = None


class _Stream:
    def __init__(self, secured: security.ClientSecurity) -> None:
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # at most a request and the end
        self._beat_seconds = _FIRST_BEAT_SECONDS
        self._channel = security.channel(secured, given=options.client(_SETTINGS))
        method = self._channel.stream_stream(f"/{policy_codec.SERVICE}/Act", None, None)
        self._call = method(self._requests(), metadata=secured.metadata)

    def put(self, data: bytes | None) -> None:
        """Queues a message; None is the end."""
        self._waiting.put(data)

    def take(self) -> inference_pb2.PolicyReply:
        """Waits for a message. Raises grpc.RpcError at the stream's end."""
        for data in self._call:
            return policy_codec.decode_reply(data)
        raise errors.ProtocolError("the server closed the stream without an answer")

    def beat_every(self, seconds: float) -> None:
        """Writes heartbeats after the next one."""
        self._beat_seconds = seconds

    def leave(self) -> None:
        """Queues the session's end."""
        self.put(policy_codec.from_client(goodbye=dict(reason="done")))
        self.put(None)

    def finish(self) -> None:
        """Waits until the server ends the stream, once everything is written."""
        with contextlib.suppress(grpc.RpcError):
            for _ in self._call:
                continue

    def drop(self) -> None:
        """Ends the connection at once."""
        self._waiting.put(None)
        self._call.cancel()
        self._channel.close()

    def _requests(self) -> Iterator[bytes]:
        """Yields messages on one of gRPC's threads."""
        while True:
            try:
                data = self._waiting.get(timeout=self._beat_seconds)
            except queue.Empty:
                data = policy_codec.HEARTBEAT
            if data is None:
                return
            yield data


class Words(NamedTuple):
    """How messages speak of a server: its kind, a question if none answers, and advice if it lacks the service."""

    kind: str
    question: str
    advice: str


POLICY_SERVER = Words(
    "policy server", "is `seedzero serve` running there?", "give the address that `seedzero serve` prints"
)


def explained(error: grpc.RpcError, secured: security.ClientSecurity, words: Words = POLICY_SERVER) -> errors.Error:
    """Returns the error for the user of a call that failed."""
    code, details, address = error.code(), error.details() or "", secured.address
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return errors.AccessDenied(f"the {words.kind} at {address} refuses this call: {details}")
    if code is grpc.StatusCode.UNAVAILABLE:
        if (found := security.explain(code, details, secured)) is not None:
            return found
        why = grpc_status.of_proxy(code, details) or details
        return errors.ProtocolError(
            f"no {words.kind} answers at {address} ({why}); {words.question}{addresses.proxy_remark(address)}"
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return errors.ProtocolError(
            f"the program at {address} does not have this service ({details or 'no such service'}); {words.advice}"
        )
    return errors.ProtocolError(f"the {words.kind} at {address} answers {code.name}: {details}")
