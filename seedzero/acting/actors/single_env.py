"""Makes one environment to step by hand, with Gymnasium's methods, as a saved agent's policy takes it."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np

from seedzero.acting.actors import codecs
from seedzero.config import configs, sections
from seedzero.core import env_ids, errors, packing, types
from seedzero.envs import env_base, gym_env, registry


def make_env(env: str, *, render: bool = False, **settings: Any) -> gymnasium.Env[Any, Any]:
    """Returns an environment to step by hand, such as "atari:Pong"; `Policy.make_env` has a run's.

    Args:
      env: as --env; environments of seats, of EnvPool and of workers are rejected.
      render: whether `render()` returns pictures, [H, W, 3] uint8.
      **settings: those of --env.KEY by KEY: `frame_size=42`, `kwargs={"continuous": True}`.

    Raises UsageError for an unknown or unsuitable environment or setting, EnvironmentFailure if it cannot be made.
    """
    values = {f"env.{key}": _text(key, value) for key, value in settings.items()}
    return make(configs.override(configs.Config(), {**values, "env.id": env}).env, render=render)


def _text(key: str, value: Any) -> str:
    """Returns a setting's value as the command line takes it. Raises UsageError for what JSON cannot hold."""
    try:
        return value if isinstance(value, str) else json.dumps(value, default=lambda x: x.tolist())  # numpy's
    except (TypeError, ValueError, AttributeError) as error:
        raise errors.UsageError(f"{key}={value!r} cannot be written as JSON: {error}") from None


def make(settings: sections.EnvConfig, *, render: bool = False) -> gymnasium.Env[Any, Any]:
    """Returns an environment with these settings. render and errors are as in `make_env`."""
    registry.check_id(settings.id)
    if settings.id == env_ids.REMOTE:
        raise errors.UsageError("--env=remote is made by workers; make it there")
    group: Any = registry.make(settings.id, settings, 1, threads=1, render=render)
    if isinstance(group, gym_env.GymVectorEnv):
        return group.release()
    if group.spec.seats or group.spec.spaces:
        group.close()
        kind = "has several seats" if group.spec.seats else "has spaces of its own package"
        raise errors.UsageError(f"{settings.id} {kind}, so it cannot be stepped here; make it by its own package")
    return SingleEnv(group)


class SingleEnv(gymnasium.Env[Any, Any]):
    """A group of one environment. A game of two players is played by one caller for both; rewards are the mover's."""

    def __init__(self, group: env_base.VectorEnv) -> None:
        self._group, self._is_over = group, True
        codec = codecs.of(group.spec)
        self.observation_space, self.action_space = codec.observation_space, codec.action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._is_over = False
        return self._shown(self._group.reset([int(self.np_random.integers(2**31)) if seed is None else seed]))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._is_over:
            raise errors.UsageError("no episode has begun, or it is over; call reset() first")
        if isinstance(self.action_space, gymnasium.spaces.Discrete) and not self.action_space.contains(action):
            raise errors.UsageError(f"the action is {action!r}; expected one of {self.action_space}")
        kind = np.float32 if self._group.spec.is_continuous else np.int32
        step = self._group.step(np.asarray(action, kind)[np.newaxis])
        observation, info = self._shown(step)
        self._is_over = bool(step.final[0])
        return observation, float(step.reward[0]), bool(step.terminated[0]), bool(step.truncated[0]), info

    def _shown(self, step: types.EnvStep) -> tuple[Any, dict[str, Any]]:
        spec, seen = self._group.spec, step.observation
        arrays = {name: array[0] for name, array in packing.unpack(spec.packed, seen).items()} if spec.packed else {}
        return arrays or seen[0], {} if step.action_mask is None else {"action_mask": step.action_mask[0]}

    def render(self) -> Any:
        return self._group.render()

    def close(self) -> None:
        self._group.close()
