"""A worker's way among several hosts: the choice by itself, then with real servers on loopback."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import logging
import pathlib
import types
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from wire import HELLO, SETTINGS, SPEC, Learner, make_step, receive_actions, serving

from seedzero.core import errors
from seedzero.transport import client, messages, security

LIST = ("a:1", "b:2", "c:3")
FULL = "RESOURCE_EXHAUSTED: 64 slots, all taken"
AWAY = "UNAVAILABLE: connection refused"
QUICK = dataclasses.replace(SETTINGS, lease_seconds=0.3)


def of(worker_id: str, listed: tuple[str, ...] = LIST, max_backoff_seconds: float = 5.0) -> client.Hosts:
    return client.Hosts([security.for_client(address) for address in listed], worker_id, max_backoff_seconds)


def worker_of(*order: str) -> str:
    """Returns the name of a worker that has this order."""

    names = (f"worker-{number}" for number in itertools.count())
    return next(name for name in names if [host.address for host in of(name, order)._order] == list(order))


def after(
    asked: client.Hosts, trouble: client.Trouble, release: Callable[[bool], bool] = lambda is_full: True
) -> tuple[str, float]:
    """Returns the next host and the pause before it, without chance: the longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.random, "uniform", lambda low, high: high)
        pause_seconds = asked.retry(trouble, release)
    return asked.present.address, pause_seconds


# --- the order ---


def test_workers_begin_evenly_and_leave_a_dead_host_evenly() -> None:
    number, second = collections.Counter[str](), collections.Counter[str]()
    for index in range(3000):
        asked = of(f"box-{index}")
        number[asked.present.address] += 1
        if asked.present.address == "a:1":
            second[after(asked, client.Trouble(AWAY))[0]] += 1
    assert set(number) == set(LIST) and all(900 < count < 1100 for count in number.values())
    assert set(second) == {"b:2", "c:3"} and all(400 < count < 600 for count in second.values())


def test_the_order_is_the_same_in_every_process_however_the_list_is_sorted() -> None:
    assert [of(f"worker-{index}").present.address for index in range(6)] == ["a:1", "b:2", "c:3", "c:3", "a:1", "a:1"]
    assert [of("worker-0", listed).present.address for listed in itertools.permutations(LIST)] == 6 * ["a:1"]


# --- the next host ---


@pytest.mark.parametrize(("hint", "chosen"), [("c:3", "c:3"), ("", "b:2"), ("a:1", "b:2")])
def test_a_worker_goes_to_the_host_that_a_full_one_names_or_else_to_the_next(hint: str, chosen: str) -> None:
    assert after(of(worker_of("a:1", "b:2", "c:3")), client.Trouble(FULL, True, hint))[0] == chosen


def test_hosts_that_name_each_other_do_not_keep_a_worker_from_the_third() -> None:
    asked = of(worker_of("a:1", "b:2", "c:3"))
    hints = {"a:1": "b:2", "b:2": "a:1", "c:3": ""}
    assert [after(asked, client.Trouble(FULL, True, hints[asked.present.address]))[0] for _ in range(3)] == [
        "b:2",
        "c:3",
        "a:1",
    ]


def test_a_hint_outside_the_list_is_ignored_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    asked = of(worker_of("a:1", "b:2", "c:3"))
    assert after(asked, client.Trouble(FULL, True, "evil:1\n" + 200 * "x"))[0] == "b:2"
    (line,) = caplog.messages
    assert r"'evil:1\n" in line and len(line) < 300
    assert "at a:1: RESOURCE_EXHAUSTED: 64 slots" in line and line.endswith("--server does not: ignored; trying b:2")


def test_a_host_without_an_answer_is_kept_until_the_worker_is_free() -> None:
    asked, questions = of(worker_of("a:1", "b:2", "c:3")), list[bool]()

    def release(is_full: bool) -> bool:
        questions.append(is_full)
        return len(questions) > 3

    assert [after(asked, client.Trouble(AWAY), release) for _ in range(4)] == [
        ("a:1", 0.1),
        ("a:1", 0.2),
        ("a:1", 0.4),
        ("b:2", 0.1),
    ]
    assert questions == 4 * [False]


