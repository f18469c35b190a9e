from __future__ import annotations

import dataclasses

import pytest

from seedzero.config import config, options, sections


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


@pytest.mark.parametrize(
    "agent, final, can_learn, owed",
    [
        ("muzero", 5, True, 85),
        ("muzero", 0, True, 0),
        ("muzero", 5, False, 0),
        ("vtrace", 5, True, 0),
    ],
)
def test_final_updates_come_after_the_last_step(agent: str, final: int, can_learn: bool, owed: int) -> None:
    # 20 steps at 64 samples each are 80 updates of 16.
    values = {"run.max_env_steps": 20, "replay.batch_size": 16, "replay.samples_per_insert": 64.0}
    settings = config.override(config.Config(), {**values, "replay.final_updates": final, "run.agent": agent})
    assert settings.spent(owed, 20, can_learn=can_learn) == "--max_env_steps=20"
    assert settings.spent(owed + 100, 19, can_learn=can_learn) == ""
    assert not owed or settings.spent(owed - 1, 20) == ""


def test_shared_sections_are_checked_as_all_are() -> None:
    found = [field for field in dataclasses.fields(config.Config) if field.name not in config.agent_names()]
    assert all(isinstance(field.default, options.Section) for field in found)


def test_of_the_replay_an_agent_with_a_queue_reads_its_rings_alone() -> None:
    read = [name for name in config.fields() if name.startswith("replay.") and config.is_read(name, "vtrace")]
    assert read == ["replay.num_slots"]
