"""The next call, chosen from counters and the clock."""

from __future__ import annotations

import loop_world
import pytest

from seedzero.checkpoints import trees
from seedzero.core import types
from seedzero.loop import evaluator as evaluators
from seedzero.loop import inbox as inboxes
from seedzero.loop import intake as intakes
from seedzero.loop import limiter, pacing
from seedzero.loop import player as players


def test_acting_keeps_to_its_own_room_where_other_devices_learn() -> None:
    device = loop_world.make_device(loop_world.MUZERO, num_learning=1).without_refresh
    world = loop_world.World(device, training__max_in_flight=1, replay__min_steps=100)  # no updates yet
    session, acting = world.join(), world.dispatcher.in_flight.lanes[0]
    for group in (0, 1):
        world.show(session, group, 0.0, first=True)
    assert world.loop.step() and acting.number == 1
    world.show(session, 0, 1.0)
    assert world.dispatcher.in_flight.has_room  # for an update
    assert not world.loop.step() and acting.number == 1
    assert world.loop.scheduler.progress(world.player).waits_to_act
    world.complete()
    assert not world.loop.scheduler.progress(world.player).waits_to_act and world.loop.step()
    world.complete()


class _Pace(limiter.Pacer):
    """Chooses what it is told."""

    def __init__(self, work: limiter.Work, debt: float) -> None:
        self.work, self.owed = work, debt

    def choose(self, progress: limiter.Progress, now: float) -> limiter.Work:
        return self.work

    def debt(self, progress: limiter.Progress) -> float:
        return self.owed


def _add_player(world: loop_world.World, device: loop_world.Device) -> players.Player:
    """Adds a second player with an inbox of its own."""
    config, (train, actor) = loop_world.configured(device, {}), map(trees.copy, (device.train, device.actor))
    pacer, strategy = pacing.make(config, device.setup), world.player.strategy
    intake = intakes.Intake(config, loop_world.LAYOUT, inboxes.Inbox(), pacer, world.gathered, device.setup.spec)
    added = players.Player(
        "other", device.setup, device.programs, strategy, train, actor.rings, pacer=pacer, intake=intake
    )
    world.dispatcher.players = (world.player, added)
    return added


@pytest.mark.parametrize(
    ("second", "debt", "acting"), [("act", 0.9, [0, 1]), ("update", 0.2, [0]), ("wait", 0.9, [0])]
)
def test_players_act_together_but_none_past_its_own_band(
    device: loop_world.Device, second: str, debt: float, acting: list[int]
) -> None:
    world = loop_world.World(device)
    other, session = _add_player(world, device), world.join()
    world.player.pacer, other.pacer = _Pace(limiter.Work.ACT, 0.5), _Pace(limiter.Work(second), debt)
    world.show(session, 0, 0.0, first=True)
    other.intake.inbox.put(loop_world.message(session, 1, 0.0, first=True))
    work, chosen = world.loop.scheduler.choose()
    assert work is limiter.Work.ACT and chosen == [(world.player, other)[number] for number in acting]
    assert world.loop.step()
    world.complete()
    assert [request.group for request, _, _ in world.replies] == acting
    assert other.intake.inbox.num_rows(types.Role.TRAIN) == (0 if 1 in acting else loop_world.SIZE)


def test_the_player_that_is_further_behind_learns_first(device: loop_world.Device) -> None:
    world = loop_world.World(device)
    other = _add_player(world, device)
    world.player.pacer = _Pace(limiter.Work.UPDATE, 0.5)
    for debt, expected in ((0.4, world.player), (0.5, world.player), (0.6, other)):
        other.pacer = _Pace(limiter.Work.UPDATE, debt)
        assert world.loop.scheduler.choose() == (limiter.Work.UPDATE, [expected])


def test_it_tells_which_devices_wait_for_environments(make: loop_world.Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    assert world.loop.look().lacking == ""
    monkeypatch.setattr(
        world.player.intake, "lacking", lambda sessions: f"slots {[slots.tolist() for slots in sessions]}"
    )
    world.join(types.Role.EVALUATE, "evaluator")
    session = world.join()
    assert world.loop.look().lacking == f"slots {[session.all_slots.tolist()]}"


@pytest.mark.parametrize("is_lost", [False, True])
def test_training_goes_on_where_the_environments_of_an_evaluation_are_silent_or_lost(
    make: loop_world.Make, *, is_lost: bool
) -> None:
    world = make(evaluation__every_updates=1000, evaluation__pauses_training=True)
    session, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    world.play(session, 12)
    begun = world.num_updates
    assert world.loop.look().evaluating and world.loop.scheduler.seconds_left() == evaluators.SILENCE_SECONDS
    if is_lost:
        world.lose(watched)
    else:
        world.now += evaluators.SILENCE_SECONDS
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
        assert world.loop.scheduler.held() == ("device_idle_seconds",)
    stored = world.loop.look().counts.stored
    world.show(watched, 0, 0.0, reward=5.0, final=True)
    world.work()
    assert world.results and not world.loop.look().evaluating
    world.play(session, 4)
    assert world.num_updates > begun and world.loop.look().counts.stored > stored


def test_it_wakes_when_a_batch_that_may_be_padded_has_waited_long_enough(make_queued: loop_world.Make) -> None:
    world = make_queued(batcher__wait_microseconds=500_000)
    assert world.loop.scheduler.seconds_left() is None
    session = world.join()
    world.show(session, 0, 0.0, first=True)
    assert world.loop.scheduler.seconds_left() == 0.5  # a batch that may be filled
    world.now = 0.5
    world.work()
    for place in range(loop_world.UNROLL):
        world.show(session, 0, float(place))
        world.now += 1.0
        world.work()
    assert world.loop.scheduler.seconds_left() == 1.0 and world.num_updates == 0  # vtrace.wait_seconds
    world.now += 0.75
    assert world.loop.scheduler.seconds_left() == 0.25 and not world.loop.has_work()
    world.now += 0.25
    assert world.loop.has_work()
    world.work()
    assert world.num_updates == 1 and world.gathered.means()["batch_padding"] == 0.5
