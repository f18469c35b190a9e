"""V-trace by the command line: its batches, evaluations, and a dead worker stalls nobody."""

from __future__ import annotations

import json
import pathlib
import signal

import e2e_harness as harness
import pytest

SMALL = (*harness.ENDLESS, "--preset=catch", *harness.AGENTS["vtrace"], "--worker.envs_per_group=4")


@pytest.mark.slow  # worker_loss_test.py kills workers, tests/learner/loop/device_loop_test.py cuts unrolls
def test_every_step_is_learned_from_at_most_once_though_workers_die(host: harness.Host) -> None:
    learner = host.train(
        host.directory / "run",
        *SMALL,
        "--env=gym:e2e_envs:Paced-v0",
        "--workers=2",
        "--transport.lease_seconds=2",
    )
    learner.until(lambda found: found["updates"] > 0 and found["workers"] == 2, "two workers")
    for attempt in range(8):  # a worker that dies between two unrolls cuts none
        learner.workers()[f"local-{attempt % 2}"].kill()
        lost = attempt + 1
        learner.until(lambda _, lost=lost: learner.output().count("left: worker_lost") >= lost, "a lost worker")
        learner.until(lambda found: found["workers"] == 2, "two workers again")
        found = learner.trains_on(5)
        if attempt and found["steps_discarded"].get("unfinished_unroll", 0) > 0:
            break
    assert found["steps_discarded"].get("unfinished_unroll", 0) > 0
    assert found["samples_per_insert"] <= 1.0
    learner.send(signal.SIGINT)
    learner.wait().ok()
    rows = harness.metrics_rows(learner.run)
    lags = [row["policy_lag_max"] for row in rows if "policy_lag_max" in row]
    # Two unrolls may wait in each of 16 slots: eight updates of four of them; and calls on their way.
    assert lags and max(lags) <= 12


@pytest.fixture(scope="module")
def brief(module_host: harness.Host) -> pathlib.Path:
    """A finished run of 10 updates whose batches have room for more unrolls than there are environments."""
    run = module_host.directory / "brief"
    words = (*SMALL, "--vtrace.batch_size=64", "--vtrace.wait_seconds=1000", "--max_updates=10")
    module_host.train(run, *words).wait().ok()
    return run


@pytest.mark.thorough
def test_fewer_environments_than_a_batch_has_unrolls_are_no_reason_to_wait(brief: pathlib.Path) -> None:
    paddings = [row["batch_padding"] for row in harness.metrics_rows(brief) if "batch_padding" in row]
    assert paddings and min(paddings) > 0.5


def test_it_is_evaluated(host: harness.Host, brief: pathlib.Path) -> None:
    assert json.loads((brief / "config.json").read_text())["config"]["run.agent"] == "vtrace"
    evaluated = host.seedzero("evaluate", f"--run_dir={brief}", "--episodes=8").ok()
    assert -1 <= evaluated.json["mean_return"] <= 1
