from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import pytest

from seedzero.config import combinations, configs, machines, options, presets
from seedzero.core import errors, types

MACHINES = [
    machines.Machine("cpu", num_cores=2, num_devices=1),
    machines.Machine("gpu", num_cores=16, num_devices=1),
    machines.Machine("tpu", num_cores=96, num_devices=4),
]
PARTS = [(name, agent) for agent, parts in presets.PARTS.items() for name in parts]


@pytest.mark.thorough
@pytest.mark.parametrize("found", MACHINES, ids=lambda found: found.platform)
@pytest.mark.parametrize(("name", "agent"), PARTS)
def test_every_preset_is_possible_on_every_machine_for_every_agent(
    name: str, agent: str, found: machines.Machine
) -> None:
    resolved, _ = machines.resolve(presets.get(name, agent), preset=name, explicit=set(), machine=found)
    combinations.check(resolved)
    assert resolved.run.agent == agent
    for key in ("training.num_devices", "replay.num_slots", "batcher.max_batch", "worker.threads"):
        assert configs.flatten(resolved)[key] != options.AUTO


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "agent"),
    [
        one
        for one in PARTS
        if "seats.policies" not in presets.part(*one).values and presets.get(*one).training.num_devices != 1
    ],
)  # policies of agents share one chip
def test_half_of_the_chips_may_act_other_shares_are_refused(name: str, agent: str) -> None:
    found = machines.Machine("tpu", num_cores=96, num_devices=8)

    def resolve(num_acting: int) -> configs.Config:
        asked = configs.override(presets.get(name, agent), {"training.acting_devices": num_acting})
        return machines.resolve(asked, preset=name, explicit={"training.acting_devices"}, machine=found)[0]

    combinations.check(resolve(4))
    assert resolve(4).replay.num_slots % 4 == 0
    with pytest.raises(errors.ConfigError, match=r"batch_size=\d+ .*=2 .* 6; .*--.*_size="):
        resolve(2)


def test_every_agent_has_parts_of_presets_that_exist_and_each_preset_s_own_agent() -> None:
    assert set(presets.PARTS) == set(configs.agent_names())
    assert all(parts.keys() <= presets.PRESETS.keys() for parts in presets.PARTS.values())
    assert all(name in presets.PARTS[presets.agent_of(name)] for name in presets.PRESETS)


@pytest.mark.parametrize(("name", "agent"), PARTS)
def test_a_part_sets_what_its_agent_reads_and_a_preset_what_all_read(name: str, agent: str) -> None:
    part, preset = presets.part(name, agent), presets.find(name)
    assert all(configs.is_read(key, agent) for key in [*part.values, *part.on_cpu, *part.elsewhere])
    shared = [*preset.values, *preset.on_cpu]
    assert all(configs.is_read(key, other) for key in shared for other in configs.agent_names())


def test_an_agents_part_goes_over_the_shared_values() -> None:
    values, part = presets.find("catch").values, presets.part("catch", "vtrace").values
    assert values["evaluation.every_updates"] == 100 and part["evaluation.every_updates"] == 200
    found = configs.flatten(presets.get("catch", "vtrace"))
    assert {key: found[key] for key in part} == part
    assert found["evaluation.every_updates"] == 200 and found["run.stop_at_return"] == 1.0
    assert presets.get("catch").evaluation.every_updates == 100


@pytest.mark.parametrize(
    ("league", "base"), [("league-tictactoe", "tictactoe"), ("league-connect-four", "connect_four")]
)
def test_a_league_s_preset_is_the_game_s_with_snapshots(league: str, base: str) -> None:
    found, without = (configs.flatten(presets.get(name)) for name in (league, base))
    assert {name for name in found if found[name] != without[name]} == {"league.freeze_every", "env.opponents"}
    assert without["league.freeze_every"] == 0 < found["league.freeze_every"]


def test_only_presets_of_leagues_have_one() -> None:
    found = {name for name in presets.PRESETS if presets.get(name).league != configs.Config().league}
    seats = {"league-brps", "league-kuhn", "league-leduc", "league-goofspiel", "league-soccer", "roshambo"}
    assert found == {"league-tictactoe", "league-connect-four", "league-football", *seats}
    boards = {"pgx", "hex", "othello", "go9"}
    others = {presets.SEATS, presets.AGENTS, "football-sides", "league-football", *seats, *boards}
    assert {name for name in presets.PRESETS if presets.agent_of(name) != "muzero"} == others


