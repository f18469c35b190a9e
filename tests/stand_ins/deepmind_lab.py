"""A stand-in for DeepMind Lab, from the documentation of its Python interface, its use of a level cache included.

Its levels are of one kind: the instruction names a side, and walking there pays. Compiling a level takes the processor
a while, so that a cache shows: config["compileRounds"] says how long. tests/envs/dmlab_test.py says how it is used.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NUM_FRAMES = 80
"""Of an episode."""
LEVEL_BYTES = 100_000
LEFT, RIGHT = "go to the left side", "go to the right side"
STRAFE = 2
"""Place of strafing in an action; negative: to the left."""

made: list[Lab] = []
"""Every Lab of this process, in the order in which they were made."""
num_compiled = 0
"""Levels that this process compiled."""


class Lab:
    """One environment, as `deepmind_lab.Lab`."""

    def __init__(
        self,
        level: str,
        observations: Sequence[str],
        config: Mapping[str, str] = {},
        renderer: str = "software",
        level_cache: Any = None,
    ) -> None:
        if "unknown" in level:
            raise RuntimeError(f"Failed to open level {level!r}")
        assert all(isinstance(word, str) for pair in config.items() for word in pair)
        assert renderer in ("software", "hardware")
        self.level, self.config, self.renderer = level, dict(config), renderer
        self.seeds: list[int | None] = []
        self.actions: list[list[int]] = []
        self.is_closed = False
        self._wanted = tuple(observations)
        self._cache = level_cache
        self._frame = NUM_FRAMES
        self._pixels, self._side = b"", LEFT
        made.append(self)

    def reset(self, episode: int = -1, seed: int | None = None) -> None:
        self.seeds.append(seed)
        key = f"{self.level}-{self.config.get('mixerSeed', '0')}-{seed}"
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "level.pk3")
            if self._cache is None or not self._cache.fetch(key, path):
                compile_level(key, path, int(self.config.get("compileRounds", "1")))
                if self._cache is not None:
                    self._cache.write(key, path)
            with open(path, "rb") as file:
                self._pixels = file.read()
        assert is_whole(self._pixels), "the level is torn"
        self._side = RIGHT if self._pixels[0] % 2 else LEFT
        self._frame = 0

    def is_running(self) -> bool:
        return self._frame < NUM_FRAMES

    def num_steps(self) -> int:
        return self._frame

    def observations(self) -> dict[str, Any]:
        if not self.is_running():
            raise RuntimeError("Environment in wrong status for call to observations()")
        height, width = int(self.config.get("height", "240")), int(self.config.get("width", "320"))
        pixels = np.resize(np.frombuffer(self._pixels, np.uint8), (height, width, 3)).copy()
        pixels[0, 0, 0] = self._frame
        known = {"RGB_INTERLEAVED": pixels, "RGB_INTERLACED": pixels, "INSTR": self._side}
        return {name: known[name] for name in self._wanted}

    def step(self, action: np.ndarray, num_steps: int = 1) -> float:
        if not self.is_running():
            raise RuntimeError("Environment in wrong status to advance.")
        assert action.dtype == np.intc and action.shape == (7,)
        self.actions.append(action.tolist())
        walked = min(num_steps, NUM_FRAMES - self._frame)
        self._frame += walked
        return float(walked * action[STRAFE] * (1 if self._side == RIGHT else -1))

    def close(self) -> None:
        self.is_closed = True


def compile_level(key: str, path: str, rounds: int) -> None:
    """Writes a level that depends on the key alone, slowly; its last bytes prove that it is whole."""
    global num_compiled
    num_compiled += 1
    seed = hashlib.pbkdf2_hmac("sha256", key.encode(), b"level", rounds)
    content = (seed * (LEVEL_BYTES // len(seed)))[:LEVEL_BYTES]
    with open(path, "wb") as file:
        file.write(content + hashlib.sha256(content).digest())


def is_whole(content: bytes) -> bool:
    """Returns whether a level is as it was written."""
    return hashlib.sha256(content[:-32]).digest() == content[-32:]
