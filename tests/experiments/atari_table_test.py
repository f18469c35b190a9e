"""The driver of the Atari tables: which runs are left, and what it keeps of one. The runs are made up."""

from __future__ import annotations

import pathlib
import shutil

import atari_table  # see conftest.py
import pytest
import runs
import saved_run

from seedzero.storage.checkpoints import saved_files

ENTRY = atari_table.Entry("Pong", "muzero", 1)


def test_a_finished_run_leaves_a_row_a_curve_and_parameters(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(path: pathlib.Path, settings: list[str], *, resumes: bool) -> None:
        assert resumes and settings[:-1] == ENTRY.arguments and settings[-1] == "--max_seconds=9000"
        saved_run.make(path)
        for step in (5, 7):
            saved_run.add_checkpoint(path, step)

    def evaluate(path: pathlib.Path, arguments: list[str]) -> dict[str, float]:
        assert arguments == ["--step=last", "--episodes=100", "--policy=greedy", "--max_episode_steps=27000"]
        return {"mean_return": 14.8, "stderr_return": 0.7}

    monkeypatch.setattr(runs, "train", train)
    monkeypatch.setattr(runs, "evaluate", evaluate)
    readme = tmp_path / "examples" / "trained" / "README.md"
    readme.parent.mkdir(parents=True)
    readme.write_text("| agent |\n|---|\n")
    row = atari_table.make(ENTRY, tmp_path / "runs", tmp_path)
    assert (row["name"], row["score"], row["updates"], row["env_steps"]) == ("pong_muzero_1", 14.8, 7, 2_000)
    assert list(atari_table.rows_of(tmp_path)) == [row]
    assert "| [pong](pong) |" in readme.read_text() and "| `--policy=greedy` | 14.8 ± 0.7 |" in readme.read_text()
    kept = readme.parent / "pong"
    assert saved_files.finished(kept / "checkpoints" / "steps") == [7]
    shutil.rmtree(kept)
    shutil.rmtree(tmp_path / "runs")
    atari_table.make(ENTRY, tmp_path / "runs", tmp_path)
    assert not kept.exists()  # an equal score is no better one
