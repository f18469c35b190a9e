"""Games whose rows are seats, by the command line: a league in Kuhn poker has the same bits across a kill -9."""

from __future__ import annotations

import pathlib
import signal
from typing import Any

import e2e_harness as harness
import league_run_test
import league_stand_in
import pytest

from seedzero.api import leagues
from seedzero.checkpoints import player_files

UPDATES, EVERY = 24, 8
SEATS = (
    "--preset=league-kuhn",
    "--ppo.width=8",
    "--ppo.unroll_length=8",
    "--ppo.batch_size=16",
    "--worker.envs_per_group=16",
    "--metrics.tensorboard=false",
    "--transport.max_backoff_seconds=0.2",
)
LOCK_STEP = (
    *SEATS,
    "--league.freeze_every=300",
    "--league.self_play=0.25",
    "--league.redraw=16",
    "--deterministic",
    f"--max_updates={UPDATES}",
    f"--checkpoint.every_updates={EVERY}",
    "--metrics.every_updates=6",
    "--evaluation.every_updates=10",
    "--evaluation.episodes=8",
    "--evaluation.num_envs=4",
)


def _state(run: pathlib.Path) -> dict[str, Any]:
    """Returns all of a run that the clock does not change."""
    found = league_run_test.newest(run)
    times = ("seconds", "time", "metrics_bytes", "stored_per_shard")  # the last: since the resume
    rows = [
        {
            name: value
            for name, value in row.items()
            if name not in times and not name.endswith(("_seconds", "_second"))
        }
        for row in harness.metrics_rows(run)
    ]
    return {
        "step": found.step,
        "arrays": league_stand_in.saved_digests(run),
        "counters": {name: value for name, value in found.host.items() if name not in times},
        "history": (run / "league.jsonl").read_text(),
        "rows": rows,
        "frozen": player_files.names(run / "checkpoints"),
    }


@pytest.fixture(scope="module")
def reference(module_host: harness.Host) -> pathlib.Path:
    pytest.importorskip("pyspiel")
    run = module_host.directory / "reference"
    ended = module_host.train(run, *LOCK_STEP).wait()
    assert ended.code == 0, ended.err
    assert "warning" not in ended.err.lower(), ended.err
    return run


def test_rows_are_counted_once_and_matches_by_their_seats(reference: pathlib.Path) -> None:
    league_run_test.check(reference)
    saved, counts = leagues.read(reference, ""), league_run_test.newest(reference).host["ledger"]
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


def test_a_killed_run_repeats_its_bits(host: harness.Host, reference: pathlib.Path) -> None:
    run = host.directory / "killed"
    where = {league_stand_in.MOMENT: f"{league_stand_in.IN_CHECKPOINT}:2"}
    killed = host.train(run, *LOCK_STEP, limits=league_stand_in.command(), **where).wait()
    assert killed.code == -signal.SIGKILL, killed.err
    assert 0 < league_run_test.newest(run).step < UPDATES
    ended = host.train(run, *LOCK_STEP).wait()
    assert ended.code == 0 and "resumed at update" in ended.err, ended.err
    assert _state(run) == _state(reference)
