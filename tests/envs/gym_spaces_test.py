"""Gymnasium's spaces as specs, with observations and actions on their way."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from scripted import Scripted

from seedzero.core import errors, packing, types
from seedzero.envs import gym_env, gym_wrappers


def _make(
    shown: spaces.Space[Any], observation: Any = None, taken: spaces.Space[Any] | None = None
) -> gym_env.GymVectorEnv:
    value = shown.sample() if observation is None else observation
    return gym_env.GymVectorEnv.from_factory(lambda: Scripted(shown, taken, value), 2)


def _arrays(spec: types.EnvSpec) -> types.EnvSpec:
    """Returns the spec without the environment's own spaces: what an agent sees."""
    return dataclasses.replace(spec, spaces="")


def _unpacked(env: gym_env.GymVectorEnv) -> dict[str, Any]:
    """Returns what the second environment shows, as lists."""
    found = packing.unpack(env.spec.packed, env.reset([0, 1]).observation)
    return {name: array[1].tolist() for name, array in found.items()}


def test_nested_spaces_become_named_arrays() -> None:
    space = spaces.Dict(
        camera=spaces.Box(0, 255, (2, 1, 3), np.uint8),
        robot=spaces.Dict(arm=spaces.Box(-1.0, 2.0, (2,), np.float64), gear=spaces.Discrete(3, start=-1)),
        more=spaces.Tuple([spaces.MultiBinary(3), spaces.MultiDiscrete([2, 3])]),
        alone=spaces.Box(0, 9, (), np.int64),
    )
    value = {
        "camera": np.arange(6, dtype=np.uint8).reshape(2, 1, 3),
        "robot": {"arm": np.array([0.5, 2.0]), "gear": 1},
        "more": (np.array([1, 0, 1], np.int8), np.array([1, 2])),
        "alone": np.int64(7),
    }
    env = _make(space, value)
    assert {array.name: array for array in env.spec.packed} == {
        "alone": types.ArraySpec("alone", (1,), "int32", 0, 9),
        "camera": types.ArraySpec("camera", (2, 1, 3), "uint8", 0, 255),
        "more/0": types.ArraySpec("more/0", (3,), "uint8", 0, 1),
        "more/1": types.ArraySpec("more/1", (5,), "uint8", 0, 1),
        "robot/arm": types.ArraySpec("robot/arm", (2,), "float32", -1, 2),
        "robot/gear": types.ArraySpec("robot/gear", (3,), "uint8", 0, 1),
    }
    assert _unpacked(env) == {
        "alone": [7],
        "camera": value["camera"].tolist(),  # type: ignore[attr-defined]
        "more/0": [1, 0, 1],
        "more/1": [0, 1, 0, 0, 1],
        "robot/arm": [0.5, 2.0],
        "robot/gear": [0, 0, 1],
    }


def test_a_tuple_has_numbered_parts() -> None:
    env = _make(spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]), (2, 0))
    assert _unpacked(env) == {"0": [0, 0, 1], "1": [1, 0]}


def test_a_dict_of_one_part_is_that_part() -> None:
    part = spaces.Box(-1, 1, (4,), np.float32)
    assert _arrays(_make(spaces.Dict(a=part)).spec) == _arrays(_make(part).spec)
    number = _make(spaces.Dict(a=spaces.Dict(b=spaces.Discrete(4))), {"a": {"b": 2}})
    assert _arrays(number.spec) == _arrays(_make(spaces.Discrete(4)).spec)
    assert number.reset([0, 1]).observation.tolist() == [[0, 0, 1, 0]] * 2


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (spaces.MultiBinary((2, 2)), np.array([[1, 0], [1, 1]], np.int8), [[1, 0], [1, 1]]),
        (spaces.MultiDiscrete([2, 3], start=[5, 0]), np.array([6, 0]), [0, 1, 1, 0, 0]),
    ],
    ids=["MultiBinary", "MultiDiscrete"],
)
def test_several_whole_numbers_alone_are_one_array(space: Any, value: Any, expected: Any) -> None:
    env = _make(space, value)
    assert env.spec.packed == () and (env.spec.observation_low, env.spec.observation_high) == (0, 1)
    assert env.reset([0, 1]).observation[0].tolist() == expected


def test_a_number_with_very_many_values_stays_a_number() -> None:
    env = _make(spaces.Discrete(1025, start=3), 1000)
    assert _arrays(env.spec) == types.EnvSpec((1,), "int32", 2, 3, 1027)
    assert _arrays(env.spec) == _arrays(_make(spaces.Dict(a=spaces.Discrete(1025, start=3)), {"a": 3}).spec)
    assert env.reset([0, 1]).observation.tolist() == [[1000], [1000]]
    assert _make(spaces.Discrete(1024), 7).spec.num_states == 1024
    assert _make(spaces.Discrete(10**9), 7).spec.observation_shape == (1,)
    numbers = _make(spaces.MultiDiscrete([1000, 25]), np.array([7, 8])).spec
    assert _arrays(numbers) == types.EnvSpec((2,), "int32", 2, 0, 999)


