"""acknowledged = stored + pending + discarded, whatever happens."""

import numpy as np

from seedzero.loop import ledger
from seedzero.metrics import counts


def _balanced(found: counts.Counts) -> bool:
    return found.acknowledged == found.stored + found.pending + sum(found.discarded.values())


def _record(book: ledger.Ledger, slots: list[int], first: list[int], final: list[int]) -> int:
    return book.record(np.array(slots), np.array(first, bool), np.array(final, bool))


def test_a_step_is_pending_until_the_next_observation_stores_it() -> None:
    book = ledger.Ledger(2)
    assert _record(book, [0, 1], [1, 1], [0, 0]) == 0
    assert book.counts == counts.Counts(acknowledged=2, stored=0, pending=2)
    assert _record(book, [0], [0], [0]) == 1
    assert book.counts == counts.Counts(acknowledged=3, stored=1, pending=2)


def test_the_action_on_a_last_observation_begins_no_step() -> None:
    book = ledger.Ledger(1)
    _record(book, [0], [1], [0])
    assert _record(book, [0], [0], [1]) == 1
    assert _record(book, [0], [1], [0]) == 0
    assert book.counts == counts.Counts(acknowledged=2, stored=1, pending=1)


def test_a_run_that_begins_over_a_pending_step_discards_it_as_worker_lost() -> None:
    book = ledger.Ledger(1)
    _record(book, [0], [1], [0])
    _record(book, [0], [1], [0])
    assert book.counts == counts.Counts(acknowledged=2, stored=0, pending=1, discarded={"worker_lost": 1})


def test_lost_slots_are_discarded_once_and_by_reason() -> None:
    book = ledger.Ledger(3)
    _record(book, [0, 1, 2], [1, 1, 1], [0, 0, 1])
    book.discard(np.array([0, 2]), counts.WORKER_LOST)
    book.discard(np.array([0]), counts.WORKER_LOST)
    book.discard(np.array([1]), counts.CHECKPOINT_RESET)
    assert book.counts.pending == 0
    assert book.counts.discarded == {"worker_lost": 1, "checkpoint_reset": 1}
    assert _record(book, [0], [1], [0]) == 0
    assert _balanced(book.counts)


def test_stored_steps_that_no_update_will_see_are_discarded_by_reason() -> None:
    book = ledger.Ledger(2)
    for _ in range(3):
        _record(book, [0, 1], [0, 0], [0, 0])
    before = book.counts
    book.discard_stored(0, counts.UNFINISHED_UNROLL)
    assert book.counts == before
    book.discard_stored(3, counts.UNFINISHED_UNROLL)
    assert book.counts == counts.Counts(acknowledged=6, stored=1, pending=2, discarded={"unfinished_unroll": 3})
    assert _balanced(book.counts)


def test_a_restore_gives_up_the_steps_that_were_pending_when_it_was_saved() -> None:
    book = ledger.Ledger(2)
    _record(book, [0, 1], [1, 1], [0, 0])
    _record(book, [0], [0], [0])
    again = ledger.Ledger(2)
    again.restore(book.to_json())
    assert again.counts == counts.Counts(acknowledged=3, stored=1, pending=0, discarded={"worker_lost": 2})


def test_it_balances_over_random_histories() -> None:
    rng = np.random.default_rng(0)
    book, ended = ledger.Ledger(8), np.ones(8, bool)
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
