"""Workers that are not ours against the real learner: one that keeps to the protocol, and ones that do not.

`RawWorker` is written from inference.proto alone: gRPC, the generated messages, nothing of seedzero's client.
"""

from __future__ import annotations

import pathlib
import queue
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import e2e_harness as harness
import grpc
import numpy as np
import pytest

from seedzero.transport import inference_pb2 as pb

REMOTE = (*harness.TINY, "--env=remote", "--network.kind=mlp", "--listen=127.0.0.1:0")
SHAPE, ACTIONS = (10,), 2


PACED = """
import runpy, sys, time
from seedzero.envs import gym_env

step = gym_env.GymVectorEnv.step

def slow_step(*arguments):
    time.sleep(0.02)
    return step(*arguments)

gym_env.GymVectorEnv.step = slow_step
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script whose environments take their time: it leaves the processor to the tests."""


class RawWorker:
    """One stream."""

    def __init__(self, address: str, name: str = "raw") -> None:
        self.name = name
        self._outgoing: queue.Queue[bytes | None] = queue.Queue()
        self._channel = grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)])
        connect = self._channel.stream_stream(
            "/seedzero.transport.Inference/Connect",
            request_serializer=lambda data: data,
            response_deserializer=pb.LearnerMessage.FromString,
        )
        self._call = connect(iter(self._outgoing.get, None), timeout=harness.DEADLINE_SECONDS, wait_for_ready=True)

    def send(self, message: pb.WorkerMessage | bytes) -> None:
        self._outgoing.put(message if isinstance(message, bytes) else message.SerializeToString())

    def receive(self) -> pb.LearnerMessage:
        return next(self._call)

    def hello(self, *, version: int = 1, session_id: str = "") -> None:
        hello = pb.Hello(
            protocol_version=version,
            worker_id=self.name,
            session_id=session_id,
            roles=[pb.ROLE_TRAIN],
            environments=["yours"],
            max_envs=4,
        )
        self.send(pb.WorkerMessage(hello=hello))

    def join(self) -> pb.Assign:
        """Says Hello and Spec; returns the assignment when steps may be sent."""
        self.hello()
        assign = self.receive().assign
        spec = pb.Spec(
            observation_shape=SHAPE,
            observation_dtype="float32",
            observation_low=0,
            observation_high=1,
            num_actions=ACTIONS,
            num_players=1,
            frames_per_step=1,
        )
        self.send(pb.WorkerMessage(spec=spec))
        assert self.receive().WhichOneof("message") == "start"
        return assign

    def failure(self) -> tuple[grpc.StatusCode, str, str]:
        """Waits for the end; returns code, details and the error's kind."""
        with pytest.raises(grpc.RpcError):
            while True:
                self.receive()
        trailer = {item.key: item.value for item in self._call.trailing_metadata() or ()}
        return self._call.code(), self._call.details(), trailer.get("seedzero-error", "")

    def close(self) -> None:
        self._outgoing.put(None)
        self._channel.close()


def _step(assign: pb.Assign, sequence: int = 0, **changes: object) -> pb.WorkerMessage:
    """Returns a step of group 0 that is right but for some changes."""
    size = assign.envs_per_group
    observation = changes.pop("observation", np.zeros((size, *SHAPE), np.float32))
    assert isinstance(observation, np.ndarray)
    fields: dict[str, object] = {
        "group": 0,
        "sequence": sequence,
        "observation_shape": (size, *SHAPE),
        "observation_dtype": "float32",
        "reward": np.zeros(size, "<f4").tobytes(),
        "terminated": bytes(size),
        "truncated": bytes(size),
    }
    return pb.WorkerMessage(step=pb.Step(**{**fields, **changes}), observation=observation.tobytes())


class Bad(NamedTuple):
    """Something wrong that a worker does, and how its stream has to end."""

    act: Callable[[RawWorker], None]
    code: grpc.StatusCode
    kind: str
    names: tuple[str, ...]


