"""A sweep's states, messages and tables; programs that act as `seedzero train` stand in for the runs."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import threading
from typing import Any

import pytest

from seedzero.cli import main as commands
from seedzero.cli import sweep, train
from seedzero.learner.processes import pool
from seedzero.monitoring import console

_STAND_IN = """
import pathlib, select, sys
sys.path[:0] = [{tests!r}]
import saved_run
words = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[1:])
path = pathlib.Path(words["run_dir"])
with open(path.parent / "calls", "a") as calls:
    calls.write(path.name + chr(10))
rate, seed, until = float(words["optimizer.learning_rate"]), int(words.get("seed", 0)), int(words["max_updates"])
print("0:01  0 steps", flush=True)
if rate == 0.5:
    sys.exit("seedzero: error: it broke")
given = {{"run__agent": "ppo", "optimizer__learning_rate": words["optimizer.learning_rate"]}}
given |= {{"run__seed": seed}} if seed else {{}}
ends = until == 5 or (path / "config.json").exists() or (until == 50 and rate > 0.15)
returns = (0.0, 10 * rate + seed) if until < 50 else (0.0, 10 * rate, 10 * rate)
saved_run.make(path, returns, finished="--max_updates" * ends, run__max_updates=until, **given)
if not ends:
    print("up", flush=True)
    if not select.select([sys.stdin], [], [], 60)[0]:
        sys.exit("nobody ended it")
"""


@pytest.fixture(autouse=True)
def _stand_in(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a script that needs a moment in the place of `seedzero train`."""
    script = tmp_path / "train.py"
    script.write_text(_STAND_IN.format(tests=str(pathlib.Path(__file__).parents[1])))
    made = pool.Task

    def task(command: list[str], *args: Any, **names: Any) -> pool.Task:
        assert command[:5] == [sys.executable, "-m", "seedzero.cli", "train", "--supervised"]
        return made([sys.executable, str(script), *command[5:]], *args, **names)

    monkeypatch.setattr(pool, "Task", task)
    monkeypatch.setattr(train, "program_words", lambda argv: ["seedzero"])
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # of a journal: seconds on a busy disk
    monkeypatch.chdir(tmp_path)


_ARGS = ["sweep", "--optimizer.learning_rate=1e-1,2e-1", "--seeds=1,2", "--run_dir=out", "--jobs=1"]
_FIXED = ["--", "--preset=catch", "--agent=ppo"]
_SHORT = [*_FIXED, "--max_updates=5"]


def _calls() -> list[str]:
    return pathlib.Path("out/calls").read_text().split()


@pytest.mark.thorough
def test_every_run_is_trained_once_and_the_command_repeated_skips_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main([*_ARGS, *_SHORT]) == 0
    out, err = capsys.readouterr()
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "run group seed state steps updates seconds steps/s last episodes best at step" in rows
    assert "optimizer.learning_rate=0.1_seed=2 1 2 finished 1,000 10 2 500 3 +- 0.1 10 3 +- 0.1 1,000" in rows
    assert "group settings runs last: mean last: interval last: median best: mean best: interval best: median" in rows
    assert "2 optimizer.learning_rate=0.2 2 3.5 -2.853 to 9.853 3.5 3.5 -2.853 to 9.853 3.5" in rows
    names = [f"optimizer.learning_rate={rate}_seed={seed}" for rate in (0.1, 0.2) for seed in (1, 2)]
    assert _calls() == names and all(f"{name}: finished: --max_updates" in err for name in names)
    assert commands.main([*_ARGS, "--json", *_SHORT]) == 0
    assert _calls() == names
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(run["name"], run["state"]) for run in found["sweep"]] == [(name, "finished before") for name in names]
    assert [group["settings"] for group in found["groups"]] == [
        {"optimizer.learning_rate": 0.1},
        {"optimizer.learning_rate": 0.2},
    ]
    assert found["groups"][0]["last"]["mean"] == 2.5 and len(found["runs"]) == 4 and found["run_dir"] == "out"


