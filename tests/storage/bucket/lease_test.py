"""The lease of a run in a bucket: one learner at a time, whatever becomes of the one before."""

import dataclasses
import json
import os
import time
from collections.abc import Callable

import pytest
import tensorstore

from seedzero.core import errors
from seedzero.storage.bucket import bucket, lease

URL = bucket.Url("gs", "runs", "one")
SECONDS = 30.0
LEASE = '{"copy": "a", "process": "b", "host": "c", "pid": 1, "renewed": 2.5, "released": false, "seconds": %s}'


class World:
    """A bucket in memory, one clock, and what happens while somebody waits."""

    def __init__(self) -> None:
        objects = tensorstore.KvStore.open({"driver": "memory", "path": "one/"}).result()
        self.store = bucket.Store(objects, URL, 1.0)
        self.now = 100.0
        self.meanwhile: Callable[[], None] = lambda: None
        self.said: list[str] = []

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def learner(self, copy: str) -> lease.Lease:
        return lease.Lease(self.store, copy, SECONDS, report=self.said.append, clock=lambda: self.now, wait=self.wait)

    def holder(self) -> lease.Holder:
        content = self.store.read(lease.NAME).content
        assert content is not None
        return lease.parse(content, URL)


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_one_gets_it_at_once(world: World) -> None:
    assert not world.learner("a").acquire()
    assert world.now == 100.0 and world.said == []
    assert (world.holder().copy, world.holder().released) == ("a", False)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system cannot tell how long it was suspended")
def test_after_a_suspend_a_learner_asks_before_it_writes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lease.Lease(world.store, "a", SECONDS, report=world.said.append)
    first.acquire()
    first.check()
    world.learner("a").acquire()  # of the same local copy, so that it need not wait
    first.check()  # renewed so recently that nobody is asked
    real = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda which: real(which) + 100 * (which == time.CLOCK_BOOTTIME))
    with pytest.raises(errors.LeaseLost):
        first.check()


def test_one_that_was_given_back_is_free_at_once(world: World) -> None:
    first = world.learner("a")
    first.acquire()
    first.release()
    assert world.holder().released
    assert not world.learner("b").acquire()
    assert world.now == 100.0


def test_the_same_copy_takes_it_back_at_once_and_knows_that_nobody_else_had_it(world: World) -> None:
    world.learner("a").acquire()
    assert world.learner("a").acquire()
    assert world.now == 100.0 and world.said == []


def test_after_another_copy_the_first_one_knows_that_it_is_not_the_newest(world: World) -> None:
    for copy in ("a", "b"):
        holder = world.learner(copy)
        holder.acquire()
        holder.release()
    assert not world.learner("a").acquire()


def test_a_dead_learner_is_waited_for_and_then_followed(world: World) -> None:
    world.learner("a").acquire()
    assert not world.learner("b").acquire()
    assert SECONDS <= world.now - 100.0 <= SECONDS + 2
    assert world.holder().copy == "b"
    (text,) = world.said
    assert text.startswith(f"gs://runs/one is in use by the learner with pid {os.getpid()} on ") and " 30 s" in text


def test_a_learner_that_lives_is_not_disturbed(world: World) -> None:
    first = world.learner("a")
    first.acquire()
    world.meanwhile = first.renew
    with pytest.raises(errors.Occupied, match=r"gs://runs/one .* pid \d+ on "):
        world.learner("b").acquire()
    assert world.holder().copy == "a"
    first.renew()


def test_a_learner_that_ends_while_another_waits_is_followed(world: World) -> None:
    first = world.learner("a")
    first.acquire()

    def end_soon() -> None:
        if world.now < 110.0:
            first.renew()
        elif not world.holder().released:
            first.release()

    world.meanwhile = end_soon
    assert not world.learner("b").acquire()
    assert world.now < 112.0


def test_a_learner_that_was_taken_for_dead_notices_and_stays_away(world: World) -> None:
    first = world.learner("a")
    first.acquire()
    world.learner("b").acquire()
    with pytest.raises(errors.LeaseLost, match=r"gs://runs/one .* pid"):
        first.check()
    with pytest.raises(errors.LeaseLost):
        first.check()
    first.release()
    assert (world.holder().copy, world.holder().released) == ("b", False)


def test_only_an_old_lease_is_renewed_by_a_check(world: World) -> None:
    held = world.learner("a")
    held.acquire()
    before = world.store.read(lease.NAME).generation
    held.check()
    assert world.store.read(lease.NAME).generation == before
    world.now += SECONDS
    held.check()
    assert world.store.read(lease.NAME).generation != before


def test_a_write_that_came_twice_is_known_as_ones_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to the first attempt was lost; the second one fails on the first."""
    write = world.store.write

    def twice(key: str, content: bytes, *, if_equal: bytes | None = None) -> bytes | None:
        write(key, content, if_equal=if_equal)
        monkeypatch.setattr(world.store, "write", write)
        return write(key, content, if_equal=if_equal)

    world.learner("b").acquire()
    held = world.learner("a")
    monkeypatch.setattr(world.store, "write", twice)
    assert not held.acquire()  # the other copy had it, although ours is in the bucket now
    monkeypatch.setattr(world.store, "write", twice)
    held.renew()
    held.renew()


def test_a_learner_whose_last_renewal_had_no_answer_gives_it_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, write = world.learner("a"), world.store.write
    first.acquire()

    def unanswered(key: str, content: bytes, *, if_equal: bytes | None = None) -> bytes | None:
        write(key, content, if_equal=if_equal)
        raise errors.BucketError("no answer within 60 s")

    with monkeypatch.context() as patch, pytest.raises(errors.BucketError):
        patch.setattr(world.store, "write", unanswered)
        first.renew()
    first.release()
    assert world.holder().released


def test_a_deleted_lease_is_lost(world: World) -> None:
    held = world.learner("a")
    held.acquire()
    world.store.delete(lease.NAME)
    with pytest.raises(errors.LeaseLost, match=r"nobody.*\b0\b"):
        held.renew()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "line 1"),
        (b"[]", "it holds list; expected a JSON object"),
        (json.dumps({"copy": "a"}).encode(), "'process', 'host', 'pid'"),
        ((LEASE % "null").encode(), "seconds is None; expected a positive number"),
        ((LEASE % "NaN").encode(), "seconds is nan; expected a positive number"),
    ],
)
def test_a_damaged_lease_is_named(world: World, content: bytes, told: str) -> None:
    world.store.write(lease.NAME, content)
    with pytest.raises(
        errors.BucketError, match=rf"gs://runs/one/lease\.json is damaged .*{told}.*; delete it if no learner uses"
    ):
        world.learner("a").acquire()


def test_what_is_written_is_strict_json_and_reads_back() -> None:
    holder = lease.Holder("a", "b", "host", 1, 2.5, 30.0, False)
    assert lease.parse(json.dumps(dataclasses.asdict(holder)).encode(), URL) == holder
