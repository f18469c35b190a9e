"""The real server with the real client, and with a raw stream where a client would not misbehave enough."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import pathlib
import queue
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import wire
from grpc_health.v1 import health_pb2, health_pb2_grpc
from wire import (
    ENCODED_SPEC,
    HELLO,
    NUM_GROUPS,
    SETTINGS,
    SPEC,
    TIMEOUT_SECONDS,
    Clock,
    E,
    Learner,
    joined,
    make_step,
    receive_actions,
    serving,
)

from seedzero.core import errors, types
from seedzero.transport import (
    client,
    codec,
    compression,
    grpc_status,
    handshake,
    inference_pb2,
    links,
    messages,
    probe,
    streams,
)


class RawStream:
    """A worker that says what it is told to."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._outbox: queue.Queue[bytes | None] = queue.Queue()
        connect = self._channel.stream_stream(codec.CONNECT_METHOD, bytes, inference_pb2.LearnerMessage.FromString)
        self._call = connect(iter(self._outbox.get, None), timeout=TIMEOUT_SECONDS)

    def __enter__(self) -> RawStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._outbox.put(None)
        self._call.cancel()
        self._channel.close()

    def say(self, *data: bytes) -> None:
        for item in data:
            self._outbox.put(item)

    def hear(self) -> inference_pb2.LearnerMessage:
        return next(self._call)

    def close(self) -> None:
        self._outbox.put(None)

    def begin(self, hello: messages.Hello = HELLO) -> str:
        """Says Hello and Spec; returns the session id."""
        self.say(handshake.encode_hello(hello))
        session_id = self.hear().assign.session_id
        self.say(ENCODED_SPEC)
        assert self.hear().HasField("start")
        return session_id

    def error(self) -> tuple[grpc.StatusCode, str, str]:
        """Waits for the end; returns code, details and the name of the error."""
        with pytest.raises(grpc.RpcError) as caught:
            while True:
                self.hear()
        trailer = dict(caught.value.trailing_metadata())
        return caught.value.code(), caught.value.details(), trailer.get(grpc_status.ERROR_KEY, "")


# --- the way through ---


@pytest.fixture(params=["tcp", "unix"])
def listen(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    return "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path / 'socket'}"


def test_worker_gets_its_assignment_and_actions(listen: str) -> None:
    learner = Learner(dataclasses.replace(SETTINGS, listen=listen))
    with serving(learner) as address, client.Client(address, HELLO) as worker:
        assignment = worker.join()
        assert assignment is not None
        assert (assignment.env, assignment.env_settings, assignment.seeds) == ("catch", '{"a": 1}', (0, 1, 2, 3))
        assert (assignment.num_groups, assignment.envs_per_group, assignment.resumed) == (NUM_GROUPS, E, False)
        worker.start(SPEC)
        for sequence in range(3):
            for group in range(NUM_GROUPS):
                worker.send(group, make_step(float(sequence)))
            events = sorted((receive_actions(worker) for _ in range(NUM_GROUPS)), key=lambda event: event.group)
            assert [event.group for event in events] == [0, 1]
            assert [event.weights_version for event in events] == [sequence, sequence]
            np.testing.assert_array_equal(events[0].actions, np.ones(E))
        assert learner.begun == [(assignment.session_id, SPEC)]
    request = learner.next_request()
    assert (request.session_id, request.role, request.sequence) == (assignment.session_id, types.Role.TRAIN, 0)
    np.testing.assert_array_equal(request.first, [True, True])
    np.testing.assert_array_equal(request.step.observation, np.zeros((E, 3)))
    assert learner.next_end() == (assignment.session_id, messages.GOODBYE)


def test_answers_may_come_from_any_thread_and_in_any_order(learner: Learner, address: str) -> None:
    learner.hold = True
    with joined(address) as worker:
        for group in range(NUM_GROUPS):
            worker.send(group, make_step())
        requests = [learner.next_request() for _ in range(NUM_GROUPS)]
        for request in reversed(requests):
            learner.answer(request, action=request.group)
        events = [receive_actions(worker), receive_actions(worker)]
        assert {event.group: event.actions.tolist() for event in events} == {0: [0, 0], 1: [1, 1]}


def test_status_and_health_are_answered(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(codec.STATUS_METHOD, bytes, inference_pb2.StatusReply.FromString)
        assert call(b"", timeout=TIMEOUT_SECONDS).json == '{"env_steps": 7, "stalled": null}'
        stub = health_pb2_grpc.HealthStub(channel)  # type: ignore[no-untyped-call]
        for service in ("", codec.SERVICE):
            reply = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_SECONDS)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observation_shape": (2**20,)}, r" 4194304; .*--transport\.max_message_bytes"),
        ({"num_actions": 5}, "num_actions is 5; expected 4"),
    ],
)
def test_a_spec_that_is_refused_reaches_the_worker(changes: dict[str, Any], message: str) -> None:
    learner = Learner(dataclasses.replace(SETTINGS, max_message_bytes=2**22))
    with serving(learner) as address, client.Client(address, HELLO) as worker:
        worker.join()
        worker.start(dataclasses.replace(SPEC, **changes))
        with pytest.raises(errors.SpecMismatch, match=message):
            worker.receive()
    assert re.search(f"^failed: .*{message}", learner.next_end()[1])


