"""Two learning players in one loop: groups are dealt to homes, rows to movers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import loop_world
import numpy as np
import pytest

from seedzero.core import types
from seedzero.device import batches
from seedzero.envs import catch
from seedzero.learner.loop import players, rate_limiting, rosters, scheduler, seatings
from seedzero.transport import messages, sessions

NUM_GROUPS, SIZE = 4, 8
LAYOUT = batches.Layout(num_shards=1, num_train=NUM_GROUPS * SIZE, num_evaluate=2)
SETTINGS = {
    **loop_world.PPO,
    "network.width": 32,
    "ppo.unroll_length": 9,
    "ppo.batch_size": 16,
    "ppo.num_minibatches": 1,
    "ppo.num_epochs": 4,
    "optimizer.learning_rate": 0.01,
    "worker.num_groups": NUM_GROUPS,
    "worker.envs_per_group": SIZE,
    "replay.num_slots": LAYOUT.num_train,
}


class ByParity(seatings.Seating):
    """Groups are at home with the players in turn, who move their own rows, or the first of each message's alone."""

    def __init__(self, group_size: int) -> None:
        self._group_size = group_size
        self.sharing: Sequence[players.Player] = ()  # players who each move a part of every group's rows

    def home(self, slots: np.ndarray) -> int:
        return int(slots[0]) // self._group_size % 2

    def deal(self, joined: batches.Batch, home: int) -> Sequence[seatings.Hand]:
        movers = (joined.slot - joined.group) % 2
        hands = [seatings.Hand(movers == number, player.params) for number, player in enumerate(self.sharing)]
        return hands or super().deal(joined, home)


@pytest.fixture(scope="module")
def catching() -> loop_world.Device:
    return loop_world.make_device(SETTINGS, catch.Catch(1).spec, layout=LAYOUT, sizes=(SIZE, 2 * SIZE))


class Game:
    """Catch, played by the players of a world."""

    def __init__(self, world: loop_world.World, session: rosters.Session) -> None:
        self._world, self._session = world, session
        self._envs = [catch.Catch(SIZE) for _ in session.slots]
        self._steps = [
            env.reset([100 * group + index for index in range(SIZE)]) for group, env in enumerate(self._envs)
        ]
        self._final = [np.ones(SIZE, bool)] * NUM_GROUPS
        self.returns: list[list[float]] = [[], []]

    def play(self, num_steps: int, groups: Sequence[int] = range(NUM_GROUPS)) -> None:
        """Shows the observations of some groups, and steps the answered ones."""
        for _ in range(num_steps):
            for group in groups:
                step = self._steps[group]
                request = messages.StepRequest(
                    self._session.session_id, types.Role.TRAIN, group, 0, step, self._final[group]
                )
                self._world.inbox.put(batches.Message(request, self._session.slots[group], 0.0))
                self._final[group] = step.final
                self.returns[group % 2] += step.reward[step.final].tolist()
            self._world.work()
            for request, actions, _ in self._world.replies:
                self._steps[request.group] = self._envs[request.group].step(np.array(actions, np.int32))
            self._world.replies.clear()


