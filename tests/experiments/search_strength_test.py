"""The match between two settings of a search: its settings, openings and score."""

from __future__ import annotations

import numpy as np
import pytest
import search_strength as strength  # see conftest.py

from seedzero.acting.actors import agent_choice
from seedzero.acting.tables import match
from seedzero.config import configs
from seedzero.envs import spiel, turn_games


def test_a_score_is_of_pairs() -> None:
    # Pairs of 0.5, 1, 0.25 and 0.25: mean 0.5, deviation sqrt(0.375 / 3) = 0.35355.
    found = strength.score([2.0, -1.0, 1.0, 1.0, 0.0, -1.0, -1.0, 0.0])
    assert (found["wins"], found["draws"], found["losses"]) == (3, 2, 3)
    assert found["score"] == pytest.approx(0.5)
    assert found["half_width"] == pytest.approx(1.96 * 0.35355 / 2, abs=1e-4)


def test_settings_replace_those_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = configs.override(configs.of_agent("muzero"), {"search.num_simulations": 50})
    monkeypatch.setattr(agent_choice.AgentChoice, "config", lambda self, makes_environments=True: saved)
    search = strength.WithSettings("run", settings="num_simulations=7,rounds=1").config().search
    assert (search.num_simulations, search.rounds) == (7, 1)
    assert search.num_considered == saved.search.num_considered
    assert strength.WithSettings("run").config() == saved


def test_each_side_moves_first_once_from_each_position() -> None:
    # The first mover takes cells 0, 1 and 2, or 8, 7 and 6, before the other has three.
    game = spiel.Game("tic_tac_toe")
    positions = turn_games.Positions(game, [game.initial()] * 2)
    lowest, highest = (
        strength.Batched(lambda states, at=at: np.array([state.legal_actions()[at] for state in states]), positions)
        for at in (0, -1)
    )
    games = match.play_games(positions, lowest, highest)
    assert [(each.is_first, each.total, each.length) for each in games] == [(True, 1.0, 5), (False, -1.0, 5)]
