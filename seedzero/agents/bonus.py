"""Adds a user's own exploration bonus to PPO's rewards: `--ppo.bonus=MODULE:FUNCTION`.

Shape letters: B windows, L steps of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from seedzero.core import errors, types, user_code
from seedzero.replay import windowing


class Bonus(NamedTuple):
    """A bonus as pure functions, with a state that learns, such as counts. The caller jits them.

    The function named by the setting takes the `EnvSpec` and returns a Bonus. A checkpoint has the state, and a
    refused update does not change it.
    """

    init: Callable[[jax.Array], Any]  # key -> state, a pytree of arrays
    # (state, windows, axis name) -> (state, bonus [B, L] of the steps to `windows.observation` [B, 1 to L]). Rows with
    # `windows.weight` 0 are padding. With an axis name the state must be equal on all devices of that mapped axis.
    add: Callable[[Any, windowing.Windows, str | None], tuple[Any, jax.Array]]


def load(name: str, spec: types.EnvSpec) -> Bonus | None:
    """Returns the bonus of a user's function, whose errors have file and line, or None if no function is named."""
    if not name:
        return None
    make, what = user_code.load(name), f"--ppo.bonus={name}"
    found: Any = user_code.telling(make, what)(spec)
    if not isinstance(found, Bonus):
        kind = type(found).__name__
        raise errors.ConfigError(
            f"{what} ({user_code.place_of(make)}) returns {kind}; expected seedzero.agents.bonus.Bonus(init, add)"
        )

    def add(state: Any, windows: windowing.Windows, axis_name: str | None) -> tuple[Any, jax.Array]:
        shape = (windows.reward.shape[0], windows.reward.shape[1] - 1)
        after, bonus = found.add(state, windows, axis_name)
        if bonus.shape != shape:
            raise errors.ConfigError(
                f"{what} ({user_code.place_of(found.add)}): the bonus has the shape {bonus.shape}; expected {shape}, "
                "one of each step"
            )
        return after, bonus

    return Bonus(user_code.telling(found.init, what), user_code.telling(add, what, at=found.add))
