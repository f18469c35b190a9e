from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
import pytest

from seedzero.config import configs
from seedzero.core import errors
from seedzero.monitoring import status
from seedzero.storage.checkpoints import run_dirs, run_lock
from seedzero.transport import inference_pb2, inference_pb2_grpc


class _Learner(inference_pb2_grpc.InferenceServicer):
    def Status(self, request: inference_pb2.StatusRequest, context: grpc.ServicerContext) -> inference_pb2.StatusReply:
        return inference_pb2.StatusReply(json=json.dumps({"updates": 7, "stalled": None}))


@pytest.fixture
def address() -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    inference_pb2_grpc.add_InferenceServicer_to_server(_Learner(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> Iterator[run_dirs.RunDir]:
    with run_dirs.open_run_dir(tmp_path / "run", configs.Config(), preset="catch", given={}) as opened:
        yield opened


def test_where_nobody_listens_the_address_is_named() -> None:
    with pytest.raises(
        errors.ProtocolError, match=r"unix:/nowhere/x\.sock .* 0\.5 s.*x\.sock.*x\.sock.*`seedzero train`"
    ):
        status.from_server("unix:/nowhere/x.sock", deadline_seconds=0.5)


@pytest.mark.parametrize("has_local", [False, True], ids=["its address", "the address that needs no token first"])
def test_a_run_directory_leads_to_its_learner(address: str, directory: run_dirs.RunDir, has_local: bool) -> None:
    directory.write_status({"updates": 3})
    if has_local:
        directory.write_learner("127.0.0.1:1", started=0.0, local=address)
    else:
        directory.write_learner(address, started=0.0)
    answer = {"updates": 7, "stalled": None, "alive": True}
    assert status.from_run_dir(directory.path) == status.from_server(address) == answer


def _ended_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def _write_learner(path: pathlib.Path, pid: int, address: str = "127.0.0.1:1") -> None:
    run_dirs.write_json_atomic(path / run_dirs.LEARNER_FILE, {"address": address, "pid": pid, "started": 0.0})


@pytest.mark.parametrize("pid", [None, _ended_pid, os.getpid], ids=["ended", "killed", "killed, its pid another's"])
def test_a_learner_that_left_has_its_last_status(tmp_path: pathlib.Path, pid: Callable[[], int] | None) -> None:
    with run_dirs.open_run_dir(tmp_path / "run", configs.Config(), preset="catch", given={}) as directory:
        directory.write_status({"updates": 3})
    if pid is not None:
        _write_learner(directory.path, pid(), "unix:/nowhere/x.sock")
    found = status.from_run_dir(directory.path, deadline_seconds=0.5)
    assert found == {"updates": 3, "alive": False}


def test_whoever_may_not_read_the_lock_is_told_that_nothing_is_known(
    directory: run_dirs.RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.write_status({"updates": 3})
    monkeypatch.setattr(run_lock, "holder", lambda path: run_lock.UNKNOWN)
    assert status.from_run_dir(directory.path) == {"updates": 3, "alive": False}  # it has left by itself
    directory.write_learner("127.0.0.1:1", started=0.0)
    assert status.from_run_dir(directory.path) == {"updates": 3, "alive": "unknown"}


def test_a_copy_of_a_running_directory_has_no_learner(
    address: str, directory: run_dirs.RunDir, tmp_path: pathlib.Path
) -> None:
    directory.write_status({"updates": 3})
    directory.write_learner(address, started=0.0)
    shutil.copytree(directory.path, tmp_path / "copy")
    assert status.from_run_dir(tmp_path / "copy") == {"updates": 3, "alive": False}
    assert status.from_run_dir(directory.path)["updates"] == 7


def test_a_learner_on_another_machine_is_alive_while_it_holds_the_directory(directory: run_dirs.RunDir) -> None:
    directory.write_status({"updates": 3, "stalled": None})
    pid = _ended_pid()  # that machine has it, this one does not
    (directory.path / run_lock.NAME).write_text(f"{pid}\n")
    _write_learner(directory.path, pid)
    assert status.from_run_dir(directory.path) == {"updates": 3, "stalled": None, "alive": True}


def test_nobody_is_asked_at_the_address_that_another_learner_left(address: str, directory: run_dirs.RunDir) -> None:
    directory.write_status({"updates": 3, "stalled": None})
    _write_learner(directory.path, os.getppid(), address)  # lives, and answers, but does not hold the directory
    assert status.from_run_dir(directory.path) == {"updates": 3, "stalled": status.NOT_STARTED, "alive": True}


def test_a_learner_that_does_not_answer_yet_is_stalled(directory: run_dirs.RunDir) -> None:
    directory.write_status({"updates": 3, "stalled": None})
    directory.write_learner("unix:/nowhere/x.sock", started=0.0)  # this process, which lives
    assert os.getpid() == json.loads((directory.path / run_dirs.LEARNER_FILE).read_text())["pid"]
    found = status.from_run_dir(directory.path, deadline_seconds=0.5)
    assert (found["alive"], found["stalled"]) == (True, status.NOT_STARTED)


def test_a_directory_without_run_or_status_is_named(tmp_path: pathlib.Path, directory: run_dirs.RunDir) -> None:
    with pytest.raises(errors.ResumeError, match=r"config.json"):
        status.from_run_dir(tmp_path)
    with pytest.raises(errors.ResumeError, match=r"has no status.json.* `seedzero train --run_dir="):
        status.from_run_dir(directory.path)


def test_a_damaged_status_is_named(directory: run_dirs.RunDir) -> None:
    (directory.path / run_dirs.STATUS_FILE).write_text("{")
    with pytest.raises(errors.ResumeError, match=r"cannot read .*status.json"):
        status.from_run_dir(directory.path)
