from __future__ import annotations

import pytest

from seedzero.config import combinations, configs, machines, options, presets
from seedzero.core import errors, types

CPU = machines.Machine("cpu", num_cores=2, num_devices=1)
GPU = machines.Machine("gpu", num_cores=16, num_devices=1)
TPUS = machines.Machine("tpu", num_cores=96, num_devices=4)


def test_atari_shrinks_on_a_cpu_and_says_so() -> None:
    large, _ = machines.resolve(presets.get("atari"), preset="atari", explicit=set(), machine=GPU)
    small, notes = machines.resolve(presets.get("atari"), preset="atari", explicit=set(), machine=CPU)
    assert (large.replay.batch_size, large.search.num_simulations) == (512, 16)
    assert small.replay.batch_size < large.replay.batch_size
    assert small.search.num_simulations < large.search.num_simulations
    assert f"search.num_simulations={small.search.num_simulations}," in notes[0]


@pytest.mark.parametrize(("agent", "is_told"), [("alphazero", True), ("muzero", False)])
def test_a_line_says_what_a_cpu_changes_or_the_first_of_it_and_how_many_more(agent: str, is_told: bool) -> None:
    small, notes = machines.resolve(presets.get("atari", agent), preset="atari", explicit=set(), machine=CPU)
    changes = presets.cpu_values("atari", agent, explicit=set())
    shown = [name for name in changes if f" {name}={configs.flatten(small)[name]}" in notes[0]]
    more = f" and {len(changes) - len(shown)} more settings, which `seedzero config --preset=atari --agent={agent} "
    assert (shown == list(changes)) == is_told and (more in notes[0]) != is_told
    assert is_told or (1 < len(shown) < 12 and all(configs.mark(name) == options.START for name in shown))


@pytest.mark.parametrize(
    ("preset", "given", "name", "value"),
    [
        ("atari-100k", {"run.max_env_steps": 0}, "replay.final_updates", 0),
        ("atari", {"network.module": "my_net:make"}, "muzero.consistency_weight", 0.0),
    ],
)
def test_what_the_user_s_settings_imply_holds_on_a_cpu_too(
    preset: str, given: dict[str, options.Value], name: str, value: options.Value
) -> None:
    asked, _ = combinations.imply(
        configs.override(presets.get(preset), given), preset_env="atari:Pong", explicit=given.keys()
    )
    resolved, _ = machines.resolve(asked, preset=preset, explicit=given.keys(), machine=CPU)
    assert configs.flatten(resolved)[name] == value
    combinations.check(resolved)


def test_an_end_that_the_environment_gave_stays_on_a_cpu() -> None:
    asked = configs.override(presets.get("pixels"), {"env.id": "gym:Other-v0", "run.stop_at_return": 900.0})
    resolved, _ = machines.resolve(asked, preset="pixels", explicit={"env.id"}, machine=CPU)
    assert resolved.run.stop_at_return == 900.0


def test_groups_of_whole_games_stay_whole_on_a_cpu() -> None:
    spec = types.EnvSpec(
        (64, 64, 3), "uint8", num_actions=3, seats=("a", "b", "c"), tasks=("a", "b", "c"), fixed_seats=True
    )
    asked, _ = combinations.imply_by_environment(presets.get("pixels", "ppo"), spec, explicit=set())
    resolved, _ = machines.resolve(asked, preset="pixels", explicit=set(), machine=CPU, spec=spec)
    assert resolved.worker.envs_per_group % 3 == 0 and resolved.worker.envs_per_group < asked.worker.envs_per_group


def test_what_the_user_set_stays_on_a_cpu_too() -> None:
    asked = configs.override(presets.get("atari"), {"replay.batch_size": "24", "worker.threads": "5"})
    explicit = {"replay.batch_size", "worker.threads"}
    resolved, notes = machines.resolve(asked, preset="atari", explicit=explicit, machine=CPU)
    assert (resolved.replay.batch_size, resolved.worker.threads) == (24, 5)
    assert not any("batch_size" in note for note in notes)


def test_slots_are_the_local_environments_shared_evenly_by_the_devices() -> None:
    asked = configs.override(presets.get("catch"), {"worker.num": 3, "worker.envs_per_group": 5})
    resolved, _ = machines.resolve(asked, preset="catch", explicit=set(), machine=TPUS)
    assert resolved.replay.num_slots == 32  # 3 workers x 2 groups x 5 = 30, and 4 devices