@pytest.mark.parametrize(
    ("reason", "told"),
    [("emulator crashed", "emulator crashed"), ("no file \udcff.rom", "no file ?.rom")],
    ids=["text", "bytes in a file's name"],
)
def test_worker_that_failed_says_why(learner: Learner, address: str, reason: str, told: str) -> None:
    with pytest.raises(errors.EnvironmentFailure), joined(address):
        raise errors.EnvironmentFailure(reason)
    assert learner.next_end()[1] == f"failed: {told}"


def test_client_guards_the_order_of_calls(address: str) -> None:
    with client.Client(address, HELLO) as worker:
        with pytest.raises(errors.UsageError, match="call join"):
            worker.start(SPEC)
        worker.join()
        with pytest.raises(errors.UsageError, match=r"^join\(\) while session \S+ continues; .*Restart"):
            worker.join()
        worker.start(SPEC)
        with pytest.raises(errors.InvalidMessage, match=r"group 2 .* 0 to 1"):
            worker.send(2, make_step())
        worker.send(0, make_step())
        with pytest.raises(errors.SequenceError, match="group 0 has an unanswered step"):
            worker.send(0, make_step())


def test_leave_ends_a_waiting_worker(learner: Learner, address: str) -> None:
    learner.hold = True
    with joined(address) as worker:
        worker.send(0, make_step())
        learner.next_request()
        threading.Thread(target=worker.leave, args=("stopped",)).start()
        assert worker.receive() == messages.End("stopped")
    with client.Client("127.0.0.1:1", HELLO) as worker:
        worker.leave("stopped")
        assert worker.join() is None


# --- bad input: the stream ends with its reason, the learner and other workers go on ---


class _Unreadable:
    """As a tensor whose gradient is followed."""

    shape = (E, 3)

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("detach it first")


@pytest.mark.parametrize(
    ("spec", "step", "message"),
    [
        (SPEC, make_step(observation=np.zeros((E, 4), np.float32)), r"\(2, 4\) .*\(2, 3\)"),
        (SPEC, make_step(np.nan), "environment 0 of group 0 .* nan .*reward"),
        (SPEC, make_step(observation=np.zeros((E, 99_999), np.float32)), r" \d+ bytes; .* 65828"),  # not even sent
        (SPEC, make_step(observation=_Unreadable()), "RuntimeError: detach it first"),
        (dataclasses.replace(SPEC, frames_per_step=2**40), make_step(), "ValueError: "),
    ],
)
def test_what_cannot_be_sent_or_taken_ends_that_worker_only(
    address: str, spec: types.EnvSpec, step: types.EnvStep, message: str
) -> None:
    with joined(address, dataclasses.replace(HELLO, worker_id="good")) as good, client.Client(address, HELLO) as bad:
        bad.join()
        bad.start(spec)
        bad.send(0, step)
        for _ in range(2):
            with pytest.raises(errors.InvalidMessage, match=message):
                bad.receive()
        good.send(0, make_step())
        assert receive_actions(good).group == 0


