"""Calls that answer without reading: health, status to strangers, and messages that are refused unread."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2
from wire import SETTINGS, TIMEOUT_SECONDS, Learner, serving

from seedzero.transport import codec, security
from seedzero.transport import server as servers


@pytest.fixture
def learner() -> Learner:
    return Learner()


@pytest.fixture
def address(learner: Learner) -> Iterator[str]:
    with serving(learner) as bound:
        yield bound


HEALTH = "/grpc.health.v1.Health"


def test_nothing_is_read_of_a_request_that_needs_no_answer_of_its_own() -> None:
    limit = 2**22
    settings = dataclasses.replace(SETTINGS, max_message_bytes=limit)
    learner = Learner(settings, secured=security.ServerSecurity("secret"))
    with serving(learner) as address, grpc.insecure_channel(address) as channel:
        for body in (b"", b"\xff no message", bytes(limit + 1)):  # gRPC refuses the last two where it reads them
            reply = channel.unary_unary(f"{HEALTH}/Check")(body, timeout=TIMEOUT_SECONDS)
            assert health_pb2.HealthCheckResponse.FromString(reply) == servers._SERVING
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(codec.STATUS_METHOD)(body, timeout=TIMEOUT_SECONDS)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        watch = channel.unary_stream(f"{HEALTH}/Watch")(bytes(limit + 1), timeout=TIMEOUT_SECONDS)
        assert health_pb2.HealthCheckResponse.FromString(next(watch)) == servers._SERVING
        watch.cancel()


def test_few_may_watch_and_a_watch_ends_with_the_server(learner: Learner, address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        watch = channel.unary_stream(f"{HEALTH}/Watch", None, health_pb2.HealthCheckResponse.FromString)
        watching = [watch(b"", timeout=TIMEOUT_SECONDS) for _ in range(servers._MAX_WATCHING)]
        assert [next(stream) for stream in watching] == [servers._SERVING] * len(watching)
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
