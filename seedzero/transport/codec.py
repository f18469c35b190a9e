"""Converts steps, actions and short messages to bytes and back; `handshake` has the other messages.

protos/seedzero/transport/inference.proto explains the fields. The observation of a WorkerMessage is handled separately
from its other fields, without protobuf's copies.

Shape letters: E environments of one group, A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from google.protobuf import message as protobuf

from seedzero.core import errors, infos, types
from seedzero.transport import compression, inference_pb2, links, messages

MessageT = TypeVar("MessageT", bound=protobuf.Message)

SERVICE = "seedzero.transport.Inference"
CONNECT_METHOD = f"/{SERVICE}/Connect"
STATUS_METHOD = f"/{SERVICE}/Status"

MAX_NAME = 256
MAX_AXES = 32
"""The most dimensions of an array; numpy allows no more than 64."""
MAX_REASON = 1000
_MAX_FIELDS = 64
"""The most fields of a message at its top level; this protocol has two, and later ones may have more."""
_MAX_ASK_BYTES = 1024
_TAG = inference_pb2.WorkerMessage.OBSERVATION_FIELD_NUMBER << 3 | 2
_FLOAT = np.dtype("<f4")
_INTEGER = np.dtype("<i4")
_NATURAL = np.dtype("<u4")
_BOOL = np.dtype("bool")
_FLAGS = b"\0\1"
_NAMES = {np.dtype(name): name for name in types.SUPPORTED_OBSERVATION_DTYPES}  # dtype.name is slow

HEARTBEAT = inference_pb2.WorkerMessage(heartbeat=inference_pb2.Heartbeat()).SerializeToString()
# A stub may be older, after an update of the sources.
_MEASURES = set(links.LinkReport._fields) <= set(inference_pb2.Heartbeat.DESCRIPTOR.fields_by_name)


# --- a worker's messages --------------------------------------------------------------------------------------------


def encode_step(group: int, sequence: int, step: types.EnvStep, packer: compression.Packer | None = None) -> bytes:
    """Returns a Step message; the observations are copied once. packer: compresses them while it is on.

    Raises InvalidMessage for objects that are not arrays.
    """
    try:
        observation = np.ascontiguousarray(step.observation)
        if observation.dtype.hasobject:
            raise TypeError("its observation is an array of objects")
        if not observation.dtype.isnative:
            observation = observation.astype(observation.dtype.newbyteorder("="))
        packed: memoryview | bytes = observation.data.cast("B") if observation.size else b""
        message = inference_pb2.WorkerMessage()
        fields = message.step  # filled in place, because a separate Step would be copied
        fields.group, fields.sequence = group, sequence
        fields.observation_shape.extend(step.observation.shape)
        fields.observation_dtype = _NAMES.get(observation.dtype) or observation.dtype.name
        fields.reward = np.asarray(step.reward, _FLOAT).tobytes()
        fields.terminated = np.asarray(step.terminated, _BOOL).tobytes()
        fields.truncated = np.asarray(step.truncated, _BOOL).tobytes()
        if step.action_mask is not None:
            fields.action_mask = np.asarray(step.action_mask, _BOOL).tobytes()
        if step.task is not None:
            fields.task = np.asarray(step.task, _INTEGER).tobytes()
        if step.shown is not None:
            fields.shown = np.asarray(step.shown, _BOOL).tobytes()
        if step.played is not None:
            fields.played = np.asarray(step.played, _INTEGER).tobytes()
        for name, values in (step.info or {}).items():
            fields.info.add(name=name, value=np.asarray(values, _FLOAT).tobytes())
        if packer is not None and packer.is_on:
            packed = packer.pack(fields, packed)
    except (AttributeError, TypeError, ValueError) as error:
        raise errors.InvalidMessage(f"the step of group {group} is not made of arrays of numbers: {error}") from None
    return join(message.SerializeToString(), packed)


def heartbeat(report: links.LinkReport) -> bytes:
    """Returns a heartbeat with what the worker has measured, if that is anything."""
    return from_worker(heartbeat=report._asdict()) if report.num_steps and _MEASURES else HEARTBEAT


def report_of(fields: inference_pb2.Heartbeat) -> links.LinkReport:
    """Returns what a worker says that it has measured; zeros if it says nothing."""
    return links.LinkReport(*(getattr(fields, name, 0) for name in links.LinkReport._fields))


def from_worker(**content: Any) -> bytes:
    """Returns a worker's message with the fields of a hello, spec or goodbye."""
    return inference_pb2.WorkerMessage(**content).SerializeToString()