def wrong_version() -> bytes:
    message = inference_pb2.WorkerMessage.FromString(handshake.encode_hello(HELLO))
    message.hello.protocol_version = 99
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("data", "code", "kind", "details"),
    [
        (b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT, "InvalidMessage", "3 bytes .*'ffffff'"),
        (b"", grpc.StatusCode.INVALID_ARGUMENT, "InvalidMessage", "without content"),
        (wrong_version(), grpc.StatusCode.FAILED_PRECONDITION, "VersionMismatch", " 99"),
        (ENCODED_SPEC, grpc.StatusCode.INVALID_ARGUMENT, "InvalidMessage", "Spec came before Hello"),
        (bytes(2**22 + 1), grpc.StatusCode.INVALID_ARGUMENT, "InvalidMessage", "4194305 .* 4"),
    ],
)
def test_bad_first_message_is_refused(
    address: str, data: bytes, code: grpc.StatusCode, kind: str, details: str
) -> None:
    with RawStream(address) as raw:
        raw.say(data)
        came = raw.error()
        assert (came[0], came[2]) == (code, kind)
        assert re.search(details, came[1])


@pytest.mark.parametrize(
    ("data", "code", "details"),
    [
        (codec.encode_step(0, 0, make_step(np.inf)), grpc.StatusCode.INVALID_ARGUMENT, "inf in its reward"),
        (codec.encode_step(0, 3, make_step()), grpc.StatusCode.OUT_OF_RANGE, "3 of group 0"),
        (handshake.encode_hello(HELLO), grpc.StatusCode.INVALID_ARGUMENT, "Hello came twice"),
        (
            handshake.encode_spec(dataclasses.replace(SPEC, num_actions=9)),
            grpc.StatusCode.FAILED_PRECONDITION,
            r"EnvSpec\(",
        ),
    ],
)
def test_bad_later_message_ends_its_session(
    learner: Learner, address: str, data: bytes, code: grpc.StatusCode, details: str
) -> None:
    with RawStream(address) as raw:
        session_id = raw.begin()
        raw.say(data)
        came = raw.error()
        assert came[0] is code
        assert re.search(details, came[1])
        assert learner.next_end() == (session_id, f"failed: {came[1]}")
    with RawStream(address) as raw:
        raw.say(handshake.encode_hello(dataclasses.replace(HELLO, session_id=session_id)))
        assert raw.hear().HasField("restart")
    assert learner.ended.empty()


SEATS = dataclasses.replace(SPEC, seats=("first", "second"), tasks=("first", "second"))


