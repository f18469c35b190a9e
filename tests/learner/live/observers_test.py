"""The observer: nothing is kept of a run that nobody watches, and a watched run takes the same turns."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from typing import Any

import loop_world
import numpy as np
import pytest

from seedzero.config import configs
from seedzero.core import types
from seedzero.device import batches, newest_rows
from seedzero.learner.live import observers, record
from seedzero.learner.loop import rosters
from seedzero.monitoring.metrics import counts
from seedzero.transport import links, messages


def _watched(world: loop_world.World, slot: int = 0) -> observers.LiveObserver:
    world.observer.ask()
    kept = world.observer.steps_since(slot, 0)
    assert kept is not None and not kept.steps
    return world.observer


def _steps(observer: observers.LiveObserver, slot: int = 0, number: int = 0) -> Sequence[observers.Step]:
    for _ in range(2):  # new steps wait for their stored numbers until the second question
        kept = observer.steps_since(slot, number)
    assert kept is not None
    return kept.steps


def _numbers(observer: observers.LiveObserver, slot: int = 0, number: int = 0) -> list[int]:
    return [step.number for step in _steps(observer, slot, number)]


def test_nothing_is_kept_while_nobody_watches(make: loop_world.Make) -> None:
    world = make()
    world.play(world.join(), 8)
    assert not world.observer.is_on and world.observer.calls_since(0) == []


def test_calls_are_told_with_their_times_and_rows(make: loop_world.Make) -> None:
    world = make()
    observer, session = _watched(world), world.join()
    world.now = 3.0
    observer.ask()
    world.play(session, 8)
    calls = observer.calls_since(0)
    assert {call[1] for call in calls} == {"act", "update"}
    assert [call[0] for call in calls] == list(range(1, len(calls) + 1))
    assert calls[0] == [1, "act", 3.0, 3.0, 3.0, 4, 4, 0, ""]
    assert observer.calls_since(calls[-2][0]) == calls[-1:]


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
    wait = record.CallRecord(record.WAIT, 2.0, 2.0, 5.0, held=held)
    assert wait.to_json() == ["wait", 2.0, 2.0, 5.0, 0, 0, None, reason]


def test_a_watched_environment_shows_every_step_with_its_action(make: loop_world.Make) -> None:
    world = make()
    session = world.join()
    observer = _watched(world, slot=2)
    world.play(session, 6, episode=3)
    steps = _steps(observer, 2)
    assert [step.number for step in steps] == list(range(6))
    assert [(step.first, step.terminated, step.reward, step.action is None) for step in steps][:5] == [
        (True, False, 0.0, False),
        (False, False, 1.0, False),
        (False, False, 1.0, False),
        (False, True, 1.0, True),  # the action after an episode's last observation is ignored
        (True, False, 0.0, False),
    ]
    actions = [actions[0] for request, actions, _ in world.replies if request.group == 1]
    assert [step.action for step in steps if step.action is not None] == [*actions[:3], *actions[4:]]
    values = [np.frombuffer(step.observation, np.float32).tolist() for step in steps]
    assert values == [[value, value] for value in (0, 1, 2, 3, 0, 1)]
    assert _numbers(observer, 2, 4) == [4, 5]


def test_an_evaluating_environment_is_watched_to_its_last_observation(make: loop_world.Make) -> None:
    world = make(evaluation__every_updates=1, replay__min_steps=4)
    training, evaluating = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    slot = int(evaluating.all_slots[0])
    observer = _watched(world, slot)
    world.play(training, 4)
    for value in range(3):
        world.show(evaluating, 0, float(value), first=value == 0, final=value == 2)
        world.work()
    assert world.results
    assert [(step.terminated, step.action is None) for step in _steps(observer, slot)] == [
        (False, False),
        (False, False),
        (True, True),
    ]


def test_the_observer_forgets_a_while_after_the_last_question(make: loop_world.Make) -> None:
    world = make()
    observer, session = _watched(world), world.join()
    world.play(session, 4)
    world.now = observers.IDLE_SECONDS + 1
    world.play(session, 1)
    assert not observer.is_on and observer.calls_since(0) == [] and observer._watched == {}
    observer.ask()
    assert _numbers(observer) == []
    world.play(session, 2)
    assert len(_numbers(observer)) == 2


def test_few_environments_are_watched_at_a_time(make: loop_world.Make) -> None:
    world = make()
    for slot in range(observers.MAX_WATCHED):
        assert world.observer.steps_since(slot, 0) is not None
    assert world.observer.steps_since(99, 0) is None
    world.now = observers.IDLE_SECONDS + 1  # nobody asks for the first ones any more
    assert world.observer.steps_since(99, 0) is not None


def test_the_newest_steps_are_kept(make: loop_world.Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "MAX_KEPT_BYTES", 8 * 3)
    world = make(replay__min_steps=100)
    observer, session = _watched(world), world.join()
    world.play(session, 6)
    assert _numbers(observer) == [3, 4, 5]


@pytest.mark.thorough
def test_a_watched_run_is_the_same_bit_for_bit(make_any: loop_world.Make) -> None:
    alone, watched = make_any(run__deterministic=True), make_any(run__deterministic=True)
    observer = _watched(watched)
    for world in (alone, watched):
        session = world.join()
        for index in range(12):
            for group in range(len(session.slots)):
                world.show(session, group, float(index % 4), first=index % 4 == 0, final=index % 4 == 3)
            world.work()
            if world is watched:
                observer.steps_since(0, 0)
    assert watched.num_updates and _numbers(observer)
    loop_world.assert_same_state(alone, watched)


def test_calls_end_on_one_thread_while_another_asks(make: loop_world.Make) -> None:
    observer, session = _watched(make()), loop_world.make_session([0, 1], [2, 3])
    actions, parts = np.array([0, 1], np.int32), []
    for number in range(800):
        for group in (0, 1):  # the watched environment is in one of them
            messages = [loop_world.message(session, group, float(number))]
            parts.append(record.Acted(batches.join(messages), messages, actions))

    def complete() -> None:
        for acted in parts:
            observer.note(record.CallRecord("act", 0.0, 0.0, 0.0, [acted]))

    thread, before = threading.Thread(target=complete), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        while thread.is_alive():
            numbers = _numbers(observer)
            assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else True
        thread.join()
    finally:
        sys.setswitchinterval(before)
    assert observer.is_on and _numbers(observer) == list(range(800 - observers.MAX_STEPS, 800))


@pytest.mark.parametrize(
    ("kind", "name"), [(observers.Watched, "take"), (record.Buffer, "add"), (newest_rows.NewestReader, "__init__")]
)
def test_a_failure_turns_the_observer_off_and_training_goes_on(
    make: loop_world.Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: Any, name: str
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    world = make()
    observer, session = _watched(world), world.join()
    with monkeypatch.context() as patched:
        patched.setattr(kind, name, fail)
        world.play(session, 4)
    assert not observer.is_on and world.num_updates and "ZeroDivisionError" in caplog.text


def test_a_watched_environment_gets_its_stored_numbers(make_any: loop_world.Make) -> None:
    world = make_any()
    observer, session = _watched(world, 1), world.join()
    world.play(session, 1)
    for thread in threading.enumerate():
        if thread.name == "peek":
            thread.join(60)
    for index in range(1, 8):
        for group in range(len(session.slots)):
            world.show(session, group, float(index), reward=float(index))
        world.work()
        kept = observer.steps_since(1, 0)
    assert kept is not None and dict(kept.columns) in ({"value": 1, "policy": 3}, {"logits": 3})
    filled = [step for step in kept.steps if step.stored is not None]
    assert filled and filled[-1] is kept.steps[-1]
    if "value" in dict(kept.columns):
        value = np.asarray(world.player.rings.stored["value"])
        assert filled[-1].stored is not None and filled[-1].stored[0] == value[1, filled[-1].number]


class _Look:
    """Rows of a ring: rewards, whether they are first, actions, and a stored number."""

    is_ready = True

    def __init__(self, *rows: tuple[float, ...]) -> None:
        self._rows = np.array(rows, np.float32)

    def rows(self) -> tuple[np.ndarray, bool]:
        return self._rows, True


@pytest.mark.parametrize(
    ("rows", "stored"),
    [
        ([(0.0, 1, 0, 10.0), (1.0, 0, 1, 11.0)], [[10.0], [11.0]]),
        ([(1.0, 0, 1, 11.0)], [None, [11.0]]),  # the ring is shorter
        ([(9.0, 0, 0, 9.0), (0.0, 1, 0, 10.0), (1.0, 0, 1, 11.0)], [[10.0], [11.0]]),  # it has rows of before
        ([(0.0, 1, 0, 10.0), (2.0, 0, 1, 11.0)], [None, None]),  # another reward: rows of another seat
        ([(0.0, 0, 0, 10.0), (1.0, 0, 1, 11.0)], [None, None]),  # not a first one
        ([(0.0, 1, 0, 10.0), (1.0, 0, 2, 11.0)], [None, None]),  # another action
    ],
)
def test_numbers_belong_to_the_steps_that_they_were_stored_with(
    rows: list[tuple[float, ...]], stored: list[list[float] | None]
) -> None:
    watched, session = observers.Watched(0, 0, 0.0), loop_world.make_session([0])
    for number in range(2):
        messages = [loop_world.message(session, 0, 0.0, first=number == 0)]
        looks = {0: _Look(*rows)} if number else None
        watched.take(record.Acted(batches.join(messages), messages, np.array([number], np.int32), looks=looks))
    steps, _ = watched.since(0, 100)
    assert [step.stored for step in steps] == stored


def test_new_steps_wait_for_their_numbers_until_the_next_question() -> None:
    watched, session = observers.Watched(0, 0, 0.0), loop_world.make_session([0])
    numbers = []
    for number in range(3):
        messages = [loop_world.message(session, 0, 0.0, first=number == 0)]
        looks = {0: _Look((0.0, 1, 0, 10.0))} if number == 0 else None
        watched.take(record.Acted(batches.join(messages), messages, np.array([0], np.int32), looks=looks))
        numbers.append([step.number for step in watched.since(0, 100)[0]])
    assert numbers == [[0], [0], [0, 1]]


def test_a_scripted_member_s_move_is_told_with_the_step_after_it() -> None:
    watched, session = observers.Watched(0, 0, 0.0), loop_world.make_session([0])
    for number, played in enumerate([-1, -1, 2]):
        messages = [loop_world.message(session, 0, float(number), first=number == 0)]
        rows = batches.join(messages)._replace(played=np.array([played], np.int32))
        watched.take(record.Acted(rows, messages, np.array([1], np.int32)))
    assert [step.action for step in watched._steps.since(0)] == [1, 2, 1]


SPEC = types.EnvSpec((2,), "float32", 3, action_names=("left", "stay", "right"))
SETTINGS = {"env.id": "catch", "worker.envs_per_group": 2, "worker.num_groups": 2, "replay.num_slots": 8}
EVIL = "<b>\x1b[2J</b>"


class World:
    """A live view of a run with a worker, whose steps the test shows."""

    def __init__(self, spec: types.EnvSpec = SPEC) -> None:
        config = configs.override(configs.Config(), SETTINGS)
        self.gathered, self.now = counts.Aggregator(), 1.0
        self.roster = rosters.Roster(config, batches.Layout(1, 8, 2), 8)
        self.observer = observers.LiveObserver(lambda: self.now, pytest.fail)
        self.view = observers.LiveView(
            self.observer, lambda: {"env_steps": 3}, self.gathered.means, self.roster.started, lambda: spec
        )
        assigned = self.roster.assign(messages.Hello(EVIL, "", (types.Role.TRAIN,), ("catch",), 4))
        self.session = self.roster.begin(assigned.session_id)

    def ask(self, environment: int | None = None, *, call: int = 0, step: int = 0) -> tuple[Any, bytes]:
        far = links.WorkerLink(2, 2, 0.001, 0.001, 0.1, 0.001, 1000.0, is_complete=True)
        one = messages.Presence("s", EVIL, types.Role.TRAIN, 2, 2, "steps", 0.123)
        present = [one._replace(link=far), *[one] * 299]
        text, observations = self.view.answer(messages.LiveAsk(call, environment, step), present)
        return json.loads(text, parse_constant=pytest.fail), observations

    def show(self, observation: np.ndarray, reward: float = 1.0) -> None:
        flags = np.zeros(2, bool)
        step = types.EnvStep(observation, np.full(2, reward, np.float32), flags, flags)
        request = messages.StepRequest(self.session.session_id, types.Role.TRAIN, 0, 0, step, flags)
        shown = [batches.Message(request, self.session.slots[0], 0.0)]
        acted = record.Acted(batches.join(shown), shown, np.array([2, 1], np.int32))
        self.observer.note(record.CallRecord("act", 0.0, 0.0, 0.0, [acted]))


def test_calls_workers_and_counters_are_told() -> None:
    world = World()
    world.gathered.add_means({"batch_fill": 0.5, "loss": 3.0})
    world.observer.ask()
    world.observer.note(record.CallRecord(record.WAIT, 0.5, 0.5, 1.0))
    found, observations = world.ask()
    assert (found["status"], found["means"], observations) == ({"env_steps": 3}, {"batch_fill": 0.5}, b"")
    assert [call[0] for call in found["calls"]] == [1] and world.ask(call=1)[0]["calls"] == []
    assert len(found["workers"]) == observers.MAX_WORKERS and found["num_workers"] == 300
    worker = found["workers"][0]
    assert (worker["name"], worker["environments"], worker["state"]) == (EVIL, 4, "steps")
    assert (worker["round_trip_seconds"], worker["bytes_per_second"], worker["waits_for"]) == (0.1, 1000, "link")
    assert "waits_for" not in found["workers"][1]  # it has measured nothing yet
    assert world.observer.is_on and found["instance"] == world.ask()[0]["instance"]


def test_an_environments_steps_come_with_their_observations() -> None:
    world = World()
    found, _ = world.ask(1)
    assert (found["environments"], found["role"], found["worker"]) == (
        {"train": [0, 1, 2, 3], "evaluate": []},
        "train",
        EVIL,
    )
    world.show(np.array([[0, 0], [1, 2]], np.float32))
    world.show(np.array([[0, 0], [3, 4]], np.float32), reward=2.0)
    found, observations = world.ask(1)
    assert np.frombuffer(observations, np.float32).tolist() == [1, 2, 3, 4]
    assert found["steps"]["action"] == [1, 1] and found["steps"]["reward"] == [1.0, 2.0]
    assert found["spec"]["action_names"] == ["left", "stay", "right"]
    assert found["spec"]["arrays"] == [
        {
            "name": "observation",
            "shape": [2],
            "dtype": "float32",
            "text": False,
            "acting_only": False,
            "training_only": False,
            "low": None,
            "high": None,
        }
    ]
    found, observations = world.ask(1, step=1)
    assert found["steps"]["number"] == [1] and len(observations) == 8
    assert world.ask(7)[0]["role"] == ""  # nobody has that slot: no steps, and no error


def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "MAX_BYTES", 20)
    world = World()
    world.ask(0)
    for value in range(4):
        world.show(np.full((2, 2), value, np.float32))
    found, observations = world.ask(0)
    assert found["steps"]["number"] == [2, 3] and len(observations) == 16
    monkeypatch.setattr(observers, "MAX_BYTES", 7)
    found, observations = world.ask(0)
    assert "too large" in found["note"] and not observations


def test_a_watch_too_many_is_named() -> None:
    world = World()
    for slot in range(observers.MAX_WATCHED):
        assert not world.ask(slot)[0]["note"]
    found, observations = world.ask(7)
    assert "watched already" in found["note"] and "steps" not in found and not observations


def test_stored_numbers_become_probabilities_and_stay_json() -> None:
    step = observers.Step(4, b"", 1.0, False, False, False, 0, 2, [float("nan"), -0.5, 1.0, 1.0, -np.inf])
    kept = observers.Kept([step], [("value", 1), ("log_prob", 1), ("logits", 3)], 0)
    found = observers._columns(kept, SPEC)
    assert found["policy"] == [[0.5, 0.5, 0.0]] and found["log_prob"] == [-0.5]
    world = World()
    world.view._runtime = lambda *_: found  # type: ignore[method-assign]
    assert world.ask()[0]["value"] == ["nan"]
    continuous = types.EnvSpec((2,), "float32", 0, action_low=(-1.0,), action_high=(1.0,))
    assert "policy" not in observers._columns(kept, continuous)
