"""Gymnasium environments with one array or number as observation, and Discrete or bounded Box actions."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces, vector
from gymnasium.envs import registration

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import base, minatar

_EXTRAS = {
    "Box2D": "gymnasium[box2d]",
    "box2d": "gymnasium[box2d]",
    "mujoco": "gymnasium[mujoco]",
    "pygame": "gymnasium[classic-control]",
    "minatar": ".[minatar]",
}
"""Missing package -> the extra that installs it."""

_WRAP = "wrap it in an environment of your own that has one, and give that as gym:MODULE:ID"

Coder = Callable[[np.ndarray], np.ndarray]
"""Between batches of the environment and of the wire: observations [E, ...], actions [E] int32 or [E, D] float32."""


class GymVectorEnv:
    """E copies of one Gymnasium environment, stepped one after the other."""

    def __init__(
        self, env_id: str, num_envs: int, arguments: Mapping[str, Any] | None = None, *, render: bool = False
    ) -> None:
        """Makes E environments.

        env_id, arguments: as in gymnasium.make; "module:ID" imports the module first, also from the current directory.

        EnvironmentFailure: unknown id, missing package, unsupported space, or an exception of the environment.
        """
        if render:
            # Pictures, not windows: otherwise SDL looks for a display and complains on stderr.
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        # Not render_mode=None: a user's environment may lack that argument.
        options = {**(arguments or {}), **({"render_mode": "rgb_array"} if render else {})}
        self._begin(env_id, [functools.partial(_make_one, env_id, options)] * num_envs)

    @classmethod
    def from_factory(cls, make: Callable[[], gymnasium.Env[Any, Any]], num_envs: int) -> GymVectorEnv:
        """Returns E environments made by the caller's function; errors as above."""
        env = cls.__new__(cls)
        env._begin(getattr(make, "__name__", "the worker's own environment"), [make] * num_envs)
        return env

    def _begin(self, name: str, makers: Sequence[Callable[[], gymnasium.Env[Any, Any]]]) -> None:
        self._name = name
        self.num_envs = len(makers)
        with base.failures_of(f"environment {name!r} cannot be made, mend this first"), _quiet():
            envs = [make() for make in makers]
            self.spec, self._encode, self._decode = _read_spaces(name, envs[0])
            self._envs = vector.SyncVectorEnv(
                [functools.partial(_given, env) for env in envs],
                autoreset_mode=vector.AutoresetMode.NEXT_STEP,
                copy=False,
            )

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        base.check_seeds(seeds, self.num_envs)
        with base.failures_of(f"environment {self._name!r} raised in reset"), _quiet():
            observation, _ = self._envs.reset(seed=[int(seed) for seed in seeds])
        nowhere = np.zeros(self.num_envs, bool)
        reward = np.zeros(self.num_envs, np.float32)
        return types.EnvStep(self._encode(observation), reward, nowhere, nowhere.copy())

    def step(self, actions: np.ndarray) -> types.EnvStep:
        base.check_actions(actions, self.num_envs, self.spec)
        with base.failures_of(f"environment {self._name!r} raised in step"):
            observation, reward, terminated, truncated, _ = self._envs.step(self._decode(actions))
        return types.EnvStep(self._encode(observation), reward.astype(np.float32), terminated, truncated)

    def render(self) -> np.ndarray:
        with base.failures_of(f"environment {self._name!r} raised in render"), _quiet():
            picture = self._envs.envs[0].render()
        if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] != 3:
            raise errors.EnvironmentFailure(
                f"environment {self._name!r} renders {type(picture).__name__}; expected an array [height, width, 3]: "
                "its metadata must list the render mode rgb_array, and it must be made with render=True"
            )
        return picture.astype(np.uint8)

    def close(self) -> None:
        self._envs.close()


def check_id(env_id: str) -> None:
    """Raises EnvironmentFailure if Gymnasium does not know the id; a module's own are only checked for their form."""
    module, separator, name = env_id.rpartition(":")
    if separator and not (module and name):
        form = "expected gym:MODULE:ID, as in gym:my_module:MyEnv-v0"
        raise errors.EnvironmentFailure(f"gym:{env_id} is not complete; {form}")
    if separator:
        return
    with _explained(env_id, gymnasium.error.Error), _quiet():
        minatar.register(env_id)
        namespace, name, version = registration.parse_env_id(env_id)
        if version is not None or registration.find_highest_version(namespace, name) is None:
            gymnasium.spec(env_id)


def arguments(settings: sections.EnvConfig) -> dict[str, Any]:
    """Returns what gymnasium.make is given beside the id.

    Raises:
      EnvironmentFailure: the settings' kwargs are no JSON object.
    """
    try:
        given = json.loads(settings.kwargs or "{}")
    except ValueError as error:
        given = str(error)
    if not isinstance(given, dict):
        raise errors.EnvironmentFailure(
            f"--env.kwargs={settings.kwargs} is no JSON object of arguments"
            + (f" ({given})" if isinstance(given, str) else "")
            + """; expected a form like --env.kwargs='{"continuous": true}'"""
        )
    return {**given, **({"max_episode_steps": settings.max_episode_steps} if settings.max_episode_steps else {})}


def find(name: str) -> str:
    """Returns the id, as in gym:CartPole-v1, that a name without its family or version stands for, or ""."""
    if name.lower().startswith("minatar/"):  # registered only when one of them is made
        return f"gym:{name}"
    wanted = name.lower()
    found = [known for known in gymnasium.registry if wanted in (known.lower(), known.rpartition("-v")[0].lower())]
    return f"gym:{found[-1]}" if found else ""


