"""The library keeps the histories that were asked for last."""

from __future__ import annotations

import pathlib

import page_runs

from seedzero.interfaces.page import library


def test_the_oldest_history_is_dropped_first(tmp_path: pathlib.Path) -> None:
    paths = [page_runs.write(tmp_path / name, page_runs.row(1, loss=1.0)) for name in "abc"]
    found = library.Library(max_bytes=70)  # two histories of 32 bytes
    histories = [found.of(path) for path in paths[:2]]
    for one in histories:
        one.refresh()
    assert histories[0].num_bytes == 32 and found.of(paths[0]) is histories[0]
    found.of(paths[2]).refresh()
    assert found.of(paths[0]) is histories[0]
    assert found.of(paths[1]) is not histories[1]
