"""One learner that trains on, whatever happens beside it: questions, rivals, and workers that come and go."""

from __future__ import annotations

import pathlib
import signal
import time
from typing import NamedTuple

import e2e_harness as harness
import grpc
import pytest
import raw_worker

SWITCHED = (*harness.TINY, "--env=gym:e2e_envs:Switched-v0")


class Running(NamedTuple):
    """A learner of environments that raise as long as there is a file."""

    learner: harness.Learner
    switch: pathlib.Path


@pytest.fixture(scope="module")
def running(module_host: harness.Host) -> Running:
    switch = module_host.directory / "switch"
    module_host.environment["E2E_RAISE"] = str(switch)
    learner = module_host.train(module_host.directory / "running", *SWITCHED, "--listen=127.0.0.1:0")
    assert learner.address.startswith("127.0.0.1:")
    learner.until(lambda found: found["updates"] > 0, "updates")
    return Running(learner, switch)


@pytest.mark.thorough
def test_status_of_a_running_learner_by_directory_and_by_address(host: harness.Host, running: Running) -> None:
    for where in (f"--run_dir={running.learner.run}", f"--server={running.learner.address}"):
        ended = host.seedzero("status", where)
        assert ended.code == 0
        assert set(ended.json) == {*harness.STATUS_KEYS, "alive"}
        assert ended.json["alive"] and ended.json["workers"] == 1 and ended.json["environments"] == 8
        assert ended.json["stalled"] is None and ended.json["finished"] is None
        harness.check_accounting(ended.json)


@pytest.mark.thorough
def test_an_occupied_run_directory_is_refused_with_the_pid(host: harness.Host, running: Running) -> None:
    host.environment["E2E_RAISE"] = str(running.switch)
    ended = host.train(running.learner.run, *SWITCHED).wait()
    assert ended.code == 2
    assert f"pid {running.learner.pid}" in ended.err
    running.learner.trains_on()


@pytest.mark.thorough
def test_a_worker_that_cannot_make_its_environment_is_refused(running: Running) -> None:
    raw = raw_worker.RawWorker(running.learner.address)
    raw.hello()
    code, details, kind = raw.failure()
    raw.close()
    assert (code, kind) == (grpc.StatusCode.FAILED_PRECONDITION, "SpecMismatch")
    assert "yours; " in details and " gym" in details
    assert running.learner.trains_on()["workers"] == 1


@pytest.mark.thorough
def test_workers_leave_with_success_when_told(host: harness.Host, running: Running) -> None:
    learner = running.learner
    host.environment["E2E_RAISE"] = str(running.switch)
    first, second = (host.worker(learner.address, "--num_envs=8") for _ in range(2))
    learner.until(lambda found: found["workers"] == 3, "two workers more")
    for worker, num_left in ((first, 2), (second, 1)):
        worker.send(signal.SIGTERM)
        worker.wait().ok()
        found = learner.until(lambda found, num_left=num_left: found["workers"] == num_left, "it is gone")
        assert found["environments"] == 8 * num_left
        learner.trains_on()


@pytest.mark.thorough
def test_an_environment_that_raises_once_is_started_again(running: Running) -> None:
    learner = running.learner
    running.switch.touch()
    learner.says("switched to raising")
    running.switch.unlink()
    learner.says("starting it again")
    found = learner.trains_on()
    assert found["steps_discarded"]["worker_lost"] > 0
    learner.until(lambda found: found["environments"] == 8, "its environments are back")


@pytest.mark.thorough
def test_an_environment_that_crashes_its_worker_is_started_again(running: Running) -> None:
    learner = running.learner
    before = learner.trains_on()["steps_discarded"]["worker_lost"]
    running.switch.write_text("crash")
    learner.until(lambda found: found["steps_discarded"]["worker_lost"] > before, "its worker is lost")
    learner.until(lambda found: found["environments"] == 8, "its environments are back")
    learner.trains_on()


@pytest.mark.thorough
def test_an_environment_may_fork_within_a_step(running: Running) -> None:
    learner = running.learner
    before = learner.trains_on()
    running.switch.write_text("fork")
    after = learner.trains_on()
    running.switch.unlink()
    assert after["steps_discarded"] == before["steps_discarded"]
    assert (after["workers"], after["environments"]) == (1, 8)


def test_a_second_ctrl_c_leaves_at_once(running: Running) -> None:
    """Last: it ends the learner."""
    learner = running.learner
    learner.until(lambda found: found["workers"] == 1 and not found["stalled"], "training")
    workers = list(learner.workers().values())
    for worker in workers:
        worker.suspend()  # a learner that is polite to them takes seconds to leave
    began = time.monotonic()
    learner.send(signal.SIGINT)
    learner.says("press Ctrl-C again to leave at once")
    harness.wait_for(lambda: time.monotonic() > began + 0.3, "later than an echo of the first")
    assert learner.popen.poll() is None
    learner.send(signal.SIGINT)
    assert learner.wait().code == 130  # a polite end has the code 0
    harness.wait_for(lambda: not any(worker.is_running() for worker in workers), "the workers are killed")
