"""When a run of an environment learns, and what makes it hard, from scripted findings."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from seedzero.config import configs, presets
from seedzero.core import types
from seedzero.envs import advice, check

VECTOR = types.EnvSpec(observation_shape=(2,), observation_dtype="float32", num_actions=2)
IMAGE = types.EnvSpec(observation_shape=(64, 64, 3), observation_dtype="uint8", num_actions=2)
CONTINUOUS: Any = {"num_actions": 0, "action_low": (-1.0,), "action_high": (1.0,)}


def _findings(*episodes: list[float], **changes: Any) -> check.Findings:
    """Returns the findings of episodes with these rewards, which end in a terminal state."""
    rewards = [reward for episode in episodes for reward in episode]
    found = check.Findings(
        arrays={types.OBSERVATION: check.ArrayUse(-1.0, 1.0, False, 0)},
        rewards=rewards,
        episodes=episodes,
        unfinished=[],
        num_steps=1000,
        steps_per_second=100.0,
        same_reset=True,
        terminated=[True] * len(episodes),
    )
    return dataclasses.replace(found, **changes)


def _learning(agent: str, findings: check.Findings, spec: types.EnvSpec = VECTOR, **changes: Any) -> list[str]:
    config = configs.override(
        presets.get("vector", agent), {name.replace("__", "."): x for name, x in changes.items()}
    )
    return [*advice.of_learning(config, spec, findings)]


GOOD = _findings([1.0] * 5, [1.0] * 7, [1.0] * 9)


def test_nothing_is_said_about_an_ordinary_environment() -> None:
    assert _learning("muzero", GOOD) == _learning("ppo", GOOD) == _learning("vtrace", GOOD) == []


def test_the_times_are_those_of_the_environment() -> None:
    config = configs.override(presets.get("discrete"), {"run.max_env_steps": 360_000, "worker.num": 2})
    found = advice.timing(config, _findings([0.0] * 10, [0.0] * 10))
    assert (found.steps_per_second, found.first_update_steps, found.first_update_seconds) == (200.0, 25_000, 125.0)
    assert found.evaluation_seconds == 125.0 + 40.0 + 10.0, "100 episodes of 10 steps by one process take 10 s"
    assert found.budget_seconds == 1800.0
    for part in ("25,000 steps, in 2 minutes", "evaluation in 3 minutes", "end in 30 minutes"):
        assert part in found.sentence()
    endless = advice.timing(presets.get("discrete"), _findings())
    assert endless.evaluation_seconds is endless.budget_seconds is None
    assert advice.timing(presets.get("vector", "ppo"), GOOD).first_update_steps == 32 * 256


def test_a_long_wait_for_the_first_update_names_the_setting() -> None:
    config = presets.get("discrete")
    (told, *_) = advice.of_speed(config, VECTOR, GOOD, advice.timing(config, GOOD))
    assert "4 minutes" in told and "--replay.min_steps=3000" in told
    quick = advice.timing(config, dataclasses.replace(GOOD, steps_per_second=1000.0))
    assert not [*advice.of_speed(config, VECTOR, GOOD, quick)]


@pytest.mark.parametrize(
    ("agent", "spec", "steps_per_second", "suits"),
    [
        ("muzero", VECTOR, 100.0, ""),
        ("ppo", VECTOR, 100.0, "muzero"),
        ("muzero", VECTOR, 20_000.0, "ppo"),
        ("muzero", IMAGE, 1_000.0, "ppo"),
        ("ppo", IMAGE, 1_000.0, ""),
        ("ppo", dataclasses.replace(VECTOR, **CONTINUOUS), 100.0, "sac"),
        ("ppo", dataclasses.replace(IMAGE, **CONTINUOUS), 100.0, "muzero"),
        ("muzero", dataclasses.replace(VECTOR, num_players=2), 20_000.0, ""),
    ],
)
def test_the_agent_for_minutes_on_a_cpu(agent: str, spec: types.EnvSpec, steps_per_second: float, suits: str) -> None:
    config = presets.get("vector", agent)
    found = advice.timing(config, dataclasses.replace(GOOD, steps_per_second=steps_per_second))
    told = " ".join(advice.of_speed(config, spec, GOOD, found))
    assert ("--agent=" in told) == bool(suits) and f"--agent={suits}" * bool(suits) in told
    assert not any("--agent=" in text for text in advice.of_speed(config, spec, GOOD, found, is_chosen=True))


def test_sac_is_not_advised_for_observations_that_it_would_have_to_scale() -> None:
    config, spec = presets.get("continuous"), dataclasses.replace(VECTOR, **CONTINUOUS)
    large = dataclasses.replace(GOOD, arrays={types.OBSERVATION: check.ArrayUse(0.0, 1e6, False, 0)})
    (told,) = advice.of_speed(config, spec, GOOD, advice.timing(config, GOOD))
    assert "--agent=sac" in told
    assert not [*advice.of_speed(config, spec, large, advice.timing(config, large))], "MuZero scales them"


def test_a_time_limit_that_looks_like_an_end_is_named_unless_it_is_truncated() -> None:
    alike = _findings([1.0] * 9, [1.0] * 9, [1.0] * 9)
    (told,) = _learning("muzero", alike)
    assert "9 steps" in told and "truncated=True" in told
    assert not _learning("muzero", dataclasses.replace(alike, terminated=[True, False, True]))


def test_a_late_reward_beyond_the_discount_is_named_with_a_discount_that_sees_it() -> None:
    late = _findings(*([0.0] * length + [1.0] for length in (400, 500, 600)))
    (told,) = _learning("muzero", late)
    assert "501 steps" in told and "200 ahead" in told and "--reward.discount=0.999" in told
    assert not _learning("muzero", late, reward__discount=0.9999)
    assert not _learning("muzero", _findings([0.0] * 400 + [0.0], [0.0] * 500, [0.0] * 600)), "no reward at all"


def test_rewards_of_very_different_sizes_are_named_unless_they_are_clipped() -> None:
    apart = _findings([1.0, 1.0, 1000.0], [1.0, 1.0, 1.0, 1.0])
    (told,) = _learning("muzero", apart)
    assert "1000 times" in told and "--reward.clip=10" in told
    assert not _learning("muzero", apart, reward__clip=10.0)


def test_an_agent_that_scales_nothing_is_told_the_scales_of_rewards_and_observations() -> None:
    large = _findings([100.0] * 5, [100.0] * 7, arrays={types.OBSERVATION: check.ArrayUse(-300.0, 5.0, False, 0)})
    rewards, observations = _learning("vtrace", large)
    assert "--reward.scale=0.001" in rewards and "reach 300" in observations
    assert not _learning("muzero", large) and not _learning("ppo", large)


def test_seeds_and_masks_are_named_with_their_remedies() -> None:
    (told,) = _learning("muzero", dataclasses.replace(GOOD, same_reset=False))
    assert "super().reset(seed=seed)" in told
    masked = dataclasses.replace(VECTOR, has_action_mask=True)
    (told,) = _learning("muzero", dataclasses.replace(GOOD, forbids=False), masked)
    assert "mask" in told
    assert not _learning("muzero", dataclasses.replace(GOOD, forbids=True), masked)
