"""The policies of agents: each agent has the first pattern that matches, and every pattern an agent."""

from __future__ import annotations

import pytest

from seedzero.config import configs, presets, seats_config
from seedzero.core import errors

AGENTS = ("adversary_0", "adversary_1", "agent_0")


def _config(policies: str) -> configs.Config:
    return configs.override(presets.get("agents", "ppo"), {"seats.policies": policies})


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ("shared", ()),
        ("each", AGENTS),
        ('{"adversary_*": "wolf", "*": "sheep"}', ("wolf", "wolf", "sheep")),
        ('{"*_0": "first", "*": "Rest_2"}', ("first", "Rest_2", "first")),
        ('{"*": "all"}', ("all", "all", "all")),
        ('{"agent_0": "a", "adversary_0": "a", "adversary_[1-9]": "b"}', ("a", "b", "a")),
    ],
)
def test_each_agent_has_the_policy_of_the_first_pattern_that_matches(policies: str, expected: tuple[str, ...]) -> None:
    assert seats_config.policies(_config(policies), AGENTS) == expected


@pytest.mark.parametrize(
    ("policies", "named"),
    [
        ('{"adversary_*": "wolf", "prey_*": "sheep"}', "agent_0"),
        ('{"adversary_*": "wolf", "*": "sheep", "prey_*": "sheep"}', "'prey_*' .* none of them"),
        ('{"*": "sheep", "adversary_*": "wolf"}', "'adversary_*' .* adversary_0, adversary_1 already"),
        ('{"*0": "a", "*1": "b", "*2": "c", "*3": "d"}', "4 policies for 3 agents"),
        ('{"*": "main"}', "'main'"),
        ('{"*": "mcts-50"}', "'mcts-50'"),
        ('{"*": "sheep-1"}', "'sheep-1'"),
        ('{"*": 3}', "no names of policies"),
        ("{}", "no names of policies"),
        ("wolves", "wolves"),
    ],
)
def test_patterns_that_do_not_fit_are_named_with_the_agents(policies: str, named: str) -> None:
    with pytest.raises(errors.ConfigError, match=named.replace("*'", r"\*'")):
        seats_config.policies(_config(policies), AGENTS)


def test_names_of_agents_that_no_policy_can_have_ask_for_a_map() -> None:
    with pytest.raises(errors.ConfigError, match="'red-1'"):
        seats_config.policies(_config("each"), ("red-1", "red-2"))
