"""The pace of a replay: the samples-per-insert band, and lock step."""

from __future__ import annotations

import math
from collections.abc import Callable

import loop_world
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.config import sections
from seedzero.learner.loop import players, rate_limiting, replay_rate

ACT, UPDATE, REANALYSE, EVALUATE, WAIT = (
    rate_limiting.Work(name) for name in ("act", "update", "reanalyse", "evaluate", "wait")
)
choose, lock_step = replay_rate.choose, replay_rate.choose_lock_step
NONE = replay_rate.ReanalyseRatio(per_insert=0.0, batch_size=64, min_age=0, slack=0.0)
BAND = replay_rate.SampleBand(samples_per_insert=4.0, batch_size=64, min_steps=100, half_width=200.0, reanalysing=NONE)
REFRESHING = BAND._replace(
    reanalysing=replay_rate.ReanalyseRatio(per_insert=0.5, batch_size=64, min_age=10, slack=150.0)
)
READY = loop_world.READY._replace(can_reanalyse=True)


def _at_surplus(windows: float, **changes: object) -> rate_limiting.Progress:
    """1000 inserts at 4 samples each owe 4000 windows, 62.5 updates of 64."""
    return READY._replace(num_updates=int((4000 + windows) / 64), **changes)


def _make(max_batch: int, per_insert: float = 0.0) -> replay_rate.SampleBand:
    replay = sections.ReplayConfig(batch_size=64, samples_per_insert=4.0, min_steps=100)
    reanalyse = base.Reanalyse(per_insert, 64, min_age=10, length=1, observe=(0,), compute=lambda *args: ({}, {}))
    return replay_rate.make_band(replay, reanalyse if per_insert else None, max_batch)


@pytest.mark.parametrize("surplus", [-1000, 0, 10_000])
def test_after_the_last_step_updates_need_no_new_ones(surplus: float) -> None:
    last = _at_surplus(surplus, can_act=False, only_learns=True)
    for rules in (choose, lock_step):
        assert rules(BAND, last) is UPDATE
        assert rules(BAND, last._replace(can_update=False)) is WAIT
        assert rules(BAND, last._replace(num_kept=99)) is not UPDATE
    assert choose(BAND, last._replace(can_evaluate=True)) is EVALUATE


def test_updates_are_due_while_windows_are_short_of_the_ratio() -> None:
    assert [BAND.num_due(_at_surplus(windows)) for windows in (-160, 0, 160)] == [3, 1, 0]
    assert BAND.num_due(_at_surplus(-160)._replace(num_kept=99)) == 0


def test_a_debt_counts_in_half_widths_of_the_band() -> None:
    assert [BAND.debt(_at_surplus(windows)) for windows in (-160, 0, 160)] == pytest.approx([0.8, 0.16, -0.8])
    assert BAND.debt(_at_surplus(-160)._replace(num_kept=99)) == 0.0
    # 500 rows are owed, a slack is 150; with 7 calls of 64, 52 are left.
    assert REFRESHING.debt(_at_surplus(0)) == pytest.approx(500 / 150)
    assert REFRESHING.debt(_at_surplus(0)._replace(num_reanalyses=7)) == pytest.approx(52 / 150)


def test_another_ratio_holds_from_the_resume_on() -> None:
    changed = BAND._replace(samples_per_insert=8.0, start=(62, 1000))
    assert changed.surplus(_at_surplus(0)) == 0
    assert changed.surplus(_at_surplus(0)._replace(num_inserts=1016)) == -128


@pytest.mark.parametrize(
    ("pace", "start"),
    [
        ({"samples_per_insert": 4.0, "since": [0, 0]}, (0, 0)),
        ({"samples_per_insert": 4.0, "since": [10, 200]}, (10, 200)),
        ({"samples_per_insert": 2.0, "since": [10, 200]}, (50, 1000)),
    ],
)
def test_the_ratio_begins_where_it_changed(pace: dict[str, object], start: tuple[int, int]) -> None:
    replay = sections.ReplayConfig(samples_per_insert=4.0, batch_size=16, final_updates=3)
    counters = {"num_updates": 50, "ledger": {"stored": 1000}, "pace": pace}
    assert replay_rate.start_of(replay, counters) == start
    assert replay_rate.owed_updates(replay, 2000, start) == start[0] + (2000 - start[1]) // 4 + 3


WARMING_UP = READY._replace(num_inserts=99, num_kept=99)


