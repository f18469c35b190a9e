"""Messages of the wire to bytes and back. protos/seedzero/transport/inference.proto explains the fields.

Shape letters: E environments of one group, A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from google.protobuf import message as protobuf

from seedzero.core import errors, types
from seedzero.transport import arrays, framing, inference_pb2, messages

MessageT = TypeVar("MessageT", inference_pb2.WorkerMessage, inference_pb2.LearnerMessage)

PROTOCOL_VERSION = 2
SERVICE = "seedzero.transport.Inference"
CONNECT_METHOD = f"/{SERVICE}/Connect"
STATUS_METHOD = f"/{SERVICE}/Status"

HANDSHAKE_BYTES = 4 * 2**20
"""Largest message before Start."""
_OVERHEAD_BYTES = 64 * 2**10
_MAX_NAME = 256
_MAX_REASON = 1000
_MAX_ROLES = 16
_MAX_ENVIRONMENTS = 1_000
_MAX_ACTIONS = 1_000_000
_MAX_ACTION_NUMBERS = 10_000
_MAX_AXES = 32
"""Of one array; numpy has no more than 64."""
_MAX_ARRAYS = 1_000
_MAX_TASKS = 1_000
_NAMES = {np.dtype(name): name for name in types.SUPPORTED_OBSERVATION_DTYPES}  # dtype.name is slow

_OLDER = ": the worker's is older and sends no observations of several arrays"

_PLAIN = (bool, int, float, str)

_ROLES = {types.Role.TRAIN: inference_pb2.ROLE_TRAIN, types.Role.EVALUATE: inference_pb2.ROLE_EVALUATE}
_ROLE_OF = {number: role for role, number in _ROLES.items()}

HEARTBEAT = inference_pb2.WorkerMessage(heartbeat=inference_pb2.Heartbeat()).SerializeToString()


# --- a worker's messages --------------------------------------------------------------------------------------------


def encode_hello(hello: messages.Hello) -> bytes:
    """Returns a Hello message."""
    roles = [_ROLES[role] for role in hello.roles]
    fields = dict(dataclasses.asdict(hello), roles=roles, protocol_version=PROTOCOL_VERSION)
    return inference_pb2.WorkerMessage(hello=fields).SerializeToString()


def encode_spec(spec: types.EnvSpec) -> bytes:
    """Returns a Spec message."""
    return inference_pb2.WorkerMessage(spec=dataclasses.asdict(spec)).SerializeToString()


def encode_step(group: int, sequence: int, step: types.EnvStep) -> bytes:
    """Returns a Step message; the observations are copied once. InvalidMessage for what is no array of numbers."""
    try:
        observation = np.ascontiguousarray(step.observation)
        if observation.dtype.hasobject:
            raise TypeError("its observation is an array of objects")
        if not observation.dtype.isnative:
            observation = observation.astype(observation.dtype.newbyteorder("="))
        packed = observation.data.cast("B") if observation.size else b""
        fields = inference_pb2.Step(
            group=group,
            sequence=sequence,
            observation_shape=step.observation.shape,
            observation_dtype=_NAMES.get(observation.dtype) or observation.dtype.name,
            reward=np.asarray(step.reward, arrays.FLOAT).tobytes(),
            terminated=np.asarray(step.terminated, np.bool_).tobytes(),
            truncated=np.asarray(step.truncated, np.bool_).tobytes(),
            action_mask=b"" if step.action_mask is None else np.asarray(step.action_mask, np.bool_).tobytes(),
            task=b"" if step.task is None else np.asarray(step.task, arrays.INTEGER).tobytes(),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise errors.InvalidMessage(f"the step of group {group} is not made of arrays of numbers: {error}") from None
    return framing.join(inference_pb2.WorkerMessage(step=fields).SerializeToString(), packed)


def encode_goodbye(reason: str, failed: bool) -> bytes:
    """Returns a Goodbye message."""
    fields = dict(reason=reason[:_MAX_REASON], failed=failed)
    return inference_pb2.WorkerMessage(goodbye=fields).SerializeToString()


def decode_worker(data: bytes) -> tuple[inference_pb2.WorkerMessage, memoryview]:
    """Returns a worker's message without its observation, and the observation as a view of the message's bytes."""
    head, observation = framing.split(data)
    return _parsed(inference_pb2.WorkerMessage, head, data), observation


def hello_of(fields: inference_pb2.Hello) -> messages.Hello:
    """Returns a worker's introduction; VersionMismatch, or InvalidMessage where a field is missing or out of range."""
    if fields.protocol_version != PROTOCOL_VERSION:
        raise errors.VersionMismatch(
            f"the worker speaks protocol version {fields.protocol_version}, the learner {PROTOCOL_VERSION}; install "
            f"the same version of seedzero on both{_OLDER if fields.protocol_version < PROTOCOL_VERSION else ''}"
        )
    _check_counts(errors.InvalidMessage, "Hello", fields, roles=_MAX_ROLES, environments=_MAX_ENVIRONMENTS)
    if not 1 <= len(fields.worker_id) <= _MAX_NAME or len(fields.session_id) > _MAX_NAME:
        raise errors.InvalidMessage(
            f"Hello.worker_id has {len(fields.worker_id)} characters and session_id {len(fields.session_id)}; "
            f"expected 1 to {_MAX_NAME} and at most {_MAX_NAME}"
        )
    if not fields.worker_id.isprintable():
        raise errors.InvalidMessage(f"Hello.worker_id is {fields.worker_id!r}; expected printable characters")
    unknown = [number for number in fields.roles if number not in _ROLE_OF]
    if unknown or not fields.roles:
        raise errors.InvalidMessage(f"Hello.roles is {list(fields.roles)}; expected at least one, each 1 or 2")
    if long := [name for name in fields.environments if len(name) > _MAX_NAME]:
        raise errors.InvalidMessage(
            f"Hello.environments has a name of {len(long[0])} characters; expected at most {_MAX_NAME}"
        )
    if fields.max_envs < 1:
        raise errors.InvalidMessage("Hello.max_envs is 0; expected at least 1")
    roles = tuple(_ROLE_OF[number] for number in fields.roles)
    environments = tuple(fields.environments)
    return messages.Hello(fields.worker_id, fields.session_id, roles, environments, fields.max_envs, fields.key)


