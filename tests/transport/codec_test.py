"""Messages to bytes and back, and everything that is refused on the way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies
from specs import ARRAYS, CONTINUOUS, PIXELS, SEATS, TASKS, VECTORS, E

from seedzero.core import errors, types
from seedzero.transport import codec, handshake, inference_pb2


def make_step(spec: types.EnvSpec, **changes: Any) -> types.EnvStep:
    random = np.random.default_rng(0)
    step = types.EnvStep(
        observation=random.integers(0, 100, (E, *spec.observation_shape)).astype(spec.observation_dtype),
        reward=np.array([0.5, -1, 2], np.float32),
        terminated=np.array([True, False, False]),
        truncated=np.array([False, False, True]),
        action_mask=np.array([[True, False], [False, True], [True, True]]) if spec.has_action_mask else None,
        task=np.array([1, 0, 1], np.int32) if spec.tasks else None,
        shown=np.array([True, False, True]) if spec.seats else None,
    )
    return step._replace(**changes)


PLAYED = np.array([1, 0, 1], np.int32)


def decode(data: bytes, spec: types.EnvSpec) -> types.EnvStep:
    message, observation = codec.decode_worker(data)
    return codec.step_of(message.step, observation, codec.StepLayout(spec, E))


def assert_same(step: types.EnvStep, expected: types.EnvStep) -> None:
    for name, array, wanted in zip(step._fields, step, expected, strict=True):
        np.testing.assert_array_equal(array, wanted, err_msg=name)
        assert array is None or array.dtype == wanted.dtype


@pytest.mark.parametrize("spec", [PIXELS, VECTORS, ARRAYS, TASKS, SEATS])
def test_step_survives_the_wire(spec: types.EnvSpec) -> None:
    assert_same(decode(codec.encode_step(1, 7, make_step(spec)), spec), make_step(spec))
    played = make_step(spec, played=PLAYED)
    assert_same(decode(codec.encode_step(1, 7, played), spec), played)


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
    ("spec", "changes", "message"),
    [
        (PIXELS, {"observation": np.zeros((E, 4, 5), np.uint8)}, r"\(3, 4, 5\).*\(3, 4, 5, 1\)"),
        (PIXELS, {"observation": np.zeros((E + 1, 4, 5, 1), np.uint8)}, r"shape \(4, 4, 5, 1\)"),
        (PIXELS, {"observation": np.zeros((0, 4, 5, 1), np.uint8)}, r"shape \(0, 4, 5, 1\)"),
        (PIXELS, {"observation": np.zeros((E, 4, 5, 1))}, "dtype 'float64'; expected .* 'uint8'"),
        (PIXELS, {"reward": np.zeros(E - 1, np.float32)}, "reward .* 8 .* 12"),
        (PIXELS, {"terminated": np.zeros(E + 1, bool)}, "terminated .* 4 .* 3"),
        (PIXELS, {"truncated": np.zeros((E, 2), bool)}, "truncated .* 6 .* 3"),
        (PIXELS, {"action_mask": np.ones((E, 6), bool)}, "action_mask .* 18 .* 0"),
        (VECTORS, {"action_mask": None}, "action_mask .* 6"),
        (TASKS, {"task": np.array([0, 2, 0], np.int32)}, "task .* 2; .* 0 to 1"),
        (TASKS, {"task": np.array([0, -1, 0], np.int32)}, "task .* -1; .* 0 to 1"),
        (TASKS, {"task": np.array([0, 1], np.int32)}, "task .* 8 .* 12"),
        (PIXELS, {"task": np.array([0, 1, 0], np.int32)}, "task .* 1; .* 0 to 0"),
        (SEATS, {"shown": np.array([True, False])}, "shown of group 0 has 2 bytes; expected 3"),
        (TASKS, {"shown": np.ones(E, bool)}, "shown of group 0 has 3 bytes; expected 0"),
        (PIXELS, {"played": np.array([0, 6, 1], np.int32)}, "played of group 0 .*number 6; expected 0 to 5"),
        (PIXELS, {"played": np.array([0, -1, 1], np.int32)}, "played of group 0 .*-1"),
        (PIXELS, {"played": np.array([0], np.int32)}, "played of group 0 .* 4 "),
        (VECTORS, {"info": {"depth": np.array([0, np.inf, 0], np.float32)}}, "'depth' of group 0 is infinite"),
    ],
)
def test_step_that_differs_from_the_spec_is_refused(
    spec: types.EnvSpec, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.InvalidMessage, match=message):
        decode(codec.encode_step(0, 0, make_step(spec, **changes)), spec)


def test_a_step_that_tells_no_tasks_has_the_first() -> None:
    step = decode(codec.encode_step(0, 0, make_step(TASKS, task=None)), TASKS)
    assert step.task is None and step.tasks.tolist() == [0, 0, 0]


def test_a_step_with_more_axes_than_any_array_is_refused_before_they_are_read() -> None:
    fields = inference_pb2.Step(observation_shape=[1] * 34, observation_dtype="uint8")
    with pytest.raises(errors.InvalidMessage, match=r"Step\.observation_shape .* 34 .* 33"):
        codec.step_of(fields, memoryview(b""), codec.StepLayout(PIXELS, E))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observation": bytes(59)}, r"observation .* 59 .* 60"),
        ({"step": {"terminated": b"\0\2\1"}}, r"terminated .* 2; .* 0 or 1"),
    ],
)
def test_bytes_that_the_library_takes_are_looked_at(changes: dict[str, Any], message: str) -> None:
    encoded = inference_pb2.WorkerMessage.FromString(codec.encode_step(0, 0, make_step(PIXELS)))
    encoded.observation = changes.get("observation", encoded.observation)
    encoded.step.MergeFrom(inference_pb2.Step(**changes.get("step", {})))
    with pytest.raises(errors.InvalidMessage, match=message):
        decode(encoded.SerializeToString(), PIXELS)


@pytest.mark.parametrize("wrong", [None, "text", np.array([object()] * E)])
def test_step_that_is_not_made_of_arrays_is_refused_before_it_is_sent(wrong: object) -> None:
    with pytest.raises(errors.InvalidMessage, match=r"step of group 0 .*arrays"):
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


DISCRETE, VECTOR = [0, 5, 2], [[0, 0], [-1, 2.5], [1, 0.125]]


@pytest.mark.parametrize(
    ("spec", "sent", "dtype"),
    [
        *((PIXELS, DISCRETE, dtype) for dtype in (np.int32, np.int64, np.uint8)),
        *((CONTINUOUS, VECTOR, dtype) for dtype in (np.float32, np.float64)),
    ],
)
def test_actions_survive_the_wire(spec: types.EnvSpec, sent: list[Any], dtype: type[np.generic]) -> None:
    fields = codec.decode_learner(codec.encode_actions(1, 9, np.array(sent, dtype), 77)).actions
    group, actions, version, bot = codec.actions_of(fields, E, spec)
    assert bot is None and not fields.bot
    assert (group, fields.sequence, version) == (1, 9, 77)
    np.testing.assert_array_equal(actions, sent)
    assert actions.dtype == (np.float32 if spec.is_continuous else np.int32)


@pytest.mark.parametrize(
    ("spec", "actions", "message"),
    [
        (PIXELS, [0, 6, 1], "actions of group 1 .* 6 .* 0 to 5"),
        (PIXELS, [0, -1, 1], "actions of group 1 .* -1 "),
        (PIXELS, [0, 1], "action of group 1 .* 8 .* 12"),
        (CONTINUOUS, [[0, 0], [0, 2.6], [0, 0]], r"group 1 .* 2\.59+\d* .* 0.0 to 2.5"),
        (CONTINUOUS, [[0, 0], [0, 0], [np.nan, 0]], "group 1 .* nan .* -1.0 to 1.0"),
        (CONTINUOUS, [[0, 0], [0, 0]], "action of group 1 .* 16 .* 24"),
    ],
)
def test_impossible_actions_are_refused(spec: types.EnvSpec, actions: list[Any], message: str) -> None:
    fields = codec.decode_learner(codec.encode_actions(1, 9, np.array(actions), 77)).actions
    with pytest.raises(errors.InvalidMessage, match=message):
        codec.actions_of(fields, E, spec)


def test_message_limit_holds_the_largest_step_and_little_more() -> None:
    info = {f"{number:02}" + "\N{GRINNING FACE}" * 62: np.ones(E, np.float32) for number in range(32)}
    size = len(codec.encode_step(63, 2**64 - 1, make_step(VECTORS, info=info)))
    limit = handshake.max_message_bytes(VECTORS, E)
    assert size <= limit <= size + 2**16
    codec.check_size(b"1234", 4)
    with pytest.raises(errors.InvalidMessage, match=r" 5 .* 4,"):
        codec.check_size(b"12345", 4)


# --- bytes beside the fields


@pytest.mark.parametrize("length", [0, 1, 127, 128, 70_000])
def test_a_joined_message_is_protobufs_and_splits_into_its_parts(length: int) -> None:
    head = inference_pb2.WorkerMessage(hello=inference_pb2.Hello(worker_id="w")).SerializeToString()
    observation = bytes(range(256)) * 300
    data = codec.join(head, memoryview(observation)[:length])
    parsed = inference_pb2.WorkerMessage.FromString(data)
    assert (parsed.hello.worker_id, parsed.observation) == ("w", observation[:length])
    found, view = codec.split(data)
    assert (found, bytes(view)) == (head, observation[:length])
    assert length == 0 or view.obj is data  # no copy


def test_fields_on_both_sides_of_the_observation_are_the_head() -> None:
    head = inference_pb2.WorkerMessage(hello=inference_pb2.Hello(worker_id="w")).SerializeToString()
    found, view = codec.split(codec.join(b"", b"abc") + head)
    assert (found, bytes(view)) == (head, b"abc")


def test_a_message_without_observation_is_all_head() -> None:
    assert codec.split(b"") == (b"", b"")


UNDECODABLE = [b"\x08\x01", b"\x12\x05ab", b"\x12", b"\x32\x05abc", b"\x32", b"\xff" * 12, b"\xff" * 20]


@pytest.mark.parametrize("data", UNDECODABLE, ids=bytes.hex)
@pytest.mark.parametrize("function", [codec.split, codec.decode_worker])
def test_bytes_that_make_no_message_are_quoted(function: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(errors.InvalidMessage, match=rf"^{len(data)} bytes .*'{data[:16].hex()}'"):
        function(data)


def test_a_message_of_countless_fields_is_refused_before_they_are_walked() -> None:
    heartbeat = inference_pb2.WorkerMessage(heartbeat=inference_pb2.Heartbeat()).SerializeToString()
    assert codec.split(64 * heartbeat) == (64 * heartbeat, b"")
    with pytest.raises(errors.InvalidMessage, match=r" 130 .* 64 "):
        codec.split(65 * heartbeat)


# --- arrays


@pytest.mark.parametrize("mask", [[], [False], [True], [True, False], [True, True]])
def test_any_and_all_are_numpys(mask: list[bool]) -> None:
    array = np.array(mask, bool)
    assert (codec.any_true(array), codec.all_true(array)) == (array.any(), array.all())


def test_an_array_at_an_odd_place_is_copied() -> None:
    odd = np.frombuffer(b"\0\1\2\3\4\5\6\7\x08", np.uint8)[1:].view(np.dtype("<i4"))
    assert not odd.flags.aligned
    even = codec.aligned(odd)
    assert even.flags.aligned and even.tolist() == odd.tolist()
    assert codec.aligned(even) is even


def test_the_bots_of_an_answer_survive_the_wire() -> None:
    numbers = np.array([0, 2, 1], np.uint8)
    fields = codec.decode_learner(codec.encode_actions(1, 9, np.array(DISCRETE), 77, numbers)).actions
    np.testing.assert_array_equal(codec.actions_of(fields, E, PIXELS, num_bots=2).bot, numbers)
    with pytest.raises(errors.InvalidMessage, match=r"bot of group 1 .* 2; expected 0 to 1"):
        codec.actions_of(fields, E, PIXELS, num_bots=1)
    fields.bot = bytes(2)
    with pytest.raises(errors.InvalidMessage, match="bot of group 1 has 2 bytes; expected 3"):
        codec.actions_of(fields, E, PIXELS, num_bots=2)


INFO = {"is_success": np.array([1, np.nan, 0], np.float32), "depth": np.array([2.5, np.nan, -1], np.float32)}


def test_numbers_of_the_environment_survive_the_wire() -> None:
    step = decode(codec.encode_step(1, 7, make_step(VECTORS, info=INFO)), VECTORS)
    assert step.info is not None and list(step.info) == ["is_success", "depth"]
    np.testing.assert_array_equal([*step.info.values()], [*INFO.values()])
    assert decode(codec.encode_step(1, 7, make_step(VECTORS, info={})), VECTORS).info is None


@pytest.mark.parametrize(
    ("info", "named"),
    [
        ([(str(number), 12) for number in range(33)], "info has 33 entries; expected at most 32"),
        ([("", 12)], "name ''"),
        ([("a" * 65, 12)], "1 to 64"),
        ([("a" * 100_000, 12)], "1 to 64"),
        ([("a\n", 12)], "printable"),
        ([("a", 12), ("a", 12)], "another name"),
        ([("a", 8)], "info 'a' of group 1 has 8 bytes; expected 12"),
        ([("a", 0)], "0 bytes"),
    ],
)
def test_impossible_numbers_of_the_environment_are_refused(info: list[tuple[str, int]], named: str) -> None:
    message = inference_pb2.WorkerMessage.FromString(codec.encode_step(1, 7, make_step(VECTORS)))
    for name, num_bytes in info:
        message.step.info.add(name=name, value=bytes(num_bytes))
    with pytest.raises(errors.InvalidMessage, match=named) as raised:
        decode(message.SerializeToString(), VECTORS)
    assert len(str(raised.value)) < 1000
