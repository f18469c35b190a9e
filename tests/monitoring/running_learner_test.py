"""The learner behind a run directory: found, asked over one connection, and found again after its end."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest

from seedzero.config import configs
from seedzero.core import errors
from seedzero.monitoring import status
from seedzero.storage.checkpoints import run_dirs
from seedzero.transport import inference_pb2, inference_pb2_grpc


class _Learner(inference_pb2_grpc.InferenceServicer):
    def Live(self, request: inference_pb2.LiveRequest, context: grpc.ServicerContext) -> inference_pb2.LiveReply:
        asked = [request.call, request.environment, request.step]
        return inference_pb2.LiveReply(json=json.dumps({"asked": asked}), observations=b"abc")


class _Old(inference_pb2_grpc.InferenceServicer):
    pass


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> Iterator[run_dirs.RunDir]:
    with run_dirs.open_run_dir(tmp_path / "run", configs.Config(), preset="catch", given={}) as opened:
        yield opened


def _serve(directory: run_dirs.RunDir, learner: inference_pb2_grpc.InferenceServicer) -> grpc.Server:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    inference_pb2_grpc.add_InferenceServicer_to_server(learner, server)
    address = f"unix:{directory.path}/learner.sock"
    server.add_insecure_port(address)
    server.start()
    directory.write_learner(address, 0.0, local=address)
    return server


def test_a_running_learner_is_asked_again_and_again(directory: run_dirs.RunDir) -> None:
    server = _serve(directory, _Learner())
    running = status.RunningLearner(directory.path)
    assert running.ask(environment=0, step=7, deadline_seconds=20) == ({"asked": [0, 1, 7]}, b"abc")
    assert running.ask(call=3, deadline_seconds=20) == ({"asked": [3, 0, 0]}, b"abc")
    server.stop(None).wait()
    with pytest.raises(errors.ProtocolError, match="not answered within 20 s"):
        running.ask(deadline_seconds=20)
    server = _serve(directory, _Learner())
    assert running.ask(deadline_seconds=20)[1] == b"abc"
    running.close()
    server.stop(None).wait()


def test_an_older_learner_is_named(directory: run_dirs.RunDir) -> None:
    server = _serve(directory, _Old())
    with pytest.raises(errors.VersionMismatch, match="this learner is older than the page"):
        status.RunningLearner(directory.path).ask(deadline_seconds=20)
    server.stop(None).wait()


def test_without_a_learner_here_the_reason_is_told(tmp_path: pathlib.Path) -> None:
    def refused(reason: str) -> None:
        with pytest.raises(errors.ResumeError, match=reason):
            status.find_learner(tmp_path)

    def write(**learner: object) -> None:
        (tmp_path / run_dirs.LEARNER_FILE).write_text(json.dumps(learner))

    with run_dirs.open_run_dir(tmp_path, configs.Config(), preset="catch", given={}) as directory:
        refused("no learner is at work")
        directory.write_learner("127.0.0.1:7", 0.0)
        refused("no socket for pages")
        write(address="unix:/x", local="unix:/x", pid=1)
        refused("not answered yet")
        write(address="x", local="x", pid=os.getpid())
    refused("no learner is at work")
