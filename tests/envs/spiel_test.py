import pathlib
import subprocess
import sys

import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import registry, seats, spiel, spiel_seats

HERE = pathlib.Path(__file__).parent
TIC_TAC_TOE = spiel.Game("tic_tac_toe")
SMALL_CONNECT_FOUR = spiel.Game("connect_four(rows=4,columns=5)")


def actions(*values):
    return np.array(values, np.int32)


def after(game, *moves):
    """Returns the state after moves from the beginning."""
    state = game.initial()
    for move in moves:
        state = game.apply(state, move)
    return state


def board(*rows):
    """Returns [H, W] from rows like "xo."."""
    return np.array([list(row) for row in rows])


def random_legal(step, rng):
    return actions(*(rng.choice(np.flatnonzero(mask)) for mask in step.action_mask))


# --- single states ---------------------------------------------------------------------------------------------------


def test_a_board_is_channels_last_with_the_mover_behind():
    expected = board("o..", ".x.", "...")  # OpenSpiel's planes: empty, noughts, crosses
    observation = TIC_TAC_TOE.observe(after(TIC_TAC_TOE, 4, 0))
    assert observation.dtype == np.float32
    assert observation.shape == (3, 3, 4)
    for channel, sign in enumerate(".ox"):
        np.testing.assert_array_equal(observation[..., channel], expected == sign)
    assert not observation[..., 3].any()
    assert TIC_TAC_TOE.observe(after(TIC_TAC_TOE, 4))[..., 3].all()


def test_a_board_that_is_not_square_keeps_rows_and_columns():
    observation = SMALL_CONNECT_FOUR.observe(after(SMALL_CONNECT_FOUR, 0, 1, 0))
    lowest_first = board("xo...", "x....", ".....", ".....")
    for channel, sign in enumerate("xo."):
        np.testing.assert_array_equal(observation[..., channel], lowest_first == sign)
    assert observation[..., 3].all()


def test_what_is_no_board_is_a_vector_with_the_mover_behind():
    game = spiel.Game("nim(pile_sizes=1;2)")
    first, second = game.observe(game.initial()), game.observe(after(game, 0))
    assert game.spec.observation_shape == first.shape == second.shape
    assert first.ndim == 1
    assert (first[-1], second[-1]) == (0, 1)


def test_the_spec_tells_players_mask_and_bounds():
    assert TIC_TAC_TOE.spec == types.EnvSpec(
        (3, 3, 4), "float32", 9, observation_low=0, observation_high=1, num_players=2, has_action_mask=True
    )
    assert SMALL_CONNECT_FOUR.spec.observation_shape == (4, 5, 4)
    assert SMALL_CONNECT_FOUR.spec.num_actions == 5
    oware = spiel.Game("oware").spec  # its tensor counts seeds
    assert (oware.observation_low, oware.observation_high) == (-np.inf, np.inf)


def test_a_move_leaves_the_state_before_it_alone():
    before = after(TIC_TAC_TOE, 4)
    text = str(before)
    one, other = TIC_TAC_TOE.apply(before, 0), TIC_TAC_TOE.apply(before, 8)
    assert str(before) == text
    assert str(one) != str(other)


def test_a_won_game_is_terminal_with_returns_that_sum_to_zero():
    state = after(TIC_TAC_TOE, 0, 3, 1, 4)
    assert not TIC_TAC_TOE.is_terminal(state)
    assert TIC_TAC_TOE.returns(state) == (0, 0)
    won = TIC_TAC_TOE.apply(state, 2)
    assert TIC_TAC_TOE.is_terminal(won)
    assert TIC_TAC_TOE.returns(won) == (1, -1)
    assert TIC_TAC_TOE.mover(won) == 1
    assert TIC_TAC_TOE.legal_mask(won).all()


