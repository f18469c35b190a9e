"""Plays MinAtar's games as Gymnasium environments, such as gym:MinAtar/Breakout-v1."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Iterator
from typing import Any

import gymnasium

from seedzero.envs import env_base, pictures

MAX_STEPS = 27_000
"""Steps before truncation, as many as in Atari's 108,000 frames, because a good player's game never ends."""

_PLOTTING = ("matplotlib", "seaborn")


def register(env_id: str) -> bool:
    """Returns whether an id is MinAtar's, and registers MinAtar's games if so, because its package does not."""
    if env_id.partition("/")[0].lower() != "minatar":
        return False
    if not any(spec.namespace == "MinAtar" for spec in gymnasium.registry.values()):
        with _without_plotting():
            package = importlib.import_module("minatar.gym")
        package.register_envs()
    return True


@contextlib.contextmanager
def _without_plotting() -> Iterator[None]:
    """Prevents the import of matplotlib and seaborn, which take seconds and 90 MiB, and silences the complaints."""
    silence = logging.NullHandler()
    logging.root.addHandler(silence)  # without a handler, a warning would configure logging
    logging.root.addFilter(drop := lambda record: False)
    try:
        with env_base.imports_without(*_PLOTTING):
            yield
    finally:
        logging.root.removeFilter(drop)
        logging.root.removeHandler(silence)


class Corrected(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Corrects MinAtar 1.0's deviations from Gymnasium.

    - Its seeds have 32 bits.
    - A reset with a seed keeps the last action, which sticky actions may repeat in the new episode.
    - Its pictures need seaborn and have one float pixel per cell.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            seed %= 2**32
            self.get_wrapper_attr("game").last_action = 0
        return super().reset(seed=seed, options=options)

    def render(self) -> Any:
        return pictures.paint(self.get_wrapper_attr("game").state())