def decode_worker(data: bytes) -> tuple[inference_pb2.WorkerMessage, memoryview]:
    """Splits a worker's message into its fields without observation, and the observation as a view of its bytes."""
    head, observation = split(data)
    return parsed(inference_pb2.WorkerMessage, head, data), observation


class StepLayout:
    """The layout that every Step of a session must have, computed once."""

    def __init__(self, spec: types.EnvSpec, num_envs: int) -> None:
        self.num_envs = num_envs
        self.shape = (num_envs, *spec.observation_shape)
        self.axes = list(self.shape)  # as protobuf compares them
        self.dtype_name = spec.observation_dtype
        self.dtype = np.dtype(spec.observation_dtype).newbyteorder("<")
        self.observation_bytes = num_envs * spec.observation_bytes
        self.mask_shape = (num_envs, spec.num_actions) if spec.has_action_mask else None
        self.num_tasks = spec.num_tasks
        self.has_seats = bool(spec.seats)
        self.num_actions = spec.num_actions


def step_of(
    fields: inference_pb2.Step,
    observation: memoryview,
    layout: StepLayout,
    unpacker: compression.Unpacker | None = None,
) -> types.EnvStep:
    """Checks the layout of a Step's arrays and returns them, as read-only views wherever alignment allows.

    unpacker: restores compressed observations; None: the worker was not asked for any.
    """
    num_envs, group, reward = layout.num_envs, fields.group, fields.reward
    axes, dtype = fields.observation_shape, fields.observation_dtype
    if len(axes) != len(layout.axes) or axes != layout.axes or dtype != layout.dtype_name:
        check_counts(errors.InvalidMessage, "Step", fields, observation_shape=MAX_AXES + 1)
        raise errors.InvalidMessage(
            f"observation of group {group} has shape {tuple(axes)} and dtype {dtype[:MAX_NAME]!r}; "
            f"expected {layout.shape} and {layout.dtype_name!r}"
        )
    if compression.KNOWN and fields.gzip:
        if unpacker is None:
            raise errors.InvalidMessage(f"observation of group {group} is compressed; expected so only after Compress")
        observation = unpacker.unpack(fields, observation, layout.observation_bytes)
    check_length("observation", group, len(observation), layout.observation_bytes)
    check_length("reward", group, len(reward), 4 * num_envs)
    return types.EnvStep(
        observation=aligned(np.ndarray(layout.shape, layout.dtype, observation)),
        reward=np.frombuffer(reward, _FLOAT),
        terminated=flags("terminated", group, fields.terminated, num_envs),
        truncated=flags("truncated", group, fields.truncated, num_envs),
        action_mask=action_mask(group, fields.action_mask, layout.mask_shape),
        task=numbers("task", group, fields.task, num_envs, layout.num_tasks),
        shown=shown(group, fields.shown, num_envs, has_seats=layout.has_seats),
        played=numbers("played", group, fields.played, num_envs, layout.num_actions),
        info=_info(fields, num_envs) if fields.info else None,
    )


def _info(fields: inference_pb2.Step, num_envs: int) -> dict[str, np.ndarray]:
    """Returns the environment's own numbers, [E] float32 by name."""
    check_counts(errors.InvalidMessage, "Step", fields, info=infos.MAX_INFOS)
    found: dict[str, np.ndarray] = {}
    for one in fields.info:
        if not infos.is_name(one.name) or one.name in found:
            raise errors.InvalidMessage(
                f"info of group {fields.group} has the name {one.name[:MAX_NAME]!r}; expected 1 to "
                f"{infos.MAX_NAME} printable characters, another name for each number"
            )
        check_length(f"info {one.name!r}", fields.group, len(one.value), 4 * num_envs)
        found[one.name] = np.frombuffer(one.value, _FLOAT)
        if np.isinf(found[one.name]).any():
            raise errors.InvalidMessage(
                f"info {one.name!r} of group {fields.group} is infinite; expected finite numbers, or NaN for none"
            )
    return found


