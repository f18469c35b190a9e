from __future__ import annotations

import contextlib
import functools
import math
import re
from typing import Any

import golden
import pytest

from seedzero.config import combinations, configs, options, presets
from seedzero.core import errors, types


def _catch(**changes: options.Value) -> configs.Config:
    return configs.override(presets.get("catch"), {key.replace("__", "."): value for key, value in changes.items()})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env__id": "remote", "worker__num": 2}, "--env=remote .* --workers=2"),
        ({"serve__token_file": "pool"}, "--serve.token_file=pool .*--listen=HOST:PORT"),
        (
            {"search__policy": "puct", "search__temperature": 0.0, "muzero__policy_gradient_weight": 0.5},
            "muzero.policy_gradient_weight=0.5 .*search.temperature=0 .*--search.temperature=1",
        ),
        (
            {"search__policy": "puct", "search__temperature": 0.0, "muzero__off_policy_correction": True},
            "muzero.off_policy_correction=true .*search.temperature=0",
        ),
        (
            {"league__freeze_every": 500, "muzero__off_policy_correction": True},
            "--league.freeze_every=500.*muzero.off_policy_correction=true",
        ),
        (
            {"league__builder": "alphastar", "muzero__off_policy_correction": True},
            "--league.builder=alphastar.*muzero.off_policy_correction=true",
        ),
        (
            {"league__freeze_every": 500, "muzero__memory": "lstm"},
            "--muzero.memory=lstm: in a league .*--muzero.memory=none.*--league.freeze_every=0",
        ),
        (
            {"muzero__value_prefix": True, "muzero__memory": "gru"},
            "--muzero.memory=gru and --muzero.value_prefix=true",
        ),
        (
            {"muzero__memory": "lstm", "muzero__burn_in": 1000, "replay__capacity": 32_000},
            "--replay.capacity=32000 .* 32 environments; .*muzero.burn_in=1000.*at least 32608",
        ),
        ({"league__main_players": 2}, "--league.main_players=2 .*--league.builder=alphastar"),
        ({"league__league_exploiters": 1}, "--league.league_exploiters=1 .*--league.freeze_every=N"),
        ({"league__max_players": 3}, "--league.max_players=3 .*--league.builder=MODULE:FUNCTION"),
        (
            {"league__builder": "alphastar", "league__main_players": 3, "league__max_players": 2},
            "--league.max_players=2: 3 players .*--league.max_players=3 or more",
        ),
        ({"league__freeze_every": 500, "league__max_players": 2}, "--league.max_players=2: builder past adds no"),
        (
            {"league__builder": "my_rules:build", "league__max_players": 40, "worker__num_groups": 4},
            "--worker.num_groups=4: 40 players learn .*max_players",
        ),
        ({"league__builder": "alphastr"}, "--league.builder: 'alphastr' .*MODULE:FUNCTION.*, or one of .*alphastar"),
        ({"league__builder": "os:abort"}, "--league.builder: 'os:abort': .*Python's own"),
        (
            {"league__builder": "alphastar", "league__builder_args": '{"min_games": -1}'},
            "--league.builder_args=.*min_games is -1",
        ),
        ({"league__freeze_every": 500, "league__builder_args": "[7]"}, "--league.builder_args=.*list"),
        ({"run__deterministic": True, "worker__num": 0}, "--deterministic .*; give --workers=1, or leave"),
        ({"run__deterministic": True, "worker__num": 0, "env__id": "remote"}, "; leave --deterministic out$"),
        (
            {"run__deterministic": True, "worker__num_remote": 2},
            "--deterministic .*--worker.num_remote=2",
        ),
        (
            {"replay__final_updates": 5},
            "final_updates=5 .*--max_env_steps, .*--max_env_steps=N",
        ),
        ({"run__deterministic": True, "checkpoint__replay": "off"}, "--checkpoint.replay=off"),
        ({"transport__listen": "localhost"}, "--listen=localhost: expected HOST:PORT"),
        ({"transport__listen": "localhost:http"}, "--listen=localhost:http: expected HOST:PORT"),
        ({"transport__listen": "0.0.0.0:7777"}, "--listen=0.0.0.0:7777.* --token_file=FILE .*--insecure"),
        ({"transport__listen": "[::]:7777"}, r"--listen=\[::\]:7777"),
        ({"transport__listen": "learner.example:7777"}, "--listen=learner.example:7777"),
        ({"tls__cert_file": "cert.pem"}, "--tls.cert_file .*--tls.key_file=FILE"),
        ({"tls__key_file": "key.pem"}, "--tls.key_file .*--tls.cert_file=FILE"),
        ({"tls__cert_file": "c", "tls__key_file": "k"}, "--listen=HOST:PORT"),
        ({"batcher__max_batch": 8}, "max_batch=8 .*worker.envs_per_group=16"),
        ({"replay__num_slots": 31}, "num_slots=31 .* 32 .* --replay.num_slots=32"),
        ({"replay__min_steps": 40_000}, "min_steps=40000 "),
        ({"replay__capacity": 500, "replay__min_steps": 100}, "capacity=500 .* 15 .* 32 "),
        ({"replay__num_slots": 40, "replay__num_envs": 41}, "num_envs=41 .*replay.num_slots=40"),
        (
            {"env__kwargs": "{}"},
            "--env.kwargs={} .* gym, python, dmlab, popgym, envpool, football, pettingzoo,",
        ),
        (
            {"training__acting_devices": 2, "replay__placement": "host"},
            "acting_devices=2 .*--replay.placement=host",
        ),
        (
            {"transport__max_workers": 3, "worker__num": 2, "worker__num_remote": 1},
            "max_workers=3 .*worker.num=2 .*max_workers=4 ",
        ),
        ({"metrics__port": 0, "metrics__host": ""}, "--metrics_host .*127.0.0.1"),
        ({"env__checkpoint_rewards": True}, "--env.checkpoint_rewards is for football:SCENARIO"),
        ({"evaluation__every_updates": 0}, "--stop_at_return=1 needs evaluations"),
        ({"evaluation__video_every": 2, "metrics__tensorboard": False}, "video_every=2 .*--metrics.tensorboard"),
        (
            {"evaluation__video_every": 2, "evaluation__every_updates": 0, "run__stop_at_return": math.inf},
            "video_every=2 needs evaluations",
        ),
        ({"evaluation__video_every": 2, "env__id": "remote", "worker__num": 0}, "video_every=2: workers of"),
    ],
)
def test_what_cannot_stand_together_is_refused_by_name(
    changes: dict[str, options.Value], message: str, said: golden.Said
) -> None:
    with pytest.raises(errors.ConfigError, match=message) as raised:
        combinations.check(_catch(**changes))
    said(raised.value, changes)


