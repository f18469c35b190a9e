"""The accounting of training steps: ledger, episodes, steps of each device."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import loop_world
import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import types
from seedzero.device import batches
from seedzero.learner.loop import queue_rate, rate_limiting, replay_rate, step_accounting
from seedzero.monitoring.metrics import counts
from seedzero.replay import sources

TWO = batches.Layout(num_shards=2, num_train=4, num_evaluate=2)
SESSION = loop_world.make_session([0, 1], [2, 3])
BAND = replay_rate.SampleBand(1.0, 4, 4, 4.0, replay_rate.ReanalyseRatio(0.0, 1, 0, 0.0))


class World:
    """Books of a worker with two groups of two environments, and their messages of a tick."""

    def __init__(
        self,
        layout: batches.Layout = loop_world.LAYOUT,
        rate_limiter: rate_limiting.RateLimiter | None = None,
        spec: types.EnvSpec = loop_world.SPEC,
        *,
        homes_change: bool = False,
    ) -> None:
        self.gathered = counts.Aggregator()
        self.messages: list[batches.Message] = []
        rate_limiter = rate_limiter or replay_rate.ReplayRateLimiter(BAND, sections.ReplayConfig())
        self.accounting = step_accounting.StepAccounting(layout, rate_limiter, self.gathered, spec, homes_change)

    def show(self, group: int, *, first: bool = False, final: bool = False, reward: float = 1.0) -> None:
        self.messages.append(loop_world.message(SESSION, group, 0.0, first=first, final=final, reward=reward))

    def act(self, *, is_cut: bool = False) -> None:
        """Books the messages; is_cut: they are first rows here alone."""
        joined = batches.join(self.messages)
        if is_cut:
            joined = joined._replace(first=np.ones_like(joined.first))
        self.accounting.record(joined, 0.0, joined.slot if is_cut else None)
        self.messages.clear()

    def play(self, num_rows: int, *groups: int, ends: bool = False, rewards: Sequence[float] = ()) -> None:
        """Books the rows of an episode that begins, and may end."""
        for place in range(num_rows):
            for group in groups or (0,):
                is_last, reward = ends and place == num_rows - 1, rewards[place] if rewards else 1.0
                self.show(group, first=place == 0, final=is_last, reward=reward)
            self.act()


def test_counts_hold_for_final_and_pending_steps() -> None:
    world = World()
    world.play(3, ends=True)
    found = world.accounting.ledger.counts
    assert (found.acknowledged, found.stored, found.pending, found.discarded) == (4, 4, 0, {})
    world.show(0, first=True)
    world.act()
    found = world.accounting.ledger.counts
    assert (found.acknowledged, found.stored, found.pending, found.discarded) == (6, 4, 2, {})
    assert world.accounting.num_kept == 4


def test_whole_episodes_are_counted_by_return_and_length() -> None:
    world = World()
    world.play(4, ends=True, rewards=[2.0] * 4)
    found = world.gathered.drain()
    assert found["episodes"] == 2
    assert (found["episode_return"], found["episode_length"]) == (6.0, 3.0)


def test_in_games_of_two_players_the_return_is_the_first_movers() -> None:
    world = World(spec=dataclasses.replace(loop_world.SPEC, num_players=2))
    world.play(4, ends=True, rewards=range(4))
    found = world.gathered.drain()
    assert found["first_mover_return"] == 1.0 - 2.0 + 3.0 and "episode_return" not in found


def test_returns_are_told_for_each_task_too() -> None:
    world = World(spec=dataclasses.replace(loop_world.SPEC, tasks=("walk", "run")))
    for place in range(3):
        marks = dict(first=place == 0, final=place == 2)
        world.messages.append(loop_world.message(SESSION, 0, 0.0, **marks, reward=2.0, tasks=[1, 1]))
        world.messages.append(loop_world.message(SESSION, 1, 0.0, **marks, reward=5.0, tasks=[0, 1]))
        world.act()
    found = world.gathered.drain()
    assert (found["episode_return/walk"], found["episode_return/run"]) == (10.0, (4.0 + 4.0 + 10.0) / 3)
    assert found["episode_return"] == 7.0


def test_the_replay_can_be_sampled_once_every_shard_holds_a_step() -> None:
    world = World(TWO)
    world.play(2, 0)
    assert not world.accounting.can_sample and world.accounting.num_kept == 2
    world.play(2, 1)
    assert world.accounting.can_sample and world.accounting.num_kept == 4


def test_devices_that_had_no_environment_are_named_until_each_had_one() -> None:
    world = World(batches.Layout(num_shards=4, num_train=4, num_evaluate=0))
    lacking, slots = world.accounting.lacking, [np.array([slot]) for slot in range(4)]
    assert lacking([]) == ""  # nobody is there at all
    told = lacking(slots[:1])
    assert " 1, 2, 3 of 0 to 3 " in told and "--training.num_devices" in told
    assert " 3 of 0 to 3 " in lacking(slots[:3])
    assert lacking(slots) == ""  # their steps will come
    world.accounting._stored_per_shard[:] = 1
    assert lacking(slots[:1]) == ""  # rings keep what those that left have stored


def test_a_cut_discards_what_is_pending_and_what_fills_no_unroll() -> None:
    queue = sources.Queue(length=3, batch_size=2, max_lag=2, wait_seconds=1.0)
    rate_limiter = queue_rate.QueueRateLimiter(queue, loop_world.LAYOUT, 16, lock_step=False)
    world = World(rate_limiter=rate_limiter)
    world.play(3, 0, 1)
    world.accounting.cut(np.array([0, 1]), counts.WORKER_LOST)
    found = world.accounting.ledger.counts
    assert (found.acknowledged, found.stored, found.pending) == (12, 4, 2)
    assert found.discarded == {"worker_lost": 2, "unfinished_unroll": 4}
    assert rate_limiter.num_waiting == 4
    assert found.env_steps == 8  # as before the cut: steps of rows never fall


def test_an_agent_that_samples_discards_no_stored_step() -> None:
    world = World()
    world.play(3, 0)
    world.accounting.cut(np.array([0, 1]), counts.WORKER_LOST)
    found = world.accounting.ledger.counts
    assert (found.stored, found.discarded) == (4, {"worker_lost": 2})


@pytest.mark.parametrize("has_replay", [True, False])
def test_a_resume_without_its_replay_has_kept_nothing(has_replay: bool) -> None:
    world = World(TWO)
    world.play(2, 0, 1)
    saved = world.accounting.to_json()
    assert saved["stored_per_shard"] == [2, 2] and saved["waiting_steps"] == 0
    again = World(TWO).accounting
    again.restore(saved, has_replay=has_replay)
    assert (again.num_kept, again.can_sample) == ((4, True) if has_replay else (0, False))
    assert again.ledger.counts == counts.Counts(8, 4, 0, {"worker_lost": 4})


@pytest.mark.parametrize(
    ("before", "num_kept", "can_sample"), [([6], 6, True), ([1, 2, 3, 0], 6, True), ([3, 3, 0, 0], 6, False)]
)
def test_a_resume_on_more_or_fewer_devices_has_kept_the_same_steps(
    before: list[int], num_kept: int, can_sample: bool
) -> None:
    saved = {**World(TWO).accounting.to_json(), "stored_per_shard": before}
    again = World(TWO).accounting
    again.restore(saved, has_replay=True)
    assert (again.num_kept, again.can_sample) == (num_kept, can_sample)


def test_steps_that_waited_for_an_update_are_discarded_on_resume() -> None:
    queue = sources.Queue(length=2, batch_size=2, max_lag=2, wait_seconds=1.0)
    world = World(rate_limiter=queue_rate.QueueRateLimiter(queue, loop_world.LAYOUT, 16, lock_step=False))
    world.play(4, 0)
    saved = world.accounting.to_json()
    assert saved["waiting_steps"] == 6
    again = World().accounting
    again.restore(saved, has_replay=False)
    found = again.ledger.counts
    assert (found.stored, found.discarded["unfinished_unroll"]) == (0, 6)
    assert found.env_steps == world.accounting.ledger.counts.env_steps == 6


def test_with_an_older_replay_steps_of_slots_that_have_moved_do_not_count() -> None:
    world = World(TWO, homes_change=True)
    world.play(3, 0, 1)
    world.play(2, 1)
    again = World(TWO, homes_change=True).accounting
    again.restore(world.accounting.to_json(), has_replay=True)
    assert again.num_kept == 10 and again.can_sample
    without = again.restrict(np.array([False, True, True, False]))
    assert again.to_json()["stored_per_slot"] == [0, 2, 3, 0] and not without.any()
    assert again.restrict(np.array([True, True, False, False])).tolist() == [True, False, False, False]
    assert again.num_kept == 2 and not again.can_sample


def _queue_world() -> World:
    queue = sources.Queue(length=3, batch_size=4, max_lag=2, wait_seconds=1.0)
    return World(
        rate_limiter=queue_rate.QueueRateLimiter(queue, loop_world.LAYOUT, 16, lock_step=False), homes_change=True
    )


def test_a_queue_s_steps_before_a_change_of_home_are_discarded() -> None:
    old, new, slots = _queue_world(), _queue_world(), np.array([2, 3])
    old.play(6, 0, 1)  # of each slot an unroll of 3 steps, and 2 more in the open one
    old.accounting.leave(slots)
    new.accounting.take(slots, old.accounting)
    found = old.accounting.ledger.counts
    assert found.discarded == {"home_changed": 10, "home_changed_pending": 2}
    assert (found.acknowledged, found.stored, found.pending, found.env_steps) == (24, 10, 2, 20)
    assert old.accounting.rate_limiter.num_waiting == 10 and old.accounting.num_kept == 10
    fed = old.accounting.rate_limiter.feed(0, 0.0)
    assert fed.slot[fed.weight > 0].tolist() == [0, 1] and not any(old.accounting.rate_limiter._ready)
    new.show(1)
    new.act(is_cut=True)  # which completes no step: another player chose the action
    assert new.accounting.ledger.counts == counts.Counts(acknowledged=2, pending=2)
    for _ in range(3):
        new.show(1)
        new.act()
    fed = new.accounting.rate_limiter.feed(0, 0.0)
    assert (fed.slot[fed.weight > 0].tolist(), fed.time[fed.weight > 0].tolist()) == (
        [2, 3],
        [6, 6],
    )  # of the rings
    assert new.accounting.ledger.counts == counts.Counts(acknowledged=8, stored=6, pending=2)


def test_a_replay_s_steps_before_a_change_of_home_are_kept_no_more() -> None:
    old, new, slots = World(TWO, homes_change=True), World(TWO, homes_change=True), np.array([2, 3])
    old.play(4, 0, 1)
    assert (old.accounting.num_kept, old.accounting.can_sample) == (12, True)
    old.accounting.leave(slots)
    new.accounting.take(slots, old.accounting)
    assert (old.accounting.num_kept, old.accounting.can_sample) == (6, False)  # the other device's steps are gone
    assert old.accounting.to_json()["stored_per_slot"] == [3, 3, 0, 0]
    found = old.accounting.ledger.counts
    assert (found.stored, found.discarded, found.env_steps) == (
        12,
        {"home_changed_pending": 2},
        12,
    )  # updates saw them
    again = World(TWO, homes_change=True).accounting
    again.restore(old.accounting.to_json(), has_replay=True)
    again.leave(np.array([0, 1]))
    assert again.num_kept == 0


def test_an_episode_that_another_player_began_is_not_counted() -> None:
    world = World(homes_change=True)
    world.show(0)
    world.act(is_cut=True)
    world.show(0, final=True, reward=5.0)
    world.act()
    assert "episodes" not in world.gathered.drain()
    world.play(3, 0, ends=True)
    assert world.gathered.drain()["episodes"] == 2
    world.show(0)
    world.act(is_cut=True)
    world.play(3, 0, ends=True)  # its worker was lost in between
    assert world.gathered.drain()["episodes"] == 2


def _balanced(found: counts.Counts) -> bool:
    return found.acknowledged == found.stored + found.pending + sum(found.discarded.values())


def _record(book: step_accounting.Ledger, slots: list[int], first: list[int], final: list[int]) -> int:
    return book.record(np.array(slots), np.array(first, bool), np.array(final, bool))


def test_a_run_that_begins_over_a_pending_step_discards_it_as_worker_lost() -> None:
    book = step_accounting.Ledger(1)
    _record(book, [0], [1], [0])
    _record(book, [0], [1], [0])
    assert book.counts == counts.Counts(acknowledged=2, stored=0, pending=1, discarded={"worker_lost": 1})


def test_lost_slots_are_discarded_once_and_by_reason() -> None:
    book = step_accounting.Ledger(3)
    _record(book, [0, 1, 2], [1, 1, 1], [0, 0, 1])
    book.discard(np.array([0, 2]), counts.WORKER_LOST)
    book.discard(np.array([0]), counts.WORKER_LOST)
    book.discard(np.array([1]), counts.CHECKPOINT_RESET)
    assert book.counts.pending == 0
    assert book.counts.discarded == {"worker_lost": 1, "checkpoint_reset": 1}
    assert _record(book, [0], [1], [0]) == 0
    assert _balanced(book.counts)


def test_stored_steps_that_no_update_will_see_are_discarded_by_reason() -> None:
    book = step_accounting.Ledger(2)
    for _ in range(3):
        _record(book, [0, 1], [0, 0], [0, 0])
    before = book.counts
    book.discard_stored(0, counts.UNFINISHED_UNROLL)
    assert book.counts == before
    book.discard_stored(3, counts.UNFINISHED_UNROLL)
    assert book.counts == counts.Counts(acknowledged=6, stored=1, pending=2, discarded={"unfinished_unroll": 3})
    assert _balanced(book.counts)


def test_it_balances_over_random_histories() -> None:
    rng = np.random.default_rng(0)
    book, ended = step_accounting.Ledger(8), np.ones(8, bool)
    stored = 0
    for _ in range(500):
        slots = rng.permutation(8)[: rng.integers(1, 9)]
        if stored and rng.random() < 0.1:
            book.discard_stored(1, counts.UNFINISHED_UNROLL)
            stored -= 1
        elif rng.random() < 0.1:
            book.discard(slots, counts.WORKER_LOST)
            ended[slots] = True
        else:
            first, final = ended[slots].copy(), rng.random(len(slots)) < 0.2
            final &= ~first
            assert book.record(slots, first, final) == np.count_nonzero(~first)
            stored += np.count_nonzero(~first)
            ended[slots] = final
        assert _balanced(book.counts)
        assert book.counts.stored == stored
        assert 0 <= book.counts.pending <= 8