# --- a learner's messages -------------------------------------------------------------------------------------------


def encode_actions(
    group: int, sequence: int, actions: np.ndarray, weights_version: int, bot: np.ndarray | None = None
) -> bytes:
    """Returns an Actions message. actions: [E] of any integer dtype, or [E, D] of any float dtype. bot: [E] uint8."""
    dtype = _FLOAT if actions.dtype.kind == "f" else _INTEGER
    packed = actions.astype(dtype, casting="same_kind", copy=False).tobytes()
    message = inference_pb2.LearnerMessage()
    fields = message.actions  # filled in place, which takes half the time of a separate message that is copied
    fields.group, fields.sequence, fields.action, fields.weights_version = group, sequence, packed, weights_version
    if bot is not None:
        fields.bot = bot.tobytes()
    return message.SerializeToString()


def from_learner(**content: Any) -> bytes:
    """Returns a learner's message with the fields of an assign, start, restart or end."""
    return inference_pb2.LearnerMessage(**content).SerializeToString()


def decode_learner(data: bytes) -> inference_pb2.LearnerMessage:
    return parsed(inference_pb2.LearnerMessage, data, data)


def actions_of(
    fields: inference_pb2.Actions, num_envs: int, spec: types.EnvSpec, num_bots: int = 0
) -> messages.Actions:
    """Returns a group's actions. Raises InvalidMessage if there are not E of them, or one is out of bounds."""
    shape, dtype = (num_envs, *spec.action_shape), _FLOAT if spec.is_continuous else _INTEGER
    check_length("action", fields.group, len(fields.action), 4 * math.prod(shape))
    actions = np.frombuffer(fields.action, dtype).reshape(shape)
    if spec.is_continuous:
        low, high = spec.action_bounds
        in_range = (actions >= low) & (actions <= high)  # false for NaN
    else:
        in_range = actions.view(_NATURAL) < spec.num_actions  # false for negative numbers
    if not all_true(in_range):
        wrong = f"actions of group {fields.group} have {actions[~in_range][0]}"
        if not spec.is_continuous:
            raise errors.InvalidMessage(f"{wrong} among them; expected 0 to {spec.num_actions - 1}")
        index = np.argwhere(~in_range)[0, 1]
        lowest, highest = spec.action_bounds[:, index]
        raise errors.InvalidMessage(f"{wrong} as number {index} of a vector; expected {lowest} to {highest}")
    return messages.Actions(fields.group, actions, fields.weights_version, _bot(fields, num_envs, num_bots))


def _bot(fields: inference_pb2.Actions, num_envs: int, num_bots: int) -> np.ndarray | None:
    """Returns [E] uint8, or None for empty bytes."""
    if not fields.bot:
        return None
    check_length("bot", fields.group, len(fields.bot), num_envs)
    if (largest := max(fields.bot)) > num_bots:
        raise errors.InvalidMessage(f"bot of group {fields.group} has a number {largest}; expected 0 to {num_bots}")
    return np.frombuffer(fields.bot, np.uint8)


# --- sizes and bytes ------------------------------------------------------------------------------------------------


def check_size(data: Sequence[int], limit: int) -> None:
    """Raises InvalidMessage if a message has more bytes than the limit."""
    if len(data) > limit:
        raise errors.InvalidMessage(f"a message has {len(data)} bytes; expected at most {limit}, see inference.proto")


def live_ask(data: object) -> messages.LiveAsk:
    """Returns a page's question; anything but bytes means that none came. Raises InvalidMessage."""
    content = data if isinstance(data, bytes) else b""
    check_size(content, _MAX_ASK_BYTES)
    try:
        fields = inference_pb2.LiveRequest.FromString(content)
    except protobuf.DecodeError:
        raise errors.InvalidMessage(f"{len(content)} bytes are no LiveRequest") from None
    return messages.LiveAsk(fields.call, fields.environment - 1 if fields.environment else None, fields.step)


def check_counts(error: type[errors.Error], title: str, fields: protobuf.Message, **limits: int) -> None:
    """Raises an error for a repeated field with too many entries, without making Python objects.

    A message of legal size may have millions of entries, which would stop the server's thread for seconds.
    """
    for name, limit in limits.items():
        if (came := len(getattr(fields, name, ()))) > limit:
            raise error(f"{title}.{name} has {came} entries; expected at most {limit}")


