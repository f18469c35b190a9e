"""A history follows its file: new lines, half lines, rows that were cut back, and cursors."""

from __future__ import annotations

import itertools
import os
import pathlib

import page_runs
import pytest

from seedzero.core import errors
from seedzero.interfaces.page import history


def _append(path: pathlib.Path, content: bytes) -> None:
    with open(path / "metrics.jsonl", "ab") as file:
        file.write(content)


def _cursor(found: history.History) -> history.Cursor | None:
    return history.parse_cursor(found.overview()["cursor"])


def test_new_rows_follow_a_cursor(tmp_path: pathlib.Path) -> None:
    found = history.History(page_runs.write(tmp_path, page_runs.row(1, loss=1.0)))
    assert found.refresh() == 1.0
    cursor = _cursor(found)
    assert found.since(cursor) is None
    _append(tmp_path, page_runs.encode(page_runs.row(2, loss=2.0)) + b'{"update": 30')
    assert found.refresh() == 1.0
    rows = found.since(cursor)
    assert rows is not None and rows["metrics"] == {"loss": {"rows": [0], "values": [2.0]}}
    assert found.since(history.parse_cursor(rows["cursor"])) is None
    _append(tmp_path, b', "env_steps": 60, "seconds": 15.0, "loss": 3}\n')
    found.refresh()
    assert found.series(["loss"], "update", 9)["series"]["loss"] == {"x": [10.0, 20.0, 30.0], "y": [1.0, 2.0, 3.0]}
    assert found.overview()["damaged"] == 0


@pytest.mark.parametrize("num_kept", [0, 1])
def test_rows_that_were_cut_back_reset_the_cursor(tmp_path: pathlib.Path, num_kept: int) -> None:
    rows = [page_runs.row(1, loss=1.0), page_runs.row(2, loss=2.0), page_runs.row(3, loss=3.0)]
    found = history.History(page_runs.write(tmp_path, *rows))
    found.refresh()
    cursor = _cursor(found)
    again = [page_runs.row(number, loss=-number) for number in range(num_kept + 1, 9)]
    with open(tmp_path / "metrics.jsonl", "r+b") as file:  # as a resume: cut, then appended beyond the old end
        file.truncate(len(page_runs.encode(*rows[:num_kept])))
    _append(tmp_path, page_runs.encode(*again))
    found.refresh()
    answer = found.since(cursor)
    assert answer is not None and answer["reset"] and "x" not in answer
    expected = [row["loss"] for row in [*rows[:num_kept], *again]]
    assert found.series(["loss"], "update", 99)["series"]["loss"]["y"] == expected


def test_many_new_rows_are_not_sent_one_by_one(tmp_path: pathlib.Path) -> None:
    found = history.History(page_runs.write(tmp_path, page_runs.row(0, loss=1)))
    found.refresh()
    cursor = _cursor(found)
    _append(tmp_path, page_runs.encode(*(page_runs.row(n, loss=1) for n in range(1, history.MAX_NEW_ROWS + 2))))
    found.refresh()
    answer = found.since(cursor)
    assert answer is not None and answer["reset"]
    assert found.since(None) == answer


def test_a_large_file_is_read_in_pieces(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_CHUNK_BYTES", 1000)
    page_runs.write(tmp_path, *(page_runs.row(number, loss=number) for number in range(100)))
    found = history.History(tmp_path, clock=itertools.count().__next__)
    shares = list(iter(found.refresh, 1.0))
    assert len(shares) > 3 and shares == sorted(shares) and 0 < shares[0] < shares[-1] < 1
    assert found.overview()["rows"] == 100
    assert found.series(["loss"], "update", 99)["series"]["loss"]["y"] == list(range(100))


def test_a_line_without_an_end_is_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_CHUNK_BYTES", 100)
    monkeypatch.setattr(history, "MAX_LINE_BYTES", 200)
    page_runs.write(tmp_path)
    long = page_runs.encode(page_runs.row(1, loss=1, text="y" * 150))
    _append(tmp_path, long)
    found = history.History(tmp_path)
    assert found.refresh() == 1.0 and found.overview()["rows"] == 1
    _append(tmp_path, b"x" * 1000)
    with pytest.raises(errors.ResumeError, match=r"metrics\.jsonl"):
        found.refresh()


def test_links_pipes_and_missing_files(tmp_path: pathlib.Path) -> None:
    page_runs.write(tmp_path / "other", page_runs.row(1, loss=1))
    run = page_runs.write(tmp_path / "run")
    (run / "metrics.jsonl").unlink()
    found = history.History(run)
    assert found.refresh() == 1.0 and found.overview()["rows"] == 0
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(errors.ResumeError, match=r"metrics\.jsonl"):
        found.refresh()
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(tmp_path / "other" / "metrics.jsonl")
    with pytest.raises(errors.ResumeError, match=r"metrics\.jsonl"):
        found.refresh()


@pytest.mark.parametrize("text", ["", "a", "a-", "a--1", "a-1.5", "a-²", "-", "a-" + "9" * 40])
def test_texts_that_are_no_cursor(text: str) -> None:
    assert history.parse_cursor(text) is None
    assert history.parse_cursor("ab-12") == history.Cursor("ab", 12)