def test_rings_for_environments_that_join_later_take_nothing_from_the_others(said: golden.Said) -> None:
    changes: dict[str, options.Value] = {"replay__capacity": 1_000, "replay__num_slots": 400}
    with pytest.raises(errors.ConfigError, match=r" 2 .* 400 ") as raised:
        combinations.check(_catch(**changes))
    said(raised.value)
    combinations.check(_catch(replay__num_envs=32, **changes))


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.0.0.2:1", "localhost:1", "[::1]:7777", "unix:/tmp/a.sock", ""])
def test_addresses_of_both_kinds_pass(listen: str) -> None:
    combinations.check(_catch(transport__listen=listen))


@pytest.mark.parametrize("changes", [{"transport__token_file": "token"}, {"transport__insecure": True}])
def test_other_machines_are_let_in_by_a_token_or_by_saying_so(changes: dict[str, options.Value]) -> None:
    combinations.check(_catch(transport__listen="0.0.0.0:7777", **changes))


@pytest.mark.parametrize(
    ("num", "others"),
    [
        (1, {"worker__num": 1, "run__stop_at_return": math.inf, "evaluation__every_updates": 0}),
        (2, {"worker__num": 0}),
        (2, {"worker__num": 1}),
        (1, {"worker__num": 0, "env__id": "remote"}),
    ],
)
def test_there_may_be_as_many_streams_as_workers(num: int, others: dict[str, options.Value]) -> None:
    combinations.check(_catch(transport__max_workers=num, **others))


