"""Rates over the last seconds, and the reason why a run stands still."""

import pytest

from seedzero.core import types
from seedzero.monitoring import progress_lines
from seedzero.monitoring.metrics import counts


class Run:
    """A clock and the counters of a loop."""

    def __init__(self) -> None:
        self.now = 100.0
        self.snapshot = counts.Snapshot(is_compiled=True)
        self.silent = ""

    def advance(self, seconds: float, *, stored: int = 0, updates: int = 0) -> None:
        self.now += seconds
        old = self.snapshot
        new = counts.Counts(stored=old.counts.stored + stored)
        self.snapshot = old._replace(counts=new, num_updates=old.num_updates + updates)


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture
def shown(run: Run) -> progress_lines.RunProgress:
    shown = progress_lines.RunProgress(lambda: run.now, lambda: run.silent)
    shown.follow(lambda: run.snapshot)
    return shown


def test_before_there_is_a_loop_all_counters_are_zero_and_the_reason_is_named(run: Run) -> None:
    shown = progress_lines.RunProgress(lambda: run.now, lambda: run.silent)
    assert shown.snapshot() == counts.Snapshot()
    assert "worker" in str(shown.stalled(0))
    run.silent = "worker a has made no environments for 40 s"
    assert shown.stalled(0) == "worker a has made no environments for 40 s"
    shown.show(types.EnvSpec(observation_shape=(1,), observation_dtype="uint8", num_actions=2))
    assert shown.stalled(1) == "building the networks (1 of 3)"


def test_a_rate_is_that_of_any_counter_over_the_last_seconds(run: Run, shown: progress_lines.RunProgress) -> None:
    shown.observe(run.now)
    assert shown.per_second(lambda snapshot: snapshot.num_updates) == 0.0
    for _ in range(20):
        run.advance(1.0, stored=30, updates=2)
        shown.observe(run.now)
    assert shown.per_second(lambda snapshot: snapshot.num_updates) == 2.0
    assert shown.per_second(lambda snapshot: snapshot.counts.stored) == 30.0
    for seconds in (80.0, 5.0):
        run.advance(seconds)
        shown.observe(run.now)
    assert shown.per_second(lambda snapshot: snapshot.counts.stored) == 0.0
    assert shown.seconds() == 105.0


def test_a_run_stands_still_without_workers_programs_or_progress(run: Run, shown: progress_lines.RunProgress) -> None:
    assert shown.stalled(0) == "waiting for the first worker"
    run.advance(1.0, stored=1)
    shown.observe(run.now)
    assert shown.stalled(0) == "no training worker is connected"
    assert shown.stalled(1) is None
    run.advance(31.0)
    shown.observe(run.now)
    assert " 31 s" in (silent := str(shown.stalled(1)))
    run.snapshot = run.snapshot._replace(evaluating=True)
    evaluating = str(shown.stalled(1))
    assert evaluating.startswith(f"{silent}; ") and "an evaluation is under way" in evaluating
    run.snapshot = run.snapshot._replace(lacking="device 1")
    assert shown.stalled(1) == "device 1"
    assert shown.stalled(0) == "no training worker is connected"
    run.silent = "worker w3 has sent no step for 75 s"
    assert shown.stalled(0) == shown.stalled(1) == "worker w3 has sent no step for 75 s"
    run.silent = ""
    run.snapshot = run.snapshot._replace(remaining="0 of 2")
    assert shown.stalled(1) == "0 of 2"
    run.snapshot = run.snapshot._replace(is_compiled=False)
    run.snapshot = run.snapshot._replace(compiling="the update (3 of 3)")
    assert shown.stalled(1) == shown.preparing(1) == "compiling the update (3 of 3)" and shown.preparing(0) == ""
    shown.end("saving")
    assert shown.stalled(1) == "saving"
