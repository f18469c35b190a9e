"""The end of a learner, with its other parts imitated; `tests/e2e` has the rest."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from typing import Any

import parts_world
import pytest

from seedzero.core import errors
from seedzero.learner import endings, stages, stopping


@pytest.mark.parametrize("durable", [100, None])
@pytest.mark.parametrize(("deterministic", "failure"), [(False, True), (True, True), (True, False)])
def test_a_deterministic_run_that_failed_is_not_saved_between_its_fixed_updates(
    make_parts: parts_world.Make, deterministic: bool, failure: bool, durable: int | None
) -> None:
    world = make_parts(run__deterministic=deterministic)
    world.saves.durable_update = durable
    world.build()
    if failure:
        world.ending.fail("the worker failed")
    with pytest.raises(errors.TrainingFailure) if failure else contextlib.nullcontext():
        stopping.finish(world.parts, "stopped")
    is_saved = not (deterministic and failure)
    assert ("save" in world.calls) == is_saved and "save state" not in world.calls
    goes_on = "continues from update 100" if durable else "first checkpoint comes at update 1000, so nothing is saved"
    assert [goes_on in text for text in world.said] == [True] * (not is_saved)


def test_a_host_that_failed_saves_nothing_since_the_others_do_not(make_parts: parts_world.Make) -> None:
    world = make_parts()
    world.build()
    world.ending.fail("the worker failed")
    alone: Any = object()
    with pytest.raises(errors.TrainingFailure):
        stopping.finish(dataclasses.replace(world.parts, hosts=alone), "")
    assert world.calls == ["wait for saves"] and len(world.said) == 1


def test_hosts_meet_and_agree_on_their_state_before_they_save_it_last(make_parts: parts_world.Make) -> None:
    world = make_parts()
    world.build()
    world.loop.alike = types.SimpleNamespace(now=lambda: world.calls.append("aligned"))
    hosts: Any = types.SimpleNamespace(link=types.SimpleNamespace(gather=world.calls.append))
    stopping.finish(dataclasses.replace(world.parts, hosts=hosts), "--max_updates=6 reached")
    assert world.calls == ["the end", "aligned", "wait for saves", "save", "wait for saves"]


def test_a_signal_while_the_last_state_is_saved_does_not_abandon_it(make_parts: parts_world.Make) -> None:
    world = make_parts()
    world.build()

    def save(state: Any) -> None:
        stopping.interrupt(world.parts)

    world.saves.save = save
    stopping.interrupt(world.parts)
    assert world.calls == ["abandon", "interrupted"]  # once the loop ends, the save in progress may be the last one
    assert stopping.finish(world.parts, "--max_updates=6 reached") == "--max_updates=6 reached"
    assert world.calls == ["abandon", "interrupted", "wait for saves", "interrupted", "wait for saves"]


def test_an_interrupted_run_saves_its_small_state_first(make_parts: parts_world.Make) -> None:
    world = make_parts()
    world.build()
    stopping.interrupt(world.parts)
    (reason,) = [call for call in world.calls if call != "abandon"]
    world.calls.clear()
    assert stopping.finish(world.parts, reason) == ""
    assert world.calls == ["save state", "wait for saves", "save", "wait for saves"]


@pytest.mark.parametrize(
    ("is_built", "resumed", "durable", "lost"),
    [
        (False, False, None, "nothing was learned"),
        (False, True, None, "the run has not changed"),
        (True, False, None, "there is no checkpoint; updates lost: 25"),
        (True, True, 20, "the newest checkpoint is of update 20; updates lost: 5"),
    ],
)
def test_a_process_that_leaves_at_once_kills_its_workers_and_says_what_is_lost(
    make_parts: parts_world.Make, is_built: bool, resumed: bool, durable: int | None, lost: str
) -> None:
    world = make_parts(resumed=resumed)
    world.saves.durable_update = durable
    if is_built:
        world.build()
    stopping.leave_at_once(world.parts, "left at once")
    assert world.calls == ["kill"]
    (text,) = world.said
    assert text.startswith("left at once; ") and text.endswith(lost)


@pytest.mark.parametrize(("stage", "lasts"), [(stages.Stage.BUILDING, True), (stages.Stage.BUILT, False)])
def test_a_stop_ends_a_build_that_does_not_return_soon_after(
    make_parts: parts_world.Make, monkeypatch: pytest.MonkeyPatch, stage: stages.Stage, lasts: bool
) -> None:
    world = make_parts()
    world.stage.now = stage
    late = endings.Deadline(lambda: stopping.seconds_left(world.parts), lambda: "building", lambda: None)
    late.look()
    assert stopping.seconds_left(world.parts) == float("inf")
    stopping.interrupt(world.parts)
    assert (stopping.seconds_left(world.parts) <= 0) == lasts
    left: list[int] = []
    monkeypatch.setattr("os._exit", left.append)
    if lasts:
        stopping.leave_late(world.parts)
        assert left[0] == errors.INTERRUPTED and "kill" in world.calls
        assert world.said[0].endswith("; nothing was learned")


@pytest.mark.parametrize(
    ("num_updates", "told", "lost"),
    [
        (25, "a call on the device does not return", "updates lost: 25"),
        (0, "the networks are still being built and compiled", "nothing was learned"),
    ],
)
def test_a_call_that_does_not_return_ends_a_run_past_its_budget_as_a_failure(
    make_parts: parts_world.Make, monkeypatch: pytest.MonkeyPatch, num_updates: int, told: str, lost: str
) -> None:
    world = make_parts(run__max_seconds=60.0)
    world.build()
    world.seen = world.seen._replace(num_updates=num_updates, is_compiled=num_updates > 0)
    left: list[int] = []
    monkeypatch.setattr("os._exit", left.append)
    stopping.leave_late(world.parts)
    assert left == [errors.FAILED] and world.calls == ["kill"]
    (text,) = world.said
    assert text.startswith("--max_seconds=60 passed ") and told in text and text.endswith(lost)
