"""Options of gRPC's channels."""

from __future__ import annotations

import math

import pytest

from seedzero.config import sections
from seedzero.transport import options


@pytest.mark.parametrize(("lease_seconds", "milliseconds"), [(0.75, 250), (15.0, 5000), (math.inf, 5000)])
def test_pings_follow_from_the_lease(lease_seconds: float, milliseconds: int) -> None:
    settings = sections.TransportConfig(lease_seconds=lease_seconds)
    for made in map(dict, (options.client(settings), options.server(settings))):
        times = {made[f"grpc.{name}_ms"] for name in ("keepalive_time", "keepalive_timeout", "http2.ping_timeout")}
        assert times == {milliseconds}
