"""What agents share: one declaration of each setting, and the values that are passed on."""

from __future__ import annotations

import pytest

from seedzero.config import configs


def test_an_agent_sets_limits_of_its_own() -> None:
    fields = configs.fields()
    assert fields["vtrace.unroll_length"].metadata["high"] == 1000
    assert fields["ppo.unroll_length"].metadata["high"] == 10_000


@pytest.mark.parametrize("agent", configs.agent_names())
def test_an_agent_has_defaults_of_the_shared_settings_that_it_reads(agent: str) -> None:
    config, fields = configs.of_agent(agent), configs.fields()
    values = configs.flatten(config)
    assert config.agent.DEFAULTS.keys() <= fields.keys()
    assert all(values[name] == default for name, default in config.agent.DEFAULTS.items())
    read = {name for name in fields if name.startswith(("optimizer.", "network.", "reward."))}
    read = {name for name in read if configs.is_read(name, agent)}
    assert agent == "muzero" or read == config.agent.DEFAULTS.keys()
    assert {"optimizer.learning_rate", "network.width", "reward.discount"} <= read