def test_pauses_double_from_round_to_round_until_actions_come() -> None:
    asked = of(worker_of("a:1", "b:2", "c:3"), max_backoff_seconds=0.3)
    pauses = [after(asked, client.Trouble(AWAY))[1] for _ in range(9)]
    assert pauses == [0.1, 0.1, 0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.3]
    asked.heard("assign")
    asked.heard("actions")
    assert [after(asked, client.Trouble(AWAY)) for _ in range(4)] == [
        ("b:2", 0.1),
        ("c:3", 0.1),
        ("a:1", 0.1),
        ("b:2", 0.1),
    ]


def test_a_single_host_is_asked_again_and_never_left(caplog: pytest.LogCaptureFixture) -> None:
    def release(is_full: bool) -> bool:
        raise AssertionError("nobody else is there")

    caplog.set_level(logging.INFO)
    asked = of("worker", ("a:1",))
    tried = [after(asked, client.Trouble(text), release) for text in (AWAY, AWAY, FULL)]
    assert tried == [("a:1", 0.1), ("a:1", 0.2), ("a:1", 0.4)]
    asked.heard("assign")
    away, full, connected = caplog.messages
    assert "a:1: UNAVAILABLE: connection refused; trying again" in away and "RESOURCE_EXHAUSTED" in full
    assert connected == "learner at a:1: connected"


def test_complaints_are_told_once_for_each_host_and_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr(client.time, "monotonic", lambda: now)
    asked = of(worker_of("a:1", "b:2"), ("a:1", "b:2"))
    for _ in range(6):
        after(asked, client.Trouble(AWAY))
    assert len(caplog.messages) == 2
    assert "a:1: " in caplog.messages[0] and caplog.messages[0].endswith("; trying b:2")
    assert "b:2: " in caplog.messages[1] and caplog.messages[1].endswith("; trying a:1")
    now += 30
    after(asked, client.Trouble(AWAY))
    assert len(caplog.messages) == 3


# --- with servers ---


@contextlib.contextmanager
def member(
    address: str, worker_id: str, access: security.Access = security.PLAIN
) -> Iterator[tuple[client.Client, Callable[[], messages.Actions]]]:
    """A worker in a session, and the sending of a step with the wait for its answer."""
    hello = dataclasses.replace(HELLO, worker_id=worker_id)
    with client.Client(address, hello, settings=QUICK, access=access) as worker:

        def play() -> messages.Actions:
            worker.send(0, make_step())
            return receive_actions(worker)

        assert worker.join() is not None
        worker.start(SPEC)
        yield worker, play


@contextlib.contextmanager
def running(*learners: Learner) -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(serving(learner)) for learner in learners]


def test_workers_with_one_list_spread_over_its_hosts() -> None:
    first, second = Learner(), Learner()
    with running(first, second) as addresses, contextlib.ExitStack() as workers:
        for order in (addresses, addresses[::-1]):
            worker, play = workers.enter_context(member(",".join(addresses), worker_of(*order)))
            play()
            assert worker.address == order[0]
        assert (first.num_sessions, second.num_sessions) == (1, 1)


FULL_HOST = errors.SlotsExhausted("64 slots, all taken")


