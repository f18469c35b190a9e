"""Files are opened, links in their place are not; names that no library could take are refused."""

from __future__ import annotations

import os
import pathlib
import pwd
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seedzero.acting.tables import records
from seedzero.config import configs
from seedzero.core import errors, plain_files
from seedzero.interfaces.page import recordings, summaries
from seedzero.monitoring import league_log, learning_curves, rows, series
from seedzero.storage.checkpoints import manifest, run_dirs, saved_files, segments

STEP = "checkpoints/steps/000000000001"
READERS: dict[str, tuple[str, Callable[[pathlib.Path], Any]]] = {
    "settings": ("config.json", run_dirs.read_saved),
    "a start": (
        "config.json",
        lambda path: run_dirs.open_run_dir(path, configs.Config(), preset="catch", given={}),
    ),
    "learner": ("learner.json", run_dirs.read_learner),
    "status": ("status.json", run_dirs.read_status),
    "lock": ("lock", run_dirs.holder),
    "spec": ("spec.json", run_dirs.read_spec),
    "metrics": ("metrics.jsonl", lambda path: series.read(path, ["loss"])),
    "diagnosis": ("metrics.jsonl", learning_curves.read),
    "appending": ("metrics.jsonl", lambda path: rows.append(path / "metrics.jsonl", b"1")),
    "league": ("league.jsonl", league_log.read),
    "record": ("records/a.npz", lambda path: records.read_record(path / "records/a.npz")),
    "page": ("metrics.jsonl", lambda path: summaries.describe(path, "run")["last_evaluation"]),
    "page's settings": ("config.json", lambda path: summaries.settings(path)["given"]),
    "page's record": ("records/a.npz", lambda path: recordings.opened(path / "records/a.npz").__enter__()),
    "checkpoint": (f"{STEP}/manifest.json", lambda path: manifest.read(path / STEP)),
    "checkpoints": (f"{STEP}/manifest.json", lambda path: list(saved_files.manifests(path / "checkpoints"))),
    "segment": ("segments/a/index.json", lambda path: segments.read_index(path / "segments", "a", {})),
    "array": (f"{STEP}/params/zarr.json", lambda path: manifest.check(path / STEP, {}, content=False)),
}
"""Name -> a file of a run directory, which a stranger may have made, and a function that reads it."""


@pytest.fixture
def in_time() -> Iterator[None]:
    """Fails a test that hangs, in place of waiting for it."""

    def fail(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
@pytest.mark.parametrize("reader", READERS)
def test_no_pipe_and_no_device_in_a_run_directory_is_waited_for(
    reader: str, kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, read = READERS[reader]
    path = tmp_path / "run"
    (path / name).parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path / name)
    elif kind == "socket":
        monkeypatch.chdir((path / name).parent)  # its path is short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind((path / name).name)
    else:
        (path / name).symlink_to("/dev/zero")
    try:
        assert not read(path)
    except (errors.Error, OSError) as error:
        assert "file" in str(error) or "link" in str(error)


def test_a_file_of_many_bytes_is_not_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"1234567\n89")
    assert plain_files.read(tmp_path / "a", 10) == b"1234567\n89"
    assert list(plain_files.lines(tmp_path / "a")) == [b"1234567\n", b"89"]
    with pytest.raises(OSError, match="more than 9 bytes"):
        plain_files.read(tmp_path / "a", 9)
    monkeypatch.setattr(plain_files, "MOST_LINE_BYTES", 7)
    with pytest.raises(OSError, match="more than 7 bytes"):
        list(plain_files.lines(tmp_path / "a"))


def test_a_file_is_appended_to_and_a_link_is_refused(tmp_path: pathlib.Path) -> None:
    file, link, dangling = tmp_path / "file", tmp_path / "link", tmp_path / "dangling"
    link.symlink_to(file)
    dangling.symlink_to(tmp_path / "nothing")
    for _ in range(2):
        with open(file, "ab", opener=plain_files.opener) as opened:
            opened.write(b"row\n")
    for path in (link, dangling):
        with pytest.raises(OSError, match="symbolic links"), open(path, "ab", opener=plain_files.opener):
            pass
    assert file.read_bytes() == b"row\nrow\n" and not (tmp_path / "nothing").exists()


def test_a_name_that_is_no_utf_8_is_refused_and_shown_safely() -> None:
    plain_files.check_name("/runs/größe\x1b[31m")
    with pytest.raises(errors.ResumeError, match=r"bad\\udcff\\x1b .*\b8\b.*--run_dir") as caught:
        plain_files.check_name(pathlib.Path("bad\udcff\x1b"))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, pathlib.Path("/x")),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, pathlib.Path("/h/.cache")),
        ({}, None),
    ],
)
def test_a_user_without_home_and_entry_has_none(
    variables: dict[str, str], expected: pathlib.Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert plain_files.cache_directory() == expected
