"""The end of a run by default, and its sentence."""

from __future__ import annotations

import math
from typing import Any

import pytest

from seedzero.config import configs, ends, options, presets


def _by_default(env: str, threshold: float | None = None, **settings: options.Value) -> dict[str, options.Value]:
    given = {"env.id": env, **{name.replace("__", "."): value for name, value in settings.items()}}
    config = configs.override(configs.Config(), given)
    return ends.by_default(config, explicit=given.keys(), reward_threshold=threshold)


@pytest.mark.parametrize(
    ("env", "threshold", "found"),
    [
        ("gym:LunarLander-v3", 200.0, {"run.stop_at_return": 200.0}),
        ("gym:Pusher-v5", 0.0, {"run.stop_at_return": 0.0}),
        ("gym:MinAtar/Breakout-v1", None, {"run.max_env_steps": 5_000_000}),
        ("atari:Pong", None, {"run.max_env_steps": 50_000_000}),
        ("gym:ALE/Pong-v5", None, {"run.max_env_steps": 50_000_000}),
        ("python:mine:make", None, {}),
        ("remote", None, {}),
    ],
)
def test_a_run_ends_at_the_threshold_or_budget_of_its_environment(
    env: str, threshold: float | None, found: dict[str, Any]
) -> None:
    assert _by_default(env, threshold) == found


@pytest.mark.parametrize("name", ends.NONE)
def test_an_end_of_the_user_s_own_or_none_at_all_is_the_only_one(name: str) -> None:
    for value in (ends.NONE[name], 7):
        given = {"env.id": "gym:LunarLander-v3", name: value}
        config = configs.override(configs.Config(), given)
        assert ends.by_default(config, explicit=given.keys(), reward_threshold=200.0) == {}


@pytest.mark.parametrize("preset", ["cartpole", "mujoco", "tictactoe"])
def test_a_preset_s_own_end_wins(preset: str) -> None:
    assert ends.by_default(presets.get(preset), explicit=set(), reward_threshold=475.0) == {}


def test_without_evaluations_or_with_shorter_episodes_a_threshold_says_nothing() -> None:
    assert _by_default("gym:Acrobot-v1", -100.0, evaluation__every_updates=0) == {}
    assert _by_default("gym:Acrobot-v1", -100.0, evaluation__max_episode_steps=50) == {}
    assert _by_default("gym:MinAtar/Breakout-v1", evaluation__every_updates=0) == {"run.max_env_steps": 5_000_000}


def _sentence(preset: str, agent: str = "muzero", **settings: options.Value) -> str:
    config = configs.override(presets.get(preset, agent), {f"run.{name}": value for name, value in settings.items()})
    return ends.sentence(config, preset=preset, explicit=set())


def test_the_sentence_names_end_source_and_the_way_on() -> None:
    assert _sentence("vector", stop_at_return=200.0) == (
        "ends at a mean return of 200 (LunarLander-v3's own threshold); to train without that, give "
        "--stop_at_return=inf"
    )
    assert _sentence("cartpole").startswith("ends at a mean return of 495 (preset cartpole's own)")
    assert "5,000,000 steps (MinAtar/Breakout-v1's own budget)" in _sentence("minatar", max_env_steps=5_000_000)
    on_cpu = _sentence("atari", "ppo", max_env_steps=3_000_000)
    assert "3,000,000 steps (preset atari's own); to train without that, give --max_env_steps=0" in on_cpu


def test_an_endless_run_is_told_and_what_the_user_set_is_not() -> None:
    assert "no end is set" in _sentence("vector")
    config = configs.override(presets.get("vector"), {"run.max_seconds": 5.0})
    assert ends.sentence(config, preset="vector", explicit={"run.max_seconds"}) == ""
    config = configs.override(presets.get("vector"), {"run.stop_at_return": math.inf})
    assert ends.sentence(config, preset="vector", explicit={"run.stop_at_return"}) == ""
    config = configs.override(presets.get("cartpole"), {"run.max_seconds": 5.0})
    assert ends.sentence(config, preset="cartpole", explicit={"run.max_seconds"}).startswith("also ends at")
