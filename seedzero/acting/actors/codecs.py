"""Converts observations of an environment to the learner's rows, and the learner's actions to the environment's.

Shape letters: B rows (environments), A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy import typing as npt

from seedzero.core import errors, packing, types
from seedzero.envs import envpool_env, gym_masks, gym_spaces, space_text

Action: TypeAlias = int | np.ndarray
_MAX_ELEMENTS = 10_000
"""Limit of elements in an action's arrays; an observation's arrays may have as many as its bytes."""


@dataclasses.dataclass(frozen=True)
class Codec:
    """Converts between an environment's own values and the learner's arrays."""

    # The environment's own; if the run does not have it, arrays of the spec's shapes.
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]  # in the same cases
    # `observation_space` as the learner's arrays have it: images are [H, W, C], and the action mask is removed.
    learned_space: spaces.Space[Any]
    to_rows: gym_spaces.Coder  # batch of `observation_space` -> [B, *EnvSpec.observation_shape]
    to_actions: gym_spaces.Coder  # [B] int32 or [B, D] float32 -> batch of `action_space`

    def encode(self, observation: Any) -> tuple[np.ndarray, bool]:
        """Returns an observation, or a batch, as rows [B, ...], and whether it was a single observation.

        observation: what `reset` and `step` return, or numbers and lists of the same structure. A batch has one
        leading axis more in each array, as in Gymnasium's vector environments, or is a list of dictionaries or tuples.

        Raises UsageError, which names the space, for any other value.
        """
        rows: _Rows = {}
        batch = _batch(self.observation_space, observation, "the observation", rows)
        if len(set(rows.values())) > 1:
            raise errors.UsageError(f"arrays have different numbers of rows: {rows}; None: it is one observation's")
        return self.to_rows(batch), None in rows.values()

    def shown_mask(self, observation: Any) -> np.ndarray | None:
        """Returns the masks, [A] or [B, A], inside of observations (see `encode`), or None if they have no masks."""
        if not gym_masks.is_part(self.observation_space):
            return None
        rows: _Rows = {}
        masks: np.ndarray = _batch(self.observation_space, observation, "the observation", rows)[gym_masks.KEY]
        return masks[0] if None in rows.values() else masks

    def joint_mask(self, mask: npt.ArrayLike) -> np.ndarray:
        """Returns masks over all actions, [..., A], from masks that list the values of each number of an action."""
        array, sizes = packing.array_of(gym_masks.KEY, mask), gym_spaces.action_sizes(self.action_space)
        is_of_numbers = len(sizes) > 1 and array.shape[-1:] == (sum(sizes),) and np.isin(array, (0, 1)).all()
        return gym_masks.joint(array == 1, sizes) if is_of_numbers else array

    def decode(self, actions: np.ndarray, *, is_single: bool) -> Action:
        """Returns actions as `step` takes them; for a single row without the leading axis, and an int if Discrete."""
        taken = self.to_actions(actions)
        if not is_single:
            return taken
        return int(taken[0]) if isinstance(self.action_space, spaces.Discrete) else np.asarray(taken[0])


def of(spec: types.EnvSpec) -> Codec:
    """Returns the codec of a run's environments. Raises ResumeError if the saved description of spaces is damaged."""
    if not spec.spaces:
        return _of_arrays(spec)
    try:
        pair = space_text.read(spec.spaces, max(_MAX_ELEMENTS, spec.observation_bytes))
        masks = {} if pair.channels_first else {"masks": spec.has_action_mask}
        read: Any = envpool_env.of_pool if pair.channels_first else gym_spaces.read
        found, to_rows, to_actions = read("of this run", pair.observation, pair.action, **masks)
    except (ValueError, errors.EnvironmentFailure) as error:
        raise errors.ResumeError(
            f"spec.json is damaged at spaces ({error}); delete it to have it made again"
        ) from None
    if _layout(found) != _layout(spec):
        raise errors.ResumeError(
            f"spec.json is damaged: its spaces are of {_layout(found)}, its other fields of {_layout(spec)}; "
            "expected the same"
        )
    learned = envpool_env.channels_last(pair.observation) if pair.channels_first else pair.observation
    if spec.has_action_mask:
        learned = gym_masks.without(learned)
    return Codec(pair.observation, pair.action, learned, to_rows, to_actions)


def _layout(spec: types.EnvSpec) -> tuple[Any, ...]:
    arrays = [(array.name, array.shape, array.dtype) for array in spec.arrays]
    return arrays, spec.num_actions, spec.action_low, spec.action_high


def _of_arrays(spec: types.EnvSpec) -> Codec:
    """Returns the codec of an environment without Gymnasium spaces, which sends one array or several named ones."""
    parts = [(array.name, _box(array)) for array in spec.arrays]
    shown: spaces.Space[Any] = spaces.Dict(parts) if spec.packed else parts[0][1]
    if spec.num_states:
        shown = spaces.Discrete(spec.num_states)
    taken: spaces.Space[Any] = spaces.Discrete(max(1, spec.num_actions))
    if spec.is_continuous:
        taken = spaces.Box(*spec.action_bounds, dtype=np.float32)
    _, to_rows, _ = gym_spaces.read("of this run", shown, spaces.Discrete(1))

    def encode(batch: Any) -> np.ndarray:
        rows = to_rows(batch).astype(spec.observation_dtype, copy=False)
        return rows.reshape(len(rows), *spec.observation_shape)

    return Codec(shown, taken, shown, encode, lambda actions: actions)


