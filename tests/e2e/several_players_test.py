"""A league of several learning players by the command line: the same bits across a kill -9, and a user's builder."""

from __future__ import annotations

import json
import pathlib
import signal

import e2e_harness as harness
import pytest
import run_state

from seedzero.api import leagues

UPDATES, EVERY = 120, 20
RULES = {"min_steps": 150, "max_steps": 400, "min_games": 10, "win_rate": 0.5, "reset_probability": 0.5}
LEAGUE = (
    *run_state.SEVERAL_PLAYERS,
    *harness.lock_step(UPDATES, EVERY),
    "--league.builder=alphastar",
    f"--league.builder_args={json.dumps(RULES)}",
    "--league.build_every=10",
)


@pytest.fixture(scope="module")
def reference(module_host: harness.Host) -> pathlib.Path:
    pytest.importorskip("pyspiel")
    run = module_host.directory / "reference"
    module_host.train(run, *LEAGUE).wait().ok()
    return run


@pytest.mark.thorough
def test_every_kind_of_match_and_decision_occurs(reference: pathlib.Path) -> None:
    saved = leagues.read(reference, "")
    kinds = [member.kind for member in saved.pool.members if member.learns]
    assert kinds == ["main", "main_exploiter", "league_exploiter"]
    types = saved.payoff.num_matches()
    assert all(types[name] > 0 for name in ("self_play", "past", "exploiters", "main_exploiter", "league_exploiter"))
    assert sum(row["games"] for row in saved.payoff.table()) == 2 * sum(types.values())
    events = [line["event"] for line in run_state.history(reference)]
    assert events.count("freeze") >= 3 and events.count("reset") >= 1
    counters = run_state.newest(reference).counters
    each = counters["players"].values()
    assert sum(found["num_updates"] for found in each) == counters["num_updates"] == UPDATES
    assert sum(found["ledger"]["stored"] for found in each) == counters["ledger"]["stored"]


@pytest.mark.slow  # tests/learner/league_play/league_draws_test.py deals players of every kind to other devices
def test_a_league_of_players_that_come_and_go_resumes_on_other_devices(host: harness.Host) -> None:
    host.make_devices(4)
    run, goal = host.directory / "moved", 0
    for number in (2, 1, 4):
        goal += EVERY
        words = (*run_state.COMING, "--league.build_every=6", f"--training.num_devices={number}")
        host.train(run, *words, f"--max_updates={goal}").wait().ok()
        saved = run_state.newest(run)
        assert saved.step == goal and len(saved.counters.get("places", [1])) == min(number, 3)
        found = host.seedzero("league", "show", f"--run_dir={run}")
        assert found.code == 0, found.err
    run_state.check_league(run)
    assert len(leagues.read(run, "").pool.learning) > 0


# ------------------------------------------------------------------------------------ workers


@pytest.mark.slow
def test_players_whose_workers_come_late_or_are_lost(host: harness.Host) -> None:
    """A worker has two groups, of main and its exploiter; the league's exploiter is at home with a second worker."""
    pytest.importorskip("pyspiel")
    run = host.directory / "late"
    built = ("--league.builder=e2e_builders:wild", "--league.build_every=20")
    words = (*run_state.SEVERAL_PLAYERS, "--worker.num_groups=2", *built)
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
    learner.wait().ok()
    goal = run_state.newest(run).step + 10
    ended = host.train(run, *words, "--worker.num=2", f"--max_updates={goal}").wait()
    assert ended.code == 0 and away not in ended.err, ended.err
    run_state.check_league(run)
