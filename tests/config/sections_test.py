from __future__ import annotations

import dataclasses

import pytest

from seedzero.config import configs, options, sections
from seedzero.core import errors


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