def test_several_budgets_may_stand_together() -> None:
    combinations.check(_catch(run__max_updates=3, run__max_seconds=2.0, run__max_env_steps=5))


def test_what_one_kind_of_device_can_do_is_not_refused_before_the_device_is_known() -> None:
    possible, impossible = _catch(), _catch(replay__num_slots=31)
    combinations.check(impossible, possible)
    combinations.check(possible, impossible)
    with pytest.raises(errors.ConfigError):
        combinations.check(impossible, impossible)


def test_final_updates_of_a_preset_are_off_without_a_last_step(said: golden.Said) -> None:
    asked = configs.override(presets.get("atari-100k"), {"run.max_env_steps": 0})
    assert asked.replay.final_updates > 0
    changed, notes = combinations.imply(asked, preset_env="atari:Pong", explicit={"run.max_env_steps"})
    assert changed.replay.final_updates == 0
    (note,) = notes
    assert note.startswith("--replay.final_updates ") and "--max_env_steps" in note
    said(note)
    combinations.check(changed)
    asked = presets.get("atari-100k")
    assert combinations.imply(asked, preset_env="atari:Pong", explicit=set()) == (asked, [])


@pytest.mark.parametrize(
    ("env", "name", "families"),
    [
        ("gym:ALE/Pong-v5", "env.frame_skip", "atari, envpool, dmlab"),
        ("gym:CartPole-v1", "env.life_loss", "atari, envpool"),
        ("dmlab:rooms_watermaze", "env.frame_size", "atari, envpool"),
        ("atari:Pong", "env.random_opening", "spiel"),
        ("atari:Pong", "env.frame_skip", ""),
        ("envpool:Pong-v5", "env.noop_max", ""),
        ("dmlab:rooms_watermaze", "env.frame_skip", ""),
        ("spiel:othello", "env.random_opening", ""),
        ("remote", "env.frame_size", ""),
    ],
)
def test_settings_that_an_environment_does_not_read_are_told(env: str, name: str, families: str) -> None:
    asked = configs.override(configs.Config(), {"env.id": env, "worker.num": int(env != "remote")})
    _, notes = combinations.imply(asked, preset_env=env, explicit={"env.id", "worker.num", name})
    assert len(notes) == bool(families)
    assert all(note.startswith(f"--{name} ") and f" {families}, " in note and f"--env={env}" in note for note in notes)
    assert combinations.imply(asked, preset_env=env, explicit={"env.id", "worker.num"})[1] == []


def test_remote_environments_leave_no_local_workers() -> None:
    changed, notes = combinations.imply(_catch(env__id="remote"), preset_env="catch", explicit={"env.id"})
    assert changed.worker.num == 0
    assert any("workers" in note for note in notes)


def test_workers_that_were_asked_for_are_not_dropped() -> None:
    asked = _catch(env__id="remote", worker__num=2)
    changed, _ = combinations.imply(asked, preset_env="catch", explicit={"env.id", "worker.num"})
    assert changed.worker.num == 2


def test_the_return_to_stop_at_belongs_to_the_environment_of_the_preset(said: golden.Said) -> None:
    other, notes = combinations.imply(_catch(env__id="gym:X-v0"), preset_env="catch", explicit={"env.id"})
    assert math.isinf(other.run.stop_at_return) and not other.evaluation.pauses_training
    assert notes[0].startswith("--stop_at_return ") and "1.0" in notes[0]
    assert notes[1].startswith("--evaluation.pauses_training ") and len(notes) == 2
    said("\n".join(notes))
    same, notes = combinations.imply(_catch(), preset_env="catch", explicit=set())
    assert (same.run.stop_at_return, notes) == (1.0, [])
    assert same.evaluation.pauses_training
    explicit = {"env.id", "run.stop_at_return", "evaluation.pauses_training"}
    asked, _ = combinations.imply(_catch(env__id="gym:X-v0"), preset_env="catch", explicit=explicit)
    assert asked.run.stop_at_return == 1.0 and asked.evaluation.pauses_training


