"""Options of gRPC's channels."""

from __future__ import annotations

import math

import grpc
import pytest

from seedzero.config import sections
from seedzero.transport import options


@pytest.mark.parametrize("seconds", [1e10, math.inf])
def test_pings_that_never_come_are_options_that_grpc_takes(seconds: float) -> None:
    settings = sections.TransportConfig(keepalive_seconds=seconds, ping_timeout_seconds=seconds)
    for made in (options.client(settings), options.server(settings)):
        assert dict(made)["grpc.keepalive_time_ms"] == dict(made)["grpc.http2.ping_timeout_ms"] == 2**31 - 1
        grpc.insecure_channel("localhost:1", options=made).close()


def test_times_are_milliseconds() -> None:
    made = dict(options.client(sections.TransportConfig(keepalive_seconds=0.25, ping_timeout_seconds=3)))
    assert (made["grpc.keepalive_time_ms"], made["grpc.keepalive_timeout_ms"]) == (250, 3000)
