"""Games whose rules are JAX functions: states as bytes, turns, opponents, openings, symmetries, refusals."""

from __future__ import annotations

import argparse
import functools
import re
import sys

import jax
import jax_nim
import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors, packing, types
from seedzero.envs import pgx_env, pgx_rules

NIM = "jax_nim:NIM"
LUCKY = "jax_nim:LUCKY"
GAMES = (NIM, "tic_tac_toe", "connect_four")


def make(name: str, num_envs: int = 4, role: types.Role = types.Role.TRAIN, **settings) -> pgx_env.PgxGames:
    return pgx_env.make(name, sections.EnvConfig(id=f"pgx:{name}", **settings), num_envs, role=role)


def moves(step: types.EnvStep, generator: np.random.Generator) -> np.ndarray:
    """Returns a random legal action of each environment, [E]."""
    assert step.action_mask is not None
    return np.array([generator.choice(np.flatnonzero(mask)) for mask in step.action_mask], np.int32)


@functools.cache
def played(name: str, num_steps: int = 30) -> tuple[pgx_env.PgxGames, list[types.EnvStep], list[np.ndarray]]:
    """Returns random games with their states shown, the steps, and the actions that led from one to the next."""
    env, generator = make(name, game_state=True), np.random.default_rng(0)
    steps, actions = [env.reset([0, 1, 2, 3])], []
    for _ in range(num_steps):
        actions.append(moves(steps[-1], generator))
        steps.append(env.step(actions[-1]))
    return env, steps, actions


# States ------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("name", GAMES)
def test_a_shown_state_goes_on_by_the_rules_as_the_game_itself(name: str) -> None:
    env, steps, actions = played(name)
    rules = pgx_rules.game(name)
    follow = jax.jit(lambda state, mask, action: rules.step(rules.decode(state, mask), action))
    show = jax.jit(rules.show)
    for before, action, after in zip(steps, actions, steps[1:], strict=False):
        state = packing.unpack(env.spec.packed, before.observation)[rules.state_name]
        found, reward = follow(state, before.action_mask, action)
        goes_on = ~before.final  # elsewhere the next game begins
        assert goes_on.any()
        expected = packing.unpack(env.spec.packed, after.observation)[types.OBSERVATION]
        assert np.array_equal(np.asarray(show(found))[goes_on], expected[goes_on])
        assert np.array_equal(np.asarray(reward)[goes_on], after.reward[goes_on])
        assert np.array_equal(np.asarray(pgx_rules.is_over(found))[goes_on], after.final[goes_on])
        assert after.action_mask is not None
        assert np.array_equal(np.asarray(found.legal_action_mask)[goes_on], after.action_mask[goes_on])


def test_every_number_of_a_state_survives_its_bytes() -> None:
    env, steps, _ = played(NIM)
    state = packing.unpack(env.spec.packed, steps[-1].observation)[pgx_rules.game(NIM).state_name]
    found = pgx_rules.game(NIM).decode(state, steps[-1].action_mask)
    expected = env._states.replace(observation=np.zeros_like(env._states.observation))
    for got, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert got.dtype == wanted.dtype and np.array_equal(got, wanted)
    assert np.asarray(found.flags).tolist() == [[3, -2]] * 4


def test_a_state_is_for_acting_alone_and_shown_only_where_asked() -> None:
    env, steps, _ = played(NIM)
    assert [array.acting_only for array in env.spec.packed] == [False, True]
    assert env.spec.kept.observation_shape == (jax_nim.LARGEST + 1,) and len(env.spec.kept.packed) == 1
    plain = make(NIM)
    assert plain.spec.packed == () and plain.spec.kept is plain.spec
    shown = plain.reset([0, 1, 2, 3]).observation
    assert np.array_equal(shown, packing.unpack(env.spec.packed, steps[0].observation)[types.OBSERVATION])


# Turns -------------------------------------------------------------------------------------------------------------