def test_a_learner_that_knows_no_seats_ends_a_worker_that_has_some(
    learner: Learner, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = codec.from_learner

    def older(**content: Any) -> bytes:
        content.get("start", {}).pop("seats", None)
        return encode(**content)

    monkeypatch.setattr(streams.codec, "from_learner", older)
    with client.Client(address, HELLO, settings=SETTINGS) as worker:
        worker.join()
        worker.start(SEATS)
        with pytest.raises(errors.VersionMismatch, match=r"seats first, second, .*same version of seedzero on both"):
            worker.receive()


def test_reply_of_a_wrong_shape_is_refused(learner: Learner, address: str) -> None:
    learner.hold = True
    with joined(address) as worker:
        worker.send(0, make_step())
        request = learner.next_request()
        with pytest.raises(errors.InvalidMessage, match=r"group 0 .*\(3,\); .*\(2,\)"):
            learner.server.reply(request, np.zeros(3, np.int32), 0)
        for wrong in (np.zeros((2, 1), np.int32), np.zeros(2, np.float32), np.zeros((3, 1), np.float32)):
            with pytest.raises(errors.InvalidMessage, match=re.escape(f"group 0 have shape {wrong.shape}; ")):
                learner.server.reply(request, wrong, 0)


def test_unexpected_error_is_not_told_to_the_worker(
    learner: Learner, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with RawStream(address) as raw:
        session_id = raw.begin()
        raw.say(codec.encode_step(0, 0, make_step()), codec.encode_step(0, 1, make_step(13)))
        code, details, _ = raw.error()
    assert code is grpc.StatusCode.INTERNAL
    assert "secret" not in details
    assert learner.next_end()[0] == session_id
    assert "ZeroDivisionError: secret" in caplog.text


def test_worker_that_asks_on_without_reading_is_refused(learner: Learner) -> None:
    answering = streams.Streams(streams.LearnerSide(learner, SETTINGS, float))
    stream = answering.begin(None)  # type: ignore[arg-type]  # nothing is written
    answering.receive(stream, handshake.encode_hello(HELLO))
    with pytest.raises(errors.InvalidMessage, match=r"^81 "):
        for _ in range(1000):
            answering.receive(stream, ENCODED_SPEC)


# --- full ---


def test_full_learner_makes_the_worker_wait(learner: Learner, address: str, caplog: pytest.LogCaptureFixture) -> None:
    learner.refusal = errors.SlotsExhausted("64 slots, all taken")
    refused = threading.Event()
    with client.Client(address, HELLO, settings=SETTINGS) as worker, log_event("64 slots, all taken", refused):
        waiting = threading.Thread(target=lambda: worker.join())
        waiting.start()
        assert refused.wait(TIMEOUT_SECONDS)
        learner.refusal = None
        waiting.join(TIMEOUT_SECONDS)
        assert not waiting.is_alive()
    assert learner.num_sessions == 1


def test_workers_beyond_the_cap_are_refused() -> None:
    learner = Learner(dataclasses.replace(SETTINGS, max_workers=1))
    with serving(learner) as address, RawStream(address) as first:
        first.begin()
        with RawStream(address) as second:
            second.say(handshake.encode_hello(HELLO))
            code, details, kind = second.error()
        assert (code, kind) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SlotsExhausted")
        assert "transport.max_workers" in details
        first.say(codec.encode_step(0, 0, make_step()))
        assert first.hear().HasField("actions")


# --- sessions, repeats and restarts ---


def test_newer_stream_takes_the_run_over_and_waits_for_the_pending_answer(learner: Learner, address: str) -> None:
    learner.hold = True
    step = codec.encode_step(0, 0, make_step())
    with RawStream(address) as old, RawStream(address) as new:
        session_id = old.begin()
        old.say(step)
        request = learner.next_request()
        assert new.begin(dataclasses.replace(HELLO, session_id=session_id)) == session_id
        assert old.error()[0] is grpc.StatusCode.ABORTED
        new.say(step, codec.HEARTBEAT)
        learner.answer(request)
        assert new.hear().actions.sequence == 0
    assert learner.requests.empty()
    assert len(learner.begun) == 1


def test_client_resumes_its_run_and_repeats_what_was_not_answered(learner: Learner, address: str) -> None:
    learner.hold = True
    with joined(address) as worker:
        worker.send(0, make_step())
        request = learner.next_request()
        with RawStream(address) as thief:  # breaks the client's stream; the client takes the session back
            thief.begin(dataclasses.replace(HELLO, session_id=request.session_id))
            assert thief.error()[0] is grpc.StatusCode.ABORTED
        learner.answer(request)
        assert receive_actions(worker).group == 0
        worker.send(0, make_step())
        assert learner.next_request().sequence == 1
    assert learner.num_sessions == 1
    assert learner.next_end() == (request.session_id, messages.GOODBYE)


def test_client_hears_an_answer_once_that_comes_twice(
    learner: Learner, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = streams.Stream.put

    def put_twice(stream: streams.Stream, data: bytes) -> None:
        message = inference_pb2.LearnerMessage.FromString(data)
        for _ in range(2 if message.WhichOneof("message") == "actions" else 1):
            put(stream, data)

    monkeypatch.setattr(streams.Stream, "put", put_twice)
    with joined(address) as worker:
        for sequence in range(3):
            worker.send(0, make_step())
            assert receive_actions(worker).group == 0 and learner.next_request().sequence == sequence


def test_unknown_run_is_told_to_restart_on_the_same_stream(learner: Learner, address: str) -> None:
    with RawStream(address) as raw:
        raw.say(handshake.encode_hello(dataclasses.replace(HELLO, session_id="of another learner")))
        assert "of another learner" in raw.hear().restart.reason
        raw.say(ENCODED_SPEC, codec.encode_step(0, 5, make_step()), codec.HEARTBEAT)  # of the old session
        raw.begin()
        raw.say(codec.encode_step(0, 0, make_step()))
        assert raw.hear().actions.sequence == 0


def test_restart_makes_the_worker_join_again(learner: Learner, address: str) -> None:
    learner.hold = True
    with joined(address) as worker:
        worker.send(0, make_step())
        request = learner.next_request()
        learner.server.restart(request.session_id, "fresh environments")
        assert worker.receive() == messages.Restart("fresh environments")
        learner.answer(request)  # too late: dropped
        assignment = worker.join()
        assert assignment is not None and assignment.session_id != request.session_id
        worker.start(SPEC)
        worker.send(0, make_step())
        assert learner.next_request().session_id == assignment.session_id
    assert learner.next_end() == (assignment.session_id, messages.GOODBYE)


def test_restart_during_start_comes_with_the_next_receive(learner: Learner, address: str) -> None:
    with client.Client(address, HELLO, settings=SETTINGS) as worker:
        assignment = worker.join()
        assert assignment is not None
        learner.server.restart(assignment.session_id, "changed my mind")
        worker.start(SPEC)
        worker.send(0, make_step())
        assert worker.receive() == messages.Restart("changed my mind")
        assert worker.join() is not None


@pytest.mark.parametrize("answer", [wire.HTTP_404, wire.ENVOYS_404], ids=["http", "envoy"])
def test_a_proxy_that_has_no_learner_yet_is_asked_again_until_it_has_one(
    address: str, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def learner_behind() -> str:
        return address if "proxy" in caplog.text else ""

    with wire.proxy(answer, learner_behind) as proxied, client.Client(proxied, HELLO, settings=SETTINGS) as worker:
        assert worker.join() is not None


def test_a_proxy_is_told_to_whoever_asks_for_the_status() -> None:
    with (
        wire.proxy(wire.HTTP_404) as proxied,
        pytest.raises(errors.ProtocolError, match=r" 5 s .*HTTP status 404.*`seedzero train`"),
    ):
        probe.status(proxied)


def test_process_that_takes_a_workers_place_ends_the_former_session() -> None:
    learner = Learner(clock=lambda: 0.0)  # no lease ends
    with serving(learner) as address:
        with RawStream(address) as old:
            session_id = old.begin()
            old.close()
            with pytest.raises(StopIteration):
                old.hear()
        with RawStream(address) as new:
            assert new.begin() != session_id
            assert learner.next_end() == (session_id, messages.WORKER_LOST)


# --- leases ---


SHORT_LEASE = dataclasses.replace(SETTINGS, lease_seconds=0.8)


def test_silent_worker_loses_its_session() -> None:
    clock = Clock()
    learner = Learner(clock=clock)
    with serving(learner) as address, RawStream(address) as raw:
        session_id = raw.begin()
        clock.now += SETTINGS.lease_seconds - 1
        raw.say(codec.encode_step(0, 0, make_step()))  # renews
        assert raw.hear().HasField("actions")
        clock.now += SETTINGS.lease_seconds - 1
        raw.say(codec.HEARTBEAT, codec.encode_step(0, 1, make_step()))
        assert raw.hear().HasField("actions")
        assert learner.ended.empty()
        clock.now += SETTINGS.lease_seconds
        reason = raw.hear().restart.reason
        assert reason.startswith("nothing came for 15 s") and "--transport.lease_seconds" in reason
        assert learner.next_end() == (session_id, f"{messages.WORKER_LOST}: {reason}")
        assert raw.begin() != session_id
    assert learner.ended.empty()


def wait_for_end(learner: Learner, timeout_seconds: float) -> bool:
    with contextlib.suppress(queue.Empty):
        learner.ended.get(timeout=timeout_seconds)
        return True
    return False


def test_heartbeats_have_the_times_of_steps() -> None:
    found: queue.Queue[links.WorkerLink] = queue.Queue()

    def regroup(session_id: str, link: links.WorkerLink | None, problem: str, now: float) -> str:
        assert not problem, problem
        if link is not None:
            found.put(link)
        return ""

    settings = dataclasses.replace(SETTINGS, lease_seconds=3.0)  # beats once a second
    with serving(Learner(settings, regroup=regroup)) as address, joined(address) as worker:
        for group in range(NUM_GROUPS):
            worker.send(group, make_step())
        while found.empty():
            worker.send(receive_actions(worker).group, make_step())
        link = found.get()
    assert 0 < link.step_seconds <= link.turn_seconds and link.bytes_per_second > 0
    assert link.num_envs == NUM_GROUPS * E and not link.is_complete


def test_a_worker_that_is_told_compresses_until_its_stream_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ways, restore = queue.Queue[bool](), compression.Unpacker.unpack

    def unpack(self: compression.Unpacker, fields: inference_pb2.Step, *rest: Any) -> memoryview:
        ways.put(fields.HasField("difference_to"))
        return restore(self, fields, *rest)

    monkeypatch.setattr(compression.Unpacker, "unpack", unpack)
    answers = iter((True,))
    monkeypatch.setattr(compression.Trial, "decide", lambda *_: next(answers, None))
    settings = dataclasses.replace(SETTINGS, lease_seconds=3.0, compression="auto")  # beats once a second
    learner, number = Learner(settings), 0
    with serving(learner) as address, joined(address) as worker:

        def step() -> messages.StepRequest:
            nonlocal number
            number += 1
            worker.send(0, make_step(observation=np.full((E, 3), number, np.float32)))
            request = learner.next_request()
            assert (request.step.observation == number).all()
            assert receive_actions(worker).group == 0
            return request

        while ways.empty():
            session_id = step().session_id
        step()
        step()
        assert [ways.get() for _ in range(3)] == [False, True, True]
        with RawStream(address) as thief:  # breaks the client's stream; the client takes the session back
            thief.begin(dataclasses.replace(HELLO, session_id=session_id))
            assert thief.error()[0] is grpc.StatusCode.ABORTED
        assert step().session_id == session_id and ways.empty()


def test_heartbeats_keep_a_slow_environment_alive() -> None:
    learner = Learner(SHORT_LEASE)
    with serving(learner) as address, joined(address):
        # This thread is the environment: it sends nothing for two leases.
        assert not wait_for_end(learner, 2 * SHORT_LEASE.lease_seconds)
    assert learner.next_end()[1] == messages.GOODBYE


# --- the end ---


def test_finished_learner_sends_workers_home(learner: Learner) -> None:
    with serving(learner) as address, joined(address) as worker:
        learner.server.stop(finished=True, reason="trained")
        assert worker.receive() == messages.End("trained")
        assert worker.receive() == messages.End("trained")
    assert learner.ended.empty()  # the handler is not called any more


def test_stop_does_not_wait_for_workers_that_stay(learner: Learner) -> None:
    with serving(learner) as address, RawStream(address) as raw:
        raw.begin()
        learner.server.stop(finished=True, reason="trained", grace_seconds=0.1)
        assert raw.hear().end.reason == "trained"


def test_learner_hears_nothing_more_once_the_server_stops(learner: Learner) -> None:
    with serving(learner) as address, RawStream(address) as raw:
        raw.begin()
        stop = functools.partial(learner.server.stop, finished=True, reason="trained", grace_seconds=TIMEOUT_SECONDS)
        stopping = threading.Thread(target=stop)
        stopping.start()
        assert raw.hear().HasField("end")
        raw.say(codec.encode_step(0, 0, make_step()), codec.from_worker(goodbye=dict(reason="done")))
        raw.close()
        stopping.join(TIMEOUT_SECONDS)
        assert not stopping.is_alive()
    assert learner.requests.empty()
    assert learner.ended.empty()


def test_stopped_server_takes_replies_without_complaint(learner: Learner) -> None:
    learner.hold = True
    with serving(learner) as address, joined(address) as worker:
        worker.send(0, make_step())
        request = learner.next_request()
        learner.server.stop(finished=True, reason="trained")
        learner.answer(request)
        learner.server.restart(request.session_id, "too late")


# --- addresses ---


def test_port_in_use_is_named(address: str) -> None:
    with pytest.raises(errors.UsageError, match=re.escape(address)):
        (second := Learner(dataclasses.replace(SETTINGS, listen=address)).server).start()
    assert not second.has_started


def test_living_unix_socket_is_left_alone_and_a_dead_one_replaced(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "socket"
    settings = dataclasses.replace(SETTINGS, listen=f"unix:{path}")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serving(learner := Learner(settings)) as address:
        assert address == f"unix:{path}" and learner.server.has_started
        with pytest.raises(errors.UsageError, match=re.escape(str(path))):
            Learner(settings).server.start()
        with joined(address) as worker:
            worker.send(0, make_step())
            assert receive_actions(worker).group == 0


def test_the_address_of_a_unix_socket_holds_in_every_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(Learner(dataclasses.replace(SETTINGS, listen="unix:socket"))) as address:
        assert address == f"unix:{tmp_path / 'socket'}"


def test_unix_socket_is_its_users_alone_from_the_beginning(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "socket"
    mask = os.umask(0)
    try:
        with serving(Learner(dataclasses.replace(SETTINGS, listen=f"unix:{path}"))):
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077
        assert os.umask(0) == 0  # as before
    finally:
        os.umask(mask)


# --- a peer that stands still ---


@contextlib.contextmanager
def log_event(text: str, event: threading.Event) -> Iterator[None]:
    """Sets the event when a log line holds the text."""

    class Watcher(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if text in record.getMessage():
                event.set()

    watcher = Watcher()
    logging.getLogger("seedzero").addHandler(watcher)
    try:
        yield
    finally:
        logging.getLogger("seedzero").removeHandler(watcher)


FROZEN_LEARNER = """
import sys
from seedzero.interfaces.benchmark import transport
from seedzero.config import sections

class Pipe:
    def send(self, address):
        print(address, flush=True)

    def recv(self):
        sys.stdin.read()
        raise EOFError

settings = sections.TransportConfig(listen="127.0.0.1:0")
transport.InstantLearner(settings, 1, 2, lambda step: None).serve(Pipe())
"""


def test_client_notices_a_learner_that_stands_still() -> None:
    quick = dataclasses.replace(SETTINGS, lease_seconds=0.9)
    noticed = threading.Event()
    command = [sys.executable, "-c", FROZEN_LEARNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with client.Client(address, HELLO, settings=quick) as worker, log_event("trying again", noticed):
            worker.join()
            worker.start(SPEC)
            process.send_signal(signal.SIGSTOP)
            try:
                assert noticed.wait(10)  # without HTTP/2's ping timeout it takes a minute
            finally:
                process.send_signal(signal.SIGCONT)
        process.communicate()


def test_environments_may_fork_beside_grpc() -> None:
    code = "import os, seedzero.transport; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"  # gRPC's own handlers of forks abort a worker whose environments fork in threads


FORKED = """
import os, socket
import wire

begun = os.pipe()
with wire.serving(wire.Learner()) as address, socket.create_connection(address.split(":")):
    if os.fork() == 0:
        os.write(begun[1], b"!")
        os.read(0, 1)
        os._exit(0)
    os.read(begun[0], 1)
    print(address, flush=True)
    os._exit(0)  # as if killed
"""


def test_what_a_killed_learner_had_forked_does_not_keep_its_port() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes: dict[str, Any] = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with subprocess.Popen([sys.executable, "-c", FORKED], env=environment, **pipes) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert process.wait(TIMEOUT_SECONDS) == 0
        with serving(Learner(dataclasses.replace(SETTINGS, listen=address))) as bound:
            assert bound == address
        process.communicate()
