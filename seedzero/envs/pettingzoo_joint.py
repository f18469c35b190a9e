"""The joint observation of the agents of an environment, for a value that training alone has.

It is the environment's own `state()`, where it has a `state_space`, else the newest observations of all agents.

Shape letters: E rows of one group, S agents of an environment, N numbers of an agent's observation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from seedzero.core import errors, packing, training_arrays, types
from seedzero.envs import gym_protocol

NAME = "joint_observation"
"""Of the array, for training alone."""


class Joint:
    """Adds the array to the rows of a group. spec: with it."""

    def __init__(self, name: str, env: Any, spec: types.EnvSpec, num_rows: int) -> None:
        """env: a copy of the environment. EnvironmentFailure: its agents have no observations that can be joined."""
        self._size = max(1, len(spec.seats))
        space = getattr(env, "state_space", None)
        space = space if isinstance(space, spaces.Box) else None
        self._has_state = space is not None
        if space is None and spec.packed:
            raise errors.EnvironmentFailure(
                f"environment {name!r} has observations of several arrays and no state_space, so there is no joint "
                "observation; give it a method state() and a Box state_space, or --ppo.central_value=false"
            )
        if space is not None:
            size, low, high = int(np.prod(space.shape)), float(np.min(space.low)), float(np.max(space.high))
        else:
            own = spec.arrays[0]
            size, low, high = self._size * int(np.prod(own.shape)), min(0.0, own.low), max(0.0, own.high)
        self._array = types.ArraySpec(NAME, (size,), "float32", low, high, training_only=True)
        self.spec = training_arrays.add(spec, self._array)
        self._seen = np.zeros((num_rows, size // self._size if not self._has_state else 0), np.float32)
        self._is_over = np.ones(num_rows, bool)  # the row's last observation ended its episode, or there was none

    def add(
        self, envs: Sequence[Any], observation: np.ndarray, shown: np.ndarray, final: np.ndarray, *, begins: bool
    ) -> np.ndarray:
        """Returns the bytes [E, ...] of observations with the array; those of an agent that is out are zeros.

        envs: the copies of the rows. shown, final: [E] bool of the rows. begins: all episodes do.
        """
        rows, number = len(observation), len(envs)
        if self._has_state:
            joint = np.stack([self._state(env) for env in envs])
        else:
            seen, is_over = self._seen[:rows], self._is_over[:rows]
            seen[is_over | begins] = 0.0
            seen[shown] = observation[shown].reshape(np.count_nonzero(shown), -1)
            is_over[:] = np.where(shown, final, is_over & (not begins))
            joint = seen.reshape(number, -1)
        packed = packing.pack((self._array,), {NAME: np.repeat(joint, rows // number, axis=0)})
        own = np.ascontiguousarray(observation).reshape(rows, -1).view(np.uint8)
        return np.concatenate([own, packed], axis=1)

    def _state(self, env: Any) -> np.ndarray:
        """Returns the environment's state as one vector. Fault: it has another size than its space."""
        found = np.asarray(env.state(), np.float32).reshape(-1)
        if len(found) != self._array.shape[0]:
            raise gym_protocol.Fault(f"a state() of {len(found)} numbers; expected {self._array.shape[0]}")
        return found
