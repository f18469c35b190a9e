"""Calls on their way complete in order, and their failures stop everything."""

from __future__ import annotations

import threading

import pytest

from seedzero.core import errors
from seedzero.learner.loop import in_flight_calls, inboxes


def _make(maximum: int = 2) -> in_flight_calls.InFlight:
    return in_flight_calls.InFlight(inboxes.News(), maximum)


def _fail(error: Exception) -> None:
    raise error


def test_there_is_room_for_as_many_as_the_settings_say() -> None:
    calls = _make(2)
    assert calls.is_empty and calls.has_room_in(*range(len(calls.lanes)))
    calls.add(lambda: None)
    assert not calls.is_empty and calls.has_room_in(*range(len(calls.lanes)))
    calls.add(lambda: None)
    assert not calls.has_room_in(*range(len(calls.lanes)))
    assert calls.complete_next() and calls.has_room_in(*range(len(calls.lanes))) and not calls.is_empty
    assert calls.complete_next() and calls.is_empty


def test_they_complete_in_the_order_of_their_dispatch_on_a_thread_of_their_own() -> None:
    calls, done, threads = _make(3), [], set()

    def finish(number: int) -> None:
        done.append(number)
        threads.add(threading.current_thread().name)

    calls.start()
    for number in range(3):
        calls.add(lambda number=number: finish(number))  # type: ignore[misc]
    calls.settle()
    for number in range(3, 6):
        calls.add(lambda number=number: finish(number))  # type: ignore[misc]
    calls.stop()  # waits for the calls before it
    assert done == list(range(6)) and threads == {"completions"}


def test_each_completion_wakes_the_loop() -> None:
    calls = _make()
    calls.start()
    calls.add(lambda: None)
    with calls._news:
        assert calls._news.wait_for(lambda: calls.is_empty, timeout=60)
    calls.stop()


def test_a_failure_of_the_device_says_that_its_state_is_lost() -> None:
    calls = _make()
    cause = RuntimeError("out of memory")
    calls.check()
    calls.add(lambda: _fail(cause))
    calls.complete_next()
    assert calls.is_empty
    with pytest.raises(errors.TrainingFailure, match=r"\(out of memory\)") as failed:
        calls.check()
    assert failed.value.__cause__ is cause
    with pytest.raises(errors.TrainingFailure):
        calls.settle()


def test_our_own_errors_pass_unchanged() -> None:
    calls = _make()
    error = errors.TrainingFailure("the loss was not finite")
    calls.add(lambda: _fail(error))
    calls.complete_next()
    with pytest.raises(errors.TrainingFailure) as failed:
        calls.check()
    assert failed.value is error


def test_after_a_failure_no_further_call_completes() -> None:
    calls, done = _make(3), []
    calls.add(lambda: _fail(RuntimeError("first")))
    calls.add(lambda: done.append(1))
    calls.add(lambda: _fail(RuntimeError("second")))
    calls.start()
    with pytest.raises(errors.TrainingFailure, match="first"):
        calls.settle()
    calls.stop()
    assert not done and calls.is_empty
    with pytest.raises(errors.TrainingFailure, match="first"):
        calls.check()


def test_calls_of_one_lane_do_not_wait_for_those_of_another() -> None:
    calls, done, may_end = in_flight_calls.InFlight(inboxes.News(), 1, 2), [], threading.Event()
    calls.start()
    calls.add(lambda: done.append(may_end.wait(60)), 1)
    assert calls.has_room_in(0) and calls.has_room_in(1)
    for number in range(2):
        calls.add(lambda number=number: done.append(number))  # type: ignore[misc]
        with calls._news:
            assert calls._news.wait_for(lambda: calls.lanes[0].number == 0, timeout=60)
    assert done == [0, 1] and not calls.is_empty and calls.has_room_in(*range(len(calls.lanes)))
    may_end.set()
    calls.settle()
    calls.stop()
    assert done == [0, 1, True] and calls.is_empty


def test_there_is_room_while_any_lane_has_some() -> None:
    calls = in_flight_calls.InFlight(inboxes.News(), 1, 2)
    calls.add(lambda: None)
    assert calls.has_room_in(*range(len(calls.lanes))) and not calls.has_room_in(0)
    calls.add(lambda: None, 1)
    calls.add(lambda: None, 1)
    assert (
        not calls.has_room_in(*range(len(calls.lanes)))
        and calls.complete_next(1)
        and calls.has_room_in(1)
        and not calls.has_room_in(0)
    )


def test_a_failure_in_one_lane_stops_the_other() -> None:
    calls, done = in_flight_calls.InFlight(inboxes.News(), 2, 2), []
    calls.add(lambda: _fail(RuntimeError("learning")), 1)
    calls.complete_next(1)
    calls.add(lambda: done.append(1))
    calls.complete_next()
    assert not done
    with pytest.raises(errors.TrainingFailure, match="learning"):
        calls.check()


def test_after_a_slow_update_one_is_on_its_way_at_a_time() -> None:
    now = [0.0]
    times = in_flight_calls.UpdateTimes(lambda: now[0])

    def takes(seconds: float) -> bool:
        """Returns whether the update after one of so many seconds would be awaited."""
        first, second = times.begin(), times.begin()
        now[0] += seconds
        first()
        found = times.awaits_slow
        second()
        return found and not times.awaits_slow

    assert [takes(0.01), takes(0.5), takes(0.01), takes(0.01)] == [False, True, True, True]
    assert [takes(0.01) for _ in range(10)][-1] is False


def test_an_update_is_not_slow_for_the_time_behind_another() -> None:
    now = [0.0]
    times = in_flight_calls.UpdateTimes(lambda: now[0])
    ends = [times.begin() for _ in range(3)]
    for end in ends:
        now[0] += 0.04
        end()
    times.begin()
    assert not times.awaits_slow
