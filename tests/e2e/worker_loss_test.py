"""Local workers are killed at random moments, separate ones stand still: training goes on without a trace."""

from __future__ import annotations

import pathlib
import random
import signal
import time

import e2e_harness as harness
import numpy as np
import pytest

SETTINGS = (
    *harness.PACED,
    "--replay.capacity=240000",
    "--batcher.max_batch=24",
    "--transport.lease_seconds=2",
)


@pytest.mark.parametrize("num_kills", [pytest.param(1, id="one"), pytest.param(20, id="many", marks=pytest.mark.slow)])
def test_killed_workers_come_back_and_no_trajectory_mixes_runs(
    host: harness.Host, tmp_path: pathlib.Path, num_kills: int
) -> None:
    learner = host.train(tmp_path / "run", *SETTINGS, "--workers=2", "--max_updates=1000000")
    learner.until(lambda found: found["updates"] > 0 and found["workers"] == 2, "two workers")
    moments = random.Random(0)
    killed = set()
    for _ in range(num_kills):
        before = learner.until(lambda found: True, "a status")
        goal = before["env_steps"] + moments.randrange(400)
        learner.until(lambda found, goal=goal: found["env_steps"] >= goal, "a random moment")
        workers = learner.workers()
        victim = workers[moments.choice(sorted(workers))]
        killed.add(victim.pid)
        num_joined = _num_joined(learner)
        victim.kill()
        learner.trains_on(5)  # the other one is enough
        harness.wait_for(lambda num_joined=num_joined: _num_joined(learner) > num_joined, "it is back", alive=learner)
    learner.until(lambda found: found["workers"] == 2 and not found["stalled"], "two workers")
    after = learner.trains_on()
    assert after["environments"] == 16
    # Each end left the pending steps of some of its 8 environments, which nobody will ever complete. On a busy machine
    # a lease may run out besides.
    num_ends = _num_joined(learner) - 2
    assert num_ends >= num_kills
    assert 0 < after["steps_discarded"]["worker_lost"] <= num_ends * 8
    assert len(learner.polls) > num_kills
    stored = [found["steps_stored"] for found in learner.polls]
    assert stored == sorted(stored)
    learner.send(signal.SIGINT)
    learner.wait().ok()
    pids, num_cut = _check_histories(learner.run)
    assert num_cut > 0
    assert killed & pids  # what they played before their end is kept, save where rings have come round since


def _num_joined(learner: harness.Learner) -> int:
    return learner.output().count(" joined with 8 environments")


def _check_histories(run: pathlib.Path) -> tuple[set[int], int]:
    """Every segment that begins with a `first` row is a piece of one episode of one run.

    Returns:
      all process ids, and the cuts that are still there: segments that neither end their episode nor are the newest.
    """
    pids: set[int] = set()
    num_cut = 0
    for history in harness.saved_histories(run):
        tags, steps = history.observation[:, :4], history.observation[:, 4].astype(int)
        starts = np.flatnonzero(history.first)
        if len(steps) == 0:
            continue
        assert history.first[0] or steps[0] > 0  # an old ring may begin in the middle of an episode
        for begin, end in zip([0, *starts[starts > 0]], [*starts[starts > 0], len(steps)], strict=True):
            assert (tags[begin:end] == tags[begin]).all()
            assert (np.diff(steps[begin:end]) == 1).all()
            assert (history.reward[begin:end] == steps[begin:end]).all()  # and so is what was received on the way
            final = history.terminated[begin:end] | history.truncated[begin:end]
            assert not final[:-1].any()
            num_cut += end < len(steps) and not final[-1]
            # The last row of a segment has no transition; whoever samples it would reach into another run.
            assert history.weight[end - 1] == 0
            pids.add(int(tags[begin, 0]))
        assert (steps[starts] == 0).all()
    return pids, num_cut


@pytest.mark.slow  # tests/transport has leases that end, and workers that come back, within a process
def test_a_worker_that_stands_still_does_not_slow_the_others(host: harness.Host, tmp_path: pathlib.Path) -> None:
    seconds = 30.0
    # Acting alone sets the pace here; every worker's groups are batched as they come.
    settings = ("--workers=0", "--replay.min_steps=20000", "--transport.lease_seconds=1")
    learner = host.train(tmp_path / "run", *SETTINGS, *settings)
    workers = [host.worker(learner.address) for _ in range(3)]
    learner.until(lambda found: found["workers"] == 3 and found["env_steps"] > 500, "three workers")
    with_three = _steps_in(learner, seconds)
    stopped = workers[1]
    stopped.send(signal.SIGSTOP)
    try:
        with_two = _steps_in(learner, seconds)
        learner.until(
            lambda found: found["workers"] == 2 and found["steps_discarded"]["worker_lost"] > 0, "its lease to expire"
        )
    finally:
        stopped.send(signal.SIGCONT)
    # Two workers of three, and machines are noisy: but far from standing still.
    assert with_two > 0.25 * with_three
    learner.until(lambda found: found["workers"] == 3 and found["environments"] == 24, "it joins again by itself")
    assert all(worker.popen.poll() is None for worker in workers)
    learner.send(signal.SIGTERM)
    learner.wait().ok()
    _check_histories(learner.run)  # its cuts may be overwritten already: rings go on while it comes back


def _steps_in(learner: harness.Learner, seconds: float) -> int:
    """Returns the steps stored within a time."""
    before = learner.until(lambda found: True, "a status")["env_steps"]
    end = time.monotonic() + seconds
    harness.wait_for(lambda: time.monotonic() >= end, "the time to pass", alive=learner)
    return learner.until(lambda found: True, "a status")["env_steps"] - before
