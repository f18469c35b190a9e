"""Deadlines: leases, and the places that heartbeats alone do not keep. Without sockets, with a clock of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import grpc
import numpy as np
import pytest
from wire import ENCODED_SPEC, HELLO, NUM_GROUPS, SETTINGS, SPEC, Clock, E, Learner, in_a_loop, make_step

from seedzero.config import sections
from seedzero.core import errors
from seedzero.transport import codec, compression, handshake, inference_pb2, links, messages, sessions, streams

IMAGES = dataclasses.replace(SPEC, observation_shape=(30, 30))
PATIENT = dataclasses.replace(SETTINGS, lease_seconds=20.0, step_seconds=100.0)


class Room:
    """Streams without sockets, which keep what is written to them."""

    def __init__(self, learner: Learner, settings: sections.TransportConfig = PATIENT) -> None:
        self.clock = Clock()
        self.links: list[links.WorkerLink | None] = []
        self.regroup = ""  # why sessions get other groups
        self.streams = streams.Streams(streams.LearnerSide(learner, settings, self.clock, self._regroup))

    def _regroup(self, session_id: str, link: links.WorkerLink | None, problem: str, now: float) -> str:
        assert session_id in self.streams.side.sessions and now == self.clock.now and not problem
        self.links.append(link)
        return self.regroup

    def stream(self, *data: bytes) -> streams.Stream:
        stream = self.streams.begin(None)  # type: ignore[arg-type]  # nothing goes to a socket
        self.say(stream, *data)
        return stream

    def say(self, stream: streams.Stream, *data: bytes) -> None:
        for item in data:
            self.streams.receive(stream, item)

    def wait(self, seconds: float, *talking: streams.Stream) -> None:
        self.clock.now += seconds
        for stream in talking:
            self.say(stream, codec.HEARTBEAT)
        self.streams.watch_leases()

    def told(self, stream: streams.Stream) -> str:
        """Returns the reason of the Restart that was written last."""
        while (data := stream._outbox.waiting.popleft()) is not None:
            message = codec.decode_learner(data)
        return message.restart.reason


@in_a_loop
async def test_learner_that_stood_still_itself_blames_no_worker() -> None:
    learner = Learner()
    room = Room(learner, SETTINGS)
    room.stream(handshake.encode_hello(HELLO), ENCODED_SPEC)
    mute = room.stream()
    room.streams.watch_leases()
    room.streams._watched_at -= SETTINGS.lease_seconds  # as if this loop had not run for so long
    room.wait(SETTINGS.lease_seconds)
    assert learner.ended.empty() and mute.phase is sessions.NEW
    room.wait(SETTINGS.lease_seconds)
    assert learner.next_end()[1].startswith(messages.WORKER_LOST) and mute.phase is sessions.CLOSED


@in_a_loop
async def test_a_connected_worker_may_be_mute_while_it_makes_environments() -> None:
    learner = Learner()
    room = Room(learner, SETTINGS)
    stream = room.stream(handshake.encode_hello(HELLO))
    room.wait(SETTINGS.lease_seconds)
    room.wait(SETTINGS.lease_seconds)
    assert learner.ended.empty()
    room.streams._forget(stream)
    room.wait(0.9 * SETTINGS.lease_seconds)
    assert learner.ended.empty()
    room.wait(0.1 * SETTINGS.lease_seconds)
    reason = learner.next_end()[1]
    assert reason.startswith(messages.WORKER_LOST) and " 15 s" in reason


@in_a_loop
async def test_times_of_steps_that_come_before_a_spec_are_ignored() -> None:
    room = Room(Learner())
    stream = room.stream(handshake.encode_hello(HELLO), codec.heartbeat(links.LinkReport(3, 0.1, 0.2)))
    room.say(stream, ENCODED_SPEC)
    assert stream.phase is sessions.STARTED and not room.links


@in_a_loop
async def test_heartbeats_alone_do_not_keep_a_stream() -> None:
    room = Room(Learner())
    mute = room.stream(codec.HEARTBEAT)
    restarted = room.stream(handshake.encode_hello(dataclasses.replace(HELLO, session_id="unknown")))
    phases = mute.phase, restarted.phase
    assert phases[0] is sessions.NEW
    room.wait(19.0, mute, restarted)
    assert (mute.phase, restarted.phase) == phases
    room.wait(1.0, mute, restarted)
    for stream in (mute, restarted):
        assert stream.failure is not None and stream.failure.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert stream.failure.details.startswith("no Hello came for 20 s")


@in_a_loop
async def test_heartbeats_alone_do_not_keep_the_slots_of_a_worker() -> None:
    learner = Learner()
    room = Room(learner)
    stream = room.stream(handshake.encode_hello(HELLO))
    room.wait(29.0, stream)
    assert room.streams.side.silent == ""
    room.wait(70.0, stream)
    early = room.streams.side.silent
    assert early.startswith("worker worker ") and early.endswith(" 99 s")
    assert learner.ended.empty()
    room.wait(1.0, stream)
    _, reason = learner.next_end()
    assert reason.startswith(messages.OVERDUE) and "--transport.step_seconds=100 " in reason
    assert "worker worker has made no environments for 100 s" in reason
    assert room.streams.side.silent == ""
    room.wait(20.0, stream)  # nor does it keep the stream by Hello's absence
    assert stream.phase is sessions.CLOSED and room.told(stream) == reason.removeprefix(messages.OVERDUE)


@in_a_loop
async def test_a_worker_that_has_its_actions_owes_a_step_and_one_that_waits_owes_none() -> None:
    learner = Learner()
    learner.hold = True
    room = Room(learner)
    stream = room.stream(handshake.encode_hello(HELLO), ENCODED_SPEC)
    room.say(stream, *(codec.encode_step(group, 0, make_step()) for group in range(NUM_GROUPS)))
    room.wait(1000.0, stream)  # the learner compiles, evaluates nothing, or holds acting back
    assert room.streams.side.silent == "" and learner.ended.empty()
    request = learner.next_request()
    room.streams.side.deliver(request.session_id, request.group, request.sequence, b"actions")
    room.wait(75.0, stream)
    silent = room.streams.side.silent
    assert silent.startswith("worker worker ") and silent.endswith(" 75 s")
    room.wait(25.0, stream)
    ended, reason = learner.next_end()
    assert ended == request.session_id
    assert reason.startswith(messages.OVERDUE) and "--transport.step_seconds=100 " in reason
    assert "worker worker has sent no step for 100 s" in reason
    room.say(stream, handshake.encode_hello(HELLO))  # it goes on after all
    assert stream.session is not None


@in_a_loop
async def test_a_step_may_take_for_ever_where_that_is_allowed() -> None:
    learner = Learner()
    room = Room(learner, dataclasses.replace(PATIENT, lease_seconds=1e6, step_seconds=0.0))
    for name in "abcde":
        room.stream(handshake.encode_hello(dataclasses.replace(HELLO, worker_id=name)), ENCODED_SPEC)
    room.wait(1000.0)
    assert learner.ended.empty()
    silent = room.streams.side.silent.split("; ")
    assert [line.split(" ")[1] for line in silent[:3]] == [*"abc"] and silent[3:] == ["2 more"]
    assert silent[0] == "worker a has sent no step for 1000 s"


@in_a_loop
async def test_a_worker_with_a_stream_keeps_its_session_when_another_has_its_name() -> None:
    learner = Learner()
    room = Room(learner)
    first, _ = (room.stream(handshake.encode_hello(HELLO)) for _ in range(2))
    assert first.session is not None and learner.ended.empty()
    room.streams._forget(room.stream(handshake.encode_hello(dataclasses.replace(HELLO, worker_id="other"))))
    room.stream(handshake.encode_hello(HELLO))
    assert learner.ended.empty() and len(room.streams.side.sessions) == 4
    room.streams.side.end(first.session, "first")
    room.streams.side.end(first.session, "again")
    assert learner.next_end()[1] == "first" and learner.ended.empty()


class Far:
    """A worker behind a round trip of 0.3 s, whose groups step for 0.1 s, one after the other."""

    def __init__(self, room: Room, learner: Learner, hello: messages.Hello = HELLO) -> None:
        self.room, self.learner = room, learner
        learner.hold = True
        self.stream = room.stream(handshake.encode_hello(hello), handshake.encode_spec(IMAGES))
        self.report, self.sequence, self.round_trip = links.LinkReport(), 0, 0.3
        self.packer = compression.Packer()
        self.told: list[bool] = []  # by Compress

    def step(self) -> None:
        """Lets every group step once, and be answered after 0.05 s."""
        self.room.clock.now += self.round_trip + 0.1 * NUM_GROUPS
        step = make_step(observation=np.full((E, *IMAGES.observation_shape), self.sequence, np.float32))
        for group in range(NUM_GROUPS):
            self.room.say(self.stream, codec.encode_step(group, self.sequence, step, self.packer))
            if self.sequence:
                self.report = self.report.plus(0.1, 0.1 * NUM_GROUPS)
        self.sequence += 1
        self.room.clock.now += 0.05
        for data in filter(None, self.stream._outbox.waiting):
            if (message := codec.decode_learner(data)).HasField("compress"):
                self.packer.is_on = message.compress.gzip
                self.told.append(message.compress.gzip)
        self.stream._outbox.waiting.clear()
        for request in [self.learner.next_request() for _ in range(NUM_GROUPS)]:
            assert (request.step.observation == self.sequence - 1).all()
            self.room.streams.side.deliver(request.session_id, request.group, request.sequence, b"")

    def work(self, num_beats: int) -> None:
        """Steps ten times for each heartbeat."""
        for _ in range(num_beats):
            for _ in range(10):
                self.step()
            self.room.say(self.stream, codec.heartbeat(self.report))


@in_a_loop
async def test_what_a_worker_reports_tells_its_link_and_it_may_get_other_groups() -> None:
    learner = Learner()
    room = Room(learner)
    far = Far(room, learner)
    far.work(8)
    assert not far.told
    link = room.links[-1]
    assert link is not None and link.is_complete and room.links[0] is None
    assert [round(seconds, 6) for seconds in link[2:6]] == [0.1, 0.2, 0.3, 0.05]
    (present,) = room.streams.side.present()
    assert present.link == link and learner.ended.empty()
    room.regroup = "8 x 1 environments"
    room.say(far.stream, codec.heartbeat(far.report))
    assert learner.next_end() == (learner.begun[0][0], messages.REGROUPED + room.regroup)
    restart = codec.decode_learner(far.stream._outbox.waiting[-1]).restart
    assert far.stream.phase is sessions.RESTARTED and restart.reason == room.regroup


@in_a_loop
async def test_a_worker_of_an_earlier_version_measures_nothing_and_is_left_alone() -> None:
    learner = Learner()
    room = Room(learner)
    far = Far(room, learner)
    room.regroup = "it must not ask"
    for _ in range(80):
        far.step()
        room.say(far.stream, codec.HEARTBEAT)
    assert room.links == [] and room.streams.side.present()[0].link is None and learner.ended.empty()


COMPRESSING = dataclasses.replace(PATIENT, compression="auto")


@in_a_loop
async def test_a_worker_behind_a_slow_link_compresses_if_that_is_quicker() -> None:
    learner = Learner()
    room = Room(learner, COMPRESSING)
    far = Far(room, learner)
    far.work(8)
    far.step()
    assert far.told == [True] and room.links[-1] is None  # other groups are a matter for the link as it is then
    far.round_trip = 0.1
    far.work(16)
    link = room.links[-1]
    assert far.told == [True] and link is not None and round(link.round_trip_seconds, 6) == 0.1
    assert room.streams.side.present()[0].to_json()["compressed"]


@in_a_loop
async def test_a_worker_behind_a_link_that_is_far_but_not_slow_sends_as_before() -> None:
    learner = Learner()
    far = Far(Room(learner, COMPRESSING), learner)
    far.work(20)
    far.step()
    assert far.told == [True, False] and not far.packer.is_on
    assert "compressed" not in far.room.streams.side.present()[0].to_json()
    far.work(20)
    far.step()
    assert far.told == [True, False]


@in_a_loop
async def test_a_new_session_on_the_same_stream_begins_with_whole_observations() -> None:
    learner = Learner()
    room = Room(learner, COMPRESSING)
    far = Far(room, learner)
    far.work(8)
    far.work(1)
    assert far.packer.is_on
    room.streams.side.restart(learner.begun[0][0], "for a test")
    room.say(far.stream, handshake.encode_hello(HELLO), handshake.encode_spec(IMAGES))
    far.packer.forget()  # as with each Assign
    far.sequence = 0
    far.step()
    far.step()
    assert learner.ended.empty()


@in_a_loop
async def test_workers_of_earlier_versions_and_local_ones_compress_nothing() -> None:
    old = inference_pb2.WorkerMessage.FromString(handshake.encode_hello(HELLO))
    old.hello.ClearField("knows_gzip")
    room = Room(Learner(), COMPRESSING)
    assert room.stream(old.SerializeToString()).trial is None
    assert room.stream(handshake.encode_hello(dataclasses.replace(HELLO, key="local"))).trial is None
    assert room.stream(handshake.encode_hello(HELLO)).trial is not None
    assert Room(Learner()).stream(handshake.encode_hello(HELLO)).trial is None  # off


@in_a_loop
async def test_damaged_compressed_bytes_end_that_workers_session_with_an_error() -> None:
    learner = Learner()
    room = Room(learner, COMPRESSING)
    far = Far(room, learner)
    far.work(8)
    far.step()
    step = make_step(observation=np.zeros((E, *IMAGES.observation_shape), np.float32))
    good = codec.encode_step(0, far.sequence, step, far.packer)
    with pytest.raises(errors.InvalidMessage, match=f"observation of group 0, step {far.sequence}, has .* damaged"):
        room.say(far.stream, good[:-8] + bytes([good[-8] ^ 1]) + good[-7:])


@in_a_loop
async def test_the_step_after_one_that_was_sent_again_differs_from_it() -> None:
    learner = Learner()
    room = Room(learner, COMPRESSING)
    far = Far(room, learner)
    far.step()
    hello = dataclasses.replace(HELLO, session_id=learner.begun[0][0])
    far.stream = room.stream(handshake.encode_hello(hello), handshake.encode_spec(IMAGES))
    far.stream.unpacker, far.packer.is_on = compression.Unpacker(), True
    again = make_step(observation=np.zeros((E, *IMAGES.observation_shape), np.float32))
    room.say(far.stream, *(codec.encode_step(group, 0, again, far.packer) for group in range(NUM_GROUPS)))
    far.step()  # differs from those
    assert learner.ended.empty() and learner.requests.empty()


def test_the_end_waits_for_a_worker_that_comes_back_as_the_last_one_leaves() -> None:
    async def end() -> None:
        room = Room(Learner())
        last = room.stream()
        ending = asyncio.create_task(room.streams.dismiss(False, "enough", grace_seconds=0.1))
        await asyncio.sleep(0)
        room.streams._forget(last)
        room.stream()
        await ending

    thread = threading.Thread(target=lambda: asyncio.run(end()), daemon=True)  # it used to spin for ever
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