def _make_one(env_id: str, options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    # Unlike `python -m`, a console command's path lacks the current directory, which has the user's module.
    if ":" in env_id and os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    with _explained(env_id, gymnasium.error.UnregisteredEnv):
        if minatar.register(env_id):
            options = {"max_episode_steps": minatar.MAX_STEPS, **options}
            return minatar.Corrected(gymnasium.make(env_id, disable_env_checker=True, **options))
        return gymnasium.make(env_id, disable_env_checker=True, **options)


@contextlib.contextmanager
def _explained(env_id: str, unknown: type[gymnasium.error.Error]) -> Iterator[None]:
    """Turns Gymnasium's errors about an id (`unknown`: it does not know it) into EnvironmentFailure with advice."""
    try:
        yield
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        raise errors.EnvironmentFailure(_missing(env_id, str(error))) from error
    except unknown as error:
        raise errors.EnvironmentFailure(
            f"Gymnasium does not know {env_id!r} ({error}); for your own write gym:MODULE:ID, MODULE registers it"
        ) from error


def _given(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return env


def _missing(env_id: str, reason: str) -> str:
    module = env_id.rpartition(":")[0]
    if module and f"No module named '{module}'" in reason:
        return (
            f"environment {env_id!r}: there is no module {module!r} in {os.getcwd()} or among the installed packages; "
            "start in the module's directory, or install it"
        )
    extra = next((extra for package, extra in _EXTRAS.items() if package in reason), None)
    install = f"install it: pip install '{extra}'" if extra else "install it on every machine with workers"
    return f"environment {env_id!r} needs a missing package: {reason} ({install})"


def _read_spaces(name: str, env: gymnasium.Env[Any, Any]) -> tuple[types.EnvSpec, Coder, Coder]:
    """Returns the spec, the encoder of observations to [E, ...], and the decoder of actions."""
    observation = env.observation_space
    actions, decode = _read_actions(name, env.action_space)
    one_hot = np.arange(observation.n) + observation.start if isinstance(observation, spaces.Discrete) else None
    if one_hot is not None:
        shape, dtype, low, high = one_hot.shape, np.dtype(np.float32), 0.0, 1.0
    elif isinstance(observation, spaces.Box) and observation.dtype.kind in "biuf":
        shape, dtype = observation.shape or (1,), _wire_dtype(observation)
        low, high = float(observation.low.min()), float(observation.high.max())
    else:
        raise errors.EnvironmentFailure(
            f"environment {name!r} has the observation space {observation}; expected Box or Discrete, because only "
            f"one array of numbers or one number is supported: {_WRAP}"
        )
    num_states = 0 if one_hot is None else len(one_hot)
    spec = types.EnvSpec(
        shape, dtype.name, observation_low=low, observation_high=high, num_states=num_states, **actions
    )

    def encode(batch: np.ndarray) -> np.ndarray:
        numbers = batch if one_hot is None else batch[:, np.newaxis] == one_hot
        return numbers.astype(dtype).reshape(len(batch), *shape)

    return spec, encode, decode


def _read_actions(name: str, space: spaces.Space[Any]) -> tuple[dict[str, Any], Coder]:
    """Returns EnvSpec's fields about actions, and the decoder of actions."""
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return dict(num_actions=int(space.n)), lambda actions: actions + first
    if not isinstance(space, spaces.Box):
        raise errors.EnvironmentFailure(
            f"environment {name!r} has the action space {space}; expected Discrete or Box, because {_kind_of(space)} "
            f"are not supported yet: {_WRAP}"
        )
    low, high = (np.asarray(bound, np.float32) for bound in (space.low, space.high))
    if space.dtype.kind != "f" or not low.size or not (np.isfinite(high - low) & (low < high)).all():
        raise errors.EnvironmentFailure(
            f"environment {name!r} has the action space {space} of dtype {space.dtype}; a Box of actions must have "
            f"floats of finite bounds, the lower below the upper one: {_WRAP}"
        )

    def decode(actions: np.ndarray) -> np.ndarray:
        # Float32 bounds may lie an ulp outside those of a Box of float64.
        batch: np.ndarray = np.clip(actions.reshape(len(actions), *space.shape), space.low, space.high)
        return batch.astype(space.dtype)

    bounds = (tuple(map(float, bound.reshape(-1))) for bound in (low, high))
    return dict(zip(("num_actions", "action_low", "action_high"), (0, *bounds), strict=True)), decode


def _kind_of(space: spaces.Space[Any]) -> str:
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return "several whole numbers at a time"
    return "actions made of parts" if isinstance(space, spaces.Dict | spaces.Tuple) else "such actions"


def _wire_dtype(box: spaces.Box) -> np.dtype[Any]:
    """Returns the wire's dtype of a Box's elements."""
    if box.dtype in (np.uint8, np.bool_):
        return np.dtype(np.uint8)
    bounds = np.iinfo(np.int32)
    if box.dtype.kind in "iu" and box.low.min() >= bounds.min and box.high.max() <= bounds.max:
        return np.dtype(np.int32)
    return np.dtype(np.float32)


def _quiet() -> warnings.catch_warnings[None]:
    """Silences Gymnasium's warnings of old versions and missing metadata: a user can't act on them."""
    return warnings.catch_warnings(action="ignore")
