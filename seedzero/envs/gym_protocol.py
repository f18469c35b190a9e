"""Whether an environment keeps Gymnasium's protocol: one reset and one step, and a sentence for what is wrong.

Gymnasium's own groups of environments would raise in numpy, far from the mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seedzero.core import errors
from seedzero.envs import base

_STEP = "(observation, reward, terminated, truncated, info)"
_MEND = "mend it there, or in a wrapper that a function of yours returns: --env=python:MODULE:FUNCTION"


def check(name: str, env: gymnasium.Env[Any, Any]) -> None:
    """Resets an environment and steps it once; its next use must begin with a reset.

    Raises:
      EnvironmentFailure: it raised, or returned something else than its spaces and Gymnasium's interface say.
    """
    with base.failures_of(f"environment {name!r} raised in reset"):
        shown = env.reset(seed=0)
    if not (isinstance(shown, tuple) and len(shown) == 2 and isinstance(shown[1], Mapping)):
        raise _wrong(name, "reset", f"{_described(shown)}; expected (observation, info), info a dict")
    for misfit in _misfits(env.observation_space, shown[0]):
        raise _wrong(name, "reset", misfit)
    env.action_space.seed(0)
    with base.failures_of(f"environment {name!r} raised in step"):
        try:
            after: Any = env.step(env.action_space.sample())
        except ValueError as error:
            if "to unpack" not in str(error):  # as a wrapper says that got too few or too many
                raise
            raise _wrong(name, "step", f"the wrong number of values ({error}); expected {_STEP}") from error
    if not (isinstance(after, tuple) and len(after) == 5):
        raise _wrong(name, "step", f"{_described(after)}; expected {_STEP}")
    for part, value in zip(("reward", "terminated", "truncated"), after[1:4], strict=True):
        if np.asarray(value).dtype.kind not in "biuf" or np.size(value) != 1:
            raise _wrong(name, "step", f"{_described(value)} as {part}; expected one number or truth value")
    for misfit in _misfits(env.observation_space, after[0]):
        raise _wrong(name, "step", misfit)


def _wrong(name: str, function: str, what: str) -> errors.EnvironmentFailure:
    return errors.EnvironmentFailure(f"environment {name!r} returned in {function} {what}; {_MEND}")


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}{list(value.shape)}"
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"{value!r:.40}" if value is None else f"a {type(value).__name__}"


def _misfits(space: spaces.Space[Any], value: Any, place: str = "") -> Iterator[str]:
    """Yields sentences about an observation's parts that have not the shapes of its space."""
    title = f"the observation{place}"
    parts: dict[Any, spaces.Space[Any]]
    if isinstance(space, spaces.Dict):
        parts, fits = dict(space.spaces), isinstance(value, Mapping) and space.spaces.keys() <= value.keys()
    elif isinstance(space, spaces.Tuple):
        parts, fits = dict(enumerate(space.spaces)), isinstance(value, tuple | list) and len(value) == len(space)
    else:
        parts, fits = {}, True
        if np.shape(value) != (space.shape or ()):
            yield f"{title} with shape {list(np.shape(value))}; its space says {list(space.shape or ())}"
    if not fits:
        yield f"{_described(value)} as {title}; its space has the parts {', '.join(map(str, parts))}"
        return
    for key, part in parts.items():
        yield from _misfits(part, value[key], f"{place}, at {key!r}")