@pytest.mark.parametrize("agent", ["apex", "r2d2"])
def test_prioritized_agents_have_priorities_with_every_preset_of_theirs(agent: str) -> None:
    two_players = {"tictactoe", "connect_four", "spiel", "league-tictactoe", "league-connect-four"}
    vectors = {"continuous", "mujoco"}
    seats = {"seats", "league-brps", "league-kuhn", "league-leduc", "league-goofspiel", "league-soccer", "roshambo"}
    boards = {"pgx", "hex", "othello", "go9"}
    others = {
        *two_players,
        *vectors,
        *seats,
        *boards,
        "football-sides",
        "league-football",
        "atari-100k",
        "atari-large",
    }
    for name in presets.PRESETS.keys() - others:
        assert presets.get(name, agent).replay.priority_alpha > 0, name


@pytest.mark.parametrize("agent", ["ppo", "vtrace"])
@pytest.mark.parametrize("name", ["pixels", "atari", "atari-100k", "atari-large"])
def test_agents_of_queues_act_with_the_newest_parameters_and_see_four_frames(name: str, agent: str) -> None:
    found = presets.get(name, agent)
    assert found.training.publish_every == 1 and found.network.frame_stack == 4
    assert combinations.imply(found, preset_env=found.env.id, explicit=set()) == (found, [])


@pytest.mark.parametrize("name", sorted(presets.PARTS["ppo"].keys() - {"league-goofspiel"}))
def test_ppo_has_as_many_unrolls_in_a_batch_as_there_are_environments(name: str) -> None:
    found = presets.get(name, "ppo")
    assert combinations.imply(found, preset_env=found.env.id, explicit=set()) == (found, [])


@pytest.mark.parametrize("name", presets.PARTS["r2d2"])
def test_r2d2_begins_to_learn_once_there_is_something_to_learn_from(name: str) -> None:
    on_cpu = configs.override(presets.get(name, "r2d2"), presets.cpu_values(name, "r2d2", explicit=set()))
    assert combinations.imply(on_cpu, preset_env=on_cpu.env.id, explicit=set()) == (on_cpu, [])


@pytest.mark.parametrize("agent", ["ppo", "vtrace"])
@pytest.mark.parametrize("on_cpu", [False, True])
def test_a_run_of_100k_steps_is_evaluated_several_times(agent: str, *, on_cpu: bool) -> None:
    found = presets.get("atari-100k", agent)
    if on_cpu:
        found = configs.override(found, presets.cpu_values("atari-100k", agent, explicit=set()))
    of_update = found.agent.batch_size * found.agent.unroll_length  # type: ignore[attr-defined]
    assert 5 <= found.run.max_env_steps / of_update / found.evaluation.every_updates <= 10


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("name", ["atari", "atari-100k"])
def test_what_muzero_counts_in_updates_fits_into_the_updates_of_its_budget(name: str, platform: str) -> None:
    where = machines.Machine(platform, 2, 1)
    found, _ = machines.resolve(presets.get(name), preset=name, explicit=set(), machine=where)
    replay, optimizer, muzero = found.replay, found.optimizer, found.muzero
    with_steps = found.run.max_env_steps * replay.samples_per_insert / replay.batch_size
    assert replay.final_updates <= 0.2 * with_steps
    if muzero.search_value_age:
        assert 0.25 < muzero.search_value_start / with_steps < 0.35
    if optimizer.schedule == "cosine":
        assert 0.95 < optimizer.decay_updates / with_steps < 1


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_ppos_learning_rate_reaches_its_end_with_the_budget(platform: str) -> None:
    where = machines.Machine(platform, 2, 1)
    found, _ = machines.resolve(presets.get("atari", "ppo"), preset="atari", explicit=set(), machine=where)
    assert found.worker.num_envs == found.ppo.batch_size
    updates = found.run.max_env_steps / (found.ppo.batch_size * found.ppo.unroll_length)
    assert 1 < found.optimizer.decay_updates / updates < 1.03


