"""A question to a learner: health, or status."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seedzero.core import errors, json_object
from seedzero.transport import inference_pb2, inference_pb2_grpc, proxy, security
from seedzero.transport import status as grpc_status

DEADLINE_SECONDS = 5.0
SERVING = "SERVING"


def health(address: str, access: security.Access = security.PLAIN) -> str:
    """Returns the state that a learner's health service reports, SERVING or another; raises as `status`."""
    with _asking(address, access, DEADLINE_SECONDS) as (channel, _):
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_SECONDS)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))


def status(
    address: str, access: security.Access = security.PLAIN, *, deadline_seconds: float = DEADLINE_SECONDS
) -> dict[str, Any]:
    """Returns a learner's counters and state.

    Raises UsageError if the address, or a file of `access`, cannot be read; AccessDenied if the learner refuses the
    token, or the two ends do not agree on TLS; ProtocolError if no learner answers there in time.
    """
    with _asking(address, access, deadline_seconds) as (channel, metadata):
        stub = inference_pb2_grpc.InferenceStub(channel)  # type: ignore[no-untyped-call]
        reply = stub.Status(inference_pb2.StatusRequest(), timeout=deadline_seconds, metadata=metadata)
    try:
        return json_object.parse(reply.json)
    except ValueError as error:
        raise errors.ProtocolError(f"{address} answers with no status ({error}); is it a learner?") from None


@contextlib.contextmanager
def _asking(
    address: str, access: security.Access, deadline_seconds: float
) -> Iterator[tuple[grpc.Channel, security.Metadata]]:
    secured = security.for_client(address, access)
    try:
        with security.channel(secured) as channel:
            yield channel, secured.metadata
        return
    except grpc.RpcError as error:
        code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAUTHENTICATED:
        raise errors.AccessDenied(f"the learner at {secured.address} refuses this call: {details}")
    raise security.explain(code, details, secured) or errors.ProtocolError(
        f"no learner answers at {secured.address} within {deadline_seconds:g} s "
        f"({grpc_status.of_proxy(code, details) or f'{code.name}: {details}'}); is `seedzero train` running there?"
        f"{proxy.remark(secured.address)}"
    )
