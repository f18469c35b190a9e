from __future__ import annotations

import dataclasses
import math

import pytest

from seedzero.config import config
from seedzero.core import errors


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("search.num_simulations", "1_000", 1000),
        ("optimizer.learning_rate", "1e-3", 1e-3),
        ("run.stop_at_return", "inf", math.inf),
        ("run.deterministic", "True", True),
        ("metrics.tensorboard", "0", False),
        ("env.id", "gym:CartPole-v1", "gym:CartPole-v1"),
    ],
)
def test_text_is_read_by_the_type_of_its_field(key: str, text: str, value: object) -> None:
    assert config.flatten(config.override(config.Config(), {key: text}))[key] == value


@pytest.mark.parametrize("alias", config.ALIASES)
def test_a_short_name_sets_its_field(alias: str) -> None:
    name = config.ALIASES[alias]
    texts = {"agent": "muzero", "env": "remote", "listen": "unix:x", "deterministic": "true", "insecure": "true"}
    raw = texts.get(alias, "3")
    assert str(config.flatten(config.override(config.Config(), {alias: raw}))[name]).lower() in (raw, f"{raw}.0")


@pytest.mark.parametrize(
    ("key", "raw", "message"),
    [
        ("search.num_simulation", "3", "--search.num_simulation=3; did you mean --search.num_simulations?"),
        ("batch_size", "3", "did you mean --replay.batch_size?"),
        ("replay.learning_rate", "3", "did you mean --optimizer.learning_rate?"),
        ("zzzzzz", "3", "seedzero config"),
        ("seed", "x", "--seed=x: expected a whole number"),
        ("seed", "1.5", "--seed=1.5: expected a whole number"),
        ("deterministic", "maybe", "--deterministic=maybe: expected true or false"),
        ("muzero.discount", "high", "--muzero.discount=high: expected a number"),
        ("muzero.discount", "nan", "--muzero.discount=nan: expected a number"),
        ("muzero.discount", "1.5", "--muzero.discount is 1.5; it must be from 0 to 1"),
        ("search.policy", "alphago", "--search.policy is 'alphago'; choose one of gumbel, puct"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_the_way_out(key: str, raw: str, message: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        config.override(config.Config(), {key: raw})
    assert message in str(caught.value)


def test_a_lease_must_outlast_a_lost_heartbeat() -> None:
    with pytest.raises(errors.ConfigError, match=r"lease_seconds=8.*at least twice.*heartbeat_seconds=5"):
        config.override(config.Config(), {"transport.lease_seconds": "8"})


def test_both_sides_of_a_bound_may_change_together() -> None:
    changed = config.override(config.Config(), {"transport.lease_seconds": "1", "transport.heartbeat_seconds": "0.1"})
    assert changed.transport.lease_seconds == 1.0


def test_every_field_says_what_it_is_and_starts_within_its_bounds() -> None:
    for name, field in config.fields().items():
        assert field.metadata["help"], name
    flat = config.flatten(config.Config())
    assert flat.keys() == config.fields().keys()
    assert config.override(config.Config(), flat) == config.Config()


def test_a_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.Config().run.seed = 1  # type: ignore[misc]
