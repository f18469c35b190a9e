from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from seedzero.config import configs, options, presets, sections
from seedzero.core import errors, types


@pytest.mark.parametrize(
    ("budgets", "num_updates", "num_env_steps", "spent"),
    [
        ({}, 10**9, 10**9, ""),
        ({"max_updates": 3}, 2, 100, ""),
        ({"max_updates": 3}, 3, 0, "--max_updates=3"),
        ({"max_updates": 3}, 4, 0, "--max_updates=3"),
        ({"max_env_steps": 20}, 100, 19, ""),
        ({"max_env_steps": 20}, 0, 25, "--max_env_steps=20"),
        ({"max_updates": 3, "max_env_steps": 20}, 3, 20, "--max_updates=3"),
    ],
)
def test_a_budget_is_spent_when_it_is_reached(
    budgets: dict[str, int], num_updates: int, num_env_steps: int, spent: str
) -> None:
    assert sections.RunConfig(**budgets).spent(num_updates, num_env_steps) == spent


def test_updates_that_are_owed_come_before_the_end_by_steps() -> None:
    budget = sections.RunConfig(max_env_steps=20, max_updates=90)
    assert budget.spent(79, 20, owed=80) == ""
    assert budget.spent(80, 20, owed=80) == "--max_env_steps=20"
    assert budget.spent(80, 19, owed=80) == ""
    assert budget.spent(90, 20, owed=100) == "--max_updates=90"


def test_shared_sections_are_checked_as_all_are() -> None:
    found = [field for field in dataclasses.fields(configs.Config) if field.name not in configs.agent_names()]
    assert all(isinstance(field.default, options.Section) for field in found)


def test_of_the_replay_an_agent_with_a_queue_reads_its_rings_alone() -> None:
    read = [name for name in configs.fields() if name.startswith("replay.") and configs.is_read(name, "vtrace")]
    assert read == ["replay.num_slots"]


def test_keys_of_infos_are_split_and_checked() -> None:
    assert configs.override(configs.Config(), {"metrics.info_keys": "success,depth"}).env.info_keys == "success,depth"
    for keys in ("a" * 65, "a\tb", ",".join(map(str, range(33)))):
        with pytest.raises(errors.ConfigError, match="info_keys"):
            configs.override(configs.Config(), {"metrics.info_keys": keys})
    with pytest.raises(errors.ConfigError, match=r"--env\.info_keys.*\b32\b.*\b1\b.*\b64\b"):
        configs.override(configs.Config(), {"metrics.info_keys": "a" * 65})


_ALONE = types.EnvSpec((4,), "float32", 2)
_SEATS = types.EnvSpec((4,), "float32", 2, seats=("a", "b"), tasks=("a", "b"))


@pytest.mark.parametrize(
    ("policy", "alone", "in_seats"),
    [
        ("auto", types.GREEDY, types.SAMPLE),
        ("greedy", types.GREEDY, types.GREEDY),
        ("sample", types.SAMPLE, types.SAMPLE),
    ],
)
def test_the_game_decides_unless_you_do(policy: str, alone: np.int8, in_seats: np.int8) -> None:
    settings = sections.EvaluationConfig(policy=policy)
    assert (settings.mode(_ALONE), settings.mode(_SEATS)) == (alone, in_seats)


def _by_default(env: str, threshold: float | None = None, **settings: options.Value) -> dict[str, options.Value]:
    given = {"env.id": env, **{name.replace("__", "."): value for name, value in settings.items()}}
    config = configs.override(configs.Config(), given)
    return presets.default_end(config, explicit=given.keys(), reward_threshold=threshold)


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


@pytest.mark.parametrize("name", presets.NO_END)
def test_an_end_of_the_user_s_own_or_none_at_all_is_the_only_one(name: str) -> None:
    for value in (presets.NO_END[name], 7):
        given = {"env.id": "gym:LunarLander-v3", name: value}
        config = configs.override(configs.Config(), given)
        assert presets.default_end(config, explicit=given.keys(), reward_threshold=200.0) == {}


@pytest.mark.parametrize("preset", ["cartpole", "mujoco", "tictactoe"])
def test_a_preset_s_own_end_wins(preset: str) -> None:
    assert presets.default_end(presets.get(preset), explicit=set(), reward_threshold=475.0) == {}


def test_without_evaluations_or_with_shorter_episodes_a_threshold_says_nothing() -> None:
    assert _by_default("gym:Acrobot-v1", -100.0, evaluation__every_updates=0) == {}
    assert _by_default("gym:Acrobot-v1", -100.0, evaluation__max_episode_steps=50) == {}
    assert _by_default("gym:MinAtar/Breakout-v1", evaluation__every_updates=0) == {"run.max_env_steps": 5_000_000}


def _sentence(preset: str, agent: str = "muzero", **settings: options.Value) -> str:
    config = configs.override(presets.get(preset, agent), {f"run.{name}": value for name, value in settings.items()})
    return presets.end_sentence(config, preset=preset, explicit=set())


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
    assert presets.end_sentence(config, preset="vector", explicit={"run.max_seconds"}) == ""
    config = configs.override(presets.get("vector"), {"run.stop_at_return": math.inf})
    assert presets.end_sentence(config, preset="vector", explicit={"run.stop_at_return"}) == ""
    config = configs.override(presets.get("cartpole"), {"run.max_seconds": 5.0})
    assert presets.end_sentence(config, preset="cartpole", explicit={"run.max_seconds"}).startswith("also ends at")
