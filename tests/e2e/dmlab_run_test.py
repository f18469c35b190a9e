"""DMLab-30 by the command line, with a stand-in for Lab: tasks, PopArt, instructions and the level cache."""

from __future__ import annotations

import os
import pathlib

import e2e_harness as harness
import pytest

from seedzero.envs import dmlab

STAND_INS = pathlib.Path(__file__).parents[1] / "stand_ins"
SMALL = (
    "--preset=dmlab",
    "--agent=vtrace",
    "--env=dmlab:dmlab30",
    "--workers=1",
    "--worker.envs_per_group=15",
    "--network.kind=shallow",
    "--network.width=8",
    "--network.lstm_width=8",
    "--vtrace.unroll_length=20",
    "--vtrace.batch_size=4",
    "--max_updates=12",
    "--metrics.every_seconds=0.3",
    "--metrics.tensorboard=false",
    "--dmlab.level_seeds=2",
)


@pytest.mark.thorough
def test_all_30_levels_are_played_and_scored_one_by_one(host: harness.Host, tmp_path: pathlib.Path) -> None:
    host.environment["PYTHONPATH"] += f"{os.pathsep}{STAND_INS}"
    run, levels = host.directory / "run", tmp_path / "levels"
    ended = host.train(run, *SMALL, f"--dmlab.level_cache={levels}").wait().ok()
    assert "human-normalized" in ended.err
    rows = harness.metrics_rows(run)
    played = {name.partition("/")[2] for row in rows for name in row if name.startswith("episode_return/")}
    assert played == set(dmlab.LEVELS)
    evaluated = [row for row in rows if row.get("kind") == "evaluation"][-1]
    assert {name.partition("/")[2] for name in evaluated if "mean_return/" in name} == set(dmlab.LEVELS)
    assert "evaluation_human_normalized" in evaluated
    assert any(row.get("return_scale_max", 1.0) > row.get("return_scale_min", 1.0) for row in rows)
    # 2 seeds of 30 levels for training, and as many for evaluation, which has its own.
    assert 30 < len(list(levels.glob("*/*.pk3"))) <= 120

    scored = host.start(host.command("evaluate", f"--run_dir={run}", "--episodes=30"), "evaluate").wait()
    assert scored.code == 0 and scored.json["task_returns"].keys() == set(dmlab.LEVELS)
    assert "human_normalized" in scored.json
