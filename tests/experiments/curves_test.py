"""Learning curves of run directories: seeds become a median and a band."""

import json
import pathlib
from typing import Any

import curves  # see conftest.py
import numpy as np
import pytest


def _run(path: pathlib.Path, returns: list[float]) -> pathlib.Path:
    path.mkdir()
    rows = [
        {"kind": "evaluation", "seconds": 10.0 * i, "env_steps": 100 * i, "update": i, "evaluation_mean_return": value}
        for i, value in enumerate(returns)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_seeds_become_a_median_between_the_lowest_and_the_highest(tmp_path: pathlib.Path) -> None:
    paths = [_run(tmp_path / str(i), [0.0, value, value]) for i, value in enumerate((1.0, 3.0, 5.0))]
    found = curves.read([f"Task/ours={','.join(map(str, paths))}"], "env_steps")
    grid, values = curves.band(found["Task"]["ours"], num_points=5)
    np.testing.assert_allclose(grid, [0, 50, 100, 150, 200])
    np.testing.assert_allclose(values, [[0, 0.5, 1, 1, 1], [0, 1.5, 3, 3, 3], [0, 2.5, 5, 5, 5]])


def test_training_returns_are_means_of_rows_times_a_game_s_lives(tmp_path: pathlib.Path) -> None:
    rows = [{"seconds": 10.0 * i, "env_steps": 100 * i, "episode_return": float(i % 2)} for i in range(22)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = curves.read([f"Game={tmp_path}"], "env_steps", training=True, factors={"Game": 5.0})
    ((steps, returns),) = found["Game"][""]
    np.testing.assert_allclose(steps, [950, 1050, 1150])
    np.testing.assert_allclose(returns, [2.5, 2.5, 2.5])
    with pytest.raises(SystemExit, match="no panel has the title Gme"):
        curves.read([f"Game={tmp_path}"], "env_steps", training=True, factors={"Gme": 5.0})


def test_a_published_curve_stands_beside_runs(tmp_path: pathlib.Path) -> None:
    table = tmp_path / "other.csv"
    table.write_text("# of somebody else\nenv_steps,mean_return\n0,1.5\n100,40\n")
    found = curves.read([f"Game/theirs={table}"], "env_steps", factors={"Game": 5.0})
    ((steps, returns),) = found["Game"]["theirs"]
    assert steps.tolist() == [0, 100] and returns.tolist() == [1.5, 40]
    with pytest.raises(SystemExit, match=r"expected a table with the columns seconds,mean_return"):
        curves.read([f"Game/theirs={table}"], "seconds")


def test_a_figure_has_a_panel_for_each_title(tmp_path: pathlib.Path) -> None:
    path = _run(tmp_path / "run", [0.0, 1.0])
    curves.draw(tmp_path / "out.png", curves.read([f"A={path}", f"B/one={path},{path}"], "seconds"), "seconds")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_a_return_that_solves_a_task_is_a_line_and_an_axis_may_begin_higher(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib import figure

    drawn: list[Any] = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, *args, **options: drawn.extend(self.axes))
    panels = curves.read([f"A={_run(tmp_path / 'run', [-800.0, 1.0])}"], "seconds")
    curves.draw(tmp_path / "out.png", panels, "seconds", curves.levels(["A=0.5"]), curves.levels(["A=-3"]))
    (axis,) = drawn
    assert axis.get_ylim()[0] == -3.0
    assert [list(line.get_ydata()) for line in axis.lines if line.get_label() == "solved"] == [[0.5, 0.5]]


@pytest.mark.parametrize("items", [{"solved": ["B=1"]}, {"lowest": ["A=high"]}])
def test_a_level_of_another_title_or_no_number_is_refused(tmp_path: pathlib.Path, items: Any) -> None:
    panels = curves.read([f"A={_run(tmp_path / 'run', [0.0, 1.0])}"], "seconds")
    with pytest.raises(SystemExit):
        curves.draw(tmp_path / "out.png", panels, "seconds", **{key: curves.levels(x) for key, x in items.items()})


@pytest.mark.parametrize(
    ("item", "expected"),
    [("A", "TITLE"), ("A=nowhere", "no metrics.jsonl"), ("A=empty", "empty")],
)
def test_a_wrong_item_is_refused(tmp_path: pathlib.Path, item: str, expected: str) -> None:
    _run(tmp_path / "empty", [])
    with pytest.raises(SystemExit, match=expected):
        curves.read([item.replace("=", f"={tmp_path}/")], "seconds")
