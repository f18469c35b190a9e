"""Converts the messages before the first step: a worker's Hello and Spec, a learner's Assign and Start.

protos/seedzero/transport/inference.proto explains the fields. Shape letters: E environments of one group.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from google.protobuf import message as protobuf

from seedzero.config import sections
from seedzero.core import errors, infos, types
from seedzero.transport import codec, compression, inference_pb2, links, messages

PROTOCOL_VERSION = 2
HANDSHAKE_BYTES = 4 * 2**20
"""Largest message before Start."""
_OVERHEAD_BYTES = 64 * 2**10
_MAX_ACTIONS = 1_000_000
_MAX_ACTION_NUMBERS = 10_000
_MAX_SPACES = 2**20
_HELLO_LIMITS = dict(roles=16, environments=1_000)
_BOUND_LIMITS = dict(action_low=_MAX_ACTION_NUMBERS, action_high=_MAX_ACTION_NUMBERS)
_NAME_LIMITS = dict(tasks=1_000, seats=1_000, action_names=types.MAX_ACTION_NAMES)
_SPEC_LIMITS = dict(observation_shape=codec.MAX_AXES, **_BOUND_LIMITS, packed=1_000, **_NAME_LIMITS)

_PLAIN = (bool, int, float, str)

_MAX_BOTS = 255

_ROLES = {types.Role.TRAIN: inference_pb2.ROLE_TRAIN, types.Role.EVALUATE: inference_pb2.ROLE_EVALUATE}
_ROLE_OF = {number: role for role, number in _ROLES.items()}


def check_generated(kind: type[Any], generated: type[protobuf.Message]) -> None:
    """Raises ImportError if a generated message lacks a field of a dataclass, as after an update of the sources."""
    known = generated.DESCRIPTOR.fields_by_name
    # Fields that are not compared are for people to read, and older stubs do without them.
    if missing := [field.name for field in dataclasses.fields(kind) if field.compare and field.name not in known]:
        raise ImportError(
            f"seedzero/transport/inference_pb2.py is older than inference.proto: {generated.DESCRIPTOR.name} has no "
            f"{missing[0]}; install seedzero again, as by `pip install -e .`, which generates it"
        )


check_generated(messages.Hello, inference_pb2.Hello)
check_generated(types.Assignment, inference_pb2.Assign)
check_generated(types.EnvSpec, inference_pb2.Spec)


def encode_hello(hello: messages.Hello) -> bytes:
    roles = [_ROLES[role] for role in hello.roles]
    fields = dict(dataclasses.asdict(hello), roles=roles, protocol_version=PROTOCOL_VERSION)
    fields |= {"knows_gzip": True} if compression.KNOWN else {}
    return codec.from_worker(hello=fields)


def hello_of(fields: inference_pb2.Hello) -> messages.Hello:
    """Returns a worker's introduction. Raises VersionMismatch, or InvalidMessage for a missing or impossible field."""
    if fields.protocol_version != PROTOCOL_VERSION:
        older = ": the worker's is older and sends no observations of several arrays"
        raise errors.VersionMismatch(
            f"the worker speaks protocol version {fields.protocol_version}, the learner {PROTOCOL_VERSION}; install "
            f"the same version of seedzero on both{older if fields.protocol_version < PROTOCOL_VERSION else ''}"
        )
    codec.check_counts(errors.InvalidMessage, "Hello", fields, **_HELLO_LIMITS)
    if not 1 <= len(fields.worker_id) <= codec.MAX_NAME or len(fields.session_id) > codec.MAX_NAME:
        raise errors.InvalidMessage(
            f"Hello.worker_id has {len(fields.worker_id)} characters and session_id {len(fields.session_id)}; "
            f"expected 1 to {codec.MAX_NAME} and at most {codec.MAX_NAME}"
        )
    if not fields.worker_id.isprintable():
        raise errors.InvalidMessage(f"Hello.worker_id is {fields.worker_id!r}; expected printable characters")
    unknown = [number for number in fields.roles if number not in _ROLE_OF]
    if unknown or not fields.roles:
        raise errors.InvalidMessage(f"Hello.roles is {list(fields.roles)}; expected at least one, each 1 or 2")
    if long := [name for name in fields.environments if len(name) > codec.MAX_NAME]:
        found = f"a name of {len(long[0])} characters"
        raise errors.InvalidMessage(f"Hello.environments has {found}; expected at most {codec.MAX_NAME}")
    if fields.max_envs < 1:
        raise errors.InvalidMessage("Hello.max_envs is 0; expected at least 1")
    roles = tuple(_ROLE_OF[number] for number in fields.roles)
    return messages.Hello(**dict(_values(fields, messages.Hello), roles=roles))


def encode_spec(spec: types.EnvSpec) -> bytes:
    """Returns a worker's spec; false fields are omitted, as on the wire, so stubs need not know them."""
    return codec.from_worker(spec=spec_fields(spec))


def spec_fields(spec: types.EnvSpec) -> dict[str, Any]:
    """Returns the fields of a Spec message."""
    known = inference_pb2.Spec.DESCRIPTOR.fields_by_name
    return {name: x for name, x in dataclasses.asdict(spec).items() if x is not False and name in known}


