from __future__ import annotations

import dataclasses
import math
import re

import pytest

from seedzero.config import configs
from seedzero.core import errors


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("search.num_simulations", "1_000", 1000),
        ("optimizer.learning_rate", "1e-3", 1e-3),
        ("run.stop_at_return", "inf", math.inf),
        ("reward.clip", "inf", math.inf),
        ("run.deterministic", "True", True),
        ("metrics.tensorboard", "0", False),
        ("env.id", "gym:CartPole-v1", "gym:CartPole-v1"),
    ],
)
def test_text_is_read_by_the_type_of_its_field(key: str, text: str, value: object) -> None:
    assert configs.flatten(configs.override(configs.Config(), {key: text}))[key] == value


@pytest.mark.parametrize("alias", configs.ALIASES)
def test_a_short_name_sets_its_field(alias: str) -> None:
    name = configs.ALIASES[alias]
    texts = {"agent": "muzero", "env": "remote", "listen": "unix:x", "deterministic": "true", "insecure": "true"}
    raw = texts.get(alias, "3")
    assert str(configs.flatten(configs.override(configs.Config(), {alias: raw}))[name]).lower() in (raw, f"{raw}.0")


@pytest.mark.parametrize(
    ("key", "raw", "message"),
    [
        ("search.num_simulation", "3", "--search.num_simulation=3; .*--search.num_simulations"),
        ("batch_size", "3", "--replay.batch_size"),
        ("replay.learning_rate", "3", "--optimizer.learning_rate"),
        ("zzzzzz", "3", "seedzero config"),
        ("seed", "x", "--seed=x: "),
        ("seed", "1.5", "--seed=1.5: "),
        ("deterministic", "maybe", "--deterministic=maybe: "),
        ("reward.discount", "high", "--reward.discount=high: "),
        ("reward.discount", "nan", "--reward.discount=nan: "),
        ("run.seed", "abc", "--seed=abc: "),
        ("replay.batch_size", "0", "--replay.batch_size .* 0; .* 1 .* 2147483647"),
        ("reward.discount", "1.5", "--reward.discount .* 1.5; .* 0 to 1"),
        ("optimizer.learning_rate", "inf", "--optimizer.learning_rate .* inf; .* finite"),
        ("vtrace.wait_seconds", "inf", "--vtrace.wait_seconds .* inf; "),
        ("ppo.wait_seconds", "1e10", "--ppo.wait_seconds .* 10000000000.0; "),
        ("bucket.lease_seconds", "inf", "--bucket.lease_seconds .* inf; "),
        ("worker.close_seconds", "inf", "--worker.close_seconds .*inf; .* from 0.1 to 1e[+]09"),
        ("search.policy", "alphago", "--search.policy .*'alphago'; .* gumbel, puct"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_the_way_out(key: str, raw: str, message: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        configs.override(configs.Config(), {key: raw})
    assert re.search(message, str(caught.value))


@pytest.mark.parametrize(
    ("name", "agent"),
    [("AlphaZero", "alphazero"), ("dqn", "apex"), ("Rainbow", "apex"), ("a2c", "ppo"), ("muzro", "muzero")],
)
def test_an_agent_by_another_programs_name_is_answered_by_the_one_most_alike(name: str, agent: str) -> None:
    with pytest.raises(errors.ConfigError, match=f"unknown agent '{name}'; did you mean {agent}[?]"):
        configs.override(configs.Config(), {"run.agent": name})


def test_every_field_says_what_it_is_and_starts_within_its_bounds() -> None:
    for name, field in configs.fields().items():
        assert field.metadata["help"], name
    flat = configs.flatten(configs.Config())
    assert flat.keys() == configs.fields().keys()
    assert configs.override(configs.Config(), flat) == configs.Config()


SAMPLING = [agent for agent in configs.agent_names() if getattr(configs.Config(), agent).SAMPLES]


def test_a_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        configs.Config().run.seed = 1  # type: ignore[misc]


def test_the_agent_that_runs_has_the_section_of_its_name() -> None:
    found = configs.Config()
    assert configs.agent_names()[:3] == ["muzero", "alphazero", "vtrace"] and found.agent is found.muzero
    other = configs.override(found, {"agent": "vtrace"})
    assert other.agent is other.vtrace


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("mu_zero", "'mu_zero'; .* muzero.* " + ", ".join(configs.agent_names())),
        ("zzz", f"'zzz'.* {', '.join(configs.agent_names())}; .*MODULE:OBJECT"),
        ("search", r"'search'; did you mean sac\?"),
    ],
)
def test_an_unknown_agent_is_told_with_the_nearest_one_and_all(agent: str, message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        configs.override(configs.Config(), {"agent": agent})


@pytest.mark.parametrize(
    ("name", "readers"),
    [
        ("run.seed", configs.agent_names()),
        ("training.publish_every", configs.agent_names()),
        ("replay.num_slots", configs.agent_names()),
        ("replay.capacity", SAMPLING),
        ("replay.priority_beta", SAMPLING),
        ("search.num_simulations", ["muzero", "alphazero"]),
        ("explore.epsilon", ["muzero"]),
        ("network.width", configs.agent_names()),
        ("network.num_bins", ["muzero", "alphazero"]),
        ("network.lstm_width", ["vtrace", "r2d2", "ppo"]),
        ("optimizer.learning_rate", configs.agent_names()),
        ("optimizer.kind", ["vtrace", "apex", "r2d2"]),
        ("reanalyse.per_insert", ["muzero"]),
        ("reward.discount", configs.agent_names()),
        ("reward.normalize", ["muzero", "ppo"]),
        ("sac.target_rate", ["sac"]),
    ],
)
def test_an_agent_reads_its_own_settings_and_the_shared_ones(name: str, readers: list[str]) -> None:
    assert [agent for agent in configs.agent_names() if configs.is_read(name, agent)] == readers


def test_every_setting_is_read_by_an_agent() -> None:
    for name in configs.fields():
        assert any(configs.is_read(name, agent) for agent in configs.agent_names()), name


@pytest.mark.parametrize(
    ("agent", "key", "nearest"),
    [
        ("muzero", "batch_size", "replay.batch_size"),
        ("vtrace", "batch_size", "vtrace.batch_size"),
        ("muzero", "learning_rate", "optimizer.learning_rate"),
        ("muzero", "lr", "optimizer.learning_rate"),
        ("vtrace", "lr", "optimizer.learning_rate"),
        ("vtrace", "entropy-coef", "vtrace.entropy_weight"),
        ("muzero", "total_timesteps", "run.max_env_steps"),
        ("muzero", "gamma", "reward.discount"),
        ("vtrace", "optimizer.learning_rat", "optimizer.learning_rate"),
        ("vtrace", "unroll_len", "vtrace.unroll_length"),
        ("muzero", "cluster.num_host", "cluster.num_hosts"),
    ],
)
def test_the_nearest_setting_is_one_that_the_agent_reads(agent: str, key: str, nearest: str) -> None:
    base = configs.override(configs.Config(), {"agent": agent})
    with pytest.raises(errors.ConfigError) as caught:
        configs.override(base, {key: "1"})
    assert f"--{nearest}?" in str(caught.value)


@pytest.mark.parametrize(
    ("agent", "key", "nearest"),
    [
        ("muzero", "ppo.learning_rat", "optimizer.learning_rate?"),
        ("muzero", "ppo.gamma", "reward.discount?"),
        ("muzero", "ppo.learning_rate", "optimizer.learning_rate?"),
        ("muzero", "clip_ratio", "ppo.clip_ratio? It is for --agent=ppo"),
        ("ppo", "buffer_size", f"replay.capacity? It is for --agent={'|'.join(SAMPLING)}"),
    ],
)
def test_a_setting_that_another_agent_reads_is_named_with_that_agent(agent: str, key: str, nearest: str) -> None:
    base = configs.override(configs.Config(), {"agent": agent})
    with pytest.raises(errors.ConfigError) as caught:
        configs.override(base, {key: "1"})
    assert f"--{key}=1; " in str(caught.value) and str(caught.value).endswith(nearest)


@pytest.mark.parametrize(
    ("name", "agent", "own"),
    [
        ("vtrace.batch_size", "apex", "replay.batch_size"),
        ("ppo.batch_size", "muzero", "replay.batch_size"),
        ("replay.batch_size", "vtrace", "vtrace.batch_size"),
        ("search.num_simulations", "ppo", ""),
        ("league.freeze_every", "apex", ""),
        ("league.members", "apex", ""),
        *(("seats.policies", agent, "") for agent in ("apex", "r2d2", "sac", "muzero")),
        ("replay.num_envs", "ppo", ""),  # evaluation.num_envs counts others
    ],
)
def test_a_setting_of_another_agent_names_its_own_of_the_same_name(name: str, agent: str, own: str) -> None:
    assert configs.counterpart(name, agent) == own
    with pytest.raises(errors.ConfigError, match=f"--{name} .*; give --{own}, " if own else "; leave it out, "):
        configs.check_read([name], agent)


def test_another_agent_brings_its_defaults_of_shared_settings() -> None:
    given = configs.override(configs.Config(), {"network.width": 5, "replay.capacity": 999})
    found = configs.override(given, {"run.agent": "ppo", "reward.discount": 0.5})
    assert found == configs.override(configs.of_agent("ppo"), {"reward.discount": 0.5, "replay.capacity": 999})
    assert found.network.width == 64 and found.optimizer.epsilon == 1e-5
    assert configs.override(found, {"run.agent": "ppo"}) == found
    assert configs.override(found, {"run.agent": "muzero"}).optimizer == configs.Config().optimizer


@pytest.mark.parametrize("agent", ["muzero", "vtrace", "apex", "r2d2", "ppo"])
def test_an_agent_has_its_own_choices_of_layers(agent: str) -> None:
    kind = "resnet" if agent != "muzero" else "deep"
    with pytest.raises(errors.ConfigError, match=f"--network.kind .*'{kind}'.*--agent={agent} .*auto"):
        configs.override(configs.Config(), {"run.agent": agent, "network.kind": kind})
