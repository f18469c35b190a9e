"""A queue: each step once, in order, never across a cut, and never overwritten before its update."""

from __future__ import annotations

import math
from typing import Any

import loop_world
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.device import batches, setups, steps
from seedzero.learner.loop import players, queue_rate, rate_limiting
from seedzero.replay import sources

ACT, UPDATE, EVALUATE, WAIT = (
    rate_limiting.Work.ACT,
    rate_limiting.Work.UPDATE,
    rate_limiting.Work.EVALUATE,
    rate_limiting.Work.WAIT,
)
READY = loop_world.READY._replace(num_inserts=0, num_kept=0)
IDLE = READY._replace(can_act=False)
L = 3


class Queue:
    """A rate_limiter, and the rings that its rows lie in.

    A ring's row is (number of the row in its slot, session, whether it is a first one).
    """

    def __init__(
        self,
        *,
        num_slots: int = 4,
        num_shards: int = 1,
        length: int = L,
        batch_size: int = 4,
        max_lag: int = 2,
        stack: int = 1,
        lock_step: bool = False,
    ) -> None:
        self.data = sources.Queue(length, batch_size, max_lag, wait_seconds=1.0)
        self.layout = batches.Layout(num_shards, num_slots, 0)
        unused: Any = None
        agent = base.Agent(self.data, stack, {}, *[unused] * 5)
        self.slot_length = setups._slot_length(agent, 64, num_slots)
        self.stack = stack
        self.rate_limiter = queue_rate.QueueRateLimiter(self.data, self.layout, self.slot_length, lock_step=lock_step)
        self.now = 0.0
        self.rings: list[list[Any]] = [[None] * self.slot_length for _ in range(num_slots)]
        self.session = np.zeros(num_slots, int)
        self.row = np.zeros(num_slots, int)
        self.is_over = np.ones(num_slots, bool)  # the next row begins an episode
        self.num_stored = self.num_discarded = 0
        self.learned: list[tuple[int, int]] = []  # slot, number of the row that completes the step

    def act(self, *slots: int, final: tuple[int, ...] = ()) -> None:
        """Records a row of each slot; final: slots whose episode ends with it."""
        for slot in slots:
            first = bool(self.is_over[slot])
            row = int(self.row[slot])
            self.rings[slot][row % self.slot_length] = (row, int(self.session[slot]), first)
            self.num_stored += not first
        first_of_all = self.is_over[list(slots)]
        self.row[list(slots)] += 1
        self.is_over[list(slots)] = [slot in final for slot in slots]
        group = np.full(len(slots), slots[0])
        self.rate_limiter.record(np.array(slots), group, first_of_all, self.now)

    def fill(self, *slots: int) -> None:
        """Records the rows of an unroll in each slot."""
        for _ in range(self.data.length + 1):
            self.act(*slots)

    def cut(self, *slots: int) -> int:
        """Loses the environments of slots."""
        dropped = self.rate_limiter.cut(np.array(slots))
        self.num_discarded += dropped
        self.session[list(slots)] += 1
        self.is_over[list(slots)] = True
        return dropped

    def feed(self) -> tuple[list[tuple[int, int]], np.ndarray]:
        """Takes a batch, reads its unrolls, and returns their (slot, first row) and all weights [B]."""
        fed: steps.Unrolls = self.rate_limiter.feed(0, self.now)
        taken = []
        per_shard = len(fed.slot) // self.layout.num_shards
        for index, (local, time, weight) in enumerate(zip(fed.slot, fed.time, fed.weight, strict=True)):
            assert 0 <= time < self.slot_length
            if weight:
                slot = int(local) + index // per_shard * self.layout.train_per_shard
                taken.append((slot, self._read(slot, int(time))))
        return taken, fed.weight

    def _read(self, slot: int, time: int) -> int:
        """Reads an unroll as the update does, and returns its first row."""
        ring = self.rings[slot]
        begin, session, first = ring[time]
        for place in range(1, self.data.length + 1):
            row, other_session, is_first = ring[(time + place) % self.slot_length]
            assert (row, other_session) == (begin + place, session), "overwritten, or across a cut"
            if not is_first:
                self.learned.append((slot, row))
        for back in range(1, self.stack):  # frames of the first observation, up to the episode's beginning
            if first:
                break
            row, other_session, first = ring[(time - back) % self.slot_length]
            assert (row, other_session) == (begin - back, session), "a frame of the stack is overwritten"
        return int(begin)

    @property
    def is_balanced(self) -> bool:
        """stored = learned + waiting + discarded."""
        return self.num_stored == len(self.learned) + self.rate_limiter.num_waiting + self.num_discarded

    def choose(self, progress: rate_limiting.Progress = READY) -> rate_limiting.Work:
        return self.rate_limiter.rate().choose(progress, self.now)

    def seconds_left(self, now: float | None = None) -> float | None:
        """The time that a batch that is not full may still wait; None: there is nothing to learn from."""
        until = self.rate_limiter.rate().until
        return None if math.isinf(until) else max(0.0, until - (self.now if now is None else now))


