"""Requests of other threads to the device loop."""

from __future__ import annotations

import threading

from seedzero.learner import inbox as inbox_lib
from seedzero.learner import requests as requests_lib


def test_the_newest_action_runs_once() -> None:
    requests, done = requests_lib.Requests(inbox_lib.Inbox()), []
    assert not requests.are_waiting
    requests.put(lambda: done.append(1))
    requests.put(lambda: done.append(2))
    assert requests.are_waiting and not done
    requests.handle()
    requests.handle()
    assert done == [2] and not requests.are_waiting and requests.reason_to_stop is None


def test_an_action_may_ask_for_another() -> None:
    requests, done = requests_lib.Requests(inbox_lib.Inbox()), []
    requests.put(lambda: requests.put(lambda: done.append("again")))
    requests.handle()
    assert requests.are_waiting and not done
    requests.handle()
    assert done == ["again"]


def test_the_reason_to_stop_is_taken_after_the_action() -> None:
    requests, seen = requests_lib.Requests(inbox_lib.Inbox()), []
    requests.stop("a signal")
    requests.put(lambda: seen.append(requests.reason_to_stop))
    assert requests.are_waiting and requests.reason_to_stop is None
    requests.handle()
    assert seen == [None] and requests.reason_to_stop == "a signal"


def test_both_wake_the_loop() -> None:
    inbox = inbox_lib.Inbox()
    requests = requests_lib.Requests(inbox)
    for ask in (lambda: requests.put(lambda: None), lambda: requests.stop("x")):
        woken = []
        with inbox.changed:
            asking = threading.Thread(target=ask)
            asking.start()
            woken.append(inbox.changed.wait(timeout=60))
        asking.join()
        assert woken == [True]