def test_what_an_agent_has_for_the_environment_of_the_preset_is_for_no_other(said: golden.Said) -> None:
    pendulum = presets.get("continuous", "ppo")
    elsewhere = presets.part("continuous", "ppo").elsewhere
    other = configs.override(pendulum, {"env.id": "gym:LunarLanderContinuous-v3", "optimizer.learning_rate": 5e-4})
    imply = functools.partial(combinations.imply, preset_env=pendulum.env.id, elsewhere=elsewhere)
    found, notes = imply(other, explicit={"env.id", "optimizer.learning_rate"})
    assert (found.reward.discount, found.optimizer.learning_rate) == (0.99, 5e-4)
    assert notes[-1].startswith("--reward.discount=0.99: ") and " 0.97 " in notes[-1]
    said(notes[-1])
    assert imply(pendulum, explicit=set()) == (pendulum, [])


def test_the_updates_to_stop_after_belong_to_the_environment_of_the_preset() -> None:
    asked = configs.override(presets.get("tictactoe"), {"env.id": "spiel:othello"})
    other, notes = combinations.imply(asked, preset_env="spiel:tic_tac_toe", explicit={"env.id"})
    assert (other.run.max_updates, len(notes)) == (0, 1)
    explicit = {"env.id", "run.max_updates"}
    same, notes = combinations.imply(asked, preset_env="spiel:tic_tac_toe", explicit=explicit)
    assert (same.run.max_updates, notes) == (asked.run.max_updates, [])


@pytest.mark.parametrize(("decay_updates", "num_notes"), [(0, 1), (100, 0)])
def test_a_clip_ratio_that_is_to_fall_with_a_constant_learning_rate_is_told(
    decay_updates: int, num_notes: int
) -> None:
    settings = {"ppo.decay_clip": True, "optimizer.decay_updates": decay_updates}
    asked = configs.override(presets.get("catch", "ppo"), settings)
    _, notes = combinations.imply(asked, preset_env="catch", explicit=settings.keys())
    assert len(notes) == num_notes and all("--optimizer.decay_updates=N" in note for note in notes)


def test_a_falling_clip_ratio_with_a_constant_learning_rate_is_told() -> None:
    asked = configs.override(presets.get("atari", "ppo"), {"optimizer.decay_updates": 0})
    _, notes = combinations.imply(asked, preset_env=asked.env.id, explicit={"optimizer.decay_updates"})
    assert asked.ppo.decay_clip and any("--ppo.decay_clip=true changes nothing" in note for note in notes)
    assert not combinations.imply(presets.get("atari", "ppo"), preset_env=asked.env.id, explicit=frozenset())[1]


@pytest.mark.parametrize(("epsilon", "num_notes"), [(0.0, 1), (0.005, 0)])
def test_a_spread_of_no_repetitions_is_told(epsilon: float, num_notes: int) -> None:
    settings = {"explore.spread": True, "explore.epsilon": epsilon}
    asked = configs.override(presets.get("catch", "muzero"), settings)
    _, notes = combinations.imply(asked, preset_env="catch", explicit=settings.keys())
    assert len(notes) == num_notes and all("--explore.epsilon=X" in note for note in notes)


@pytest.mark.parametrize(
    ("augmented", "told"),
    [
        ({"shift_pixels": 2}, ["muzero.shift_pixels=2"]),
        ({"intensity_scale": 0.05}, ["muzero.intensity_scale=0.05"]),
        ({"shift_pixels": 2, "intensity_scale": 0.05}, ["muzero.shift_pixels=2", "muzero.intensity_scale=0.05"]),
        ({}, []),
    ],
)
def test_changes_of_normalized_pixels_are_told(augmented: dict[str, options.Value], told: list[str]) -> None:
    usual: dict[str, options.Value] = {"network.normalize_pixels": True, "muzero.shift_pixels": 0}
    settings = usual | {f"muzero.{name}": value for name, value in augmented.items()}
    asked = configs.override(presets.get("atari", "muzero"), settings)
    _, notes = combinations.imply(asked, preset_env=asked.env.id, explicit=settings.keys())
    assert [note.split()[0] for note in notes] == told
    assert all("network.normalize_pixels" in note for note in notes)
    plain = configs.override(asked, {"network.normalize_pixels": False})
    assert combinations.imply(plain, preset_env=asked.env.id, explicit=settings.keys())[1] == []