class TestUnrolls:
    """Unrolls of three steps in four slots."""

    def test_an_unroll_is_complete_with_row_l_which_begins_the_next_one(self) -> None:
        queue = Queue(batch_size=1)
        for row in range(3 * L + 1):
            queue.act(0)
            assert queue.rate_limiter.num_waiting == row
            assert (queue.choose() is UPDATE) == (row >= L)
        assert queue.rate_limiter.rate().num_due(READY) == 3
        assert [queue.feed()[0] for _ in range(3)] == [[(0, 0)], [(0, L)], [(0, 2 * L)]]
        assert queue.learned == [(0, row) for row in range(1, 3 * L + 1)]

    def test_an_update_without_unrolls_weighs_nothing(self) -> None:
        assert Queue(batch_size=2).rate_limiter.feed(0, 0.0).weight.tolist() == [0.0, 0.0]

    def test_the_way_to_the_next_episode_takes_a_place_but_is_no_step(self) -> None:
        queue = Queue(batch_size=1)
        for row in range(L + 1):
            queue.act(0, final=(0,) if row == 1 else ())
        assert queue.num_stored == queue.rate_limiter.num_waiting == 2
        assert queue.feed()[0] == [(0, 0)]
        assert queue.learned == [(0, 1), (0, 3)]
        assert queue.rate_limiter.num_waiting == 0

    def test_unrolls_are_taken_in_the_order_of_acting(self) -> None:
        queue = Queue(batch_size=2)
        for slot in (2, 2, 0, 2, 3, 3, 2, 3, 0, 1, 0, 3, 0, 1, 1, 2, 1, 2, 2):  # complete: 2, 3, 0, 1, 2
            queue.act(slot)
        assert [queue.feed()[0] for _ in range(2)] == [[(2, 0), (3, 0)], [(0, 0), (1, 0)]]
        assert queue.feed()[0] == [(2, L)]

    def test_slots_of_a_call_complete_in_its_order(self) -> None:
        queue = Queue(batch_size=4)
        queue.fill(3, 1, 0, 2)
        assert queue.feed()[0] == [(3, 0), (1, 0), (0, 0), (2, 0)]


