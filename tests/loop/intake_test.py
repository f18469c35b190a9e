"""Training observations on their way to the device, and the books over them."""

from __future__ import annotations

import dataclasses

import golden
import loop_world
import numpy as np
import pytest

from seedzero.checkpoints import migrations
from seedzero.config import config as configs
from seedzero.config import options
from seedzero.core import types
from seedzero.device import batch as batches
from seedzero.loop import inbox as inboxes
from seedzero.loop import intake as intakes
from seedzero.loop import limiter, pacing, queue_pacing
from seedzero.monitoring import aggregator, counts
from seedzero.replay import data as sources

TWO = batches.Layout(num_shards=2, num_train=4, num_evaluate=2)
SESSION = loop_world.make_session([0, 1], [2, 3])
BAND = limiter.Limiter(1.0, 4, 4, 4.0, limiter.Refreshing(0.0, 1, 0, 0.0))


class Intake:
    """An intake with its inbox, for one worker with two groups of two environments."""

    def __init__(
        self,
        layout: batches.Layout = loop_world.LAYOUT,
        pacer: limiter.Pacer | None = None,
        spec: types.EnvSpec = loop_world.SPEC,
        **settings: options.Value,
    ) -> None:
        dotted = {name.replace("__", "."): value for name, value in settings.items()}
        config = configs.override(configs.Config(), {**loop_world.SETTINGS, **dotted})
        self.inbox = inboxes.Inbox()
        self.gathered = aggregator.Aggregator()
        pacer = pacer or pacing.ReplayPacer(BAND, config.replay, lock_step=config.run.deterministic)
        self.books = intakes.Intake(config, layout, self.inbox, pacer, self.gathered, spec=spec)

    def show(
        self, group: int, *, now: float = 0.0, first: bool = False, final: bool = False, reward: float = 1.0
    ) -> None:
        self.inbox.put(loop_world.message(SESSION, group, 0.0, first=first, final=final, reward=reward, now=now))

    def act(self, *, now: float = 0.0) -> list[int]:
        """Takes everything and books it; returns the groups."""
        messages = self.books.take(types.Role.TRAIN, 4)
        self.books.record(messages, now)
        return [message.request.group for message in messages]


def test_counts_hold_for_final_and_pending_steps() -> None:
    intake = Intake()
    for place in range(3):
        intake.show(0, first=place == 0, final=place == 2)
        intake.act()
    found = intake.books.ledger.counts
    assert (found.acknowledged, found.stored, found.pending, found.discarded) == (4, 4, 0, {})
    intake.show(0, first=True)
    intake.act()
    found = intake.books.ledger.counts
    assert (found.acknowledged, found.stored, found.pending, found.discarded) == (6, 4, 2, {})
    assert intake.books.num_kept == 4


def test_whole_episodes_are_counted_by_return_and_length() -> None:
    intake = Intake()
    for place in range(4):
        intake.show(0, first=place == 0, final=place == 3, reward=2.0)
        intake.act()
    found = intake.gathered.drain()
    assert found["episodes"] == 2
    assert (found["episode_return"], found["episode_length"]) == (6.0, 3.0)


def test_in_games_of_two_players_the_return_is_the_first_movers() -> None:
    intake = Intake(spec=dataclasses.replace(loop_world.SPEC, num_players=2))
    for place in range(4):
        intake.show(0, first=place == 0, final=place == 3, reward=float(place))
        intake.act()
    found = intake.gathered.drain()
    assert found["first_mover_return"] == 1.0 - 2.0 + 3.0 and "episode_return" not in found


def test_returns_are_told_for_each_task_too() -> None:
    intake = Intake(spec=dataclasses.replace(loop_world.SPEC, tasks=("walk", "run")))
    for place in range(3):
        marks = dict(first=place == 0, final=place == 2)
        intake.inbox.put(loop_world.message(SESSION, 0, 0.0, **marks, reward=2.0, tasks=[1, 1]))
        intake.inbox.put(loop_world.message(SESSION, 1, 0.0, **marks, reward=5.0, tasks=[0, 1]))
        intake.act()
    found = intake.gathered.drain()
    assert (found["episode_return/walk"], found["episode_return/run"]) == (10.0, (4.0 + 4.0 + 10.0) / 3)
    assert found["episode_return"] == 7.0


def test_a_batch_is_taken_when_it_is_full_or_has_waited_long_enough() -> None:
    intake = Intake(batcher__wait_microseconds=500_000)
    assert not intake.books.can_act(4, 0.0) and intake.books.fill_seconds_left(0.0) == 0.0
    intake.show(0, now=1.0)
    assert intake.books.fill_seconds_left(1.25) == 0.25
    assert not intake.books.can_act(4, 1.25) and intake.books.can_act(2, 1.25)
    assert intake.books.can_act(4, 1.5)
    intake.show(1, now=1.25)
    assert intake.books.can_act(4, 1.25)


def test_without_that_time_it_is_taken_at_once() -> None:
    intake = Intake()
    assert not intake.books.can_act(4, 0.0)
    intake.show(1)
    assert intake.books.can_act(4, 0.0) and intake.books.fill_seconds_left(0.0) == 0.0


def test_in_lock_step_all_environments_act_together_in_the_order_of_their_slots() -> None:
    intake = Intake(run__deterministic=True)
    intake.show(1)
    assert not intake.books.can_act(2, 100.0)
    intake.show(0)
    assert intake.books.can_act(4, 0.0)
    assert intake.act() == [0, 1]