def test_a_reward_is_the_movers_and_a_finished_game_is_followed_by_a_new_one() -> None:
    env, generator = make(NIM), np.random.default_rng(1)
    step, num_ends = env.reset([0, 1, 2, 3]), 0
    for _ in range(40):
        piles, was_over = np.argmax(step.observation, axis=1), step.final
        action = moves(step, generator)
        step = env.step(action)
        takes_last = (piles == action + 1) & ~was_over
        assert np.array_equal(step.reward, np.where(takes_last, 1.0, 0.0).astype(np.float32))
        assert np.array_equal(step.terminated, takes_last)
        assert np.all(np.argmax(step.observation, axis=1)[was_over] >= jax_nim.LARGEST - 2)
        num_ends += int(takes_last.sum())
    assert num_ends > 10


def test_in_evaluation_the_agent_has_every_turn_and_moves_first_in_every_other_game() -> None:
    env, generator = make(NIM, role=types.Role.EVALUATE), np.random.default_rng(2)
    step = env.reset([0, 1, 2, 3])
    first = np.argmax(step.observation, axis=1)
    # 7 to 9 lie there at first: 6 or fewer where an opponent has moved, unless it took one or two of 9 or 8.
    assert np.all(first[[0, 2]] >= jax_nim.LARGEST - 2)
    totals = []
    for _ in range(60):
        piles, was_over = np.argmax(step.observation, axis=1), step.final
        action = moves(step, generator)
        step = env.step(action)
        after = np.argmax(step.observation, axis=1)
        goes_on = ~was_over & ~step.final
        assert np.all(piles[goes_on] - after[goes_on] >= action[goes_on] + 2)  # the opponent took some, too
        wins = ~was_over & (piles == action + 1)
        assert np.all(step.reward[wins] == 1.0) and np.all(step.reward[~wins & ~was_over & step.final] == -1.0)
        assert np.all(step.reward[was_over] == 0.0)
        totals += step.reward[step.final & ~was_over].tolist()
    assert {1.0, -1.0} == set(totals)


@pytest.mark.thorough
def test_openings_are_random_moves_that_end_no_game() -> None:
    env = make("tic_tac_toe", num_envs=64, random_opening=9)
    step = env.reset(list(range(64)))
    numbers = step.observation.sum(axis=(1, 2, 3))
    assert not step.final.any() and set(numbers.tolist()) >= {0, 1, 2, 3, 4, 5, 6} and numbers.max() <= 8
    assert not make("tic_tac_toe", num_envs=8).reset(list(range(8))).observation.any()


def test_the_same_seeds_and_actions_give_the_same_steps() -> None:
    one, other = make(NIM, random_opening=2), make(NIM, random_opening=2)
    step, again, generator = one.reset([5, 6, 7, 8]), other.reset([5, 6, 7, 8]), np.random.default_rng(0)
    for _ in range(20):
        assert all(np.array_equal(a, b) for a, b in zip(step[:5], again[:5], strict=True))
        action = moves(step, generator)
        step, again = one.step(action), other.step(action)


def test_a_game_without_chance_gets_no_key_and_plays_as_one_that_ignores_it() -> None:
    plain, other = (make(name, random_opening=2) for name in ("jax_nim:PLAIN", NIM))
    step, again, generator = plain.reset([5, 6, 7, 8]), other.reset([5, 6, 7, 8]), np.random.default_rng(0)
    for _ in range(8):
        assert all(np.array_equal(a, b) for a, b in zip(step[:5], again[:5], strict=True))
        action = moves(step, generator)
        step, again = plain.step(action), other.step(action)


def test_random_games_draw_chance_where_the_game_has_it() -> None:
    assert pgx_rules.other_result(pgx_rules.game(LUCKY)) is None
    assert pgx_rules.other_result(pgx_rules.game("jax_nim:PLAIN")) is None
    assert pgx_rules.other_result(pgx_rules.game("jax_nim:HALF")) in (-0.5, 0.5)


def test_a_player_that_moves_twice_in_a_row_is_refused_by_name() -> None:
    env = make("jax_nim:AGAIN")
    env.reset([0, 1, 2, 3])
    with pytest.raises(errors.EnvironmentFailure, match=r"'jax_nim:AGAIN' .*twice in a row.*has_chance=True"):
        env.step(np.full(4, 2, np.int32))


