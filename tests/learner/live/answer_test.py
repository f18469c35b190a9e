"""The live view: bounded answers about calls, workers and an environment, strict JSON whatever the numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from seedzero.config import configs
from seedzero.core import types
from seedzero.device import batches
from seedzero.learner.live import answer, observers, record
from seedzero.learner.loop import rosters
from seedzero.monitoring.metrics import aggregator
from seedzero.transport import links, messages

SPEC = types.EnvSpec((2,), "float32", 3)
SETTINGS = {"env.id": "catch", "worker.envs_per_group": 2, "worker.num_groups": 2, "replay.num_slots": 8}
EVIL = "<b>\x1b[2J</b>"


class World:
    """A live view of a run with a worker, whose steps the test shows."""

    def __init__(self, spec: types.EnvSpec = SPEC) -> None:
        config = configs.override(configs.Config(), SETTINGS)
        self.gathered, self.now = aggregator.Aggregator(), 1.0
        self.roster = rosters.Roster(config, batches.Layout(1, 8, 2), 8)
        self.observer = observers.LiveObserver(lambda: self.now, pytest.fail)
        self.view = answer.LiveView(
            self.observer, lambda: {"env_steps": 3}, self.gathered.means, self.roster.started, lambda: spec
        )
        assigned = self.roster.assign(messages.Hello(EVIL, "", (types.Role.TRAIN,), ("catch",), 4))
        self.session = self.roster.begin(assigned.session_id)

    def ask(self, environment: int | None = None, *, call: int = 0, step: int = 0) -> tuple[Any, bytes]:
        far = links.Link(2, 2, 0.001, 0.001, 0.1, 0.001, 1000.0, is_complete=True)
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
    assert len(found["workers"]) == answer.MAX_WORKERS and found["num_workers"] == 300
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
    monkeypatch.setattr(answer, "MAX_BYTES", 20)
    world = World()
    world.ask(0)
    for value in range(4):
        world.show(np.full((2, 2), value, np.float32))
    found, observations = world.ask(0)
    assert found["steps"]["number"] == [2, 3] and len(observations) == 16
    monkeypatch.setattr(answer, "MAX_BYTES", 7)
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
    found = answer._columns(kept, SPEC)
    assert found["policy"] == [[0.5, 0.5, 0.0]] and found["log_prob"] == [-0.5]
    world = World()
    world.view._runtime = lambda *_: found  # type: ignore[method-assign]
    assert world.ask()[0]["value"] == ["nan"]
    continuous = types.EnvSpec((2,), "float32", 0, action_low=(-1.0,), action_high=(1.0,))
    assert "policy" not in answer._columns(kept, continuous)
