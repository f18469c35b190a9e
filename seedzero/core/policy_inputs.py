"""What callers give to a policy beside observations, checked: for an agent here, and for one behind a server.

Without JAX. Shape letters: B rows (environments), A actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import typing as npt

from seedzero.core import errors, types


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
    if action_mask is None:
        return rewards, None
    return rewards, _rows_of("action_mask", action_mask, (len(first), spec.num_actions), bool, is_single)


def array_of(name: str, value: npt.ArrayLike) -> np.ndarray:
    """Returns a caller's value as an array. Raises UsageError, with its name, for a ragged list."""
    try:
        return np.asarray(value)
    except ValueError:
        raise errors.UsageError(f"{name} is no array: its parts have different shapes") from None


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
    return array.astype(dtype)