def test_player_1_begins_where_the_rules_say_so():
    chess = spiel.Game("chess")  # white, which begins, is OpenSpiel's player 1
    state = chess.initial()
    assert chess.mover(state) == 1
    assert chess.observe(state)[..., -1].all()
    assert chess.mover(chess.apply(state, state.legal_actions()[0])) == 0


def test_an_illegal_move_is_refused_by_name():
    with pytest.raises(errors.EnvironmentFailure, match=r"'tic_tac_toe' refuses action 4"):
        TIC_TAC_TOE.apply(after(TIC_TAC_TOE, 4), 4)


# --- both sides ------------------------------------------------------------------------------------------------------


def test_self_play_alternates_and_rewards_who_acted():
    env = spiel.Games(TIC_TAC_TOE, 2)
    steps = [env.reset([0, 0])]
    # Environment 0: crosses fill the upper row. Environment 1: noughts fill the middle row, a move later.
    steps += [env.step(actions(*pair)) for pair in ((0, 0), (3, 3), (1, 1), (4, 4), (2, 8), (7, 5), (7, 7))]
    movers = [step.observation[:, 0, 0, 3].tolist() for step in steps]
    assert movers == [[0, 0], [1, 1], [0, 0], [1, 1], [0, 0], [1, 1], [0, 0], [1, 0]]
    assert [step.reward.tolist() for step in steps] == [[0, 0]] * 5 + [[1, 0], [0, 1], [0, 0]]
    terminated = [step.terminated.tolist() for step in steps]
    assert terminated == [[False, False]] * 5 + [[True, False], [False, True], [False, False]]
    assert not any(step.truncated.any() for step in steps)
    assert [step.action_mask.sum(axis=1).tolist() for step in steps] == [
        [9, 9],
        [8, 8],
        [7, 7],
        [6, 6],
        [5, 5],
        [9, 4],
        [9, 9],
        [8, 9],
    ]
    np.testing.assert_array_equal(steps[6].observation[0], TIC_TAC_TOE.observe(TIC_TAC_TOE.initial()))
    np.testing.assert_array_equal(steps[5].observation[0], TIC_TAC_TOE.observe(after(TIC_TAC_TOE, 0, 3, 1, 4, 2)))


def test_who_loses_by_the_own_move_is_rewarded_for_it():
    env = spiel.Games(spiel.Game("misere(game=tic_tac_toe())"), 1)
    env.reset([0])
    assert [env.step(actions(move)).reward[0] for move in (0, 3, 1, 4, 2)] == [0, 0, 0, 0, -1]


def test_an_illegal_action_is_refused_before_any_game_has_moved():
    env = spiel.Games(TIC_TAC_TOE, 2)
    env.reset([0, 0])
    env.step(actions(4, 4))
    with pytest.raises(errors.InvalidMessage, match=r"action 4 .* 1 .*\[0, 1, 2, 3, 5, "):
        env.step(actions(0, 4))
    step = env.step(actions(1, 1))
    np.testing.assert_array_equal(step.observation[0], TIC_TAC_TOE.observe(after(TIC_TAC_TOE, 4, 1)))


def test_games_of_one_player_have_no_mover():
    env = spiel.Games(spiel.Game("cliff_walking"), 2, against=("random",))
    assert env.spec.num_players == 1
    assert env.spec.observation_shape == (32,)
    first = env.reset([0, 0])
    assert np.flatnonzero(first.observation[0]).tolist() == [24]
    step = env.step(actions(0, 1))  # down the cliff; up
    assert step.reward.tolist() == [-100, -1]
    assert step.terminated.tolist() == [True, False]


# --- against random moves --------------------------------------------------------------------------------------------