def test_an_unknown_opponent_is_refused_with_the_forms(said: golden.Said) -> None:
    asked = configs.override(presets.get("tictactoe"), {"env.opponents": "random,stockfish"})
    with pytest.raises(errors.ConfigError, match=r"--env\.opponents=random,stockfish: ") as raised:
        combinations.check(asked)
    said(raised.value)


def _of_agent(agent: str, env: str = "catch") -> configs.Config:
    return configs.override(presets.get("catch", agent), {"env.id": env})


def _spec(num_players: int, is_continuous: bool, seats: tuple[str, ...] = ()) -> types.EnvSpec:
    bounds: dict[str, Any] = dict(action_low=(-1.0,), action_high=(1.0,)) if is_continuous else {}
    num_actions = 0 if is_continuous else 2
    return types.EnvSpec((4,), "float32", num_actions, num_players=num_players, seats=seats, tasks=seats, **bounds)


@pytest.mark.parametrize("agent", configs.agent_names())
def test_every_agent_but_sac_plays_one_player_with_discrete_actions(agent: str) -> None:
    expected: Any = contextlib.nullcontext()
    if agent == "sac":
        expected = pytest.raises(errors.ConfigError, match=r"sac .*discrete")
    with expected:
        combinations.check_environment(_of_agent(agent), _spec(1, False))


def test_environments_that_the_agent_cannot_play_are_refused_with_an_agent_that_can(said: golden.Said) -> None:
    game = _of_agent("apex", "spiel:tic_tac_toe")
    with pytest.raises(errors.ConfigError) as caught:
        combinations.check_environment(game, _spec(2, False))
    assert "apex" in str(caught.value) and " 2 players, " in str(caught.value)
    assert "--agent=muzero|vtrace|ppo" in str(caught.value)
    said(caught.value, "players")
    with pytest.raises(errors.ConfigError) as caught:
        combinations.check_environment(_of_agent("vtrace", "gym:Pendulum-v1"), _spec(1, True))
    assert "--agent=muzero|ppo|sac" in str(caught.value)
    said(caught.value, "actions")
    combinations.check_environment(_of_agent("muzero"), _spec(2, False))
    combinations.check_environment(_of_agent("muzero"), _spec(1, True))


@pytest.mark.parametrize(("num_players", "is_continuous"), [(1, False), (1, True), (2, True)])
def test_a_league_needs_a_game_of_two_players(num_players: int, is_continuous: bool, said: golden.Said) -> None:
    league = configs.override(_of_agent("muzero"), {"league.freeze_every": 500})
    with pytest.raises(errors.ConfigError, match=r"--league.freeze_every=500.*--env=catch") as raised:
        combinations.check_environment(league, _spec(num_players, is_continuous))
    said(raised.value, (num_players, is_continuous))
    combinations.check_environment(league, _spec(2, False))
    combinations.check_environment(_of_agent("muzero"), _spec(num_players, is_continuous))
    built = configs.override(_of_agent("muzero"), {"league.builder": "alphastar"})
    with pytest.raises(errors.ConfigError, match=r"--league.builder=alphastar: .*--league.builder=past"):
        combinations.check_environment(built, _spec(num_players, is_continuous))


def test_a_league_is_a_setting_of_agents_with_a_policy(said: golden.Said) -> None:
    with pytest.raises(errors.ConfigError, match=r"--league.freeze_every .*muzero.*--agent=apex") as raised:
        configs.check_read(["league.freeze_every"], "apex")
    said(raised.value)
    other = configs.override(_of_agent("apex"), {"league.freeze_every": 500, "muzero.off_policy_correction": True})
    combinations.check(other)
    combinations.check_environment(other, _spec(1, False))


