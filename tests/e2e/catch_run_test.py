"""The main job on catch, by the command line: learn, then everything that one does with a finished run."""

from __future__ import annotations

import pathlib
import re
from typing import Any, NamedTuple

import e2e_harness as harness
import pytest

LEARN = ("--preset=catch", "--checkpoint.every_seconds=10", "--metrics.every_seconds=1", "--checkpoint.keep=2")
DETAILS = {
    "step", "chosen", "episodes", "mean_return", "std_return", "min_return", "max_return", "mean_length",
    "stderr_return",
}  # fmt: skip
BRIEF = (*harness.TINY, "--max_updates=60")


class Brief(NamedTuple):
    """A run directory with a finished run of 60 updates and checkpoints at 30 and 60."""

    run: pathlib.Path
    first_rows: list[dict[str, Any]]
    """Of its metrics, when its budget were 30 updates."""
    second: harness.Ended
    """Its learner, with a budget of 60."""


@pytest.fixture(scope="module")
def brief(module_host: harness.Host) -> Brief:
    run = module_host.directory / "brief"
    module_host.train(run, *BRIEF, "--max_updates=30").wait().ok()
    rows = harness.metrics_rows(run)
    second = module_host.train(run, *BRIEF).wait().ok()
    assert harness.saved_steps(run) == [30, 60]
    return Brief(run, rows, second)


@pytest.mark.slow  # tests/agents/small_problems_test.py learns Catch within a process
@pytest.mark.learning
@pytest.mark.parametrize("as_users_do", [False, True], ids=["quick", "as-users-do"])
def test_catch_is_learned_and_the_run_can_be_used(
    host: harness.Host, tmp_path: pathlib.Path, as_users_do: bool
) -> None:
    if as_users_do:
        host.compile_as_users_do()
    run = tmp_path / "catch"
    ended = host.train(run, *LEARN).wait(4 * harness.DEADLINE_SECONDS).ok()
    assert "finished: " in ended.err and " 1, --stop_at_return=1" in ended.err
    assert "score it: " in ended.err and "seedzero.cli evaluate --run_dir=" in ended.err
    last = [line for line in ended.err.splitlines() if " steps  " in line][-1]
    assert "eval 1  " in last and not last.endswith("saved -")

    host.compile_quickly()
    evaluated = host.seedzero("evaluate", f"--run_dir={run}", "--step=best", "--episodes=100", "--seed=5")
    assert evaluated.code == 0
    assert set(evaluated.json) == DETAILS
    found = evaluated.json
    assert (found["episodes"], found["mean_return"], found["mean_length"]) == (100, 1.0, 9.0)

    video = tmp_path / "one.gif"
    played = host.seedzero("play", f"--run_dir={run}", f"--video={video}")
    assert played.code == 0 and video.read_bytes()[:4] == b"GIF8"
    assert played.json["return"] == 1.0 and played.json["frames"] == 10

    last = max(row["evaluation_mean_return"] for row in harness.metrics_rows(run) if row.get("kind") == "evaluation")
    assert last == 1.0


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.parametrize("settings", [(), ("--agent=vtrace",)], ids=["muzero", "vtrace"])
def test_catch_is_learned_on_devices_apart(host: harness.Host, tmp_path: pathlib.Path, settings: tuple[str]) -> None:
    """Two devices act, two learn, and none waits for the others."""
    host.make_devices(4)
    learner = host.train(tmp_path / "catch", *LEARN, *settings, "--training.acting_devices=2")
    ended = learner.wait(4 * harness.DEADLINE_SECONDS).ok()
    assert "finished: " in ended.err and " 1, --stop_at_return=1" in ended.err


@pytest.mark.thorough
def test_a_finished_run_is_scored_and_watched(host: harness.Host, brief: Brief, tmp_path: pathlib.Path) -> None:
    assert "score it: " in brief.second.err and "seedzero.cli evaluate --run_dir=" in brief.second.err
    evaluated = host.seedzero("evaluate", f"--run_dir={brief.run}", "--step=last", "--episodes=10", "--seed=5").ok()
    assert set(evaluated.json) == DETAILS
    assert (evaluated.json["episodes"], evaluated.json["mean_length"]) == (10, 9.0)
    video = tmp_path / "one.gif"
    played = host.seedzero("play", f"--run_dir={brief.run}", f"--video={video}")
    assert played.code == 0 and video.read_bytes()[:4] == b"GIF8"
    assert abs(played.json["return"]) == 1.0 and played.json["frames"] == 10


def test_the_same_command_again_is_finished_at_once(host: harness.Host, brief: Brief) -> None:
    ended = host.seedzero("train", *BRIEF, f"--run_dir={brief.run}")
    assert ended.code == 0
    assert re.search("finished: 60 .*--max_updates=60", ended.err)
    assert harness.saved_steps(brief.run) == [30, 60]


def test_a_larger_budget_goes_on(brief: Brief) -> None:
    assert (
        re.search(harness.RESUMED, brief.second.err)[1] == "30" and "finished: --max_updates=60 " in brief.second.err
    )
    rows, before = harness.metrics_rows(brief.run), brief.first_rows
    assert rows[: len(before) - 1] == before[:-1]  # the last row is written at the end of a run, once more
    assert rows[-1]["update"] == 60


@pytest.mark.slow  # tests/storage/checkpoints/checkpoint_test.py flips one in each file
def test_a_flipped_bit_makes_a_resume_take_the_older_checkpoint_and_say_so(
    host: harness.Host, brief: Brief, tmp_path: pathlib.Path
) -> None:
    run = harness.copy_run(brief.run, tmp_path / "run")
    damaged = harness.flip_a_bit(run / "checkpoints" / "steps" / f"{60:012d}")
    verified = host.seedzero("checkpoint", "verify", "--json", f"--run_dir={run}")
    assert verified.code == 1
    assert [row["ok"] for row in verified.json if row["step"] == 60 and not row["best"]] == [False]
    ended = host.train(run, *BRIEF, "--max_updates=70").wait().ok()
    assert "checkpoint 60 " in ended.err and damaged.name in ended.err
    assert re.search(harness.RESUMED, ended.err)[1] == "30"
    assert harness.saved_steps(run)[-1] == 70


def test_a_replay_that_cannot_fit_is_refused_with_a_number_that_would(
    host: harness.Host, tmp_path: pathlib.Path
) -> None:
    run = tmp_path / "run"
    ended = host.seedzero("train", *harness.TINY, "--replay.capacity=40_000_000_000", f"--run_dir={run}")
    assert ended.code == 2, ended.err
    fitting = int(ended.err.split("--replay.capacity=")[-1].split()[0])
    assert 24_000 < fitting < 40_000_000_000
    assert not harness.saved_steps(run)
