"""The tap: nothing is kept of a run that nobody watches, and a watched run takes the same turns."""

from __future__ import annotations

import queue
import sys
import threading

import loop_world
import numpy as np
import pytest

from seedzero.core import types
from seedzero.device import batch as batches
from seedzero.loop import tap as taps


def _watched(world: loop_world.World, slot: int = 0) -> taps.Tap:
    tap = world.dispatcher.tap
    tap.ask()
    kept = tap.steps_since(slot, 0)
    assert kept is not None and not kept.steps
    return tap


def _numbers(tap: taps.Tap, slot: int = 0, number: int = 0) -> list[int]:
    for _ in range(2):  # new steps wait for their stored numbers until the second question
        kept = tap.steps_since(slot, number)
    assert kept is not None
    return [step.number for step in kept.steps]


def test_nothing_is_kept_while_nobody_watches(make: loop_world.Make) -> None:
    world = make()
    world.play(world.join(), 8)
    assert not world.dispatcher.tap.is_on and world.dispatcher.tap.calls_since(0) == []


def test_calls_are_told_with_their_times_and_rows(make: loop_world.Make) -> None:
    world = make()
    tap, session = _watched(world), world.join()
    world.now = 3.0
    tap.ask()
    world.play(session, 8)
    calls = tap.calls_since(0)
    assert {call[1] for call in calls} == {"act", "update"}
    assert [call[0] for call in calls] == list(range(1, len(calls) + 1))
    number, kind, began, dispatched, ended, rows, size, age, reason = calls[0]
    assert (number, kind, began, dispatched, ended, rows, size, reason) == (1, "act", 3.0, 3.0, 3.0, 4, 4, "")
    assert age == 0 and tap.calls_since(calls[-2][0]) == calls[-1:]


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        ((), "calls on the devices"),
        (("device_idle_seconds",), "environments"),
        (("device_idle_seconds", "acting_held_seconds"), "acting waits for learning"),
        (("device_idle_seconds", "updating_held_seconds"), "learning waits for steps"),
    ],
)
def test_a_wait_has_a_reason(held: tuple[str, ...], reason: str) -> None:
    tap = taps.Tap(lambda: 5.0)
    tap.wait(2.0, held)
    assert tap.calls_since(0) == [[1, "wait", 2.0, 2.0, 5.0, 0, 0, None, reason]]


def test_a_watched_environment_shows_every_step_with_its_action(make: loop_world.Make) -> None:
    world = make()
    session = world.join()
    tap = _watched(world, slot=2)
    world.play(session, 6, episode=3)
    assert _numbers(tap, 2) == list(range(6))
    kept = tap.steps_since(2, 0)
    assert kept is not None
    seen = [(step.first, step.terminated, step.reward, step.action is None) for step in kept.steps]
    assert seen[:5] == [
        (True, False, 0.0, False),
        (False, False, 1.0, False),
        (False, False, 1.0, False),
        (False, True, 1.0, True),  # the action after an episode's last observation is ignored
        (True, False, 0.0, False),
    ]
    actions = [actions[0] for request, actions, _ in world.replies if request.group == 1]
    assert [step.action for step in kept.steps if step.action is not None] == [*actions[:3], *actions[4:]]
    assert [len(step.observation) for step in kept.steps] == [8] * 6
    assert _numbers(tap, 2, 4) == [4, 5]


def test_an_evaluating_environment_is_watched_to_its_last_observation(make: loop_world.Make) -> None:
    world = make(evaluation__every_updates=1, replay__min_steps=4)
    training, evaluating = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    slot = int(evaluating.all_slots[0])
    tap = _watched(world, slot)
    world.play(training, 4)
    for value in range(3):
        world.show(evaluating, 0, float(value), first=value == 0, final=value == 2)
        world.work()
    assert world.results and _numbers(tap, slot) == [0, 1]  # the last one has no answer
    again = world.people.started(types.Role.EVALUATE) or [world.join(types.Role.EVALUATE, "evaluator")]
    tap.ask()
    world.player.num_updates += 5
    for value in range(2):
        world.show(again[0], 0, float(value), first=value == 0)
        world.work()
    kept = tap.steps_since(slot, 0)
    assert kept is not None and [step.terminated for step in kept.steps][:3] == [False, False, True]