def test_games_of_seats_need_an_agent_for_them_and_whole_games_in_a_group(said: golden.Said) -> None:
    seats = ("first", "second")
    for agent in ("ppo", "vtrace", "apex", "r2d2"):
        combinations.check_environment(_of_agent(agent, "spiel:kuhn_poker"), _spec(1, False, seats))
    with pytest.raises(errors.ConfigError, match=r"--agent=vtrace\|apex\|r2d2\|ppo$") as raised:
        combinations.check_environment(_of_agent("muzero", "spiel:kuhn_poker"), _spec(1, False, seats))
    said(raised.value, "muzero")
    with pytest.raises(errors.ConfigError, match="no environments with chance, as --env=spiel:pig has"):
        combinations.check_environment(_of_agent("muzero", "spiel:pig"), _spec(1, False, seats), "chance")
    league = configs.override(_of_agent("ppo", "spiel:kuhn_poker"), {"league.freeze_every": 500})
    combinations.check_environment(league, _spec(1, False, seats))
    biased = configs.override(_of_agent("muzero", "spiel:tic_tac_toe"), {"league.builder": "biased"})
    with pytest.raises(errors.ConfigError, match=r"--league\.builder=biased: ") as raised:
        combinations.check_environment(biased, _spec(2, False))
    said(raised.value, "judge")
    with pytest.raises(errors.ConfigError, match="has 3 seats") as raised:
        combinations.check_environment(league, _spec(1, False, (*seats, "third")))
    said(raised.value, "league")
    with pytest.raises(errors.ConfigError, match=r"--worker.envs_per_group=16: .* such as 18") as raised:
        combinations.check_environment(_of_agent("ppo", "spiel:kuhn_poker"), _spec(1, False, (*seats, "third")))
    said(raised.value, "groups")


@pytest.mark.parametrize("env", ["spiel:tic_tac_toe", "remote"])
def test_an_agent_that_searches_by_rules_is_refused_without_them_at_once(env: str, said: golden.Said) -> None:
    asked = configs.override(presets.get("pgx", "alphazero"), {"env.id": env, "worker.num": 0})
    with said.raises(errors.ConfigError, f"agent alphazero .* --env={env} has none", env):
        combinations.check(asked)
    combinations.check(configs.override(asked, {"env.id": "pgx:hex"}))


def test_agents_that_are_offered_play_the_environment_in_every_respect() -> None:
    with pytest.raises(errors.ConfigError, match=r"discrete actions.*; give --agent=vtrace\|apex\|r2d2\|ppo$"):
        combinations.check_environment(_of_agent("sac", "spiel:kuhn_poker"), _spec(1, False, ("first", "second")))


def test_environments_that_no_agent_plays_are_refused_too(said: golden.Said) -> None:
    with pytest.raises(errors.ConfigError, match=r"muzero .* 3 players") as raised:
        combinations.check_environment(_of_agent("muzero"), _spec(3, False))
    said(raised.value)


def test_the_size_of_a_replay_is_no_matter_to_an_agent_with_a_queue() -> None:
    changes = {"replay.min_steps": 40_000, "replay.capacity": 500}
    with pytest.raises(errors.ConfigError):
        combinations.check(configs.override(_of_agent("muzero"), changes))
    combinations.check(configs.override(_of_agent("vtrace"), changes))
    with pytest.raises(errors.ConfigError, match=r"num_slots=31 .* 32 "):
        combinations.check(configs.override(_of_agent("vtrace"), {"replay.num_slots": 31}))


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({}, None),
        (
            {"ppo.batch_size": 64},
            " 32 .*ppo.max_lag=1: .* --ppo.batch_size=32",
        ),
        ({"ppo.batch_size": 64, "ppo.max_lag": 2}, " 32 environments: "),
        ({"ppo.batch_size": 8}, " 32 environments: .* --ppo.batch_size=32"),
        ({"ppo.batch_size": 8, "ppo.max_lag": 4}, None),
        ({"ppo.batch_size": 8, "worker.num": 0}, None),
    ],
)
def test_ppo_tells_of_batches_that_are_not_one_unroll_of_each_environment(
    settings: dict[str, options.Value], note: str | None, said: golden.Said
) -> None:
    asked = configs.override(presets.get("cartpole", "ppo"), settings)
    _, notes = combinations.imply(asked, preset_env=asked.env.id, explicit=settings.keys())
    assert len(notes) == (note is not None)
    assert note is None or re.search(note, notes[0])
    if note:
        said(notes[0], settings)


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        ({}, False),
        ({"replay.min_steps": 992}, False),
        ({"replay.min_steps": 991}, True),
        ({"replay.min_steps": 991, "worker.num": 0}, False),
        ({"replay.min_steps": 991, "worker.num_remote": 1}, False),
    ],
)
def test_r2d2_tells_of_updates_that_find_nothing_to_learn_from(
    settings: dict[str, options.Value], is_told: bool
) -> None:
    asked = configs.override(presets.get("cartpole", "r2d2"), settings)
    _, notes = combinations.imply(asked, preset_env=asked.env.id, explicit=settings.keys())
    assert len(notes) == is_told
    assert not is_told or re.search(" 32 .* 31 .* --replay.min_steps=992$", notes[0])


