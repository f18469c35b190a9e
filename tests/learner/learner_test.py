"""The learner's parts that need no process; `tests/e2e` has the rest."""

from __future__ import annotations

import errno
import io
import pathlib
import sys
import types
from typing import Any

import pytest

from seedzero.config import config
from seedzero.learner import ending, learner
from seedzero.transport import address


def test_the_local_socket_lies_in_the_run_directory_unless_its_path_is_too_long() -> None:
    short, long = pathlib.Path("/runs/one"), pathlib.Path("/runs") / ("long" * 30)
    with learner.local_address(short, "127.0.0.1:0") as local:
        assert local == "unix:/runs/one/learner.sock"
    with learner.local_address(short, "unix:/mine") as local:
        assert local == "unix:/mine"
    with learner.local_address(long, "") as local:
        folder = address.unix_path(local).parent
        assert folder.is_dir()
    assert not folder.exists()


def test_a_resume_that_is_stopped_before_its_workers_come_compiles_no_more() -> None:
    closed: list[bool] = []
    ends = ending.Ending()
    resumed: Any = types.SimpleNamespace(
        _reception=types.SimpleNamespace(spec="of the run"),
        _config=types.SimpleNamespace(worker=types.SimpleNamespace(num=1)),
        _loop=types.SimpleNamespace(close=lambda: closed.append(True)),
        _ending=ends,
    )
    ends.interrupt()
    assert learner._Learner._train(resumed, "unix:/nowhere") == ""
    assert closed == [True]


def test_a_signal_while_the_last_state_is_saved_does_not_abandon_it() -> None:
    calls: list[str] = []
    saves = types.SimpleNamespace(
        checkpointer=types.SimpleNamespace(
            abandon_save=lambda: calls.append("abandon"), wait=lambda: calls.append("wait")
        ),
        check=lambda: None,
    )
    saving: Any = types.SimpleNamespace(
        _config=types.SimpleNamespace(run=types.SimpleNamespace(deterministic=False)),
        _ending=ending.Ending(),
        _is_finishing=False,
        _loop=types.SimpleNamespace(stop=lambda reason: None),
        _mirrored=None,
        _save=lambda: learner._Learner._interrupt(saving),
        _saves=saves,
        _view=types.SimpleNamespace(write_row=lambda row: None, observe=lambda now, last: None),
        _workers=types.SimpleNamespace(finish=lambda: None),
    )
    learner._Learner._interrupt(saving)
    assert calls == ["abandon"]
    assert learner._Learner._finish(saving, saving._loop, "--max_updates=6 reached") == "--max_updates=6 reached"
    assert calls == ["abandon", "wait", "wait"]


def test_training_goes_on_though_its_address_cannot_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    written: list[str] = []
    starting: Any = types.SimpleNamespace(
        _config=config.Config(),
        _screen=types.SimpleNamespace(message=lambda text: None),
        _directory=types.SimpleNamespace(write_learner=lambda address, started, local: written.append(address)),
        _local="unix:/nowhere",
    )
    monkeypatch.setattr(sys, "stdout", Full())
    learner._Learner._announce(starting, "unix:/nowhere")
    assert written == ["unix:/nowhere"]
