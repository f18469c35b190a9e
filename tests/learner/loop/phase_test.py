"""The phase of a run, its transitions, and the bound of the last evaluation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from seedzero.config import sections
from seedzero.learner.loop import phase
from seedzero.monitoring.metrics import counts

REASON = "--max_updates=6 reached"
END = phase.RunEnd(began=100.0, bound=phase.Bound(seconds=600.0), left_out=(3, 1_000), kept={"num_acts": 7})
COURSES = {
    phase.Phase.RUNNING: phase.RunPhase(),
    phase.Phase.LAST_EVALUATION: phase.RunPhase().after(phase.Event.SPENT, REASON, END),
    phase.Phase.OVER: phase.RunPhase().after(phase.Event.SOLVED, "a return"),
    phase.Phase.INTERRUPTED: phase.RunPhase()
    .after(phase.Event.SPENT, REASON, END)
    .after(phase.Event.STOPPED, "a signal"),
}


@pytest.mark.parametrize(("begun", "event"), list(itertools.product(phase.Phase, phase.Event)))
def test_an_event_leads_where_the_table_says_or_is_refused_by_name(begun: phase.Phase, event: phase.Event) -> None:
    assert COURSES[begun].phase is begun
    expected = {
        (phase.Phase.RUNNING, phase.Event.SPENT): phase.Phase.LAST_EVALUATION,
        (phase.Phase.RUNNING, phase.Event.SOLVED): phase.Phase.OVER,
        (phase.Phase.RUNNING, phase.Event.STOPPED): phase.Phase.INTERRUPTED,
        (phase.Phase.LAST_EVALUATION, phase.Event.SOLVED): phase.Phase.OVER,
        (phase.Phase.LAST_EVALUATION, phase.Event.EVALUATED): phase.Phase.OVER,
        (phase.Phase.LAST_EVALUATION, phase.Event.GIVEN_UP): phase.Phase.OVER,
        (phase.Phase.LAST_EVALUATION, phase.Event.STOPPED): phase.Phase.INTERRUPTED,
    }.get((begun, event))
    if expected is None:
        with pytest.raises(RuntimeError, match=event.value):
            COURSES[begun].after(event)
    else:
        assert COURSES[begun].after(event).phase is expected


def test_the_reason_of_the_end_is_the_newest_that_was_told() -> None:
    running, last = COURSES[phase.Phase.RUNNING], COURSES[phase.Phase.LAST_EVALUATION]
    assert running.over is None and not running.ends
    assert last.over is None and last.ends
    assert last.after(phase.Event.EVALUATED).over == REASON
    assert last.after(phase.Event.GIVEN_UP, "too late").over == "too late"
    assert COURSES[phase.Phase.INTERRUPTED].over == "a signal"


def test_a_checkpoint_tells_whether_the_last_evaluation_is_still_to_come() -> None:
    def told(run_phase: phase.RunPhase, *, is_spent: bool = True) -> dict[str, Any]:
        return run_phase.to_json(is_spent=is_spent)

    awaited = {phase.IN_LAST: True, phase.LEFT_OUT: (3, 1_000), "num_acts": 7}
    assert told(COURSES[phase.Phase.LAST_EVALUATION]) == told(COURSES[phase.Phase.INTERRUPTED]) == awaited
    evaluated = COURSES[phase.Phase.LAST_EVALUATION].after(phase.Event.EVALUATED)
    assert told(evaluated) == {**awaited, phase.IN_LAST: False}
    nothing = {phase.IN_LAST: False, phase.LEFT_OUT: (0, 0)}
    stopped = COURSES[phase.Phase.RUNNING].after(phase.Event.STOPPED, "a signal")
    for begun in (COURSES[phase.Phase.RUNNING], stopped):  # updates may follow the last step
        assert told(begun, is_spent=False) == nothing and told(begun) == {**nothing, phase.IN_LAST: True}
    assert told(COURSES[phase.Phase.OVER]) == nothing
    for last in (COURSES[phase.Phase.LAST_EVALUATION], COURSES[phase.Phase.INTERRUPTED]):
        assert told(last, is_spent=False) == awaited  # of --max_seconds, or the steps of all hosts


def test_the_last_one_is_awaited_while_its_environments_step_but_not_for_ever() -> None:
    last, silence = COURSES[phase.Phase.LAST_EVALUATION], phase.SILENCE_SECONDS
    assert last.last_until(0.0, 0) == 100.0 + silence  # of before the end nothing counts
    assert last.last_until(130.0, 5) == 130.0 + silence
    assert last.last_until(699.0, 10**6) == 700.0
    bounded = phase.RunPhase().after(
        phase.Event.SPENT, REASON, phase.RunEnd(bound=phase.Bound(math.inf, num_steps=10))
    )
    assert bounded.last_until(50.0, 9) == 50.0 + silence and bounded.last_until(50.0, 10) == -math.inf


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"max_seconds": 20.0}, (10.0, math.inf)),
        ({"max_seconds": 500.0}, (50.0, math.inf)),
        ({}, (600.0, math.inf)),
        ({"deterministic": True, "max_seconds": 500.0}, (math.inf, 300)),
    ],
)
def test_the_bound_of_the_last_one_is_a_tenth_of_the_budget(
    settings: dict[str, Any], expected: tuple[float, float]
) -> None:
    config = sections.EvaluationConfig(episodes=2, max_episode_steps=100)
    run = sections.RunConfig(**settings)
    assert phase.bound(run, config, 3_000) == expected
    if run.deterministic:  # a short run's is a tenth of the limit of its episodes
        assert phase.bound(run, config, 100).num_steps == 2 * 100 // 10


@pytest.mark.parametrize(
    ("evaluated", "is_solved"),
    [
        (None, False),
        ({"mean_return": 4.9}, False),
        ({"mean_return": 5.0}, True),
        ({"mean_return": 9.0, counts.CUT_SHORT: True}, False),
        ({"mean_return": math.nan}, False),
    ],
)
def test_a_return_of_whole_episodes_solves_a_run(evaluated: dict[str, Any] | None, *, is_solved: bool) -> None:
    told = phase.solved(sections.RunConfig(stop_at_return=5.0), evaluated)
    assert bool(told) == is_solved and ("--stop_at_return=5" in told) == is_solved