@pytest.mark.parametrize("preset", presets.PARTS["r2d2"])
def test_presets_of_r2d2_begin_with_enough_steps(preset: str) -> None:
    asked = presets.get(preset, "r2d2")
    on_cpu = configs.override(asked, presets.cpu_values(preset, "r2d2", explicit=set()))
    assert asked.agent.notes(asked) == on_cpu.agent.notes(on_cpu) == []


def test_a_preset_leaves_out_what_an_own_network_lacks_a_user_may_not() -> None:
    values = {
        "network.module": "module:function",
        "muzero.consistency_weight": 2.0,
        "muzero.predict_ends": True,
        "muzero.memory": "gru",
    }
    asked = configs.override(_catch(), values)
    changed, notes = combinations.imply(asked, preset_env="catch", explicit={"network.module"})
    assert (changed.muzero.consistency_weight, changed.muzero.predict_ends) == (0.0, False)
    assert changed.muzero.memory == "none"
    off = ["--muzero.consistency_weight is off", "--muzero.predict_ends is off", "--muzero.memory is off"]
    assert [note.partition(":")[0] for note in notes] == off
    assert combinations.imply(asked, preset_env="catch", explicit=values.keys()) == (asked, [])
    plain = configs.override(asked, {"network.module": ""})
    assert combinations.imply(plain, preset_env="catch", explicit=set()) == (plain, [])


@pytest.mark.parametrize(
    ("agent", "env", "explicit", "implied"),
    [
        ("r2d2", "memory:tmaze-20", "", None),
        ("r2d2", "memory:tmaze-35", "", ("r2d2.sequence_length", 70)),
        ("r2d2", "memory:repeat-8", "", None),
        ("ppo", "memory:tmaze-50", "", ("ppo.unroll_length", 100)),
        ("vtrace", "memory:repeat-32", "", ("vtrace.unroll_length", 64)),
        ("vtrace", "memory:repeat-32", "vtrace.unroll_length", None),
        ("ppo", "memory:cartpole", "", None),
        ("muzero", "memory:tmaze-20", "", None),
        ("muzero", "memory:tmaze-35", "", ("muzero.burn_in", 70)),
        ("muzero", "memory:repeat-12", "", ("muzero.burn_in", 24)),
        ("muzero", "memory:repeat-12", "muzero.burn_in", None),
    ],
)
def test_agents_with_an_lstm_learn_through_the_steps_of_a_memory_task(
    agent: str, env: str, explicit: str, implied: tuple[str, int] | None
) -> None:
    asked = configs.override(presets.get(presets.choose(env, None)[0], agent), {"env.id": env})
    found, notes = combinations.imply(asked, preset_env=env, explicit={explicit})
    before, after = configs.flatten(asked), configs.flatten(found)
    assert {name: after[name] for name in after if after[name] != before[name]} == dict([implied] if implied else [])
    assert len(notes) == bool(implied)
    if implied:
        assert notes[0].startswith(f"--{implied[0]}={implied[1]}: {env} ") and f" {env[-2:]} " in notes[0]