@pytest.mark.parametrize(
    ("settings", "num_slots", "num_envs"),
    [
        ({}, 32, 0),
        ({"transport.listen": "unix:/a"}, 32, 0),
        ({"transport.listen": "127.0.0.1:0"}, 64, 32),
        ({"transport.listen": "127.0.0.1:0", "worker.num": 3}, 128, 96),
        ({"transport.listen": "127.0.0.1:0", "run.deterministic": True}, 32, 0),
        ({"transport.listen": "127.0.0.1:0", "run.agent": "vtrace"}, 64, 0),
        ({"transport.listen": "127.0.0.1:0", "replay.num_slots": 40}, 40, 32),
        ({"transport.listen": "127.0.0.1:0", "replay.num_envs": 48}, 64, 48),
        ({"replay.num_slots": 40}, 40, 0),
        ({"replay.num_slots": 40, "worker.num": 0}, 40, 0),
        ({"replay.num_slots": 99, "worker.num": 0, "worker.num_remote": 2}, 99, 64),
        ({"replay.num_slots": 40, "worker.num": 0, "worker.num_remote": 2}, 40, 0),
    ],
)
def test_one_more_worker_finds_rings_over_tcp_beside_those_that_share_the_capacity(
    settings: dict[str, options.Value], num_slots: int, num_envs: int
) -> None:
    asked = configs.override(presets.get("catch"), settings)
    resolved, _ = machines.resolve(asked, preset="catch", explicit=settings.keys(), machine=CPU)
    assert (resolved.replay.num_slots, resolved.replay.num_envs) == (num_slots, num_envs)


def test_remote_workers_find_slots() -> None:
    asked = configs.override(presets.get("catch"), {"worker.num": 0})
    resolved, _ = machines.resolve(asked, preset="catch", explicit=set(), machine=CPU)
    assert resolved.replay.num_slots == 4 * 32  # four workers with what each is asked for


@pytest.mark.parametrize(("num_local", "num_remote", "num_slots"), [(0, 2, 64), (0, 9, 288), (1, 9, 320), (1, 1, 64)])
def test_expected_remote_workers_find_slots(num_local: int, num_remote: int, num_slots: int) -> None:
    asked = configs.override(presets.get("catch"), {"worker.num": num_local, "worker.num_remote": num_remote})
    resolved, _ = machines.resolve(asked, preset="catch", explicit=set(), machine=CPU)
    assert resolved.replay.num_slots == resolved.replay.num_sharing == resolved.batcher.max_batch == num_slots


def test_a_batch_that_devices_cannot_share_is_refused_with_one_that_they_can() -> None:
    asked = configs.override(presets.get("catch"), {"replay.batch_size": 130})
    with pytest.raises(errors.ConfigError, match=r"replay.batch_size=130 .* try --replay.batch_size=132"):
        machines.resolve(asked, preset="catch", explicit={"replay.batch_size"}, machine=TPUS)


EIGHT = machines.Machine("tpu", num_cores=96, num_devices=8)


def test_slots_are_those_of_the_acting_devices() -> None:
    changes = {"training.acting_devices": 3, "replay.batch_size": 30}
    resolved, _ = machines.resolve(
        configs.override(presets.get("catch"), changes), preset="catch", explicit=changes.keys(), machine=EIGHT
    )
    assert (resolved.training.num_devices, resolved.replay.num_slots) == (8, 33)


@pytest.mark.parametrize(
    ("changes", "is_told"), [({}, True), ({"worker.num_remote": 1}, False), ({"training.num_devices": 4}, False)]
)
def test_a_device_that_waits_for_an_environment_is_told(changes: dict[str, int], is_told: bool) -> None:
    changes = {"worker.envs_per_group": 2, **changes}
    asked = configs.override(presets.get("cartpole"), changes)
    _, notes = machines.resolve(asked, preset="cartpole", explicit=changes.keys(), machine=EIGHT)
    told = [note for note in notes if "4 environments " in note and " 8 devices" in note]
    assert told == notes[1:] * is_told and len(told) == is_told


def test_an_evaluation_of_all_levels_fits_into_a_batch() -> None:
    changes = {"env.id": "dmlab:dmlab30", "worker.num": 1}
    asked = configs.override(presets.get("dmlab"), changes)
    found, _ = machines.resolve(asked, preset="dmlab", explicit=changes.keys(), machine=machines.Machine("cpu", 2, 1))
    assert (found.replay.num_slots, found.batcher.max_batch) == (8, 30)


def test_threads_are_shared_by_the_local_workers() -> None:
    asked = configs.override(presets.get("atari"), {"worker.num": 4})
    resolved, _ = machines.resolve(asked, preset="atari", explicit=set(), machine=GPU)
    assert resolved.worker.threads == 4


def test_the_agents_part_of_a_preset_shrinks_on_a_cpu_too() -> None:
    asked = presets.get("atari", "vtrace")
    small, notes = machines.resolve(asked, preset="atari", explicit=set(), machine=CPU)
    assert small.worker.envs_per_group < asked.worker.envs_per_group
    assert small.search == asked.search  # the other agent's part
    assert "search" not in notes[0]


def test_several_players_of_a_league_need_no_numbers_that_all_devices_divide() -> None:
    league = configs.override(presets.get("league-tictactoe"), {"league.main_exploiters": 1, "worker.num_groups": 3})
    resolved, notes = machines.resolve(league, preset="league-tictactoe", explicit=set(), machine=EIGHT)
    num_slots = 3 * league.worker.envs_per_group
    assert (resolved.training.num_devices, resolved.replay.num_slots) == (8, num_slots) and num_slots % 7
    combinations.check_devices(configs.override(resolved, {"training.num_devices": 7}))
    assert not any("leave some of" in note for note in notes)
