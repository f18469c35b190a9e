"""The warning of a learning rate that has fallen to 0, or will have before the run's end."""

from __future__ import annotations

import re

import jax.numpy as jnp
import pytest

from seedzero.agents import learning, muzero_model, ppo
from seedzero.config import configs, options, presets
from seedzero.monitoring import decay
from seedzero.monitoring.metrics import counts


def _config(agent: str, **values: options.Value) -> configs.Config:
    changes = {name.replace("__", "."): value for name, value in values.items()}
    return configs.override(configs.Config(), {"run.agent": agent, **changes})


def _snapshot(updates: int, steps: int = 0) -> counts.Snapshot:
    return counts.Snapshot(counts=counts.Counts(stored=steps), num_updates=updates)


@pytest.mark.parametrize("agent", ["ppo", "vtrace"])
def test_a_resume_beyond_the_decay_is_warned_at_its_start_and_once(agent: str) -> None:
    found = decay.Decay(_config(agent, optimizer__decay_updates=50))
    assert re.search(r"--optimizer\.decay_updates=50.* --optimizer\.decay_updates=N", found.observe(_snapshot(50)))
    assert not any(found.observe(_snapshot(updates)) for updates in range(51, 200))


def test_a_budget_beyond_the_decay_is_warned_at_the_start_with_its_updates() -> None:
    # 12 of 32 unrolls of 128 steps: 49,152 steps; 100 updates in 409,600.
    assert "--optimizer.decay_updates=100," in _first("ppo", optimizer__decay_updates=12, run__max_env_steps=409_600)
    assert not _first("ppo", optimizer__decay_updates=12, run__max_env_steps=49_152)
    assert "--optimizer.decay_updates=90," in _first("vtrace", optimizer__decay_updates=12, run__max_updates=90)
    # The nearest budget counts.
    assert not _first("ppo", optimizer__decay_updates=12, run__max_env_steps=409_600, run__max_updates=12)


def test_the_rest_of_a_resumed_run_counts() -> None:
    config = _config("ppo", optimizer__decay_updates=12, run__max_env_steps=8 * 4_096)
    assert not decay.Decay(config).observe(_snapshot(0))
    assert not decay.Decay(config).observe(_snapshot(10, 6 * 4_096))
    assert "--optimizer.decay_updates=14," in decay.Decay(config).observe(_snapshot(10, 4 * 4_096))


def test_a_run_without_a_budget_is_warned_once_it_is_beyond_the_decay() -> None:
    found = decay.Decay(_config("vtrace", optimizer__decay_updates=100))
    told = [updates for updates in range(200) if found.observe(_snapshot(updates))]
    assert told == [105]


def test_a_constant_rate_and_other_agents_are_not_warned() -> None:
    for agent in configs.agent_names():
        assert not decay.Decay(_config(agent)).observe(_snapshot(10**9))


@pytest.mark.parametrize("preset", presets.PRESETS)
@pytest.mark.parametrize("agent", configs.agent_names())
def test_no_preset_is_warned(preset: str, agent: str) -> None:
    config = presets.get(preset, agent)
    on_cpu = configs.override(config, presets.cpu_values(preset, agent, explicit=set()))
    assert not any(decay.Decay(each).observe(_snapshot(0)) for each in (config, on_cpu))


@pytest.mark.parametrize(
    "schedule, share, is_warned",
    [("cosine", 0.0, True), ("linear", 0.0, True)]
    + [(schedule, share, False) for schedule, share in [("cosine", 0.1), ("exponential", 0.0), ("constant", 0.0)]],
)
def test_muzero_is_warned_exactly_where_its_rate_ends_at_0(schedule: str, share: float, is_warned: bool) -> None:
    config = _config(
        "muzero",
        optimizer__schedule=schedule,
        optimizer__decay_rate=share,
        optimizer__decay_updates=20,
        optimizer__warmup_updates=5,
    )
    rate = float(muzero_model.make_schedule(config.optimizer)(jnp.asarray(25)))
    assert (rate == 0) is is_warned
    assert ("--optimizer.decay_updates" in decay.Decay(config).observe(_snapshot(25))) is is_warned
    assert not decay.Decay(config).observe(_snapshot(24))


def test_the_end_is_the_first_update_with_a_rate_of_0() -> None:
    for agent in ("ppo", "vtrace"):
        config = _config(agent, optimizer__decay_updates=20)
        _, end = config.agent.decay_end(config)
        rates = [_rate(config, updates) for updates in (end - 1, end)]
        assert rates[0] > rates[1] == 0


def _rate(config: configs.Config, updates: int) -> float:
    number = jnp.asarray(updates)
    if config.run.agent == "ppo":
        return float(ppo._rates(config, number)[0])
    return float(learning.schedule(config.optimizer)(number))


def _first(agent: str, **values: options.Value) -> str:
    return decay.Decay(_config(agent, **values)).observe(_snapshot(0))
