"""What a learner is doing: asked over the wire, or read from a run directory when none runs there."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import grpc

from seedzero.core import errors
from seedzero.runtime import run_dir as run_dir_lib
from seedzero.transport import address as addresses
from seedzero.transport import inference_pb2, inference_pb2_grpc

DEADLINE_SECONDS = 5.0
NOT_STARTED = "the learner has not answered yet"


def from_server(address: str, *, deadline_seconds: float = DEADLINE_SECONDS) -> dict[str, Any]:
    """Returns the status of a running learner.

    Args:
      address: HOST:PORT or unix:PATH.
      deadline_seconds: how long the learner may take to answer.

    Raises:
      ProtocolError: no learner answers there in time.
    """
    try:
        with grpc.insecure_channel(addresses.target(address)) as channel:
            stub = inference_pb2_grpc.InferenceStub(channel)  # type: ignore[no-untyped-call]
            reply = stub.Status(inference_pb2.StatusRequest(), timeout=deadline_seconds)
    except grpc.RpcError as error:
        raise errors.ProtocolError(
            f"no learner answers at {address} within {deadline_seconds:g} s "
            f"({error.code().name}: {error.details()}); is `seedzero train` running there?"
        ) from None
    return {**json.loads(reply.json), "alive": True}


def from_run_dir(path: str | os.PathLike[str], *, deadline_seconds: float = DEADLINE_SECONDS) -> dict[str, Any]:
    """Returns the status of the learner that uses a run directory, or the last one written there.

    "alive" is true when a learner answered. One that holds the directory but does not answer yet counts as
    alive too, and "stalled" says so.

    Raises:
      ResumeError: it is no run directory, or has no status yet.
    """
    directory = pathlib.Path(path)
    run_dir_lib.read_saved(directory)
    learner = run_dir_lib.read_learner(directory)
    if learner is not None and _is_running(learner["pid"]):
        try:
            return from_server(learner["address"], deadline_seconds=deadline_seconds)
        except errors.ProtocolError:
            return {**_last(directory), "alive": True, "stalled": NOT_STARTED}
    return {**_last(directory), "alive": False}


def _last(directory: pathlib.Path) -> dict[str, Any]:
    status = run_dir_lib.read_status(directory)
    if status is None:
        raise errors.ResumeError(f"{directory} has no {run_dir_lib.STATUS_FILE}: its learner has not run long enough")
    return dict(status)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
