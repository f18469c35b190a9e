"""The facts that decisions, budgets and the screen are made of."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import loop_world
import numpy as np
import pytest

from seedzero.core import types
from seedzero.learner.loop import facts, phase, replay_rate, scheduler, seatings


def _gather(world: loop_world.World) -> scheduler.Facts:
    return facts.gather(world.config, world.dispatcher, world.loop.run_phase, range(len(world.players)))


def test_acting_keeps_to_its_own_room_where_other_devices_learn() -> None:
    device = loop_world.make_device(loop_world.MUZERO, num_learning=1).without_refresh
    world = loop_world.World(device, training__max_in_flight=1, replay__min_steps=100)  # no updates yet
    session, acting = world.join(), world.dispatcher.in_flight.lanes[0]
    world.show_all(session, 0.0, first=True)
    assert world.step() and acting.number == 1
    world.show(session, 0, 1.0)
    assert world.dispatcher.in_flight.has_room_in(*world.place.lanes)  # for an update
    assert not world.step() and acting.number == 1
    assert _gather(world).players[0].waits_to_act
    world.complete()
    assert not _gather(world).players[0].waits_to_act and world.step()
    world.complete()


def test_a_batch_is_taken_at_once(make: loop_world.Make) -> None:
    world = make()
    assert not _gather(world).players[0].can_act
    world.show(world.join(), 1, 0.0, first=True)
    assert _gather(world).players[0].can_act
    assert {time for time in _gather(world).deadlines if math.isfinite(time)} == set()


def test_in_lock_step_all_environments_act_together(make: loop_world.Make) -> None:
    world = make(run__deterministic=True)
    session = world.join()
    world.show(session, 1, 0.0, first=True)
    world.now = 100.0
    assert not _gather(world).players[0].can_act and not _gather(world).players[0].all_wait
    world.show(session, 0, 0.0, first=True)
    assert _gather(world).players[0].can_act and _gather(world).players[0].all_wait


def test_messages_on_hold_do_not_count(make_queued: loop_world.Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_queued()
    session = world.join()
    monkeypatch.setattr(world.player.rate_limiter, "holds", lambda slots: bool(slots[0] == session.slots[0][0]))
    world.show(session, 0, 0.0, first=True)
    assert not _gather(world).players[0].can_act
    world.show(session, 1, 0.0, first=True)
    assert _gather(world).players[0].can_act
    assert world.step()
    world.complete()
    assert [request.group for request, _, _ in world.replies] == [1]
    assert [found.slots.tolist() for found in world.inbox.waiting(types.Role.TRAIN)] == [session.slots[0].tolist()]


def test_it_tells_which_devices_wait_for_environments(make: loop_world.Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    assert world.loop.look().lacking == ""
    monkeypatch.setattr(world.player.accounting, "lacking", lambda groups: f"slots {np.concatenate(groups).tolist()}")
    world.join(types.Role.EVALUATE, "evaluator")
    session = world.join()
    assert world.loop.look().lacking == f"slots {session.all_slots.tolist()}"


@pytest.mark.parametrize("share", [1, 2])
def test_it_tells_which_players_have_no_environments(device: loop_world.Device, share: int) -> None:
    class Shared(seatings.Seating):
        """Groups are at home with the first players by turns."""

        def home(self, slots: np.ndarray) -> int:
            return int(slots[0]) // loop_world.SIZE % share

    world = loop_world.World(device, Shared())
    for at, player in enumerate(world.players):
        player.mine = np.arange(loop_world.LAYOUT.num_train) // loop_world.SIZE % share == at
    assert world.loop.look().lacking == ""  # nobody is there at all
    world.join()
    if text := world.loop.look().lacking:
        assert "no updates of other: " in text and "--worker.num_groups" in text
        two = dataclasses.replace(world.config, worker=dataclasses.replace(world.config.worker, num=2))
        assert facts.look(two, world.dispatcher, world.loop.run_phase).lacking == ""  # the other one is on its way
    assert (" other:" in text) == (share == 1)


@pytest.mark.parametrize("is_lost", [False, True])
def test_training_goes_on_where_the_environments_of_an_evaluation_are_silent_or_lost(
    make: loop_world.Make, *, is_lost: bool
) -> None:
    world = make(evaluation__every_updates=1000, evaluation__pauses_training=True)
    session, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    world.play(session, 12)
    begun = world.num_updates
    assert world.loop.look().evaluating and world.seconds_left() == phase.SILENCE_SECONDS
    if is_lost:
        world.lose(watched)
    else:
        world.now += phase.SILENCE_SECONDS
    world.work()
    world.play(session, 4)
    assert world.num_updates > begun


@pytest.mark.parametrize("pauses", [False, True])
def test_training_waits_for_an_evaluation_where_that_is_wanted(make: loop_world.Make, *, pauses: bool) -> None:
    world = make(evaluation__every_updates=1000, evaluation__pauses_training=pauses)
    session, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    world.play(session, 12)
    begun = world.num_updates
    assert begun > 0 and world.loop.look().evaluating
    world.show(watched, 0, 0.0, first=True)
    world.play(session, 4)
    assert (world.num_updates == begun) == pauses
    if pauses:  # no environment is late, and no pace holds anything back
        decision = world.loop.decide()
        assert isinstance(decision, scheduler.Wait) and decision.held == ("device_idle_seconds",)
    stored = world.loop.look().counts.stored
    world.answer(watched, 0, 0.0, reward=5.0, final=True)
    assert world.results and not world.loop.look().evaluating
    world.play(session, 4)
    assert world.num_updates > begun and world.loop.look().counts.stored > stored


def test_it_wakes_when_a_batch_that_may_be_padded_has_waited_long_enough(make_queued: loop_world.Make) -> None:
    world = make_queued()
    assert world.seconds_left() is None
    session = world.join()
    world.show(session, 0, 0.0, first=True)
    world.work()
    for place in range(loop_world.UNROLL):
        world.show(session, 0, float(place))
        world.now += 1.0
        world.work()
    assert world.seconds_left() == 1.0 and world.num_updates == 0  # vtrace.wait_seconds
    world.now += 0.75
    assert world.seconds_left() == 0.25 and not world.has_work()
    world.now += 0.25
    assert world.has_work()
    world.work()
    assert world.num_updates == 1 and world.gathered.means()["batch_padding"] == 0.5


def test_a_run_that_ends_says_what_it_waits_for(make: loop_world.Make) -> None:
    world = make(evaluation__every_updates=1000, run__max_updates=6)
    world.join(types.Role.EVALUATE, "evaluator")
    world.play(world.join(), 12)
    assert world.loop.run_phase.ends and world.loop.look().remaining == ""
    watched = world.join(types.Role.EVALUATE, "evaluator")
    world.answer(watched, 0, 0.0, first=True)
    assert world.loop.look().remaining.endswith("0 of 2 episodes")
    world.answer(watched, 0, 0.0, final=True)
    assert world.loop.look().remaining == "" and world.loop.run_phase.over


def test_an_evaluation_that_another_thread_ends_meanwhile_can_be_looked_at(make: loop_world.Make) -> None:
    world = make(evaluation__every_updates=1000)
    world.join(types.Role.EVALUATE, "evaluator")
    world.play(world.join(), 12)
    evaluator, run_phase = world.dispatcher.evaluator, phase.RunPhase().after(phase.Event.SPENT, "spent")

    class Ending(type(evaluator)):  # type: ignore[misc]
        """Its evaluation is gone after each look."""

        @property
        def running(self) -> Any:
            return self.__dict__.pop("found", None)

    evaluator.__dict__["found"] = evaluator.__dict__.pop("running")
    evaluator.__class__ = Ending
    assert facts.look(world.config, world.dispatcher, run_phase).remaining.endswith("0 of 2 episodes")
    assert facts.look(world.config, world.dispatcher, run_phase).remaining == ""


def test_a_league_s_matches_are_counted(make: loop_world.Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    found = world.loop.look()
    assert (found.matches, found.num_frozen, found.win_rate) == ({}, 0, None)
    monkeypatch.setattr(world.dispatcher.seating, "num_matches", lambda: {"past": 4, "void": 1})
    monkeypatch.setattr(world.dispatcher.seating, "frozen", lambda: ("main-0", "main-1"))
    found = world.loop.look()
    assert (found.matches, found.num_frozen) == ({"past": 4, "void": 1}, 2)


def _promised(world: loop_world.World) -> int:
    return facts.num_due(world.config, world.dispatcher, world.loop.run_phase)


def test_a_host_promises_the_updates_that_its_steps_owe_within_the_budget(
    make: loop_world.Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(run__max_updates=5)
    monkeypatch.setattr(type(world.player), "can_update", True)
    monkeypatch.setattr(replay_rate.SampleBand, "num_due", lambda band, progress: 3)
    assert _promised(world) == 3
    monkeypatch.setattr(replay_rate.SampleBand, "num_due", lambda band, progress: 100)
    assert _promised(world) == 5
    world.loop.run_phase = world.loop.run_phase.after(phase.Event.SPENT, "spent")
    assert _promised(world) == 0


def test_in_lock_step_and_before_a_batch_can_be_drawn_nothing_is_promised(
    make: loop_world.Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_rate.SampleBand, "num_due", lambda band, progress: 3)
    assert _promised(make()) == 0  # nothing is stored
    lock_step = make(run__deterministic=True)
    monkeypatch.setattr(type(lock_step.player), "can_update", True)
    assert _promised(lock_step) == 0
