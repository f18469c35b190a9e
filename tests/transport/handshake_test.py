"""Hello, Spec and Assign to bytes and back, and every one that is refused."""

from __future__ import annotations

import dataclasses
import types as python_types
from typing import Any

import numpy as np
import pytest
from specs import ARRAYS, CONTINUOUS, NUMBERS, PIXELS, SEATS, TASKS, TEXT, TURNS, VECTORS, E

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.transport import codec, handshake, inference_pb2, messages

TIMES = sections.TransportConfig()
LIMIT = sections.TransportConfig().max_message_bytes


_OLD = "the stubs are older than the proto: pip install -e . makes them anew"
_KNOWN = inference_pb2.Spec.DESCRIPTOR.fields_by_name
_TURNS = pytest.param(TURNS, marks=pytest.mark.skipif("moves_again" not in _KNOWN, reason=_OLD))
_NAMED = pytest.mark.skipif("action_names" not in _KNOWN, reason=_OLD)
HELLO = messages.Hello("w", "session", (types.Role.EVALUATE, types.Role.TRAIN), ("catch", "gym"), 32, "key")


def hello_fields(**changes: Any) -> inference_pb2.Hello:
    message, _ = codec.decode_worker(handshake.encode_hello(HELLO))
    for name, value in changes.items():
        if name in ("roles", "environments"):
            message.hello.ClearField(name)
            getattr(message.hello, name).extend(value)
        else:
            setattr(message.hello, name, value)
    return message.hello


def test_hello_survives_the_wire() -> None:
    assert handshake.hello_of(hello_fields()) == HELLO
    assert not HELLO.knows_bots and handshake.hello_of(hello_fields(knows_bots=True)).knows_bots


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"protocol_version": 1}, errors.VersionMismatch, "1, .* 2; .* older "),
        ({"protocol_version": 3}, errors.VersionMismatch, "3, .* 2; .* both$"),
        ({"worker_id": ""}, errors.InvalidMessage, "worker_id has 0 characters"),
        ({"worker_id": "w\x1b[2J\nfinished"}, errors.InvalidMessage, r"worker_id .*\\x1b"),
        ({"session_id": "x" * 257}, errors.InvalidMessage, "session_id 257; expected 1 to 256"),
        ({"roles": []}, errors.InvalidMessage, r"roles is \[\]"),
        ({"roles": [1, 0]}, errors.InvalidMessage, r"roles is \[1, 0\]"),
        ({"roles": [1] * 17}, errors.InvalidMessage, r"Hello\.roles .* 17 .* 16"),
        ({"roles": [3] * 17}, errors.InvalidMessage, r"Hello\.roles .* 17 .* 16"),
        ({"environments": ["a"] * 1001}, errors.InvalidMessage, r"Hello\.environments .* 1001 "),
        ({"environments": ["a", "b" * 257]}, errors.InvalidMessage, "environments .* 257 "),
        ({"max_envs": 0}, errors.InvalidMessage, "max_envs is 0"),
    ],
)
def test_impossible_hello_is_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        handshake.hello_of(hello_fields(**changes))


@pytest.mark.parametrize("spec", [PIXELS, VECTORS, CONTINUOUS, NUMBERS, ARRAYS, TASKS, TEXT, SEATS, _TURNS])
def test_spec_survives_the_wire(spec: types.EnvSpec) -> None:
    message, _ = codec.decode_worker(handshake.encode_spec(spec))
    assert handshake.spec_of(message.spec, E, LIMIT) == spec