@pytest.mark.parametrize("has_state", [False, True])
def test_where_a_player_moves_again_the_last_number_is_the_mover(has_state: bool) -> None:
    env, generator = make(LUCKY, game_state=has_state), np.random.default_rng(1)
    assert env.spec.moves_again and env.spec.has_chance and not make(NIM).spec.moves_again
    assert env.spec.arrays[0].shape == (jax_nim.LARGEST + 2,)
    step, found = env.reset([0, 1, 2, 3]), set()
    for _ in range(40):
        movers = env.spec.movers(step.observation)
        assert np.array_equal(movers, env._states.current_player)
        piles, was_over = np.asarray(env._states.pile), step.final
        action = moves(step, generator)
        step = env.step(action)
        assert np.array_equal(step.reward, np.where((piles == action + 1) & ~was_over, 1.0, 0.0))
        after = env.spec.movers(step.observation)
        found |= set((after == movers)[~was_over & ~step.final].tolist())
    assert found == {True, False}


@pytest.mark.thorough
def test_in_evaluation_an_opponent_moves_until_it_is_the_agent_s_turn() -> None:
    env, generator = make(LUCKY, num_envs=32, role=types.Role.EVALUATE), np.random.default_rng(2)
    step, totals, num_again = env.reset(list(range(32))), [], 0
    for _ in range(40):
        player, was_over = env._player.copy(), step.final
        assert np.all((env.spec.movers(step.observation) == player)[~was_over])
        piles, action = np.asarray(env._states.pile), moves(step, generator)
        step = env.step(action)
        assert not np.any(was_over & step.final)  # an opening never ends the game
        wins = ~was_over & (piles == action + 1)
        assert np.all(step.reward[wins] == 1.0) and np.all(step.reward[~wins & ~was_over & step.final] == -1.0)
        totals += step.reward[step.final & ~was_over].tolist()
        num_again += int(np.sum((piles - np.asarray(env._states.pile) == action + 1) & ~step.final & ~was_over))
    assert {1.0, -1.0} == set(totals) and num_again > 5


# Pictures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "planes"), [("2048", range(31)), ("chess", range(2))])
def test_pictures_show_every_plane_of_one_player_and_the_pieces_of_two(name: str, planes: range) -> None:
    env = make(name, num_envs=1)
    board = np.zeros((1, *env.spec.observation_shape), bool)
    for plane in range(board.shape[-1]):
        shown = board.copy()
        shown[0, 1, 2, plane] = True
        env._states = argparse.Namespace(observation=shown, current_player=np.zeros(1, int))
        assert env.render()[32:64, 64:96].any() == (plane in planes)


def test_a_stone_keeps_its_colour_when_the_turn_passes() -> None:
    env = make("connect_four", num_envs=1)
    env.reset(np.zeros(1, np.int64))
    env.step(np.array([3]))
    first = env.render()
    env.step(np.array([0]))
    changed = (env.render() != first).any(axis=-1)
    assert first.any() and changed.any() and not (changed & first.any(axis=-1)).any()


# Symmetries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "tic_tac_toe",
        "connect_four",
        "hex(size=3)",
        pytest.param("othello", marks=pytest.mark.slow),
        pytest.param("go(size=5)", marks=pytest.mark.slow),
    ],
)
def test_a_game_played_in_a_mirror_stays_the_mirror_image(name: str) -> None:
    rules, generator = pgx_rules.game(name), np.random.default_rng(0)
    start = jax.jit(jax.vmap(rules.env.init))(jax.random.split(jax.random.key(0), 1))
    step = jax.jit(rules.step)
    found = pgx_rules.symmetries(name)
    assert np.array_equal(found[0].actions, np.arange(rules.num_actions)) and len(found) > 1
    for symmetry in found:
        state, image = start, start
        for _ in range(12):
            mask = np.asarray(state.legal_action_mask[0])
            assert np.array_equal(np.asarray(image.legal_action_mask[0]), mask[symmetry.actions])
            assert np.array_equal(image.observation, symmetry.board(state.observation))
            if bool(state.terminated[0]):
                break
            action = generator.choice(np.flatnonzero(mask))
            state, reward = step(state, np.array([action]))
            image, other = step(image, np.array([np.flatnonzero(symmetry.actions == action)[0]]))
            assert reward == other and bool(state.terminated[0]) == bool(image.terminated[0])