def _after_joining(message: Callable[[pb.Assign], pb.WorkerMessage | bytes]) -> Callable[[RawWorker], None]:
    return lambda raw: raw.send(message(raw.join()))


def _skip_a_number(raw: RawWorker) -> None:
    assign = raw.join()
    raw.send(_step(assign))
    assert raw.receive().actions.sequence == 0
    raw.send(_step(assign, sequence=2))


INVALID = grpc.StatusCode.INVALID_ARGUMENT
BAD = {
    "version": Bad(
        lambda raw: raw.hello(version=7), grpc.StatusCode.FAILED_PRECONDITION, "VersionMismatch", ("7", "1")
    ),
    "garbage": Bad(lambda raw: raw.send(b"\xff\xff\xff\xff nonsense"), INVALID, "InvalidMessage", ()),
    "garbage later": Bad(_after_joining(lambda assign: b"\x0a\xff\x01"), INVALID, "InvalidMessage", ()),
    "nothing": Bad(lambda raw: raw.send(b""), INVALID, "InvalidMessage", ("Hello",)),
    "step first": Bad(lambda raw: raw.send(_step(pb.Assign(envs_per_group=2))), INVALID, "InvalidMessage", ("Hello",)),
    "shape": Bad(
        _after_joining(lambda assign: _step(assign, observation_shape=(assign.envs_per_group, 11))),
        INVALID,
        "InvalidMessage",
        ("11", "10"),
    ),
    "short": Bad(
        _after_joining(lambda assign: _step(assign, observation=np.zeros(3, np.float32))),
        INVALID,
        "InvalidMessage",
        ("12",),
    ),
    "dtype": Bad(
        _after_joining(lambda assign: _step(assign, observation_dtype="float64")),
        INVALID,
        "InvalidMessage",
        ("float64", "float32"),
    ),
    "nan": Bad(
        _after_joining(lambda assign: _step(assign, reward=np.full(assign.envs_per_group, np.nan, "<f4").tobytes())),
        INVALID,
        "InvalidMessage",
        ("reward", "nan"),
    ),
    "group": Bad(_after_joining(lambda assign: _step(assign, group=9)), INVALID, "InvalidMessage", ("9",)),
    "gap": Bad(_skip_a_number, grpc.StatusCode.OUT_OF_RANGE, "SequenceError", ("2", "1")),
    "oversize": Bad(
        _after_joining(lambda assign: _step(assign, observation=np.zeros(5_000_000, np.uint8))),
        INVALID,
        "InvalidMessage",
        ("5000",),
    ),
    "spec": Bad(
        lambda raw: (
            raw.hello(),
            raw.send(
                pb.WorkerMessage(
                    spec=pb.Spec(
                        observation_shape=(9,),
                        observation_dtype="float32",
                        num_actions=ACTIONS,
                        num_players=1,
                        frames_per_step=1,
                    )
                )
            ),
        )[0],
        grpc.StatusCode.FAILED_PRECONDITION,
        "SpecMismatch",
        ("9", "10"),
    ),
}


@pytest.fixture(scope="module")
def learner(module_host: harness.Host) -> harness.Learner:
    """A learner whose environments live in a worker that does everything right."""
    found = module_host.train(module_host.directory / "run", *REMOTE)
    example = str(harness.ROOT / "examples" / "remote_worker.py")
    module_host.start([sys.executable, "-c", PACED, example, found.address], "good")
    found.until(lambda status: status["updates"] > 0, "training from remote environments")
    return found


@pytest.fixture
def raw(learner: harness.Learner) -> Iterator[RawWorker]:
    """A stream of its own, opened when the last test's worker is gone: one that says nothing for long is closed."""
    learner.until(lambda found: found["workers"] == 1, "only the good worker")
    worker = RawWorker(learner.address)
    yield worker
    worker.close()