def test_a_bonus_before_normalized_rewards_is_refused_at_the_start(said: golden.Said) -> None:
    given: dict[str, options.Value] = {"ppo.bonus": "own:make", "ppo.bonus_place": "before"}
    asked = configs.override(presets.get("catch", "ppo"), given)  # a saved run may have it, and be evaluated
    with pytest.raises(errors.ConfigError, match=r"reward\.normalize=false, or --ppo\.bonus_place=after") as raised:
        combinations.check(asked)
    said(raised.value)
    changes: tuple[dict[str, options.Value], ...]
    changes = (
        {"reward.normalize": False},
        {"ppo.bonus_place": "after"},
        {"ppo.bonus": ""},
        {"run.agent": "vtrace"},
    )
    for change in changes:
        combinations.check(configs.override(asked, change))


@pytest.mark.parametrize(
    ("changes", "is_told"),
    [
        ({"muzero.burn_in": 5}, True),
        ({"muzero.memory_width": 5}, True),
        ({}, False),
        ({"muzero.memory": "gru"}, False),
    ],
)
def test_settings_of_a_memory_that_there_is_not_are_told(changes: dict[str, options.Value], is_told: bool) -> None:
    asked = configs.override(_catch(), changes)
    _, notes = combinations.imply(asked, preset_env="catch", explicit=changes.keys())
    assert len(notes) == is_told
    assert not is_told or notes[0].startswith(f"--{next(iter(changes))} changes nothing: there is no memory")
    assert combinations.imply(asked, preset_env="catch", explicit=set())[1] == []  # a preset may have them


@pytest.mark.parametrize("env", ["memory:tmaze-20", "memory:repeat-4", "memory:cartpole"])
@pytest.mark.parametrize(
    ("agent", "changes", "way"),
    [
        ("muzero", {"muzero.memory": "none"}, "--muzero.memory=lstm"),
        ("muzero", {}, ""),
        ("apex", {}, "--agent=r2d2, vtrace or ppo"),
        ("ppo", {"network.lstm_width": 0}, "--network.lstm_width=64"),
        ("muzero", {"network.frame_stack": 5}, ""),
        ("ppo", {}, ""),
        ("vtrace", {}, ""),
        ("r2d2", {}, ""),
    ],
)
def test_an_agent_without_memory_says_so_at_a_memory_task(
    env: str, agent: str, changes: dict[str, int], way: str
) -> None:
    asked = configs.override(presets.get(presets.choose(env, None)[0], agent), {"env.id": env, **changes})
    found = [note for note in combinations.imply(asked, preset_env=env, explicit=set())[1] if "no memory" in note]
    assert len(found) == bool(way)
    if way:
        assert found[0].startswith(f"--agent={agent} ") and found[0].endswith(f"--env={env} asks for; give {way}")


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ({}, []),
        ({"worker.num": 1}, ["8 environments"]),
        ({"evaluation.num_envs": 20}, ["--evaluation.num_envs=20: "]),
        ({"batcher.max_batch": 16}, ["--batcher.max_batch=16: "]),
        ({"batcher.max_batch": 16, "evaluation.every_updates": 0}, []),
    ],
)
def test_levels_that_nobody_plays_are_told(changes: dict[str, int], notes: list[str]) -> None:
    asked = configs.override(presets.get("dmlab", "vtrace"), {"env.id": "dmlab:dmlab30", **changes})
    _, found = combinations.imply(asked, preset_env=asked.env.id, explicit=changes.keys())
    told = [note for note in found if "levels" in note]
    assert len(told) == len(notes) and all(part in note for part, note in zip(notes, told, strict=True))


def test_keys_of_infos_are_for_environments_that_have_infos(said: golden.Said) -> None:
    configs.override(configs.Config(), {"env.id": "gym:CartPole-v1", "metrics.info_keys": "success, depth"})
    with said.raises(errors.ConfigError, "--metrics.info_keys=success "):
        combinations.check(_catch(env__info_keys="success"))


def test_bots_for_rock_paper_scissors_are_opponents_of_that_game_alone(said: golden.Said) -> None:
    asked = configs.override(presets.get("catch"), {"env.opponents": "random,roshambo:pibot"})
    with said.raises(errors.ConfigError, "roshambo:pibot"):
        combinations.check(asked)
    rounds = configs.override(asked, {"env.id": "spiel:repeated_game(stage_game=matrix_rps(),num_repetitions=9)"})
    combinations.check(rounds)
