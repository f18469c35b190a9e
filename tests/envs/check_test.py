"""Random steps of scripted environments, and the advice that follows."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import check, gym_env

FLOATS = spaces.Box(-1, 1, (2,), np.float32)


class _Env(gymnasium.Env[Any, Any]):
    """Shows what a function of the step makes; an episode has `length` steps, 0: it never ends."""

    def __init__(self, space: spaces.Space[Any], show: Callable[[int], Any], reward: float, length: int) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self._show, self._reward, self._length, self._step = show, reward, length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._step = 0
        return self._show(0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return self._show(self._step), self._reward, self._step == self._length, False, {}


def _explore(
    space: spaces.Space[Any], show: Callable[[int], Any], reward: float = 1.0, length: int = 4
) -> tuple[check.Findings, check.Warnings]:
    env = gym_env.GymVectorEnv.from_factory(lambda: _Env(space, show, reward, length), 1)
    findings = check.explore(env, 20)
    return findings, check.judge(env.spec, findings, env.observation_space)


def _changing(step: int) -> Any:
    return np.array([0.1, -0.1], np.float32) * step


@pytest.mark.parametrize("high", [0.1, np.finfo(np.float64).max])
def test_bounds_of_float64_are_bounds_of_what_is_sent(high: float) -> None:
    space = spaces.Box(-0.1, high, (2,), np.float64)
    _, found = _explore(space, lambda step: np.array([0.1, -0.1]) * (-1) ** step)
    assert found.warnings == ()
    _, found = _explore(space, lambda step: np.array([0.1, -0.1001]) * (-1) ** step)
    assert " -0.1 to" in found.warnings[0]


class _Secrets(_Env):
    """Each step has a secret number from the environment's own generator; guessing it scores."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        gymnasium.Env.reset(self, seed=seed)
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        secret = self.np_random.choice(self.action_space.n)  # type: ignore[attr-defined]
        observation, _, *rest = super().step(action)
        return observation, float(action == secret), *rest


@pytest.mark.parametrize("seed", [0, 7])
def test_random_actions_are_independent_of_the_environment_s_numbers(seed: int) -> None:
    env = gym_env.GymVectorEnv.from_factory(lambda: _Secrets(FLOATS, _changing, 0.0, 100), 1)
    rewards = check.explore(env, 100, seed).rewards
    assert 30 < sum(rewards) < 70  # one of two


def test_episodes_rewards_and_ranges_are_those_of_the_steps() -> None:
    findings, found = _explore(FLOATS, _changing)
    assert [list(rewards) for rewards in findings.episodes] == [[1.0] * 4] * 4
    assert len(findings.rewards) == 16 and findings.unfinished == []  # and 4 first observations
    seen = findings.arrays["observation"]
    assert (seen.low, seen.high) == pytest.approx((-0.4, 0.4))
    assert found == check.Warnings((), (), ())
    assert check.largest_return(findings, 0.5) == 1 + 0.5 + 0.25 + 0.125


@pytest.mark.parametrize(
    ("show", "level", "message"),
    [
        (
            lambda step: np.array([np.nan, step], np.float32),
            "errors",
            "^the observation has numbers that are not finite",
        ),
        (lambda step: np.array([3.0 - step / 10, step / 10], np.float32), "warnings", " 0 to 3, .* -1 to 1"),
        (lambda step: np.zeros(2, np.float32), "warnings", r"^the observation never changed; .*--env\.wrappers"),
        (
            lambda step: np.array([0.5, step / 10], np.float32),
            "warnings",
            "^1 of the numbers of the observation never",
        ),
    ],
)
def test_observations_that_mislead_are_named(show: Callable[[int], Any], level: str, message: str) -> None:
    _, found = _explore(FLOATS, show)
    (text,) = getattr(found, level)
    assert re.search(message, text)
    assert sum(map(len, found)) == 1


def test_returns_of_two_players_are_the_first_mover_s() -> None:
    env = gym_env.GymVectorEnv.from_factory(lambda: _Env(FLOATS, _changing, 1.0, 3), 1)
    env.spec = dataclasses.replace(env.spec, num_players=2)
    findings = check.explore(env, 20)
    assert {tuple(rewards) for rewards in findings.episodes} == {(1.0, -1.0, 1.0)} and set(findings.rewards) == {1.0}


def test_advice_has_only_what_the_family_takes() -> None:
    found = check.look(sections.EnvConfig(id="memory:tmaze-200"), 50, 30.0).warnings.warnings
    assert any(text.startswith("no episode ended in 50 random steps") for text in found)
    assert not any("--env." in text for text in found)
    camera = types.EnvSpec((3, 200, 200), "uint8", num_actions=2, observation_low=0, observation_high=255)
    assert "ChannelsLast" in next(check.channels_first(camera))
    assert "--env." not in next(check.channels_first(camera, wraps=False))


