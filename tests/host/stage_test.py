"""The stage of a run, its transitions, and whether a call may hang in it."""

from __future__ import annotations

import itertools
import types as python_types
from typing import Any

import pytest

from seedzero.core import errors
from seedzero.host import stage as stages

Stage = stages.Stage


@pytest.mark.parametrize(("at", "target"), list(itertools.product(Stage, Stage)))
def test_a_stage_follows_as_the_table_says_or_is_refused_by_name(at: stages.Stage, target: stages.Stage) -> None:
    if (at, target) in {
        (Stage.PREPARED, Stage.BUILDING),
        (Stage.PREPARED, Stage.OVER),
        (Stage.BUILDING, Stage.PREPARED),
        (Stage.BUILDING, Stage.BUILT),
        (Stage.BUILT, Stage.SAVING),
        (Stage.BUILT, Stage.OVER),
        (Stage.SAVING, Stage.OVER),
    }:
        assert at.to(target) is target
    else:
        with pytest.raises(RuntimeError, match=f"{target.value}: .* {at.value!r}"):
            at.to(target)


def _loop(pulse: int | None = 7) -> Any:
    return python_types.SimpleNamespace(pulse=lambda: pulse)


def test_a_loop_is_there_from_its_building_to_the_end_of_its_run() -> None:
    stage, loop, seen = stages.RunStage(), _loop(), list[Any]()

    def make() -> Any:
        seen.append((stage.now, stage.loop))
        return loop

    stage.build(make)
    seen.append((stage.now, stage.loop))
    assert stage.save() is loop
    seen.append((stage.now, stage.loop))
    stage.end()
    seen.append((stage.now, stage.loop))
    assert seen == [(Stage.BUILDING, None), (Stage.BUILT, loop), (Stage.SAVING, loop), (Stage.OVER, None)]


def test_a_run_whose_building_failed_is_as_before() -> None:
    def refuse() -> Any:
        raise errors.CapacityError("too large")

    stage = stages.RunStage()
    with pytest.raises(errors.CapacityError):
        stage.build(refuse)
    assert stage.now is Stage.PREPARED and stage.loop is None
    with pytest.raises(RuntimeError, match="saving"):
        stage.save()
    assert stage.now is Stage.PREPARED


def test_only_building_and_calls_on_the_device_are_ended_by_force() -> None:
    def pulses(pulse: int | None) -> list[object]:
        stage, seen = stages.RunStage(), list[object]()

        def make() -> Any:
            seen.append(stage.pulse())
            return _loop(pulse)

        for step in (lambda: None, lambda: stage.build(make), stage.save, stage.end):
            step()
            seen.append(stage.pulse())
        return seen

    # waiting for the first worker, building, built, saving, over
    assert pulses(7) == [None, "building", 7, None, None]
    assert pulses(None) == [None, "building", None, None, None]
