"""The pace that goes with an agent's data."""

from __future__ import annotations

import math

import loop_world
import numpy as np
import pytest

from seedzero.loop import limiter, pacing, queue_pacing

READY = limiter.Progress(
    num_inserts=100,
    num_kept=100,
    num_updates=0,
    num_refreshes=0,
    can_act=True,
    can_evaluate=False,
    can_update=True,
    can_refresh=False,
    evaluating=False,
    evaluated_last=False,
)


@pytest.mark.parametrize("lock_step", [False, True])
def test_an_agent_that_samples_keeps_the_ratio_of_its_replay(refreshing: loop_world.Device, lock_step: bool) -> None:
    config = loop_world.configured(refreshing, {"run__deterministic": lock_step})
    pacer = pacing.make(config, refreshing.setup)
    refresh = refreshing.setup.agent.refresh
    assert refresh is not None
    band = limiter.make(config.replay, refresh, loop_world.SIZES[-1])
    assert band.refreshing.per_insert == 0.5
    rules = limiter.choose_lock_step if lock_step else limiter.choose
    for num_updates in (0, 24, 25, 26, 100):
        for num_refreshes in (0, 25, 26):
            progress = READY._replace(num_updates=num_updates, num_refreshes=num_refreshes, can_refresh=True)
            assert pacer.pace().choose(progress, 0.0) is rules(band, progress)
    assert pacer.num_samples(7, 1000) == 7 * loop_world.BATCH


def test_an_agent_that_does_not_refresh_owes_none(device: loop_world.Device) -> None:
    pacer = pacing.make(loop_world.configured(device, {}), device.setup)
    idle = READY._replace(num_updates=25, can_act=False, can_update=False, can_refresh=True)
    assert pacer.pace().choose(idle, 0.0) is limiter.Work.WAIT


def test_a_replay_holds_nobody_and_loses_no_step(device: loop_world.Device) -> None:
    pacer = pacing.make(loop_world.configured(device, {}), device.setup)
    slots = np.arange(4)
    for _ in range(100):
        pacer.record(slots, slots, np.zeros(4, bool), 0.0)
    assert not pacer.holds(slots) and math.isinf(pacer.pace().until)
    assert pacer.cut(slots) == pacer.drop() == pacer.num_waiting == 0
    fed = pacer.feed(17, 0.0)
    assert fed == 17 and fed.dtype == np.int32


@pytest.mark.parametrize("lock_step", [False, True])
def test_an_agent_with_a_queue_learns_from_unrolls(queued: loop_world.Device, lock_step: bool) -> None:
    pacer = pacing.make(loop_world.configured(queued, {"run__deterministic": lock_step}), queued.setup)
    assert isinstance(pacer, queue_pacing.QueuePacer)
    slots = np.arange(4)
    for row in range(loop_world.UNROLL + 1):
        assert pacer.pace().choose(READY, 0.0) is limiter.Work.ACT
        pacer.record(slots, slots, np.full(4, row == 0), 0.0)
    blocked = READY._replace(can_update=False)
    assert pacer.pace().choose(blocked, 0.0) is (limiter.Work.WAIT if lock_step else limiter.Work.ACT)
    assert pacer.pace().choose(READY, 0.0) is limiter.Work.UPDATE
    assert pacer.feed(12, 0.0).slot.tolist() == [0, 1, 2, 3]


def test_a_checkpoint_keeps_the_pace_and_a_changed_ratio_begins_there(device: loop_world.Device) -> None:
    def paced(samples_per_insert: float) -> limiter.Pacer:
        return pacing.make(
            loop_world.configured(device, {"replay__samples_per_insert": samples_per_insert}), device.setup
        )

    host = {"num_updates": 10_000, "ledger": {"stored": 1_000}, **paced(2.0).to_json()}
    here = READY._replace(num_inserts=1_000, num_kept=1_000, num_updates=10_000)
    same, changed = paced(2.0), paced(1.0)
    same.restore(host)
    changed.restore(host)
    assert same.pace().choose(here._replace(can_act=False), 0.0) is limiter.Work.WAIT  # far above its band
    assert changed.pace().choose(here._replace(can_act=False), 0.0) is limiter.Work.UPDATE
    assert changed.pace().choose(here._replace(num_inserts=10**6), 0.0) is limiter.Work.UPDATE
    assert changed.pace().choose(here, 0.0) is limiter.Work.ACT
    again = paced(1.0)
    again.restore({**host, "num_updates": 99, **changed.to_json()})
    assert again.to_json() == changed.to_json()
