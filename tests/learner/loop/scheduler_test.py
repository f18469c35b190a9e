"""The next call: a pure function of one snapshot of facts."""

from __future__ import annotations

import math
from typing import NamedTuple

import loop_world
import pytest

from seedzero.learner.loop import rate_limiting, replay_rate, scheduler

READY = loop_world.READY._replace(can_evaluate=True, evaluating=True)
ACT, UPDATE, EVALUATE = rate_limiting.Work.ACT, rate_limiting.Work.UPDATE, rate_limiting.Work.EVALUATE
BAND = replay_rate.SampleBand(4.0, 64, 100, 200.0, replay_rate.ReanalyseRatio(0.0, 1, 0, 0.0))


class Told(NamedTuple):
    """A pace that chooses as it is told, and changes its mind at a time."""

    work: rate_limiting.Work
    owed: float = 0.0
    until: float = math.inf

    def choose(self, progress: rate_limiting.Progress, now: float) -> rate_limiting.Work:
        return self.work

    def debt(self, progress: rate_limiting.Progress) -> float:
        return self.owed

    def num_due(self, progress: rate_limiting.Progress) -> int:
        return 0


def _facts(
    *rates: rate_limiting.RateState, progress: rate_limiting.Progress = READY, **more: object
) -> scheduler.Facts:
    return scheduler.Facts(10.0, (progress,) * len(rates), rates)._replace(**more)


IN_LOCK_STEP = [
    ([("act", 0.2), ("act", 0.9)], ("act", (0, 1))),
    ([("act", 0.9), ("update", 0.2)], ("update", (1,))),  # all act together, or none
    ([("act", 0.9), ("wait", 0.2)], None),
    ([("reanalyse", 0.1), ("act", 0.9), ("update", 0.2)], ("update", (2,))),
]


@pytest.mark.parametrize(
    ("choices", "expected", "lock_step"),
    [
        ([("act", 0.1)], ("act", (0,)), False),
        ([("wait", 9.0)], None, False),
        ([("wait", 9.0), ("wait", 0.0)], None, False),
        ([("wait", 9.0), ("update", -0.5)], ("update", (1,)), False),
        ([("update", 0.5), ("update", 2.0)], ("update", (1,)), False),  # not the first with work
        ([("update", 2.0), ("update", 2.0)], ("update", (0,)), False),
        ([("act", 0.2), ("act", 0.9)], ("act", (0, 1)), False),
        ([("act", 0.9), ("update", 0.2), ("act", -1.0)], ("act", (0, 2)), False),  # not past the band of the second
        ([("act", 0.2), ("reanalyse", 1.5), ("act", 0.3)], ("reanalyse", (1,)), False),
        ([("evaluate", 0.0), ("evaluate", 1.0)], ("evaluate", (1,)), False),
        *((*case, True) for case in IN_LOCK_STEP),
    ],
)
def test_the_largest_debt_chooses_and_in_lock_step_all_act_or_none(
    choices: list[tuple[str, float]], expected: tuple[str, tuple[int, ...]] | None, lock_step: bool
) -> None:
    rates = (Told(rate_limiting.Work(name), debt) for name, debt in choices)
    decision = scheduler.decide(_facts(*rates, lock_step=lock_step))
    if expected is None:
        assert isinstance(decision, scheduler.Wait)
    else:
        assert decision == scheduler.Call(rate_limiting.Work(expected[0]), expected[1])


def test_two_players_learn_in_turn() -> None:
    """1000 inserts at 4 samples each owe 4000 windows, 62.5 updates of 64."""
    behind = [READY._replace(num_updates=n, can_act=False, can_evaluate=False) for n in (48, 51)]
    updates: list[int] = []
    for _ in range(13):
        decision = scheduler.decide(scheduler.Facts(0.0, tuple(behind), (BAND, BAND)))
        assert isinstance(decision, scheduler.Call) and decision.kind is UPDATE
        (number,) = decision.players
        updates.append(number)
        behind[number] = behind[number]._replace(num_updates=behind[number].num_updates + 1)
    assert updates == [0, 0, 0, *[0, 1] * 5]


def test_where_only_an_evaluation_runs_no_pace_is_asked() -> None:
    alone = _facts(Told(ACT), Told(UPDATE, 5.0), only_evaluates=True)
    assert scheduler.decide(alone) == scheduler.Call(EVALUATE, (1,))
    silent = alone._replace(players=(READY._replace(can_evaluate=False),) * 2)
    assert scheduler.decide(silent) == scheduler.Wait(math.inf, ("device_idle_seconds",))


def test_it_waits_until_the_next_time_that_may_change_the_decision() -> None:
    waiting = Told(rate_limiting.Work.WAIT)
    assert scheduler.decide(_facts(waiting, deadlines=(9.0, 10.0, 12.5, 11.0, math.inf))) == scheduler.Wait(
        11.0, ("device_idle_seconds", "acting_held_seconds", "updating_held_seconds")
    )
    assert scheduler.decide(_facts(waiting, deadlines=(-math.inf, 10.0), is_idle=False)) == scheduler.Wait()


@pytest.mark.parametrize(
    ("can_act", "can_update", "held"),
    [(True, False, ["acting_held_seconds"]), (False, True, ["updating_held_seconds"]), (False, False, [])],
)
def test_idle_seconds_are_the_pace_s_where_work_is_ready(can_act: bool, can_update: bool, held: list[str]) -> None:
    progress = READY._replace(can_act=can_act, can_update=can_update)
    decision = scheduler.decide(_facts(Told(rate_limiting.Work.WAIT), progress=progress))
    assert decision == scheduler.Wait(math.inf, ("device_idle_seconds", *held))
