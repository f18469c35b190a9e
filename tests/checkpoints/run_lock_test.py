"""Waiting for the lock of a run directory; its other tests: `run_dir_test.py`."""

from __future__ import annotations

import os
import pathlib
import queue
import threading

import golden
import pytest

from seedzero.checkpoints import run_dir as run_dirs
from seedzero.checkpoints import run_lock
from seedzero.config import config as configs

TIMEOUT_SECONDS = 10.0
SHORT_SECONDS = 0.2
"""Enough for what waits for nothing."""


def _open(path: pathlib.Path) -> run_dirs.RunDir:
    return run_dirs.open_run_dir(path, configs.Config(), preset="catch", given={})


def test_one_can_wait_until_a_directory_is_free_and_is_told_for_whom(
    tmp_path: pathlib.Path, said: golden.Said
) -> None:
    run_lock.wait_until_free(tmp_path / "none", pytest.fail)
    told: queue.Queue[str] = queue.Queue()
    waiting = threading.Thread(target=run_lock.wait_until_free, args=(tmp_path, told.put), daemon=True)
    with _open(tmp_path):
        waiting.start()
        text = told.get(timeout=TIMEOUT_SECONDS)
        assert f"pid {os.getpid()} " in text and str(tmp_path) in text
        said(text)
        waiting.join(SHORT_SECONDS)
        assert waiting.is_alive()
    waiting.join(TIMEOUT_SECONDS)
    assert not waiting.is_alive()
    run_lock.wait_until_free(tmp_path, pytest.fail)
    _open(tmp_path).close()  # it holds nothing back


def test_the_holder_of_a_directory_is_known_to_all(tmp_path: pathlib.Path) -> None:
    assert run_lock.holder(tmp_path) is None
    with _open(tmp_path):
        assert run_lock.holder(tmp_path) == str(os.getpid())
    assert run_lock.holder(tmp_path) is None
