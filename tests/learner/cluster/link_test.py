"""Hosts over loopback: they meet, agree, notice a host that has gone, and leave together."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any

import grpc
import pytest

from seedzero.config import sections
from seedzero.core import errors
from seedzero.learner.cluster import hub, link, member, messages
from seedzero.learner.loop import agreement
from seedzero.transport import security

SETTINGS = sections.TransportConfig()
HELLO = messages.HostHello(0, 2, "settings", program="this")
LONG = 120.0
STEPS = {"acknowledged": 12, "stored": 7, "pending": 3, "discarded": {"worker_lost": 2}, "num_samples": 5}


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclasses.dataclass
class World:
    """Makes hosts, and ends them."""

    links: list[link.Link] = dataclasses.field(default_factory=list)

    def hub(self, num: int = 2, *, clock: Callable[[], float] | None = None, token: str = "", **given: Any) -> hub.Hub:
        hello = dataclasses.replace(HELLO, num=num, steps=given.pop("steps", {}))
        options = {} if clock is None else {"clock": clock}
        secured = security.ServerSecurity(token)
        found = hub.Hub(hello, "127.0.0.1:0", SETTINGS, secured=secured, silence_seconds=20, **options, **given)
        self.links.append(found)
        return found

    def member(self, address: str, index: int = 1, num: int = 2, **given: Any) -> member.HostMember:
        hello = dataclasses.replace(
            HELLO, index=index, num=num, **{name: given.pop(name) for name in ("settings", "steps") if name in given}
        )
        found = member.HostMember(hello, address, SETTINGS, silence_seconds=20, **given)
        self.links.append(found)
        return found

    def met(self, num: int = 2, **given: Any) -> tuple[hub.Hub, list[member.HostMember], list[messages.Begin]]:
        host = self.hub(num, **given)
        others = [self.member(host.address, index, num) for index in range(1, num)]
        with futures.ThreadPoolExecutor(num) as pool:
            begins = [pool.submit(one.meet, LONG) for one in (host, *others)]
            return host, others, [begin.result() for begin in begins]


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    for one in found.links:
        one.stop()


def _taken(one: link.Link) -> queue.Queue[agreement.Decision]:
    """Returns the decisions that come to a host from now on."""
    found: queue.Queue[agreement.Decision] = queue.Queue()
    decide = one.agreed.decide
    one.agreed.decide = lambda decision: (found.put(decision), decide(decision))[1]  # type: ignore[method-assign]
    return found


def test_hosts_meet_and_begin_alike(world: World) -> None:
    _, _, begins = world.met(3, steps={})
    assert len(set(begins)) == 1 and (begins[0].step, begins[0].num_hosts) == (-1, 1)
    assert begins[0].devices.startswith("127.0.0.1:")


def test_all_hosts_know_how_many_made_their_checkpoint(world: World) -> None:
    _, _, begins = world.met(3, made={20: hub.Made(3, "a"), 40: hub.Made(2, "b")})
    assert {(begin.step, begin.num_hosts) for begin in begins} == {(40, 2)}  # the others' directories are new
    assert {begin.parts for begin in begins} == {(0,)}


def test_all_hosts_know_which_have_their_part_of_the_checkpoint(world: World) -> None:
    made = hub.Made(4, "a", {"1": 7, "2": 80, "3": 6, "gone": 500})
    host = world.hub(3, made={20: made})
    others = [world.member(host.address, index, 3, steps={20: "a"} if index == 2 else None) for index in (1, 2)]
    with futures.ThreadPoolExecutor(3) as pool:
        begins = [pool.submit(one.meet, LONG) for one in (host, *others)]
        found = {begin.result(LONG) for begin in begins}
        assert {(begin.parts, begin.num_gone) for begin in found} == {((0, 2), 513)}


def test_steps_of_hosts_without_a_part_count_for_the_budget(world: World) -> None:
    host, (other,), _ = world.met(made={20: hub.Made(2, "a", {"1": 93})}, max_env_steps=100)
    taken = _taken(host)
    with futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: one.agreed.begin(0, "same"), (host, other)))
    other.send({"beat": {"steps": STEPS}})  # of 7 steps
    kinds = [taken.get(timeout=LONG).kind for _ in range(2)]
    assert kinds == [agreement.Kind.BEGIN, agreement.Kind.END]


def test_decisions_come_to_all_hosts_in_the_same_order(world: World) -> None:
    host, others, _ = world.met(3)
    hosts = [host, *others]
    taken = [_taken(one) for one in hosts]
    with futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda one: one.agreed.begin(0, "same"), hosts))
    found: list[list[agreement.Decision]] = [[], [], []]
    for number in range(5):
        for one in hosts:
            one.send({"ready": number + 1, "steps": STEPS})
        host.agreed.ask(agreement.Kind.SAVE)
        for decisions, those in zip(taken, found, strict=True):
            while [decision.kind for decision in those].count(agreement.Kind.UPDATE) <= number:
                those.append(decisions.get(timeout=LONG))
    assert found[0] == found[1] == found[2]
    assert [decision.num_updates for decision in found[0] if decision.kind is agreement.Kind.UPDATE] == list(range(5))


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"num": 3}, "--cluster.num_hosts=3"),
        ({"index": 5}, "--cluster.index=5"),
        ({"settings": "others"}, "other settings"),
    ],
)
def test_a_refusal_is_named_at_the_host_that_is_refused(world: World, changed: dict[str, Any], match: str) -> None:
    host = world.hub()
    with pytest.raises(errors.UsageError, match=match):
        world.member(host.address, **{"index": 1, **changed}).meet(LONG)


def test_a_host_that_ends_before_all_have_joined_may_come_again(world: World) -> None:
    host = world.hub(3)
    first = world.member(host.address, 1, 3)
    with futures.ThreadPoolExecutor(3) as pool:
        early = pool.submit(first.meet, LONG)
        with host._changed:
            assert host._changed.wait_for(lambda: host._roll.missing == [2], LONG)
        first.stop()
        with pytest.raises(futures.CancelledError):
            early.result(LONG)
        others = [world.member(host.address, index, 3) for index in (1, 2)]
        begins = [pool.submit(one.meet, LONG) for one in (host, *others)]
        assert len({begin.result(LONG) for begin in begins}) == 1


def test_nobody_joins_a_run_that_goes_on(world: World) -> None:
    host, _, _ = world.met()
    with pytest.raises(errors.UsageError, match="continues without a new host 1"):
        world.member(host.address).meet(LONG)


def test_a_stranger_is_refused_before_anything_is_read(world: World, tmp_path: pathlib.Path) -> None:
    host = world.hub(token="secret-of-16-letters")
    with pytest.raises(errors.AccessDenied, match="--token_file"):
        world.member(host.address).meet(LONG)
    token = tmp_path / "token"
    token.write_text("secret-of-16-letters")
    access = security.Access(str(token))
    with futures.ThreadPoolExecutor(1) as pool:
        joined = pool.submit(world.member(host.address, access=access).meet, LONG)
        assert host.meet(LONG) == joined.result(LONG)


def test_idle_strangers_take_no_hosts_place(world: World) -> None:
    """Many more than the hub serves at a time, each without a word: a call without the token ends at once."""
    host = world.hub(token="secret-of-16-letters")
    silent = threading.Event()

    def idle(channel: grpc.Channel) -> object:
        return channel.stream_stream(f"/{messages.SERVICE}/{messages.METHOD}")(
            iter(lambda: silent.wait(LONG) or b"", None)
        )

    with contextlib.ExitStack() as open_now, futures.ThreadPoolExecutor(1) as pool:
        strangers = [open_now.enter_context(grpc.insecure_channel(host.address)) for _ in range(40)]
        open_now.callback(silent.set)
        calls = [idle(channel) for channel in strangers]
        joined = pool.submit(world.member(host.address, token="secret-of-16-letters").meet, LONG)
        assert host.meet(LONG) == joined.result(LONG)
        codes = {call.code() for call in calls}  # type: ignore[attr-defined]
    assert codes <= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff" * 100, b'{"hello": {"index": "x"}}'], ids=repr)
def test_other_bytes_than_a_hello_end_the_call(world: World, data: bytes) -> None:
    host = world.hub()
    with grpc.insecure_channel(host.address) as channel:
        call = channel.stream_stream(f"/{messages.SERVICE}/{messages.METHOD}")(iter([data]))
        with pytest.raises(grpc.RpcError) as raised:
            next(call)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_coordinator_that_never_comes_is_named(world: World) -> None:
    with pytest.raises(errors.TrainingFailure, match=r"could not join host 0 .*127\.0\.0\.1:1 .*nobody answers"):
        world.member("127.0.0.1:1").meet(0.3)


def test_a_host_that_never_comes_is_named(world: World) -> None:
    with pytest.raises(errors.TrainingFailure, match=r"host 1, 2 did not join within 0\.1 s"):
        world.hub(3).meet(0.1)


def test_all_are_told_of_a_host_that_ends(world: World) -> None:
    host, (first, second), _ = world.met(3)
    told: queue.Queue[tuple[int, str]] = queue.Queue()
    is_told = threading.Event()

    def end(reason: str) -> None:
        is_told.wait(LONG)  # like a process that ends, it sends nothing more
        told.put((0, reason))

    host.when_lost(end)
    second.when_lost(lambda reason: (told.put((2, reason)), is_told.set()))
    first.stop()
    assert dict(told.get(timeout=2 * LONG) for _ in range(2)) == dict.fromkeys((2, 0), "host 1 has ended")
    assert is_told.is_set()


def test_a_host_that_reads_nothing_does_not_keep_the_others_from_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_TELL_SECONDS", 0.0)
    host, _, _ = world.met(3)
    told: queue.Queue[str] = queue.Queue()
    host.when_lost(told.put)
    for reason in ("host 2 reads nothing", "host 1 has ended"):
        host._thread.post(host._lose_all, reason)
    assert told.get(timeout=LONG) == "host 2 reads nothing"


def test_a_host_that_ends_just_as_the_others_begin_is_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    host, noted = world.hub(), queue.Queue[str]()
    other = world.member(host.address)
    monkeypatch.setattr(host, "_lose_all", noted.put)
    monkeypatch.setattr(host._roll, "leave", lambda index: noted.put("it may come again"))

    def common_step(*_: object) -> int:
        other.stop()
        noted.put(noted.get(timeout=LONG))
        return -1

    monkeypatch.setattr(hub, "common_step", common_step)
    with futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.meet, LONG)
        host.meet(LONG)
        with pytest.raises(futures.CancelledError):
            waiting.result(LONG)
    assert noted.get_nowait() == "host 1 has ended"


def test_a_call_that_grpc_cancels_is_the_end_of_its_host(world: World) -> None:
    class Context:
        def __init__(self) -> None:
            self.reads = asyncio.Event()

        def invocation_metadata(self) -> tuple[()]:
            return ()

        def peer(self) -> str:
            return ""

        async def read(self) -> bytes:
            if self.reads.is_set():
                await asyncio.Event().wait()
            self.reads.set()
            return messages.encode(
                {"hello": dataclasses.asdict(dataclasses.replace(HELLO, index=1, reached_at="127.0.0.1"))}
            )

    async def cancelled(context: Any) -> None:
        call = asyncio.create_task(host._join(None, context))
        await context.reads.wait()
        await asyncio.sleep(0)
        host._begins = True
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call

    host = world.hub()
    host._thread.run(cancelled(Context()))
    assert host._lost == "host 1 has ended"


def test_a_host_that_ends_before_anybody_asks_is_told_later(world: World) -> None:
    host, (other,), _ = world.met()
    lost = threading.Event()
    with host._changed:
        other.stop()
        assert host._changed.wait_for(lambda: host._lost, LONG)
    host.when_lost(lambda reason: lost.set())
    assert lost.wait(LONG)


def test_silence_is_an_end(world: World) -> None:
    clock, told = Clock(), threading.Event()
    host = world.hub(clock=clock)
    other = world.member(host.address)
    with futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.meet, LONG)
        host.meet(LONG)
        waiting.result(LONG)
    reasons: list[str] = []
    host.when_lost(lambda reason: (reasons.append(reason), told.set()))
    other._beat = lambda: None  # type: ignore[method-assign]
    for task in other._tasks[:1]:
        other._thread.post(task.cancel)
    for _ in range(1000):  # a beat that was on its way may arrive after the first of them
        clock.now += 1000.0
        if told.wait(0.1):
            break
    assert reasons and reasons[0].startswith("host 1 has been silent for ")


def test_hosts_wait_for_the_words_of_all_about_a_subject_each_time(world: World) -> None:
    host, (other,), _ = world.met()
    with futures.ThreadPoolExecutor(2) as pool:
        for words in ("full", ""):
            first = pool.submit(host.gather, "checkpoint 20")
            with pytest.raises(TimeoutError):
                first.result(0.1)
            assert other.gather("checkpoint 20", words) == first.result(LONG) == {0: "", 1: words}
        lost = pool.submit(host.gather, "checkpoint 40")
        other.stop()
        with pytest.raises(errors.TrainingFailure, match="host 1"):
            lost.result(LONG)


def test_counters_of_the_others_arrive(world: World) -> None:
    host, (other,), _ = world.met()
    seen: queue.Queue[Mapping[str, object]] = queue.Queue()
    host.tick = lambda: seen.put(dict(host.agreed.others)) if host.agreed.others else None
    other.counters = lambda: {"steps": STEPS, "workers": 1, "environments": 4}
    (found,) = seen.get(timeout=LONG).values()
    assert dataclasses.asdict(found) == STEPS  # type: ignore[call-overload]


def test_hosts_leave_together_and_nobody_is_lost(world: World) -> None:
    host, (other,), _ = world.met()
    lost: list[str] = []
    host.when_lost(lost.append)
    other.when_lost(lost.append)
    with futures.ThreadPoolExecutor(2) as pool:
        assert all(pool.map(lambda one: one.leave(LONG), (host, other)))
    assert lost == []


def test_a_host_that_is_done_does_not_wait_for_one_that_has_ended(world: World) -> None:
    host, (other,), _ = world.met()
    lost: list[str] = []
    host.when_lost(lost.append)
    with futures.ThreadPoolExecutor(1) as pool:
        left = pool.submit(host.leave, 10 * LONG)
        with host._changed:
            assert host._changed.wait_for(lambda: host._has_left, LONG)
        other.stop()
        assert not left.result(LONG)
    assert lost == []


def test_the_reason_is_told_once_even_to_one_who_asks_as_it_becomes_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, told = world.hub(), list[str]()
    monkeypatch.setattr(host._changed, "notify_all", lambda: host.when_lost(told.append))
    host.lose("host 1 has gone")
    host.stop()
    assert told == ["host 1 has gone"]


def test_a_host_that_leaves_alone_waits_in_vain(world: World) -> None:
    host, _, _ = world.met()
    assert not host.leave(0.1)
