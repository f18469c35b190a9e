"""What is kept of a trained agent: its acting parameters, and a row of a table. The run is made up."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import runs  # see conftest.py
import saved_run
import trained

from seedzero.storage.checkpoints import saved_files

HEADER = "Agents.\n\n| agent | score |\n|---|---|\n"


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    """The directory of a run with two checkpoints."""
    path = saved_run.make(tmp_path / "run", run__seed=3, search__num_simulations=8)
    saved_run.add_checkpoint(path, 5)
    saved_run.add_checkpoint(path, 7)
    return path


@pytest.fixture
def readme(tmp_path: pathlib.Path) -> pathlib.Path:
    """The document with an empty table, and a sentence behind it."""
    file = tmp_path / trained.FOLDER / "README.md"
    file.parent.mkdir(parents=True)
    file.write_text(f"{HEADER}\nThe end.\n")
    return file


def test_only_the_last_parameters_are_kept(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "kept"
    (target / "checkpoints").mkdir(parents=True)
    (target / "checkpoints" / "of_before").touch()
    trained.write_acting(run, target)
    path, found, _ = saved_files.find(target / "checkpoints", "last")
    assert found.step == 7 and list(found.arrays) == ["params"]
    (array,) = saved_files.load_arrays(path, found, {"params": np.zeros(3, int)}, ("params",))
    assert array.tolist() == [7, 7, 7]
    files = {file.relative_to(target).as_posix() for file in target.rglob("*") if file.is_file()}
    inside = f"checkpoints/steps/{7:012d}"
    assert files == {
        "config.json",
        "spec.json",
        f"{inside}/manifest.json",
        *(f"{inside}/{name}" for name in found.files),
    }


def test_an_agent_gets_a_row_which_replaces_its_earlier_one(
    run: pathlib.Path, readme: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    def keep(name: str, score: float, *flags: str) -> str:
        return trained.keep(run, tmp_path, name, {"mean_return": score, "stderr_return": 0.0523}, flags)

    keep("catch", 0.5)
    other = keep("catch_two", 0.25, "--policy=sample", "--opponent=mcts-100")
    row = keep("catch", 0.9876)
    assert readme.read_text() == f"{HEADER}{other}\n{row}\n\nThe end.\n"
    assert row.startswith("| [catch](catch) | `seedzero train --preset=catch --seed=3 ")
    assert row.endswith(" | 3 | 2,000 | - | 0.9876 ± 0.052 |")
    assert other.endswith(" | `--policy=sample` `--opponent=mcts-100` | 0.25 ± 0.052 |")


def test_the_script_scores_the_last_checkpoint_of_a_run(
    run: pathlib.Path, readme: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(path: pathlib.Path, arguments: list[str]) -> dict[str, Any]:
        assert path == run and arguments == ["--step=last", "--episodes=100", "--opponent=mcts-100"]
        return {"mean_return": 1.0, "stderr_return": 0.0}

    monkeypatch.setattr(runs, "evaluate", evaluate)
    arguments = ["trained.py", str(run), "catch", "--opponent=mcts-100", f"--into={tmp_path}"]
    monkeypatch.setattr("sys.argv", arguments)
    trained.main()
    assert "| 1 ± 0 |" in readme.read_text() and (readme.parent / "catch" / "config.json").is_file()
