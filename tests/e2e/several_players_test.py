"""A league of several learning players by the command line: the same bits across a kill -9, and a user's builder."""

from __future__ import annotations

import json
import pathlib
import random
import re
import signal
from typing import Any

import e2e_harness as harness
import league_run_test
import league_stand_in
import pytest

from seedzero.api import leagues
from seedzero.checkpoints import checkpoint, player_files, trees
from seedzero.checkpoints import files as saved_files

UPDATES, EVERY = 120, 20
RULES = {"min_steps": 150, "max_steps": 400, "min_games": 10, "win_rate": 0.5, "reset_probability": 0.5}
PLAYERS = (
    *harness.TINY,
    "--preset=league-tictactoe",
    "--env=spiel:tic_tac_toe",
    "--muzero.n_step=2",
    "--league.main_exploiters=1",
    "--league.league_exploiters=1",
    "--league.redraw=8",
    "--optimizer.schedule=constant",
    "--worker.num_groups=4",
    "--batcher.max_batch=16",
    "--replay.num_slots=16",
)
LEAGUE = (
    *PLAYERS,
    "--league.builder=alphastar",
    f"--league.builder_args={json.dumps(RULES)}",
    "--league.build_every=10",
    "--deterministic",
    f"--max_updates={UPDATES}",
    f"--checkpoint.every_updates={EVERY}",
    "--metrics.every_updates=20",
)


@pytest.fixture(scope="module")
def reference(module_host: harness.Host) -> pathlib.Path:
    pytest.importorskip("pyspiel")
    run = module_host.directory / "reference"
    ended = module_host.train(run, *LEAGUE).wait()
    assert ended.code == 0, ended.err
    return run


def _state(run: pathlib.Path) -> dict[str, Any]:
    """Returns all of a run that the clock does not change."""
    path, found, _ = saved_files.find(run / "checkpoints", "last")
    counters = {name: value for name, value in found.host.items() if name != "metrics_bytes"}
    parts = {name: leaves for name, leaves in found.arrays.items() if name != checkpoint.OBSERVATION}
    assert {"players/main/params", "players/main_exploiter_0/state", saved_files.REPLAY} <= parts.keys()
    return {
        "step": found.step,
        "arrays": {name: league_stand_in.digests(trees.load(path / name, leaves)) for name, leaves in parts.items()},
        "counters": counters,
        "history": (run / "league.jsonl").read_text(),
        "frozen": player_files.names(run / "checkpoints"),
    }


def test_every_kind_of_match_and_decision_occurs(reference: pathlib.Path) -> None:
    saved = leagues.read(reference, "")
    assert [member.kind for member in saved.pool.members if member.learns] == [
        "main",
        "main_exploiter",
        "league_exploiter",
    ]
    types = saved.payoff.num_matches()
    assert all(types[name] > 0 for name in ("self_play", "past", "exploiters", "main_exploiter", "league_exploiter"))
    assert sum(row["games"] for row in saved.payoff.table()) == 2 * sum(types.values())
    events = [json.loads(line)["event"] for line in (reference / "league.jsonl").read_text().splitlines()]
    assert events.count("freeze") >= 3 and events.count("reset") >= 1
    counters = saved_files.find(reference / "checkpoints", "last", "state")[1].host
    each = counters["players"].values()
    assert sum(found["num_updates"] for found in each) == counters["num_updates"] == UPDATES
    assert sum(found["ledger"]["stored"] for found in each) == counters["ledger"]["stored"]


@pytest.mark.slow  # seats_run_test.py has a killed league, too
def test_a_killed_run_repeats_its_bits(host: harness.Host, reference: pathlib.Path) -> None:
    run, where = host.directory / "killed", {league_stand_in.MOMENT: f"{league_stand_in.IN_CHECKPOINT}:2"}
    killed = host.train(run, *LEAGUE, limits=league_stand_in.command(), **where).wait()
    assert killed.code == -signal.SIGKILL, killed.err
    assert 0 < league_run_test.newest(run).step < UPDATES
    ended = host.train(run, *LEAGUE).wait()
    assert ended.code == 0, ended.err
    assert _state(run) == _state(reference)


# ------------------------------------------------------------------------------------ a builder of a user's

FAULTY = (
    *PLAYERS,
    "--league.builder=e2e_builders:faulty",
    "--league.build_every=10",
    "--checkpoint.every_seconds=999",
)


@pytest.mark.slow  # tests/league/builders_test.py tells failures with file and line, too
def test_a_builder_that_fails_loses_nothing(host: harness.Host) -> None:
    run, faults = host.directory / "faulty", ["raise", "hang", "none", "own"]
    said = {
        "raise": r"raised ZeroDivisionError: no games, at (.*):(\d+)",
        "hang": r"has not returned after 10 s, at (.*):(\d+)",
        "none": r" \((.*):(\d+)\) returns None",
        "own": r" \((.*):(\d+)\) returns Action\(.*but player main takes its own parameters",
    }
    for number, fault in enumerate(faults, 1):
        ended = host.train(run, *FAULTY, "--max_updates=1000", E2E_FAULT=fault).wait()
        assert ended.code == 1 and (found := re.search(said[fault], ended.err)), ended.err
        assert pathlib.Path(found[1]).name == "e2e_builders.py"
        assert ("sleep" in pathlib.Path(found[1]).read_text().splitlines()[int(found[2]) - 1]) == (fault == "hang")
        assert league_run_test.newest(run).step == 10 * number
        assert number == 1 or harness.RESUMED.replace(r"(\d+)", str(10 * number - 10)) in ended.err
    mended = host.train(run, *FAULTY, f"--max_updates={10 * len(faults) + 10}").wait()
    assert mended.code == 0, mended.err
    league_run_test.check(run)
    assert leagues.read(run, "").pool.num_frozen == 1


