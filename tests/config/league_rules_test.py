"""The two sides of agents in a league; the rules have rows in `rules_test.py`."""

from __future__ import annotations

import pytest

from seedzero.config import combinations, configs, league_rules, options, presets
from seedzero.core import types

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


def test_the_preset_of_football_plays_four_agents_on_each_side() -> None:
    agents = [f"{side}_{number}" for side in ("left", "right") for number in range(4)]
    config = presets.get("league-football")
    assert league_rules.sides(config, _spec(*agents)) == (0,) * 4 + (1,) * 4
    combinations.check(config)
    combinations.check_environment(config, spec=_spec(*agents))
