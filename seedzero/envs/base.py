"""The interface of environment families to a worker: one group of environments that step together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from seedzero.core import errors, types


class VectorEnv(Protocol):
    """One group of E environments with next-step auto-reset (see types.EnvStep).

    Attributes:
      spec: of one environment.
      num_envs: E.
    """

    spec: types.EnvSpec
    num_envs: int

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        """Starts a new episode everywhere and returns the first observations.

        Args:
          seeds: [E] non-negative; the same seeds and actions give the same steps.
        """

    def step(self, actions: np.ndarray) -> types.EnvStep:
        """Applies actions [E] int32 or [E, D] float32; a final observation is followed by a first one.

        Raises:
          InvalidMessage: wrong shape, or an action out of range.
          EnvironmentFailure: an environment raised.
        """

    def render(self) -> np.ndarray:
        """Returns a picture of environment 0, [H, W, 3] uint8; only if made with render=True."""

    def close(self) -> None:
        """Frees the environments' resources; they are unusable afterwards."""


def check_actions(actions: np.ndarray, num_envs: int, spec: types.EnvSpec) -> None:
    """Raises InvalidMessage unless actions are [num_envs] whole numbers, or vectors, within the spec's bounds."""
    if spec.is_continuous:
        _check_vectors(actions, num_envs, spec)
        return
    num_actions = spec.num_actions
    if actions.shape != (num_envs,) or not np.issubdtype(actions.dtype, np.integer):
        raise errors.InvalidMessage(
            f"actions are {actions.dtype}{list(actions.shape)}; expected whole numbers of shape [{num_envs}]"
        )
    wrong = np.flatnonzero((actions < 0) | (actions >= num_actions))
    if wrong.size:
        raise errors.InvalidMessage(
            f"action {actions[wrong[0]]} for environment {wrong[0]} is out of range; expected 0 to {num_actions - 1}"
        )


def _check_vectors(actions: np.ndarray, num_envs: int, spec: types.EnvSpec) -> None:
    shape = (num_envs, *spec.action_shape)
    if actions.shape != shape or actions.dtype != np.float32:
        raise errors.InvalidMessage(
            f"actions are {actions.dtype}{list(actions.shape)}; expected float32 of shape {list(shape)}"
        )
    low, high = spec.action_bounds
    wrong = np.argwhere(~((actions >= low) & (actions <= high)))  # NaN is wrong too
    if wrong.size:
        env, index = wrong[0]
        raise errors.InvalidMessage(
            f"action {actions[env].tolist()} for environment {env} is out of range; expected number {index} from "
            f"{low[index]} to {high[index]}"
        )


def check_seeds(seeds: Sequence[int], num_envs: int) -> None:
    """Raises InvalidMessage unless there is one non-negative seed for each environment."""
    if len(seeds) != num_envs or any(seed < 0 for seed in seeds):
        raise errors.InvalidMessage(f"got seeds {list(seeds)}; expected {num_envs} that are not negative")


@contextlib.contextmanager
def failures_of(what: str) -> Iterator[None]:
    """Turns an environment's exceptions into EnvironmentFailure.

    The only catch-all of the package: an environment is foreign code and may raise anything.
    """
    try:
        yield
    except errors.Error:
        raise
    except Exception as error:
        text = " ".join(str(error).split())  # one line, for logs and the wire
        raise errors.EnvironmentFailure(f"{what}: {type(error).__name__}: {text}") from error