def spec_of(fields: inference_pb2.Spec, num_envs: int, limit: int) -> types.EnvSpec:
    """Returns a worker's spec, for groups of E environments; SpecMismatch if messages of `limit` bytes cannot do."""
    _check_counts(
        errors.SpecMismatch,
        "Spec",
        fields,
        observation_shape=_MAX_AXES,
        action_low=_MAX_ACTION_NUMBERS,
        action_high=_MAX_ACTION_NUMBERS,
        packed=_MAX_ARRAYS,
        tasks=_MAX_TASKS,
    )
    fewest = 0 if fields.action_low else 1
    has_actions = fewest <= fields.num_actions <= _MAX_ACTIONS
    if fields.num_players not in (1, 2) or not has_actions or fields.frames_per_step < 1:
        raise errors.SpecMismatch(
            f"Spec has num_players {fields.num_players}, num_actions {fields.num_actions} and frames_per_step "
            f"{fields.frames_per_step}; expected 1 or 2, 1 to {_MAX_ACTIONS} (or instead 1 to {_MAX_ACTION_NUMBERS} "
            f"bounds of continuous actions, and not {len(fields.action_low)}), and at least 1"
        )
    if not fields.observation_low <= fields.observation_high:
        raise errors.SpecMismatch(
            f"Spec has observation_low {fields.observation_low} and observation_high {fields.observation_high}; "
            "expected numbers, the first not above the second"
        )
    for array in fields.packed:
        _check_counts(errors.SpecMismatch, "Spec.packed", array, shape=_MAX_AXES)
    for shape in (fields.observation_shape, *(array.shape for array in fields.packed)):
        if any(size > limit for size in shape):
            raise errors.SpecMismatch(
                f"Spec has an observation with an axis of {max(shape)}; expected at most {limit} bytes in all"
            )
    if wrong := [name for name in fields.tasks if not 1 <= len(name) <= _MAX_NAME]:
        raise errors.SpecMismatch(
            f"Spec.tasks has a name of {len(wrong[0])} characters; expected 1 to {_MAX_NAME} in each"
        )
    if wrong := [name for name in fields.tasks if not name.isprintable()]:
        raise errors.SpecMismatch(f"Spec.tasks has the name {wrong[0]!r}; expected printable characters")
    spec = types.EnvSpec(**dict(_values(fields, types.EnvSpec), packed=_arrays_of(fields)))
    if (needed := max_message_bytes(spec, num_envs)) > limit:
        raise errors.SpecMismatch(
            f"{num_envs} observations of shape {spec.observation_shape} and dtype {spec.observation_dtype} need "
            f"messages of {needed} bytes and the learner takes at most {limit}; start it with "
            f"--transport.max_message_bytes={needed}, or with fewer --worker.envs_per_group"
        )
    return spec


