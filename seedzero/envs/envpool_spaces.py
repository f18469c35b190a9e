"""Converts EnvPool's spaces to an `EnvSpec`: corrects their declarations, then reads them like Gymnasium's.

EnvPool 1.2 declares some bounds as the smallest and largest float, puts an image's channels first, and declares
MiniGrid's cells, numbers up to 10, as bytes up to 255.

Shape letters: E environments of one group, H height, W width, C channels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from gymnasium import spaces

from seedzero.core import errors, types
from seedzero.envs import env_base, gym_spaces, gym_wrappers, space_text

WRAPPERS = ("BoundAction", "FilterObservation")
"""Names in --env.wrappers that work with a pool, because they change declarations, not steps."""
TEXT = "mission"
"""MiniGrid's task in words, as bytes padded with zeros; left out unless a FilterObservation names it."""
LARGEST_CELL = 10
"""The largest number for an object, colour or state in MiniGrid's pictures."""


def read(
    name: str,
    observation: spaces.Space[Any],
    action: spaces.Space[Any],
    wrappers: Sequence[gym_wrappers.Wrapper],
) -> tuple[types.EnvSpec, gym_spaces.Coder, gym_spaces.Coder]:
    """Returns the spec of a pool's environments, the encoder of observations [E, ...], and the decoder of actions.

    Raises EnvironmentFailure for an unsupported space, or a wrapper that does not fit it.
    """
    shown, taken = _without_text(_repaired(observation), wrappers), _repaired(action)
    for wrapper in wrappers:
        with env_base.failures_of(f"--env.wrappers: {wrapper.name} cannot wrap environment {name!r}"):
            if wrapper.name == "BoundAction":
                taken = gym_wrappers.bounded(taken, **wrapper.arguments)
            elif wrapper.name == "FilterObservation":
                shown = _filtered(shown, **wrapper.arguments)
            else:
                raise errors.EnvironmentFailure(
                    f"--env.wrappers names {wrapper.name}, but EnvPool steps its environments in C++; only "
                    f"{' and '.join(WRAPPERS)} go with envpool:, others with gym:ID"
                )
    if isinstance(shown, spaces.Dict) and list(shown.spaces) == [TEXT]:
        raise errors.EnvironmentFailure(f"environment {name!r} shows {TEXT}, a text, alone; name an array beside it")
    return of_pool(name, shown, taken)


def of_pool(
    name: str, shown: spaces.Space[Any], taken: spaces.Space[Any]
) -> tuple[types.EnvSpec, gym_spaces.Coder, gym_spaces.Coder]:
    """Returns the same for corrected spaces of observations and actions."""
    spec, encode, decode = gym_spaces.read(name, channels_last(shown), taken)
    packed = (dataclasses.replace(array, text=array.name == TEXT) for array in spec.packed)
    text = space_text.write(space_text.Pair(shown, taken, channels_first=True))
    spec = dataclasses.replace(spec, packed=tuple(packed), spaces=text)
    return spec, lambda batch: encode(_moved(shown, batch)), decode


def _repaired(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Returns the space with infinite bounds where they were the smallest and largest float."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _repaired(part) for key, part in space.spaces.items()})
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return space
    extremes = np.finfo(space.dtype)
    # numeric_limits<double>::min() is the smallest positive number, but was meant as the lowest one.
    low = np.where(np.isin(space.low, (extremes.tiny, extremes.min)), -np.inf, space.low)
    high = np.where(space.high == extremes.max, np.inf, space.high)
    return spaces.Box(low, high, dtype=space.dtype.type)


def _without_text(space: spaces.Space[Any], wrappers: Sequence[gym_wrappers.Wrapper]) -> spaces.Space[Any]:
    """Returns MiniGrid's observations with the true range of cells, and without text unless it is requested."""
    if not isinstance(space, spaces.Dict) or TEXT not in space.spaces:
        return space
    parts = dict(space.spaces)
    if isinstance(image := parts.get("image"), spaces.Box):
        parts["image"] = spaces.Box(0, LARGEST_CELL, image.shape, np.uint8)
    if not any(TEXT in wrapper.arguments.get("filter_keys", ()) for wrapper in wrappers):
        del parts[TEXT]
    return spaces.Dict(parts)


def _filtered(space: spaces.Space[Any], filter_keys: Sequence[str]) -> spaces.Space[Any]:
    parts: Mapping[str, spaces.Space[Any]] = space.spaces if isinstance(space, spaces.Dict) else {}
    if missing := [key for key in filter_keys if key not in parts]:
        raise ValueError(f"there is no {', '.join(missing)}; the arrays are {', '.join(parts) or 'not named'}")
    return spaces.Dict({key: parts[key] for key in filter_keys})


def _is_channels_first(space: spaces.Space[Any]) -> TypeGuard[spaces.Box]:
    """Returns whether a space is an image [C, H, W]."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) != 3:
        return False
    channels, *sides = space.shape
    return min(sides) >= types.SMALLEST_IMAGE and channels < min(sides)


def channels_last(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Returns the space with images [H, W, C] instead of [C, H, W]."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: channels_last(part) for key, part in space.spaces.items()})
    return gym_wrappers.channels_last(space) if _is_channels_first(space) else space


def _moved(space: spaces.Space[Any], batch: Any) -> Any:
    """Returns those arrays of a batch that the space has, with images as [E, H, W, C]."""
    if isinstance(space, spaces.Dict):
        return {key: _moved(part, batch[key]) for key, part in space.spaces.items()}
    return np.moveaxis(batch, 1, -1) if _is_channels_first(space) else batch
