"""Settings that a league implies, and impossible combinations of several learning players."""

from __future__ import annotations

import golden
import pytest

from seedzero.config import combinations, configs, league_rules, options, presets
from seedzero.core import errors


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


def test_a_league_of_one_learning_player_implies_nothing() -> None:
    assert league_rules.implied(_league(), set()) == ({}, [])
    assert league_rules.implied(configs.Config(), set()) == ({}, [])


@pytest.mark.parametrize(
    "changes",
    [
        {"run.max_env_steps": 1000},
        {"training.num_devices": 2},
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
    combinations.check(configs.override(presets.get("league-tictactoe"), several))


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