def parsed(kind: type[MessageT], fields: bytes, data: bytes) -> MessageT:
    """Returns the message in `fields`, received as `data`."""
    try:
        return kind.FromString(fields)
    except protobuf.DecodeError:
        raise undecodable(data) from None


def join(head: bytes, observation: memoryview | bytes) -> bytes:
    """Joins the other fields and the observation as a WorkerMessage, copied once."""
    return b"".join((head, bytes([_TAG]), _varint(len(observation)), observation))


def split(data: bytes) -> tuple[bytes, memoryview]:
    """Returns a WorkerMessage's other fields, and its observation as a view of the message's bytes.

    The protobuf library reads the rest; this only walks tags and lengths at the top level. Raises InvalidMessage if
    they make no sense, or there are more fields than any message has.
    """
    position, num_fields = 0, 0
    tag_start = start = end = len(data)
    while position < len(data):
        num_fields += 1
        if num_fields > _MAX_FIELDS:
            raise errors.InvalidMessage(
                f"a message of {len(data)} bytes has more than {_MAX_FIELDS} fields; expected one of WorkerMessage's "
                "and its observation"
            )
        field_start = position
        tag, position = _read_varint(data, position)
        if tag & 7 != 2:  # every field of WorkerMessage is length-delimited
            raise undecodable(data)
        length, position = _read_varint(data, position)
        position += length
        if position > len(data):
            raise undecodable(data)
        if tag == _TAG:
            tag_start, start, end = field_start, position - length, position
    return data[:tag_start] + data[end:], memoryview(data)[start:end]


def undecodable(data: bytes) -> errors.InvalidMessage:
    return errors.InvalidMessage(f"{len(data)} bytes that begin with {data[:16].hex()!r} cannot be decoded")


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    if position < len(data) and (value := data[position]) < 0x80:
        return value, position + 1
    value = 0
    for index, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise undecodable(data)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


def any_true(mask: np.ndarray) -> bool:
    """Returns whether any entry is true, for small masks in a quarter of the time of mask.any()."""
    return b"\1" in mask.tobytes()


def all_true(mask: np.ndarray) -> bool:
    """Returns whether all entries are true, for small masks in a quarter of the time of mask.all()."""
    return b"\0" not in mask.tobytes()


def check_length(name: str, group: int, came: int, expected: int) -> None:
    """Raises InvalidMessage if an array does not have the expected number of bytes."""
    if came != expected:
        raise errors.InvalidMessage(f"{name} of group {group} has {came} bytes; expected {expected}")


def aligned(array: np.ndarray) -> np.ndarray:
    """Returns the array, or a copy if it is not aligned."""
    return array if array.flags.aligned else array.copy()


def action_mask(group: int, data: bytes, shape: tuple[int, int] | None) -> np.ndarray | None:
    """Returns bool of this shape, or None without a mask, when the bytes must be empty."""
    if shape is None and not data:
        return None
    return flags("action_mask", group, data, math.prod(shape or (0,))).reshape(shape or 0)


def flags(name: str, group: int, data: bytes, length: int) -> np.ndarray:
    """Converts bytes of 0 or 1 to [length] bool."""
    check_length(name, group, len(data), length)
    if others := data.strip(_FLAGS):  # begins with the first byte that is neither
        raise errors.InvalidMessage(f"{name} of group {group} has a byte {others[0]}; expected 0 or 1")
    return np.frombuffer(data, _BOOL)


def shown(group: int, data: bytes, length: int, *, has_seats: bool) -> np.ndarray | None:
    """Returns [length] bool, or None for empty bytes, which they must be without seats."""
    return flags("shown", group, data, length if has_seats else 0) if data else None


def numbers(name: str, group: int, data: bytes, length: int, end: int) -> np.ndarray | None:
    """Returns [length] int32, each below `end`, or None for empty bytes."""
    if not data:
        return None
    check_length(name, group, len(data), 4 * length)
    found = np.frombuffer(data, _INTEGER)
    in_range = (found >= 0) & (found < end)
    if not all_true(in_range):
        wrong = found[~in_range][0]
        raise errors.InvalidMessage(f"{name} of group {group} has a number {wrong}; expected 0 to {end - 1}")
    return found