class TestCuts:
    """What a lost worker leaves."""

    def test_a_cut_drops_the_open_unroll_alone(self) -> None:
        queue = Queue(batch_size=1)
        for _ in range(2 * L):
            queue.act(0, 1)
        assert queue.cut(0) == L - 1  # steps after row L
        assert queue.rate_limiter.num_waiting == L + 2 * L - 1 and queue.is_balanced
        assert queue.feed()[0] == [(0, 0)] and queue.feed()[0] == [(1, 0)]
        queue.act(1)
        assert queue.feed()[0] == [(1, L)]

    def test_the_next_session_begins_an_unroll_with_its_first_row(self) -> None:
        queue = Queue(batch_size=1)
        for _ in range(L):
            queue.act(0)
        assert queue.cut(0) == L - 1
        for _ in range(L):
            queue.act(0)
            assert queue.choose() is not UPDATE
        queue.act(0)
        assert queue.feed()[0] == [(0, L)] and queue.is_balanced

    def test_a_slot_without_an_open_step_loses_none(self) -> None:
        queue = Queue()
        assert queue.cut(0, 1) == 0
        queue.act(0)
        assert queue.cut(0) == 0
        queue.fill(0)
        assert queue.cut(0) == 0 and queue.rate_limiter.num_waiting == L

    def test_a_drop_forgets_everything_that_waits(self) -> None:
        queue = Queue(batch_size=1)
        for _ in range(L + 2):
            queue.act(0, 1)
        queue.act(1)
        dropped = queue.rate_limiter.drop()
        assert dropped == 2 * (L + 1) + 1 and queue.rate_limiter.num_waiting == 0
        queue.num_discarded += dropped
        assert queue.seconds_left() is None
        assert queue.choose(IDLE) is WAIT
        assert not queue.rate_limiter.holds(np.arange(4))
        queue.session += 1
        queue.is_over[:] = True
        queue.fill(0, 1)
        assert queue.feed()[0] == [(0, L + 2)] and queue.feed()[0] == [(1, L + 3)] and queue.is_balanced

    def test_a_new_session_waits_while_unrolls_of_the_last_one_do(self) -> None:
        queue = Queue(batch_size=1)
        queue.fill(0)
        assert not queue.rate_limiter.holds(np.array([0]))
        queue.cut(0)
        assert queue.rate_limiter.holds(np.array([0]))
        queue.feed()
        assert not queue.rate_limiter.holds(np.array([0]))


class TestHolds:
    """A slot with max_lag complete unrolls waits."""

    @pytest.mark.parametrize("max_lag", [1, 2, 3])
    def test_a_slot_is_held_from_its_last_allowed_unroll_on_until_one_is_taken(self, max_lag: int) -> None:
        queue = Queue(batch_size=1, max_lag=max_lag)
        for row in range(max_lag * L + 1):
            assert not queue.rate_limiter.holds(np.array([2])), row
            queue.act(2)
        assert queue.rate_limiter.holds(np.array([2]))
        assert queue.rate_limiter.holds(np.array([0, 2])) and not queue.rate_limiter.holds(np.array([0, 1, 3]))
        queue.feed()
        assert not queue.rate_limiter.holds(np.array([2]))

    def test_when_all_live_slots_are_held_a_padded_batch_goes_at_once(self) -> None:
        queue = Queue(batch_size=4, max_lag=1)
        queue.fill(0, 1)
        assert queue.choose() is ACT  # of other slots, that have no rows yet
        assert queue.choose(IDLE) is UPDATE
        taken, weight = queue.feed()
        assert taken == [(0, 0), (1, 0)] and weight.tolist() == [1, 1, 0, 0]

    def test_a_batch_is_not_padded_while_acting_waits_for_calls_on_their_way(self) -> None:
        queue = Queue(batch_size=4)
        queue.fill(0)
        queue.now += 2.0
        assert queue.choose(IDLE._replace(waits_to_act=True)) is WAIT
        assert queue.choose(IDLE) is UPDATE

    def test_a_slot_that_is_not_held_may_still_bring_an_unroll(self) -> None:
        queue = Queue(batch_size=4, max_lag=1)
        for _ in range(L):
            queue.act(0, 1)
            queue.act(2)
        queue.act(0, 1)
        assert queue.choose(IDLE) is WAIT
        queue.cut(2)  # it is not live any more
        assert queue.choose(IDLE) is UPDATE

    def test_a_slot_waits_with_the_others_of_its_message(self) -> None:
        queue = Queue(num_slots=6, batch_size=5, max_lag=1)
        queue.fill(0, 1, 2)
        queue.fill(3, 4, 5)
        assert len(queue.feed()[0]) == 5 and queue.rate_limiter.holds(np.array([3, 4, 5]))  # slot 5's waits
        assert queue.choose(IDLE) is WAIT  # for slots 0 to 2
        for _ in range(L):
            queue.act(0, 1, 2)
        assert queue.choose(IDLE) is UPDATE  # 3 and 4 are not held, but act with 5

    def test_what_a_lost_session_left_holds_nobody_elses_message(self) -> None:
        queue = Queue(batch_size=4, max_lag=1)
        queue.fill(0, 1, 2)
        for _ in range(2):
            queue.act(3)
        queue.feed()
        for _ in range(L):
            queue.act(0, 1, 2)
        queue.cut(0, 1, 2)
        queue.feed()
        queue.act(0, 1)  # a smaller session in its slots
        assert queue.choose(IDLE) is WAIT
        for _ in range(L):
            queue.act(0, 1)
        queue.cut(0, 1)
        assert queue.choose(IDLE) is WAIT  # slot 3 is not held

    @pytest.mark.thorough
    @pytest.mark.parametrize("max_lag", [1, 2, 3])
    @pytest.mark.parametrize("batch_size", range(1, 26))
    def test_no_clock_is_waited_for_where_all_messages_are_on_hold(self, batch_size: int, max_lag: int) -> None:
        queue = Queue(num_slots=8, batch_size=batch_size, max_lag=max_lag)
        groups, num_updates = [[0, 1, 2, 3], [4, 5, 6, 7]], 0
        for _ in range(200):
            free = [group for group in groups if not queue.rate_limiter.holds(np.array(group))]
            work = queue.choose(READY._replace(can_act=bool(free)))
            if work is ACT:
                queue.act(*free[0])
                groups.reverse()
            else:
                assert work is UPDATE
                queue.feed()
                num_updates += 1
        assert num_updates >= 3

    def test_nothing_is_updated_before_the_update_is_compiled(self) -> None:
        queue = Queue(batch_size=1, max_lag=1)
        queue.fill(0)
        assert queue.choose(IDLE._replace(can_update=False)) is WAIT
        assert queue.choose(READY._replace(can_update=False)) is ACT


