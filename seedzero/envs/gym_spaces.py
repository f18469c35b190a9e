"""Converts Gymnasium's spaces to an `EnvSpec`, and batches between the environment's form and the wire's.

The observations of a Dict or Tuple become named arrays: nested names are joined by "/", and parts of a Tuple are
numbered.

Shape letters: E environments of one group, D numbers of a continuous action.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from seedzero.core import errors, packing, types
from seedzero.envs import gym_masks, space_text

MAX_ONE_HOT = 1024
"""Whole numbers with more values than this, altogether, are passed on unchanged instead of one-hot."""
MAX_COMBINATIONS = 1024
"""Actions of several whole numbers with more combinations than this are rejected."""

MAX_TEXT = 2**20
"""Most characters of described spaces.

Longer ones, for example with a hundred thousand different numbers, are not reported.
"""

_OWN = "wrap it in an environment of your own that has one, and give that as gym:MODULE:ID"
_OUT = """leave it out with --env.wrappers='[{"FilterObservation": {"filter_keys": [...]}}]', the parts that stay"""

Coder = Callable[[Any], np.ndarray]
"""Converts batches to or from the wire's form: observations [E, ...], actions [E] int32 or [E, D] float32."""


class SpaceLeaf(NamedTuple):
    """An array in an observation."""

    spec: types.ArraySpec
    path: tuple[Any, ...]  # keys that lead from the observation to the array
    encode: Coder  # batch of the space -> [E, *shape] numbers, from numpy's arrays or JAX's
    num_states: int = 0  # values of a number encoded as one-hot; 0 for other arrays


def read(
    name: str, observation: spaces.Space[Any], action: spaces.Space[Any], *, masks: bool = False
) -> tuple[types.EnvSpec, Coder, Coder]:
    """Returns the spec of environment `name`, the encoder of observations to [E, ...], and the decoder of actions.

    The encoder takes a batch of the space (as `gymnasium.vector.utils.batch_space`), and the decoder returns one.
    masks: whether a part `action_mask` of observations masks the actions, instead of being encoded. Raises
    EnvironmentFailure for an unsupported space.
    """
    actions, decode = _read_actions(name, action)
    actions["has_action_mask"] = masks and bool(actions["num_actions"]) and gym_masks.is_part(observation)
    found = list(leaves(name, gym_masks.without(observation) if actions["has_action_mask"] else observation))
    if not found:
        raise errors.EnvironmentFailure(f"environment {name!r} has the observation space {observation}; it is empty")
    arrays = [leaf.spec for leaf in found]
    titles = [array.name for array in arrays]
    if repeated := {title for title in titles if titles.count(title) > 1}:
        raise errors.EnvironmentFailure(
            f"environment {name!r} has the observation space {observation}, whose parts have the names "
            f"{', '.join(titles)}; expected {', '.join(sorted(repeated))} once: rename a part"
        )
    text = space_text.write(space_text.Pair(observation, action))
    actions["spaces"] = text if len(text) <= MAX_TEXT else ""
    if len(found) > 1:

        def pack(batch: Any) -> np.ndarray:
            return packing.pack(arrays, {leaf.spec.name: _array(leaf, batch) for leaf in found})

        return types.EnvSpec.of_arrays(arrays, **actions), pack, decode
    array, num_states = arrays[0], found[0].num_states
    # A single one-hot vector has always been float32.
    dtype = "float32" if num_states else array.dtype
    spec = types.EnvSpec(
        array.shape, dtype, observation_low=array.low, observation_high=array.high, num_states=num_states, **actions
    )
    return spec, lambda batch: _array(found[0], batch).astype(dtype), decode


def _array(leaf: SpaceLeaf, batch: Any) -> np.ndarray:
    """Encodes a batch of observations as [E, *shape]."""
    for key in leaf.path:
        batch = batch[key]
    return leaf.encode(batch).reshape(len(batch), *leaf.spec.shape)


# Observations ------------------------------------------------------------------------------------------------------


