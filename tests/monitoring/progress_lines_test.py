"""Rates over the last seconds, and the reason why a run stands still."""

from __future__ import annotations

import pytest

from seedzero.config import configs, options
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


IMAGE = types.EnvSpec((96, 96, 1), "uint8", 6)
GRID = types.EnvSpec((21, 79), "uint8", 8)
VECTOR = types.EnvSpec((4,), "float32", 2)


def _config(**values: options.Value) -> configs.Config:
    return configs.override(configs.Config(), {name.replace("__", "."): x for name, x in values.items()})


def _snapshot(steps: int, updates: int) -> counts.Snapshot:
    return counts.Snapshot(counts=counts.Counts(stored=steps), num_updates=updates)


def _told(config: configs.Config, spec: types.EnvSpec, steps_per_second: float, updates_per_second: float) -> str:
    return progress_lines.forecast_sentence(config, spec, _snapshot(0, 0), steps_per_second, updates_per_second)


@pytest.mark.parametrize("before", [0, 500])
def test_it_is_measured_from_the_first_update_of_this_process_and_said_once(before: int) -> None:
    found = progress_lines.Forecast(_config(run__max_updates=10_500))
    told = {}
    # 100 s of compilation, an update, one every 10 s: the time before the first does not count.
    for now, updates in [(0, 0), (100, 0), (101, 1), (111, 2), (121, 3), (131, 4), (141, 5), (151, 6)]:
        if text := found.observe(float(now), _snapshot(10 * now, before + updates), VECTOR):
            told[now] = text
    hours = (10_500 - before - 4) * 10 / 3600
    assert list(told) == [131]
    needs = f"this CPU needs about {hours:.0f} hours for the rest of 10,500 updates"
    assert told[131].startswith(f"at 10 steps/s and 0.1 updates/s {needs}")


def test_few_updates_are_measured_for_longer() -> None:
    found = progress_lines.Forecast(_config())
    readings = [(0, 0), (100, 1), (150, 2), (200, 3), (250, 4)]
    told = [bool(found.observe(float(now), _snapshot(now, updates), VECTOR)) for now, updates in readings]
    assert told == [False, False, False, False, True]


def test_updates_that_come_alone_are_enough_without_a_budget_of_steps() -> None:
    found = progress_lines.Forecast(_config())
    told = [found.observe(float(now), _snapshot(500, now // 10), VECTOR) for now in range(41)]
    assert not any(told[:-1]) and " 0.1 updates/s; " in told[-1]
    assert all(change in told[-1] for change in ("--network.width=64", "--replay.batch_size=256", "--agent=ppo"))


def test_updates_that_come_alone_are_not_measured_for_a_budget_of_steps() -> None:
    found = progress_lines.Forecast(_config(run__max_env_steps=1_000_000))
    for now in range(100):
        assert not found.observe(float(now), _snapshot(500, now // 10), VECTOR)
    for now in range(100, 200):
        if text := found.observe(float(now), _snapshot(500 + now, now // 10), VECTOR):
            break
    assert now == 129 and text.startswith("at ") and "steps/s and 0.1 updates/s" in text


def test_atari_on_a_cpu_has_its_hours_and_what_is_won_sooner() -> None:
    text = _told(_config(env__id="atari:Pong", run__max_env_steps=50_000_000), IMAGE, 100.0, 3.5)
    assert (
        " 100 steps/s " in text and " 3.5 updates/s " in text and " 139 hours " in text and " 50,000,000 steps" in text
    )
    assert "--env=gym:MinAtar/Breakout-v1" in text and "--preset=cartpole" in text
    assert "--preset=catch" in text and "MinAtar" in text


def test_muzero_on_a_large_grid_is_told_what_to_make_smaller() -> None:
    settings = {"muzero__target_network_updates": 100, "replay__batch_size": 256, "network__width": 64}
    text = _told(_config(**settings), GRID, 30.0, 0.4)
    assert " 30 steps/s " in text and " 0.4 updates/s; " in text and "hours" not in text
    for change in (
        "--muzero.target_network_updates=0",
        "--network.channels=32",
        "--replay.batch_size=256",
        "=ppo",
    ):
        assert change in text
    assert "--network.width=64" in _told(_config(**settings), VECTOR, 30.0, 0.4)
    assert _told(_config(run__agent="ppo"), GRID, 30.0, 0.4) == ""  # nobody asked for so many updates


def test_a_time_that_ends_the_run_before_other_budgets_leaves_nothing_to_forecast() -> None:
    long = _config(run__max_seconds=120.0, run__max_updates=10_000)
    assert _told(long, VECTOR, 30.0, 0.4) == _told(_config(run__max_seconds=120.0), GRID, 30.0, 0.4) == ""
    days = configs.override(long, {"run.max_seconds": 1e6})
    assert "about 7 hours for the rest of 10,000 updates" in _told(days, VECTOR, 30.0, 0.4)


def test_images_without_a_budget_are_told_where_they_learn_and_no_hours() -> None:
    text = _told(_config(env__id="atari:Pong"), IMAGE, 100.0, 0.5)
    assert text.startswith("at 100 steps/s and 0.5 updates/s; images want an accelerator") and "hours" not in text


@pytest.mark.parametrize(
    ("budget", "steps_per_second", "updates_per_second"),
    [({}, 100.0, 1.5), ({"run__max_updates": 100}, 1.0, 0.1), ({"run__max_env_steps": 1_000_000}, 1_000.0, 70.0)],
)
def test_a_run_that_is_not_long_is_told_nothing(
    budget: dict[str, options.Value], steps_per_second: float, updates_per_second: float
) -> None:
    assert _told(_config(**budget), VECTOR, steps_per_second, updates_per_second) == ""
