"""Settings that a league implies, impossible combinations of several learning players, and two sides of agents."""

from __future__ import annotations

import golden
import pytest

from seedzero.config import combinations, configs, league_rules, options, presets, seat_rules
from seedzero.core import errors, types


def _league(**changes: options.Value) -> configs.Config:
    asked = {name.replace("__", "."): value for name, value in changes.items()}
    return configs.override(presets.get("league-tictactoe"), asked)


def test_builder_alphastar_brings_its_players_groups_and_a_constant_rate(said: golden.Said) -> None:
    asked = _league(league__builder="alphastar")
    found, notes = combinations.imply(asked, preset_env=asked.env.id, explicit={"league.builder"})
    assert (found.league.num_learning, found.worker.num_groups, found.optimizer.schedule) == (3, 4, "constant")
    combinations.check(found)
    said("\n".join(notes))


def test_given_settings_stay() -> None:
    given: dict[str, options.Value] = {
        "league.builder": "alphastar",
        "league.main_exploiters": 2,
        "worker.num_groups": 3,
        "optimizer.schedule": "constant",
    }
    asked = configs.override(presets.get("league-tictactoe"), given)
    assert league_rules.implied(asked, given.keys()) == ({}, [])


@pytest.mark.parametrize(
    ("preset", "builder", "stays"),
    [
        ("league-goofspiel", "past", False),
        ("league-goofspiel", "biased", False),
        ("league-goofspiel", "alphastar", True),
        ("league-brps", "my_rules:build", False),
    ],
)
def test_the_arguments_of_a_preset_s_builder_are_for_no_other(
    preset: str, builder: str, stays: bool, said: golden.Said
) -> None:
    given: dict[str, options.Value] = {"league.builder": builder, "league.freeze_every": 0}
    asked = configs.override(presets.get(preset), given)
    found, notes = combinations.imply(asked, preset_env=asked.env.id, explicit=given.keys())
    assert found.league.builder_args == (asked.league.builder_args if stays else "")
    told = [note for note in notes if note.startswith("--league.builder_args is off")]
    assert len(told) == (not stays)
    for note in told:
        said(note, (preset, builder))
    kept, notes = combinations.imply(
        asked, preset_env=asked.env.id, explicit={*given, "league.builder_args", "league.main_exploiters"}
    )
    assert kept.league.builder_args == asked.league.builder_args and not any("builder_args" in note for note in notes)


def test_a_league_of_a_preset_s_own_is_turned_off_as_advised(said: golden.Said) -> None:
    several = configs.override(presets.get("league-kuhn"), {"cluster.num_hosts": 2})
    with said.raises(errors.ConfigError, "; give --league.freeze_every=0, or", "hosts"):
        combinations.check(several)
    of_each = configs.override(presets.get("league-goofspiel"), {"seats.policies": "each"})
    off = "; give --league.freeze_every=0 --league.builder=past, or --seats.policies=shared"
    with said.raises(errors.ConfigError, off, "seats"):
        combinations.check(configs.override(of_each, {"env.id": "pettingzoo:mpe2.simple_tag_v3"}))
    elsewhere = configs.override(presets.get("roshambo"), {"env.id": "catch"})
    with said.raises(errors.ConfigError, "; give --env.opponents=random", "opponents"):
        combinations.check(elsewhere)
    with said.raises(errors.ConfigError, "; give --league.members=, or such a game", "members"):
        combinations.check(configs.override(elsewhere, {"env.opponents": "random"}))
    combinations.check(configs.override(elsewhere, {"env.opponents": "random", "league.members": ""}))


def test_a_league_of_one_learning_player_implies_nothing() -> None:
    assert league_rules.implied(_league(), set()) == ({}, [])
    assert league_rules.implied(configs.Config(), set()) == ({}, [])


@pytest.mark.parametrize(
    "changes",
    [
        {"run.max_env_steps": 1000},
        {"training.acting_devices": 1},
        {"replay.placement": "host"},
        {"worker.num_groups": 1},
        {"optimizer.schedule": "cosine", "league.builder": "alphastar"},
        {"muzero.search_value_start": 900, "league.builder": "alphastar"},
    ],
)
def test_several_learning_players_exclude_settings_by_name(
    changes: dict[str, options.Value], said: golden.Said
) -> None:
    several: dict[str, options.Value] = {"league.main_exploiters": 1, "optimizer.schedule": "constant"}
    name = next(iter(changes))
    with pytest.raises(errors.ConfigError, match=name.rpartition(".")[2]) as raised:
        combinations.check(configs.override(presets.get("league-tictactoe"), {**several, **changes}))
    said(raised.value, name)
    combinations.check(configs.override(presets.get("league-tictactoe"), {**several, "training.num_devices": 2}))


