"""Channel options of both ends. gRPC's times are in milliseconds.

Keepalive alone notices a vanished peer only after a minute, whatever its settings, because HTTP/2 has its own ping
timeout, so that is set, too. A server disconnects clients that ping more often than it allows, so it allows that many.
"""

from __future__ import annotations

from seedzero.config import sections

_LEARNER_MESSAGE_BYTES = 16 * 2**20
_CONNECT_MILLISECONDS = 10_000

Options = list[tuple[str, int]]


def server(settings: sections.TransportConfig, max_receive_bytes: int | None = None) -> Options:
    """max_receive_bytes: the largest message; None: as in the settings."""
    return [
        *_keepalive(settings),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 100),
        ("grpc.http2.max_ping_strikes", 0),
        # Two servers on one port would share its connections without an error.
        ("grpc.so_reuseport", 0),
        # No compression: a small message could grow to the limit below.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.max_receive_message_length", max_receive_bytes or settings.max_message_bytes),
        ("grpc.max_send_message_length", _LEARNER_MESSAGE_BYTES),
    ]


def client(settings: sections.TransportConfig, max_receive_bytes: int = _LEARNER_MESSAGE_BYTES) -> Options:
    return [
        *_keepalive(settings),
        ("grpc.http2.max_pings_without_data", 0),
        # The client itself pauses between attempts; a shared subchannel would add gRPC's own pauses of up to 120 s.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.min_reconnect_backoff_ms", _CONNECT_MILLISECONDS),
        ("grpc.enable_retries", 0),
        ("grpc.max_receive_message_length", max_receive_bytes),
    ]


def _keepalive(settings: sections.TransportConfig) -> Options:
    beat = round(1000 * settings.beat_seconds)
    return [
        ("grpc.keepalive_time_ms", beat),
        ("grpc.keepalive_timeout_ms", beat),
        ("grpc.http2.ping_timeout_ms", beat),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
