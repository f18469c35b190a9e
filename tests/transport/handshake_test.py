"""Hello, Spec and Assign to bytes and back, and every one that is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from specs import ARRAYS, CONTINUOUS, NUMBERS, PIXELS, TASKS, TEXT, VECTORS, E

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.transport import codec, handshake, inference_pb2, messages

TIMES = sections.TransportConfig(heartbeat_seconds=5.0, lease_seconds=15.0)
LIMIT = sections.TransportConfig().max_message_bytes


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
        handshake.hello_of(hello_fields(**changes))


@pytest.mark.parametrize("spec", [PIXELS, VECTORS, CONTINUOUS, NUMBERS, ARRAYS, TASKS, TEXT])
def test_spec_survives_the_wire(spec: types.EnvSpec) -> None:
    message, _ = codec.decode_worker(codec.from_worker(spec=dataclasses.asdict(spec)))
    assert handshake.spec_of(message.spec, E, LIMIT) == spec


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
        ({"spaces": "[]"}, "spaces"),
        ({"spaces": "x" * (2**20 + 1)}, "Spec.spaces .* 1048577 .* 1048576"),
        ({"tasks": ("",)}, "Spec.tasks has a name of 0 characters; expected 1 to 256"),
        ({"tasks": [str(number) for number in range(1001)]}, "Spec.tasks has 1001 entries"),
        ({"tasks": ("a\nb",)}, r"Spec.tasks has the name 'a\\nb'; expected printable characters"),
        ({"observation_shape": (2**20, 2**20)}, r"at most 67108864; start it with --transport.max_message_bytes=3"),
    ],
)
def test_impossible_spec_is_refused(changes: dict[str, Any], message: str) -> None:
    fields = {**dataclasses.asdict(PIXELS), **changes}
    with pytest.raises(errors.SpecMismatch, match=message):
        handshake.spec_of(inference_pb2.Spec(**fields), E, LIMIT)


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
        handshake.spec_of(inference_pb2.Spec(**fields), E, LIMIT)


def test_too_many_arrays_are_refused() -> None:
    fields = dict(dataclasses.asdict(ARRAYS), packed=dataclasses.asdict(ARRAYS)["packed"] * 501)
    with pytest.raises(errors.SpecMismatch, match=r"Spec\.packed has 1002 entries; expected at most 1000"):
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


def test_an_older_learner_tells_no_places() -> None:
    fields = assign_fields()
    del fields.indices[:]
    assert handshake.assignment_of(fields) == dataclasses.replace(ASSIGNMENT, indices=())
    fields.indices.append(3)
    with pytest.raises(errors.InvalidMessage, match="Assign has 1 indices for 4 environments"):
        handshake.assignment_of(fields)


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
        handshake.assignment_of(fields)
