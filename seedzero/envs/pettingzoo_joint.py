"""Adds the joint observation of an environment's agents, for a value that only training uses.

It is the environment's own `state()` if there is a `state_space`; otherwise the newest observations of all agents.

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
"""Name of the array, which only training sees."""


class Joint:
    """Adds the joint observation to a group's rows. spec: the group's spec with it."""

    def __init__(self, name: str, env: Any, spec: types.EnvSpec, num_rows: int) -> None:
        """Finds out how to join observations. env: a copy of the environment.

        Raises EnvironmentFailure if its agents' observations cannot be joined.
        """
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
        # whether the row's last observation ended its episode, or there was none
        self._is_over = np.ones(num_rows, bool)

    def add(
        self, envs: Sequence[Any], observation: np.ndarray, shown: np.ndarray, final: np.ndarray, *, begins: bool
    ) -> np.ndarray:
        """Returns the bytes [E, ...] of observations with the joint one; agents that are out contribute zeros.

        envs: the copies of the rows. shown, final: [E] bool, for each row. begins: whether all episodes begin.
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
        """Returns the environment's state as a vector. Raises Fault if its size is not the space's."""
        found = np.asarray(env.state(), np.float32).reshape(-1)
        if len(found) != self._array.shape[0]:
            raise gym_protocol.Fault(f"a state() of {len(found)} numbers; expected {self._array.shape[0]}")
        return found
