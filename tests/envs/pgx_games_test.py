"""Pgx's games as single states: against groups of games, OpenSpiel's rules of the same game, and its tree search."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors, packing, types
from seedzero.envs import bots, pgx_env, pgx_games, pgx_rules, spiel


@pytest.mark.parametrize("name", ["tic_tac_toe", "connect_four", "othello"])
def test_games_are_those_of_openspiel_with_the_same_actions(name: str) -> None:
    ours, theirs, generator = pgx_games.PgxGame(name), spiel.load(name), np.random.default_rng(0)
    for _ in range(3):
        state, other = ours.initial(), theirs.new_initial_state()
        first = ours.mover(state)
        while not other.is_terminal():
            assert state.legal_actions() == other.legal_actions() and not state.is_terminal()
            assert (ours.mover(state) == first) == (other.current_player() == 0)
            assert state.legal_actions(1 - ours.mover(state)) == []
            action = bots.random_move(state, generator)
            state = ours.apply(state, action)
            other.apply_action(action)
        assert state.is_terminal() and state.history() == other.history()
        assert (state.returns()[first], state.returns()[1 - first]) == tuple(other.returns())
        assert ours.legal_mask(state).all()


def test_observations_are_those_of_a_group_with_the_game_s_state() -> None:
    name = "connect_four"
    game = pgx_games.PgxGame(name, has_state=True)
    group = pgx_env.make(name, sections.EnvConfig(id=f"pgx:{name}", game_state=True), 1)
    step, state = group.reset([0]), game.initial()
    for action in (3, 3, 2, 6):
        step, state = group.step(np.array([action])), game.apply(state, action)
        named = [packing.unpack(game.spec.packed, seen[None]) for seen in (step.observation[0], game.observe(state))]
        assert np.array_equal(*(found[types.OBSERVATION] for found in named))
        mask = game.legal_mask(state)[None]
        decoded = pgx_rules.game(name).decode(named[1][pgx_rules.game(name).state_name], mask)
        assert decoded._x.board[0].tolist() == state.arrays._x.board.tolist()


def test_nobody_passes_in_go_before_a_move_unless_nothing_else_is_legal() -> None:
    game, generator = pgx_games.PgxGame("go(size=3, first_pass=30)"), np.random.default_rng(0)
    state, forced, number = game.initial(), 0, 0
    while not state.is_terminal():
        number += 1
        legal, can_pass = state.legal_actions(), 9 in state.legal_actions()
        assert can_pass == (number >= 30 or legal == [9])
        forced += number < 30 and can_pass
        state = game.apply(state, 9 if can_pass else bots.random_move(state, generator))
    assert number >= 31 or forced
    with pytest.raises(errors.EnvironmentFailure, match="first_pass is '3'; expected the number of a move"):
        pgx_games.PgxGame("go(first_pass='3')")


def test_what_an_opponent_earns_in_its_opening_counts_as_in_single_games() -> None:
    game = pgx_games.PgxGame("jax_nim:PAID")
    group = pgx_env.PgxGames(pgx_rules.game("jax_nim:PAID"), 2, against=("random",))
    for env in (group, spiel.Games(game, 2, against=("random",))):
        env.reset([0, 1])
        steps = [env.step(np.zeros(2, np.int32)) for _ in range(6)]
        # Who begins earns 1 and loses 1 between two moves; who does not has lost 1 before the first move.
        assert [step.reward.tolist() for step in steps] == [[0, -1], [0, 1], [0, 0], [-1, 0], [1, 0], [0, 0]]
        assert [step.final.any() for step in steps] == [False, True, False] * 2


@pytest.mark.thorough
def test_the_first_move_after_a_random_opening_earns_what_it_pays_alone() -> None:
    game = pgx_games.PgxGame("jax_nim:PAID")
    group = pgx_env.PgxGames(pgx_rules.game("jax_nim:PAID"), 8, random_opening=3)
    for env in (group, spiel.Games(game, 8, random_opening=3)):
        step = env.reset(range(8))
        assert len(set(np.argmax(step.observation, axis=1))) > 2  # piles of 4, 3, 2 or 1 after openings
        for _ in range(8):
            was_over, step = step.final, env.step(np.zeros(8, np.int32))
            np.testing.assert_array_equal(step.reward, np.where(was_over, 0, 1))


def test_a_tree_search_takes_a_win_and_prevents_a_loss() -> None:
    game, bot = pgx_games.PgxGame("tic_tac_toe"), bots.make("mcts-200", np.random.default_rng(0))
    for moves, expected in (((0, 3, 1, 4), 2), ((0, 3, 1), 2)):
        state = game.initial()
        for move in moves:
            state = game.apply(state, move)
        before = state.history()
        assert bot(state) == expected and state.history() == before


def test_what_is_no_move_and_games_that_are_no_matches_are_refused_by_name() -> None:
    game = pgx_games.PgxGame("tic_tac_toe")
    with pytest.raises(errors.EnvironmentFailure, match=r"'tic_tac_toe' refuses action 4: .*illegal"):
        game.apply(game.apply(game.initial(), 4), 4)
    with pytest.raises(errors.EnvironmentFailure, match=r"'2048': .*two players without chance"):
        pgx_games.PgxGame("2048")
