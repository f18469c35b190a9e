"""The inbox gives messages that fit, and drops those of ended sessions."""

from __future__ import annotations

import math
import threading

import loop_world
import numpy as np

from seedzero.core import types
from seedzero.device import batches
from seedzero.learner.loop import inboxes

ONE = batches.Layout(num_shards=1, num_train=8, num_evaluate=4)
TWO = batches.Layout(num_shards=2, num_train=8, num_evaluate=4)


def _message(slots: list[int], session_id: str = "r") -> batches.Message:
    return loop_world.message(loop_world.make_session(slots, name=session_id), 0, 0.0)


def _take(
    inbox: inboxes.Inbox,
    max_rows: int,
    layout: batches.Layout = ONE,
    homes: inboxes.Homes = lambda slots: {0: slots},
) -> list[list[int]]:
    return [message.slots.tolist() for message in inbox.take(types.Role.TRAIN, layout, max_rows, homes)]


def _waiting(inbox: inboxes.Inbox) -> list[list[int]]:
    return [found.slots.tolist() for found in inbox.waiting(types.Role.TRAIN)]


def test_everything_that_fits_is_taken_oldest_first() -> None:
    inbox = inboxes.Inbox()
    for slots in ([0, 1], [2, 3], [4, 5]):
        inbox.put(_message(slots))
    assert _take(inbox, 5) == [[0, 1], [2, 3]]
    assert _waiting(inbox) == [[4, 5]]
    assert inbox.waiting(types.Role.EVALUATE) == []


def test_the_limit_counts_for_each_shard() -> None:
    inbox = inboxes.Inbox()
    for slots in ([0, 4], [1, 5], [2, 3]):
        inbox.put(_message(slots))
    assert len(_take(inbox, 2, TWO)) == 2


def test_messages_on_hold_keep_their_place_and_let_others_pass() -> None:
    inbox = inboxes.Inbox()
    for slots in ([0, 1], [2, 3], [4, 5], [6, 7]):
        inbox.put(_message(slots))
    assert _take(inbox, 2, homes=lambda slots: {} if slots[0] in (0, 4) else {0: slots}) == [[2, 3]]
    assert _take(inbox, 8) == [[0, 1], [4, 5], [6, 7]]


def test_each_home_has_a_call_with_room_of_its_own() -> None:
    inbox = inboxes.Inbox()
    for slots in ([0, 1], [2, 3], [4, 5], [6, 7]):
        inbox.put(_message(slots))
    assert _take(inbox, 2, homes=lambda slots: {int(slots[0] >= 4): slots}) == [[0, 1], [4, 5]]
    assert _waiting(inbox) == [[2, 3], [6, 7]]


def test_a_message_of_several_homes_needs_room_in_the_calls_of_all() -> None:
    inbox = inboxes.Inbox()
    for slots in ([0], [1, 3], [2, 5], [4], [6]):
        inbox.put(_message(slots))

    def by_parity(slots: np.ndarray) -> dict[int, np.ndarray]:
        return {home: slots[slots % 2 == home] for home in np.unique(slots % 2).tolist()}

    assert _take(inbox, 2, homes=by_parity) == [[0], [1, 3]]  # the even one waits behind [2, 5], which needs both
    assert _take(inbox, 2, homes=by_parity) == [[2, 5], [4]]


def test_messages_of_a_run_that_ended_are_dropped_and_its_slots_reported_once() -> None:
    inbox = inboxes.Inbox()
    inbox.put(_message([0], session_id="gone"))
    inbox.put(_message([1], session_id="here"))
    inbox.end_session("gone", types.Role.TRAIN, np.array([0]), "worker_left")
    assert [(slots.tolist(), reason) for slots, reason in inbox.take_ended()] == [([0], "worker_left")]
    assert not inbox.take_ended()
    assert _take(inbox, 8) == [[1]]


def test_news_that_came_since_a_number_are_not_waited_for() -> None:
    inbox = inboxes.Inbox()
    known = inbox.news.number
    inbox.put(_message([0]))
    inbox.news.wait_beyond(known, math.inf)  # else for ever
    inbox.news.wait_beyond(inbox.news.number, 0.0)
    woken = threading.Thread(target=inbox.news.wait_beyond, args=(inbox.news.number, math.inf))
    woken.start()
    inbox.end_session("r", types.Role.TRAIN, np.array([0]), "worker_left")
    woken.join(60.0)
    assert not woken.is_alive()
