"""Asks a learner for its health, its status, or its live view."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seedzero.core import errors, json_object
from seedzero.transport import addresses, grpc_status, inference_pb2, inference_pb2_grpc, messages, security

DEADLINE_SECONDS = 5.0
SERVING = "SERVING"
_MAX_LIVE_BYTES = 16 << 20


def health(address: str, access: security.Access = security.PLAIN) -> str:
    """Returns the state that a learner's health service reports, such as SERVING. Raises as `status`."""
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


class LiveProbe:
    """Asks one learner for its live view again and again over one connection, for one thread at a time."""

    def __init__(self, address: str, access: security.Access = security.PLAIN) -> None:
        """Raises UsageError for an unusable address, or an unusable file of `access`."""
        self._secured = security.for_client(address, access)
        self._channel = security.channel(self._secured, given=[("grpc.max_receive_message_length", _MAX_LIVE_BYTES)])
        self._stub = inference_pb2_grpc.InferenceStub(self._channel)  # type: ignore[no-untyped-call]

    def ask(
        self, asked: messages.LiveAsk, *, deadline_seconds: float = DEADLINE_SECONDS
    ) -> tuple[dict[str, Any], bytes]:
        """Returns the learner's answer, and the observations of its steps.

        Raises VersionMismatch for an older learner, and as `status`.
        """
        environment = 0 if asked.environment is None else asked.environment + 1
        request = inference_pb2.LiveRequest(call=asked.call, environment=environment, step=asked.step)
        try:
            reply = self._stub.Live(request, timeout=deadline_seconds, metadata=self._secured.metadata)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED and "ethod" in (error.details() or ""):
                raise errors.VersionMismatch("not available: this learner is older than the page") from None
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise errors.ProtocolError(
                    f"the learner has not answered within {deadline_seconds:g} s: it is starting, ending or very busy"
                ) from None
            raise _explained(error, self._secured, deadline_seconds) from None
        try:
            return json_object.parse(reply.json), reply.observations
        except ValueError as error:
            raise errors.ProtocolError(f"{self._secured.address} answers with no live view ({error})") from None

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()


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
        failed = error
    raise _explained(failed, secured, deadline_seconds)


def _explained(error: grpc.RpcError, secured: security.ClientSecurity, deadline_seconds: float) -> errors.Error:
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return errors.AccessDenied(f"the learner at {secured.address} refuses this call: {details}")
    return security.explain(code, details, secured) or errors.ProtocolError(
        f"no learner answers at {secured.address} within {deadline_seconds:g} s "
        f"({grpc_status.of_proxy(code, details) or f'{code.name}: {details}'}); is `seedzero train` running there?"
        f"{addresses.proxy_remark(secured.address)}"
    )
