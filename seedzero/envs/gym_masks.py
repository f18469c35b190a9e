"""Reads the action masks of Gymnasium environments in one of three ways; if several are present, the first is used.

- a Dict of observations has the key `action_mask` (PettingZoo, RLlib), which is then not part of the observation;
- the environment or a wrapper has a method `action_masks()` (Stable-Baselines3 contrib);
- `info["action_mask"]` comes with every `reset` and `step`.

Shape letters: A actions, N values of a mask: A, or with several whole numbers the values of each in turn.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces

KEY, METHOD = "action_mask", "action_masks"
IGNORE = "--env.action_mask=false ignores it"

Array = TypeVar("Array", bound=Any)
Finder = Callable[[Any, Mapping[str, Any]], Any]
"""Maps (observation, info) of a reset or step to the mask as the environment shows it, or None."""


def is_part(observation: spaces.Space[Any]) -> bool:
    """Returns whether a space of observations includes a mask."""
    return isinstance(observation, spaces.Dict) and KEY in observation.spaces


def without(observation: Any) -> spaces.Space[Any]:
    """Returns the space of observations without its mask, if it has one."""
    if not is_part(observation):
        return observation  # type: ignore[no-any-return]
    return spaces.Dict([part for part in observation.spaces.items() if part[0] != KEY])


def finder(env: gymnasium.Env[Any, Any]) -> tuple[str, Finder]:
    """Returns where an environment shows masks, in words, and a function that finds them."""
    if is_part(env.observation_space):
        return f"the part {KEY!r} of observations", lambda observation, info: observation[KEY]
    if env.has_wrapper_attr(METHOD):
        method = env.get_wrapper_attr(METHOD)
        return f"{METHOD}()", lambda observation, info: method()
    return f"info[{KEY!r}]", lambda observation, info: info.get(KEY)


def read(value: Any, sizes: Sequence[int]) -> np.ndarray:
    """Converts an environment's mask of 0 and 1, or truth values, to [A] bool. It is [N], or a tuple of arrays.

    sizes: the numbers of values of each whole number in an action (`gym_spaces.action_sizes`). Raises ValueError, with
    what was expected, for a mask with another length, type or value.
    """
    try:
        array = np.concatenate(value) if isinstance(value, tuple) and len(sizes) > 1 else np.asarray(value)
    except Exception as error:  # converts by a value's own method, which is foreign code
        raise ValueError(f"an {KEY} that numpy cannot read ({type(error).__name__})") from error
    if array.shape != (sum(sizes),):
        of_each = f": {' + '.join(map(str, sizes))}" if len(sizes) > 1 else ""
        raise ValueError(f"an {KEY} of shape {list(array.shape)}; expected [{sum(sizes)}]{of_each} ({IGNORE})")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"an {KEY} of dtype {array.dtype}; expected 0 and 1, or truth values, 1: legal")
    if not (is_wrong := ~np.isin(array, (0, 1))).any():
        return joint(array == 1, sizes)
    raise ValueError(f"an {KEY} with the value {array[is_wrong][0]}; expected 0 and 1, or truth values, 1: legal")


def joint(mask: Array, sizes: Sequence[int]) -> Array:
    """Converts masks [..., N] bool to [..., A] bool, in numpy or JAX; a combination of legal numbers is legal."""
    if len(sizes) == 1:
        return mask
    legal: Array = mask[..., _places(tuple(sizes))].all(axis=-1)
    return legal


@functools.cache
def _places(sizes: tuple[int, ...]) -> np.ndarray:
    """Returns, for each combination, the indices of its P numbers in a mask, [A, P]."""
    numbers = np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), axis=-1)
    places: np.ndarray = numbers + np.cumsum((0, *sizes[:-1]))
    return places
