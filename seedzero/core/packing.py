"""Packs observations of named arrays: each environment's row has the concatenated bytes of all arrays.

So several arrays travel, are stored and are sampled as one; `ops/unpacking.py` gives agents the arrays.

Shape letters: E environments of one group, N bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import typing as npt

from seedzero.core import errors, types


# What callers give to a policy beside observations, checked: for an agent here, and for one behind a server.
#
# Without JAX. Shape letters: B rows (environments), A actions.
def rewards_and_mask(
    spec: types.EnvSpec,
    first: np.ndarray,
    reward: npt.ArrayLike | None,
    action_mask: npt.ArrayLike | None,
    *,
    is_single: bool,
    reads_reward: bool,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the rewards [B] and the mask [B, A] bool of some rows; None: the environment has no mask.

    Raises UsageError for one that is missing, not expected, or of another shape or dtype.

    Args:
      first: [B] bool, true: the row begins an episode.
      is_single: whether the caller's arrays lack the first axis.
      reads_reward: whether the agent's memory reads rewards.
    """
    if reward is None and reads_reward and not first.all():
        raise errors.UsageError("reward is missing: this agent's memory reads the reward of the last step")
    if spec.has_action_mask != (action_mask is not None):
        raise errors.UsageError(
            "this environment has an action mask: call policy(observation, action_mask=mask), with the mask of "
            "its info or of its action_masks()"
            if spec.has_action_mask
            else "this environment has no action mask; leave action_mask out"
        )
    rewards = _rows_of("reward", 0.0 if reward is None else reward, first.shape, np.float32, is_single)
    if not np.isfinite(rewards).all():
        raise errors.UsageError(f"reward is {rewards[~np.isfinite(rewards)][0]}; expected finite numbers")
    if action_mask is None:
        return rewards, None
    return rewards, _rows_of("action_mask", action_mask, (len(first), spec.num_actions), bool, is_single)


def array_of(name: str, value: npt.ArrayLike) -> np.ndarray:
    """Returns a caller's value as an array. Raises UsageError, with its name, for a ragged list."""
    try:
        return np.asarray(value)
    except ValueError:
        raise errors.UsageError(f"{name} is not an array: its parts have different shapes") from None


def restart(first: np.ndarray, rows: Sequence[int] | np.ndarray) -> None:
    """Lets an episode begin in these rows, [N] int or [B] bool. Raises UsageError for missing rows."""
    chosen = np.asarray(rows)
    try:
        first[chosen if chosen.size else chosen.astype(int)] = True  # an empty list has floats
    except IndexError:
        raise errors.UsageError(
            f"reset of the rows {chosen.tolist()}: expected numbers from 0 to {len(first) - 1}, or {len(first)} truth "
            "values"
        ) from None


def other_rows(number: int, first: np.ndarray) -> errors.UsageError:
    """Returns the error of a batch with another number of rows than before."""
    return errors.UsageError(
        f"observations of {number} rows, but there are {len(first)} with frames and memory of their own; call reset() "
        "first to begin with others"
    )


def _rows_of(name: str, value: npt.ArrayLike, shape: tuple[int, ...], dtype: Any, is_single: bool) -> np.ndarray:
    """Returns one array for each row, of a shape [B, ...]; a scalar stands for all rows."""
    array = array_of(name, value)
    if is_single and array.shape == shape[1:]:
        array = array[np.newaxis]
    if array.shape == () and len(shape) == 1:
        array = np.full(shape, array)
    if array.shape != shape:
        expected = shape[1:] if is_single else shape
        raise errors.UsageError(f"{name} has the shape {list(array.shape)}; expected {list(expected)}")
    if dtype is bool and not (array.dtype == bool or (array.dtype.kind in "iuf" and np.isin(array, (0, 1)).all())):
        raise errors.UsageError(f"{name} has the dtype {array.dtype}; expected bool, or 0 and 1: legal")
    if array.dtype.kind not in "biuf":
        raise errors.UsageError(f"{name} has the dtype {array.dtype}; expected numbers")
    return array.astype(dtype)


# Handles arrays of an observation that only training sees, such as the joint observation of all agents.
def without_training_only(spec: types.EnvSpec) -> types.EnvSpec:
    """Returns the spec for acting and for saved agents, without the arrays that are for training alone."""
    rest = tuple(array for array in spec.packed if not array.training_only)
    if len(rest) == len(spec.packed):
        return spec
    if len(rest) > 1 or rest[0].name != types.OBSERVATION:
        return _of_bytes(spec, rest)
    alone = rest[0]
    shown: dict[str, Any] = dict(observation_shape=alone.shape, observation_dtype=alone.dtype, packed=())
    return dataclasses.replace(spec, **shown, observation_low=alone.low, observation_high=alone.high)


def add_training_only(spec: types.EnvSpec, array: types.ArraySpec) -> types.EnvSpec:
    """Returns the spec with an array for training alone; its bytes follow those of the others."""
    return _of_bytes(spec, (*spec.arrays, array))


def _of_bytes(spec: types.EnvSpec, packed: tuple[types.ArraySpec, ...]) -> types.EnvSpec:
    shown: dict[str, Any] = dict(observation_shape=(sum(array.num_bytes for array in packed),), packed=packed)
    return dataclasses.replace(spec, **shown, observation_dtype="uint8", observation_low=0, observation_high=255)


def pack(arrays: Sequence[types.ArraySpec], values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Packs {name: [E, *shape]} as [E, N] uint8, little-endian and in C order, after casting to the arrays' dtypes."""
    batches = [values[array.name].astype(_dtype(array), order="C", copy=False) for array in arrays]
    return np.concatenate([batch.reshape(len(batch), -1).view(np.uint8) for batch in batches], axis=1)


def unpack(arrays: Sequence[types.ArraySpec], packed: np.ndarray) -> dict[str, np.ndarray]:
    """Unpacks [E, N] uint8 as {name: [E, *shape]}."""
    found, start = {}, 0
    for array in arrays:
        flat = packed[:, start : start + array.num_bytes]
        if array.dtype != "uint8":
            flat = np.ascontiguousarray(flat).view(_dtype(array))
        found[array.name] = flat.reshape(len(packed), *array.shape)
        start += array.num_bytes
    return found


def encode_texts(texts: Sequence[str], num_bytes: int) -> np.ndarray:
    """Encodes texts as UTF-8, [E, num_bytes] uint8, cut to the length or padded with zero bytes."""
    rows = [text.encode(errors="replace").replace(b"\0", b" ")[:num_bytes].ljust(num_bytes, b"\0") for text in texts]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(texts), num_bytes)


def _dtype(array: types.ArraySpec) -> np.dtype[np.generic]:
    return np.dtype(array.dtype).newbyteorder("<")