def test_players_that_are_added_later_need_groups_of_environments_too(said: golden.Said) -> None:
    asked = _league(league__builder="my_rules:build", league__max_players=4)
    found, notes = league_rules.implied(asked, {"league.builder"})
    assert found["worker.num_groups"] == 5
    said("\n".join(notes))
    few = configs.override(asked, {"worker.num_groups": 3, "optimizer.schedule": "constant"})
    assert any("--worker.num_groups=3: 4 players learn" in problem for problem in league_rules.problems(few))
    enough = configs.override(few, {"worker.num_groups": 4})
    assert not any("num_groups" in problem for problem in league_rules.problems(enough))


@pytest.mark.parametrize(
    ("changes", "way"),
    [
        ({"league.freeze_every": 0}, "this run has none"),
        ({"league.main_players": 3}, "--league.max_players=3 or more"),
        ({}, "builder past adds no players; give --league.builder=alphastar --league.builder_args='{"),
        ({"league.builder": "self_play"}, "builder self_play adds no players"),
        ({"league.builder": "alphastar"}, "keep_training_probability"),
        (
            {"league.builder": "alphastar", "league.builder_args": '{"keep_training_probability": {"main": 0}}'},
            "keep_",
        ),
    ],
)
def test_players_at_a_time_are_refused_where_none_can_be_added(
    changes: dict[str, options.Value], way: str, said: golden.Said
) -> None:
    enough = {"worker.num_groups": 4, "optimizer.schedule": "constant"}
    asked = configs.override(presets.get("league-tictactoe"), {"league.max_players": 2, **enough, **changes})
    with pytest.raises(errors.ConfigError, match=r"--league.max_players=2") as raised:
        combinations.check(asked)
    assert way in str(raised.value)
    said(raised.value, " ".join(map(str, changes.values())))
    keeps = '{"keep_training_probability": {"main_exploiter": 0.5}}'
    combinations.check(
        configs.override(
            asked, {"league.builder": "alphastar", "league.builder_args": keeps, "league.main_players": 1}
        )
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"league.freeze_every": 0},
        {"muzero.policy_gradient_weight": 0.5},
        {"muzero.search_value_age": 3},
        {"reanalyse.fresh_share": 0.5},
    ],
)
def test_a_model_of_opponents_excludes_settings_by_name(changes: dict[str, options.Value], said: golden.Said) -> None:
    name, asked = next(iter(changes)), _league(league__opponent_model=True)
    with pytest.raises(errors.ConfigError, match=name.rpartition(".")[2]) as raised:
        combinations.check(configs.override(asked, changes))
    said(raised.value, name)
    combinations.check(asked)


def test_a_learning_rate_that_falls_is_refused_where_ppo_may_be_reset(said: golden.Said) -> None:
    falls = configs.override(
        presets.get("league-kuhn"), {"league.builder": "alphastar", "optimizer.decay_updates": 100}
    )
    with pytest.raises(errors.ConfigError, match=r"--optimizer\.decay_updates=0") as raised:
        combinations.check(falls)
    said(raised.value)
    found, notes = league_rules.implied(falls, set())
    assert "optimizer.schedule" not in found and not any("schedule" in note for note in notes)


def test_an_opponent_model_needs_a_search(said: golden.Said) -> None:
    with pytest.raises(errors.ConfigError, match="agent ppo has none") as raised:
        combinations.check(configs.override(presets.get("league-kuhn"), {"league.opponent_model": True}))
    said(raised.value)
    with pytest.raises(errors.ConfigError, match="agent ppo has none"):  # before what a league would need
        combinations.check(configs.override(presets.get("seats"), {"league.opponent_model": True}))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"league.members": "best"}, "best"),
        ({"league.members": "random,random"}, "each once"),
        ({"league.members": "os:getcwd"}, "Python's own"),
        ({"league.freeze_every": 0}, r"--league\.freeze_every=N"),
        ({"env.id": "remote", "worker.num": 0}, "mcts-50 plays games of --env=spiel:GAME or"),
        ({"league.opponent_model": True}, "opponent_model"),
        (
            {"env.id": "pgx:hex", "league.members": "mcts-50,spiel:uniform_random"},
            "spiel:GAME, but",
        ),
    ],
)
def test_scripted_members_exclude_settings_by_name(
    changes: dict[str, options.Value], named: str, said: golden.Said
) -> None:
    asked = _league(league__members="random,mcts-50,my_bots:clever")
    with said.raises(errors.ConfigError, named, str(changes)):
        combinations.check(configs.override(asked, changes))
    combinations.check(asked)
    combinations.check(configs.override(asked, {"env.id": "remote", "worker.num": 0, "league.members": "random"}))
    combinations.check(configs.override(asked, {"env.id": "pgx:hex"}))


