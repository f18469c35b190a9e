"""Spaces as text and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from seedzero.envs import gym_spaces, space_text

SPACES: list[spaces.Space[Any]] = [
    spaces.Discrete(3, start=-4, dtype=np.int8),
    spaces.MultiBinary((2, 3)),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]], dtype=np.int32),
    spaces.MultiDiscrete([3, 3, 3]),
    spaces.Box(-1.0, 1.0, (2, 2), np.float64),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(-np.inf, np.inf, ()),
    spaces.Box(0, 1, (3,), np.bool_),
    spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (1,))])}),
    spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Dict({"x/y": spaces.MultiBinary([1])}))]),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_space_comes_back_equal(space: spaces.Space[Any]) -> None:
    pair = space_text.Pair(space, spaces.Discrete(2))
    found = space_text.read(space_text.write(pair), 100)
    assert found == pair
    assert gym_spaces.read("x", *found[:2])[0] == gym_spaces.read("x", space, spaces.Discrete(2))[0]


def test_each_bound_of_an_action_is_kept_and_the_extremes_of_an_observation() -> None:
    box = spaces.Box(np.array([-0.1, 0.0]), np.array([1 / 3, 7.0]), dtype=np.float64)
    found = space_text.read(space_text.write(space_text.Pair(box, box, channels_first=True)), 2)
    assert found.action == box and found.channels_first
    assert found.observation == spaces.Box(-0.1, 7.0, (2,), np.float64)


def test_a_large_uniform_space_is_a_short_text() -> None:
    large = spaces.Box(0, 255, (500, 500, 3), np.uint8), spaces.MultiDiscrete(np.full((100, 100), 2))
    assert len(space_text.write(space_text.Pair(*large))) < 400
    with pytest.raises(ValueError, match=r"750000|500, 500, 3"):
        space_text.read(space_text.write(space_text.Pair(*large)), 1000)