@pytest.mark.parametrize(
    ("hint", "chosen", "told"),
    [
        (lambda addresses: addresses[2], 2, ""),
        (lambda addresses: "", 1, ""),
        (lambda addresses: "elsewhere.example.org:1", 1, "ignored"),
        (lambda addresses: "ungültig:1\n", 1, ""),
        (lambda addresses: {}["secret"], 1, "KeyError: 'secret'"),  # in the learner's log, and not to the worker
    ],
    ids=["useful", "none", "not listed", "invalid", "error"],
)
def test_a_full_host_sends_a_worker_to_the_host_that_it_names_or_else_to_the_next(
    hint: Callable[[list[str]], str], chosen: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    full, *others = Learner(elsewhere=lambda: hint(addresses)), Learner(), Learner()
    full.refusal = FULL_HOST
    with running(full, *others) as addresses, member(",".join(addresses), worker_of(*addresses)) as (worker, play):
        play()
        assert worker.address == addresses[chosen]
    assert [learner.num_sessions for learner in (full, *others)] == [int(index == chosen) for index in range(3)]
    assert told in caplog.text and ("ignored" in caplog.text) == (told == "ignored")
    assert not [line for line in caplog.messages if line.startswith("learner at") and "secret" in line]


def test_a_host_with_too_many_workers_names_another_too() -> None:
    full = Learner(dataclasses.replace(SETTINGS, max_workers=1), elsewhere=lambda: addresses[1])
    other = Learner()
    with running(full, other) as addresses:
        listed, worker_id = ",".join(addresses), worker_of(*addresses)
        with member(listed, worker_id) as (_, first), member(listed, worker_id) as (_, second):
            first()
            second()
        assert (full.num_sessions, other.num_sessions) == (1, 1)


def test_a_stranger_is_told_no_other_host() -> None:
    asked = list[bool]()
    secured = security.ServerSecurity("the token")
    full = Learner(secured=secured, elsewhere=lambda: str(asked.append(True)))
    full.refusal = FULL_HOST
    with running(full) as (address,), client.Client(address, HELLO) as worker, pytest.raises(errors.AccessDenied):
        worker.join()
    assert not asked


def test_a_worker_goes_on_at_another_host_when_its_own_dies(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Learner(QUICK), Learner(QUICK)
    with running(first, second) as addresses, member(",".join(addresses), worker_of(*addresses)) as (worker, play):
        play()
        first.hold = True
        worker.send(0, make_step())
        first.next_request()
        first.server.stop(finished=False, reason="the machine is gone")
        assert isinstance(event := worker.receive(), messages.Restart)
        assert event.reason == "no connection for 0.3 s"
        assert worker.join() is not None
        worker.start(SPEC)
        play()
        assert second.next_request().sequence == 0
        assert worker.address == addresses[1]
    assert f"{addresses[0]}: UNAVAILABLE" in caplog.text and f"trying {addresses[1]}" in caplog.text


def test_a_worker_waits_for_its_host_as_long_as_the_session_may_live(tmp_path: pathlib.Path) -> None:
    settings = [dataclasses.replace(SETTINGS, listen=f"unix:{tmp_path / name}") for name in "ab"]
    first, other, again = Learner(settings[0]), Learner(settings[1]), Learner(settings[0])
    addresses = [found.listen for found in settings]
    with serving(other), contextlib.ExitStack() as stack:
        with serving(first):
            worker, play = stack.enter_context(member(",".join(addresses), worker_of(*addresses)))
            play()
        worker.send(0, make_step())
        with serving(again):
            assert isinstance(event := worker.receive(), messages.Restart)
            assert "is unknown" in event.reason
            assert worker.join() is not None
            worker.start(SPEC)
            play()
            assert again.next_request().sequence == 0
    assert (other.num_sessions, again.num_sessions) == (0, 1)


def test_a_host_that_is_away_from_the_beginning_is_waited_for_and_left(tmp_path: pathlib.Path) -> None:
    away, other = f"unix:{tmp_path / 'away'}", Learner(dataclasses.replace(SETTINGS, listen=f"unix:{tmp_path / 'b'}"))
    with running(other) as addresses, member(f"{away},{addresses[0]}", worker_of(away, *addresses)) as (_, play):
        play()
    assert other.num_sessions == 1


def test_a_worker_that_leaves_just_as_it_connects_reads_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    num_reads = 0

    async def meet() -> None:
        hosts = of("a", ("127.0.0.1:1",))
        side = client.WorkerSide(hosts, HELLO, lambda event: None, 15.0)
        connection = client.Connection(hosts, SETTINGS, side)
        closing = asyncio.Event()

        async def connected() -> None:
            closing.set()
            await asyncio.sleep(0)

        async def read() -> None:
            nonlocal num_reads
            num_reads += 1

        @contextlib.asynccontextmanager
        async def channel(*_: object) -> AsyncIterator[types.SimpleNamespace]:
            call = types.SimpleNamespace(wait_for_connection=connected, read=read, write=write, cancel=lambda: None)
            yield types.SimpleNamespace(stream_stream=lambda *_: lambda metadata: call)

        async def write(data: bytes) -> None:
            pass

        monkeypatch.setattr(security, "channel", channel)
        await connection.open()
        side.join()
        await closing.wait()
        await connection.close("done", False, 5.0)

    asyncio.run(meet())
    assert not num_reads
