"""What is kept of a trained agent: its acting parameters, and a row of a table. The run is made up."""

from __future__ import annotations

import pathlib
from typing import Any

import jax.numpy as jnp
import pytest
import runs  # see conftest.py
import saved_run
import trained

from seedzero.storage.checkpoints import manifest, saved_files

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


def test_the_script_scores_the_last_checkpoint_of_a_run(
    run: pathlib.Path, readme: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(path: pathlib.Path, arguments: list[str]) -> dict[str, Any]:
        assert path == run and arguments == ["--step=last", "--episodes=100", "--opponent=mcts-100"]
        return {"mean_return": 1331.4, "stderr_return": 123.4}

    monkeypatch.setattr(runs, "evaluate", evaluate)
    arguments = ["trained.py", str(run), "catch", "--opponent=mcts-100", f"--into={tmp_path}"]
    monkeypatch.setattr("sys.argv", arguments)
    trained.main()
    assert "| 1331 ± 120 |" in readme.read_text() and (readme.parent / "catch" / "config.json").is_file()


def test_what_only_the_consistency_loss_reads_is_not_kept(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    params = {name: {"kernel": jnp.arange(3)} for name in ("policy_head", "projector", "predictor")}
    place = saved_files.step_directory(run / "checkpoints", 9)
    parts = {saved_files.PARAMS: {saved_files.PARAMS: params}}
    manifest.write_directory(place, parts, manifest.Manifest(9, 0.0, 9))
    trained.write_acting(run, tmp_path / "kept")
    kept, found = saved_files.restore_params(tmp_path / "kept" / "checkpoints", "last", params)
    assert found.step == 9
    kernels = {name: part["kernel"].tolist() for name, part in kept.items()}
    assert kernels == {"policy_head": [0, 1, 2], "projector": [0, 0, 0], "predictor": [0, 0, 0]}
