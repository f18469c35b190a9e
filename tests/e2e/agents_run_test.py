"""Several agents in one environment, by the command line: one policy, rows that end early, and a kill -9."""

from __future__ import annotations

import json
import pathlib

import e2e_harness as harness
import own_agents
import pytest
import run_state

pytestmark = pytest.mark.thorough

LOCK_STEP = (
    "--env=pettingzoo:own_agents:Herd",
    '--env.kwargs={"unequal": true, "masks": true, "late": true, "limit": 6}',
    "--network.width=8",
    "--ppo.unroll_length=8",
    "--ppo.batch_size=16",
    "--ppo.num_epochs=1",
    *harness.ENDLESS,
    *harness.lock_step(num_updates=12, every=4),
    "--worker.envs_per_group=6",
    "--evaluation.every_updates=6",
    "--evaluation.episodes=9",
    "--evaluation.num_envs=6",
)


@pytest.fixture(scope="module")
def reference(module_host: harness.Host) -> pathlib.Path:
    return module_host.trained(*LOCK_STEP)


def test_rows_are_counted_once_though_agents_end_early(reference: pathlib.Path) -> None:
    counts = run_state.newest(reference).counters["ledger"]
    assert counts["acknowledged"] == counts["stored"] + counts["pending"] + sum(counts["discarded"].values())
    assert counts["stored"] >= 12 * 16 * 4 and counts["pending"] <= 12
    names = [f"episode_return/{name}" for name in own_agents.NAMES]
    rows = [row for row in harness.metrics_rows(reference) if row.keys() >= {*names}]
    assert rows and all(0 < row[name] <= 4 * 6 for row in rows for name in names)
    evaluated = [row for row in harness.metrics_rows(reference) if "evaluation_mean_return" in row]
    assert evaluated and all(row["evaluation_episodes"] == 9 for row in evaluated)
    assert all(row.keys() >= {f"evaluation_mean_return/{name}" for name in own_agents.NAMES} for row in evaluated)


def test_a_killed_run_repeats_its_bits(host: harness.Host, reference: pathlib.Path) -> None:
    run = run_state.killed_and_resumed(host, *LOCK_STEP, checkpoint=2)
    assert run_state.state(run) == run_state.state(reference)


def test_a_saved_policy_is_scored_by_agent_and_shown(host: harness.Host, reference: pathlib.Path) -> None:
    scored = host.seedzero("evaluate", f"--run_dir={reference}", "--episodes=28")
    found = json.loads(scored.out)
    assert found["episodes"] == 30 and found["task_returns"].keys() == {*own_agents.NAMES}
    assert found["max_return"] <= 4 * 6 and found["mean_length"] <= 6  # each agent's alone, of one episode
    assert found["stderr_return"] == pytest.approx(found["std_return"] / 3)  # of ten environments
    film = host.directory / "herd.gif"
    shown = json.loads(host.seedzero("play", f"--run_dir={reference}", f"--video={film}").out)
    assert film.stat().st_size and shown["frames"] == shown["length"] + 1
    assert shown["return"] == pytest.approx(sum(shown["task_returns"].values()) / 3)
    refused = host.seedzero("record", f"--run_dir={reference}", f"--out={host.directory / 'records'}")
    assert refused.code == 2 and "3 agents" in refused.err
