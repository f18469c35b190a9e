"""A bonus of the user's own on PPO's rewards, for exploration: `--ppo.bonus=MODULE:FUNCTION`.

Shape letters: B windows, L steps of each.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from seedzero.core import errors, types, user_code
from seedzero.replay import windows as windowing


class Bonus(NamedTuple):
    """A bonus with a state that learns, such as counts: pure functions, jitted by the caller.

    The function named by the setting takes the `EnvSpec` and returns a Bonus. A checkpoint has the state; of a refused
    update it stays as it was.
    """

    init: Callable[[jax.Array], Any]  # key -> state, a pytree of arrays
    # (state, windows, axis name) -> (state, bonus [B, L] of the steps to `windows.observation` [B, 1 to L]). Rows with
    # `windows.weight` 0 are padding. With an axis name the state must be equal on all devices of that mapped axis.
    add: Callable[[Any, windowing.Windows, str | None], tuple[Any, jax.Array]]


def load(name: str, spec: types.EnvSpec) -> Bonus | None:
    """Returns the bonus of a user's function, whose errors have file and line; None: none is named."""
    if not name:
        return None
    make = user_code.load(name)
    with _named(name, make):
        made = make(spec)
        if not isinstance(made, Bonus):
            raise TypeError(f"it returns {type(made).__name__}; expected seedzero.agents.bonus.Bonus(init, add)")
    found: Bonus = made

    def init(key: jax.Array) -> Any:
        with _named(name, found.init):
            return found.init(key)

    def add(state: Any, windows: windowing.Windows, axis_name: str | None) -> tuple[Any, jax.Array]:
        shape = (windows.reward.shape[0], windows.reward.shape[1] - 1)
        with _named(name, found.add):
            after, bonus = found.add(state, windows, axis_name)
            if bonus.shape != shape:
                raise ValueError(f"the bonus has the shape {bonus.shape}; expected {shape}, one of each step")
            return after, bonus

    return Bonus(init, add)


@contextlib.contextmanager
def _named(name: str, function: Callable[..., Any]) -> Iterator[None]:
    try:
        yield
    except errors.Error:
        raise
    except Exception as error:  # foreign code may raise anything
        at = user_code.place_of(function, traceback.extract_tb(error.__traceback__))
        raise errors.ConfigError(f"--ppo.bonus={name}: {type(error).__name__}: {error}, at {at}") from error
