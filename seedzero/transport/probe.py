"""One question to a learner: how is it, or what is it doing?"""

from __future__ import annotations

import json
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seedzero.core import errors
from seedzero.transport import inference_pb2, inference_pb2_grpc, security

DEADLINE_SECONDS = 5.0
SERVING = "SERVING"


def health(
    address: str, access: security.Access = security.PLAIN, *, deadline_seconds: float = DEADLINE_SECONDS
) -> str:
    """Returns what a learner's health service says: SERVING, or why it does not serve.

    Args:
      address: of the learner, see transport/address.py.
      access: TLS; no token is sent.
      deadline_seconds: how long the learner may take to answer.

    Raises:
      UsageError: the address, or a file of `access`, cannot be read.
      AccessDenied: the two ends do not agree on TLS.
      ProtocolError: nobody answers there in time.
    """
    secured = security.for_client(address, access)
    with security.channel(secured) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=deadline_seconds)
        except grpc.RpcError as error:
            raise _failure(error, secured, deadline_seconds) from None
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))


def status(
    address: str, access: security.Access = security.PLAIN, *, deadline_seconds: float = DEADLINE_SECONDS
) -> dict[str, Any]:
    """Returns a learner's counters and state.

    Args:
      address: of the learner, see transport/address.py.
      access: token and TLS.
      deadline_seconds: how long the learner may take to answer.

    Raises:
      UsageError: the address, or a file of `access`, cannot be read.
      AccessDenied: the learner does not take the token, or the two ends do not agree on TLS.
      ProtocolError: no learner answers there in time.
    """
    secured = security.for_client(address, access)
    with security.channel(secured) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)  # type: ignore[no-untyped-call]
        request = inference_pb2.StatusRequest()
        try:
            reply = stub.Status(request, timeout=deadline_seconds, metadata=secured.metadata)
        except grpc.RpcError as error:
            raise _failure(error, secured, deadline_seconds) from None
    return dict(json.loads(reply.json))


def _failure(error: grpc.RpcError, secured: security.ClientSecurity, deadline_seconds: float) -> errors.Error:
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return errors.AccessDenied(f"the learner at {secured.address} refuses this call: {details}")
    return security.explain(code, details, secured) or errors.ProtocolError(
        f"no learner answers at {secured.address} within {deadline_seconds:g} s ({code.name}: {details}); is "
        "`seedzero train` running there?"
    )
