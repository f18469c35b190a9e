"""The learner is killed at random moments: the same command goes on, and separate workers find it again."""

from __future__ import annotations

import pathlib
import random

import e2e_harness as harness
import pytest

from seedzero.storage.checkpoints import saved_files

RUN = (*harness.PACED, "--workers=0", "--checkpoint.every_seconds=0.2")


@pytest.mark.parametrize("num_kills", [pytest.param(1, id="one"), pytest.param(10, id="many", marks=pytest.mark.slow)])
def test_a_killed_learner_resumes_at_its_last_durable_update_and_workers_reconnect(
    host: harness.Host, tmp_path: pathlib.Path, num_kills: int
) -> None:
    run, listen = tmp_path / "run", f"unix:{tmp_path}/learner.sock"
    command = (*RUN, f"--listen={listen}")
    worker = host.worker(listen)
    moments = random.Random(1)
    early = host.train(run, *command)
    assert early.address  # the socket, the lock and learner.json are there, a checkpoint is not
    early.kill()
    learner = host.train(run, *command)  # which such leftovers do not stop
    learner.until(lambda found: found["updates"] > 0, "updates")
    assert "resumed" not in learner.output()
    for left in reversed(range(num_kills)):
        learner.until(lambda found: found["durable_update"], "a durable update")
        goal = learner.polls[-1]["updates"] + moments.randrange(60)
        found = learner.until(lambda found, goal=goal: found["updates"] >= goal, "a random moment")
        learner.kill()
        newest = list(saved_files.manifests(run / "checkpoints"))[-1]
        assert newest.step >= found["durable_update"]
        budget = newest.step + 100
        learner = host.train(run, *command, *([] if left else [f"--max_updates={budget}"]))
        assert int(learner.says(harness.RESUMED)[1]) == newest.step
        back = learner.until(lambda found: found["workers"] == 1, "the worker reconnects")
        assert back["updates"] >= newest.step
        # Counters go on from the checkpoint; only what was pending in it is given up. That may be nothing: the
        # environments play in step, and at the end of an episode no step is pending.
        saved = newest.counters["ledger"]
        assert back["steps_stored"] >= saved["stored"] > 0
        assert back["steps_discarded"]["worker_lost"] == saved["discarded"].get("worker_lost", 0) + saved["pending"]
        learner.trains_on()
    assert worker.popen.poll() is None
    learner.wait().ok()
    ended = worker.wait().ok()
    assert f"--max_updates={budget} reached" in ended.err
    updates = [row["update"] for row in harness.metrics_rows(run)]
    assert updates == sorted(updates) and updates[-1] == budget
