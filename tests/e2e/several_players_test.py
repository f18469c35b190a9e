"""A league of several learning players by the command line: the same bits across a kill -9, and a user's builder."""

from __future__ import annotations

import json
import pathlib
import signal
from typing import Any

import e2e_harness as harness
import league_stand_in
import pytest

from seedzero.api import leagues
from seedzero.checkpoints import checkpoint, player_files, trees
from seedzero.checkpoints import files as saved_files

UPDATES, EVERY = 120, 20
RULES = {"min_steps": 150, "max_steps": 400, "min_games": 10, "win_rate": 0.5, "reset_probability": 0.5}
LEAGUE = (
    *harness.TINY,
    "--preset=league-tictactoe",
    "--env=spiel:tic_tac_toe",
    "--muzero.n_step=2",
    "--league.builder=alphastar",
    "--league.main_exploiters=1",
    "--league.league_exploiters=1",
    f"--league.builder_args={json.dumps(RULES)}",
    "--league.build_every=10",
    "--league.redraw=8",
    "--optimizer.schedule=constant",
    "--worker.num_groups=4",
    "--batcher.max_batch=16",
    "--replay.num_slots=16",
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


def test_a_killed_run_repeats_its_bits(host: harness.Host, reference: pathlib.Path) -> None:
    run, codes = host.directory / "killed", []
    for begun in (0, 2 * EVERY):
        learner = host.train(run, *LEAGUE)

        def is_ripe_or_over(learner: harness.Learner = learner, begun: int = begun) -> bool:
            found = learner.status()
            is_ripe = found and (found["durable_update"] or 0) > begun and found["updates"] % EVERY > 3
            return bool(is_ripe) or learner.popen.poll() is not None

        harness.wait_for(is_ripe_or_over, "work to lose")
        if learner.popen.poll() is None:
            learner.send(signal.SIGKILL)
        codes.append(learner.wait().code)
    assert -signal.SIGKILL in codes
    ended = host.train(run, *LEAGUE).wait()
    assert ended.code == 0, ended.err
    assert _state(run) == _state(reference)