def test_2048_shows_each_tile_as_its_power_of_2():
    game = spiel.Game("2048(max_tile=65536)")
    assert game.spec.observation_shape == (4, 4, 17) and (game.spec.observation_low, game.spec.observation_high) == (
        0,
        1,
    )
    assert game.spec.has_chance and game.spec.num_players == 1
    state = game.initial(np.random.default_rng(0))
    tiles = np.array(state.observation_tensor(0)).reshape(4, 4)
    assert np.count_nonzero(tiles) == 2
    observation = game.observe(state)
    assert (observation.sum(axis=-1) == 1).all() and (observation[..., 0] == (tiles == 0)).all()
    np.testing.assert_array_equal(np.argmax(observation, axis=-1)[tiles > 0], np.log2(tiles[tiles > 0]))
    assert spiel.Game("2048").spec.observation_shape == (4, 4, 12)


def test_against_an_opponent_the_sides_change_with_environment_and_episode():
    env = spiel.Games(TIC_TAC_TOE, 2, against=("random",))
    rng = np.random.default_rng(0)
    step = env.reset([5, 6])
    episode, first = np.zeros(2, int), np.ones(2, bool)
    for _ in range(200):
        for index in range(2):
            opened = (index + episode[index]) % 2
            stones = int(step.observation[index, ..., 1:3].sum())
            if first[index]:
                assert stones == opened
            if not step.terminated[index]:
                assert stones % 2 == opened
                assert np.all(step.observation[index, ..., 3] == opened)
        first = step.terminated.copy()
        episode += first
        step = env.step(random_legal(step, rng))
    assert np.all(episode > 20)


LINES = ["012", "345", "678", "036", "147", "258", "048", "246"]


def has_line(plane):
    return any(all(plane.reshape(-1)[int(cell)] for cell in line) for line in LINES)


def test_against_an_opponent_the_reward_is_the_games_for_the_own_side():
    env = spiel.Games(TIC_TAC_TOE, 8, against=("random",))
    rng = np.random.default_rng(1)
    step = env.reset(range(8))
    mover = step.observation[:, 0, 0, 3]
    results = set()
    for _ in range(200):
        step = env.step(random_legal(step, rng))
        for index in np.flatnonzero(step.terminated):
            noughts, crosses = has_line(step.observation[index, ..., 1]), has_line(step.observation[index, ..., 2])
            for_crosses = int(crosses) - int(noughts)
            own = -for_crosses if mover[index] else for_crosses
            assert step.reward[index] == own
            results.add((int(mover[index]), own))
        assert not step.reward[~step.terminated].any()
        mover = np.where(step.terminated, mover, step.observation[:, 0, 0, 3])
    assert results == {(side, own) for side in (0, 1) for own in (-1, 0, 1)}


def test_the_opponent_plays_every_legal_move_equally_often():
    env = spiel.Games(TIC_TAC_TOE, 900, against=("random",))
    step = env.reset(range(900))
    crosses = step.observation[1::2, ..., 2].sum(axis=0)  # it opens in the odd ones
    assert crosses.sum() == 450
    assert np.all((crosses > 25) & (crosses < 80))
    step = env.step(np.where(step.action_mask[:, 4], 4, 0).astype(np.int32))
    noughts = step.observation[::2, ..., 1].sum(axis=0)
    assert noughts[1, 1] == 0
    assert noughts.sum() == 450
    assert np.all(np.delete(noughts.reshape(-1), 4) > 25)


def test_every_episode_tells_its_opponent_and_side():
    env = spiel.Games(TIC_TAC_TOE, 8, against=("random", "mcts-3"))
    assert env.spec.tasks == ("random/first", "random/second", "mcts-3/first", "mcts-3/second")
    rng = np.random.default_rng(2)
    step = env.reset(range(8))
    np.testing.assert_array_equal(step.task, [0, 1, 2, 3, 0, 1, 2, 3])
    episodes = [[(step.task[index], step.observation[index, 0, 0, 3])] for index in range(8)]
    for _ in range(60):
        before, step = step, env.step(random_legal(step, rng))
        begins = before.terminated
        assert np.all(begins | (step.task == before.task))
        for index in np.flatnonzero(begins):
            episodes[index].append((step.task[index], step.observation[index, 0, 0, 3]))
    assert all(side == task % 2 for played in episodes for task, side in played)
    # The eight environments' next games are numbers 8 to 15, which begin anew with the first opponent.
    assert all(task == index % 4 for index, played in enumerate(episodes) for task, _ in played)