@pytest.mark.parametrize(
    ("rules", "progress", "work"),
    [
        (choose, _at_surplus(-300), UPDATE),  # below the band only updates run
        (choose, _at_surplus(-300, can_update=False), WAIT),
        (choose, _at_surplus(300), ACT),  # above it only acting
        (choose, _at_surplus(300, can_act=False), WAIT),
        (choose, _at_surplus(0), ACT),  # inside it acting goes first, and updates fill its gaps
        (choose, _at_surplus(0, can_act=False), UPDATE),
        (choose, WARMING_UP, ACT),  # no update before the minimum of steps
        (choose, WARMING_UP._replace(can_act=False), WAIT),
        # After a resume without its replay it acts, however many updates are owed.
        (choose, _at_surplus(-300, num_kept=0, can_update=False), ACT),
        (choose, _at_surplus(-300, num_kept=99), ACT),
        # Evaluation is exempt from the band, and takes turns with acting.
        (choose, _at_surplus(0, can_evaluate=True), EVALUATE),
        (choose, _at_surplus(0, can_evaluate=True, evaluated_last=True), ACT),
        (choose, _at_surplus(-300, can_evaluate=True, evaluated_last=True), EVALUATE),
        # In lock step counters alone decide.
        (lock_step, _at_surplus(-300, num_kept=99), ACT),
        (lock_step, READY._replace(can_update=False), WAIT),  # instead of acting, for an update that is not compiled
        (lock_step, READY._replace(evaluating=True), WAIT),  # nothing else while it evaluates
        (lock_step, READY._replace(evaluating=True, can_evaluate=True), EVALUATE),
    ],
)
def test_the_band_decides(
    rules: Callable[..., rate_limiting.Work], progress: rate_limiting.Progress, work: rate_limiting.Work
) -> None:
    assert rules(BAND, progress) is work


@pytest.mark.parametrize("max_batch", [1, 32, 1000])
def test_the_ratio_stays_in_the_band_when_both_sides_are_always_ready(max_batch: int) -> None:
    band = _make(max_batch)
    progress = READY._replace(num_inserts=0, num_kept=0)
    for _ in range(5000):
        work = choose(band, progress)
        assert work is not WAIT
        if work is ACT:
            stored = progress.num_inserts + max_batch
            progress = progress._replace(num_inserts=stored, num_kept=stored)
        else:
            progress = progress._replace(num_updates=progress.num_updates + 1)
    assert abs(band.surplus(progress)) <= band.half_width + 4.0 * max_batch
    assert progress.num_updates > 0 and progress.num_inserts > 100


def test_lock_step_updates_as_soon_as_a_whole_batch_is_owed() -> None:
    owed = READY._replace(num_inserts=100, num_kept=100)  # 400 windows: 6 whole updates
    assert [lock_step(BAND, owed._replace(num_updates=n)) for n in range(8)] == ([UPDATE] * 6 + [ACT] * 2)


class TestRefreshing:
    """1000 inserts at 0.5 a step owe 500 rows: 7 whole calls of 64, then 52."""

    def test_it_fills_the_device_where_nothing_else_can_run(self) -> None:
        nearly_done = _at_surplus(0, num_reanalyses=6)
        assert choose(REFRESHING, nearly_done) is ACT
        assert choose(REFRESHING, nearly_done._replace(can_act=False)) is UPDATE
        idle = nearly_done._replace(can_act=False, can_update=False)
        assert choose(REFRESHING, idle) is REANALYSE
        assert choose(REFRESHING, idle._replace(can_reanalyse=False)) is WAIT
        assert choose(REFRESHING, idle._replace(num_reanalyses=7)) is WAIT

    def test_too_far_behind_it_goes_before_acting_but_not_before_updates_below_the_band(self) -> None:
        assert choose(REFRESHING, _at_surplus(0, num_reanalyses=5)) is REANALYSE  # 180 behind
        assert choose(REFRESHING, _at_surplus(300, num_reanalyses=5)) is REANALYSE
        assert choose(REFRESHING, _at_surplus(-300, num_reanalyses=5)) is UPDATE
        evaluating = _at_surplus(0, num_reanalyses=5, can_evaluate=True)
        assert choose(REFRESHING, evaluating) is EVALUATE

    def test_nothing_is_refreshed_before_any_target_can_be_old_enough(self) -> None:
        young = READY._replace(num_updates=10, num_inserts=160, num_kept=160, can_act=False, can_update=False)
        older = young._replace(num_updates=11)
        assert choose(REFRESHING, young) is WAIT
        assert choose(REFRESHING, older) is REANALYSE
        assert choose(REFRESHING, older._replace(num_kept=99)) is WAIT

    def test_without_it_nothing_is_owed(self) -> None:
        idle = _at_surplus(0, can_act=False, can_update=False)
        assert choose(BAND, idle) is WAIT
        assert lock_step(BAND, _at_surplus(0)) is ACT

    @pytest.mark.parametrize("per_insert", [0.1, 1.0, 20.0])
    @pytest.mark.parametrize("max_batch", [1, 32, 1000])
    def test_both_ratios_are_kept_on_a_device_that_is_never_idle(self, per_insert: float, max_batch: int) -> None:
        band = _make(max_batch, per_insert=per_insert)
        progress = READY._replace(num_inserts=0, num_kept=0)
        for _ in range(5000):
            work = choose(band, progress)
            if work is ACT:
                stored = progress.num_inserts + max_batch
                progress = progress._replace(num_inserts=stored, num_kept=stored)
            elif work is UPDATE:
                progress = progress._replace(num_updates=progress.num_updates + 1)
            else:
                assert work is REANALYSE
                progress = progress._replace(num_reanalyses=progress.num_reanalyses + 1)
        assert abs(band.surplus(progress)) <= band.half_width + 4.0 * max_batch
        assert -64 <= band.reanalysing.num_owed(progress) <= band.reanalysing.slack + per_insert * max_batch + 1e-6
        assert progress.num_reanalyses > 0

    def test_in_lock_step_whole_calls_run_after_the_owed_updates_and_before_acting(self) -> None:
        progress, order = READY._replace(num_updates=55), []  # 480 windows owed: 7 whole updates
        while (work := lock_step(REFRESHING, progress)) is not ACT:
            order.append(work)
            if work is UPDATE:
                progress = progress._replace(num_updates=progress.num_updates + 1)
            else:
                progress = progress._replace(num_reanalyses=progress.num_reanalyses + 1)
        assert order == [UPDATE] * 7 + [REANALYSE] * 7
        owing = READY._replace(num_updates=62, can_reanalyse=False)
        assert lock_step(REFRESHING, owing) is WAIT