@_NAMED
def test_names_of_actions_survive_the_wire_and_old_workers_send_none() -> None:
    names = tuple(f"action {number}" for number in range(6))
    fields = handshake.spec_fields(dataclasses.replace(PIXELS, action_names=names))
    assert handshake.spec_of(inference_pb2.Spec(**fields), E, LIMIT).action_names == names
    del fields["action_names"]
    assert handshake.spec_of(inference_pb2.Spec(**fields), E, LIMIT).action_names == ()
    for wrong, told in ((["x" * 257] * 6, "a name of 257"), (["\x1b"] * 6, "x1b"), (["x"] * 1001, "1001 entries")):
        with pytest.raises(errors.SpecMismatch, match=f"Spec.action_names .*{told}"):
            handshake.spec_of(inference_pb2.Spec(**fields, action_names=wrong), E, LIMIT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_players": 3}, "num_players 3"),
        ({"num_actions": 0}, "num_actions 0"),
        ({"frames_per_step": 0}, "frames_per_step 0"),
        ({"action_low": (0,)}, r"action_low .*\[0\.0\] .*action_high \[\]"),
        ({"action_high": (0,)}, r"action_low .*\[\] .*action_high \[0\.0\]"),
        ({"action_low": (0,), "action_high": (np.inf,)}, r"action_high \[inf\]"),
        ({"action_low": (0,), "action_high": (1,)}, " 1 .*num_actions .* 6"),
        ({"action_low": (0,) * 10_001, "num_actions": 0}, r"Spec\.action_low .* 10001 .* 10000"),
        ({"action_high": (0,) * 10_001}, r"Spec\.action_high .* 10001 .* 10000"),
        ({"observation_low": np.nan}, "observation_low nan"),
        ({"observation_dtype": "float64"}, "'float64' .*uint8, int32, float32"),
        ({"observation_shape": (2, 0)}, "empty axis"),
        ({"observation_shape": (1,) * 33}, r"Spec\.observation_shape .* 33 .* 32"),
        ({"observation_shape": (2**27,)}, "134217728.*67108864"),
        ({"tasks": ("walk", "walk")}, "'walk', 'walk'"),
        ({"spaces": "[]"}, "spaces"),
        ({"spaces": "x" * (2**20 + 1)}, "Spec.spaces .* 1048577 .* 1048576"),
        ({"tasks": ("",)}, r"Spec\.tasks .* 0 .* 256"),
        ({"tasks": [str(number) for number in range(1001)]}, "Spec.tasks has 1001 entries"),
        ({"tasks": ("a\nb",)}, r"Spec\.tasks .*'a\\nb'"),
        ({"observation_shape": (2**20, 2**20)}, r"67108864.*--transport\.max_message_bytes=3"),
    ],
)
def test_impossible_spec_is_refused(changes: dict[str, Any], message: str) -> None:
    fields = {**handshake.spec_fields(PIXELS), **changes}
    with pytest.raises(errors.SpecMismatch, match=message):
        handshake.spec_of(inference_pb2.Spec(**fields), E, LIMIT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "'' .*0.0 to 255.0"),
        ({"name": "a\nb"}, r"'a\\nb'"),
        ({"low": np.nan}, "nan to 255.0"),
        ({"dtype": "float64"}, "'image': .*'float64'"),
        ({"shape": (4, 5, 2)}, "52 .*image, robot/arm"),
        ({"name": "robot/arm"}, "'robot/arm', 'robot/arm'"),
        ({"shape": (1,) * 33}, r"Spec\.packed\.shape .* 33 .* 32"),
        ({}, r"Spec\.packed .* 1002 .* 1000"),
    ],
)
def test_impossible_arrays_are_refused(changes: dict[str, Any], message: str) -> None:
    fields = handshake.spec_fields(ARRAYS)
    fields["packed"][0].update(changes)
    fields["packed"] = fields["packed"] * (1 if changes else 501)
    with pytest.raises(errors.SpecMismatch, match=message):
        handshake.spec_of(inference_pb2.Spec(**fields), E, LIMIT)


ASSIGNMENT = types.Assignment(
    "session", types.Role.TRAIN, "atari:Pong", '{"x": 1}', 2, 2, (1, 2, 3, 2**63), True, (4, 5, 0, 9)
)


def assign_fields() -> inference_pb2.Assign:
    return codec.decode_learner(handshake.encode_assign(ASSIGNMENT, TIMES)).assign


def test_assignment_survives_the_wire() -> None:
    fields = assign_fields()
    assert handshake.assignment_of(fields) == ASSIGNMENT
    assert (fields.heartbeat_seconds, fields.lease_seconds) == (5.0, 15.0)
    fields.bots.extend(["mcts-9", "a:b"])
    assert handshake.assignment_of(fields) == dataclasses.replace(ASSIGNMENT, bots=("mcts-9", "a:b"))
    fields.bots.extend(["x"] * 254)
    with pytest.raises(errors.InvalidMessage, match=r"Assign\.bots has 256 "):
        handshake.assignment_of(fields)


def test_an_older_learner_tells_no_places() -> None:
    fields = assign_fields()
    del fields.indices[:]
    assert handshake.assignment_of(fields) == dataclasses.replace(ASSIGNMENT, indices=())
    fields.indices.append(3)
    with pytest.raises(errors.InvalidMessage, match=r"Assign .* 1 .* 4 "):
        handshake.assignment_of(fields)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("session_id", "", "session_id ''"),
        ("role", 7, "role 7"),
        ("num_groups", 99, "num_groups 99"),
        ("num_groups", 1, " 4 seeds .* 1 groups .* 2 "),
    ],
)
def test_impossible_assignment_is_refused(name: str, value: object, message: str) -> None:
    fields = assign_fields()
    setattr(fields, name, value)
    with pytest.raises(errors.InvalidMessage, match=message):
        handshake.assignment_of(fields)


def test_a_generated_message_that_is_older_than_the_sources_is_named() -> None:
    with pytest.raises(ImportError, match="Assign has no worker_id"):
        handshake.check_generated(messages.Hello, inference_pb2.Assign)
    known = {field.name for field in dataclasses.fields(types.EnvSpec)} - {"action_names"}  # which are for people
    older: Any = python_types.SimpleNamespace(
        DESCRIPTOR=python_types.SimpleNamespace(fields_by_name=known, name="Spec")
    )
    handshake.check_generated(types.EnvSpec, older)
