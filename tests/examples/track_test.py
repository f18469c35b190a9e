"""The cart and the lamp of docs/environments.md."""

from __future__ import annotations

import importlib.util
import pathlib
from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import env_checker

FILE = pathlib.Path(__file__).parents[2] / "examples" / "track.py"
LEFT, STAY, RIGHT = range(3)


@pytest.fixture
def track() -> Iterator[gymnasium.Env[np.ndarray, int]]:
    spec = importlib.util.spec_from_file_location("track", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.Track()
    del gymnasium.registry["Track-v0"]


def _places(image: np.ndarray) -> tuple[int, int]:
    """Returns the places of the cart (red) and of the lamp (green)."""
    cart, lamp = (int(np.flatnonzero(image[..., color].any(axis=0))[0]) // 8 for color in (0, 1))
    return cart, lamp


def test_reaching_the_lamp_pays_one_and_moves_it(track: gymnasium.Env[np.ndarray, int]) -> None:
    image, _ = track.reset(seed=1)
    cart, lamp = _places(image)
    assert cart == 3 != lamp
    rewards = []
    for _ in range(abs(lamp - cart)):
        image, reward, terminated, _, _ = track.step(RIGHT if lamp > cart else LEFT)
        rewards.append(reward)
        assert not terminated
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
    assert _places(image)[0] == lamp != _places(image)[1]


def test_leaving_to_the_left_costs_one_and_ends_the_episode(track: gymnasium.Env[np.ndarray, int]) -> None:
    image, _ = track.reset(seed=1)
    lamp = _places(image)[1]
    steps = [track.step(LEFT) for _ in range(4)]
    assert [step[2] for step in steps] == [False, False, False, True]
    assert steps[3][1] == -1.0 and sum(step[1] for step in steps[:3]) == (lamp < 3)
    assert track.reset(seed=1)[0].any() and track.step(STAY)[1] == 0.0


def test_gymnasium_accepts_it(track: gymnasium.Env[np.ndarray, int]) -> None:
    env_checker.check_env(track, skip_render_check=True)