@pytest.mark.parametrize("num_envs", [5, 6])
def test_the_first_games_have_all_opponents_and_sides_equally_often(num_envs):
    env = spiel.Games(TIC_TAC_TOE, num_envs, against=("random", "mcts-3"))
    rng, step = np.random.default_rng(3), env.reset(range(num_envs))
    tasks = [[int(task)] for task in step.task]
    for _ in range(60):
        was_over, step = step.terminated, env.step(random_legal(step, rng))
        for index in np.flatnonzero(was_over):
            tasks[index].append(int(step.task[index]))
    first = np.transpose([played[:4] for played in tasks]).reshape(-1)  # in the order that evaluations count them
    np.testing.assert_array_equal(first, np.arange(4 * num_envs) % 4)


def test_random_moves_alone_leave_the_spec_as_in_training():
    game = spiel.Game("tic_tac_toe")
    env = spiel.Games(game, 1, against=("random",))
    assert env.spec == game.spec and env.reset([0]).task is None


def test_the_opponent_follows_the_seeds():
    def first_moves(seeds):
        env = spiel.Games(spiel.Game("connect_four"), 2, against=("random",))
        steps = [env.reset(seeds), *(env.step(actions(0, 0)) for _ in range(2))]
        return np.stack([step.observation for step in steps])

    np.testing.assert_array_equal(first_moves([3, 4]), first_moves([3, 4]))
    assert np.any(first_moves([3, 4])[:, 1] != first_moves([3, 5])[:, 1])


# --- random openings -------------------------------------------------------------------------------------------------


def stones(step):
    return step.observation[..., 1:3].sum(axis=(1, 2, 3)).astype(int)


def test_a_random_opening_has_every_length_equally_often_and_the_right_mover():
    env = spiel.Games(TIC_TAC_TOE, 900, random_opening=3)
    step = env.reset(range(900))
    assert np.all(np.abs(np.bincount(stones(step), minlength=4) - 225) < 60)
    np.testing.assert_array_equal(step.observation[:, 0, 0, 3], stones(step) % 2)
    assert not step.reward.any() and not step.terminated.any()
    openings = step.observation[stones(step) == 1][..., 2].sum(axis=0)
    assert np.all(openings > 10)  # each of nine first moves


def test_later_episodes_open_anew_and_by_the_seed():
    def openings(seed):
        env = spiel.Games(spiel.Game("connect_four"), 1, random_opening=6)
        rng, step = np.random.default_rng(0), env.reset([seed])
        found = [step.observation[0]]
        for _ in range(300):
            was_over = step.terminated[0]
            step = env.step(random_legal(step, rng))
            if was_over:
                found.append(step.observation[0])
        return found

    once, again, other = openings(1), openings(1), openings(2)
    assert len({int(board[..., 1:3].sum()) for board in once}) > 3  # stones of either colour
    np.testing.assert_array_equal(once, again)
    assert any(np.any(one != two) for one, two in zip(once, other, strict=False))


@pytest.mark.parametrize("opening", [{"random_opening": 3}, {"against": ("random",)}], ids=["random", "opponent"])
def test_an_opening_ends_before_it_would_end_the_game(opening):
    env = spiel.Games(spiel.Game("connect_four(rows=1,columns=3,x_in_row=1)"), 20, **opening)
    step = env.reset(range(20))
    assert not step.terminated.any()
    step = env.step(np.argmax(step.action_mask, axis=1).astype(np.int32))
    assert step.terminated.all() and np.all(step.reward == 1)