def leaves(name: str, space: spaces.Space[Any], path: tuple[Any, ...] = ()) -> Iterator[SpaceLeaf]:
    """Yields the arrays of environment `name`'s observations. Raises EnvironmentFailure for an unsupported space."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield _leaf(name, space, path)
        return
    for key, part in space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces):
        yield from leaves(name, part, (*path, key))


def _leaf(name: str, space: spaces.Space[Any], path: tuple[Any, ...]) -> SpaceLeaf:
    title = "/".join(map(str, path)) or types.OBSERVATION
    place, way = (f" at {title!r}", _OUT) if path else ("", _OWN)
    if 0 in (space.shape or ()):
        raise errors.EnvironmentFailure(f"environment {name!r} has no number in observation{place}, {space}; {way}")
    if isinstance(space, spaces.Box) and space.dtype.kind in "biuf":
        array = types.ArraySpec(title, space.shape or (1,), _wire_dtype(space), *_bounds(space))
        return SpaceLeaf(array, path, _unchanged)
    if isinstance(space, spaces.MultiBinary):
        return SpaceLeaf(types.ArraySpec(title, space.shape, "uint8", 0, 1), path, _unchanged)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return _numbers(title, space, path)
    raise errors.EnvironmentFailure(
        f"environment {name!r} has the observation space {space}{place}; expected Box, Discrete, MultiDiscrete, "
        f"MultiBinary, Dict or Tuple; {way}"
    )


def _numbers(title: str, space: spaces.Discrete | spaces.MultiDiscrete, path: tuple[Any, ...]) -> SpaceLeaf:
    """Encodes whole numbers as concatenated one-hot vectors, or leaves them unchanged if these would be very long."""
    sizes = np.reshape(space.n if isinstance(space, spaces.Discrete) else space.nvec, -1)
    starts = np.reshape(space.start, -1)
    if sizes.sum() > MAX_ONE_HOT:
        low, high = float(starts.min()), float((starts + sizes - 1).max())
        dtype = "int32" if low >= -(2**31) and high < 2**31 else "float32"
        return SpaceLeaf(types.ArraySpec(title, space.shape or (1,), dtype, low, high), path, _unchanged)
    values = np.concatenate([np.arange(size) + start for size, start in zip(sizes, starts, strict=True)])
    owner = np.repeat(np.arange(len(sizes)), sizes)  # index of the number that each value belongs to
    array = types.ArraySpec(title, (len(values),), "uint8", 0, 1)
    num_states = int(space.n) if isinstance(space, spaces.Discrete) else 0
    return SpaceLeaf(array, path, lambda batch: batch.reshape(batch.shape[0], -1)[:, owner] == values, num_states)


def _unchanged(batch: np.ndarray) -> np.ndarray:
    return batch


def _bounds(box: spaces.Box) -> tuple[float, float]:
    """Returns the smallest and the largest value of a Box's elements, infinite if they are unbounded."""
    has_low, has_high = box.bounded_below.all(), box.bounded_above.all()
    if box.dtype.kind in "iu" and box.dtype.itemsize >= 4:  # bounds at the limits of such a type say nothing
        limits = np.iinfo(box.dtype.name)
        has_low &= limits.min == 0 or box.low.min() > limits.min
        has_high &= box.high.max() < limits.max
    return float(box.low.min()) if has_low else -math.inf, float(box.high.max()) if has_high else math.inf


def _wire_dtype(box: spaces.Box) -> str:
    if box.dtype in (np.uint8, np.bool_):
        return "uint8"
    bounds = np.iinfo(np.int32)
    is_int32 = box.dtype.kind in "iu" and box.low.min() >= bounds.min and box.high.max() <= bounds.max
    return "int32" if is_int32 else "float32"


# Actions -----------------------------------------------------------------------------------------------------------


def action_sizes(space: spaces.Space[Any]) -> list[int]:
    """Returns the numbers of values of each whole number in an action.

    Empty for continuous actions and other spaces.
    """
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiBinary):
        return [2] * math.prod(space.shape)
    if isinstance(space, spaces.MultiDiscrete):
        return [int(size) for size in space.nvec.reshape(-1)]
    if isinstance(space, spaces.Box) and space.dtype.kind in "iu" and space.low.size:
        numbers = np.asarray(space.high.astype(object) - space.low.astype(object) + 1)  # exact for every dtype
        found = [int(size) for size in numbers.reshape(-1)]
        return found if max(found) <= MAX_COMBINATIONS else []
    return []