@pytest.mark.parametrize("is_fixed", [False, True])
def test_an_agent_that_samples_keeps_the_ratio_of_its_replay(reanalysing: loop_world.Device, is_fixed: bool) -> None:
    config = loop_world.configured(reanalysing, {"run__deterministic": is_fixed})
    rate_limiter = players.make_pacer(config, reanalysing.setup)
    reanalyse = reanalysing.setup.agent.reanalyse
    assert reanalyse is not None
    band = replay_rate.make_band(config.replay, reanalyse, loop_world.SIZES[-1])
    assert band.reanalysing.per_insert == 0.5
    rules = lock_step if is_fixed else choose
    for num_updates in (0, 24, 25, 26, 100):
        for num_reanalyses in (0, 25, 26):
            progress = READY._replace(num_updates=num_updates, num_reanalyses=num_reanalyses, can_reanalyse=True)
            assert rate_limiter.rate().choose(progress, 0.0) is rules(band, progress)
    assert rate_limiter.num_samples(7, 1000) == 7 * loop_world.BATCH


def test_an_agent_that_does_not_refresh_owes_none(device: loop_world.Device) -> None:
    rate_limiter = players.make_pacer(loop_world.configured(device, {}), device.setup)
    idle = READY._replace(num_updates=25, can_act=False, can_update=False, can_reanalyse=True)
    assert rate_limiter.rate().choose(idle, 0.0) is WAIT


def test_a_replay_holds_nobody_and_loses_no_step(device: loop_world.Device) -> None:
    rate_limiter = players.make_pacer(loop_world.configured(device, {}), device.setup)
    slots = np.arange(4)
    for _ in range(100):
        rate_limiter.record(slots, slots, np.zeros(4, bool), 0.0)
    assert not rate_limiter.holds(slots) and math.isinf(rate_limiter.rate().until)
    assert rate_limiter.cut(slots) == rate_limiter.drop() == rate_limiter.num_waiting == 0
    fed = rate_limiter.feed(17, 0.0)
    assert fed == 17 and fed.dtype == np.int32


def test_a_checkpoint_keeps_the_pace_and_a_changed_ratio_begins_there(device: loop_world.Device) -> None:
    def paced(samples_per_insert: float) -> rate_limiting.RateLimiter:
        return players.make_pacer(
            loop_world.configured(device, {"replay__samples_per_insert": samples_per_insert}), device.setup
        )

    counters = {"num_updates": 10_000, "ledger": {"stored": 1_000}, **paced(2.0).to_json()}
    here = READY._replace(num_inserts=1_000, num_kept=1_000, num_updates=10_000)
    same, changed = paced(2.0), paced(1.0)
    same.restore(counters)
    changed.restore(counters)
    assert same.rate().choose(here._replace(can_act=False), 0.0) is WAIT  # far above its band
    assert changed.rate().choose(here._replace(can_act=False), 0.0) is UPDATE
    assert changed.rate().choose(here._replace(num_inserts=10**6), 0.0) is UPDATE
    assert changed.rate().choose(here, 0.0) is ACT
    again = paced(1.0)
    again.restore({**counters, "num_updates": 99, **changed.to_json()})
    assert again.to_json() == changed.to_json()
