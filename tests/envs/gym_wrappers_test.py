"""The wrappers of --env.wrappers: how they are written, what they do, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from seedzero.config import sections
from seedzero.core import errors
from seedzero.envs import gym_wrappers, registry


class _Camera(gymnasium.Env[Any, Any]):
    """An image beside a text, and unbounded actions."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(image=spaces.Box(0, 255, (8, 6, 3), np.uint8), text=spaces.Text(4))
        self.action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        return self.observation_space.sample(), 3.0, False, False, {}


gymnasium.register("SeedzeroTest/Camera-v0", _Camera)

CAMERA = "SeedzeroTest/Camera-v0"
BOUNDS: Any = {"BoundAction": {"low": -1, "high": 1}}
ONLY_IMAGE: Any = {"FilterObservation": {"filter_keys": ["image"]}}
RESCALE: Any = {"RescaleObservation": {"min_obs": 0, "max_obs": 1}}


def _make(env_id: str, wrappers: list[Any]) -> Any:
    return registry.make(f"gym:{env_id}", sections.EnvConfig(wrappers=json.dumps(wrappers)), 1)


def test_names_stand_alone_or_with_their_arguments() -> None:
    text = (
        '["GrayscaleObservation", {"ResizeObservation": {"shape": [64, 64]}}, {"RescaleAction": {"min_action": [-1]}}]'
    )
    gray, resize, rescale = gym_wrappers.parse(text)
    assert (gray, resize) == (("GrayscaleObservation", {}), ("ResizeObservation", {"shape": (64, 64)}))
    np.testing.assert_array_equal(rescale.arguments["min_action"], np.array([-1], np.float32))
    assert gym_wrappers.parse("") == ()


def test_every_name_is_one_of_gymnasiums_or_ours() -> None:
    for name in gym_wrappers.NAMES:
        assert name in gym_wrappers.OWN or issubclass(getattr(gymnasium.wrappers, name), gymnasium.Wrapper)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", r"--env\.wrappers='\["),
        ('{"a": {}}', r"--env\.wrappers='\["),
        ("[3]", "3"),
        ('[{"ClipReward": [1]}]', "ClipReward"),
        ('[{"ClipReward": {}, "ClipAction": {}}]', "ClipReward.*ClipAction"),
        ('["GreyscaleObservation"]', "'GreyscaleObservation'.*Gray"),
        ('["FrameStackObservation"]', "'FrameStackObservation'.*--network.frame_stack"),
        ('["RecordVideo"]', "'RecordVideo'"),
    ],
)
def test_other_forms_and_names_are_refused_with_the_right_one(text: str, message: str) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=message):
        gym_wrappers.parse(text)


def test_the_first_wrapper_is_the_innermost() -> None:
    bounds = {"BoundAction": {"low": [-1, -2], "high": 4}}
    env = _make(CAMERA, [{"FilterObservation": {"filter_keys": ["image"]}}, bounds])
    assert env.spec.packed == () and env.spec.observation_shape == (8, 6, 3)
    assert (env.spec.action_low, env.spec.action_high) == ((-1, -2), (4, 4))
    env.reset([0])
    env.step(np.array([[4, -2]], np.float32))
    assert [action.tolist() for action in env._envs.envs[0].unwrapped.actions] == [[4, -2]]
    scaled = _make(CAMERA, [bounds, {"FilterObservation": {"filter_keys": ["image"]}}])
    scaled.close()


def test_gymnasiums_wrappers_change_what_is_seen_and_done() -> None:
    env = _make(
        "Pendulum-v1", [{"MaxAndSkipObservation": {"skip": 2}}, {"RescaleAction": {"min_action": -1, "max_action": 1}}]
    )
    assert (env.spec.action_low, env.spec.action_high) == ((-1.0,), (1.0,))
    steps = [env.reset([0])] + [env.step(np.ones((1, 1), np.float32)) for _ in range(100)]
    assert steps[-1].truncated[0]  # 200 of its own steps


