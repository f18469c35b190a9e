"""Converts an environment's own observations and actions inside of exported programs, as `codecs` does outside.

Shape letters: B rows (environments).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from seedzero.actors import codecs
from seedzero.core import errors, types
from seedzero.envs import gym_masks, gym_spaces
from seedzero.ops import unpacking


class Values(NamedTuple):
    """A program's inputs and outputs in the form that the environment uses.

    inputs: name -> shape [1, ...] and dtype of each array of an observation, "observation" or "observation/PART";
      64-bit types become 32-bit ones, and integers become float32 if the agent takes them so.
    encode: {name: [B, ...]} -> the agent's [B, *observation_shape].
    decode: the agent's actions [B] or [B, D] -> a batch of the environment's action space.
    mask_size: number of values N in an action mask of the environment.
    legal: masks [B, N] bool -> the agent's [B, A] bool.
    """

    inputs: dict[str, jax.ShapeDtypeStruct]
    encode: Callable[[Mapping[str, jax.Array]], jax.Array]
    decode: Callable[[jax.Array], jax.Array]
    mask_size: int
    legal: Callable[[jax.Array], jax.Array]


def of(spec: types.EnvSpec) -> Values:
    """Returns a run's values. Raises ResumeError as `codecs.of` does, and UsageError for actions that need 64 bits."""
    codec = codecs.of(spec)
    found = gym_spaces.leaves("of this run", codec.learned_space)
    leaves = {"/".join([types.OBSERVATION, *map(str, leaf.path)]): leaf for leaf in found}
    shown = {name: _part(codec.observation_space, leaf.path) for name, leaf in leaves.items()}
    moved = {name for name, leaf in leaves.items() if shown[name].shape != _part(codec.learned_space, leaf.path).shape}

    def encode(inputs: Mapping[str, jax.Array]) -> jax.Array:
        arrays: dict[str, jax.Array] = {}
        for name, leaf in leaves.items():
            batch: Any = jnp.moveaxis(inputs[name], 1, -1) if name in moved else inputs[name]
            arrays[leaf.spec.name] = jnp.asarray(leaf.encode(batch)).reshape(batch.shape[0], *leaf.spec.shape)
        if spec.packed:
            return unpacking.pack(spec.packed, arrays)
        (array,) = arrays.values()
        return array.reshape(array.shape[0], *spec.observation_shape).astype(spec.observation_dtype)

    inputs = {
        name: jax.ShapeDtypeStruct((1, *(space.shape or ())), _input_dtype(space, leaves[name]))
        for name, space in shown.items()
    }
    sizes = gym_spaces.action_sizes(codec.action_space) or [spec.num_actions]
    return Values(inputs, encode, _decoder(spec, codec), sum(sizes), lambda mask: gym_masks.joint(mask, sizes))


def _part(space: Any, path: tuple[Any, ...]) -> spaces.Space[Any]:
    for key in path:
        space = space[key]
    found: spaces.Space[Any] = space
    return found


def _input_dtype(space: spaces.Space[Any], leaf: gym_spaces.SpaceLeaf) -> np.dtype[Any]:
    is_wide = isinstance(space, spaces.Box) and space.dtype.kind in "iu" and space.dtype.itemsize == 8
    return np.dtype(leaf.spec.dtype) if is_wide else _dtype(space)


def _dtype(space: spaces.Space[Any]) -> np.dtype[Any]:
    return jax.dtypes.canonicalize_dtype(space.dtype)


def _decoder(spec: types.EnvSpec, codec: codecs.Codec) -> Callable[[jax.Array], jax.Array]:
    space = codec.action_space
    dtype = _dtype(space)
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        _check_fits(space, np.array([start, start + int(space.n) - 1]), dtype)
        return lambda actions: (actions + start).astype(dtype)
    if isinstance(space, spaces.Box) and spec.is_continuous:
        low, high = (np.asarray(bound, dtype) for bound in (space.low, space.high))
        # After rounding to 32 bits they may be out of bounds.
        low = np.where(low < space.low, np.nextafter(low, dtype.type(np.inf)), low)
        high = np.where(high > space.high, np.nextafter(high, dtype.type(-np.inf)), high)
        return lambda actions: jnp.clip(actions.reshape(actions.shape[0], *low.shape), low, high).astype(dtype)
    exact = codec.to_actions(np.arange(spec.num_actions))
    _check_fits(space, exact, dtype)
    table = exact.astype(dtype)
    return lambda actions: jnp.asarray(table)[actions]


def _check_fits(space: spaces.Space[Any], values: np.ndarray, dtype: np.dtype[Any]) -> None:
    if not np.array_equal(values.astype(dtype), values):
        raise errors.UsageError(
            f"actions are of {space}, whose numbers need 64 bits; programs have {dtype}: use `seedzero.load`"
        )
