"""The journal of a search, damaged by a full disk, a kill or a lost machine."""

from __future__ import annotations

import errno
import os
import pathlib
from typing import Any

import full_disk
import pytest

from seedzero.api import trials
from seedzero.core import errors

optuna = pytest.importorskip("optuna")

_LOGS = [{"op_code": 4, "trial": number} for number in range(3)]


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def _open(path: pathlib.Path, heard: list[str] | None = None) -> trials.SearchJournal:
    return trials.SearchJournal(path, (heard if heard is not None else []).append)


@pytest.fixture
def journal(tmp_path: pathlib.Path) -> pathlib.Path:
    """Returns a journal of three operations."""
    _open(tmp_path / "search.journal").append_logs(_LOGS)
    return tmp_path / "search.journal"


def _read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the operations as Optuna's own reader sees them."""
    return list(optuna.storages.journal.JournalFileBackend(str(path)).read_logs(0))


def test_operations_are_those_of_optunas_own_journal(journal: pathlib.Path) -> None:
    assert _read(journal) == list(_open(journal).read_logs(0)) == _LOGS
    assert list(_open(journal).read_logs(2)) == _LOGS[2:]
    optuna.storages.journal.JournalFileBackend(str(journal)).append_logs(_LOGS)
    assert list(_open(journal).read_logs(0)) == 2 * _LOGS


@pytest.mark.parametrize(
    "rest", [b'{"op_code": 8, "tri', bytes(300), b"\xff\n", b"[4]\n", b'{"op_code":4}', b'{"op_co{"op_code":4}\n']
)
def test_an_incomplete_last_line_is_cut_once(rest: bytes, journal: pathlib.Path) -> None:
    with open(journal, "ab") as file:
        file.write(rest)
    heard = list[str]()
    opened = _open(journal, heard)
    (told,) = heard
    assert f" last line, of {len(rest)} bytes, from {journal}" in told
    opened.append_logs(_LOGS[:1])
    assert _read(journal) == list(_open(journal, heard).read_logs(0)) == [*_LOGS, _LOGS[0]] and len(heard) == 1


def test_an_earlier_damaged_line_is_named(journal: pathlib.Path) -> None:
    content = journal.read_bytes()
    journal.write_bytes(b"\0" + content)
    with pytest.raises(errors.ResumeError, match=r"^line 1 of .* is damaged: .*head -n 0"):
        _open(journal)
    assert journal.read_bytes() == b"\0" + content


def test_what_a_full_disk_refuses_is_written_with_the_next_line(journal: pathlib.Path) -> None:
    heard = list[str]()
    opened = _open(journal, heard)
    with full_disk.after(journal, 10):
        opened.append_logs(_LOGS[:2])
        opened.append_logs(_LOGS[2:])
        assert _read(journal) == _LOGS  # and nothing half
        assert list(opened.read_logs(0)) == 2 * _LOGS
    opened.append_logs(_LOGS)
    assert _read(journal) == list(opened.read_logs(0)) == 3 * _LOGS
    lost, written = heard
    assert f"{journal} cannot be written: No space left" in lost and f"{journal} is written again" in written


def test_what_is_not_durable_is_written_again(journal: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    opened = _open(journal)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        opened.append_logs(_LOGS[:1])
    assert _read(journal) == _LOGS
    opened.save()
    assert _read(journal) == [*_LOGS, _LOGS[0]]
