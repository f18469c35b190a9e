"""Converts messages of the policy server to bytes and back, for both ends.

protos/seedzero/transport/inference.proto explains the fields. Shape letters: N rows of a request, A actions, D numbers
of a continuous action.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.core import errors, packing, types
from seedzero.transport import codec, handshake, inference_pb2

SERVICE = "seedzero.transport.Policy"
VERSION = 1
MAX_ROWS = 65_536
"""The most rows of a session."""
_DTYPES: Mapping[str, str] = {"probabilities": "<f4", "value": "<f4", "visits": "<i4", "q_value": "<f4"}
"""Findings -> their dtypes; all except the value have one entry for each action."""
_SERVER_LIMIT = 16 * 2**20


class PolicyRows(NamedTuple):
    """A request of N rows, checked against the spec.

    Attributes:
      row: [N] int32 within the session.
      step: observations, rewards, masks and tasks; flags of ends are false.
      first: [N] bool, true: an episode's first observation.
      findings: whether the answer includes the agent's findings.
      only_look: whether to leave the rows' memory unchanged.
      explore: whether to act with the noise of training.
    """

    row: np.ndarray
    step: types.EnvStep
    first: np.ndarray
    findings: bool = False
    only_look: bool = False
    explore: bool = False


class PolicyAnswer(NamedTuple):
    """An answer: actions [N] or [N, D], the parameters' version, and findings by name, if requested.

    memory: what the rows carry afterwards, [N, ...]; None if the server keeps it.
    """

    actions: np.ndarray
    version: int
    findings: Mapping[str, np.ndarray]
    memory: Any = None


@dataclasses.dataclass(frozen=True)
class PolicyOffer:
    """A server's description of itself, with the fields of `Description` in inference.proto.

    players: name -> version. trouble: why no newer parameters can be read, or "".
    """

    spec: types.EnvSpec
    env: str
    agent: str
    players: Mapping[str, int]
    reads_reward: bool
    has_probabilities: bool
    searches: bool
    draws: bool
    max_rows: int
    trouble: str = ""


# --- a client's messages --------------------------------------------------------------------------------------------


def from_client(**content: Any) -> bytes:
    """Returns a client's message with the fields of hello, heartbeat or goodbye."""
    return inference_pb2.PolicyMessage(**content).SerializeToString()


HEARTBEAT = from_client(heartbeat=inference_pb2.Heartbeat())


def encode_rows(sequence: int, rows: PolicyRows) -> bytes:
    """Returns a Rows message; the observations are copied once."""
    message, step = inference_pb2.PolicyMessage(), rows.step
    observation = np.ascontiguousarray(step.observation)
    fields = message.rows
    fields.sequence, fields.row = sequence, rows.row.astype("<i4").tobytes()
    fields.observation_shape.extend(observation.shape)
    fields.observation_dtype = observation.dtype.name
    fields.reward, fields.first = step.reward.astype("<f4").tobytes(), rows.first.astype(bool).tobytes()
    if step.action_mask is not None:
        fields.action_mask = step.action_mask.astype(bool).tobytes()
    if step.task is not None:
        fields.task = step.task.astype("<i4").tobytes()
    fields.findings, fields.only_look, fields.explore = rows.findings, rows.only_look, rows.explore
    return codec.join(message.SerializeToString(), observation.data.cast("B"))


def decode_client(data: bytes) -> tuple[inference_pb2.PolicyMessage, memoryview]:
    """Splits a client's message into its fields without observation, and the observation as a view of its bytes."""
    head, observation = codec.split(data)
    return codec.parsed(inference_pb2.PolicyMessage, head, data), observation


def check_hello(fields: inference_pb2.PolicyHello, max_rows: int) -> None:
    """Raises VersionMismatch for another protocol, and InvalidMessage for an impossible field."""
    if fields.protocol_version != VERSION:
        raise errors.VersionMismatch(
            f"the client speaks version {fields.protocol_version} of the policy protocol, the server {VERSION}; "
            "install the same version of seedzero on both"
        )
    if max(len(fields.session_id), len(fields.player)) > codec.MAX_NAME:
        raise errors.InvalidMessage(f"PolicyHello has a name of more than {codec.MAX_NAME} characters")
    if not fields.session_id and not 1 <= fields.num_rows <= max_rows:
        raise errors.InvalidMessage(f"PolicyHello.num_rows is {fields.num_rows}; expected 1 to {max_rows}")