def test_stacked_pictures_are_named() -> None:
    def spec(*shape: int) -> types.EnvSpec:
        return types.EnvSpec(shape, "uint8", num_actions=2, observation_low=0, observation_high=255)

    for shape in ((4, 64, 64, 3), (4, 3, 64, 64)):
        (text,) = check.channels_first(spec(*shape))
        assert " 49,152 numbers " in text and "has 4 axes" in text and "--network.frame_stack=4" in text
    assert not [*check.channels_first(spec(64, 64, 3)), *check.channels_first(spec(4, 2, 64, 3))]


def test_wrappers_that_keep_statistics_are_named() -> None:
    class Own(gymnasium.wrappers.NormalizeObservation[Any, Any, Any]):
        pass

    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.ClipReward(
            gymnasium.wrappers.NormalizeReward(Own(gymnasium.make("CartPole-v1"))), -10.0, 10.0
        )

    env = gym_env.GymVectorEnv.from_factory(make, 1)
    assert env.statistics == ("NormalizeObservation", "NormalizeReward")
    observations, rewards = check.statistics(env.statistics)
    assert observations.startswith("NormalizeObservation ") and "--network.normalize_observations=true" in observations
    assert rewards.startswith("NormalizeReward ") and "--reward.normalize=true" in rewards
    assert gym_env.GymVectorEnv.from_factory(lambda: gymnasium.make("CartPole-v1"), 1).statistics == ()


def test_endless_episodes_and_rewards_that_say_nothing_are_named() -> None:
    findings, found = _explore(FLOATS, lambda step: _changing(step % 5), reward=0.0, length=0)
    assert findings.episodes == [] and len(findings.unfinished) == 20
    assert " 20 " in found.warnings[0] and "max_episode_steps" in found.warnings[0]
    assert "a reward other than 0" in found.notes[0]
    _, broken = _explore(FLOATS, _changing, reward=float("inf"))
    (text,) = broken.errors
    assert text.startswith("some rewards are not finite")


def test_large_images_and_images_of_floats_are_named_by_their_part() -> None:
    space = spaces.Dict(
        camera=spaces.Box(0, 255, (200, 200, 3), np.uint8), depth=spaces.Box(0, 9, (40, 40), np.float64)
    )
    camera, depth = np.zeros((200, 200, 3), np.uint8), np.zeros((40, 40))
    _, found = _explore(space, lambda step: {"camera": camera + np.uint8(step), "depth": depth + step})
    assert len(found.warnings) == 2
    assert "'camera' " in found.warnings[0] and " 200x200: 117 KiB " in found.warnings[0]
    # Gymnasium's are for one array alone
    assert "'depth' " in found.warnings[1] and "float32" in found.warnings[1]
    assert "float64" in found.notes[0] and len(found.notes) == 1


def test_resets_that_ignore_the_seed_are_found() -> None:
    shown = iter(np.random.default_rng(0).uniform(-1, 1, (99, 2)).astype(np.float32))
    findings, _ = _explore(FLOATS, lambda step: next(shown))
    assert not findings.same_reset  # `advice.of_learning` says what to do


@pytest.mark.parametrize(
    ("shape", "warns"), [((3, 8, 8), True), ((2, 12, 12), True), ((8, 8, 3), False), ((4, 6, 6), False)]
)
def test_channels_that_seem_to_come_first_are_named_with_the_wrapper(shape: tuple[int, ...], *, warns: bool) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    random = np.random.default_rng(0)
    _, found = _explore(space, lambda step: random.integers(0, 255, shape, np.uint8, endpoint=True))
    assert bool([text for text in found.warnings if '["ChannelsLast"]' in text]) == warns


def test_a_slow_environment_is_left_when_time_is_up() -> None:
    shown: list[int] = []

    def show(step: int) -> Any:
        shown.append(step)
        return _changing(step)

    env = gym_env.GymVectorEnv.from_factory(lambda: _Env(FLOATS, show, 1.0, 4), 1)
    seconds = iter(range(100))
    findings = check.explore(env, 20, max_seconds=3, clock=lambda: float(next(seconds)))
    assert findings.num_steps == len(findings.rewards) == 3
    assert shown == [0, 1, 0, 0, 1, 2, 3]  # a step to see whether it keeps the protocol, two resets, and these
    assert findings.steps_per_second == 3 / 4
    (note,) = check.judge(env.spec, findings, FLOATS).notes
    assert note.startswith("0.75 steps/s are few: ") and "--workers=N" in note


@pytest.mark.parametrize(
    ("space", "show", "message"),
    [
        (spaces.Discrete(5), lambda step: step + 3, r" 5; .*Discrete\(5"),
        (spaces.Discrete(5, start=1), lambda step: np.int64(0), r" 0; .*Discrete\(5"),
        (spaces.MultiDiscrete([2, 3]), lambda step: np.array([1, step]), " 3; .*MultiDiscrete"),
        (spaces.Box(0, 255, (2,), np.uint8), lambda step: np.array([0, 100 * step], np.uint16), " 300; .*Box"),
        (
            spaces.Dict(cell=spaces.Discrete(2), light=spaces.Discrete(2)),
            lambda step: {"cell": step, "light": 0},
            "'cell' .* 2",
        ),
    ],
)
def test_numbers_that_would_become_others_are_refused(
    space: spaces.Space[Any], show: Callable[[int], Any], message: str
) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=message):
        _explore(space, show)