def test_scripted_members_are_a_setting_of_agents_with_a_league(said: golden.Said) -> None:
    with said.raises(errors.ConfigError, r"--league\.members .*muzero.*--agent=apex"):
        configs.check_read(["league.members"], "apex")


TEAMS = ("left_0", "left_1", "right_0")


def _of_sides(**changes: options.Value) -> configs.Config:
    asked = {name.replace("__", "."): value for name, value in changes.items()}
    return configs.override(presets.get("catch", "ppo"), {"league.freeze_every": 500, **asked})


def _spec(*agents: str, fixed: bool = True) -> types.EnvSpec:
    return types.EnvSpec((4,), "float32", 2, seats=agents, tasks=agents, fixed_seats=fixed)


@pytest.mark.parametrize(
    ("agents", "found"),
    [
        (("ant", "bee"), (0, 1)),
        (("cart_0", "cart_1"), (0, 1)),
        (TEAMS, (0, 0, 1)),
        (("red1", "blue1", "red2"), (0, 1, 0)),
    ],
)
def test_agents_fall_into_two_sides_by_their_names(agents: tuple[str, ...], found: tuple[int, ...]) -> None:
    assert league_rules.sides(_of_sides(), _spec(*agents)) == found


def test_without_a_league_or_with_other_rows_there_are_no_sides() -> None:
    assert league_rules.sides(_of_sides(league__freeze_every=0), _spec(*TEAMS)) == ()
    assert league_rules.sides(presets.get("catch", "apex"), _spec(*TEAMS)) == ()
    assert league_rules.sides(_of_sides(), _spec("first", "second", fixed=False)) == ()


@pytest.mark.parametrize("agents", [("wolf", "dog", "sheep"), ("cart_0", "cart_1", "cart_2")])
def test_agents_of_other_numbers_of_sides_are_named(agents: tuple[str, ...], said: golden.Said) -> None:
    with said.raises(errors.ConfigError, "--league.freeze_every=500: .*0", agents):
        combinations.check_environment(_of_sides(), _spec(*agents))


@pytest.mark.parametrize(
    "changes",
    [
        {"run.agent": "vtrace"},
        {"ppo.central_value": True},
        {"training.num_devices": 2},
        {"network.lstm_width": 32},
        {"league.main_players": 2},
        {"league.league_exploiters": 1},
        {"league.max_players": 2},
        {"env.id": "remote"},
        {"league.builder": "biased"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_league_of_sides_refuses_what_it_does_not_have(changes: dict[str, options.Value], said: golden.Said) -> None:
    config = _of_sides(worker__envs_per_group=6, evaluation__num_envs=6, evaluation__episodes=12)
    combinations.check_environment(config, _spec(*TEAMS))
    name, value = next(iter(changes.items()))
    with said.raises(errors.ConfigError, f"{name.replace('run.', '').replace('env.id', 'env')}={value}".lower(), name):
        combinations.check_environment(configs.override(config, changes), _spec(*TEAMS))


def test_evaluations_have_as_many_games_from_each_side(said: golden.Said) -> None:
    found, notes = seat_rules.whole_games(_of_sides(evaluation__num_envs=9), _spec(*TEAMS), explicit=set())
    sizes = found.worker.envs_per_group, found.evaluation.num_envs, found.evaluation.episodes
    assert sizes[0] % 3 == 0 and sizes[1] == 12 and sizes[2] % 6 == 0
    said("\n".join(notes), "notes")
    combinations.check_environment(found, _spec(*TEAMS))
    with said.raises(errors.ConfigError, "--evaluation.num_envs=9: .* such as 12", "one game"):
        combinations.check_environment(configs.override(found, {"evaluation.num_envs": 9}), _spec(*TEAMS))


def test_the_preset_of_football_plays_four_agents_on_each_side() -> None:
    agents = [f"{side}_{number}" for side in ("left", "right") for number in range(4)]
    config = presets.get("league-football")
    assert league_rules.sides(config, _spec(*agents)) == (0,) * 4 + (1,) * 4
    combinations.check(config)
    combinations.check_environment(config, _spec(*agents))
