"""Two players in places of their own: calls run side by side, and no player waits for another's."""

from __future__ import annotations

import loop_world
import numpy as np
import pytest

from seedzero.core import types
from seedzero.device import batches
from seedzero.learner.loop import dispatchers, queue_rate, rate_limiting, scheduler, seatings
from seedzero.replay import sources

SETTINGS = tuple({**loop_world.MUZERO, "training.max_in_flight": 1}.items())
ACT, UPDATE, EVALUATE = rate_limiting.Work.ACT, rate_limiting.Work.UPDATE, rate_limiting.Work.EVALUATE


class InTurn(seatings.Seating):
    """Groups take the players in turn."""

    def home(self, slots: np.ndarray) -> int:
        return int(slots[0]) // loop_world.SIZE % 2


def _make(**settings: bool | int | float) -> loop_world.World:
    first, second = (device.without_refresh for device in loop_world.make_places(SETTINGS))
    return loop_world.World(first, InTurn(), second, **settings)


@pytest.fixture
def world() -> loop_world.World:
    return _make()


def _served(world: loop_world.World) -> list[int]:
    """Returns the groups that have had a reply."""
    return [request.group for request, _, _ in world.replies]


@pytest.mark.thorough
def test_a_reply_waits_for_its_own_place_alone(world: loop_world.World) -> None:
    session, (first, second) = world.join(), world.places
    world.play(session, 8)
    world.replies.clear()
    other = world.players[1]
    world.dispatcher.update(other)  # is on its way from here on
    world.show_all(session, 8.0)
    assert world.step() and not world.step()  # the other group waits for the update's end
    world.dispatcher.in_flight.complete_next(first.acting)
    assert _served(world) == [0]
    before = world.player.num_updates
    while world.step():  # nor does the first player's learning
        world.dispatcher.in_flight.complete_next(first.acting)
    world.show(session, 0, 9.0)
    while world.step():
        world.dispatcher.in_flight.complete_next(first.acting)
    assert _served(world) == [0, 0] and world.player.num_updates > before
    world.dispatcher.in_flight.complete_next(second.updating)
    world.work()
    assert _served(world) == [0, 0, 1]


@pytest.mark.thorough
def test_in_one_place_the_same_update_delays_everybody() -> None:
    world = loop_world.World(
        loop_world.make_device(dict(SETTINGS)).without_refresh, InTurn(), training__max_in_flight=1
    )
    session = world.join()
    world.play(session, 8)
    world.replies.clear()
    world.dispatcher.update(world.players[1])
    world.show_all(session, 8.0)
    assert not world.step() and not _served(world)


def test_rows_lie_in_the_rings_of_their_home(world: loop_world.World) -> None:
    session = world.join()
    for value in range(3):
        world.answer(session, 1, float(value), first=value == 0)
    world.answer(session, 0, 7.0, first=True)
    cursors, firsts = zip(
        *((np.asarray(place.rings.cursor), np.asarray(place.rings.observation)) for place in world.places), strict=True
    )
    assert [cursor.tolist() for cursor in cursors] == [[1, 1], [3, 3]]
    assert (firsts[0][:, 0] == 7.0).any() and not (firsts[1] == 7.0).any()
    assert [player.accounting.ledger.counts.acknowledged for player in world.players] == [2, 6]


def test_places_with_work_take_turns(world: loop_world.World) -> None:
    session = world.join()
    for _ in range(2):
        world.show_all(session, 0.0, first=True)
        decisions = []
        for _ in range(2):
            decision = world.loop.decide()
            assert isinstance(decision, scheduler.Call) and decision.kind is ACT
            decisions.append(decision.players)
            world.loop.step()
        assert decisions == [(0,), (1,)]
        world.complete()


def test_a_lock_step_decision_is_of_all_places_and_awaits_room_in_each() -> None:
    world = _make(run__deterministic=True)
    session = world.join()
    world.show_all(session, 0.0, first=True)
    assert world.loop.decide() == scheduler.Call(ACT, (0, 1))
    world.dispatcher.in_flight.add(lambda: None, world.places[1].acting)
    assert isinstance(world.loop.decide(), scheduler.Wait)  # whatever the first place has room for
    world.complete()
    assert world.step()
    world.complete()
    assert sorted(_served(world)) == [0, 1]


def test_evaluations_play_in_the_first_place() -> None:
    world = _make(evaluation__every_updates=1, evaluation__num_envs=2)
    session = world.join()
    world.play(session, 8)
    evaluator = world.join(types.Role.EVALUATE)
    world.work()  # takes its environments
    assert world.dispatcher.evaluator.running is not None
    world.show(evaluator, 0, 0.0, first=True)
    found = world.loop.decide()
    assert isinstance(found, scheduler.Call) and found.kind is EVALUATE and found.players == (0,)
    world.work()
    assert [request.role for request, _, _ in world.replies][-1] is types.Role.EVALUATE


def test_seconds_of_waiting_are_means_over_the_places(world: loop_world.World) -> None:
    session = world.join()
    found = world.loop.decide()
    assert isinstance(found, scheduler.Wait) and found.held == ("device_idle_seconds",) * 2
    world.show(session, 0, 0.0, first=True)
    assert world.step()
    found = world.loop.decide()
    assert isinstance(found, scheduler.Wait) and found.held == ("device_idle_seconds",)
    world.complete()


def test_the_groups_of_a_place_without_players_wait_for_one(world: loop_world.World) -> None:
    session, (main, other) = world.join(), world.players
    world.play(session, 4)
    mine = [np.repeat([True, False], loop_world.SIZE), np.repeat([False, True], loop_world.SIZE)]
    for player, own in zip(world.players, mine, strict=True):
        player.mine = own
    dispatchers.set_players(world.dispatcher, (main,), mine[:1])
    world.dispatcher.seating.home = lambda slots: 0 if slots[0] < loop_world.SIZE else -1  # type: ignore[method-assign]
    world.replies.clear()
    world.show_all(session, 1.0)
    world.work()
    assert _served(world) == [0] and other.accounting.ledger.counts.pending == 0
    assert (np.asarray(world.places[1].rings.weight)[:, :4] == 0).all()  # never drawn by the next player
    assert (np.asarray(world.places[0].rings.weight)[:, :4] > 0).any()
    new = world._player(world._devices[1], "new", 1)
    dispatchers.set_players(world.dispatcher, (main, new), mine)
    world.dispatcher.seating.home = InTurn().home  # type: ignore[method-assign]
    assert world.dispatcher.begins_here.tolist() == [False, False, True, True]
    world.work()
    assert _served(world) == [0, 1] and new.accounting.ledger.counts.acknowledged == 2


def test_a_queue_goes_on_with_the_rows_that_its_rings_have_had() -> None:
    data = sources.Queue(3, 2, 2, wait_seconds=1.0)
    pace = queue_rate.QueueRateLimiter(data, batches.Layout(1, 2, 0, np.array([-1, 0, 1])), 16, lock_step=True)
    pace.take(np.array([1, 2]), np.array([20, 5]))
    for at in range(4):
        pace.record(np.array([1, 2]), np.array([1, 1]), np.full(2, at == 0), 0.0)
    found = pace.feed(0, 0.0)
    assert (found.slot.tolist(), found.time.tolist(), found.weight.tolist()) == ([0, 1], [20 % 16, 5], [1.0, 1.0])