def _same(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


@pytest.mark.parametrize(
    "num_steps", [pytest.param(120, id="some"), pytest.param(1200, id="until-learned", marks=pytest.mark.slow)]
)
def test_both_learn_catch_each_from_the_groups_at_home_with_it(catching: loop_world.Device, num_steps: int) -> None:
    world = loop_world.World(catching, ByParity(SIZE))
    game = Game(world, world.join())
    game.play(num_steps)
    one, other = world.players
    assert not _same(one.train, other.train) and not _same(one.params, other.params)
    for player, returns in zip(world.players, game.returns, strict=True):
        assert player.num_updates >= num_steps // 60 and player.version == player.num_updates
        assert np.mean(returns[:100]) < 0.0
        assert num_steps < 1200 or np.mean(returns[-100:]) > 0.8
    rows = np.asarray(world.place.rings.cursor).reshape(NUM_GROUPS, SIZE)  # all share the rings
    assert (rows == num_steps).all()
    snapshot = world.loop.look()
    assert snapshot.num_updates == one.num_updates + other.num_updates
    assert snapshot.counts.stored == sum(player.accounting.ledger.counts.stored for player in world.players)
    whole = snapshot.counts
    assert whole.acknowledged == whole.stored + whole.pending + sum(whole.discarded.values())


def test_a_player_whose_pace_holds_stops_its_own_groups_alone(catching: loop_world.Device) -> None:
    world = loop_world.World(catching, ByParity(SIZE))
    session = world.join()
    held = world.players[1].rate_limiter
    held.holds = lambda slots: True  # type: ignore[method-assign]
    game = Game(world, session)
    game.play(1)
    assert [int(found.slots[0]) // SIZE for found in world.inbox.waiting(types.Role.TRAIN)] == [1, 3]
    game.play(3, groups=(0, 2))
    stored = [player.accounting.ledger.counts.stored for player in world.players]
    assert stored == [3 * 2 * SIZE, 0]


def test_in_lock_step_a_tick_acts_when_every_home_chooses_to(catching: loop_world.Device) -> None:
    world = loop_world.World(catching, ByParity(SIZE), run__deterministic=True)
    game, (_, other) = Game(world, world.join()), world.players
    rate = other.rate_limiter.rate
    other.rate_limiter.rate = lambda: _Waits()  # type: ignore[method-assign]
    game.play(1)
    assert isinstance(world.loop.decide(), scheduler.Wait) and len(world.inbox.waiting(types.Role.TRAIN)) == NUM_GROUPS
    other.rate_limiter.rate = rate  # type: ignore[method-assign]
    assert world.loop.decide() == scheduler.Call(rate_limiting.Work.ACT, (0, 1))


class _Waits(rate_limiting.RateState):
    """Waits for ever."""

    until = float("inf")

    def choose(self, progress: rate_limiting.Progress, now: float) -> rate_limiting.Work:
        return rate_limiting.Work.WAIT

    def debt(self, progress: rate_limiting.Progress) -> float:
        return 0.0

    def num_due(self, progress: rate_limiting.Progress) -> int:
        return 0


def test_a_mover_s_parameters_act_and_the_home_keeps_the_row_and_answers(catching: loop_world.Device) -> None:
    calls: list[tuple[Any, Any, int]] = []

    def act(seed: Any, params: Any, actor: Any, batch: Any, counters: Any) -> Any:
        calls.append((params, batch, int(counters.version)))
        number = next(index for index, player in enumerate(world.players) if player.params is params)
        return actor, np.asarray(batch.slot) * 2 + number

    seating = ByParity(SIZE)
    world = loop_world.World(loop_world.replaced(catching, act=act), seating)
    seating.sharing = world.players
    world.players[0].version, world.players[1].version = 5, 7
    game = Game(world, world.join())
    replies = world.replies
    kept: list[Any] = []
    world.loop.dispatcher.workers = world.loop.dispatcher.workers._replace(reply=lambda *reply: kept.append(reply))
    game.play(1)
    assert not replies and len(calls) == 4  # each of two homes has rows of both movers
    assert [version for _, _, version in calls] == [5, 5, 7, 7]
    assert [int((batch.slot < LAYOUT.slots_per_shard).sum()) for _, batch, _ in calls] == [SIZE] * 4
    for request, actions, version in kept:
        slots = np.arange(SIZE) + request.group * SIZE
        assert actions.tolist() == (slots * 2 + np.arange(SIZE) % 2).tolist()
        assert version == (5, 7)[request.group % 2]
    assert [player.accounting.ledger.counts.acknowledged for player in world.players] == [2 * SIZE, 2 * SIZE]


SEATS = ("first", "second")
SEATED = dataclasses.replace(loop_world.SPEC, seats=SEATS, tasks=SEATS)


@pytest.mark.thorough
def test_rows_of_seats_are_stored_and_counted_where_they_are_shown() -> None:
    """A game in which the second seat never moves, then one whose first seat ends before the second."""
    world = loop_world.World(loop_world.make_device(loop_world.PPO, SEATED))
    session = dataclasses.replace(world.join(), num_seats=2)
    assignment = types.Assignment("s", types.Role.TRAIN, "spiel:kuhn_poker", "{}", 2, 2, (0,) * 4)
    served: sessions.LearnerSession[str] = sessions.LearnerSession("w", assignment, 15.0, 0.0)
    served.begin(SEATED, 0.0)
    rows = [
        {0: (0.0, False)},
        {0: (2.0, True)},
        {1: (0.0, False)},
        {0: (0.0, False)},
        {0: (-1.0, True), 1: (0.25, False)},
        {1: (0.0, False)},
        {1: (0.75, True)},
    ]
    for number, shown in enumerate(rows):
        step = types.EnvStep(
            np.zeros((2, 2), np.float32), np.zeros(2, np.float32), np.zeros(2, bool), np.zeros(2, bool)
        )
        step = step._replace(shown=np.zeros(2, bool), task=np.array([1, 0], np.int32))
        for row, (reward, final) in shown.items():
            step.observation[row], step.reward[row], step.terminated[row] = number, reward, final
            step.shown[row] = True  # type: ignore[index]
        request = served.accept(1, number, step)
        world.inbox.put(batches.seated(request, session.slots[1], 0.0, session.num_seats))
        world.work()
        assert len(world.replies) == number + 1 and world.replies[-1][0] is request
        assert len(world.replies[-1][1]) == 2
        served.answer(1, number, b"", 0.0)
    rings, (home, other) = world.rings, session.slots[1].tolist()
    assert rings.cursor[[home, other]].tolist() == [4, 4] and rings.cursor.sum() == 8
    assert rings.observation.reshape(4, -1, 2)[home, :4, 0].tolist() == [0, 1, 3, 4]
    assert rings.observation.reshape(4, -1, 2)[other, :4, 0].tolist() == [2, 4, 5, 6]
    assert rings.reward[home, :4].tolist() == [0, 2, 0, -1] and rings.reward[other, :4].tolist() == [0, 0.25, 0, 0.75]
    assert rings.first[home, :4].tolist() == [True, False] * 2
    assert rings.first[other, :4].tolist() == [True, False, False, False]
    assert rings.terminated[home, :4].tolist() == [False, True] * 2
    counts = world.loop.look().counts
    assert (counts.acknowledged, counts.stored, counts.pending, counts.discarded) == (5, 5, 0, {})
    means = world.gathered.drain()
    assert {name: value for name, value in means.items() if "return" in name} == {
        "episode_return": (2 - 1 + 1)
        / 3,  # without those before a seat's first row, which the worker adds to its next
        "episode_return/first": 1.0,
        "episode_return/second": 0.5,
    }


class AgainstOther(seatings.Seating):
    """Seats: the home moves the first row of each game, others' parameters the second, which is not stored."""

    params: Any = None

    def deal(self, joined: batches.Batch, home: int) -> Sequence[seatings.Hand]:
        own = joined.slot == joined.game
        hands = (seatings.Hand(own), seatings.Hand(~own, self.params, types.SAMPLE, stored=False))
        return [hand for hand in hands if hand.mine is not None and hand.mine.any()]


def test_an_opponent_s_seat_acts_and_enters_neither_rings_nor_books() -> None:
    seating = AgainstOther()
    world = loop_world.World(loop_world.make_device(loop_world.PPO, SEATED), seating)
    seating.params = world.players[1].params
    session = dataclasses.replace(world.join(), num_seats=2)
    for number, shown in enumerate(([True, True], [False, True], [True, True])):  # its row alone, once
        step = types.EnvStep.first(np.full((2, 2), number, np.float32))
        final = np.full(2, number == 2)
        step = step._replace(shown=np.array(shown), task=np.array([0, 1], np.int32), terminated=final & shown)
        first = np.full(2, number == 0)
        request = messages.StepRequest(session.session_id, types.Role.TRAIN, 0, number, step, first)
        world.inbox.put(batches.seated(request, session.slots[0], 0.0, session.num_seats))
        world.work()
        assert len(world.replies) == number + 1 and len(world.replies[-1][1]) == 2
    home, other = session.slots[0].tolist()
    assert world.rings.cursor[[home, other]].tolist() == [2, 0]
    assert world.rings.observation.reshape(4, -1, 2)[home, :2, 0].tolist() == [0, 2]
    counts = world.loop.look().counts
    assert (counts.acknowledged, counts.stored, counts.pending, counts.discarded) == (1, 1, 0, {})
