"""The policy server's wire: its own messages in order, refusals that leave others alone, leases, and strangers."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
from collections.abc import Iterator, Sequence
from typing import Any, cast

import grpc
import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.transport import (
    grpc_status,
    inference_pb2,
    policy_client,
    policy_codec,
    policy_servers,
    probe,
    security,
    streams,
)

SECONDS = 600.0
SPEC = types.EnvSpec((2,), "float32", 3, has_action_mask=True, tasks=("a", "b"))
SETTINGS = sections.TransportConfig(listen="127.0.0.1:0")
ACT = f"/{policy_codec.SERVICE}/Act"


class Player:
    """Answers the first legal action at once, or keeps requests if told so."""

    num_slots = 6

    def __init__(self) -> None:
        self.server: policy_servers.PolicyServer
        self.requests: list[policy_servers.PolicyRequest] = []
        self.keeps = False
        self.failure: grpc_status.Failure | None = None

    def offer(self) -> policy_codec.PolicyOffer:
        return policy_codec.PolicyOffer(SPEC, "catch", "ppo", {"main": 3, "old": 1}, False, True, False, False, 6)

    def act(self, request: policy_servers.PolicyRequest) -> None:
        self.requests.append(request)
        if not self.keeps:
            self.answer(request)

    def answer(self, request: policy_servers.PolicyRequest) -> None:
        assert request.rows.step.action_mask is not None
        acted = policy_codec.PolicyAnswer(request.rows.step.action_mask.argmax(axis=1), 3, {})
        reply = self.failure or policy_codec.encode_acted(request.sequence, acted)
        self.server.answer([(request.session_id, request.sequence, reply)])


@contextlib.contextmanager
def _serving(
    settings: sections.TransportConfig = SETTINGS, clock: Any = None, **given: Any
) -> Iterator[tuple[Player, grpc.Channel, str]]:
    player = Player()
    player.server = policy_servers.PolicyServer(player, settings, **given, **({"clock": clock} if clock else {}))
    address = player.server.start()
    try:
        with grpc.insecure_channel(address) as channel:
            yield player, channel, address
    finally:
        player.server.stop("the test is over")


def test_a_server_s_trouble_is_in_its_description_and_one_without_players_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offer = dataclasses.replace(Player().offer(), trouble="no newer parameters")
    with _serving() as (player, _, address):
        monkeypatch.setattr(player, "offer", lambda: offer)
        assert policy_client.describe(security.for_client(address)).trouble == "no newer parameters"
        monkeypatch.setattr(player, "offer", lambda: dataclasses.replace(offer, players={}))
        with pytest.raises(errors.InvalidMessage, match="has no players; start it again"):
            policy_client.describe(security.for_client(address))


def test_a_port_in_use_is_named_with_the_flags_of_serve() -> None:
    with _serving() as (_, _, address), pytest.raises(errors.UsageError, match=r"in use .*--port and --host"):
        policy_servers.PolicyServer(Player(), dataclasses.replace(SETTINGS, listen=address)).start()


class Raw:
    """A stream of bytes."""

    def __init__(self, channel: grpc.Channel, *messages: bytes, metadata: Any = ()) -> None:
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.call = channel.stream_stream(ACT)(iter(self._waiting.get, None), timeout=SECONDS, metadata=metadata)
        self.put(*messages)

    def put(self, *messages: bytes) -> None:
        for message in messages:
            self._waiting.put(message)

    def take(self) -> inference_pb2.PolicyReply:
        return policy_codec.decode_reply(next(self.call))

    def fails(self) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as raised:
            for _ in self.call:
                continue
        return raised.value.code(), raised.value.details()  # type: ignore[attr-defined]


def _hello(**fields: Any) -> bytes:
    return policy_codec.from_client(hello={"protocol_version": 1, "num_rows": 2, **fields})


def _rows(sequence: int = 0, row: Sequence[int] = (0, 1), **changes: Any) -> bytes:
    number = len(row)
    mask = np.tile([False, True, True], (number, 1))
    step = types.EnvStep.first(np.zeros((number, 2), np.float32))._replace(action_mask=mask)
    rows = policy_codec.PolicyRows(np.array(row), step._replace(**changes), np.zeros(number, bool))
    return policy_codec.encode_rows(sequence, rows)


def test_a_failed_request_ends_its_session_and_frees_its_rows() -> None:
    failure = grpc_status.Failure(grpc.StatusCode.INTERNAL, "request 0 is odd")
    with _serving() as (player, channel, _):
        player.failure = failure
        stream = Raw(channel, _hello(num_rows=6), _rows(0, [0]))
        session = stream.take().welcome.session_id
        assert stream.fails() == (grpc.StatusCode.INTERNAL, "request 0 is odd")
        assert Raw(channel, _hello(session_id=session)).fails()[0] is grpc.StatusCode.NOT_FOUND
        assert Raw(channel, _hello(num_rows=6)).take().welcome.session_id


def test_a_session_begins_acts_and_says_goodbye() -> None:
    with _serving() as (player, channel, _):
        stream = Raw(channel, _hello(), policy_codec.HEARTBEAT)
        welcome = stream.take().welcome
        assert len(welcome.session_id) == 32 and welcome.lease_seconds == 15
        stream.put(_rows(0), _rows(0))  # repeated, as after a lost answer
        assert [np.frombuffer(stream.take().acted.action, "<i4").tolist() for _ in range(2)] == [[1, 1], [1, 1]]
        stream.put(_rows(1, [1]))
        assert stream.take().acted.sequence == 1
        assert [request.rows.first.tolist() for request in player.requests] == [[True, True], [False]]
        assert [len(set(request.slots.tolist())) for request in player.requests] == [2, 1]
        stream.put(policy_codec.from_client(goodbye={}))
        assert list(stream.call) == [] and stream.call.code() is grpc.StatusCode.OK
        assert player.server.num_sessions == 0


_INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("messages", "code", "told"),
    [
        ([_rows()], _INVALID, "Rows came before PolicyHello"),
        ([_hello(), _hello()], _INVALID, "Hello came twice"),
        (
            [_hello(protocol_version=2)],
            grpc.StatusCode.FAILED_PRECONDITION,
            "version 2 of the policy protocol, the server 1",
        ),
        (
            [_hello(player="nobody")],
            grpc.StatusCode.FAILED_PRECONDITION,
            "'nobody' is served here; expected one of main, old",
        ),
        ([_hello(num_rows=0)], _INVALID, "PolicyHello.num_rows is 0; expected 1 to 6"),
        ([_hello(num_rows=7)], _INVALID, "PolicyHello.num_rows is 7; expected 1 to 6"),
        ([_hello(session_id="x")], grpc.StatusCode.NOT_FOUND, "begin a new one"),
        ([b"nonsense"], _INVALID, "8 bytes that begin with '6e6f6e73656e7365'"),
        ([_hello(), policy_codec.from_client()], _INVALID, "expected PolicyHello, Rows, Heartbeat or Goodbye"),
        (
            [_hello(), _rows(1)],
            grpc.StatusCode.OUT_OF_RANGE,
            "step 1 of group 0 is a gap after the step -1; expected 0",
        ),
        ([_hello(), _rows(0, [0, 2])], _INVALID, "Rows.row begins with [0, 2]; expected 0 to 1"),
        ([_hello(), _rows(0, [1, 1])], _INVALID, "Rows.row begins with [1, 1]; "),
        (
            [_hello(), _rows(observation=np.zeros((2, 3), np.float32))],
            _INVALID,
            "shape (2, 3) and dtype 'float32'; expected (2, 2) and 'float32'",
        ),
        (
            [_hello(), _rows(observation=np.zeros((2, 2), np.uint8))],
            _INVALID,
            "dtype 'uint8'; expected (2, 2) and 'float32'",
        ),
        (
            [_hello(), _rows(observation=np.full((2, 2), np.inf, np.float32))],
            _INVALID,
            "'observation' that is not finite",
        ),
        ([_hello(), _rows(action_mask=None)], _INVALID, "action_mask of group 0 has 0 bytes; expected 6"),
        (
            [_hello(), _rows(action_mask=np.zeros((2, 3), bool))],
            _INVALID,
            "Rows.action_mask has a row without a legal action",
        ),
        ([_hello(), _rows(task=np.array([0, 2]))], _INVALID, "task of group 0 has a number 2; expected 0 to 1"),
        ([_hello(), bytes(5 * 2**20)], _INVALID, "a message has 5242880 bytes; expected at most 65866"),
    ],
)
def test_a_breach_ends_its_own_stream_alone(messages: list[bytes], code: grpc.StatusCode, told: str) -> None:
    with _serving() as (_, channel, _):
        other = Raw(channel, _hello())
        other.take()
        found, details = Raw(channel, *messages).fails()
        assert found is code and told in details
        other.put(_rows())
        assert len(other.take().acted.action) == 8


def test_a_request_before_the_last_answer_is_refused() -> None:
    with _serving() as (player, channel, _):
        player.keeps = True
        assert Raw(channel, _hello(), _rows(0), _rows(1)).fails()[0] is grpc.StatusCode.OUT_OF_RANGE


def test_rows_of_all_clients_are_limited_and_come_back() -> None:
    with _serving() as (player, channel, _):
        first = Raw(channel, _hello(num_rows=4))
        first.take()
        code, details = Raw(channel, _hello(num_rows=3)).fails()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "2 of 6 are free" in details
        player.keeps = True
        first.put(_rows(), policy_codec.from_client(goodbye={}))
        assert list(first.call) == []  # its request is still on its way: the rows are not another client's yet
        assert Raw(channel, _hello(num_rows=3)).fails()[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        player.answer(player.requests[0])
        assert len(Raw(channel, _hello(num_rows=6)).take().welcome.session_id) == 32


def test_a_broken_stream_is_resumed_with_its_memory_and_its_last_answer() -> None:
    with _serving() as (player, channel, _):
        broken = Raw(channel, _hello())
        session_id = broken.take().welcome.session_id
        broken.put(_rows(0))
        broken.take()
        resumed = Raw(channel, _hello(session_id=session_id))
        assert resumed.take().welcome.session_id == session_id
        assert broken.fails()[0] is grpc.StatusCode.ABORTED
        resumed.put(_rows(0), _rows(1))
        assert [resumed.take().acted.sequence for _ in range(2)] == [0, 1]
        assert [request.sequence for request in player.requests] == [0, 1]
        assert player.requests[1].rows.first.tolist() == [False, False]


def test_an_answer_that_comes_twice_is_not_that_to_the_next_request() -> None:
    with _serving() as (player, _, address):
        client = policy_client.PolicyClient(security.for_client(address), player.offer(), num_rows=2)
        step = types.EnvStep.first(np.zeros((2, 2), np.float32))
        for number, mask in enumerate(([False, True, True], [False, False, True])):
            masked = step._replace(action_mask=np.tile(mask, (2, 1)))
            rows = policy_codec.PolicyRows(np.arange(2), masked, np.full(2, number == 0))
            assert client.act(rows).actions.tolist() == [1 + number] * 2
            assert client._stream is not None
            client._stream.put(policy_codec.encode_rows(number, rows))  # as a client does that has come back
        client.close()
    assert [request.sequence for request in player.requests] == [0, 1]


def test_a_row_of_a_lost_session_does_not_go_on_when_others_have_begun_another() -> None:
    with _serving() as (player, _, address):
        client = policy_client.PolicyClient(security.for_client(address), player.offer(), num_rows=2)
        step = types.EnvStep.first(np.zeros((2, 2), np.float32))._replace(action_mask=np.ones((2, 3), bool))
        client.act(policy_codec.PolicyRows(np.arange(2), step, np.ones(2, bool)))
        player.server._side.sessions.clear()  # as in a server that was started again
        assert client._stream is not None
        client._stream.drop()
        for number in (1, 0):
            row = np.array([number])
            rows = policy_codec.PolicyRows(row, step.those(row), np.ones(1, bool))
            if number == 0:
                with pytest.raises(errors.ProtocolError, match="session is over"):
                    client.act(rows._replace(first=~rows.first))
            client.act(rows)
        client.close()


def test_a_silent_client_loses_its_rows() -> None:
    now = [0.0]
    settings = dataclasses.replace(SETTINGS, lease_seconds=0.4)
    with _serving(settings, clock=lambda: now[0]) as (player, channel, _):
        silent = Raw(channel, _hello(num_rows=6))
        silent.take()
        now[0] = 1.0
        code, details = silent.fails()
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED and "nothing came for 0.4 s" in details
        assert player.server.num_sessions == 0
        assert len(Raw(channel, _hello(num_rows=6)).take().welcome.session_id) == 32


def test_a_client_that_repeats_without_reading_is_refused() -> None:
    with _serving() as (player, _, _):
        side = player.server._side
        stream = streams.Stream(cast(Any, None), 0.0)  # nobody writes it
        side.receive(stream, _hello())
        player.server.answer = lambda answers: side.deliver(*answers[0])  # type: ignore[method-assign]
        side.receive(stream, _rows(0))
        with pytest.raises(errors.InvalidMessage, match="wait to be read"):
            for _ in range(200):
                side.receive(stream, _rows(0))


def test_strangers_are_refused_before_anything_is_read() -> None:
    secured = security.ServerSecurity("0123456789abcdef")
    with _serving(secured=secured) as (player, channel, address):
        for method, kind in (("Describe", "unary"), ("Watch", "stream"), ("Act", "stream")):
            path = f"/{policy_codec.SERVICE}/{method}"
            with pytest.raises(grpc.RpcError) as raised:
                if kind == "unary":
                    channel.unary_unary(path)(b"", timeout=SECONDS)
                else:
                    next(channel.stream_stream(path)(iter([bytes(2**20)]), timeout=SECONDS))
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
        assert player.server.num_sessions == 0 and not player.server._streams._open
        assert probe.health(address) == probe.SERVING
        allowed = Raw(channel, _hello(), metadata=(("authorization", "Bearer 0123456789abcdef"),))
        assert allowed.take().welcome.session_id


def test_watchers_are_few_and_hear_of_the_newest_versions() -> None:
    with _serving() as (player, channel, _):
        watch = channel.stream_stream(f"/{policy_codec.SERVICE}/Watch", None, inference_pb2.Announcement.FromString)
        watching = [watch(iter(()), timeout=SECONDS) for _ in range(policy_servers.MAX_WATCHING)]
        assert {policy_codec.players_of(next(one).players)["main"] for one in watching} == {3}
        with pytest.raises(grpc.RpcError, match="watch this server already"):
            next(watch(iter(()), timeout=SECONDS))
        player.server.announce({"main": 4})
        assert {policy_codec.players_of(next(one).players)["main"] for one in watching} == {4}


def test_the_learners_calls_are_not_answered() -> None:
    with _serving() as (_, _, address), pytest.raises(Exception, match="UNIMPLEMENTED"):
        probe.status(address)