def test_only_training_games_have_a_random_opening():
    settings = sections.EnvConfig(id="spiel:tic_tac_toe", random_opening=4)
    training = registry.make(settings.id, settings, 50)
    assert stones(training.reset(range(50))).max() > 1
    evaluation = registry.make(settings.id, settings, 50, role=types.Role.EVALUATE)
    assert stones(evaluation.reset(range(50))).max() == 1  # the opponent's first move


# --- games in Python -------------------------------------------------------------------------------------------------


def test_openspiel_s_games_in_python_are_known():
    game = spiel.Game("python_tic_tac_toe")
    board = game.observe(after(game, 4, 0))
    assert sorted(board[..., :3].sum((0, 1))) == [1, 1, 7] and game.spec.num_actions == 9
    assert isinstance(registry.make("spiel:python_kuhn_poker", sections.EnvConfig(), 2), seats.SeatGames)
    registry.check_id("spiel:python_liars_poker")
    assert spiel.load("turn_based_simultaneous_game(game=python_iterated_prisoners_dilemma())").num_players() == 2


def test_a_user_s_module_brings_games():
    settings = sections.EnvConfig(opponents="random,mcts-5")
    for role in types.Role:
        env = registry.make("spiel:own_spiel_games:my_board", settings, 4, role=role)
        step, rng = env.reset(range(4)), np.random.default_rng(0)
        for _ in range(30):
            step = env.step(np.concatenate([random_legal(row, rng) for row in rows(step)]))
    assert isinstance(registry.make("spiel:own_spiel_games:my_cards", sections.EnvConfig(), 2), seats.SeatGames)
    assert spiel.Game("own_spiel_games:my_board").name == "own_spiel_games:my_board"


def rows(step):
    """Returns each row of a step as a step."""
    return [step._replace(action_mask=mask[np.newaxis]) for mask in step.action_mask]