class TestBatches:
    """Full batches first, then acting; padding where too little comes."""

    def test_a_full_batch_goes_before_acting(self) -> None:
        queue = Queue(batch_size=2)
        for _ in range(L + 1):
            assert queue.choose() is ACT
            queue.act(0, 1)
        assert queue.choose() is UPDATE
        queue.feed()
        assert queue.choose() is ACT

    def test_evaluation_goes_first_and_takes_turns(self) -> None:
        queue = Queue(batch_size=2)
        waiting = READY._replace(can_evaluate=True, evaluating=True)
        assert queue.choose(waiting) is EVALUATE
        assert queue.choose(waiting._replace(evaluated_last=True)) is ACT
        assert queue.choose(waiting._replace(evaluated_last=True, can_act=False)) is EVALUATE
        queue.fill(0, 1)
        assert queue.choose(waiting) is EVALUATE
        assert queue.choose(waiting._replace(evaluated_last=True)) is UPDATE

    def test_a_batch_that_is_not_full_waits_its_time(self) -> None:
        queue = Queue(batch_size=3)
        assert queue.seconds_left() is None
        queue.now = 5.0
        queue.fill(0)
        assert queue.seconds_left(5.0) == 1.0
        queue.now = 5.75
        queue.fill(1)
        assert queue.seconds_left(5.75) == 0.25  # of the oldest
        assert queue.choose(IDLE) is WAIT
        queue.now = 6.0
        assert queue.seconds_left() == 0.0
        assert queue.choose() is ACT  # there is still something better to do
        assert queue.choose(IDLE) is UPDATE
        taken, weight = queue.feed()
        assert taken == [(0, 0), (1, 0)] and weight.tolist() == [1, 1, 0]
        assert queue.seconds_left() is None

    def test_unrolls_that_a_full_batch_leaves_wait_anew(self) -> None:
        queue = Queue(batch_size=3)
        queue.fill(0, 1, 2, 3)
        queue.now = 0.5
        assert queue.feed()[0] == [(0, 0), (1, 0), (2, 0)]
        assert queue.seconds_left(0.75) == 0.75
        queue.now = 1.5
        assert queue.choose(IDLE) is UPDATE and queue.feed()[0] == [(3, 0)]


