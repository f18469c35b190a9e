"""MinAtar's games as Gymnasium environments: gym:MinAtar/Breakout-v1 and its kin."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium

from seedzero.envs import pictures

MAX_STEPS = 27_000
"""Steps after which a game of MinAtar is truncated, as Atari's after 108,000 frames: a good player's never ends."""

_PLOTTING = ("matplotlib", "seaborn")


def register(env_id: str) -> bool:
    """Registers MinAtar's games if it is one of them, which its package does not do by itself; returns whether it is.

    Raises:
      ModuleNotFoundError: the package is missing.
    """
    if env_id.partition("/")[0].lower() != "minatar":
        return False
    if not any(spec.namespace == "MinAtar" for spec in gymnasium.registry.values()):
        with _without_plotting():
            package = importlib.import_module("minatar.gym")
        package.register_envs()
    return True


@contextlib.contextmanager
def _without_plotting() -> Iterator[None]:
    """Lets an import neither find matplotlib and seaborn, which take seconds and 90 MiB, nor complain about it."""
    hidden = [name for name in _PLOTTING if name not in sys.modules]
    silence = logging.NullHandler()
    logging.root.addHandler(silence)  # without any, a warning would set up logging
    logging.root.addFilter(_drop)
    try:
        for name in hidden:
            sys.modules[name] = None  # type: ignore[assignment]
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        logging.root.removeFilter(_drop)
        logging.root.removeHandler(silence)


def _drop(record: logging.LogRecord) -> bool:
    return False


class Mended(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Mends what MinAtar 1.0 does otherwise than Gymnasium asks.

    - Its seeds have 32 bits.
    - A reset with a seed keeps the last action, which sticky actions may repeat in the new episode.
    - It needs seaborn for pictures, of one float pixel a cell.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            seed %= 2**32
            self._game().last_action = 0
        return super().reset(seed=seed, options=options)

    def render(self) -> Any:
        return pictures.paint(self._game().state())

    def _game(self) -> Any:
        unwrapped: Any = self.unwrapped
        return unwrapped.game
