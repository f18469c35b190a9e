"""The README's moving picture: panels of agents at play."""

import itertools
import pathlib
import types
from typing import Any

import moving_picture as script  # see conftest.py
import numpy as np
import pytest
from PIL import Image


def test_bars_have_the_length_of_the_policy_and_the_chosen_one_its_own_colour() -> None:
    picture = np.full((4, 8, 3), 200, np.uint8)
    image = script.panel("Game", ["a", "b"], script.Moment(picture, np.array([0.25, 0.75]), 1.5, 1))
    pixels = np.asarray(image)
    chosen = (pixels == script._CHOSEN).all(-1).sum(1)
    light = (pixels == script._LIGHT).all(-1).sum(1)
    assert chosen.max() == round(0.75 * (script._BARS - 1)) + 1
    assert round(0.25 * (script._BARS - 1)) <= np.median(light[light > 2]) <= round(0.25 * (script._BARS - 1)) + 2


def test_discs_of_connect_four_lie_on_the_lowest_row() -> None:
    planes = np.zeros((4, 5, 4), np.float32)
    planes[0, 0, 0] = planes[0, 1, 1] = 1
    board = script.discs(planes, size=20)
    first, second, above = board[70, 10], board[70, 30], board[50, 10]
    assert board.shape == (80, 100, 3)
    assert tuple(above) == script._DARK and tuple(first) != tuple(second) and tuple(second) != script._DARK


def test_a_picture_of_several_panels_repeats(tmp_path: pathlib.Path) -> None:
    moments = [script.Moment(np.full((8, 8, 3), 80 * i, np.uint8), np.eye(3)[i], 0.0, i) for i in range(3)]
    images = [script.beside([script.panel(str(n), "abc", moment) for n in range(2)]) for moment in moments]
    script.write(tmp_path / "out.gif", images, fps=10, colours=16)
    with Image.open(tmp_path / "out.gif") as found:
        assert (found.n_frames, found.info["loop"], found.size) == (3, 0, images[0].size)


def test_a_panel_without_a_policy_has_the_picture_and_the_return() -> None:
    picture = np.full((4, 8, 3), 200, np.uint8)
    image, later = (
        np.asarray(script.panel("Game", [], script.Moment(picture, script.NOTHING, total, -1)))
        for total in (0.0, 12.0)
    )
    right = image[:, script.SIDE + 2 * script._MARGIN :]
    assert (right == script._DARK).all() and (image == 200).all(-1).any()
    changed = np.nonzero((image != later).any(-1))[0]
    assert (
        script._TITLE + script.SIDE - 8
        <= changed.min()
        <= changed.max()
        < script._TITLE + script.SIDE + script._MARGIN
    )


@pytest.mark.parametrize(("num_panels", "num_rows"), [(1, 1), (3, 1), (6, 2)])
def test_rows_of_panels_end_in_a_legend(num_panels: int, num_rows: int) -> None:
    moment = script.Moment(np.zeros((8, 8, 3), np.uint8), np.array([1.0]), 0.0, -1)
    panels = [script.panel("Game", ["a"], moment)] * num_panels
    image = np.asarray(script.whole(panels, 3))
    height = num_rows * panels[0].height
    legend = image[height:]
    assert (
        legend.shape[0] == script.legend(image.shape[1]).height
        and image.shape[1] == min(3, num_panels) * panels[0].width
    )
    assert (legend == script._CHOSEN).all(-1).any() and (legend == script._TEXT).all(-1).any()


def test_rows_have_more_panels_where_these_lack_bars() -> None:
    picture = np.zeros((8, 8, 3), np.uint8)
    wide = script.panel("Game", "a", script.Moment(picture, np.ones(1), 0.0, -1))
    narrow = script.panel("Game", [], script.Moment(picture, script.NOTHING, 0.0, -1))
    image = script.whole([wide] * 3 + [narrow] * 4, 3)
    assert image.size == (3 * wide.width, 2 * wide.height + script.legend(3 * wide.width).height)


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
    assert titles == ["LunarLander", "LunarLander, update 1", "CartPole, before"]
    assert played == [("a", 1.0, None), ("a", 1.0, 1), ("a", 2.0, 1)]