class TestShards:
    """Two devices with three slots each; a batch takes two unrolls of each."""

    def test_each_takes_its_own_slots(self) -> None:
        queue = Queue(num_slots=6, num_shards=2, batch_size=4)
        queue.fill(0, 1, 2)
        assert queue.choose() is ACT  # three unrolls, but all of one device
        queue.fill(5, 4)
        assert queue.choose() is UPDATE
        fed: steps.Unrolls = queue.rate_limiter.feed(0, 0.0)
        assert fed.slot.tolist() == [0, 1, 2, 1]  # local
        assert fed.weight.tolist() == [1, 1, 1, 1]

    def test_padding_is_shared_by_both(self) -> None:
        queue = Queue(num_slots=6, num_shards=2, batch_size=4)
        queue.fill(0, 1, 2)
        queue.now = 1.0
        assert queue.choose(IDLE) is UPDATE
        taken, weight = queue.feed()
        assert taken == [(0, 0), (1, 0)] and weight.tolist() == [1, 1, 0, 0]
        assert queue.rate_limiter.num_waiting == L  # of slot 2


class TestLockStep:
    """Decisions depend on counters alone."""

    def test_no_clock_decides(self) -> None:
        queue = Queue(batch_size=3, lock_step=True)
        queue.fill(0)
        queue.now = 1000.0
        assert queue.choose(IDLE) is WAIT

    def test_a_full_batch_that_is_not_compiled_is_waited_for_instead_of_acting(self) -> None:
        queue = Queue(batch_size=2, lock_step=True)
        queue.fill(0, 1)
        assert queue.choose(READY._replace(can_update=False)) is WAIT
        assert queue.choose() is UPDATE

    def test_it_does_nothing_else_while_it_evaluates(self) -> None:
        queue = Queue(batch_size=1, lock_step=True)
        queue.fill(0)
        evaluating = READY._replace(evaluating=True)
        assert queue.choose(evaluating) is WAIT
        assert queue.choose(evaluating._replace(can_evaluate=True)) is EVALUATE

    def test_a_held_seat_says_nothing_before_all_messages_wait(self) -> None:
        queue = Queue(batch_size=4, max_lag=1, lock_step=True)
        queue.fill(0)
        assert queue.choose(IDLE._replace(all_wait=False)) is WAIT
        assert queue.choose(IDLE._replace(waits_to_act=True)) is WAIT, "for calls on their way"
        assert queue.choose(READY) is ACT, "it is not shown"
        assert queue.choose(IDLE) is UPDATE, "it is shown, and all wait for it"

    @pytest.mark.thorough
    @pytest.mark.parametrize("max_lag", [1, 2, 3])
    @pytest.mark.parametrize("batch_size", range(1, 14))
    def test_it_goes_on_for_ever_with_batches_of_any_size(self, batch_size: int, max_lag: int) -> None:
        queue = Queue(batch_size=batch_size, max_lag=max_lag, lock_step=True)
        everyone, decisions = range(4), []
        for _ in range(300):
            can_act = not queue.rate_limiter.holds(np.array(everyone))  # acting waits for every environment
            work = queue.choose(READY._replace(can_act=can_act))
            assert work is not WAIT
            decisions.append(work)
            if work is ACT:
                queue.act(*everyone)
            else:
                queue.feed()
            assert queue.is_balanced
        assert {ACT, UPDATE} == set(decisions)
        assert len(queue.learned) >= 200

    def test_a_lost_worker_stalls_nobody(self) -> None:
        queue = Queue(batch_size=4, lock_step=True)
        queue.fill(0, 1)
        queue.cut(0)  # its new session is held until its last one's unroll is learned from
        assert queue.choose(IDLE) is UPDATE
        queue.feed()
        assert not queue.rate_limiter.holds(np.array([0, 1]))


