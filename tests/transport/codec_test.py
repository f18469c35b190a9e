"""Messages to bytes and back, and everything that is refused on the way."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.transport import codec, inference_pb2, messages

E = 3
LIMIT = sections.TransportConfig().max_message_bytes
PIXELS = types.EnvSpec((4, 5, 1), "uint8", 6, 0, 255)
VECTORS = types.EnvSpec((2,), "float32", 2, has_action_mask=True, num_players=2, frames_per_step=4)
NUMBERS = types.EnvSpec((500,), "float32", 6, 0.0, 1.0, num_states=500)
ARRAYS = types.EnvSpec.of_arrays(
    [types.ArraySpec("image", (4, 5, 1), "uint8", 0, 255), types.ArraySpec("robot/arm", (3,), "float32")],
    num_actions=6,
)
TEXT = types.EnvSpec.of_arrays([types.ArraySpec("words", (9,), "uint8", 0, 255, text=True)], num_actions=2)
TASKS = types.EnvSpec((2,), "float32", 2, tasks=("walk", "run"))
CONTINUOUS = types.EnvSpec((2,), "float32", 0, action_low=(-1.0, 0.0), action_high=(1.0, 2.5))


def make_step(spec: types.EnvSpec, **changes: Any) -> types.EnvStep:
    random = np.random.default_rng(0)
    step = types.EnvStep(
        observation=random.integers(0, 100, (E, *spec.observation_shape)).astype(spec.observation_dtype),
        reward=np.array([0.5, -1, 2], np.float32),
        terminated=np.array([True, False, False]),
        truncated=np.array([False, False, True]),
        action_mask=np.array([[True, False], [False, True], [True, True]]) if spec.has_action_mask else None,
        task=np.array([1, 0, 1], np.int32) if spec.tasks else None,
    )
    return step._replace(**changes)


def decode(data: bytes, spec: types.EnvSpec) -> types.EnvStep:
    message, observation = codec.decode_worker(data)
    return codec.step_of(message.step, observation, codec.StepLayout(spec, E))


def assert_same(step: types.EnvStep, expected: types.EnvStep) -> None:
    for name, array, wanted in zip(step._fields, step, expected, strict=True):
        np.testing.assert_array_equal(array, wanted, err_msg=name)
        assert array is None or array.dtype == wanted.dtype


@pytest.mark.parametrize("spec", [PIXELS, VECTORS, ARRAYS, TASKS])
def test_step_survives_the_wire(spec: types.EnvSpec) -> None:
    assert_same(decode(codec.encode_step(1, 7, make_step(spec)), spec), make_step(spec))


def test_encoded_step_is_what_the_protobuf_library_would_read() -> None:
    message = inference_pb2.WorkerMessage.FromString(codec.encode_step(1, 7, make_step(PIXELS)))
    assert (message.step.group, message.step.sequence) == (1, 7)
    assert list(message.step.observation_shape) == [3, 4, 5, 1]
    assert message.observation == make_step(PIXELS).observation.tobytes()


@pytest.mark.parametrize("spec", [PIXELS, VECTORS])
def test_fields_may_come_in_any_order_and_twice(spec: types.EnvSpec) -> None:
    data = codec.encode_step(0, 0, make_step(spec))
    message = inference_pb2.WorkerMessage.FromString(data)
    observation = inference_pb2.WorkerMessage(observation=message.observation).SerializeToString()
    step = inference_pb2.WorkerMessage(step=message.step).SerializeToString()
    stale = inference_pb2.WorkerMessage(observation=b"stale").SerializeToString()
    for rearranged in (observation + step, stale + step + observation, stale + observation + step):
        assert_same(decode(rearranged, spec), make_step(spec))


def test_observation_is_a_view_of_the_message() -> None:
    data = codec.encode_step(0, 0, make_step(PIXELS))
    observation = decode(data, PIXELS).observation
    assert np.shares_memory(observation, np.frombuffer(data, np.uint8))
    assert not observation.flags.writeable


def test_observation_of_larger_elements_is_aligned() -> None:
    for sequence in (0, 1, 200, 20_000, 3_000_000):  # lengths that put the observation at odd places
        data = codec.encode_step(0, sequence, make_step(VECTORS))
        assert decode(data, VECTORS).observation.flags.aligned


def test_other_layouts_in_memory_are_sent_in_c_order_and_little_endian() -> None:
    step = make_step(VECTORS)
    odd = step._replace(
        observation=np.asfortranarray(step.observation).astype(">f4"), reward=step.reward.astype(">f8")
    )
    assert_same(decode(codec.encode_step(0, 0, odd), VECTORS), step)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observation": np.zeros((E, 4, 5), np.uint8)}, r"shape \(3, 4, 5\) and dtype .*; expected \(3, 4, 5, 1\)"),
        ({"observation": np.zeros((E + 1, 4, 5, 1), np.uint8)}, r"shape \(4, 4, 5, 1\)"),
        ({"observation": np.zeros((0, 4, 5, 1), np.uint8)}, r"shape \(0, 4, 5, 1\)"),
        ({"observation": np.zeros((E, 4, 5, 1))}, "dtype 'float64'; expected .* 'uint8'"),
        ({"reward": np.zeros(E - 1, np.float32)}, "reward of group 0 has 8 bytes; expected 12"),
        ({"terminated": np.zeros(E + 1, bool)}, "terminated of group 0 has 4 bytes; expected 3"),
        ({"truncated": np.zeros((E, 2), bool)}, "truncated of group 0 has 6 bytes; expected 3"),
        ({"action_mask": np.ones((E, 6), bool)}, "action_mask of group 0 has 18 bytes; expected 0"),
    ],
)
def test_step_that_differs_from_the_spec_is_refused(changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(errors.InvalidMessage, match=message):
        decode(codec.encode_step(0, 0, make_step(PIXELS, **changes)), PIXELS)


def test_missing_mask_is_refused() -> None:
    with pytest.raises(errors.InvalidMessage, match="action_mask of group 0 has 0 bytes; expected 6"):
        decode(codec.encode_step(0, 0, make_step(VECTORS, action_mask=None)), VECTORS)


def test_a_step_that_tells_no_tasks_has_the_first() -> None:
    step = decode(codec.encode_step(0, 0, make_step(TASKS, task=None)), TASKS)
    assert step.task is None and step.tasks.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("spec", "task", "message"),
    [
        (TASKS, [0, 2, 0], "task of group 0 has a number 2; expected 0 to 1"),
        (TASKS, [0, -1, 0], "task of group 0 has a number -1; expected 0 to 1"),
        (TASKS, [0, 1], "task of group 0 has 8 bytes; expected 12"),
        (PIXELS, [0, 1, 0], "task of group 0 has a number 1; expected 0 to 0"),
    ],
)
def test_tasks_that_the_spec_does_not_name_are_refused(spec: types.EnvSpec, task: list[int], message: str) -> None:
    with pytest.raises(errors.InvalidMessage, match=message):
        decode(codec.encode_step(0, 0, make_step(spec, task=np.array(task, np.int32))), spec)


def test_a_step_with_more_axes_than_any_array_is_refused_before_they_are_read() -> None:
    fields = inference_pb2.Step(observation_shape=[1] * 34, observation_dtype="uint8")
    with pytest.raises(errors.InvalidMessage, match=r"Step\.observation_shape has 34 entries; expected at most 33"):
        codec.step_of(fields, memoryview(b""), codec.StepLayout(PIXELS, E))


def test_short_observation_is_refused() -> None:
    message = inference_pb2.WorkerMessage.FromString(codec.encode_step(0, 0, make_step(PIXELS)))
    message.observation = message.observation[:-1]
    with pytest.raises(errors.InvalidMessage, match="observation of group 0 has 59 bytes; expected 60"):
        decode(message.SerializeToString(), PIXELS)


def test_flag_that_is_neither_0_nor_1_is_refused() -> None:
    message = inference_pb2.WorkerMessage.FromString(codec.encode_step(0, 0, make_step(PIXELS)))
    message.step.terminated = b"\0\2\1"
    with pytest.raises(errors.InvalidMessage, match="terminated of group 0 has a byte 2; expected 0 or 1"):
        decode(message.SerializeToString(), PIXELS)


@pytest.mark.parametrize("wrong", [None, "text", np.array([object()] * E)])
def test_step_that_is_not_made_of_arrays_is_refused_before_it_is_sent(wrong: object) -> None:
    with pytest.raises(errors.InvalidMessage, match="step of group 0 is not made of arrays of numbers"):
        codec.encode_step(0, 0, make_step(PIXELS, observation=wrong))


@hypothesis.settings(deadline=None)
@hypothesis.given(strategies.binary(max_size=64))
def test_any_bytes_decode_or_are_refused_by_name(data: bytes) -> None:
    for function in (codec.decode_worker, codec.decode_learner):
        try:
            function(data)
        except errors.InvalidMessage as error:
            assert f"{len(data)} bytes" in str(error)


@hypothesis.settings(deadline=None)
@hypothesis.given(strategies.integers(0, 400), strategies.integers(0, 255))
def test_damaged_step_decodes_or_is_refused_by_name(position: int, value: int) -> None:
    data = bytearray(codec.encode_step(1, 300, make_step(VECTORS)))
    data[position % len(data)] = value
    with contextlib.suppress(errors.InvalidMessage):
        decode(bytes(data), VECTORS)


@pytest.mark.parametrize("data", [b"\x32\x05abc", b"\x32", b"\x08\x01", b"\xff" * 20])
def test_undecodable_bytes_are_quoted(data: bytes) -> None:
    with pytest.raises(errors.InvalidMessage, match=f"{len(data)} bytes that begin with '{data[:16].hex()}'"):
        codec.decode_worker(data)


HELLO = messages.Hello("w", "session", (types.Role.EVALUATE, types.Role.TRAIN), ("catch", "gym"), 32, "key")


def hello_fields(**changes: Any) -> inference_pb2.Hello:
    message, _ = codec.decode_worker(codec.encode_hello(HELLO))
    for name, value in changes.items():
        if name in ("roles", "environments"):
            message.hello.ClearField(name)
            getattr(message.hello, name).extend(value)
        else:
            setattr(message.hello, name, value)
    return message.hello


def test_hello_survives_the_wire() -> None:
    assert codec.hello_of(hello_fields()) == HELLO


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"protocol_version": 1},
            errors.VersionMismatch,
            "worker speaks protocol version 1, the learner 2; install .* on both: the worker's is older",
        ),
        ({"protocol_version": 3}, errors.VersionMismatch, "version 3, the learner 2; install .* on both$"),
        ({"worker_id": ""}, errors.InvalidMessage, "worker_id has 0 characters"),
        ({"worker_id": "w\x1b[2J\nfinished"}, errors.InvalidMessage, "expected printable characters"),
        ({"session_id": "x" * 257}, errors.InvalidMessage, "session_id 257; expected 1 to 256"),
        ({"roles": []}, errors.InvalidMessage, r"roles is \[\]"),
        ({"roles": [1, 0]}, errors.InvalidMessage, r"roles is \[1, 0\]"),
        ({"roles": [1] * 17}, errors.InvalidMessage, "Hello.roles has 17 entries; expected at most 16"),
        ({"roles": [3] * 17}, errors.InvalidMessage, "Hello.roles has 17 entries; expected at most 16"),
        (
            {"environments": ["a"] * 1001},
            errors.InvalidMessage,
            "Hello.environments has 1001 entries; expected at most",
        ),
        ({"environments": ["a", "b" * 257]}, errors.InvalidMessage, "environments has a name of 257 characters"),
        ({"max_envs": 0}, errors.InvalidMessage, "max_envs is 0"),
    ],
)
def test_impossible_hello_is_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        codec.hello_of(hello_fields(**changes))


@pytest.mark.parametrize("spec", [PIXELS, VECTORS, CONTINUOUS, NUMBERS, ARRAYS, TASKS, TEXT])
def test_spec_survives_the_wire(spec: types.EnvSpec) -> None:
    message, _ = codec.decode_worker(codec.encode_spec(spec))
    assert codec.spec_of(message.spec, E, LIMIT) == spec


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_players": 3}, "num_players 3"),
        ({"num_actions": 0}, "num_actions 0"),
        ({"frames_per_step": 0}, "frames_per_step 0"),
        ({"action_low": (0,)}, "action_low is .0.0. and action_high ..; expected equally many finite"),
        ({"action_high": (0,)}, "action_low is .. and action_high .0.0.; expected equally many finite"),
        ({"action_low": (0,), "action_high": (np.inf,)}, "action_high .inf.; expected equally many finite"),
        ({"action_low": (0,), "action_high": (1,)}, "vectors of 1 numbers, but num_actions is 6"),
        ({"action_low": (0,) * 10_001, "num_actions": 0}, "Spec.action_low has 10001 entries; expected at most 10000"),
        ({"action_high": (0,) * 10_001}, "Spec.action_high has 10001 entries; expected at most 10000"),
        ({"observation_low": np.nan}, "observation_low nan"),
        ({"observation_dtype": "float64"}, "'float64' is not supported; send one of uint8, int32, float32"),
        ({"observation_shape": (2, 0)}, "empty axis"),
        ({"observation_shape": (1,) * 33}, "Spec.observation_shape has 33 entries; expected at most 32"),
        ({"observation_shape": (2**27,)}, "an axis of 134217728; expected at most 67108864 bytes in all"),
        ({"tasks": ("walk", "walk")}, "names of the tasks are .'walk', 'walk'.; expected each once"),
        ({"tasks": ("",)}, "Spec.tasks has a name of 0 characters; expected 1 to 256"),
        ({"tasks": [str(number) for number in range(1001)]}, "Spec.tasks has 1001 entries"),
        ({"tasks": ("a\nb",)}, r"Spec.tasks has the name 'a\\nb'; expected printable characters"),
        ({"observation_shape": (2**20, 2**20)}, r"at most 67108864; start it with --transport.max_message_bytes=3"),
    ],
)
def test_impossible_spec_is_refused(changes: dict[str, Any], message: str) -> None:
    fields = {**dataclasses.asdict(PIXELS), **changes}
    with pytest.raises(errors.SpecMismatch, match=message):
        codec.spec_of(inference_pb2.Spec(**fields), E, LIMIT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "has an array '' from 0.0 to 255.0; expected a name of 1 to 256 printable"),
        ({"name": "a\nb"}, "expected a name of 1 to 256 printable"),
        ({"low": np.nan}, "from nan to 255.0"),
        ({"dtype": "float64"}, "observation 'image': dtype 'float64' is not supported"),
        ({"shape": (4, 5, 2)}, "expected the 52 bytes of image, robot/arm"),
        ({"name": "robot/arm"}, "expected each once"),
        ({"shape": (1,) * 33}, "Spec.packed.shape has 33 entries; expected at most 32"),
    ],
)
def test_impossible_arrays_are_refused(changes: dict[str, Any], message: str) -> None:
    fields = dataclasses.asdict(ARRAYS)
    fields["packed"][0].update(changes)
    with pytest.raises(errors.SpecMismatch, match=message):
        codec.spec_of(inference_pb2.Spec(**fields), E, LIMIT)


def test_too_many_arrays_are_refused() -> None:
    fields = dict(dataclasses.asdict(ARRAYS), packed=dataclasses.asdict(ARRAYS)["packed"] * 501)
    with pytest.raises(errors.SpecMismatch, match=r"Spec\.packed has 1002 entries; expected at most 1000"):
        codec.spec_of(inference_pb2.Spec(**fields), E, LIMIT)


ASSIGNMENT = types.Assignment(
    "session", types.Role.TRAIN, "atari:Pong", '{"x": 1}', 2, 2, (1, 2, 3, 2**63), True, (4, 5, 0, 9)
)


def assign_fields() -> inference_pb2.Assign:
    return codec.decode_learner(codec.encode_assign(ASSIGNMENT, heartbeat_seconds=5.0, lease_seconds=15.0)).assign


def test_assignment_survives_the_wire() -> None:
    fields = assign_fields()
    assert codec.assignment_of(fields) == ASSIGNMENT
    assert (fields.heartbeat_seconds, fields.lease_seconds) == (5.0, 15.0)


def test_an_older_learner_tells_no_places() -> None:
    fields = assign_fields()
    del fields.indices[:]
    assert codec.assignment_of(fields) == dataclasses.replace(ASSIGNMENT, indices=())
    fields.indices.append(3)
    with pytest.raises(errors.InvalidMessage, match="Assign has 1 indices for 4 environments"):
        codec.assignment_of(fields)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("session_id", "", "session_id ''"),
        ("role", 7, "role 7"),
        ("num_groups", 99, "num_groups 99"),
        ("num_groups", 1, "has 4 seeds for 1 groups of 2 environments"),
    ],
)
def test_impossible_assignment_is_refused(name: str, value: object, message: str) -> None:
    fields = assign_fields()
    setattr(fields, name, value)
    with pytest.raises(errors.InvalidMessage, match=message):
        codec.assignment_of(fields)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_actions_survive_the_wire(dtype: type[np.generic]) -> None:
    fields = codec.decode_learner(codec.encode_actions(1, 9, np.array([0, 5, 2], dtype), 77)).actions
    group, actions, version = codec.actions_of(fields, E, PIXELS)
    assert (group, fields.sequence, version) == (1, 9, 77)
    np.testing.assert_array_equal(actions, [0, 5, 2])
    assert actions.dtype == np.int32


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 6, 1], "actions of group 1 have 6 among them; expected 0 to 5"),
        ([0, -1, 1], "actions of group 1 have -1 among them"),
        ([0, 1], "action of group 1 has 8 bytes; expected 12"),
    ],
)
def test_impossible_actions_are_refused(actions: list[int], message: str) -> None:
    fields = codec.decode_learner(codec.encode_actions(1, 9, np.array(actions), 77)).actions
    with pytest.raises(errors.InvalidMessage, match=message):
        codec.actions_of(fields, E, PIXELS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_continuous_actions_survive_the_wire(dtype: type[np.generic]) -> None:
    sent = np.array([[0, 0], [-1, 2.5], [1, 0.125]], dtype)
    fields = codec.decode_learner(codec.encode_actions(1, 9, sent, 77)).actions
    group, actions, version = codec.actions_of(fields, E, CONTINUOUS)
    assert (group, fields.sequence, version) == (1, 9, 77)
    np.testing.assert_array_equal(actions, sent)
    assert actions.dtype == np.float32


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([[0, 0], [0, 2.6], [0, 0]], r"group 1 have 2\.59+\d* as number 1 of a vector; expected 0.0 to 2.5"),
        ([[0, 0], [0, 0], [np.nan, 0]], "group 1 have nan as number 0 of a vector; expected -1.0 to 1.0"),
        ([[0, 0], [0, 0]], "action of group 1 has 16 bytes; expected 24"),
    ],
)
def test_impossible_continuous_actions_are_refused(actions: list[list[float]], message: str) -> None:
    fields = codec.decode_learner(codec.encode_actions(1, 9, np.array(actions), 77)).actions
    with pytest.raises(errors.InvalidMessage, match=message):
        codec.actions_of(fields, E, CONTINUOUS)


def test_message_limit_holds_the_largest_step_and_little_more() -> None:
    step = make_step(VECTORS)
    size = len(codec.encode_step(63, 2**64 - 1, step))
    limit = codec.max_message_bytes(VECTORS, E)
    assert size <= limit <= size + 2**16
    codec.check_size(b"1234", 4)
    with pytest.raises(errors.InvalidMessage, match="a message has 5 bytes; expected at most 4"):
        codec.check_size(b"12345", 4)