def _arrays_of(fields: inference_pb2.Spec) -> tuple[types.ArraySpec, ...]:
    """Returns the arrays of observations made of several; SpecMismatch where one cannot be."""
    for array in fields.packed:
        if not 1 <= len(array.name) <= _MAX_NAME or not array.name.isprintable() or not array.low <= array.high:
            raise errors.SpecMismatch(
                f"Spec.packed has an array {array.name[:_MAX_NAME]!r} from {array.low} to {array.high}; expected a "
                f"name of 1 to {_MAX_NAME} printable characters, and numbers, the first not above the second"
            )
    return tuple(types.ArraySpec(**_values(array, types.ArraySpec)) for array in fields.packed)


class StepLayout:
    """The expected layout of every Step of a session, computed once."""

    def __init__(self, spec: types.EnvSpec, num_envs: int) -> None:
        self.num_envs = num_envs
        self.shape = (num_envs, *spec.observation_shape)
        self.dtype_name = spec.observation_dtype
        self.dtype = np.dtype(spec.observation_dtype).newbyteorder("<")
        self.observation_bytes = num_envs * spec.observation_bytes
        self.mask_shape = (num_envs, spec.num_actions) if spec.has_action_mask else None
        self.num_tasks = spec.num_tasks


def step_of(fields: inference_pb2.Step, observation: memoryview, layout: StepLayout) -> types.EnvStep:
    """Returns the arrays of a Step, read-only views of the message wherever alignment allows; checks their layout."""
    num_envs, group, reward = layout.num_envs, fields.group, fields.reward
    _check_counts(errors.InvalidMessage, "Step", fields, observation_shape=_MAX_AXES + 1)
    shape = tuple(fields.observation_shape)
    if shape != layout.shape or fields.observation_dtype != layout.dtype_name:
        raise errors.InvalidMessage(
            f"observation of group {group} has shape {shape} and dtype {fields.observation_dtype[:_MAX_NAME]!r}; "
            f"expected {layout.shape} and {layout.dtype_name!r}"
        )
    arrays.check_length("observation", group, len(observation), layout.observation_bytes)
    arrays.check_length("reward", group, len(reward), 4 * num_envs)
    return types.EnvStep(
        observation=arrays.aligned(np.frombuffer(observation, layout.dtype).reshape(shape)),
        reward=np.frombuffer(reward, arrays.FLOAT),
        terminated=arrays.flags("terminated", group, fields.terminated, num_envs),
        truncated=arrays.flags("truncated", group, fields.truncated, num_envs),
        action_mask=arrays.action_mask(group, fields.action_mask, layout.mask_shape),
        task=arrays.task(group, fields.task, num_envs, layout.num_tasks),
    )


# --- a learner's messages -------------------------------------------------------------------------------------------


def encode_assign(assignment: types.Assignment, *, heartbeat_seconds: float, lease_seconds: float) -> bytes:
    """Returns an Assign message."""
    times = dict(heartbeat_seconds=heartbeat_seconds, lease_seconds=lease_seconds)
    fields = dict(dataclasses.asdict(assignment), role=_ROLES[assignment.role], **times)
    return inference_pb2.LearnerMessage(assign=fields).SerializeToString()


def encode_start(max_bytes: int) -> bytes:
    """Returns a Start message."""
    return inference_pb2.LearnerMessage(start=dict(max_message_bytes=max_bytes)).SerializeToString()


def encode_actions(group: int, sequence: int, actions: np.ndarray, weights_version: int) -> bytes:
    """Returns an Actions message. actions: [E] of any integer dtype, or [E, D] of any float dtype."""
    dtype = arrays.FLOAT if actions.dtype.kind == "f" else arrays.INTEGER
    packed = actions.astype(dtype, casting="same_kind", copy=False).tobytes()
    fields = inference_pb2.Actions(group=group, sequence=sequence, action=packed, weights_version=weights_version)
    return inference_pb2.LearnerMessage(actions=fields).SerializeToString()


def encode_restart(reason: str) -> bytes:
    """Returns a Restart message."""
    return inference_pb2.LearnerMessage(restart=dict(reason=reason)).SerializeToString()