CASES = [
    dict(num_slots=4, batch_size=3, max_lag=2),
    dict(num_slots=4, batch_size=1, max_lag=1),
    dict(num_slots=4, batch_size=8, max_lag=1, length=1),
    dict(num_slots=6, num_shards=2, batch_size=4, max_lag=2, length=4),
    dict(num_slots=8, num_shards=4, batch_size=4, max_lag=3, length=2, stack=4),
    dict(num_slots=4, batch_size=2, max_lag=2, length=5, stack=3),
]


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("seed", "cuts"), [(0, 0.01), (1, 0.04), (2, 0.2)])
def test_over_random_histories_each_step_is_learned_from_at_most_once_in_order(
    case: dict[str, int], seed: int, cuts: float
) -> None:
    """Any order of acting, cuts and updates; messages that are held wait. `Queue` checks every row that is read."""
    rng, queue = np.random.default_rng(seed), Queue(**case)
    groups = np.arange(case["num_slots"]).reshape(-1, 2)
    for _ in range(1000):
        queue.now += rng.random() * 0.1
        draw = rng.random()
        if draw < cuts:
            queue.cut(*groups[rng.integers(len(groups))])
        elif draw < cuts + 0.2:
            if queue.seconds_left() is not None:
                queue.feed()
        else:
            free = [group for group in groups if not queue.rate_limiter.holds(group)]
            chosen = [slot for group in free if rng.random() < 0.6 for slot in group.tolist()]
            if chosen:
                queue.act(*chosen, final=tuple(slot for slot in chosen if rng.random() < 0.15))
        assert queue.is_balanced
    assert len(set(queue.learned)) == len(queue.learned) > 100
    for slot in range(case["num_slots"]):
        rows = [row for other, row in queue.learned if other == slot]
        assert rows == sorted(rows)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("seed", "cuts"), [(0, 0.01), (1, 0.1)])
def test_its_own_decisions_learn_from_every_step_that_no_cut_dropped(
    case: dict[str, int], seed: int, cuts: float
) -> None:
    rng, queue = np.random.default_rng(seed), Queue(**case)
    groups = np.arange(case["num_slots"]).reshape(-1, 2)
    works = []
    for _ in range(1000):
        queue.now += 0.05
        if rng.random() < cuts:
            queue.cut(*groups[rng.integers(len(groups))])
        waiting = [group for group in groups if rng.random() < 0.7 and not queue.rate_limiter.holds(group)]
        work = queue.choose(READY._replace(can_act=bool(waiting), can_update=bool(rng.random() < 0.9)))
        works.append(work)
        if work is ACT:
            slots = [slot for group in waiting for slot in group.tolist()]
            queue.act(*slots, final=tuple(slot for slot in slots if rng.random() < 0.1))
        elif work is UPDATE:
            queue.feed()
        assert queue.is_balanced
    most = case["num_slots"] * (case["max_lag"] + 1) * queue.data.length
    assert queue.rate_limiter.num_waiting <= most
    assert len(queue.learned) >= queue.num_stored - queue.num_discarded - most
    assert works.count(UPDATE) > 30


def test_samples_are_the_stored_steps_that_do_not_wait() -> None:
    queue = Queue(batch_size=1)
    for _ in range(L + 3):
        queue.act(0)
    assert queue.rate_limiter.num_samples(0, queue.num_stored) == 0
    queue.feed()
    assert queue.rate_limiter.num_samples(1, queue.num_stored) == L == len(queue.learned)
    dropped = queue.cut(0)
    assert queue.rate_limiter.num_samples(1, queue.num_stored - dropped) == L  # the ledger has discarded them


@pytest.mark.parametrize("lock_step", [False, True])
def test_an_agent_with_a_queue_learns_from_unrolls(queued: loop_world.Device, lock_step: bool) -> None:
    rate_limiter = players.make_pacer(loop_world.configured(queued, {"run__deterministic": lock_step}), queued.setup)
    assert isinstance(rate_limiter, queue_rate.QueueRateLimiter)
    slots = np.arange(4)
    for row in range(loop_world.UNROLL + 1):
        assert rate_limiter.rate().choose(READY, 0.0) is ACT
        rate_limiter.record(slots, slots, np.full(4, row == 0), 0.0)
    blocked = READY._replace(can_update=False)
    assert rate_limiter.rate().choose(blocked, 0.0) is (WAIT if lock_step else ACT)
    assert rate_limiter.rate().choose(READY, 0.0) is UPDATE
    assert rate_limiter.feed(12, 0.0).slot.tolist() == [0, 1, 2, 3]
