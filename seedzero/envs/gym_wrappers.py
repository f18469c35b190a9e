"""Applies the wrappers in --env.wrappers: Gymnasium's for observations, rewards and actions, and our own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers

from seedzero.config import configs
from seedzero.core import errors
from seedzero.envs import env_base

_GYMNASIUMS = (
    "ClipAction",
    "ClipReward",
    "DelayObservation",
    "DiscretizeAction",
    "FilterObservation",
    "FlattenObservation",
    "GrayscaleObservation",
    "MaxAndSkipObservation",
    "RepeatAction",
    "RescaleObservation",
    "ReshapeObservation",
    "ResizeObservation",
    "StickyAction",
    "TimeAwareObservation",
)
"""Other wrappers keep statistics that no checkpoint has, record, or need JAX; the learner stacks frames."""

_FORM = """--env.wrappers='["GrayscaleObservation", {"ResizeObservation": {"shape": [64, 64]}}]'"""
_ARRAYS = ("min_action", "max_action", "min_obs", "max_obs", "low", "high")
"""Arguments whose lists become arrays; other lists become tuples."""


_Env = gymnasium.Env[Any, Any]

STATISTICS = {
    "NormalizeObservation": "--network.normalize_observations=true",
    "NormalizeReward": "--reward.normalize=true",
}
"""Wrapper that keeps statistics -> the setting that does the same, and saves them."""


class Wrapper(NamedTuple):
    """A wrapper's name and arguments."""

    name: str
    arguments: dict[str, Any]


def _bound_action(env: _Env, low: Any, high: Any) -> _Env:
    """Declares the user's bounds for continuous actions, which pass unchanged; an environment may declare none."""
    return wrappers.TransformAction(env, lambda action: action, bounded(env.action_space, low, high))


def bounded(space: spaces.Space[Any], low: Any, high: Any) -> spaces.Box:
    """Returns a Box of actions with other bounds, numbers or arrays of the Box's shape.

    Raises TypeError for other spaces.
    """
    if not isinstance(space, spaces.Box):
        raise TypeError(f"expected a Box of actions, got {space}")
    low, high = (np.broadcast_to(np.asarray(bound, space.dtype), space.shape) for bound in (low, high))
    return spaces.Box(low, high, dtype=space.dtype.type)


def _rescale_action(env: _Env, min_action: Any, max_action: Any) -> _Env:
    """Rescales actions by Gymnasium's wrapper, and clips rounding errors beyond the environment's bounds."""
    space = env.action_space
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        raise TypeError(f"expected a Box of floats, got {space}")

    def clip(action: Any) -> Any:
        return np.clip(action, space.low, space.high).astype(space.dtype)

    return wrappers.RescaleAction(wrappers.TransformAction(env, clip, space), min_action, max_action)


def _select_observation(env: _Env, key: str) -> _Env:
    """Selects one part of a Dict of observations, for wrappers that take arrays."""
    space = env.observation_space
    if not isinstance(space, spaces.Dict) or key not in space.spaces:
        raise TypeError(f"expected a Dict of observations with {key}, got {space}")
    return wrappers.TransformObservation(env, lambda observation: observation[key], space.spaces[key])


def _channels_last(env: _Env) -> _Env:
    """Moves the channels of images [channels, height, width] to the end."""
    space = env.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        raise TypeError(f"expected a Box of three dimensions, got {space}")
    return wrappers.TransformObservation(env, lambda image: np.moveaxis(image, 0, -1), channels_last(space))


def channels_last(space: spaces.Box) -> spaces.Box:
    """Returns a Box of [height, width, channels] for one of [channels, height, width]."""
    low, high = (np.moveaxis(bound, 0, -1) for bound in (space.low, space.high))
    return spaces.Box(low, high, dtype=space.dtype.type)


OWN: Mapping[str, Callable[..., _Env]] = {
    "BoundAction": _bound_action,
    "ChannelsLast": _channels_last,
    "RescaleAction": _rescale_action,
    "SelectObservation": _select_observation,
}
"""Wrappers that Gymnasium lacks, or implements differently."""
NAMES = tuple(sorted((*_GYMNASIUMS, *OWN)))


def parse(text: str) -> tuple[Wrapper, ...]:
    """Parses env.wrappers, the innermost first. Raises EnvironmentFailure for other forms or names."""
    reason = ""
    try:
        entries = json.loads(text or "[]")
    except ValueError as error:
        entries, reason = None, f" ({error})"
    if not isinstance(entries, list):
        raise errors.EnvironmentFailure(f"--env.wrappers={text} must be a JSON list{reason}, such as {_FORM}")
    return tuple(_parse_one(text, entry) for entry in entries)


def _parse_one(text: str, entry: Any) -> Wrapper:
    named = {entry: {}} if isinstance(entry, str) else entry
    if not isinstance(named, dict) or len(named) != 1 or not isinstance(next(iter(named.values())), dict):
        raise errors.EnvironmentFailure(
            f"--env.wrappers={text} has {json.dumps(entry)}; expected a name, or an object of one name and its "
            f"arguments, as in {_FORM}"
        )
    ((name, arguments),) = named.items()
    if name not in NAMES:
        nearest = configs.nearest(name, NAMES)
        hint = f"did you mean {nearest}?" if nearest else f"choose from {', '.join(NAMES)}"
        stack = "; frames are stacked with --network.frame_stack=N" if "Stack" in name else ""
        raise errors.EnvironmentFailure(f"--env.wrappers names {name!r}, which is not supported; {hint}{stack}")
    return Wrapper(name, {key: _argument(key, value) for key, value in arguments.items()})


def _argument(name: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return np.asarray(value, np.float32) if name in _ARRAYS else tuple(value)


def change_rewards(chosen: Sequence[Wrapper]) -> bool:
    """Returns whether wrappers change returns."""
    known = (getattr(wrappers, name) for name, _ in chosen if name not in OWN)
    return any(issubclass(wrapper, gymnasium.RewardWrapper) for wrapper in known)


def apply(env: _Env, chosen: Sequence[Wrapper]) -> _Env:
    """Wraps an environment, by the first wrapper innermost. Raises EnvironmentFailure for one that does not fit."""
    for name, arguments in chosen:
        make = OWN[name] if name in OWN else getattr(wrappers, name)
        shown = ", ".join(f"{key}={value}" for key, value in arguments.items())
        with env_base.failures_of(f"--env.wrappers: {name}({shown}) cannot wrap this environment"):
            dtype = env.observation_space.dtype
            if name == "RescaleObservation" and dtype is not None and dtype.kind != "f":
                raise TypeError(f"it would round observations of {dtype}; leave it out, networks scale whole numbers")
            env = make(env, **arguments)
    return env


def keeping_statistics(env: _Env) -> tuple[str, ...]:
    """Returns the names of an environment's wrappers that keep statistics, of which no checkpoint knows."""
    found = set[str]()
    while isinstance(env, gymnasium.Wrapper):
        found |= {kind.__name__ for kind in type(env).__mro__ if kind.__module__.startswith("gymnasium.wrappers")}
        env = env.env
    return tuple(sorted(found & STATISTICS.keys()))