def test_a_game_of_ones_own_has_no_symmetries_of_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gomoku_of_mine", jax_nim)
    assert pgx_rules.symmetries("gomoku_of_mine:NIM") == ()


# Refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("conect_four", r"did you mean connect_four\?"),
        ("kuhn_poker", "hides cards.*spiel:kuhn_poker"),
        ("sparrow_mahjong", "hides cards"),
        ("hex(size=five)", r"hex\(size=5\)"),
        ("hex(width=5)", "unexpected keyword argument 'width'.*envs/pgx_rules.py, line"),
        ("hex(", r"hex\(size=5\)"),
        ("jax_nim:HIDDEN", "see everything.*perfect_information to True"),
        ("jax_nim:LARGEST", "is a int without init; expected .*init, step, observe, num_players, num_actions"),
        ("jax_nim:NOTHING", "no object 'NOTHING'; it has State, Nim, Hidden, "),
    ],
)
def test_impossible_games_are_refused_by_name(name: str, told: str) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=f"{re.escape(name)}.*{told}"):
        make(name)


def test_games_with_hidden_cards_are_named_as_openspiel_names_them() -> None:
    pyspiel = pytest.importorskip("pyspiel")
    named = re.findall(r"spiel:(\w+)", " ".join(pgx_rules._HIDDEN.values()))
    assert len(named) == 2 and set(named) <= set(pyspiel.registered_names())


@pytest.mark.thorough
def test_a_tree_search_plays_games_of_a_user_s_own_as_well_as_they_can_be_played() -> None:
    env, generator = (
        make(NIM, role=types.Role.EVALUATE, opponents="mcts-300", game_state=True),
        np.random.default_rng(0),
    )
    step, total = env.reset([0, 1, 2, 3]), []
    assert env.spec.tasks == ("mcts-300/first", "mcts-300/second") and env.spec.packed
    for _ in range(24):
        total += step.reward[step.final].tolist()
        step = env.step(moves(step, generator))
    assert len(total) > 8 and sum(total) < -0.5 * len(total)  # random moves lose


# A league's bots ---------------------------------------------------------------------------------------------------


def test_bots_move_where_they_are_named_and_a_tree_search_plays_well() -> None:
    env, given = make(NIM), np.full(4, 2, np.int32)
    step, generator, num_searched = env.reset([0, 1, 2, 3]), np.random.default_rng(0), 0
    for _ in range(12):
        piles = np.argmax(step.observation, axis=1)
        given = moves(step, generator)
        played = env.with_bots(given, ["", "mcts-300", "own_bots:clever", "mcts-300"])
        assert played[0] == given[0] and (played[step.final] == given[step.final]).all()
        for index in (1, 3):
            if not step.final[index] and piles[index] % 4:
                assert (piles[index] - 1 - played[index]) % 4 == 0
                num_searched += 1
        if not step.final[2] and piles[2] <= 3:
            assert played[2] == piles[2] - 1
        step = env.step(played)
    assert num_searched > 5


@pytest.mark.thorough
def test_bots_follow_the_seed_and_the_match_whatever_was_played_before() -> None:
    def second_match(seed: int, *, has_bot: bool) -> list[int]:
        """Returns a bot's moves in the second match; has_bot: it plays the first match, too."""
        env, found, num_ended = make("tic_tac_toe", num_envs=1), [], 0
        step = env.reset([seed])
        while num_ended < 2:
            action = np.array([np.flatnonzero(step.action_mask[0])[0]], np.int32)
            played = env.with_bots(action, ["mcts-3" if has_bot or num_ended else ""])
            found += played.tolist() if num_ended and not step.final[0] else []
            step = env.step(played)
            num_ended += int(step.final[0])
        return found

    found = [second_match(seed, has_bot=True) for seed in range(4)]
    assert found == [second_match(seed, has_bot=False) for seed in range(4)]
    assert len(set(map(tuple, found))) > 1


def test_a_bot_that_asks_for_the_moves_before_a_state_is_named() -> None:
    env = make(NIM)
    env.reset([0, 1, 2, 3])
    with pytest.raises(errors.EnvironmentFailure, match=r"own_bots:looks_back.*not known"):
        env.with_bots(np.zeros(4, np.int32), ["own_bots:looks_back", "", "", ""])