@pytest.mark.parametrize("seconds", [5.0, 4_044.0, 300_000.0])
def test_a_run_s_lines_are_known_after_an_hour_and_after_days(seconds: float) -> None:
    snapshot = console.ConsoleSnapshot(seconds=seconds, env_steps=1, updates=0)
    assert sweep._CONSOLE.match(console.line_of(snapshot))
    assert not sweep._CONSOLE.match("seedzero: new run in 3:04")


@pytest.mark.thorough
def test_values_go_over_those_of_a_preset_s_file() -> None:
    pathlib.Path("own.preset").write_text(
        "--preset=catch\n--agent=ppo\n--optimizer.learning_rate=0.5\n--max_updates=5\n"
    )
    assert commands.main([*_ARGS, "--", "--preset=own.preset"]) == 0
    assert _calls()[::2] == ["optimizer.learning_rate=0.1_seed=1", "optimizer.learning_rate=0.2_seed=1"]


@pytest.mark.thorough
def test_a_failed_run_stops_no_other_and_is_named_with_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["sweep", "--optimizer.learning_rate=0.5,0.2", "--seeds=1", "--run_dir=out", "--jobs=1", *_SHORT]
    assert commands.main(args) == 1
    err = capsys.readouterr().err
    assert _calls() == ["optimizer.learning_rate=0.5_seed=1", "optimizer.learning_rate=0.2_seed=1"]
    name = "optimizer.learning_rate=0.5_seed=1"
    assert "1 of 2 runs failed" in err and f"  {name}: exit code 1: it broke; log: out/{name}.log" in err
    assert "it broke" in pathlib.Path("out/optimizer.learning_rate=0.5_seed=1.log").read_text()


@pytest.mark.thorough
def test_ctrl_c_ends_all_runs_and_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()

    def interrupt() -> None:  # once the first run is up
        log = pathlib.Path("out/optimizer.learning_rate=0.1_seed=1.log")
        while not ended.wait(0.02):
            if log.exists() and "up" in log.read_text():
                return os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        assert commands.main([*_ARGS, *_FIXED, "--max_updates=9"]) == 0
    finally:
        ended.set()
        thread.join()
    err = capsys.readouterr().err
    assert len(_calls()) == 1 and "optimizer.learning_rate=0.1_seed=1: stopped" in err
    again = "seedzero sweep --seeds=1,2 --run_dir=out --jobs=1 --optimizer.learning_rate=1e-1,2e-1 "
    assert f"to resume: {again}-- --preset=catch --agent=ppo --max_updates=9\n" in err
    assert commands.main([*_ARGS, *_SHORT]) == 0  # begins the others, goes on with the first
    assert len(_calls()) == 1 + 4


_SEARCH = ["sweep", "--trials=4", "--sampler=random", "--optimizer.learning_rate=0.1,0.2", *_ARGS[3:], *_FIXED]


@pytest.mark.thorough
def test_a_search_stops_bad_trials_and_prints_the_best_settings(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    assert commands.main([*_SEARCH, "--max_updates=50"]) == 0  # one with 0.1 would wait for ever
    out, err = capsys.readouterr()
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "trial value state optimizer.learning_rate" in rows
    assert rows[2:6] == [
        *(f"trial-00{number} 2 finished 0.2" for number in (0, 1, 3)),
        "trial-002 1 stopped early 0.1",
    ]
    assert rows[-1].endswith("seedzero train --preset=catch " + _BEST)
    assert _calls() == [f"trial-00{number}" for number in range(4)], err
    assert "trial-002: stopped early: 1 at 20 % of its budget (" in err
    assert commands.main([*_SEARCH[:1], "--json", *_SEARCH[1:], "--max_updates=50"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(_calls()) == 4 and found["best"].endswith("train --preset=catch " + _BEST)
    assert [row["state"] for row in found["sweep"]] == [*2 * ["finished before"], "stopped early", "finished before"]
    assert found["trials"][3] == {
        "trial": "trial-002",
        "value": 1.0,
        "state": "stopped early",
        "settings": {"optimizer.learning_rate": "0.1"},
    }
    assert [len(group["runs"]) for group in found["groups"]] == [1, 3]


_BEST = "--agent=ppo --max_updates=50 --optimizer.learning_rate=0.2"