@pytest.mark.parametrize("agent", ["vtrace", "apex", "r2d2"])
def test_presets_of_papers_that_play_with_all_actions_do_so(agent: str) -> None:
    assert presets.get("atari", agent).env.full_action_space


def test_an_agent_without_a_part_keeps_its_defaults_beside_the_shared_values() -> None:
    assert "tictactoe" not in presets.PARTS["apex"]
    found = presets.get("tictactoe", "apex")
    assert found.apex == configs.Config().apex
    assert (found.run.agent, found.env.random_opening) == ("apex", 6)


def test_the_values_of_a_cpu_are_the_presets_and_the_agents_save_what_the_user_set() -> None:
    muzero, vtrace = (presets.cpu_values("atari", agent, explicit=set()) for agent in ("muzero", "vtrace"))
    assert muzero["search.num_simulations"] == 8 and muzero["worker.envs_per_group"] == 16
    assert vtrace["worker.envs_per_group"] == 8 and not any(key.startswith("search.") for key in vtrace)
    explicit = {"worker.envs_per_group"}
    assert not explicit & presets.cpu_values("atari", "vtrace", explicit=explicit).keys()


def test_an_unknown_preset_is_told_with_the_nearest_one() -> None:
    with pytest.raises(errors.ConfigError, match=r"--preset=atry; .*--preset=atari"):
        presets.get("atry")
    with pytest.raises(errors.ConfigError, match=r"--preset=zzzzzz.*seedzero train --help"):
        presets.get("zzzzzz")


def _spec(*shape: int, **more: Any) -> types.EnvSpec:
    return types.EnvSpec(shape, **{"observation_dtype": "uint8", "num_actions": 2, **more})


@pytest.mark.parametrize(
    ("spec", "name", "reason"),
    [
        (_spec(8), "vector", "vectors of 8"),
        (_spec(8, observation_dtype="float32", num_states=8), "discrete", " one of 8 numbers"),
        (_spec(2, 2, 2, 2), "vector", "2x2x2x2"),
        (_spec(10, 10, 4), "vector", "grids of 10x10x4"),
        (_spec(64, 64, 3), "pixels", "images of 64x64x3"),
        (_spec(84, 84, observation_dtype="float32"), "pixels", "84x84"),
        (_spec(64, 64, 3, num_actions=0, action_low=(0,), action_high=(1,)), "continuous", "continuous"),
        (None, "vector", ""),
    ],
)
def test_what_an_environment_shows_chooses_the_preset(spec: types.EnvSpec | None, name: str, reason: str) -> None:
    for env in ("gym:my_module:MyEnv-v0", "gym:ALE/Pong-v5"):
        chosen, why = presets.choose(env, spec)
        assert chosen == name and reason in why


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("catch", "catch"),
        ("atari:Breakout", "atari"),
        ("dmlab:dmlab30", "dmlab"),
        ("gym:MinAtar/Freeway-v1", "minatar"),
        ("spiel:tic_tac_toe", "tictactoe"),
        ("spiel:connect_four(rows=4,columns=5)", "connect_four"),
        ("spiel:othello", "spiel"),
        ("memory:cartpole", "memory-cartpole"),
        ("memory:tmaze-35", "memory-tmaze"),
        ("memory:repeat-8", "memory-repeat"),
        ("football:5_vs_5", "football"),
    ],
)
def test_a_known_family_has_a_preset_of_its_own(env: str, name: str) -> None:
    assert presets.choose(env, _spec(10, 10, 4)) == presets.choose(env, None) == (name, "")


def test_football_from_both_sides_has_a_preset_of_its_own() -> None:
    name, why = presets.choose("football:5_vs_5", None, has_sides=True)
    assert (name, presets.agent_of(name)) == ("football-sides", "ppo") and "both sides" in why


