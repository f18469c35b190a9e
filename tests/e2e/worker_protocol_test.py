"""Workers that are not ours against the real learner: one that keeps to the protocol, and ones that do not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import e2e_harness as harness
import grpc
import numpy as np
import pytest
import raw_worker

from seedzero.transport import inference_pb2

REMOTE = (*harness.TINY, "--env=remote", "--listen=127.0.0.1:0")

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


def _step(assign: inference_pb2.Assign, sequence: int = 0, **changes: object) -> inference_pb2.WorkerMessage:
    """Returns a step of group 0 that is right but for some changes."""
    size = assign.envs_per_group
    observation = changes.pop("observation", np.zeros((size, *raw_worker.SHAPE), np.float32))
    assert isinstance(observation, np.ndarray)
    fields: dict[str, object] = {
        "group": 0,
        "sequence": sequence,
        "observation_shape": (size, *raw_worker.SHAPE),
        "observation_dtype": "float32",
        "reward": np.zeros(size, "<f4").tobytes(),
        "terminated": bytes(size),
        "truncated": bytes(size),
    }
    return inference_pb2.WorkerMessage(
        step=inference_pb2.Step(**{**fields, **changes}), observation=observation.tobytes()
    )


def _leave(raw: raw_worker.RawWorker) -> None:
    raw.send(inference_pb2.WorkerMessage(goodbye=inference_pb2.Goodbye(reason="enough")))
    with pytest.raises(StopIteration):
        raw.receive()


class Bad(NamedTuple):
    """Something wrong that a worker does, and how its stream has to end."""

    act: Callable[[raw_worker.RawWorker], None]
    code: grpc.StatusCode
    kind: str
    names: tuple[str, ...]


def _after_joining(
    message: Callable[[inference_pb2.Assign], inference_pb2.WorkerMessage | bytes],
) -> Callable[[raw_worker.RawWorker], None]:
    return lambda raw: raw.send(message(raw.join()))


def _skip_a_number(raw: raw_worker.RawWorker) -> None:
    assign = raw.join()
    raw.send(_step(assign))
    assert raw.receive().actions.sequence == 0
    raw.send(_step(assign, sequence=2))


INVALID = grpc.StatusCode.INVALID_ARGUMENT
BAD = {
    "version": Bad(
        lambda raw: raw.hello(version=7), grpc.StatusCode.FAILED_PRECONDITION, "VersionMismatch", ("7", "2")
    ),
    "garbage later": Bad(_after_joining(lambda assign: b"\x0a\xff\x01"), INVALID, "InvalidMessage", ()),
    "gap": Bad(_skip_a_number, grpc.StatusCode.OUT_OF_RANGE, "SequenceError", ("2", "1")),
    "spec": Bad(
        lambda raw: (
            raw.hello(),
            raw.send(
                inference_pb2.WorkerMessage(
                    spec=inference_pb2.Spec(
                        observation_shape=(9,),
                        observation_dtype="float32",
                        num_actions=raw_worker.NUM_ACTIONS,
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
    module_host.start([sys.executable, "-c", PACED, example, f"--server={found.address}"], "good")
    found.until(lambda status: status["updates"] > 0, "training from remote environments")
    return found


@pytest.fixture
def raw(learner: harness.Learner) -> Iterator[raw_worker.RawWorker]:
    """A stream of its own, opened when the last test's worker is gone: one that says nothing for long is closed."""
    learner.until(lambda found: found["workers"] == 1, "only the good worker")
    worker = raw_worker.RawWorker(learner.address)
    yield worker
    worker.close()


@pytest.mark.thorough
def test_a_worker_from_the_proto_alone_plays(learner: harness.Learner, raw: raw_worker.RawWorker) -> None:
    before = learner.until(lambda found: True, "a status")
    assign = raw.join()
    assert (assign.env, assign.role, assign.resumed) == ("yours", inference_pb2.ROLE_TRAIN, False)
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
    _leave(raw)
    learner.until(lambda found: found["workers"] == 1, "it has left")


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_bad_message_ends_its_stream_with_the_documented_code_and_nothing_else(
    learner: harness.Learner, bad: Bad
) -> None:
    before = learner.until(lambda found: found["workers"] == 1, "only the good worker")
    raw = raw_worker.RawWorker(learner.address)  # not before: a stream that says nothing for long is closed
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
        "training continues",
    )
    assert after["environments"] == before["environments"]


def test_too_many_environments_are_told_to_try_again(learner: harness.Learner) -> None:
    workers = [raw_worker.RawWorker(learner.address, f"raw-{index}") for index in range(5)]
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


@pytest.mark.thorough
def test_a_remote_run_cannot_be_evaluated_here_and_says_so(learner: harness.Learner, host: harness.Host) -> None:
    ended = host.seedzero("evaluate", f"--run_dir={learner.run}", "--episodes=1")
    assert ended.code == 2 and "--env=remote" in ended.err
    learner.trains_on()
