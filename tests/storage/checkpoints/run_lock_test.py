"""Waiting for the lock of a run directory; its other tests: `run_dir_test.py`."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import queue
import re
import subprocess
import sys
import threading

import pytest

from seedzero.config import configs
from seedzero.core import errors
from seedzero.storage.checkpoints import run_dirs, run_lock

TIMEOUT_SECONDS = 600.0
SHORT_SECONDS = 0.2
"""Enough for what waits for nothing."""


def _open(path: pathlib.Path) -> run_dirs.RunDir:
    return run_dirs.open_run_dir(path, configs.Config(), preset="catch", given={})


def test_one_can_wait_until_a_directory_is_free_and_is_told_for_whom(tmp_path: pathlib.Path) -> None:
    run_lock.wait_until_free(tmp_path / "none", pytest.fail)
    told: queue.Queue[str] = queue.Queue()
    waiting = threading.Thread(target=run_lock.wait_until_free, args=(tmp_path, told.put), daemon=True)
    with _open(tmp_path):
        waiting.start()
        text = told.get(timeout=TIMEOUT_SECONDS)
        assert f"pid {os.getpid()} " in text and str(tmp_path) in text
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


# FORK: os.fork, or that of a library in C, of which Python knows nothing. END: how the learner ends.
FORKED = """
import contextlib, ctypes, os, pathlib, sys
from seedzero.storage.checkpoints import run_lock

libc, begun = ctypes.PyDLL(None), os.pipe()
undo = contextlib.ExitStack()
run_lock.take(pathlib.Path(sys.argv[1]), undo)
if {FORK}() == 0:
    os.write(begun[1], b"!")
    os.read(0, 1)
    os._exit(0)
os.read(begun[0], 1)
{END}
print(os.getpid(), flush=True)
os._exit(0)
"""


def _left_child(tmp_path: pathlib.Path, fork: str, end: str) -> subprocess.Popen[str]:
    """Returns a process that has taken the lock, forked and ended; what it forked lives until its input is closed."""
    command = [sys.executable, "-c", FORKED.format(FORK=fork, END=end), str(tmp_path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("fork", "end"), [("os.fork", ""), ("os.fork", "undo.close()"), ("libc.fork", "undo.close()")]
)
def test_what_a_learner_has_forked_does_not_keep_its_lock(fork: str, end: str, tmp_path: pathlib.Path) -> None:
    with _left_child(tmp_path, fork, end) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.wait(TIMEOUT_SECONDS) == 0
        _open(tmp_path).close()
        process.communicate()


def test_a_lock_whose_file_was_deleted_meanwhile_is_none(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = run_lock._open

    def late(path: pathlib.Path, flags: int) -> io.FileIO:
        file = opening(path, flags)
        path.unlink()  # by its holder, which ends now
        monkeypatch.undo()
        return file

    monkeypatch.setattr(run_lock, "_open", late)
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        run_lock.take(tmp_path, first)
        with pytest.raises(errors.Occupied):
            run_lock.take(tmp_path, second)


def test_a_lock_that_a_dead_process_has_left_names_no_living_one(tmp_path: pathlib.Path) -> None:
    with _left_child(tmp_path, "libc.fork", "") as process:
        assert process.stdout is not None
        pid = process.stdout.readline().strip()
        assert process.wait(TIMEOUT_SECONDS) == 0
        for written in (pid, str(os.getppid()), "no number", ""):  # a process that has nothing to do with it
            (tmp_path / run_lock.NAME).write_text(written)
            with pytest.raises(errors.Occupied, match=r"is in use by a learner on another machine.*--run_dir"):
                _open(tmp_path)
        process.communicate()


def test_a_lock_is_its_user_s_alone_and_an_earlier_one_becomes_so(tmp_path: pathlib.Path) -> None:
    (tmp_path / run_lock.NAME).touch(0o644)
    for path in (tmp_path, tmp_path / "new"):
        with _open(path):
            assert (path / run_lock.NAME).stat().st_mode & 0o777 == 0o600


def test_whoever_may_not_read_a_lock_does_not_know(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _open(tmp_path) as directory:
        directory.write_learner("unix:x", started=0.0)

        def refuse(*_: object) -> int:
            raise PermissionError  # tests may run as root, who may read it

        with monkeypatch.context() as patched:
            patched.setattr(run_lock.plain_files, "open_regular", refuse)
            assert run_dirs.holder(tmp_path) == run_lock.UNKNOWN
    monkeypatch.setattr(run_lock.plain_files, "open_regular", refuse)
    assert run_dirs.holder(tmp_path) is None  # it has left by itself


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("pipe", "{0}.*not a regular file.*--run_dir=DIR"),
        ("link", "{0}/lock is a link.*Put a file"),
        ("directory", "{0}.*Is a directory.*--run_dir=DIR"),
    ],
)
def test_what_is_no_file_is_no_lock(kind: str, told: str, tmp_path: pathlib.Path) -> None:
    lock = tmp_path / run_lock.NAME
    {"pipe": os.mkfifo, "link": lambda path: path.symlink_to("x"), "directory": os.mkdir}[kind](lock)
    assert run_lock.holder(tmp_path) is None
    with pytest.raises(errors.ResumeError, match=told.format(re.escape(str(tmp_path)))):
        _open(tmp_path)
