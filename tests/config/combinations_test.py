"""How rules are evaluated; `rules_test.py` has a row for each of them."""

from __future__ import annotations

import pytest

from seedzero.config import combinations, configs, options, presets
from seedzero.core import errors, types


def _catch(**changes: options.Value) -> configs.Config:
    return configs.override(presets.get("catch"), {key.replace("__", "."): value for key, value in changes.items()})


def test_what_one_kind_of_device_can_do_is_not_refused_before_the_device_is_known() -> None:
    possible, impossible = _catch(), _catch(replay__num_slots=31)
    combinations.check(impossible, possible)
    combinations.check(possible, impossible)
    with pytest.raises(errors.ConfigError):
        combinations.check(impossible, impossible)


def test_what_makes_rows_seats_is_named_where_it_is_known() -> None:
    spec = types.EnvSpec((4,), "float32", 2, seats=("first", "second"), tasks=("first", "second"))
    with pytest.raises(errors.ConfigError, match="environments with chance, as --env=spiel:pig has"):
        combinations.check_environment(_catch(env__id="spiel:pig"), spec=spec, seated_by="chance")


@pytest.mark.parametrize(
    ("preset", "given"),
    [("atari-100k", {"run.max_env_steps": 0}), ("league-tictactoe", {"league.builder": "alphastar"})],
)
def test_what_rules_imply_is_possible_and_implies_nothing_more(preset: str, given: dict[str, options.Value]) -> None:
    asked = configs.override(presets.get(preset), given)
    found, notes = combinations.imply(asked, preset_env=asked.env.id, explicit=given.keys())
    assert notes and found != asked
    combinations.check(found)
    assert combinations.imply(found, preset_env=asked.env.id, explicit=given.keys()) == (found, [])


def test_groups_take_whole_games_once() -> None:
    seats = ("a", "b", "c")
    spec = types.EnvSpec((4,), "float32", 2, seats=seats, tasks=seats, fixed_seats=True)
    config = configs.override(presets.get("catch", "ppo"), {"ppo.max_lag": 2})
    found, notes = combinations.imply_by_environment(config, spec, explicit=set())
    assert len(notes) == 3 and found.worker.envs_per_group == 18
    combinations.check_environment(found, spec=spec)
    assert combinations.imply_by_environment(found, spec, explicit=set()) == (found, [])
