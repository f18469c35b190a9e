"""Learning curves of run directories: seeds become a median and a band."""

import json
import pathlib

import curves  # see conftest.py
import numpy as np


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


def test_a_figure_has_a_panel_for_each_title(tmp_path: pathlib.Path) -> None:
    path = _run(tmp_path / "run", [0.0, 1.0])
    curves.draw(tmp_path / "out.png", curves.read([f"A={path}", f"B/one={path},{path}"], "seconds"), "seconds")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_of_a_run_has_its_evaluations_or_the_means_of_its_training_returns(tmp_path: pathlib.Path) -> None:
    lines = [f"{100 * i},{i},{10 * i},{i if i % 2 else ''},{'' if i % 2 else 5}" for i in range(50)]
    header = "env_steps,update,seconds,episode_return,evaluation_mean_return"
    (tmp_path / "run.csv").write_text("\n".join([header, *lines]))
    item = f"A={tmp_path / 'run.csv'}"
    ((x, y),) = curves.read([item], "env_steps")["A"][""]
    np.testing.assert_array_equal([x, y], [100.0 * np.arange(0, 50, 2), np.full(25, 5.0)])
    ((x, y),) = curves.read([item], "env_steps", training=True, factors={"A": 3.0})["A"][""]
    middle = 20.0 + 2 * np.arange(6)  # of 20 rows with training episodes
    np.testing.assert_allclose([x, y], [100 * middle, 3 * middle])