def _box(array: types.ArraySpec) -> spaces.Box:
    dtype = np.dtype(array.dtype)
    limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    low, high = max(array.low, limits.min), min(array.high, limits.max)
    return spaces.Box(low, high, array.shape, dtype.type)


# Observations ------------------------------------------------------------------------------------------------------

_Rows: TypeAlias = dict[str, int | None]
"""Name of an array -> its number of rows, or None if it belongs to a single observation."""


def _batch(space: spaces.Space[Any], value: Any, title: str, rows: _Rows) -> Any:
    """Returns a value as a batch of a space and notes each array's rows. Raises UsageError if it does not fit."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return _array(space, value, title, rows)
    is_tuple = isinstance(space, spaces.Tuple)
    merged = _merged(space, value)
    if is_tuple and merged is not None and len(value) == len(space):
        return _either(space, tuple(value), merged, title, rows)
    return _parts(space, value if merged is None else merged, title, rows)


def _either(space: Any, one: Any, several: Any, title: str, rows: _Rows) -> Any:
    """Resolves a list of tuples that is as long as the Tuple space: it is either one observation or several."""
    found: list[tuple[Any, _Rows]] = []
    for value, is_single in ((one, True), (several, False)):
        noted: _Rows = {}
        with contextlib.suppress(errors.UsageError):
            batch = _parts(space, value, title, noted)
            if len(set(noted.values())) == 1 and (None in noted.values()) == is_single:
                found.append((batch, noted))
    if len(found) != 1:
        reason = "may be one observation or several" if found else "fits neither as one observation nor as several"
        raise errors.UsageError(
            f"{title} is a list of {len(one)} tuples, which {reason}; expected a tuple of its parts, of arrays "
            f"[B, ...] for several: its space is {space}"
        )
    rows.update(found[0][1])
    return found[0][0]


def _parts(space: Any, value: Any, title: str, rows: _Rows) -> Any:
    """Returns the batch of an observation with several parts."""
    parts = _named(space)
    if isinstance(space, spaces.Tuple):
        fits = isinstance(value, tuple | list) and len(value) == len(parts)
    else:
        fits = isinstance(value, Mapping) and parts.keys() <= (value := _by_key(value)).keys()
    if not fits:
        came = f"the parts {list(value)}" if isinstance(value, Mapping) else f"a {type(value).__name__}"
        raise errors.UsageError(f"{title} is {came}; expected {list(parts)}, as in its space {space}")
    found = {key: _batch(part, value[key], f"{title} at {key!r}", rows) for key, part in parts.items()}
    return tuple(found.values()) if isinstance(space, spaces.Tuple) else found


def _named(space: Any) -> Mapping[Any, spaces.Space[Any]]:
    return dict(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else space.spaces


def _by_key(value: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Returns a dictionary under the keys that `space_text` writes."""
    return {space_text.key(key): part for key, part in value.items()}


def _merged(space: Any, value: Any) -> Any:
    """Merges a list of dictionaries or tuples into one whose parts are lists. Returns None for any other value."""
    is_tuple = isinstance(space, spaces.Tuple)
    kind: Any = tuple if is_tuple else Mapping
    if not isinstance(value, list) or not value or not all(isinstance(each, kind) for each in value):
        return None
    rows = value if is_tuple else [_by_key(each) for each in value]
    try:
        found = {key: [each[key] for each in rows] for key in _named(space)}
    except LookupError:
        return None
    return tuple(found.values()) if is_tuple else found


def _array(space: spaces.Space[Any], value: Any, title: str, rows: _Rows) -> np.ndarray:
    """Returns a value as [B, *shape] in the space's dtype."""
    shape = space.shape or ()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise errors.UsageError(f"{title} is not an array ({error}); its space is {space}") from None
    is_single = array.shape == shape
    if not (is_single or (array.shape[1:] == shape and array.ndim > len(shape) and array.size)):
        expected = f"{list(shape)}, or a batch [B{''.join(f', {size}' for size in shape)}]"
        raise errors.UsageError(
            f"{title} has the shape {list(array.shape)}; expected {expected}: its space is {space}"
        )
    rows[title] = None if is_single else len(array)
    values = _values(space, array, title)
    return values[np.newaxis] if is_single else values


def _values(space: spaces.Space[Any], array: np.ndarray, title: str) -> np.ndarray:
    """Returns the values in the space's dtype. Raises UsageError for values outside of the space."""
    assert space.dtype is not None
    kinds = "biuf" if space.dtype.kind == "f" else "biu"
    if array.dtype.kind not in kinds:
        raise errors.UsageError(f"{title} has the dtype {array.dtype}; expected {space.dtype}: its space is {space}")
    low, high = _limits(space)
    with np.errstate(over="ignore"):  # A number that overflows becomes infinite and is rejected below.
        values: np.ndarray = array.astype(space.dtype, copy=False)
    inside = np.isfinite(values) if space.dtype.kind == "f" else (array >= low) & (array <= high)
    if not inside.all():
        wrong = array[~inside].reshape(-1)[0]
        raise errors.UsageError(f"{title} has the value {wrong}, which is not in its space {space}")
    return values


def _limits(space: spaces.Space[Any]) -> tuple[Any, Any]:
    """Returns the smallest and the largest value of a space of integers."""
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    assert space.dtype is not None
    if isinstance(space, spaces.MultiBinary) or space.dtype.kind in "bf":
        return 0, 1
    limits = np.iinfo(space.dtype.name)
    return limits.min, limits.max
