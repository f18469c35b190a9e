"""The stage of a run, its transitions, and whether a call may hang in it."""

from __future__ import annotations

import itertools
import types as python_types
from typing import Any

import pytest

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import registry
from seedzero.learner import stages
from seedzero.monitoring.metrics import counts

Stage = stages.Stage
CATCH = registry.spec(sections.EnvConfig(id="catch"))


@pytest.mark.parametrize(("at", "target"), list(itertools.product(Stage, Stage)))
def test_a_stage_follows_as_the_table_says_or_is_refused_by_name(at: stages.Stage, target: stages.Stage) -> None:
    stage = stages.RunStage(_unexpected, _unexpected, at)
    if (at, target) in {
        (Stage.PREPARED, Stage.BUILDING),
        (Stage.PREPARED, Stage.OVER),
        (Stage.BUILDING, Stage.PREPARED),
        (Stage.BUILDING, Stage.BUILT),
        (Stage.BUILT, Stage.SAVING),
        (Stage.BUILT, Stage.OVER),
        (Stage.SAVING, Stage.OVER),
    }:
        stage.enter(target)
        assert stage.now is target
    else:
        with pytest.raises(RuntimeError, match=f"{target.value}: .* {at.value!r}"):
            stage.enter(target)
        assert stage.now is at


def _unexpected(argument: Any) -> Any:
    raise AssertionError(argument)


def _loop(pulse: int | None = 7) -> Any:
    return python_types.SimpleNamespace(pulse=lambda: pulse, look=lambda: counts.Snapshot(num_updates=25))


def test_a_loop_is_there_from_its_building_to_the_end_of_its_run() -> None:
    loop, followed, seen = _loop(), list[Any](), list[Any]()

    def make(spec: types.EnvSpec) -> Any:
        seen.append((spec, stage.now, stage.loop))
        return loop

    stage = stages.RunStage(make, followed.append)
    stage.build(CATCH)
    assert followed == [loop.look]
    for target in (Stage.SAVING, Stage.OVER):
        seen.append((stage.now, stage.loop))
        stage.enter(target)
    seen.append((stage.now, stage.loop))
    assert seen == [(CATCH, Stage.BUILDING, None), (Stage.BUILT, loop), (Stage.SAVING, loop), (Stage.OVER, None)]


def test_a_run_whose_building_failed_is_as_before() -> None:
    def refuse(spec: types.EnvSpec) -> Any:
        raise errors.CapacityError("too large")

    stage = stages.RunStage(refuse, _unexpected)
    with pytest.raises(errors.CapacityError):
        stage.build(CATCH)
    assert stage.now is Stage.PREPARED and stage.loop is None


@pytest.mark.parametrize("pulse", [7, None])
def test_only_building_and_calls_on_the_device_are_ended_by_force(pulse: int | None) -> None:
    seen: list[object] = []

    def make(spec: types.EnvSpec) -> Any:
        seen.append(stage.pulse())
        return _loop(pulse)

    stage = stages.RunStage(make, lambda read: None)
    seen.append(stage.pulse())
    stage.build(CATCH)
    seen.append(stage.pulse())
    for target in (Stage.SAVING, Stage.OVER):
        stage.enter(target)
        seen.append(stage.pulse())
    assert seen == [None, "building", pulse, None, None]