# ------------------------------------------------------------------------------------ kills

WILD = (
    *PLAYERS,
    "--league.builder=e2e_builders:wild",
    "--league.build_every=5",
    "--checkpoint.every_seconds=0.5",
    "--checkpoint.keep=1",
)


@pytest.fixture(scope="module")
def wild(module_host: harness.Host) -> pathlib.Path:
    """A run in which every player was reset."""
    pytest.importorskip("pyspiel")
    run = module_host.directory / "wild"
    ended = module_host.train(run, *WILD, "--max_updates=40").wait()
    assert ended.code == 0, ended.err
    return run


def _resume(host: harness.Host, run: pathlib.Path, *words: str, **environment: str) -> harness.Learner:
    """Resumes a run; its state must be that of the newest checkpoint, of every player."""
    saved, digests = league_run_test.newest(run), league_stand_in.saved_digests(run)
    learner = host.train(run, *WILD, *words, limits=league_stand_in.command(), **environment)
    told = json.loads(learner.says(r"restored (\{.*\})\n")[1])
    players = saved.host["players"]
    assert told["digests"] == digests and told["history"] == saved.host["league_bytes"]
    assert (told["update"], told["league"]) == (saved.step, saved.host["league"])
    assert told["updates"] == {name: found["num_updates"] for name, found in players.items()}
    assert told["paces"] == {name: found["pace"] for name, found in players.items()}
    assert set(told["frozen"]) == set(saved.frozen)
    return learner


def _check(run: pathlib.Path) -> None:
    """Every count agrees: of an ended run."""
    league_run_test.check(run)
    pool, saved = leagues.read(run, "").pool, league_run_test.newest(run)
    history = league_run_test.history(run, saved.host["league_bytes"])
    for name in pool.learning:
        resets = [line for line in history if line["event"] == "reset" and line["player"] == name]
        assert len(resets) == pool.of(name).resets and (not resets or resets[-1]["source"] == pool.of(name).source)
        own = saved.host["players"][name]
        assert all(line["version"] <= own["num_updates"] for line in resets)
    assert sum(own["num_updates"] for own in saved.host["players"].values()) == saved.step
    for row in harness.metrics_rows(run):
        assert min([0, *(value for key, value in row.items() if "age" in key or "lag" in key)]) >= 0, row


@pytest.mark.slow
def test_killed_around_a_reset_it_goes_on_at_its_last_checkpoint(
    host: harness.Host, tmp_path: pathlib.Path, wild: pathlib.Path
) -> None:
    run = harness.copy_run(wild, tmp_path / "run")
    moments = [moment for moment in (*league_stand_in.MOMENTS[:-1], league_stand_in.AFTER_RESET) for _ in range(2)]
    for number, moment in enumerate(moments):
        where = {league_stand_in.MOMENT: f"{moment}:{number % 3}"}
        learner = _resume(host, run, "--max_updates=100000", **where)
        assert learner.wait().code == -signal.SIGKILL
        assert f"reached {moment}" in learner.output()
    last = _resume(host, run, f"--max_updates={league_run_test.newest(run).step + 5}").wait()
    assert last.code == 0, last.err
    _check(run)


@pytest.mark.slow
def test_killed_at_random_moments_with_several_players(
    host: harness.Host, tmp_path: pathlib.Path, wild: pathlib.Path
) -> None:
    run, moments = harness.copy_run(wild, tmp_path / "run"), random.Random(3)
    for _ in range(10):
        learner = _resume(host, run, "--max_updates=100000")
        goal = league_run_test.newest(run).step + moments.randrange(1, 20)
        learner.until(lambda found, goal=goal: found["updates"] >= goal, "a random moment")
        learner.kill()
    last = _resume(host, run, f"--max_updates={league_run_test.newest(run).step + 20}").wait()
    assert last.code == 0, last.err
    _check(run)


# ------------------------------------------------------------------------------------ workers


@pytest.mark.slow
def test_players_whose_workers_come_late_or_are_lost(host: harness.Host) -> None:
    """A worker has two groups, of main and its exploiter; the league's exploiter is at home with a second worker."""
    pytest.importorskip("pyspiel")
    run = host.directory / "late"
    words = (*PLAYERS, "--worker.num_groups=2", "--league.builder=e2e_builders:wild", "--league.build_every=20")
    away = "no updates of league_exploiter_0: "
    learner = host.train(run, *words, "--workers=0", "--worker.num_remote=2", "--max_updates=100000")
    host.worker(learner.address, "--worker_id=first")
    learner.until(lambda found: found["stalled"] and found["stalled"].startswith(away), "a line about that player")
    other = host.worker(learner.address, "--worker_id=narrow", "--num_envs=6")
    other.says("narrow takes groups of 3 environments, but 3 players learn, .* let it take 8")
    other.end()
    for _ in range(2):
        late = host.worker(learner.address, "--worker_id=late")
        learner.until(lambda found: found["environments"] == 16 and not found["stalled"], "all players at home")
        learner.trains_on()
        late.end()
        learner.until(lambda found: found["stalled"] and found["stalled"].startswith(away), "the player is away again")
    learner.send(signal.SIGINT)
    assert learner.wait().code == 0
    goal = league_run_test.newest(run).step + 10
    ended = host.train(run, *words, "--worker.num=2", f"--max_updates={goal}").wait()
    assert ended.code == 0 and away not in ended.err, ended.err
    _check(run)