def test_a_number_with_very_many_values_among_others_stays_a_number() -> None:
    space = spaces.Dict(a=spaces.Discrete(5000, start=3), b=spaces.Discrete(2))
    env = _make(space, {"a": 4000, "b": 1})
    assert env.spec.packed[0] == types.ArraySpec("a", (1,), "int32", 3, 5002)
    assert _unpacked(env) == {"a": [4000], "b": [0, 1]}


PART = spaces.Box(-1, 1, (4,), np.float32)
OF_NO_FIXED_SIZE = [spaces.Text(3), spaces.Sequence(spaces.Discrete(2)), spaces.Graph(spaces.Box(0, 1), None)]
REFUSED: list[tuple[spaces.Space[Any], spaces.Space[Any] | None, str]] = [
    *((space, None, rf"observation space {type(space).__name__}.*; wrap it") for space in OF_NO_FIXED_SIZE),
    *(
        (spaces.Dict(x=spaces.Tuple([space])), None, r"at 'x/0'; expected Box.*FilterObservation")
        for space in OF_NO_FIXED_SIZE[:2]
    ),
    (spaces.Dict({"a": spaces.Dict(b=PART), "a/b": PART, "c": PART}), None, r"a/b, a/b, c; .*a/b "),
    (spaces.Dict(a=PART, goal=spaces.Box(-1, 1, (0,))), None, r"'goal', .*FilterObserv"),
    (spaces.Dict(), None, "is empty"),
    (PART, spaces.Dict(a=spaces.Discrete(2)), "action space Dict"),
    (PART, spaces.Tuple([spaces.Discrete(2)]), "action space Tuple"),
    (PART, spaces.Text(3), "action space Text"),
    (PART, spaces.MultiDiscrete([5] * 5), r" 3125 .* 1024 .*gym:MODULE:ID"),
    (PART, spaces.MultiBinary(11), r" 2048 .* 1024 .*gym:MODULE:ID"),
    (PART, spaces.Box(-np.inf, np.inf, (1,)), "give bounds, .*BoundAction.*gym:MODULE:ID"),
    (PART, spaces.Box(np.float32([-1, -1]), np.float32([1, np.inf])), "give bounds, .*BoundAction"),
    (PART, spaces.Box(-3e38, 3e38, (1,)), "give bounds, .*BoundAction"),
    (PART, spaces.Box(1, 1, (1,)), "number 0 has the bounds 1 and 1"),
    (PART, spaces.Box(np.float32([-1, 2]), np.float32([1, 2])), "number 1 has the bounds 2 and 2"),
    (PART, spaces.Box(-1, 1, (0,)), "no numbers"),
    (PART, spaces.Box(0, 10**6, (1,), np.int64), "whole numbers: wrap it"),
    (PART, spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32), "whole numbers: wrap it"),
    (PART, spaces.Box(0, 1, (2,), np.bool_), "whole numbers: wrap it"),
]


@pytest.mark.parametrize(("shown", "taken", "message"), REFUSED)
def test_spaces_that_are_not_supported_are_refused_by_name_with_the_remedy(
    shown: spaces.Space[Any], taken: spaces.Space[Any] | None, message: str
) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=message):
        _make(shown, {} if isinstance(shown, spaces.Dict) else 0, taken)


@pytest.mark.parametrize(
    ("low", "high", "bounded"),
    [
        ([[0.1, -np.inf, 5]], [[1000, np.inf, np.inf]], ([[0.1, -1, 5]], [[1000, 1, 6]])),
        ([-3e38, -np.inf], [3e38, 0.5], ([-1, -1], [1, 0.5])),
    ],
)
def test_the_advised_bounds_are_within_those_that_an_action_has(low: Any, high: Any, bounded: Any) -> None:
    space = spaces.Box(np.float32(low), np.float32(high))
    with pytest.raises(errors.EnvironmentFailure) as refusal:
        _make(PART, taken=space)
    (found,) = re.findall(r"--env.wrappers='(.*?)'", str(refusal.value))
    ((_, given),) = gym_wrappers.parse(found)
    assert gym_wrappers.bounded(space, **given) == spaces.Box(*map(np.float32, bounded))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.MultiDiscrete([2, 3], start=[5, -1]), [[5, -1], [6, 1], [5, 1]]),
        (spaces.MultiDiscrete([[2], [3]]), [[[0], [0]], [[1], [2]], [[0], [2]]]),
        (spaces.MultiBinary(3), [[0, 0, 0], [1, 0, 1], [0, 1, 0]]),
    ],
    ids=["MultiDiscrete", "matrix", "MultiBinary"],
)
def test_each_combination_of_several_whole_numbers_is_one_action(space: Any, expected: list[Any]) -> None:
    env = _make(spaces.Discrete(2), taken=space)
    assert env.spec.num_actions == (8 if isinstance(space, spaces.MultiBinary) else 6)
    env.reset([0, 1])
    for action in (0, 5, 2):
        env.step(np.array([action, 0], np.int32))
    got = env._envs.envs[0].unwrapped.actions  # type: ignore[attr-defined]
    assert [action.tolist() for action in got] == expected
    assert all(space.contains(action) for action in got)
