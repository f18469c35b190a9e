"""Messages of the wire to bytes and back. What the fields mean is told in protos/seedzero/transport/inference.proto.

Shape letters: E environments of one group, A actions, D numbers of a continuous action.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from google.protobuf import message as protobuf

from seedzero.core import errors, types
from seedzero.transport import inference_pb2, messages

PROTOCOL_VERSION = 1
SERVICE = "seedzero.transport.Inference"
CONNECT_METHOD = f"/{SERVICE}/Connect"
STATUS_METHOD = f"/{SERVICE}/Status"

HANDSHAKE_BYTES = 4 * 2**20
"""Largest message before Start."""

HARD_LIMIT_BYTES = 512 * 2**20
"""Largest message that any spec may ask for."""

_OVERHEAD_BYTES = 64 * 2**10
_MAX_NAME = 256
_MAX_REASON = 1000
_MAX_ACTIONS = 1_000_000
_MAX_ACTION_NUMBERS = 10_000
_FLAGS = b"\0\1"
_FLOAT = np.dtype("<f4")
_INTEGER = np.dtype("<i4")
_NAMES = {np.dtype(name): name for name in types.SUPPORTED_OBSERVATION_DTYPES}  # dtype.name is slow
_OBSERVATION_TAG = bytes([inference_pb2.WorkerMessage.OBSERVATION_FIELD_NUMBER << 3 | 2])

_ROLES = {types.Role.TRAIN: inference_pb2.ROLE_TRAIN, types.Role.EVALUATE: inference_pb2.ROLE_EVALUATE}
_ROLE_OF = {number: role for role, number in _ROLES.items()}

HEARTBEAT = inference_pb2.WorkerMessage(heartbeat=inference_pb2.Heartbeat()).SerializeToString()


# --- what a worker says --------------------------------------------------------------------------------------------


def encode_hello(hello: messages.Hello) -> bytes:
    """Returns a Hello message."""
    fields = inference_pb2.Hello(
        protocol_version=PROTOCOL_VERSION,
        worker_id=hello.worker_id,
        session_id=hello.session_id,
        roles=[_ROLES[role] for role in hello.roles],
        environments=hello.environments,
        max_envs=hello.max_envs,
    )
    return inference_pb2.WorkerMessage(hello=fields).SerializeToString()


def encode_spec(spec: types.EnvSpec) -> bytes:
    """Returns a Spec message."""
    fields = inference_pb2.Spec(
        observation_shape=spec.observation_shape,
        observation_dtype=spec.observation_dtype,
        observation_low=spec.observation_low,
        observation_high=spec.observation_high,
        num_actions=spec.num_actions,
        num_players=spec.num_players,
        has_action_mask=spec.has_action_mask,
        frames_per_step=spec.frames_per_step,
        action_low=spec.action_low,
        action_high=spec.action_high,
    )
    return inference_pb2.WorkerMessage(spec=fields).SerializeToString()


def encode_step(group: int, sequence: int, step: types.EnvStep) -> bytes:
    """Returns a Step message; the observations are copied once.

    Raises:
      InvalidMessage: something in it is not an array, or of no dtype that goes over the wire.
    """
    try:
        return _encode_step(group, sequence, step)
    except (AttributeError, TypeError, ValueError) as error:
        raise errors.InvalidMessage(f"the step of group {group} is not made of arrays of numbers: {error}") from None


def _encode_step(group: int, sequence: int, step: types.EnvStep) -> bytes:
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
        reward=np.asarray(step.reward, _FLOAT).tobytes(),
        terminated=np.asarray(step.terminated, np.bool_).tobytes(),
        truncated=np.asarray(step.truncated, np.bool_).tobytes(),
        action_mask=b"" if step.action_mask is None else np.asarray(step.action_mask, np.bool_).tobytes(),
    )
    head = inference_pb2.WorkerMessage(step=fields).SerializeToString()
    return b"".join((head, _OBSERVATION_TAG, _varint(observation.nbytes), packed))


def encode_goodbye(reason: str, failed: bool) -> bytes:
    """Returns a Goodbye message."""
    fields = inference_pb2.Goodbye(reason=reason[:_MAX_REASON], failed=failed)
    return inference_pb2.WorkerMessage(goodbye=fields).SerializeToString()


def decode_worker(data: bytes) -> tuple[inference_pb2.WorkerMessage, memoryview]:
    """Returns a worker's message without its observation, and the observation as a view of the message's bytes.

    Raises:
      InvalidMessage: the bytes are no WorkerMessage, or one without content.
    """
    start, end, tag_start = _find_observation(data)
    try:
        if end == len(data):
            message = inference_pb2.WorkerMessage.FromString(data[:tag_start])
        else:
            message = inference_pb2.WorkerMessage.FromString(data[:tag_start] + data[end:])
    except protobuf.DecodeError:
        raise _undecodable(data) from None
    return message, memoryview(data)[start:end]


def hello_of(fields: inference_pb2.Hello) -> messages.Hello:
    """Returns a worker's introduction.

    Raises:
      VersionMismatch: it speaks another protocol version.
      InvalidMessage: a field is missing or out of range.
    """
    if fields.protocol_version != PROTOCOL_VERSION:
        raise errors.VersionMismatch(
            f"the worker speaks protocol version {fields.protocol_version}, the learner {PROTOCOL_VERSION}; install "
            "the same version of seedzero on both"
        )
    if not 1 <= len(fields.worker_id) <= _MAX_NAME or len(fields.session_id) > _MAX_NAME:
        raise errors.InvalidMessage(
            f"Hello.worker_id has {len(fields.worker_id)} characters and session_id {len(fields.session_id)}; expected 1 to "
            f"{_MAX_NAME} and at most {_MAX_NAME}"
        )
    unknown = [number for number in fields.roles if number not in _ROLE_OF]
    if unknown or not fields.roles:
        raise errors.InvalidMessage(f"Hello.roles is {list(fields.roles)}; expected at least one, each 1 or 2")
    if fields.max_envs < 1:
        raise errors.InvalidMessage("Hello.max_envs is 0; expected at least 1")
    roles = tuple(_ROLE_OF[number] for number in fields.roles)
    return messages.Hello(fields.worker_id, fields.session_id, roles, tuple(fields.environments), fields.max_envs)


def spec_of(fields: inference_pb2.Spec, num_envs: int) -> types.EnvSpec:
    """Returns a worker's spec.

    Args:
      fields: as received.
      num_envs: E.

    Raises:
      SpecMismatch: it can't be run at all.
    """
    fewest = 0 if fields.action_low else 1
    has_actions = fewest <= fields.num_actions <= _MAX_ACTIONS and len(fields.action_low) <= _MAX_ACTION_NUMBERS
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
    spec = types.EnvSpec(
        observation_shape=tuple(fields.observation_shape),
        observation_dtype=fields.observation_dtype,
        num_actions=fields.num_actions,
        observation_low=fields.observation_low,
        observation_high=fields.observation_high,
        num_players=fields.num_players,
        has_action_mask=fields.has_action_mask,
        frames_per_step=fields.frames_per_step,
        action_low=tuple(fields.action_low),
        action_high=tuple(fields.action_high),
    )
    if max_message_bytes(spec, num_envs) > HARD_LIMIT_BYTES:
        raise errors.SpecMismatch(
            f"{num_envs} observations of shape {spec.observation_shape} and dtype {spec.observation_dtype} need "
            f"messages of {max_message_bytes(spec, num_envs)} bytes; at most {HARD_LIMIT_BYTES} are possible: make "
            "the groups smaller"
        )
    return spec


class Layout:
    """What every Step of a run must look like; worked out once a run."""

    def __init__(self, spec: types.EnvSpec, num_envs: int) -> None:
        self.num_envs = num_envs
        self.shape = (num_envs, *spec.observation_shape)
        self.dtype_name = spec.observation_dtype
        self.dtype = np.dtype(spec.observation_dtype).newbyteorder("<")
        self.observation_bytes = num_envs * spec.observation_bytes
        self.mask_shape = (num_envs, spec.num_actions) if spec.has_action_mask else None


def step_of(fields: inference_pb2.Step, observation: memoryview, layout: Layout) -> types.EnvStep:
    """Returns the arrays of a Step, read-only views of the message wherever alignment allows.

    Args:
      fields: as received.
      observation: bytes of WorkerMessage.observation.
      layout: of the run.

    Raises:
      InvalidMessage: a shape, dtype or length differs from the spec's; a flag is neither 0 nor 1.
    """
    num_envs, group, reward = layout.num_envs, fields.group, fields.reward
    shape = tuple(fields.observation_shape)
    if shape != layout.shape or fields.observation_dtype != layout.dtype_name:
        raise errors.InvalidMessage(
            f"observation of group {group} has shape {shape} and dtype {fields.observation_dtype!r}; "
            f"expected {layout.shape} and {layout.dtype_name!r}"
        )
    _check_length("observation", group, len(observation), layout.observation_bytes)
    _check_length("reward", group, len(reward), 4 * num_envs)
    return types.EnvStep(
        observation=_aligned(np.frombuffer(observation, layout.dtype).reshape(shape)),
        reward=np.frombuffer(reward, _FLOAT),
        terminated=_flags("terminated", group, fields.terminated, num_envs),
        truncated=_flags("truncated", group, fields.truncated, num_envs),
        action_mask=_mask(group, fields.action_mask, layout.mask_shape),
    )


# --- what a learner says -------------------------------------------------------------------------------------------


def encode_assign(assignment: types.Assignment, *, heartbeat_seconds: float, lease_seconds: float) -> bytes:
    """Returns an Assign message."""
    fields = inference_pb2.Assign(
        session_id=assignment.session_id,
        role=_ROLES[assignment.role],
        env=assignment.env,
        env_settings=assignment.env_settings,
        num_groups=assignment.num_groups,
        envs_per_group=assignment.envs_per_group,
        seeds=assignment.seeds,
        resumed=assignment.resumed,
        heartbeat_seconds=heartbeat_seconds,
        lease_seconds=lease_seconds,
    )
    return inference_pb2.LearnerMessage(assign=fields).SerializeToString()


def encode_start(max_bytes: int) -> bytes:
    """Returns a Start message."""
    return inference_pb2.LearnerMessage(start=inference_pb2.Start(max_message_bytes=max_bytes)).SerializeToString()


def encode_actions(group: int, sequence: int, actions: np.ndarray, weights_version: int) -> bytes:
    """Returns an Actions message. actions: [E] of any integer dtype, or [E, D] of any float dtype."""
    dtype = _FLOAT if actions.dtype.kind == "f" else _INTEGER
    packed = actions.astype(dtype, casting="same_kind", copy=False).tobytes()
    fields = inference_pb2.Actions(group=group, sequence=sequence, action=packed, weights_version=weights_version)
    return inference_pb2.LearnerMessage(actions=fields).SerializeToString()


def encode_restart(reason: str) -> bytes:
    """Returns a Restart message."""
    return inference_pb2.LearnerMessage(restart=inference_pb2.Restart(reason=reason)).SerializeToString()


def encode_end(reason: str) -> bytes:
    """Returns an End message."""
    return inference_pb2.LearnerMessage(end=inference_pb2.End(reason=reason)).SerializeToString()


def decode_learner(data: bytes) -> inference_pb2.LearnerMessage:
    """Returns a learner's message.

    Raises:
      InvalidMessage: the bytes are no LearnerMessage.
    """
    try:
        return inference_pb2.LearnerMessage.FromString(data)
    except protobuf.DecodeError:
        raise _undecodable(data) from None


def assignment_of(fields: inference_pb2.Assign) -> types.Assignment:
    """Returns what to run.

    Raises:
      InvalidMessage: a field is missing or out of range.
    """
    num_envs = fields.num_groups * fields.envs_per_group
    if not fields.session_id or fields.role not in _ROLE_OF or not 1 <= fields.num_groups <= messages.MAX_GROUPS:
        raise errors.InvalidMessage(
            f"Assign has session_id {fields.session_id!r}, role {fields.role} and num_groups {fields.num_groups}; expected an "
            f"id, 1 or 2, and 1 to {messages.MAX_GROUPS}"
        )
    if num_envs < 1 or len(fields.seeds) != num_envs:
        raise errors.InvalidMessage(
            f"Assign has {len(fields.seeds)} seeds for {fields.num_groups} groups of {fields.envs_per_group} "
            "environments"
        )
    return types.Assignment(
        session_id=fields.session_id,
        role=_ROLE_OF[fields.role],
        env=fields.env,
        env_settings=fields.env_settings,
        num_groups=fields.num_groups,
        envs_per_group=fields.envs_per_group,
        seeds=tuple(fields.seeds),
        resumed=fields.resumed,
    )


def actions_of(fields: inference_pb2.Actions, num_envs: int, spec: types.EnvSpec) -> messages.Actions:
    """Returns the actions of a group.

    Args:
      fields: as received.
      num_envs: E.
      spec: of the environments.

    Raises:
      InvalidMessage: their number is not E, or one is not within the spec's bounds.
    """
    if spec.is_continuous:
        return messages.Actions(fields.group, _vectors_of(fields, num_envs, spec), fields.weights_version)
    num_actions = spec.num_actions
    _check_length("action", fields.group, len(fields.action), 4 * num_envs)
    actions = np.frombuffer(fields.action, _INTEGER)
    in_range = actions.view(np.uint32) < num_actions  # a negative number is a huge one
    if not all_true(in_range):
        wrong = actions[~in_range]
        raise errors.InvalidMessage(
            f"actions of group {fields.group} have {wrong[0]} among them; expected 0 to {num_actions - 1}"
        )
    return messages.Actions(fields.group, actions, fields.weights_version)


def _vectors_of(fields: inference_pb2.Actions, num_envs: int, spec: types.EnvSpec) -> np.ndarray:
    """Returns continuous actions [E, D] float32."""
    _check_length("action", fields.group, len(fields.action), 4 * num_envs * len(spec.action_low))
    actions = np.frombuffer(fields.action, _FLOAT).reshape(num_envs, -1)
    low, high = spec.action_bounds
    in_range = (actions >= low) & (actions <= high)  # false for NaN
    if not all_true(in_range):
        env, index = np.argwhere(~in_range)[0]
        raise errors.InvalidMessage(
            f"actions of group {fields.group} have {actions[env, index]} as number {index} of a vector; expected "
            f"{low[index]} to {high[index]}"
        )
    return actions


# --- masks ---------------------------------------------------------------------------------------------------------


def any_true(mask: np.ndarray) -> bool:
    """Returns whether any is true; for small masks in a quarter of the time of mask.any()."""
    return b"\1" in mask.tobytes()


def all_true(mask: np.ndarray) -> bool:
    """Returns whether all are true; for small masks in a quarter of the time of mask.all()."""
    return b"\0" not in mask.tobytes()


# --- sizes and bytes -----------------------------------------------------------------------------------------------


def max_message_bytes(spec: types.EnvSpec, num_envs: int) -> int:
    """Returns the largest message of a run: a Step of E environments, and room for the rest."""
    per_env = spec.observation_bytes + 4 + 1 + 1 + spec.num_actions * spec.has_action_mask
    return _OVERHEAD_BYTES + num_envs * per_env


def check_size(data: Sequence[int], limit: int) -> None:
    """Raises InvalidMessage if a message is larger than the limit in bytes."""
    if len(data) > limit:
        raise errors.InvalidMessage(f"a message has {len(data)} bytes; expected at most {limit}, see inference.proto")


def _check_length(name: str, group: int, came: int, expected: int) -> None:
    if came != expected:
        raise errors.InvalidMessage(f"{name} of group {group} has {came} bytes; expected {expected}")


def _aligned(array: np.ndarray) -> np.ndarray:
    return array if array.flags.aligned else array.copy()


def _mask(group: int, data: bytes, shape: tuple[int, int] | None) -> np.ndarray | None:
    if shape is None:
        _check_length("action_mask", group, len(data), 0)
        return None
    return _flags("action_mask", group, data, shape[0] * shape[1]).reshape(shape)


def _flags(name: str, group: int, data: bytes, length: int) -> np.ndarray:
    """Returns [length] bool from bytes that are 0 or 1."""
    _check_length(name, group, len(data), length)
    if data.strip(_FLAGS):  # what is left begins with the first byte that is neither
        raise errors.InvalidMessage(f"{name} of group {group} has a byte {data.strip(_FLAGS)[0]}; expected 0 or 1")
    return np.frombuffer(data, np.bool_)


def _find_observation(data: bytes) -> tuple[int, int, int]:
    """Returns start and end of WorkerMessage.observation within the message, and the start of its tag.

    The protobuf library would copy these bytes twice; the rest of the message is left to it. Only the top level is
    walked: tags and lengths. Without an observation all three are the message's length.

    Raises:
      InvalidMessage: tags and lengths make no sense.
    """
    position, found = 0, (len(data), len(data), len(data))
    while position < len(data):
        tag_start = position
        tag, position = _read_varint(data, position)
        if tag & 7 != 2:  # every field of WorkerMessage is length-delimited
            raise _undecodable(data)
        length, position = _read_varint(data, position)
        position += length
        if position > len(data):
            raise _undecodable(data)
        if tag == _OBSERVATION_TAG[0]:
            found = (position - length, position, tag_start)
    return found


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise _undecodable(data)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _undecodable(data: bytes) -> errors.InvalidMessage:
    return errors.InvalidMessage(f"{len(data)} bytes that begin with {data[:16].hex()!r} cannot be decoded")
