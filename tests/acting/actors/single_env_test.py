"""One environment to step by hand, and that of a policy."""

from __future__ import annotations

import pathlib
from typing import Any

import gymnasium
import numpy as np
import play_runs
import pytest

import seedzero
from seedzero.core import errors


def _played(env: gymnasium.Env[Any, Any], choose: Any) -> list[float]:
    """Returns the rewards of an episode; choose: an action for an observation and a mask."""
    observation, info = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    rewards, is_over = list[float](), False
    while not is_over:
        observation, reward, terminated, truncated, info = env.step(choose(observation, info.get("action_mask")))
        assert env.observation_space.contains(observation)
        rewards.append(reward)
        is_over = terminated or truncated
    return rewards


def test_an_environment_of_gymnasium_is_its_own_in_its_wrappers() -> None:
    kwargs, length = {"sutton_barto_reward": np.bool_(True)}, np.int64(7)
    env = seedzero.make_env(
        "gym:CartPole-v1", wrappers=["FlattenObservation"], max_episode_steps=length, kwargs=kwargs
    )
    assert isinstance(env.unwrapped, gymnasium.envs.classic_control.CartPoleEnv)
    assert env.unwrapped._sutton_barto_reward is True
    assert len(_played(env, lambda observation, mask: int(observation[2] > 0))) == 7
    env.close()


def test_episodes_follow_each_other_with_and_without_seeds() -> None:
    env = seedzero.make_env("catch")
    assert len(_played(env, lambda observation, mask: 1)) == 9
    with pytest.raises(errors.UsageError, match=r"reset\(\)"):
        env.step(1)
    first, _ = env.reset()
    assert env.step(1)[1:4] == (0.0, False, False)
    again, _ = env.reset(seed=5)
    assert np.array_equal(again, env.reset(seed=5)[0]) and again.shape == first.shape
    env.close()


@pytest.mark.parametrize("action", [1.7, 3, -1, "LEFT", None, [1]])
def test_an_action_outside_the_space_is_refused_and_no_step(action: Any) -> None:
    env = seedzero.make_env("catch")
    observation, _ = env.reset(seed=5)
    with pytest.raises(errors.UsageError, match=r"Discrete\(3\)"):
        env.step(action)
    assert not np.array_equal(env.step(np.int64(1))[0], observation)
    env.close()


def test_atari_is_a_frame_of_the_settings_size() -> None:
    env = seedzero.make_env("atari:Pong", frame_size=42, render=True)
    observation, _ = env.reset(seed=0)
    assert observation.shape == (42, 42, 1) and env.action_space.n == 18  # type: ignore[attr-defined]
    assert env.step(1)[0].dtype == np.uint8 and env.render().shape == (210, 160, 3)  # type: ignore[union-attr]
    env.close()


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        ("spiel:kuhn_poker", {}, "several seats"),
        ("gym:CartPole-v1", {"kwargs": {"render_mode": object()}}, "kwargs=.* cannot be written as JSON: .* 'tolist'"),
        ("remote", {}, "workers"),
        ("catch", {"frame_sise": 3}, "frame_size"),
        ("catc", {}, "did you mean catch"),
    ],
)
def test_what_cannot_be_stepped_by_hand_is_refused(env: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.UsageError, match=message):
        seedzero.make_env(env, **settings)


def test_a_policy_plays_a_game_in_its_own_environment(tmp_path: pathlib.Path) -> None:
    policy = seedzero.load(play_runs.make(tmp_path / "run", "spiel:tic_tac_toe"))
    env = policy.make_env()
    rewards = _played(env, lambda observation, mask: policy(observation, action_mask=mask))
    assert 5 <= len(rewards) <= 9 and rewards[-1] in (0.0, 1.0)
    env.close()
