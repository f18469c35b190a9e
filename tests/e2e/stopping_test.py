"""How a run ends before it is finished: signals, environments that fail, a disk that is full."""

from __future__ import annotations

import pathlib
import signal
import sys

import e2e_harness as harness
import pytest


@pytest.mark.thorough
def test_one_signal_saves_and_leaves_and_the_same_command_goes_on_from_there(
    host: harness.Host, tmp_path: pathlib.Path
) -> None:
    run = tmp_path / "run"
    learner = host.train(run, *harness.PACED, "--checkpoint.every_seconds=0", "--replay.placement=host")
    seen = learner.until(lambda found: found["updates"] > 20, "updates")
    workers = learner.workers()
    assert workers and not harness.saved_steps(run)
    learner.send(signal.SIGTERM)
    ended = learner.wait().ok()
    assert f"--run_dir={run}" in ended.err
    assert not any(worker.is_running() for worker in workers.values())
    (saved,) = harness.saved_steps(run)
    assert saved >= seen["updates"]
    last = host.seedzero("status", f"--run_dir={run}").json
    assert (last["updates"], last["durable_update"], last["alive"]) == (saved, saved, False)
    assert last["finished"] is None

    # The replay may be moved: on a CPU auto is device.
    again = host.train(run, *harness.PACED, f"--max_updates={saved + 20}", "--replay.placement=auto")
    assert int(again.says(harness.RESUMED)[1]) == saved
    again.wait().ok()
    final = host.seedzero("status", f"--run_dir={run}").json
    assert final["updates"] == saved + 20
    assert final["steps_stored"] >= last["steps_stored"]
    # The environments of the first process are gone, and with them what was pending there.
    assert final["steps_discarded"]["worker_lost"] == last["steps_pending"]


STUCK_DISK = """
import os, sys, threading
from seedzero.cli import main
from seedzero.storage.checkpoints import segments
from seedzero.learner import saving as saves

saves.SMALL_REPLAY_BYTES = 0
write = segments.write

def write_or_wait(*arguments):
    if os.path.exists(os.environ["E2E_STUCK"]):
        threading.Event().wait()
    return write(*arguments)

segments.write = write_or_wait
sys.exit(main.main(sys.argv[4:]))
"""
"""Stands before a command line's own Python, `-m` and module: that command, with rows of the replay never written."""


@pytest.mark.slow  # tests/learner/stopping_test.py saves the small state first, too
def test_killed_while_writing_its_replay_a_run_keeps_its_newest_parameters(
    host: harness.Host, tmp_path: pathlib.Path
) -> None:
    """As where a machine is taken away 30 s after SIGTERM, and that is too short for the replay."""
    run, stuck = tmp_path / "run", tmp_path / "stuck"
    settings = (*harness.PACED, "--checkpoint.every_seconds=0.5")
    learner = host.train(run, *settings, limits=[sys.executable, "-c", STUCK_DISK], E2E_STUCK=str(stuck))
    durable = learner.until(lambda found: found["durable_update"], "a checkpoint")["durable_update"]
    stuck.touch()
    seen = learner.until(lambda found: found["updates"] > durable + 50, "updates after it")
    learner.send(signal.SIGTERM)
    harness.wait_for(lambda: harness.saved_steps(run)[-1] >= seen["updates"], "parameters", alive=learner)
    assert learner.popen.poll() is None  # it still waits for the disk
    learner.kill()
    again = host.train(run, *settings)
    assert int(again.says(harness.RESUMED)[1]) >= seen["updates"]
    found = again.trains_on()
    assert found["steps_stored"] >= seen["steps_stored"]
    assert harness.FILLS_ANEW not in again.output()


def test_ctrl_c_while_nobody_has_joined_leaves_with_success(host: harness.Host, tmp_path: pathlib.Path) -> None:
    learner = host.train(tmp_path / "run", *harness.PACED, "--workers=0")
    learner.says("waiting for a worker: seedzero worker --server=unix:")
    assert "worker" in learner.until(lambda found: True, "a status")["stalled"]
    learner.send(signal.SIGINT)
    learner.wait().ok()


@pytest.mark.thorough
def test_a_budget_that_is_over_before_anybody_joins_is_a_failure(host: harness.Host, tmp_path: pathlib.Path) -> None:
    ended = host.train(tmp_path / "run", *harness.PACED, "--workers=0", "--max_seconds=1").wait()
    assert ended.code == 1
    assert "--max_seconds=1" in ended.err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("sent", "phase"),
    [
        (signal.SIGTERM, "automatic, for "),
        (signal.SIGTERM, "compiling acting and the update"),
        (signal.SIGINT, "worker local-0 joined"),
    ],
)
def test_a_signal_ends_a_run_that_is_built_or_compiled(
    host: harness.Host, tmp_path: pathlib.Path, sent: signal.Signals, phase: str
) -> None:
    learner = host.train(tmp_path / "run", *harness.PACED)  # the networks are built, programs are compiled next
    learner.says(phase)
    learner.send(sent)
    learner.wait().ok()


@pytest.mark.slow  # tests/learner/processes/keepers_test.py ends after five failures, too
def test_an_environment_that_always_fails_ends_training_with_its_reason(
    host: harness.Host, tmp_path: pathlib.Path
) -> None:
    learner = host.train(tmp_path / "run", *harness.TINY, "--env=gym:e2e_envs:Raising-v0")
    ended = learner.wait()
    assert ended.code == 1, ended.err
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("seedzero: error: ") and " 5 times " in last
    assert "the paddle fell off" in last
    assert ended.err.count(" again in ") == 4


@pytest.mark.slow  # checkpointer_test.py and metrics_test.py have full disks within a process
def test_a_full_disk_does_not_end_training(host: harness.Host, tmp_path: pathlib.Path) -> None:
    settings = ("--checkpoint.every_seconds=0.5", "--metrics.every_seconds=0.1")
    learner = host.train(tmp_path / "run", *harness.PACED, *settings)
    learner.until(lambda found: found["durable_update"], "a checkpoint")
    with harness.full_disk(learner.pid):
        learner.says("could not be written to .* training continues")
        learner.says("metrics cannot be written to .*; training continues")
        durable = learner.trains_on()["durable_update"]
    learner.until(lambda found: found["durable_update"] > durable, "checkpoints continue")
    learner.says("metrics are written again")
    learner.send(signal.SIGINT)
    ended = learner.wait()
    assert ended.code == 0 and f"--run_dir={learner.run}" in ended.err, ended.err
    rows = harness.metrics_rows(learner.run)  # whole lines alone
    assert rows[-1]["update"] == harness.saved_steps(learner.run)[-1]
    assert host.seedzero("checkpoint", "verify", f"--run_dir={learner.run}").code == 0