def test_games_of_seats_have_a_preset_of_their_own() -> None:
    seated = types.EnvSpec((4,), "float32", 2, tasks=("a", "b"), seats=("a", "b"))
    name, why = presets.choose("spiel:liars_dice", seated)
    assert (name, presets.agent_of(name)) == ("seats", "ppo") and "2 seats" in why
    assert presets.choose("spiel:liars_dice", None) == ("spiel", "")
    assert presets.choose("spiel:backgammon", seated, in_turn=True)[0] == "chance"
    assert presets.choose("spiel:tic_tac_toe", seated, in_turn=True)[0] == "tictactoe"


def test_agents_have_a_preset_unless_they_see_images() -> None:
    agents = types.EnvSpec((4,), "float32", 2, tasks=("a", "b"), seats=("a", "b"), fixed_seats=True)
    name, why = presets.choose("pettingzoo:my_module:make", agents)
    assert (name, presets.agent_of(name)) == ("agents", "ppo") and "2 agents" in why
    images = dataclasses.replace(agents, observation_shape=(84, 84, 3), observation_dtype="uint8")
    assert presets.choose("pettingzoo:my_module:make", images)[0] == "pixels"
    alone = types.EnvSpec((4,), "float32", 2)
    assert presets.choose("pettingzoo:my_module:make", alone)[0] == "vector"


def test_no_preset_sets_the_network_that_follows_from_the_observations() -> None:
    assert {presets.get(name).network.kind for name in presets.PRESETS} == {"auto"}
    assert {presets.get(name, "vtrace").network.kind for name in presets.PRESETS} == {"auto"}


def _file(tmp_path: pathlib.Path, content: str) -> pathlib.Path:
    file = tmp_path / "mine.preset"
    file.write_text(content)
    return file


def test_a_file_changes_a_preset(tmp_path: pathlib.Path) -> None:
    file = _file(
        tmp_path,
        "# of mine\n\n--preset=catch\n--agent=ppo\n--seed=3\n  \n--network.width=32 \n\t# wide\n  --listen=\n",
    )
    found = presets.read_file(file)
    assert found.preset == "catch"
    assert found.settings == {"run.agent": "ppo", "run.seed": "3", "network.width": "32", "transport.listen": ""}


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: pathlib.Path) -> None:
    file = _file(tmp_path, "\ufeff--preset=catch\n--agent=ppo\n")
    assert presets.read_file(file) == presets.PresetFile("catch", {"run.agent": "ppo"})


def test_no_preset_of_the_table_looks_like_a_file() -> None:
    assert not any(map(presets.is_file, presets.PRESETS))
    assert presets.is_file("mine.preset") and presets.is_file("./mine")


@pytest.mark.parametrize(
    ("content", "line", "told"),
    [
        ("--seed=3\n", 1, "--preset=NAME"),
        ("--preset=catch\nseed=3\n", 2, "'seed=3'; expected --setting=value"),
        ("--preset=catch\n--seed 3\n", 2, "'--seed 3'; expected --setting=value"),
        ("--preset=catch\n\n--sed=3\n", 3, "--sed"),
        ("--preset=catch\n--seed=three\n", 2, "three"),
        ("--preset=catch\n--agent=ppo\n--network.width=0\n", 3, "--network.width is 0; .*at least 1"),
        ("--preset=catch\n--seed=1\n--run.seed=2\n", 3, "--run.seed is in line 2, too"),
        ("--preset=catch\n--vtrace.width=8\n", 2, "--vtrace.width"),
        ("# mine\n--preset=cach\n", 2, "--preset=cach; .*--preset=catch"),
        ("--preset=catch\n--agent=pqn\n", 2, "'pqn'.* muzero, .*MODULE:OBJECT"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(content: str, line: int, told: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.ConfigError, match=rf"mine\.preset:{line}: .*{told}"):
        presets.read_file(_file(tmp_path, content))


def test_a_file_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"none\.preset"):
        presets.read_file(tmp_path / "none.preset")
    with pytest.raises(errors.ConfigError, match=f"--preset={tmp_path}: Is a directory; expected a file"):
        presets.read_file(tmp_path)
    (tmp_path / "bytes.preset").write_bytes(b"--preset=catch\n--seed=\xff")
    with pytest.raises(errors.ConfigError, match=r"bytes\.preset:2: .*--setting=value"):
        presets.read_file(tmp_path / "bytes.preset")
