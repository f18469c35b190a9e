"""The README's moving picture: panels of agents at play."""

import itertools
import pathlib
import types
from typing import Any

import moving_picture as script  # see conftest.py
import numpy as np
import pytest


def test_a_panel_has_the_title_of_the_command_line(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = script.Moment(np.zeros((8, 8, 3), np.uint8), script.NOTHING, 0.0, -1)
    saved = types.SimpleNamespace(config=types.SimpleNamespace(env=types.SimpleNamespace(id="gym:LunarLander-v3")))
    played: list[tuple[str, float, int | None]] = []
    titles: list[str] = []
    draw = script.panel

    def play(path: pathlib.Path, *, every: float, step: int | None) -> Any:
        played.append((path.name, every, step))
        return itertools.repeat(moment)

    def panel(title: str, *rest: Any) -> Any:
        titles.append(title)
        return draw(title, *rest)

    monkeypatch.setattr(script.run_dirs, "read_saved", lambda path: saved)
    monkeypatch.setattr(script, "play", play)
    monkeypatch.setattr(script, "panel", panel)
    runs = ["a", "a#1", "a#1@2=CartPole, before"]
    monkeypatch.setattr("sys.argv", ["moving_picture.py", str(tmp_path / "out.gif"), *runs, "--seconds=0.1"])
    script.main()
    assert (tmp_path / "out.gif").read_bytes().startswith(b"GIF89a")
    assert titles == ["LunarLander", "LunarLander, update 1", "CartPole, before"]
    assert played == [("a", 1.0, None), ("a", 1.0, 1), ("a", 2.0, 1)]
