"""Settings of the run's agent, by key."""

from __future__ import annotations

import pytest

from seedzero.config import agent_settings, configs


@pytest.mark.parametrize(
    ("agent", "key", "name", "value"),
    [
        ("ppo", "learning_rate", "optimizer.learning_rate", 2.5e-4),
        ("muzero", "learning_rate", "optimizer.learning_rate", 2e-3),
        ("muzero", "entropy_weight", "muzero.entropy_weight", 0.0),
        ("apex", "entropy_weight", "", None),
        ("ppo", "batch_size", "ppo.batch_size", 32),
        ("apex", "min_steps", "replay.min_steps", configs.Config().replay.min_steps),
        ("ppo", "min_steps", "", None),
    ],
)
def test_a_setting_is_found_where_the_agent_reads_it(agent: str, key: str, name: str, value: object) -> None:
    config = configs.override(configs.Config(), {"run.agent": agent})
    assert agent_settings.name(config, key) == name and agent_settings.value(config, key) == value


def test_a_setting_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configs.override(configs.Config(), {"run.agent": "ppo"})
    name = agent_settings.name(config, "clip_norm")
    monkeypatch.setattr(configs, "fields", None)
    assert agent_settings.name(config, "clip_norm") == name