def _read_actions(name: str, space: spaces.Space[Any]) -> tuple[dict[str, Any], Coder]:
    """Returns the spec's fields for actions, and the decoder of actions."""
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return dict(num_actions=int(space.n)), lambda actions: (actions.astype(np.int64) + first).astype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return _read_combinations(name, space, np.zeros(space.shape, np.int64))
    if isinstance(space, spaces.MultiDiscrete):
        return _read_combinations(name, space, space.start)
    if isinstance(space, spaces.Box) and action_sizes(space):
        return _read_combinations(name, space, space.low.astype(np.int64))
    if not isinstance(space, spaces.Box):
        raise errors.EnvironmentFailure(
            f"environment {name!r} has the action space {space}; expected Discrete, MultiDiscrete, MultiBinary or "
            f"Box, because actions made of parts are not supported yet: {_OWN}"
        )
    low, high = (np.asarray(bound, np.float32) for bound in (space.low, space.high))
    if remedy := _bounds_remedy(space, low, high):
        raise errors.EnvironmentFailure(
            f"environment {name!r} has the action space {space} of dtype {space.dtype}; a Box of actions must have "
            f"floats of finite bounds, the lower below the upper one, or at most {MAX_COMBINATIONS} whole numbers: "
            f"{remedy}"
        )

    def decode(actions: np.ndarray) -> np.ndarray:
        # Rounded to float32, bounds may be an ulp outside those of a Box of float64.
        batch: np.ndarray = np.clip(actions.reshape(len(actions), *space.shape), space.low, space.high)
        return batch.astype(space.dtype)

    bounds = (tuple(map(float, bound.reshape(-1))) for bound in (low, high))
    return dict(zip(("num_actions", "action_low", "action_high"), (0, *bounds), strict=True)), decode


def _bounds_remedy(space: spaces.Box, low: np.ndarray, high: np.ndarray) -> str:
    """Advises what to do about a Box that cannot be continuous actions; "" if it can.

    low, high: its bounds as float32.
    """
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(high - low)
    if space.dtype.kind != "f":
        return _OWN
    if not low.size:
        return f"this one has no numbers; {_OWN}"
    if not is_finite.all():
        # The wrapper replaces all bounds, so numbers that have both keep them; others get those nearest to 0.
        near = np.clip(0, low, high)
        lows, highs = np.maximum(low, near - 1), np.minimum(high, near + 1)
        given = {"low": _listed(np.where(is_finite, low, lows)), "high": _listed(np.where(is_finite, high, highs))}
        return f"""give bounds, such as --env.wrappers='[{{"BoundAction": {json.dumps(given)}}}]', or {_OWN}"""
    if not (fixed := np.flatnonzero(low >= high)).size:
        return ""
    return f"number {fixed[0]} has the bounds {low.flat[fixed[0]]:g} and {high.flat[fixed[0]]:g}; leave it out: {_OWN}"


def _listed(bounds: np.ndarray) -> Any:
    """Returns bounds for JSON, with as few digits as tell them apart: nested lists, or a number if all are equal."""
    values = bounds.astype(str).astype(float)  # 0.1 of float32, not 0.10000000149
    return values.flat[0] if (values == values.flat[0]).all() else values.tolist()


def _read_combinations(
    name: str, space: spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box, start: np.ndarray
) -> tuple[dict[str, Any], Coder]:
    """Returns the same for several whole numbers that count from `start`; each combination is an action."""
    sizes = action_sizes(space)
    num_actions = math.prod(sizes)
    if num_actions > MAX_COMBINATIONS:
        raise errors.EnvironmentFailure(
            f"environment {name!r} has the action space {space} with {num_actions} combinations; expected at most "
            f"{MAX_COMBINATIONS} (each is one action); offer fewer, or round numbers of a Box, in your own "
            "gym:MODULE:ID"
        )

    def decode(actions: np.ndarray) -> np.ndarray:
        numbers = np.stack(np.unravel_index(actions, sizes), axis=-1).reshape(len(actions), *space.shape)
        taken: np.ndarray = (numbers + start).astype(space.dtype)
        return taken

    return dict(num_actions=num_actions), decode
