"""A league between two sides of agents, by the command line: the same bits across a kill -9, matches, and learning."""

from __future__ import annotations

import json
import pathlib

import e2e_harness as harness
import pytest
import run_state

from seedzero.api import leagues

SMALL = (
    "--env=pettingzoo:own_agents:Teams",
    "--agent=ppo",
    "--network.width=8",
    "--ppo.unroll_length=8",
    "--ppo.max_lag=4",
    "--league.self_play=0.25",
    "--league.redraw=16",
    *harness.ENDLESS,
)
LOCK_STEP = (
    *SMALL,
    *harness.lock_step(num_updates=24, every=8),
    "--ppo.batch_size=16",
    "--ppo.num_epochs=1",
    "--worker.envs_per_group=16",
    "--league.freeze_every=400",
    "--evaluation.every_updates=10",
    "--evaluation.episodes=16",
    "--evaluation.num_envs=8",
)


@pytest.fixture(scope="module")
def reference(module_host: harness.Host) -> pathlib.Path:
    pytest.importorskip("pettingzoo")
    run = module_host.directory / "reference"
    ended = module_host.train(run, *LOCK_STEP).wait()
    assert ended.code == 0, ended.err
    assert "warning" not in ended.err.lower(), ended.err
    return run


@pytest.mark.thorough
def test_rows_are_counted_once_and_main_plays_both_sides(reference: pathlib.Path) -> None:
    _check_counts(reference)
    evaluated = [row for row in harness.metrics_rows(reference) if "evaluation_mean_return" in row]
    assert evaluated and all(abs(row["evaluation_mean_return"]) <= 8 for row in evaluated)


def _check_counts(run: pathlib.Path) -> None:
    run_state.check_league(run)
    saved, counts = leagues.read(run, ""), run_state.newest(run).counters["ledger"]
    assert counts["acknowledged"] == counts["stored"] + counts["pending"] + sum(counts["discarded"].values())
    types = saved.payoff.num_matches()
    assert types["self_play"] > 20 < types["past"]
    past = [row for row in saved.payoff.table() if row["type"] == "past" and row["player"] == "main"]
    games = [sum(row["games"] for row in past if row["side"] == side) for side in ("first", "second")]
    assert abs(games[0] - games[1]) <= 0.2 * sum(games)
    # Four agents have four steps each; of a match against the past, the two of main's side count. Eight games go on.
    steps = 16 * types["self_play"] + 8 * types["past"]
    assert steps <= counts["acknowledged"] <= steps + 16 * (saved.num_void + 8)


@pytest.mark.thorough
def test_a_killed_run_repeats_its_bits(host: harness.Host, reference: pathlib.Path) -> None:
    run = run_state.killed_and_resumed(host, *LOCK_STEP, checkpoint=2)
    assert run_state.state(run) == run_state.state(reference)


@pytest.mark.thorough
def test_matches_and_evaluations_are_played_from_both_sides(host: harness.Host, reference: pathlib.Path) -> None:
    old, *_ = leagues.read(reference, "").pool.frozen
    played = host.seedzero("league", "match", "main", old, f"--run_dir={reference}", "--games=20", "--json")
    assert played.code == 0, played.err
    found = json.loads(played.out)
    assert (found["games"], found["policy"], found["versions"][0]) == (20, "sample", 24)
    assert sum(found["first"].values()) == sum(found["second"].values()) == 10
    words = ("evaluate", f"--run_dir={reference}", f"--player={old}", "--episodes=8")
    for opponent in ((), (f"--opponent={reference}",)):
        evaluated = host.seedzero(*words, *opponent)
        assert evaluated.code == 0 and json.loads(evaluated.out)["player"] == old, evaluated.err
    for flag, said in (
        ("--opponent=mcts-10", "looks at all of it"),
        ("--max_episode_steps=9", "between two sides of agents"),
    ):
        refused = host.seedzero(*words, flag)
        assert refused.code == 2 and said in refused.err, refused.err


@pytest.mark.slow
def test_main_beats_its_first_frozen_self(host: harness.Host) -> None:
    pytest.importorskip("pettingzoo")
    run = host.directory / "learned"
    learning = ("--ppo.batch_size=32", "--optimizer.learning_rate=0.003", "--worker.envs_per_group=64")
    words = (*SMALL, *learning, "--league.freeze_every=2000", *harness.lock_step(num_updates=60, every=20))
    ended = host.train(run, *words).wait()
    assert ended.code == 0, ended.err
    old, *_ = leagues.read(run, "").pool.frozen
    played = host.seedzero("league", "match", "main", old, f"--run_dir={run}", "--games=100", "--json")
    assert played.code == 0 and json.loads(played.out)["low"] > 0.5, played.out
