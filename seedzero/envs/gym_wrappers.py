"""The wrappers of --env.wrappers: Gymnasium's wrappers of observations, rewards and actions, and our own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers

from seedzero.config import config as configs
from seedzero.core import errors
from seedzero.envs import base as env_base

NAMES = (
    "BoundAction",
    "ChannelsLast",
    "ClipAction",
    "ClipReward",
    "DelayObservation",
    "DiscretizeAction",
    "FilterObservation",
    "FlattenObservation",
    "GrayscaleObservation",
    "MaxAndSkipObservation",
    "RepeatAction",
    "RescaleAction",
    "RescaleObservation",
    "ReshapeObservation",
    "ResizeObservation",
    "SelectObservation",
    "StickyAction",
    "TimeAwareObservation",
)
"""Others keep statistics that no checkpoint has, record, or need JAX; frames are stacked by the learner."""

_FORM = """--env.wrappers='["GrayscaleObservation", {"ResizeObservation": {"shape": [64, 64]}}]'"""
_ARRAYS = ("min_action", "max_action", "min_obs", "max_obs", "low", "high")
"""Arguments that are arrays where they are lists; other lists are tuples."""


class Wrapper(NamedTuple):
    """A wrapper's name and arguments."""

    name: str
    arguments: dict[str, Any]


class BoundAction(gymnasium.ActionWrapper[Any, Any, Any]):
    """Continuous actions within bounds of the user's, passed on unchanged: for environments that declare none."""

    def __init__(self, env: gymnasium.Env[Any, Any], low: Any, high: Any) -> None:
        super().__init__(env)
        self.action_space = bounded(env.action_space, low, high)

    def action(self, action: Any) -> Any:
        return action


def bounded(space: spaces.Space[Any], low: Any, high: Any) -> spaces.Box:
    """Returns a Box of actions with other bounds, numbers or arrays of the Box's shape. Raises TypeError."""
    if not isinstance(space, spaces.Box):
        raise TypeError(f"expected a Box of actions, got {space}")
    low, high = (np.broadcast_to(np.asarray(bound, space.dtype), space.shape) for bound in (low, high))
    return spaces.Box(low, high, dtype=space.dtype.type)


class RescaleAction(wrappers.RescaleAction[Any, Any, Any]):
    """Gymnasium's, for floats: no result lies outside the environment's bounds by a rounding error."""

    def __init__(self, env: gymnasium.Env[Any, Any], min_action: Any, max_action: Any) -> None:
        space = env.action_space
        if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
            raise TypeError(f"expected a Box of floats, got {space}")
        super().__init__(env, min_action, max_action)

    def action(self, action: Any) -> Any:
        space: Any = self.env.action_space
        return np.clip(super().action(action), space.low, space.high).astype(space.dtype)


class SelectObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A single part of a Dict of observations, for wrappers of arrays."""

    def __init__(self, env: gymnasium.Env[Any, Any], key: str) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Dict) or key not in space.spaces:
            raise TypeError(f"expected a Dict of observations with {key}, got {space}")
        self.observation_space, self._key = space.spaces[key], key

    def observation(self, observation: Any) -> Any:
        return observation[self._key]


class ChannelsLast(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Images [channels, height, width] as [height, width, channels]."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 3:
            raise TypeError(f"expected a Box of three dimensions, got {space}")
        low, high = (np.moveaxis(bound, 0, -1) for bound in (space.low, space.high))
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: Any) -> Any:
        return np.moveaxis(observation, 0, -1)


OWN: Mapping[str, Any] = {
    "BoundAction": BoundAction,
    "ChannelsLast": ChannelsLast,
    "RescaleAction": RescaleAction,
    "SelectObservation": SelectObservation,
}
"""Wrappers that Gymnasium has not, or has otherwise."""


def parse(text: str) -> tuple[Wrapper, ...]:
    """Returns the wrappers of the setting env.wrappers, the innermost first.

    Raises:
      EnvironmentFailure: it is no JSON list of names, and of names with their arguments.
    """
    try:
        entries = json.loads(text or "[]")
    except ValueError as error:
        entries = str(error)
    if not isinstance(entries, list):
        reason = f" ({entries})" if isinstance(entries, str) else ""
        raise errors.EnvironmentFailure(f"--env.wrappers={text} is no JSON list{reason}; expected a form like {_FORM}")
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


def apply(env: gymnasium.Env[Any, Any], chosen: Sequence[Wrapper]) -> gymnasium.Env[Any, Any]:
    """Returns the wrapped environment, the first wrapper innermost.

    Raises:
      EnvironmentFailure: one of them does not go with the environment or its arguments.
    """
    for name, arguments in chosen:
        make = OWN[name] if name in OWN else getattr(wrappers, name)
        shown = ", ".join(f"{key}={value}" for key, value in arguments.items())
        with env_base.failures_of(f"--env.wrappers: {name}({shown}) cannot wrap this environment"):
            dtype = env.observation_space.dtype
            if name == "RescaleObservation" and dtype is not None and dtype.kind != "f":
                raise TypeError(f"it would round observations of {dtype}; leave it out, networks scale whole numbers")
            env = make(env, **arguments)
    return env