def test_a_worker_from_the_proto_alone_plays(learner: harness.Learner, raw: RawWorker) -> None:
    before = learner.until(lambda found: True, "a status")
    assign = raw.join()
    assert (assign.env, assign.role, assign.resumed) == ("yours", pb.ROLE_TRAIN, False)
    assert len(assign.seeds) == assign.num_groups * assign.envs_per_group == 4
    for sequence in range(5):
        raw.send(_step(assign, sequence))
        answer = raw.receive().actions
        assert (answer.group, answer.sequence) == (0, sequence)
        chosen = np.frombuffer(answer.action, "<i4")
        assert chosen.shape == (assign.envs_per_group,) and set(chosen.tolist()) <= {0, 1}
    raw.send(_step(assign, 4))
    assert raw.receive().actions == answer  # the same number: the same answer, stored once
    after = learner.until(lambda found: found["workers"] == 2, "both")
    assert after["environments"] == before["environments"] + 4
    raw.send(pb.WorkerMessage(goodbye=pb.Goodbye(reason="enough")))
    with pytest.raises(StopIteration):
        raw.receive()
    learner.until(lambda found: found["workers"] == 1, "it has left")


def test_an_unknown_run_is_told_to_restart(learner: harness.Learner, raw: RawWorker) -> None:
    raw.hello(session_id="0" * 32)
    assert raw.receive().WhichOneof("message") == "restart"
    raw.send(_step(pb.Assign(envs_per_group=2)))  # on its way already: ignored
    assert raw.join().session_id
    assert learner.trains_on()


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_bad_message_ends_its_stream_with_the_documented_code_and_nothing_else(
    learner: harness.Learner, bad: Bad
) -> None:
    before = learner.until(lambda found: found["workers"] == 1, "only the good worker")
    raw = RawWorker(learner.address)  # not before: a stream that says nothing for long is closed
    try:
        bad.act(raw)
        code, details, kind = raw.failure()
    finally:
        raw.close()
    assert (code, kind) == (bad.code, bad.kind), details
    assert all(name in details for name in bad.names), details
    # What the bad worker had sent before is accounted for (`until` checks the sum) and nothing stored is lost.
    after = learner.until(
        lambda found: (
            found["workers"] == 1
            and found["updates"] > before["updates"]
            and found["steps_stored"] > before["steps_stored"]
        ),
        "training goes on",
    )
    assert after["environments"] == before["environments"]


def test_too_many_environments_are_told_to_try_again(learner: harness.Learner) -> None:
    workers = [RawWorker(learner.address, f"raw-{index}") for index in range(5)]
    try:
        for worker in workers[:4]:
            worker.join()  # 24 slots: 8 of the good worker, 4 times 4 of these
        workers[4].hello()
        code, details, kind = workers[4].failure()
        assert (code, kind) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SlotsExhausted")
        assert "0 are free" in details and "--replay.num_slots" in details
    finally:
        for worker in workers:
            worker.close()


def test_a_remote_run_cannot_be_evaluated_here_and_says_so(learner: harness.Learner, host: harness.Host) -> None:
    ended = host.seedzero("evaluate", f"--run_dir={learner.run}", "--episodes=1")
    assert ended.code == 2 and "--env=remote" in ended.err
    learner.trains_on()


def test_a_worker_without_an_environment_of_its_own_is_refused(learner: harness.Learner, host: harness.Host) -> None:
    ended = host.worker(learner.address).wait()
    assert ended.code == 1 and "--env=remote" in ended.err
    learner.trains_on()


def test_a_learner_of_a_local_environment_refuses_what_cannot_make_it(
    host: harness.Host, tmp_path: pathlib.Path
) -> None:
    learner = host.train(tmp_path / "run", *harness.TINY, "--workers=0", "--listen=127.0.0.1:0")
    raw = RawWorker(learner.address)
    raw.hello()
    code, details, kind = raw.failure()
    raw.close()
    assert (code, kind) == (grpc.StatusCode.FAILED_PRECONDITION, "SpecMismatch")
    assert "catch" in details
    assert learner.until(lambda found: True, "a status")["workers"] == 0
