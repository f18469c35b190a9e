"""The policies of agents: each agent has the first pattern that matches, and every pattern an agent."""

from __future__ import annotations

import golden
import pytest

from seedzero.config import combinations, configs, options, presets, seats_config
from seedzero.core import errors, types

AGENTS = ("adversary_0", "adversary_1", "agent_0")
SIZES = {"evaluation.num_envs": 6, "evaluation.episodes": 6}


def _config(policies: str, agent: str = "ppo", **changes: options.Value) -> configs.Config:
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return configs.override(presets.get("agents", agent), {"seats.policies": policies, **dotted})


def _spec(seats: tuple[str, ...] = AGENTS, *, fixed: bool = True) -> types.EnvSpec:
    return types.EnvSpec((4,), "float32", 2, seats=seats, tasks=seats, fixed_seats=fixed)


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
def test_patterns_that_do_not_fit_are_named_with_the_agents(policies: str, named: str, said: golden.Said) -> None:
    with said.raises(errors.ConfigError, named.replace("*'", r"\*'"), policies):
        seats_config.policies(_config(policies), AGENTS)


def test_names_of_agents_that_no_policy_can_have_ask_for_a_map(said: golden.Said) -> None:
    with said.raises(errors.ConfigError, "'red-1'"):
        seats_config.policies(_config("each"), ("red-1", "red-2"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"league__freeze_every": 500}, "--league.freeze_every=500"),
        ({"training__num_devices": 2}, "--training.num_devices=2"),
        ({"max_env_steps": 1000}, "--max_env_steps=1000"),
        ({"cluster__num_hosts": 2, "cluster__coordinator": "localhost:1"}, "--cluster.num_hosts=2"),
    ],
)
def test_what_does_not_go_with_policies_is_refused(
    changes: dict[str, options.Value], named: str, said: golden.Said
) -> None:
    with said.raises(errors.ConfigError, named, named):
        combinations.check(_config("each", **changes))


def test_a_text_that_is_no_map_is_refused_before_the_environment_is_known() -> None:
    with pytest.raises(errors.ConfigError, match=r"--seats\.policies=wolves"):
        combinations.check(_config("wolves"))


@pytest.mark.parametrize("seats", [(), ("first", "second")])
def test_rows_that_keep_no_seat_have_one_policy(seats: tuple[str, ...], said: golden.Said) -> None:
    with said.raises(errors.ConfigError, "--seats.policies=each", str(len(seats))):
        combinations.check_environment(_config("each"), _spec(seats, fixed=False))
    combinations.check_environment(_config("shared"), _spec(seats, fixed=False))


def test_agents_with_a_queue_alone_have_policies_for_seats(said: golden.Said) -> None:
    for agent in ("ppo", "vtrace"):
        configs.check_read(["seats.policies"], agent)
    for agent in ("apex", "r2d2", "sac", "muzero"):
        with said.raises(errors.ConfigError, f"--seats.policies .*--agent={agent}", agent):
            configs.check_read(["seats.policies"], agent)


def test_a_central_value_asks_the_workers_for_the_joint_observation() -> None:
    config = _config("shared", ppo__central_value=True)
    found, _ = combinations.imply(config, preset_env=config.env.id, explicit={"ppo.central_value"})
    assert found.env.joint_observation and not config.env.joint_observation
    combinations.check(found)
    combinations.check_environment(configs.override(found, {"worker.envs_per_group": 6, **SIZES}), _spec())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"env__id": "gym:CartPole-v1", "ppo__central_value": True}, "--ppo.central_value=true: .*CartPole"),
        ({"env__joint_observation": True}, "--env.joint_observation is for --ppo.central_value"),
        ({"env__id": "gym:CartPole-v1", "env__joint_observation": True}, "--env.joint_observation=True is for"),
    ],
)
def test_a_joint_observation_is_of_several_agents_for_a_central_value(
    changes: dict[str, options.Value], named: str, said: golden.Said
) -> None:
    with said.raises(errors.ConfigError, named, named):
        combinations.check(_config("shared", **changes))


@pytest.mark.parametrize("shape", [(4,), (64, 64, 3)])
def test_a_central_value_sees_vectors_of_several_agents(shape: tuple[int, ...], said: golden.Said) -> None:
    names = AGENTS if len(shape) > 1 else ()
    spec = types.EnvSpec(shape, "float32", 2, seats=names, tasks=names, fixed_seats=bool(names))
    config = _config("shared", ppo__central_value=True, worker__envs_per_group=6)
    with said.raises(errors.ConfigError, "--ppo.central_value=true", str(len(shape))):
        combinations.check_environment(configs.override(config, SIZES), spec)
