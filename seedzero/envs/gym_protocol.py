"""Checks an environment against Gymnasium's protocol by a reset and a step; a sentence for each fault.

Gymnasium's own groups of environments would raise in numpy, far from the mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seedzero.core import errors
from seedzero.envs import base as env_base

_STEP = "(observation, reward, terminated, truncated, info)"
_MEND = "mend it there, or in a wrapper that a function of yours returns: --env=python:MODULE:FUNCTION"


def check(
    name: str, env: gymnasium.Env[Any, Any], num_steps: int = 1, *, goes_on: Callable[[], bool] = lambda: True
) -> None:
    """Resets an environment and steps it; the next use must begin with a reset.

    EnvironmentFailure: it raised, or returned something else than its spaces and Gymnasium's interface say.
    """
    env.action_space.seed(1)  # not that of the resets, whose numbers it would draw
    is_over = True
    for _ in range(num_steps):
        if is_over:
            _reset(name, env)
        is_over = _step(name, env)
        if not goes_on():
            return


def _reset(name: str, env: gymnasium.Env[Any, Any]) -> None:
    call = f"environment {name!r} returned in reset"
    with env_base.failures_of(f"environment {name!r} raised in reset"):
        shown = env.reset(seed=0)
    if not (isinstance(shown, tuple) and len(shown) == 2 and isinstance(shown[1], Mapping)):
        raise _wrong(call, f"{_described(shown)}; expected (observation, info), info a dict")
    _check_observation(call, env.observation_space, shown[0])


def _step(name: str, env: gymnasium.Env[Any, Any]) -> bool:
    """Returns whether the episode is over."""
    call = f"environment {name!r} returned in step"
    with env_base.failures_of(f"environment {name!r} raised in step"):
        try:
            after: Any = env.step(env.action_space.sample())
        except ValueError as error:
            if not _is_unpacking(error):
                raise
            raise _wrong(call, f"the wrong number of values ({error}); expected {_STEP}") from error
    if not (isinstance(after, tuple) and len(after) == 5):
        raise _wrong(call, f"{_described(after)}; expected {_STEP}")
    for part, value in zip(("reward", "terminated", "truncated"), after[1:4], strict=True):
        array = _array(call, part, value)
        if array.dtype.kind not in "biuf" or array.size != 1:
            raise _wrong(call, f"{_described(value)} as {part}; expected one number or truth value")
    _check_observation(call, env.observation_space, after[0])
    return bool(np.any(after[2]) or np.any(after[3]))


def _is_unpacking(error: ValueError) -> bool:
    """Returns whether one of Gymnasium's wrappers got too few or too many values, not a user's own code."""
    code, frame = "", error.__traceback__
    while frame is not None:
        code, frame = frame.tb_frame.f_globals.get("__name__", ""), frame.tb_next
    return code.startswith(("gymnasium.core", "gymnasium.wrappers.")) and "to unpack" in str(error)


def _wrong(call: str, what: str) -> errors.EnvironmentFailure:
    return errors.EnvironmentFailure(f"{call} {what}; {_MEND}")


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}{list(value.shape)}"
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"{value!r:.40}" if value is None else f"a {type(value).__name__}"


def _array(call: str, title: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except Exception as error:  # a value may bring a conversion of its own: foreign code
        reason = env_base.told(error)
        raise _wrong(call, f"{_described(value)} as {title}, which numpy cannot read ({reason})") from error


def _check_observation(call: str, space: spaces.Space[Any], value: Any, place: str = "") -> None:
    """Raises for an observation's part with a shape, dtype or whole number other than the space's."""
    title = f"the observation{place}"
    parts: dict[Any, spaces.Space[Any]]
    if isinstance(space, spaces.Dict):
        parts, fits = dict(space.spaces), isinstance(value, Mapping) and space.spaces.keys() <= value.keys()
    elif isinstance(space, spaces.Tuple):
        parts, fits = dict(enumerate(space.spaces)), isinstance(value, tuple | list) and len(value) == len(space)
    else:
        array = _array(call, title, value)
        if array.shape != (space.shape or ()):
            raise _wrong(call, f"{title} with shape {list(array.shape)}; its space says {list(space.shape or ())}")
        if space.dtype is not None and not np.can_cast(array.dtype, space.dtype, "same_kind"):
            raise _wrong(call, f"{title} of dtype {array.dtype}; its space says {space.dtype}")
        if (outside := _outside(space, array)) is not None:
            raise _wrong(call, f"{title} with the value {outside}; its space says {space}")
        return
    if not fits:
        raise _wrong(call, f"{_described(value)} as {title}; its space has the parts {', '.join(map(str, parts))}")
    for key, part in parts.items():
        _check_observation(call, part, value[key], f"{place}, at {key!r}")


def _outside(space: spaces.Space[Any], array: np.ndarray) -> Any:
    """Returns a number outside the space, for which another would be stored; None: all are inside."""
    if isinstance(space, spaces.Discrete):
        low, high = space.start, space.start + space.n - 1
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    elif isinstance(space, spaces.Box) and space.dtype.kind in "iu" and array.dtype.kind in "iu":
        low, high = np.iinfo(space.dtype.name).min, np.iinfo(space.dtype.name).max
    else:
        return None
    wrong = array[(array < low) | (array > high)]
    return wrong.reshape(-1)[0] if wrong.size else None
