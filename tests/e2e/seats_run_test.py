"""Games whose rows are seats, by the command line: a league in Kuhn poker has the same bits across a kill -9."""

from __future__ import annotations

import pathlib
import signal
import sys

import e2e_harness as harness
import pytest
import run_state

from seedzero.api import leagues

SMALL = ("--preset=league-kuhn", "--network.width=8", "--ppo.unroll_length=8", "--ppo.batch_size=16", *harness.ENDLESS)
LOCK_STEP = (
    *SMALL,
    *harness.lock_step(num_updates=24, every=8),
    "--worker.envs_per_group=16",
    "--league.freeze_every=300",
    "--league.self_play=0.25",
    "--league.redraw=16",
    "--evaluation.every_updates=10",
    "--evaluation.episodes=8",
    "--evaluation.num_envs=4",
)


@pytest.fixture(scope="module")
def reference(module_host: harness.Host) -> pathlib.Path:
    pytest.importorskip("pyspiel")
    return module_host.trained(*LOCK_STEP)


@pytest.mark.thorough
def test_rows_are_counted_once_and_matches_by_their_seats(reference: pathlib.Path) -> None:
    run_state.check_league(reference)
    saved, counts = leagues.read(reference, ""), run_state.newest(reference).counters["ledger"]
    assert counts["acknowledged"] == counts["stored"] + counts["pending"] + sum(counts["discarded"].values())
    types = saved.payoff.num_matches()
    assert types["self_play"] > 20 < types["past"] and types["evaluation"] == 0
    past = [row for row in saved.payoff.table() if row["type"] == "past" and row["player"] == "main"]
    assert min(sum(row["games"] for row in past if row["side"] == side) for side in ("first", "second")) > 10
    rows = [row for row in harness.metrics_rows(reference) if "episode_return/first" in row]
    assert rows and all(abs(row["episode_return/second"]) <= 2 for row in rows)
    # In self-play both rows of a match are stored, else the home's: an episode has one or two steps.
    matches = 2 * types["self_play"] + types["past"]
    assert matches <= counts["acknowledged"] <= 2 * matches + 64
    evaluated = [row for row in harness.metrics_rows(reference) if "evaluation_mean_return" in row]
    chairs = {f"evaluation_mean_return/{side}" for side in ("first", "second")}
    assert evaluated and all(row.keys() >= chairs for row in evaluated)


@pytest.mark.thorough
def test_a_killed_run_repeats_its_bits(host: harness.Host, reference: pathlib.Path) -> None:
    run = run_state.killed_and_resumed(host, *LOCK_STEP, checkpoint=2)
    assert run_state.state(run) == run_state.state(reference)


# ------------------------------------------------------------------------------------ a worker's own game

REMOTE = (
    *SMALL,
    "--preset=seats",
    "--env=remote",
    "--workers=0",
    "--worker.num_remote=2",
    "--worker.num_groups=1",
    "--worker.envs_per_group=6",
    "--optimizer.learning_rate=0.01",
    "--ppo.entropy_weight=0.01",
    "--listen=127.0.0.1:0",
    "--metrics.every_seconds=1",
    "--transport.lease_seconds=1.5",
)
WORKER = str(harness.HERE / "seat_worker.py")


def _worker(host: harness.Host, address: str, name: str, *words: str) -> harness.Program:
    command = [sys.executable, WORKER, f"--server={address}", f"--worker_id={name}", "--role=train", *words]
    return host.start(command, name)


@pytest.mark.thorough
def test_seats_of_a_workers_own_game_learn_though_one_is_killed(host: harness.Host) -> None:
    """Seats end early, and the last one has more rows than the others."""
    run = host.directory / "own"
    learner = host.train(run, *REMOTE)
    workers = [_worker(host, learner.address, name) for name in ("one", "two")]
    learner.until(lambda found: found["environments"] == 12, "both workers")
    learner.trains_on(5)
    workers[0].kill()
    learner.until(lambda found: found["environments"] == 6, "one worker is lost")
    learner.trains_on(5)
    _worker(host, learner.address, "one")
    learner.until(lambda found: found["environments"] == 12, "it is back")
    seats = [f"episode_return/seat {number}" for number in (1, 2, 3)]

    def learned() -> list[float]:
        """Returns the mean return of each seat, by chance a third of 1, 1 and 3, once the first one's is large."""
        found = [[row[seat] for seat in seats] for row in harness.metrics_rows(run) if row.keys() >= {*seats}]
        return found[-1] if found and found[-1][0] > 0.9 else []

    _, second, third = harness.wait_for(learned, "numbers are named", alive=learner)
    assert second > 0.6 and third > 1.8
    learner.send(signal.SIGINT)
    learner.wait().ok()
    discarded = run_state.newest(run).counters["ledger"]["discarded"]
    assert discarded["unfinished_unroll"] > 0 and discarded.get("worker_lost", 0) <= 6  # 0: games had just ended


def test_groups_that_are_no_whole_games_are_refused_by_name(host: harness.Host) -> None:
    learner = host.train(host.directory / "part", *REMOTE)
    address = learner.address
    refused = _worker(host, address, "narrow", "--num_envs=4").wait()
    assert refused.code != 0 and "4 rows, but game 'name' has 3 seats" in refused.err, refused.err
    _worker(host, address, "whole", "--num_envs=3")
    learner.until(lambda found: found["environments"] == 3, "a worker with whole games", seconds=60)