def encode_end(reason: str) -> bytes:
    """Returns an End message."""
    return inference_pb2.LearnerMessage(end=dict(reason=reason)).SerializeToString()


def decode_learner(data: bytes) -> inference_pb2.LearnerMessage:
    """Returns a learner's message."""
    return _parsed(inference_pb2.LearnerMessage, data, data)


def assignment_of(fields: inference_pb2.Assign) -> types.Assignment:
    """Returns a learner's assignment; InvalidMessage where a field is missing or out of range."""
    num_envs = fields.num_groups * fields.envs_per_group
    if not fields.session_id or fields.role not in _ROLE_OF or not 1 <= fields.num_groups <= messages.MAX_GROUPS:
        raise errors.InvalidMessage(
            f"Assign has session_id {fields.session_id!r}, role {fields.role} and num_groups {fields.num_groups}; "
            f"expected an id, 1 or 2, and 1 to {messages.MAX_GROUPS}"
        )
    if num_envs < 1 or len(fields.seeds) != num_envs:
        raise errors.InvalidMessage(
            f"Assign has {len(fields.seeds)} seeds for {fields.num_groups} groups of {fields.envs_per_group} "
            "environments"
        )
    if len(fields.indices) not in (0, num_envs):
        raise errors.InvalidMessage(f"Assign has {len(fields.indices)} indices for {num_envs} environments")
    return types.Assignment(**dict(_values(fields, types.Assignment), role=_ROLE_OF[fields.role]))


def actions_of(fields: inference_pb2.Actions, num_envs: int, spec: types.EnvSpec) -> messages.Actions:
    """Returns the actions of a group; InvalidMessage if their number is not E, or one is out of bounds."""
    shape, dtype = (num_envs, *spec.action_shape), arrays.FLOAT if spec.is_continuous else arrays.INTEGER
    arrays.check_length("action", fields.group, len(fields.action), 4 * math.prod(shape))
    actions = np.frombuffer(fields.action, dtype).reshape(shape)
    low, high = spec.action_bounds if spec.is_continuous else (0, spec.num_actions - 1)
    in_range = (actions >= low) & (actions <= high)  # false for NaN
    if not arrays.all_true(in_range):
        wrong = f"actions of group {fields.group} have {actions[~in_range][0]}"
        if not spec.is_continuous:
            raise errors.InvalidMessage(f"{wrong} among them; expected {low} to {high}")
        index = np.argwhere(~in_range)[0, 1]
        lowest, highest = spec.action_bounds[:, index]
        raise errors.InvalidMessage(f"{wrong} as number {index} of a vector; expected {lowest} to {highest}")
    return messages.Actions(fields.group, actions, fields.weights_version)


# --- sizes and bytes -----------------------------------------------------------------------------------------------


def max_message_bytes(spec: types.EnvSpec, num_envs: int) -> int:
    """Returns the largest message of a session: a Step of E environments, and room for the rest."""
    per_env = spec.observation_bytes + 4 + 1 + 1 + spec.num_actions * spec.has_action_mask + 4 * bool(spec.tasks)
    return _OVERHEAD_BYTES + num_envs * per_env


def check_size(data: Sequence[int], limit: int) -> None:
    """Raises InvalidMessage if a message is larger than the limit in bytes."""
    if len(data) > limit:
        raise errors.InvalidMessage(f"a message has {len(data)} bytes; expected at most {limit}, see inference.proto")


def _check_counts(error: type[errors.Error], title: str, fields: protobuf.Message, **limits: int) -> None:
    """Raises an error where a repeated field has more entries than its limit; makes no Python objects of them.

    A message within its bytes may hold millions of entries, which would stop the server's thread for seconds.
    """
    for name, limit in limits.items():
        if (came := len(getattr(fields, name))) > limit:
            raise error(f"{title}.{name} has {came} entries; expected at most {limit}")


def _parsed(kind: type[MessageT], fields: bytes, data: bytes) -> MessageT:
    """Returns the message in `fields`, which came as `data`."""
    try:
        return kind.FromString(fields)
    except protobuf.DecodeError:
        raise framing.undecodable(data) from None


def _values(
    fields: protobuf.Message, kind: type[types.EnvSpec | types.ArraySpec | types.Assignment]
) -> dict[str, Any]:
    """Returns the fields of a dataclass from those of the same names in a message."""
    values = {field.name: getattr(fields, field.name) for field in dataclasses.fields(kind)}
    return {name: value if isinstance(value, _PLAIN) else tuple(value) for name, value in values.items()}
