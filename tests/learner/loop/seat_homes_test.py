"""Policies of agents that share an environment: a message's rows are dealt to several homes, whose queues all wait."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import loop_world
import numpy as np
import pytest

from seedzero.core import types
from seedzero.device import batches
from seedzero.league import members
from seedzero.learner.loop import players, rate_limiting, rosters, scheduler, seatings
from seedzero.transport import messages

NAMES = ("ant", "bee", "cat", "dog")
SPEC = dataclasses.replace(loop_world.SPEC, seats=NAMES, tasks=NAMES, fixed_seats=True)
SIZE = 8  # two games of four seats in a group
LAYOUT = batches.Layout(num_shards=1, num_train=2 * SIZE, num_evaluate=4)
AGENTS = {
    "ppo": loop_world.PPO,
    "vtrace": {**loop_world.VTRACE, "network.lstm_width": 0, "vtrace.max_lag": 1},
}
GROUPS = {
    "worker.num_groups": 2,
    "worker.envs_per_group": SIZE,
    "replay.num_slots": LAYOUT.num_train,
    "evaluation.episodes": 4,
    "evaluation.num_envs": 4,
}


def _world(agent: str = "ppo", of_seats: Sequence[int] = (0, 1, 2, 3), **settings: Any) -> loop_world.World:
    """Returns a loop with a player for each number; they are named by their first seats."""
    names = [NAMES[list(of_seats).index(number)] for number in range(max(of_seats) + 1)]
    policies = json.dumps({seat: names[number] for seat, number in zip(NAMES, of_seats, strict=True)})
    own = {**AGENTS[agent], **GROUPS, "seats.policies": policies}
    device = loop_world.make_device(own, SPEC, layout=LAYOUT, sizes=(SIZE, 2 * SIZE))
    world = loop_world.World(device, seatings.SeatHomes(of_seats), names=names, **settings)
    for number, player in enumerate(world.players):
        player.mine = np.array(of_seats)[np.arange(LAYOUT.num_train) % 4] == number
    return world


class Game:
    """Agents with episodes of unequal lengths: agent s of a game acts `lengths[s]` times, and then sends nothing.

    others: the lengths in the second group; None: the same.
    """

    def __init__(
        self,
        world: loop_world.World,
        session: rosters.Session,
        lengths: Sequence[int],
        others: Sequence[int] | None = None,
    ) -> None:
        self._world = world
        self._session = dataclasses.replace(session, num_seats=4)
        self._lengths = [np.tile(found, SIZE // 4) for found in (lengths, others or lengths)]
        self._age = [np.zeros(SIZE, int) for _ in session.slots]
        self._first = [np.ones(SIZE, bool) for _ in session.slots]
        self.num_asked = np.zeros(LAYOUT.num_train, int)  # actions that began a step, by slot

    def show(self, group: int) -> None:
        """Shows the next observation of each agent that has one."""
        age, slots, length = self._age[group], self._session.slots[group], self._lengths[group]
        shown, final = age <= length, age == length
        seats = np.arange(SIZE, dtype=np.int32) % 4
        step = types.EnvStep(
            np.stack([age, seats], axis=1).astype(np.float32),
            np.where(age > 0, 1.0, 0.0).astype(np.float32),
            final & shown,
            np.zeros(SIZE, bool),
            task=seats,
            shown=shown,
        )
        self.num_asked[slots] += shown & ~final
        role, number = self._session.role, int(age.max())
        request = messages.StepRequest(self._session.session_id, role, group, number, step, self._first[group] & shown)
        self._world.inbox.put(batches.seated(request, slots, self._world.now, self._session.num_seats))
        over = age.max() == length.max()
        self._first[group] = np.full(SIZE, over) | (self._first[group] & ~shown)
        self._age[group] = np.zeros(SIZE, int) if over else age + 1

    def play(self, num_steps: int) -> None:
        """Shows observations as answers come; where nothing is left to do, time goes on to the next deadline."""
        for group in range(len(self._session.slots)):
            self.show(group)
        for _ in range(num_steps):
            self._world.work()
            while not self._world.replies:
                left = self._world.seconds_left()
                assert left is not None, "all queues wait for each other for ever"
                self._world.now += left + 1e-6
                self._world.work()
            answered = [request.group for request, _, _ in self._world.replies]
            self._world.replies.clear()
            for group in answered:
                self.show(group)


def _books(player: players.Player) -> Any:
    return player.accounting.ledger.counts


@pytest.mark.thorough
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("agent", ["ppo", "vtrace"])
def test_policies_of_unequal_ends_learn_and_never_wait_for_each_other(agent: str, deterministic: bool) -> None:
    world = _world(agent, run__deterministic=deterministic, checkpoint__every_updates=10_000)
    game = Game(world, world.join(), lengths=(2, 5, 11, 23))
    game.play(200)
    world.complete()
    assert all(player.num_updates >= 5 for player in world.players)
    assert world.players[0].num_updates < world.players[3].num_updates
    asked = game.num_asked.reshape(-1, 4).sum(axis=0)
    for number, player in enumerate(world.players):
        books = _books(player)
        assert books.acknowledged == books.stored + books.pending + sum(books.discarded.values())
        waiting = sum(len(message.slots) // 4 for message in world.inbox.waiting(types.Role.TRAIN))
        assert books.acknowledged <= asked[number] <= books.acknowledged + 4 + waiting
    snapshot = world.loop.look()
    assert snapshot.num_updates == sum(player.num_updates for player in world.players)
    assert {name: counts.update for name, counts in snapshot.policies.items()} == {
        player.name: player.num_updates for player in world.players
    }
    means = world.gathered.means()
    assert {f"loss/{name}" for name in NAMES} <= means.keys() and "loss" in means


@pytest.mark.thorough
@pytest.mark.parametrize("agent", ["ppo", "vtrace"])
def test_two_queues_that_hold_each_other_s_groups_learn_from_padded_batches(agent: str) -> None:
    world = _world(agent)
    Game(world, world.join(), lengths=(23, 1, 1, 1), others=(1, 23, 1, 1)).play(120)
    assert world.now > 0  # only time has resolved it: each holds a group of the other, and waits for rows there
    assert all(player.num_updates >= 3 for player in world.players[:2])


@pytest.mark.thorough
def test_each_policy_stores_its_own_seats_alone_and_a_dead_agent_leaves_no_row() -> None:
    world = _world(of_seats=(1, 0, 1, 0))
    calls: list[tuple[int, list[int]]] = []
    for place in world.places:
        run = place.run_act

        def run_act(seed: int, params: Any, mine: Any, batch: Any, counters: Any, run: Any = run) -> Any:
            number = next(at for at, player in enumerate(world.players) if player.params is params)
            rows = batch.slot < LAYOUT.slots_per_shard
            calls.append((number, sorted(batch.slot[rows].tolist())))
            return run(seed, params, mine, batch, counters)

        place.run_act = run_act  # type: ignore[method-assign]
    game = Game(world, world.join(), lengths=(1, 3, 3, 3))
    for group in (0, 1):
        game.show(group)
    for _ in range(4):
        world.work()
        world.replies.clear()
        for group in (0, 1):
            game.show(group)
    assert calls[:2] == [(0, list(range(1, 16, 2))), (1, list(range(0, 16, 2)))]
    assert calls[4] == (0, list(range(1, 16, 2))) and calls[5] == (1, [2, 6, 10, 14])  # the first agent is gone
    cursor = np.asarray(world.rings.cursor).reshape(-1, 4)
    assert (cursor == [2, 4, 4, 4]).all()
    assert [_books(player).pending for player in world.players] == [0, 0]
    assert [_books(player).stored for player in world.players] == [4 * (3 + 3), 4 * (1 + 3)]


def test_a_message_waits_until_all_of_its_homes_may_act() -> None:
    world = _world()
    held = world.players[2].rate_limiter
    held.holds = lambda slots: bool((slots == 2).any())  # type: ignore[method-assign]
    game = Game(world, world.join(), lengths=(9, 9, 9, 9))
    game.show(0)
    game.show(1)
    world.work()
    assert [request.group for request, _, _ in world.replies] == [1]
    assert isinstance(world.loop.decide(), scheduler.Wait)
    assert [_books(player).acknowledged for player in world.players] == [2, 2, 2, 2]
    held.holds = lambda slots: False  # type: ignore[method-assign]
    assert world.loop.decide() == scheduler.Call(rate_limiting.Work.ACT, (0, 1, 2, 3))


def test_an_evaluation_is_played_by_all_policies_with_their_own_parameters() -> None:
    world = _world(of_seats=(0, 1, 0, 1), evaluation__every_updates=1)
    watched = world.join(types.Role.EVALUATE, "evaluator")
    Game(world, world.join(), lengths=(3, 3, 3, 3)).play(30)
    world.dispatcher.begin_evaluation(is_last=False)
    running = world.dispatcher.evaluator.running
    assert running is not None and running.params.keys() == {"ant", "bee"}
    calls: list[tuple[str, list[int]]] = []
    for place in world.places:

        def run_act(seed: int, params: Any, mine: Any, batch: Any, counters: Any) -> Any:
            name = next(name for name, kept in running.params.items() if kept is params)
            calls.append((name, sorted(batch.slot[batch.slot < LAYOUT.slots_per_shard].tolist())))
            return np.asarray(batch.slot).astype(np.int32)

        place.run_act = run_act  # type: ignore[method-assign]
    step = types.EnvStep.first(np.zeros((4, 2), np.float32))._replace(task=np.arange(4, dtype=np.int32))
    request = messages.StepRequest(watched.session_id, types.Role.EVALUATE, 0, 0, step, np.ones(4, bool))
    world.inbox.put(batches.seated(request, watched.slots[0], 0.0, 4))
    world.replies.clear()
    world.dispatcher.evaluate(is_last=False)
    world.complete()
    assert calls == [("ant", [16, 18]), ("bee", [17, 19])]
    ((_, actions, _),) = world.replies
    assert actions == [16, 17, 18, 19]


def test_an_update_of_any_policy_makes_the_last_evaluation_due() -> None:
    world = _world(of_seats=(0, 1, 0, 1), evaluation__every_updates=1_000)
    world.join(types.Role.EVALUATE, "evaluator")
    evaluator, (ant, bee) = world.dispatcher.evaluator, world.players
    ant.num_updates, bee.num_updates = 3, 1
    evaluator.restore({**evaluator.to_json(), "last_evaluation": {"update": 4}})
    assert not world.dispatcher.is_evaluation_due(is_last=True)
    bee.num_updates = 2
    assert world.dispatcher.is_evaluation_due(is_last=True)
    world.dispatcher.begin_evaluation(is_last=True)
    assert evaluator.running is not None and evaluator.running.update == 5  # of the run, as in all rows of metrics


def test_the_players_of_policies_have_numbers_in_turn() -> None:
    pool = members.of_policies(("wolf", "sheep"))
    assert pool.learning == ("wolf", "sheep") and [pool.of(name).number for name in pool.learning] == [0, 1]