def test_the_tap_closes_a_while_after_the_last_question(make: loop_world.Make) -> None:
    world = make()
    tap, session = _watched(world), world.join()
    world.play(session, 4)
    world.now = taps.IDLE_SECONDS + 1
    world.play(session, 1)
    assert not tap.is_on and tap.calls_since(0) == [] and tap._watched == {}
    tap.ask()
    assert _numbers(tap) == []
    world.play(session, 2)
    assert len(_numbers(tap)) == 2


def test_a_question_between_two_calls_of_a_turn_is_no_harm(make: loop_world.Make) -> None:
    world = make(replay__min_steps=100)
    session = world.join()
    world.show(session, 0, 0.0, first=True)
    assert world.step()  # under way before anyone asks
    tap = _watched(world)
    world.complete()
    assert _numbers(tap) == [] and len(world.replies) == 1


def test_few_environments_are_watched_at_a_time() -> None:
    now = [0.0]
    tap = taps.Tap(lambda: now[0])
    for slot in range(taps.MAX_WATCHED):
        assert tap.steps_since(slot, 0) is not None
    assert tap.steps_since(99, 0) is None
    now[0] = taps.IDLE_SECONDS + 1  # nobody asks for the first ones any more
    assert tap.steps_since(99, 0) is not None


def test_the_newest_steps_are_kept(make: loop_world.Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taps, "MAX_KEPT_BYTES", 8 * 3)
    world = make(replay__min_steps=100)
    tap, session = _watched(world), world.join()
    world.play(session, 6)
    assert _numbers(tap) == [3, 4, 5]


@pytest.mark.parametrize("name", ["make", "make_queued"])
def test_a_watched_run_is_the_same_bit_for_bit(request: pytest.FixtureRequest, name: str) -> None:
    make: loop_world.Make = request.getfixturevalue(name)
    alone, watched = make(run__deterministic=True), make(run__deterministic=True)
    tap = _watched(watched)
    for world in (alone, watched):
        session = world.join()
        for index in range(12):
            for group in range(len(session.slots)):
                world.show(session, group, float(index % 4), first=index % 4 == 0, final=index % 4 == 3)
            world.work()
            if world is watched:
                tap.steps_since(0, 0)
    assert watched.num_updates and _numbers(tap)
    loop_world.assert_same_state(alone, watched)


def test_steps_are_shown_and_answered_on_two_threads(make: loop_world.Make) -> None:
    tap, session = _watched(make()), loop_world.make_session([0, 1], [2, 3])
    shown: queue.Queue[batches.Message | None] = queue.Queue()

    def complete() -> None:
        while (message := shown.get()) is not None:
            tap.answer(message, np.array([0, 1], np.int32))

    thread, before = threading.Thread(target=complete), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for number in range(800):
            for group in (0, 1):  # the watched environment is in one of them
                message = loop_world.message(session, group, float(number))
                tap.show([message])
                shown.put(message)
        shown.put(None)
        thread.join(60)
    finally:
        sys.setswitchinterval(before)
    assert tap.is_on and _numbers(tap) == list(range(800 - taps.MAX_STEPS, 800))


def test_a_failure_of_the_tap_turns_it_off_and_training_goes_on(
    make: loop_world.Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    for name in ("show", "answer", "look"):
        world = make()
        tap, session = _watched(world), world.join()
        with monkeypatch.context() as patched:
            patched.setattr(taps.WatchedSlot, name, fail)
            world.play(session, 4)
        assert not tap.is_on and world.num_updates and "ZeroDivisionError" in caplog.text
        caplog.clear()