def rows_of(
    fields: inference_pb2.Rows, observation: memoryview, spec: types.EnvSpec, num_rows: int, *, reads_reward: bool
) -> PolicyRows:
    """Returns a request, with arrays as read-only views of the message.

    Raises InvalidMessage if it does not fit the spec.
    """
    if len(fields.row) % 4 or not 1 <= (number := len(fields.row) // 4) <= num_rows:
        raise errors.InvalidMessage(f"Rows.row has {len(fields.row)} bytes; expected 4 for each of 1 to {num_rows}")
    row = np.frombuffer(fields.row, "<i4")
    if row.min() < 0 or row.max() >= num_rows or len(np.unique(row)) < number:
        shown = row[:8].tolist()
        raise errors.InvalidMessage(f"Rows.row begins with {shown}; expected 0 to {num_rows - 1}, each at most once")
    layout = codec.StepLayout(spec, number)
    if list(fields.observation_shape) != layout.axes or fields.observation_dtype != layout.dtype_name:
        codec.check_counts(errors.InvalidMessage, "Rows", fields, observation_shape=codec.MAX_AXES + 1)
        raise errors.InvalidMessage(
            f"observations have shape {tuple(fields.observation_shape)} and dtype "
            f"{fields.observation_dtype[: codec.MAX_NAME]!r}; expected {layout.shape} and {layout.dtype_name!r}"
        )
    codec.check_length("observation", 0, len(observation), layout.observation_bytes)
    if reads_reward and not fields.reward:
        raise errors.InvalidMessage("Rows.reward is missing: this agent's memory reads the reward of the last step")
    reward = np.zeros(number, np.float32)
    if fields.reward:
        codec.check_length("reward", 0, len(fields.reward), 4 * number)
        reward = np.frombuffer(fields.reward, "<f4")
    first = codec.flags("first", 0, fields.first, number) if fields.first else np.zeros(number, bool)
    mask = codec.action_mask(0, fields.action_mask, layout.mask_shape)
    frames = codec.aligned(np.ndarray(layout.shape, layout.dtype, observation))
    _check_finite(spec, frames, reward)
    if mask is not None and not mask.any(axis=1).all():
        raise errors.InvalidMessage("Rows.action_mask has a row without a legal action; finished episodes need no row")
    none = np.zeros(number, bool)
    step = types.EnvStep(
        frames, reward, none, none, mask, codec.numbers("task", 0, fields.task, number, layout.num_tasks)
    )
    return PolicyRows(row, step, first, fields.findings, fields.only_look, fields.explore)


def _check_finite(spec: types.EnvSpec, frames: np.ndarray, reward: np.ndarray) -> None:
    """Raises InvalidMessage for a number that is not finite."""
    arrays = packing.unpack(spec.packed, frames) if spec.packed else {"observation": frames}
    for name, values in {**arrays, "reward": reward}.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise errors.InvalidMessage(f"Rows has a number in {name!r} that is not finite; expected finite ones")


# --- a server's messages --------------------------------------------------------------------------------------------


def encode_welcome(session_id: str, heartbeat_seconds: float, lease_seconds: float, max_message_bytes: int) -> bytes:
    return inference_pb2.PolicyReply(
        welcome=dict(
            session_id=session_id,
            heartbeat_seconds=heartbeat_seconds,
            lease_seconds=lease_seconds,
            max_message_bytes=max_message_bytes,
        )
    ).SerializeToString()


def encode_acted(sequence: int, acted: PolicyAnswer) -> bytes:
    """Returns an answer. actions: [N] of any integer dtype, or [N, D] of any float dtype."""
    dtype = "<f4" if acted.actions.dtype.kind == "f" else "<i4"
    message = inference_pb2.PolicyReply()
    fields = message.acted
    fields.sequence, fields.version = sequence, acted.version
    fields.action = acted.actions.astype(dtype).tobytes()
    for name, values in acted.findings.items():
        setattr(fields, name, values.astype(_DTYPES[name]).tobytes())
    return message.SerializeToString()


def decode_reply(data: bytes) -> inference_pb2.PolicyReply:
    """Returns a server's message."""
    return parsed(inference_pb2.PolicyReply, data)


def parsed(kind: type[codec.MessageT], data: object) -> codec.MessageT:
    """Parses a message. Raises InvalidMessage for bytes of another kind, or if none came."""
    if not isinstance(data, bytes):
        raise errors.InvalidMessage(f"{kind.__name__} is missing; expected one")
    return codec.parsed(kind, data, data)


def acted_of(fields: inference_pb2.Acted, num_rows: int, spec: types.EnvSpec) -> PolicyAnswer:
    """Returns an answer for N rows. Raises InvalidMessage if it does not fit."""
    taken = codec.actions_of(
        inference_pb2.Actions(action=fields.action, weights_version=fields.version), num_rows, spec
    )
    findings = {}
    for name, dtype in _DTYPES.items():
        if data := getattr(fields, name):
            shape = (num_rows,) if name == "value" else (num_rows, spec.num_actions)
            codec.check_length(name, 0, len(data), 4 * math.prod(shape))
            findings[name] = np.frombuffer(data, dtype).reshape(shape)
    return PolicyAnswer(taken.actions, taken.weights_version, findings)


def encode_offer(offer: PolicyOffer) -> inference_pb2.Description:
    """Returns a server's description of itself."""
    fields = {field.name: getattr(offer, field.name) for field in dataclasses.fields(offer)}
    changed = dict(spec=handshake.spec_fields(offer.spec), players=served(offer.players), protocol_version=VERSION)
    return inference_pb2.Description(**{**fields, **changed})


def served(players: Mapping[str, int]) -> list[inference_pb2.Served]:
    """Returns players and versions."""
    return [inference_pb2.Served(name=name, version=version) for name, version in players.items()]


def players_of(fields: Sequence[inference_pb2.Served]) -> dict[str, int]:
    return {one.name: one.version for one in fields}


def offer_of(fields: inference_pb2.Description) -> PolicyOffer:
    """Returns a server's description.

    Raises VersionMismatch or SpecMismatch if this version does not know it, and InvalidMessage if it has no players.
    """
    if fields.protocol_version != VERSION:
        raise errors.VersionMismatch(
            f"the server speaks version {fields.protocol_version} of the policy protocol, this client {VERSION}; "
            "install the same version of seedzero on both"
        )
    if not fields.players:
        raise errors.InvalidMessage("the server has no players; start it again with a run that has some")
    spec = handshake.spec_of(fields.spec, 1, _SERVER_LIMIT)
    names = [field.name for field in dataclasses.fields(PolicyOffer)]
    given = {name: getattr(fields, name) for name in names if name not in ("spec", "players")}
    return PolicyOffer(spec=spec, players=players_of(fields.players), **given)


def max_message_bytes(spec: types.EnvSpec, num_rows: int) -> int:
    """Returns the size of the largest request of a session."""
    return handshake.max_message_bytes(spec, num_rows) + 16 * num_rows