def test_a_worker_plays_games_in_python_without_jax():
    plays = "from seedzero.config import sections; from seedzero.envs import registry; import sys\n"
    plays += "for name in ('own_spiel_games:my_cards', 'python_kuhn_poker'):\n"
    plays += "    registry.make(f'spiel:{name}', sections.EnvConfig(), 2).reset([0, 1])\n"
    plays += "assert not {'jax', 'jaxlib', 'torch'} & sys.modules.keys()\n"
    subprocess.run([sys.executable, "-c", plays], cwd=HERE, check=True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("own_spiel_games:my_bord", "did you mean my_board"),
        ("own_spiel_games:(a=1)", "not complete"),
        ("own spiel:my_board", "not complete"),
        ("of_nobody:my_board(a=b:c)", "there is no module 'of_nobody'"),
        ("__main__:my_board", "another module in every process"),
        ("raising_games:my_board", r"OverflowError: too many rules \(.*/raising_games.py, line 1"),
    ],
)
def test_a_module_that_brings_no_such_game_is_named(name, reason, tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "raising_games.py").write_text("raise OverflowError('too many rules')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(errors.EnvironmentFailure, match=reason):
        registry.make(f"spiel:{name}", sections.EnvConfig(), 1)


def test_a_game_of_this_program_alone_is_refused_with_its_module():
    spiel.load("own_spiel_games:my_board")
    with pytest.raises(errors.ConfigError, match=r"'spiel:my_board'.*'my_board'.*spiel:own_spiel_games:my_board"):
        registry.check_id("spiel:my_board")


def test_the_module_of_a_name_is_not_imported_to_check_the_name():
    registry.check_id("spiel:of_nobody:my_board")


def test_a_game_that_raises_is_named():
    for game in (spiel.Games(spiel.Game("nim"), 1), seats.SeatGames(spiel_seats.SpielSeats("kuhn_poker"), 2)):
        game._game.initial = lambda *_: 1 / 0
        with pytest.raises(errors.EnvironmentFailure, match="raised: ZeroDivisionError"):
            game.reset([0] * game.num_envs)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("kuhn_poker", "'kuhn_poker'"),
        ("matrix_mp", "'matrix_mp'"),
        ("bargaining", "'bargaining'"),
        ("pig(players=3)", "3 players"),
        ("morpion_solitaire", "'morpion_solitaire'"),
        ("connect_four(rows=0)", r"\[3, 0, 7\]"),
        ("checkers(rows=6,columns=6)", "over before its first move"),
        ("connect_four(rows=99999,columns=99999)", "1048576 numbers"),
        ("connect_four(raws=4)", "columns, egocentric_obs_tensor, rows"),
        ("tic_tac_toe(", "closing bracket"),
        ("repeated_game", "num_repetitions"),
        ("tictactoe", " tic_tac_toe"),
        ("ConnectFour", " connect_four"),
        ("zzzzzzz", "as tic_tac_toe and connect_four"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_reason(name, reason, monkeypatch: pytest.MonkeyPatch):
    pyspiel = pytest.importorskip("pyspiel")  # it also knows what other tests have registered
    pytest.importorskip("open_spiel.python.games")
    names = [known for known in pyspiel.registered_names() if known != "chat_game" and not known.startswith("my_")]
    monkeypatch.setattr(pyspiel, "registered_names", lambda: names)
    with pytest.raises(errors.EnvironmentFailure, match=reason) as error:
        spiel.Game(name)
    assert repr(name) in str(error.value)


def test_a_second_move_in_a_row_is_found_while_playing_at_the_latest(monkeypatch):
    monkeypatch.setattr(spiel, "TRIAL_MOVES", 0)
    env = spiel.Games(spiel.Game("dots_and_boxes(num_rows=1,num_cols=2)"), 1)
    env.reset([0])
    for move in (0, 2, 4):
        env.step(actions(move))
    with pytest.raises(errors.EnvironmentFailure, match=r"'dots_and_boxes\(.* player 1 .* move 4.*\b20\b"):
        env.step(actions(5))  # closes the first box


def test_a_missing_package_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(errors.EnvironmentFailure, match=r"open_spiel.*-m pip install 'open_spiel<3"):
        spiel.Game("tic_tac_toe")


def test_only_boards_can_be_drawn():
    env = spiel.Games(TIC_TAC_TOE, 1)
    env.reset([0])
    env.step(actions(4))
    picture = env.render()
    assert picture.shape == (96, 96, 3)
    centre, corner = picture[48, 48].tolist(), picture[0, 0].tolist()
    assert centre != corner
    vector = spiel.Games(spiel.Game("nim"), 1)
    vector.reset([0])
    with pytest.raises(errors.EnvironmentFailure, match="not a board"):
        vector.render()


# --- a league's bots -------------------------------------------------------------------------------------------------


def test_bots_move_where_they_are_named_and_the_others_as_given():
    games = spiel.Games(TIC_TAC_TOE, 3)
    games.reset([0, 1, 2])
    name = "spiel:fixed_action_preference(actions=4:0:1:2:3:5:6:7:8)"
    given = actions(8, 7, 6)
    assert games.with_bots(given, ["", name, ""]).tolist() == [8, 4, 6] and given.tolist() == [8, 7, 6]
    games.step(games.with_bots(given, ["", name, ""]))
    assert games.with_bots(actions(4, 1, 2), [name, name, name]).tolist() == [4, 0, 4]


def test_a_bot_has_no_move_in_a_last_observation_and_each_match_has_bots_of_its_own():
    games, drawn = spiel.Games(TIC_TAC_TOE, 1), []
    step = games.reset([5])
    for _ in range(40):
        played = games.with_bots(actions(0), ["spiel:uniform_random"])
        if step.terminated[0]:
            assert played.tolist() == [0]  # as given; the step begins another match
            drawn.append([])
        elif drawn:
            drawn[-1].append(int(played[0]))
        step = games.step(played)
    assert len(drawn) > 3 and len({tuple(moves[:3]) for moves in drawn[:-1]}) == len(drawn) - 1
