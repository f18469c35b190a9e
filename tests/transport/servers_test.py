"""Calls that answer without reading: health, status to strangers, and messages that are refused unread."""

from __future__ import annotations

import dataclasses
import resource
import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2
from wire import SETTINGS, TIMEOUT_SECONDS, Learner, joined, make_step, receive_actions, serving

from seedzero.core import errors
from seedzero.transport import codec, listeners, messages, probe, security, servers

HEALTH = "/grpc.health.v1.Health"


def test_nothing_is_read_of_a_request_that_needs_no_answer_of_its_own() -> None:
    limit = 2**22
    settings = dataclasses.replace(SETTINGS, max_message_bytes=limit)
    learner = Learner(settings, secured=security.ServerSecurity("secret"))
    with serving(learner) as address, grpc.insecure_channel(address) as channel:
        for body in (b"", b"\xff no message", bytes(limit + 1)):  # gRPC refuses the last two where it reads them
            reply = channel.unary_unary(f"{HEALTH}/Check")(body, timeout=TIMEOUT_SECONDS)
            assert health_pb2.HealthCheckResponse.FromString(reply) == listeners._SERVING
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(codec.STATUS_METHOD)(body, timeout=TIMEOUT_SECONDS)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        watch = channel.unary_stream(f"{HEALTH}/Watch")(bytes(limit + 1), timeout=TIMEOUT_SECONDS)
        assert health_pb2.HealthCheckResponse.FromString(next(watch)) == listeners._SERVING
        watch.cancel()


def test_few_may_watch_and_a_watch_ends_with_the_server(learner: Learner, address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        watch = channel.unary_stream(f"{HEALTH}/Watch", None, health_pb2.HealthCheckResponse.FromString)
        watching = [watch(b"", timeout=TIMEOUT_SECONDS) for _ in range(listeners._MAX_WATCHING)]
        assert [next(stream) for stream in watching] == [listeners._SERVING] * len(watching)
        with pytest.raises(grpc.RpcError, match="Check"):
            next(watch(b"", timeout=TIMEOUT_SECONDS))
        learner.server.stop(finished=False, reason="test over")
        for stream in watching:
            with pytest.raises(grpc.RpcError) as caught:
                next(stream)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_compressed_message_is_refused_before_it_is_inflated(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        connect = channel.stream_stream(codec.CONNECT_METHOD)
        with pytest.raises(grpc.RpcError, match="'gzip'"):
            next(connect(iter([bytes(2**20)]), timeout=TIMEOUT_SECONDS, compression=grpc.Compression.Gzip))


LIVE = f"/{codec.SERVICE}/Live"


def test_a_page_is_answered_over_one_connection(address: str) -> None:
    asking = probe.LiveProbe(address)
    try:
        with joined(address) as worker:
            worker.send(0, make_step())
            assert receive_actions(worker).group == 0
            answer, observations = asking.ask(messages.LiveAsk(7, 3, 9))
            assert (answer["asked"], observations) == ([7, 3, 9], b"abc")
            assert answer["workers"] == [["worker", "Role.TRAIN", "2", "2", "steps"]]
        assert asking.ask(messages.LiveAsk(0, None, 0))[0]["asked"] == [0, None, 0]
    finally:
        asking.close()


def test_a_learner_without_a_live_view_is_an_older_one() -> None:
    learner = Learner()
    learner.server = servers.Server(learner, SETTINGS)
    with serving(learner) as address, pytest.raises(errors.VersionMismatch, match="not available"):
        probe.LiveProbe(address).ask(messages.LiveAsk(0, None, 0))


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"\xff", grpc.StatusCode.INVALID_ARGUMENT, "1 bytes are no LiveRequest"),
        (bytes(1025), grpc.StatusCode.INVALID_ARGUMENT, "1025 bytes"),
    ],
)
def test_a_page_s_request_is_small(address: str, body: bytes, code: grpc.StatusCode, text: str) -> None:
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError, match=text) as caught:
        channel.unary_unary(LIVE)(body, timeout=TIMEOUT_SECONDS)
    assert caught.value.code() is code


def test_few_pages_may_keep_the_learner_waiting(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_ASK_SECONDS", 2.0)
    silent = threading.Event()

    def nothing() -> Iterator[bytes]:
        silent.wait(TIMEOUT_SECONDS)
        yield b""

    try:
        with grpc.insecure_channel(address) as channel:
            waiting = [
                channel.stream_unary(LIVE).future(nothing(), timeout=TIMEOUT_SECONDS)
                for _ in range(servers._MAX_ASKING)
            ]
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while time.monotonic() < deadline:
                try:
                    channel.unary_unary(LIVE)(b"", timeout=TIMEOUT_SECONDS)
                except grpc.RpcError as error:
                    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                    break
            codes = {call.code() for call in waiting}
            assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED}
            channel.unary_unary(LIVE)(b"", timeout=TIMEOUT_SECONDS)
    finally:
        silent.set()


def test_an_error_of_the_live_view_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> tuple[str, bytes]:
        raise ZeroDivisionError("secret")

    learner = Learner()
    learner.server = servers.Server(learner, SETTINGS, live=fail)
    with serving(learner) as address, pytest.raises(errors.ProtocolError, match="the learner failed") as raised:
        probe.LiveProbe(address).ask(messages.LiveAsk(0, None, 0))
    assert "secret" not in str(raised.value) and "secret" in caplog.text


INFINITY = resource.RLIM_INFINITY


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The process's limits, set by the test and by what it calls; the last one counts."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: found.append(pair))
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 524_288), (524_288, 524_288)),
        ((1280, 1280), (1280, 1280)),
        ((256, INFINITY), (1280, INFINITY)),
        ((9999, INFINITY), (9999, INFINITY)),
        ((INFINITY, INFINITY), (INFINITY, INFINITY)),
    ],
)
def test_the_limit_is_raised_for_all_workers(
    limits: list[tuple[int, int]], before: tuple[int, int], after: tuple[int, int]
) -> None:
    limits.append(before)
    assert servers.allow_descriptors(1024) is None
    assert limits[-1] == after


def test_a_limit_that_cannot_be_raised_enough_is_named(limits: list[tuple[int, int]]) -> None:
    limits.append((1024, 1024))
    warning = servers.allow_descriptors(1000)
    assert warning is not None
    assert "--transport.max_workers=1000" in warning
    assert warning.startswith("1024 open files ") and " 1256" in warning
