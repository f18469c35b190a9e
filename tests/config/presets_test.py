from __future__ import annotations

import pytest

from seedzero.config import combinations, config, machine, options, presets
from seedzero.core import errors

MACHINES = [
    machine.Machine("cpu", num_cores=2, num_devices=1),
    machine.Machine("gpu", num_cores=16, num_devices=1),
    machine.Machine("tpu", num_cores=96, num_devices=4),
]
PARTS = [(name, agent) for agent, parts in presets.PARTS.items() for name in parts]


@pytest.mark.parametrize("found", MACHINES, ids=lambda found: found.platform)
@pytest.mark.parametrize(("name", "agent"), PARTS)
def test_every_preset_is_complete_and_possible_on_every_kind_of_machine_for_every_agent_with_a_part(
    name: str, agent: str, found: machine.Machine
) -> None:
    resolved, _ = machine.resolve(presets.get(name, agent), preset=name, explicit=set(), machine=found)
    combinations.check(resolved)
    assert resolved.run.agent == agent
    for key in ("training.num_devices", "replay.num_slots", "batcher.max_batch", "worker.threads"):
        assert config.flatten(resolved)[key] != options.AUTO


def test_every_agent_has_parts_of_presets_that_exist_and_the_default_agent_of_all() -> None:
    assert set(presets.PARTS) == set(config.agent_names())
    assert all(parts.keys() <= presets.PRESETS.keys() for parts in presets.PARTS.values())
    assert presets.PARTS[config.agent_names()[0]].keys() == presets.PRESETS.keys()


@pytest.mark.parametrize(("name", "agent"), PARTS)
def test_a_part_sets_what_its_agent_reads_and_a_preset_what_all_read(name: str, agent: str) -> None:
    part, preset = presets.part(name, agent), presets.find(name)
    assert all(config.is_read(key, agent) for key in [*part.values, *part.on_cpu])
    shared = [*preset.values, *preset.on_cpu]
    assert all(config.is_read(key, other) for key in shared for other in config.agent_names())


def test_an_agents_part_goes_over_the_shared_values() -> None:
    values, part = presets.find("catch").values, presets.part("catch", "vtrace").values
    assert values["evaluation.every_updates"] == 100 and part["evaluation.every_updates"] == 200
    found = config.flatten(presets.get("catch", "vtrace"))
    assert {key: found[key] for key in part} == part
    assert found["evaluation.every_updates"] == 200 and found["run.stop_at_return"] == 1.0
    assert presets.get("catch").evaluation.every_updates == 100


def test_an_agent_without_a_part_keeps_its_defaults_beside_the_shared_values() -> None:
    assert "tictactoe" not in presets.PARTS["vtrace"]
    found = presets.get("tictactoe", "vtrace")
    assert found.vtrace == config.Config().vtrace
    assert (found.run.agent, found.env.random_opening) == ("vtrace", 6)


def test_an_unknown_agent_is_told_with_the_nearest_one() -> None:
    with pytest.raises(errors.ConfigError, match=r"unknown agent 'vtrac'; did you mean vtrace?"):
        presets.get("catch", "vtrac")


def test_the_values_of_a_cpu_are_the_presets_and_the_agents_save_what_the_user_set() -> None:
    muzero, vtrace = (presets.cpu_values("atari", agent, explicit=set()) for agent in ("muzero", "vtrace"))
    assert muzero["search.num_simulations"] == 4 and muzero["worker.envs_per_group"] == 8
    assert vtrace["worker.envs_per_group"] == 8 and not any(key.startswith("search.") for key in vtrace)
    explicit = {"worker.envs_per_group"}
    assert not explicit & presets.cpu_values("atari", "vtrace", explicit=explicit).keys()


def test_an_unknown_preset_is_told_with_the_nearest_one() -> None:
    with pytest.raises(errors.ConfigError, match="--preset=atry; did you mean --preset=atari"):
        presets.get("atry")
    with pytest.raises(errors.ConfigError, match="choose one of catch, cartpole"):
        presets.get("zzzzzz")


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("catch", "catch"),
        ("atari:Breakout", "atari"),
        ("gym:LunarLander-v3", "vector"),
        ("gym:MinAtar/Freeway-v1", "minatar"),
        ("gym:my_module:MyEnv-v0", "vector"),
        ("gym:ALE/Pong-v5", "pixels"),
        ("gym:ale_py:ALE/Pong-v5", "pixels"),
        ("remote", "vector"),
        ("spiel:tic_tac_toe", "tictactoe"),
        ("spiel:connect_four(rows=4,columns=5)", "connect_four"),
        ("spiel:othello", "spiel"),
    ],
)
def test_an_environment_without_preset_gets_the_one_that_suits(env: str, name: str) -> None:
    assert presets.name_for(env) == name
