"""The flags of `seedzero evaluate` and `play`."""

from __future__ import annotations

import pathlib

from seedzero.cli import evaluate


def test_a_video_gets_the_next_free_name(tmp_path: pathlib.Path) -> None:
    names = ["play.mp4", "play-2.mp4", "play-3.mp4"]
    for name in names:
        found = evaluate._free_name(tmp_path / "play.mp4")
        assert found.name == name
        found.touch()
