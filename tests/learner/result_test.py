"""The result of a training, read from its newest checkpoint."""

from __future__ import annotations

import pathlib
import re

import pytest

from seedzero.config import configs
from seedzero.learner import result
from seedzero.storage.checkpoints import manifest, saved_files


def _write(directory: pathlib.Path, step: int, best: float | None, last: float | None, **more: float) -> None:
    path = saved_files.step_directory(directory, step)
    path.mkdir(parents=True)
    counters = {
        "num_updates": step,
        "ledger": {"stored": 10 * step},
        "best_return": best,
        **{f"{name}_return": value for name, value in more.items()},
        "last_evaluation": None if last is None else {"update": step, "mean_return": last},
    }
    manifest.write(path, manifest.Manifest(step, 0.0, 1, counters=counters))


def test_counters_are_those_of_the_newest_checkpoint(tmp_path: pathlib.Path) -> None:
    _write(tmp_path, 20, 1.5, 0.5)
    _write(tmp_path, 30, 1.5, 1.0)
    found = result.read(tmp_path, "gs://runs/one", finished="--max_updates=30 reached")
    assert found == result.Result("gs://runs/one", True, "--max_updates=30 reached", 300, 30, 1.5, 1.0)


def test_the_best_return_is_that_of_the_page_a_first_evaluation_counts_too(tmp_path: pathlib.Path) -> None:
    _write(tmp_path, 20, None, 150.4, highest=150.4)
    assert result.read(tmp_path, "r", finished="").best_return == 150.4
    _write(tmp_path, 30, 9.0, 9.0, highest=150.4)
    assert result.read(tmp_path, "r", finished="").best_return == 150.4


def test_a_training_that_was_stopped_is_not_finished(tmp_path: pathlib.Path) -> None:
    (tmp_path / saved_files.STEPS).mkdir()
    assert result.read(tmp_path, "r", finished="") == result.Result("r", False, "stopped")
    _write(tmp_path, 20, None, None)
    assert result.read(tmp_path, "r", finished="") == result.Result("r", False, "stopped", 200, 20)


@pytest.mark.parametrize(
    ("agent", "budget", "told"),
    [
        ("muzero", 99, "--max_env_steps=99 is less than --replay.min_steps=100"),
        ("muzero", 100, "compilation and a first batch"),
        ("muzero", 0, "compilation and a first batch"),
        ("ppo", 99, "compilation and a first batch"),  # it has no replay
    ],
)
def test_a_training_without_updates_says_why(agent: str, budget: int, told: str) -> None:
    changes = {"run.agent": agent, "run.max_env_steps": budget, "replay.min_steps": 100}
    found = result.without_updates(configs.override(configs.Config(), changes))
    assert re.match(told, found)
