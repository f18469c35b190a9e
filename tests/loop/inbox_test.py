"""The inbox gives messages that fit, and drops those of ended sessions."""

from __future__ import annotations

import numpy as np

from seedzero.core import types
from seedzero.device import batch as batches
from seedzero.loop import inbox as inboxes
from seedzero.transport import messages

ONE = batches.Layout(num_shards=1, num_train=8, num_evaluate=4)
TWO = batches.Layout(num_shards=2, num_train=8, num_evaluate=4)


def _message(slots: list[int], session_id: str = "r") -> batches.Message:
    number = len(slots)
    step = types.EnvStep(
        observation=np.zeros((number, 2), np.float32),
        reward=np.zeros(number, np.float32),
        terminated=np.zeros(number, bool),
        truncated=np.zeros(number, bool),
        action_mask=None,
    )
    request = messages.StepRequest(session_id, types.Role.TRAIN, 0, 0, step, np.zeros(number, bool))
    return batches.Message(request, np.array(slots, np.int32), 0.0)


def test_everything_that_fits_is_taken_oldest_first() -> None:
    inbox = inboxes.Inbox()
    for slots in ([0, 1], [2, 3], [4, 5]):
        inbox.put(_message(slots))
    assert [m.slots.tolist() for m in inbox.take(types.Role.TRAIN, ONE, 5)] == [[0, 1], [2, 3]]
    assert inbox.num_rows(types.Role.TRAIN) == 2
    assert inbox.num_rows(types.Role.EVALUATE) == 0


def test_the_limit_counts_for_each_shard() -> None:
    inbox = inboxes.Inbox()
    for slots in ([0, 4], [1, 5], [2, 3]):
        inbox.put(_message(slots))
    assert len(inbox.take(types.Role.TRAIN, TWO, 2)) == 2


def test_messages_on_hold_keep_their_place_and_let_others_pass() -> None:
    inbox = inboxes.Inbox()
    for slots in ([0, 1], [2, 3], [4, 5], [6, 7]):
        inbox.put(_message(slots))
    asked = []

    def holds(slots: np.ndarray) -> bool:
        asked.append(slots.tolist())
        return bool(slots[0] in (0, 4))

    assert inbox.num_rows(types.Role.TRAIN, holds) == 4 and inbox.num_rows(types.Role.TRAIN) == 8
    assert asked == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [m.slots.tolist() for m in inbox.take(types.Role.TRAIN, ONE, 2, holds)] == [[2, 3]]
    assert [m.slots.tolist() for m in inbox.take(types.Role.TRAIN, ONE, 8)] == [[0, 1], [4, 5], [6, 7]]


def test_messages_of_a_run_that_ended_are_dropped_and_its_slots_reported_once() -> None:
    inbox = inboxes.Inbox()
    inbox.put(_message([0], session_id="gone"))
    inbox.put(_message([1], session_id="here"))
    inbox.end_session("gone", types.Role.TRAIN, np.array([0]), "worker_left")
    assert inbox.has_ended
    assert [(slots.tolist(), reason) for slots, reason in inbox.take_ended()] == [([0], "worker_left")]
    assert not inbox.has_ended
    assert [m.request.session_id for m in inbox.take(types.Role.TRAIN, ONE, 8)] == ["here"]
