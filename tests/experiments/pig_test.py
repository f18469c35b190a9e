"""The exact solver of pig, by hand and against OpenSpiel."""

from __future__ import annotations

import re

import numpy as np
import pig  # beside the experiments: see conftest.py
import pytest

from seedzero.envs import bots, spiel


def test_optimal_play_wins_half_of_the_games_and_holding_too_early_fewer() -> None:
    chances = pig.optimal(20)
    rolled, held = pig.chances_of_actions(chances, chances)
    points, total = np.indices(chances.shape)[[0, 2]]
    wins = points + total >= 20
    assert pig.win_rate(np.stack([held >= rolled] * 2)) == pytest.approx(0.5)
    assert pig.win_rate(np.stack([wins] * 2)) == pytest.approx(0.5)  # never to hold before is optimal
    assert pig.win_rate(np.stack([wins | (total >= 10)] * 2)) == pytest.approx(0.3309, abs=1e-4)


def test_states_are_seen_as_the_agent_sees_them() -> None:
    pytest.importorskip("pyspiel")
    game, generator = spiel.Game("pig(winscore=20)"), np.random.default_rng(0)
    seen = [pig.observations(player, 20) for player in (0, 1)]
    for _ in range(5):
        state = game.initial(generator)
        while not game.is_terminal(state):
            player = game.mover(state)
            *scores, total = map(int, re.findall(r"\d+", str(state))[:3])
            at = np.ravel_multi_index((scores[player], scores[1 - player], total), (20, 20, 26))
            np.testing.assert_array_equal(seen[player][0][at], game.observe(state))
            np.testing.assert_array_equal(seen[player][1][at], game.legal_mask(state))
            state = game.apply(state, bots.random_move(state, generator), generator)
