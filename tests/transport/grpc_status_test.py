"""Errors as status codes and back."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import grpc
import pytest
from grpc import aio

from seedzero.core import errors
from seedzero.transport import grpc_status


def received(failure: grpc_status.Failure) -> aio.AioRpcError:
    trailer = aio.Metadata((grpc_status.ERROR_KEY, failure.kind)) if failure.kind else aio.Metadata()
    return aio.AioRpcError(failure.code, aio.Metadata(), trailer, failure.details, None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidMessage("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.VersionMismatch("x"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.SpecMismatch("x"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.EnvironmentFailure("x"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.ConfigError("x"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.SequenceError("x"), grpc.StatusCode.OUT_OF_RANGE),
        (errors.AccessDenied("x"), grpc.StatusCode.UNAUTHENTICATED),
    ],
)
def test_final_errors_survive_the_wire(error: errors.Error, code: grpc.StatusCode) -> None:
    failure = grpc_status.failure_of(error)
    assert failure.code is code
    back = grpc_status.error_of(received(failure))
    assert type(back) is type(error)
    assert str(back) == "x"


@pytest.mark.parametrize(
    ("elsewhere", "sent"),
    [
        ("learner-1:7777", (("seedzero-error", "SlotsExhausted"), ("seedzero-elsewhere", "learner-1:7777"))),
        ("", (("seedzero-error", "SlotsExhausted"),)),
        ("unix:/tmp/\u00fc", (("seedzero-error", "SlotsExhausted"),)),  # as no header holds it
        ("a:1\nb:2", (("seedzero-error", "SlotsExhausted"),)),
    ],
)
def test_full_learner_names_another_beside_its_refusal(elsewhere: str, sent: tuple[tuple[str, str], ...]) -> None:
    aborted = list[Any]()

    class Call:
        async def abort(self, *words: object) -> None:
            aborted.extend(words)

    failure = grpc_status.failure_of(errors.SlotsExhausted("full"))
    asyncio.run(dataclasses.replace(failure, elsewhere=elsewhere).abort(Call()))  # type: ignore[arg-type]
    assert aborted == [grpc.StatusCode.RESOURCE_EXHAUSTED, "full", sent]
    error = aio.AioRpcError(failure.code, aio.Metadata(), aio.Metadata(*sent), "full", None)
    assert grpc_status.elsewhere_of(error) == dict(sent).get("seedzero-elsewhere", "")


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "CLIENT: Sent message larger than max (5 vs. 4)", errors.InvalidMessage),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", errors.VersionMismatch),
        (grpc.StatusCode.PERMISSION_DENIED, "Received http2 header with status: 403", errors.AccessDenied),
        (grpc.StatusCode.UNAVAILABLE, "x", type(None)),
        (grpc.StatusCode.INTERNAL, "x", type(None)),
        (grpc.StatusCode.ABORTED, "x", type(None)),
    ],
)
def test_codes_of_grpc_and_of_proxies_are_final_where_nothing_can_heal(
    code: grpc.StatusCode, details: str, kind: type[errors.Error]
) -> None:
    error = grpc_status.error_of(received(grpc_status.Failure(code, details)))
    assert isinstance(error, kind) and ("403" not in details or "HTTP status 403" in str(error))


@pytest.mark.parametrize(
    ("code", "details", "words"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, "Received http2 header with status: 404", "HTTP status 404"),
        (grpc.StatusCode.UNAVAILABLE, "Received http2 header with status: 503", "HTTP status 503"),
        (
            grpc.StatusCode.UNAVAILABLE,
            "failed to connect to all addresses; last error: UNIMPLEMENTED: ipv4:127.0.0.1:1: Failed parsing HTTP/2 "
            "(Expected SETTINGS frame as the first frame) (Trying to connect an http1.x server (HTTP status 404))",
            "HTTP status 404",
        ),
        (grpc.StatusCode.UNIMPLEMENTED, "", "no route to a learner"),
    ],
)
def test_a_proxy_in_the_learners_place_is_told_and_asked_again(
    code: grpc.StatusCode, details: str, words: str
) -> None:
    assert grpc_status.error_of(received(grpc_status.Failure(code, details))) is None
    told = grpc_status.of_proxy(code, details)
    assert words in told


@pytest.mark.parametrize("details", ["Connection refused", "the learner stops: a signal came"])
def test_a_learner_that_is_away_is_no_proxy(details: str) -> None:
    assert grpc_status.of_proxy(grpc.StatusCode.UNAVAILABLE, details) == ""
