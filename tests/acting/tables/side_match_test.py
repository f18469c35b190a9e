"""Matches between two sides of agents: both sides in turn, results worked by hand, and no side with an advantage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import own_agents
import pytest

from seedzero.acting.actors import actor
from seedzero.acting.tables import match
from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import env_base, registry

pytest.importorskip("pettingzoo")
SIDES = (0, 0, 1, 1)
NUM_ROWS = 16


class Says(NamedTuple):
    """Says the symbol that it sees, or another one."""

    offset: int

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        found: np.ndarray = (step.observation.argmax(axis=1) + self.offset) % 3
        return found.astype(np.int32)


def _env(kwargs: str, name: str) -> env_base.VectorEnv:
    env_id = f"pettingzoo:own_agents:{name}"
    env = registry.make(env_id, sections.EnvConfig(id=env_id, kwargs=kwargs), NUM_ROWS, role=types.Role.EVALUATE)
    env.reset(range(NUM_ROWS))
    return env


def _play(
    players: Sequence[actor.Actor], num_games: int, *, kwargs: str = "{}", name: str = "Teams"
) -> list[match.FinishedGame]:
    with env_base.closing(_env(kwargs, name)) as env:
        return match.play_sides(env, SIDES, players, num_games, seed=0)


@pytest.mark.parametrize("name", ["Teams", "teams_in_turn"])
def test_a_side_s_return_is_the_mean_of_its_agents_and_players_change_sides(name: str) -> None:
    found = _play([Says(0), Says(1)], 10, name=name)  # type: ignore[list-item]
    # 4 steps, 2 hits in each: every agent of the side that says the symbol has 8. A game has 16 moves.
    assert {(game.total, game.length, game.outcome) for game in found} == {(8.0, 16, 1)}
    assert [game.is_first for game in found].count(True) == 5
    assert {game.total for game in _play([Says(1), Says(0)], 4, name=name)} == {-8.0}  # type: ignore[list-item]


def test_the_larger_return_wins_where_returns_do_not_sum_to_zero() -> None:
    # A point of the left counts three times there: the right wins by 8 to -24, the left by 24 to -8.
    unequal = _play([Says(0), Says(1)], 4, kwargs='{"weight": 3.0}')  # type: ignore[list-item]
    assert {(game.is_first, game.total, game.outcome) for game in unequal} == {(True, 24.0, 1), (False, 8.0, 1)}


def test_games_without_a_result_end_with_a_reason() -> None:
    with pytest.raises(errors.EnvironmentFailure, match=r"\b8\b.*never moved"):
        _play([Says(0), Says(1)], 4, kwargs='{"absent": ["left_1", "right_0"]}')  # type: ignore[list-item]
    one_side = _play([Says(0), Says(1)], 4, kwargs='{"absent": ["left_1"]}')  # type: ignore[list-item]
    assert [game.outcome for game in one_side] == [1] * 4  # the right's return is known


def test_a_game_without_a_result_does_not_lengthen_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    reset = own_agents.Teams.reset

    def some_stay_away(self: Any, seed: int, options: object = None) -> Any:
        self._absent = () if seed % 4 else ("left_1", "right_0")
        return reset(self, seed)

    monkeypatch.setattr(own_agents.Teams, "reset", some_stay_away)
    assert {game.length for game in _play([Says(0), Says(1)], 12)} == {16}  # type: ignore[list-item]


@pytest.mark.thorough
def test_neither_side_has_an_advantage_between_equal_players() -> None:
    found = _play([actor.RandomActor(3, 1), actor.RandomActor(3, 2)], 600)
    left = sum(game.outcome == 1 if game.is_first else game.outcome == -1 for game in found)
    decided = sum(game.outcome != 0 for game in found)
    assert decided > 400 and abs(2 * left - decided) < 2.5 * np.sqrt(decided)
    assert found == _play([actor.RandomActor(3, 1), actor.RandomActor(3, 2)], 600)


def test_random_moves_are_legal_and_all_equally_likely() -> None:
    mask = np.tile([True, False, True], (3_000, 1))
    none = np.zeros(3_000, bool)
    step = types.EnvStep(np.zeros((3_000, 1)), np.zeros(3_000), none, none, action_mask=mask)
    moves = actor.RandomActor(3, 0).act(step, none)
    assert np.bincount(moves, minlength=3)[1] == 0 and abs(np.mean(moves == 2) - 0.5) < 0.05
