"""Four agents with policies of their own, by the command line: rows that end early, a kill -9, and saved policies."""

from __future__ import annotations

import json
import pathlib

import e2e_harness as harness
import numpy as np
import own_agents
import pytest
import run_state

import seedzero
from seedzero.storage.checkpoints import saved_files

NAMES = own_agents.Pack.names
LOCK_STEP = (
    "--env=pettingzoo:own_agents:Pack",
    '--env.kwargs={"unequal": true, "masks": true, "limit": 9}',
    "--seats.policies=each",
    "--network.width=8",
    "--ppo.unroll_length=8",
    "--ppo.batch_size=4",
    "--ppo.num_epochs=1",
    *harness.ENDLESS,
    *harness.lock_step(num_updates=24, every=8),
    "--worker.envs_per_group=8",
    "--evaluation.every_updates=3",
    "--evaluation.episodes=12",
    "--evaluation.num_envs=8",
)


@pytest.fixture(scope="module")
def reference(module_host: harness.Host) -> pathlib.Path:
    return module_host.trained(*LOCK_STEP)


@pytest.mark.thorough
def test_each_policy_counts_its_own_rows_though_agents_end_early(reference: pathlib.Path) -> None:
    counters = run_state.newest(reference).counters
    assert counters["players"].keys() == set(NAMES)
    for own in counters["players"].values():
        books = own["ledger"]
        assert books["acknowledged"] == books["stored"] + books["pending"] + sum(books["discarded"].values())
        assert own["num_updates"] >= 2 and books["stored"] >= own["num_updates"] * 8
    assert sum(own["num_updates"] for own in counters["players"].values()) == counters["num_updates"] == 24
    rows = [row for row in harness.metrics_rows(reference) if "update/ant" in row]
    last = rows[-1]
    assert {name: last[f"update/{name}"] for name in NAMES} == {
        name: own["num_updates"] for name, own in counters["players"].items()
    }
    assert all(any(f"loss/{name}" in row for row in rows) for name in NAMES)
    evaluated = [row for row in harness.metrics_rows(reference) if "evaluation_mean_return" in row]
    assert evaluated and all(row.keys() >= {f"evaluation_mean_return/{name}" for name in NAMES} for row in evaluated)


@pytest.mark.thorough
def test_a_killed_run_repeats_its_bits(host: harness.Host, reference: pathlib.Path) -> None:
    run = run_state.killed_and_resumed(host, *LOCK_STEP, checkpoint=2)
    assert run_state.state(run) == run_state.state(reference)


@pytest.mark.thorough
def test_saved_policies_play_together_and_each_alone(host: harness.Host, reference: pathlib.Path) -> None:
    found = json.loads(host.seedzero("evaluate", f"--run_dir={reference}", "--episodes=12").out)
    assert found["episodes"] == 12 and found["task_returns"].keys() == set(NAMES) and "player" not in found
    chosen = found["step"]
    assert saved_files.find(reference / "checkpoints", "best", "params")[1].step == chosen
    shown = json.loads(host.seedzero("play", f"--run_dir={reference}", f"--video={host.directory / 'pack.gif'}").out)
    assert shown["task_returns"].keys() == set(NAMES)
    policies = {name: seedzero.load(reference, player=name, trust_run_dir=True) for name in NAMES}
    seen, mask = np.zeros((3, 5), np.float32), np.ones((3, 5), bool)
    assert all(policy(seen, action_mask=mask).shape == (3,) for policy in policies.values())
    leaves = [np.asarray(policy._saved.params.params["policy"]["kernel"]) for policy in policies.values()]
    assert all(not np.array_equal(leaves[0], other) for other in leaves[1:])


@pytest.mark.parametrize("command", ["evaluate", "load", "other"])
def test_policies_that_are_not_there_are_named(host: harness.Host, reference: pathlib.Path, command: str) -> None:
    if command == "evaluate":
        refused = host.seedzero("evaluate", f"--run_dir={reference}", "--player=ant")
        assert refused.code == 2 and "--player=ant" in refused.err and "ant, bee, cat, dog" in refused.err
        return
    with pytest.raises(seedzero.errors.UsageError, match=r"player=.* ant, bee, cat, dog"):
        seedzero.load(reference, player=None if command == "load" else "eel", trust_run_dir=True)


@pytest.mark.thorough
def test_a_central_value_trains_and_a_saved_policy_has_nothing_of_it(host: harness.Host) -> None:
    run = host.directory / "central"
    flags = [flag for flag in LOCK_STEP if not flag.startswith(("--max_updates", "--checkpoint.every_updates"))]
    host.train(run, *flags, "--ppo.central_value=true", *harness.lock_step(num_updates=8, every=8)[1:]).wait().ok()
    arrays = [array["name"] for array in json.loads((run / "spec.json").read_text())["packed"]]
    assert arrays == ["observation", "joint_observation"]
    found = json.loads(host.seedzero("evaluate", f"--run_dir={run}", "--episodes=8").out)
    assert found["task_returns"].keys() == set(NAMES)
    policy = seedzero.load(run, player="dog", trust_run_dir=True)
    assert policy(np.zeros(5, np.float32), action_mask=np.ones(5)) in range(5)
    with pytest.raises(seedzero.errors.UsageError, match="shape"):
        policy(np.zeros(25, np.float32), action_mask=np.ones(5))