def spec_of(fields: inference_pb2.Spec, num_envs: int, limit: int) -> types.EnvSpec:
    """Returns a worker's spec for groups of E environments. Raises SpecMismatch if `limit` bytes are too few."""
    codec.check_counts(errors.SpecMismatch, "Spec", fields, **_SPEC_LIMITS)
    fewest = 0 if fields.action_low else 1
    has_actions = fewest <= fields.num_actions <= _MAX_ACTIONS
    if fields.num_players not in (1, 2) or not has_actions or fields.frames_per_step < 1:
        raise errors.SpecMismatch(
            f"Spec has num_players {fields.num_players}, num_actions {fields.num_actions} and frames_per_step "
            f"{fields.frames_per_step}; expected 1 or 2, 1 to {_MAX_ACTIONS} (or 1 to {_MAX_ACTION_NUMBERS} bounds of "
            f"continuous actions, not {len(fields.action_low)}), and at least 1"
        )
    if (length := len(fields.spaces.encode())) > _MAX_SPACES:
        raise errors.SpecMismatch(f"Spec.spaces has {length} bytes; expected at most {_MAX_SPACES}")
    if not fields.observation_low <= fields.observation_high:
        raise errors.SpecMismatch(
            f"Spec has observation_low {fields.observation_low} and observation_high {fields.observation_high}; "
            "expected numbers, the first not above the second"
        )
    for array in fields.packed:
        codec.check_counts(errors.SpecMismatch, "Spec.packed", array, shape=codec.MAX_AXES)
    for shape in (fields.observation_shape, *(array.shape for array in fields.packed)):
        if any(size > limit for size in shape):
            found = f"an observation with an axis of {max(shape)}"
            raise errors.SpecMismatch(f"Spec has {found}; expected at most {limit} bytes in all")
    for kind in ("tasks", "action_names"):
        names = getattr(fields, kind, ())
        if wrong := [name for name in names if not 1 <= len(name) <= codec.MAX_NAME]:
            found = f"a name of {len(wrong[0])} characters"
            raise errors.SpecMismatch(f"Spec.{kind} has {found}; expected 1 to {codec.MAX_NAME} in each")
        if wrong := [name for name in names if not name.isprintable()]:
            raise errors.SpecMismatch(f"Spec.{kind} has the name {wrong[0]!r}; expected printable characters")
    spec = types.EnvSpec(**dict(_values(fields, types.EnvSpec), packed=_arrays_of(fields)))
    if (needed := max_message_bytes(spec, num_envs)) > limit:
        raise errors.SpecMismatch(
            f"{num_envs} observations of shape {spec.observation_shape} and dtype {spec.observation_dtype} need "
            f"{needed} bytes a message; the learner takes {limit}; start it with "
            f"--transport.max_message_bytes={needed}, or lower --worker.envs_per_group"
        )
    return spec


def _arrays_of(fields: inference_pb2.Spec) -> tuple[types.ArraySpec, ...]:
    """Returns the arrays of composite observations. Raises SpecMismatch for an impossible array."""
    for array in fields.packed:
        if not 1 <= len(array.name) <= codec.MAX_NAME or not array.name.isprintable() or not array.low <= array.high:
            raise errors.SpecMismatch(
                f"Spec.packed has an array {array.name[: codec.MAX_NAME]!r} from {array.low} to {array.high}; "
                f"expected a name of 1 to {codec.MAX_NAME} printable characters, and numbers, the first not above the "
                "second"
            )
    return tuple(types.ArraySpec(**_values(array, types.ArraySpec)) for array in fields.packed)


def encode_assign(assignment: types.Assignment, settings: sections.TransportConfig) -> bytes:
    times = dict(heartbeat_seconds=settings.beat_seconds, lease_seconds=settings.lease_seconds)
    fields = dict(dataclasses.asdict(assignment), role=_ROLES[assignment.role], **times)
    return codec.from_learner(assign=fields)


def assignment_of(fields: inference_pb2.Assign) -> types.Assignment:
    """Returns a learner's assignment. Raises InvalidMessage for a missing or impossible field."""
    num_envs = fields.num_groups * fields.envs_per_group
    if not fields.session_id or fields.role not in _ROLE_OF or not 1 <= fields.num_groups <= links.MAX_GROUPS:
        raise errors.InvalidMessage(
            f"Assign has session_id {fields.session_id!r}, role {fields.role} and num_groups {fields.num_groups}; "
            f"expected an id, 1 or 2, and 1 to {links.MAX_GROUPS}"
        )
    if num_envs < 1 or len(fields.seeds) != num_envs:
        groups = f"{fields.num_groups} groups of {fields.envs_per_group} environments"
        raise errors.InvalidMessage(f"Assign has {len(fields.seeds)} seeds for {groups}")
    if len(fields.indices) not in (0, num_envs):
        raise errors.InvalidMessage(f"Assign has {len(fields.indices)} indices for {num_envs} environments")
    codec.check_counts(errors.InvalidMessage, "Assign", fields, bots=_MAX_BOTS)
    return types.Assignment(**dict(_values(fields, types.Assignment), role=_ROLE_OF[fields.role]))


def max_message_bytes(spec: types.EnvSpec, num_envs: int) -> int:
    """Returns the largest message of a session: a Step of E environments, with room for everything else."""
    per_env = spec.observation_bytes + 4 + 1 + 1 + spec.num_actions * spec.has_action_mask
    per_env += 4 * bool(spec.tasks) + bool(spec.seats) + 4 * (spec.num_players == 2 or bool(spec.seats))
    return _OVERHEAD_BYTES + num_envs * (per_env + 4 * infos.MAX_INFOS)


def _values(fields: protobuf.Message, kind: type[Any]) -> dict[str, Any]:
    """Returns a dataclass's fields from the fields of the same names in a message."""
    # A stub may be older than a field, which then has its default.
    values: dict[str, Any] = {
        field.name: getattr(fields, field.name, field.default) for field in dataclasses.fields(kind)
    }
    return {name: value if isinstance(value, _PLAIN) else tuple(value) for name, value in values.items()}