def test_actions_that_are_rescaled_stay_within_their_bounds() -> None:
    class Strict(gymnasium.Env[Any, Any]):
        observation_space = spaces.Box(0, 1, (1,))
        action_space = spaces.Box(np.array([-2, 0.1]), np.array([2, 0.7]), dtype=np.float64)

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action), action

    for low, high in ((-1, 1), (-0.1, 0.3)):
        (wrapper,) = gym_wrappers.parse(f'[{{"RescaleAction": {{"min_action": {low}, "max_action": {high}}}}}]')
        env = gym_wrappers.apply(Strict(), (wrapper,))
        for bound in (env.action_space.low, env.action_space.high):
            env.step(bound)


def test_actions_that_are_whole_numbers_are_not_rescaled_to_whole_numbers() -> None:
    class Lever(gymnasium.Env[Any, Any]):
        observation_space = spaces.Box(0, 1, (1,))
        action_space = spaces.Box(0, 9, (1,), np.int64)

    (wrapper,) = gym_wrappers.parse('[{"RescaleAction": {"min_action": -1, "max_action": 1}}]')
    with pytest.raises(errors.EnvironmentFailure, match=r"--env\.wrappers.*RescaleAction.*Box.*int64"):
        gym_wrappers.apply(Lever(), (wrapper,))


@pytest.mark.parametrize(
    ("env_id", "wrappers", "message"),
    [
        (CAMERA, ["GrayscaleObservation"], r"GrayscaleObservation\(\) .*: TypeError"),
        ("CartPole-v1", [{"ClipReward": {"most": 1}}], r"ClipReward\(most=1\) .*'most'"),
        ("CartPole-v1", [{"RescaleAction": {"min_action": -1, "max_action": 1}}], "RescaleAction"),
        ("CartPole-v1", [BOUNDS], r"BoundAction\(low=-1, high=1\) .*Box"),
        ("CartPole-v1", ["ChannelsLast"], r"ChannelsLast\(\) .*Box"),
        (CAMERA, [BOUNDS, {"SelectObservation": {"key": "image"}}, RESCALE], "RescaleObservation.*uint8"),
        (CAMERA, [BOUNDS, ONLY_IMAGE, RESCALE], r"RescaleObservation\(.*requires a Box"),
        (CAMERA, [ONLY_IMAGE], "finite bounds.*BoundAction"),
        (CAMERA, [{"SelectObservation": {"key": "picture"}}], "picture"),
    ],
)
def test_a_wrapper_that_does_not_fit_or_is_missing_is_named(env_id: str, wrappers: list[Any], message: str) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=message):
        _make(env_id, wrappers)


def test_floats_are_rescaled() -> None:
    assert _make("Pendulum-v1", [RESCALE]).spec.observation_low == 0


def test_one_part_of_a_dict_goes_on_alone() -> None:
    env = _make(CAMERA, [{"SelectObservation": {"key": "image"}}, {"BoundAction": {"low": -1, "high": 1}}])
    assert env.spec.observation_shape == (8, 6, 3)
    assert env.reset([1]).observation.shape == (1, 8, 6, 3)


def test_channels_come_last() -> None:
    space = spaces.Box(np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.full((2, 3, 4), 99, np.float32))
    env = gym_wrappers.apply(_Camera(), [])
    env.observation_space = space
    wrapped = gym_wrappers.apply(env, gym_wrappers.parse('["ChannelsLast"]'))
    shown = wrapped.observation(space.low)
    assert wrapped.observation_space == spaces.Box(shown, 99, dtype=np.float32)
    assert shown.shape == (3, 4, 2) and shown[1, 2].tolist() == [6, 18]


@pytest.mark.parametrize(
    ("wrappers", "changes"),
    [
        ([], False),
        (["ClipAction", "TimeAwareObservation", "ChannelsLast"], False),
        (["TimeAwareObservation", {"ClipReward": {"max_reward": 1.0}}], True),
    ],
)
def test_wrappers_of_rewards_change_returns_and_others_do_not(wrappers: list[Any], changes: bool) -> None:
    assert gym_wrappers.change_rewards(gym_wrappers.parse(json.dumps(wrappers))) == changes