def test_messages_on_hold_wait_and_do_not_count() -> None:
    queue = sources.Queue(length=1, batch_size=2, max_lag=1, wait_seconds=1.0)
    intake = Intake(pacer=queue_pacing.QueuePacer(queue, loop_world.LAYOUT, 16, lock_step=False))
    for _ in range(2):
        intake.show(0, first=True)
        assert intake.books.can_act(4, 0.0)
        assert intake.act() == [0]
    intake.show(0)
    assert not intake.books.can_act(4, 0.0)
    intake.show(1, first=True)
    assert intake.books.can_act(4, 0.0)
    assert intake.act() == [1]
    assert intake.inbox.num_rows(types.Role.TRAIN) == 2


def test_evaluating_environments_are_never_on_hold() -> None:
    queue = sources.Queue(length=1, batch_size=2, max_lag=1, wait_seconds=1.0)
    intake = Intake(pacer=queue_pacing.QueuePacer(queue, loop_world.LAYOUT, 16, lock_step=False))
    watched = loop_world.make_session([4, 5], role=types.Role.EVALUATE)
    intake.inbox.put(loop_world.message(watched, 0, 0.0))
    assert len(intake.books.take(types.Role.EVALUATE, 4)) == 1


def test_the_replay_can_be_sampled_once_every_shard_holds_a_step() -> None:
    intake = Intake(TWO)
    for place in range(2):
        intake.show(0, first=place == 0)
        intake.act()
    assert not intake.books.can_sample and intake.books.num_kept == 2
    for place in range(2):
        intake.show(1, first=place == 0)
        intake.act()
    assert intake.books.can_sample and intake.books.num_kept == 4


def test_devices_that_had_no_environment_are_named_until_each_had_one(said: golden.Said) -> None:
    intake = Intake(batches.Layout(num_shards=4, num_train=4, num_evaluate=0))
    lacking, slots = intake.books.lacking, [np.array([slot]) for slot in range(4)]
    assert lacking([]) == ""  # nobody is there at all
    told = lacking(slots[:1])
    assert " 1, 2, 3 of 0 to 3 " in told and "--training.num_devices" in told
    said(told)
    assert " 3 of 0 to 3 " in lacking(slots[:3])
    assert lacking(slots) == ""  # their steps will come
    intake.books._stored_per_shard[:] = 1
    assert lacking(slots[:1]) == ""  # rings keep what those that left have stored


def test_a_cut_discards_what_is_pending_and_what_fills_no_unroll() -> None:
    queue = sources.Queue(length=3, batch_size=2, max_lag=2, wait_seconds=1.0)
    pacer = queue_pacing.QueuePacer(queue, loop_world.LAYOUT, 16, lock_step=False)
    intake = Intake(pacer=pacer)
    for place in range(3):
        for group in (0, 1):
            intake.show(group, first=place == 0)
        intake.act()
    intake.books.cut(np.array([0, 1]), counts.WORKER_LOST)
    found = intake.books.ledger.counts
    assert (found.acknowledged, found.stored, found.pending) == (12, 4, 2)
    assert found.discarded == {"worker_lost": 2, "unfinished_unroll": 4}
    assert pacer.num_waiting == 4


def test_an_agent_that_samples_discards_no_stored_step() -> None:
    intake = Intake()
    for place in range(3):
        intake.show(0, first=place == 0)
        intake.act()
    intake.books.cut(np.array([0, 1]), counts.WORKER_LOST)
    found = intake.books.ledger.counts
    assert (found.stored, found.discarded) == (4, {"worker_lost": 2})


@pytest.mark.parametrize("has_replay", [True, False])
def test_a_resume_without_its_replay_has_kept_nothing(has_replay: bool) -> None:
    intake = Intake(TWO)
    for place in range(2):
        for group in (0, 1):
            intake.show(group, first=place == 0)
        intake.act()
    saved = intake.books.to_json()
    assert saved["stored_per_shard"] == [2, 2] and saved["waiting_steps"] == 0
    again = Intake(TWO).books
    again.restore(saved, has_replay=has_replay)
    assert (again.num_kept, again.can_sample) == ((4, True) if has_replay else (0, False))
    assert again.ledger.counts == counts.Counts(8, 4, 0, {"worker_lost": 4})


@pytest.mark.parametrize(
    ("before", "num_kept", "can_sample"), [([6], 6, True), ([1, 2, 3, 0], 6, True), ([3, 3, 0, 0], 6, False)]
)
def test_a_resume_on_more_or_fewer_devices_has_kept_the_same_steps(
    before: list[int], num_kept: int, can_sample: bool
) -> None:
    saved = {**Intake(TWO).books.to_json(), "stored_per_shard": before}
    again = Intake(TWO).books
    again.restore(saved, has_replay=True)
    assert (again.num_kept, again.can_sample) == (num_kept, can_sample)


@pytest.mark.parametrize("is_old", [False, True])
def test_steps_that_waited_for_an_update_are_discarded_on_resume(is_old: bool) -> None:
    queue = sources.Queue(length=2, batch_size=2, max_lag=2, wait_seconds=1.0)
    intake = Intake(pacer=queue_pacing.QueuePacer(queue, loop_world.LAYOUT, 16, lock_step=False))
    for place in range(4):
        intake.show(0, first=place == 0)
        intake.act()
    saved = intake.books.to_json()
    assert saved["waiting_steps"] == 6
    if is_old:  # a checkpoint from before there were queues
        del saved["waiting_steps"]
    again = Intake().books
    again.restore(migrations.counters(saved, 1.0), has_replay=False)
    found = again.ledger.counts
    assert (found.stored, found.discarded.get("unfinished_unroll", 0)) == ((6, 0) if is_old else (0, 6))
