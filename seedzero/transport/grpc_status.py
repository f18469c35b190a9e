"""Converts errors to gRPC status codes and back. protos/seedzero/transport/inference.proto documents the table."""

from __future__ import annotations

import dataclasses
import logging
import re
from typing import Any

import grpc
from grpc import aio

from seedzero.core import errors

ERROR_KEY = "seedzero-error"
"""Name of the trailing metadata with the error's class."""

_ELSEWHERE_KEY = "seedzero-elsewhere"
"""Name of the trailing metadata in which a full host gives the address of another host of its run."""

_MAX_DETAILS = 1000
_NEUTRAL = "the learner failed; its log says why"
_logger = logging.getLogger(__name__)

Context = aio.ServicerContext[bytes, bytes]

# The first class that fits is used.
_CODES: tuple[tuple[type[errors.Error] | tuple[type[errors.Error], ...], grpc.StatusCode], ...] = (
    (errors.InvalidMessage, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.SequenceError, grpc.StatusCode.OUT_OF_RANGE),
    (errors.SlotsExhausted, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.AccessDenied, grpc.StatusCode.UNAUTHENTICATED),
    ((errors.ProtocolError, errors.UsageError, errors.EnvironmentFailure), grpc.StatusCode.FAILED_PRECONDITION),
)

_FINAL = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidMessage,
    grpc.StatusCode.OUT_OF_RANGE: errors.SequenceError,
    grpc.StatusCode.FAILED_PRECONDITION: errors.SpecMismatch,
    grpc.StatusCode.UNIMPLEMENTED: errors.VersionMismatch,
    grpc.StatusCode.UNAUTHENTICATED: errors.AccessDenied,
    grpc.StatusCode.PERMISSION_DENIED: errors.AccessDenied,
}

_HTTP = re.compile(r"Received http2 header with status: (\d+)|http1\.x server \(HTTP status (\d+)\)")
"""What gRPC says about an answer of plain HTTP, with its status, which no gRPC server gives."""

_NAMED: dict[str, type[errors.Error]] = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}


@dataclasses.dataclass(frozen=True)
class Failure:
    """How a stream ended, if not with OK: gRPC's code, details for the peer, the error's class, and another host."""

    code: grpc.StatusCode
    details: str
    kind: str = ""  # "" if unknown
    elsewhere: str = ""  # address, or "" if none is known

    async def abort(self, context: Context) -> None:
        """Ends a call with this failure; an address that does not fit a header is omitted."""
        is_fit = self.elsewhere.isascii() and self.elsewhere.isprintable()
        trailer = {ERROR_KEY: self.kind, _ELSEWHERE_KEY: self.elsewhere if is_fit else ""}
        await context.abort(self.code, self.details, tuple((key, text) for key, text in trailer.items() if text))


def failure_of(error: BaseException) -> Failure:
    """Returns an error for the peer. The text of an unexpected error only goes into the log."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
    if code is grpc.StatusCode.INTERNAL:
        _logger.error("a call failed", exc_info=error)
        return Failure(code, _NEUTRAL)
    return Failure(code, str(error)[:_MAX_DETAILS], type(error).__name__)


def error_of(error: aio.AioRpcError) -> errors.Error | None:
    """Returns a stream's final error if it is permanent, else None."""
    code, details = error.code(), error.details() or ""
    # gRPC's own limit on the size of a message; it names both sizes.
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return errors.InvalidMessage(details)
    proxy = of_proxy(code, details)
    if code not in _FINAL or (proxy and code is grpc.StatusCode.UNIMPLEMENTED):  # as HTTP's 404, until it finds one
        return None
    trailer: Any = error.trailing_metadata() or {}
    return _NAMED.get(trailer.get(ERROR_KEY, ""), _FINAL[code])(proxy or details)


def elsewhere_of(error: aio.AioRpcError) -> str:
    """Returns the address that a full host names, unchecked, or ""."""
    trailer: Any = error.trailing_metadata() or {}
    return str(trailer.get(_ELSEWHERE_KEY, ""))


def of_proxy(code: grpc.StatusCode, details: str) -> str:
    """Describes a proxy that answered instead of the learner, for the user; "" if none did, as far as gRPC shows."""
    if found := _HTTP.search(details):
        return f"a proxy answered: HTTP status {found[1] or found[2]}; no learner is behind it, or not yet"
    if code is grpc.StatusCode.UNIMPLEMENTED and not details:  # Envoy's 404; gRPC servers name the method
        return "a proxy answered: it has no route to a learner, or not yet"
    return ""
