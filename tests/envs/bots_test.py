"""Opponents of games: random moves, and a bot that searches."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors, opponents, types
from seedzero.envs import bots, pgx_env, pgx_games, registry, spiel

GAME = spiel.Game("tic_tac_toe")


def _after(*actions: int) -> spiel.State:
    state = GAME.initial()
    for action in actions:
        state = GAME.apply(state, action)
    return state


def _moves(name: str, state: spiel.State, *, seed: int = 0, number: int = 40) -> list[int]:
    bot = bots.make(name, np.random.default_rng(seed))
    return [bot(state) for _ in range(number)]


def test_random_moves_are_all_the_legal_ones() -> None:
    assert set(_moves("random", _after(0, 4, 8))) == {1, 2, 3, 5, 6, 7}


@pytest.mark.parametrize(
    ("actions", "best"),
    [((0, 3, 1, 4), 2), ((0, 4, 1), 2)],  # its own line of three, and the other's
)
def test_a_bot_sees_a_line_of_three(actions: tuple[int, ...], best: int) -> None:
    assert set(_moves("mcts-200", _after(*actions))) == {best}


@pytest.mark.parametrize("num_moves", [0, 1])
def test_a_bot_plays_games_in_python(num_moves: int) -> None:
    game = spiel.Game("python_tic_tac_toe")
    state = game.initial()
    for action in (0, 3, 1, 4)[: 4 * num_moves]:
        state = game.apply(state, action)
    moves = _moves("mcts-60", state, number=3)
    assert moves == _moves("mcts-60", state, number=3) and (not num_moves or set(moves) == {2})


def test_moves_follow_the_seed() -> None:
    assert _moves("mcts-5", _after(0), seed=1) == _moves("mcts-5", _after(0), seed=1)
    assert _moves("mcts-5", _after(0), seed=1) != _moves("mcts-5", _after(0), seed=2)


def test_more_simulations_play_better() -> None:
    """Returns of the stronger bot, which moves second, over 60 games of each pair."""
    totals = []
    for weak, strong in (("random", "mcts-50"), ("mcts-5", "mcts-200")):
        one, other = (bots.make(name, np.random.default_rng(3)) for name in (weak, strong))
        total = 0.0
        for _ in range(60):
            state, movers = GAME.initial(), [one, other]
            while not GAME.is_terminal(state):
                state = GAME.apply(state, movers[GAME.mover(state)](state))
            total += GAME.returns(state)[1]
        totals.append(total / 60)
    assert totals[0] > 0.4 and totals[1] > 0.1


def _play(members: bots.Members, names: tuple[str, str], *, number: int = 0, game: spiel.Game = GAME) -> list[int]:
    """Returns the moves of a match between two bots."""
    members.begin(number)
    state, moves = game.initial(), list[int]()
    while not game.is_terminal(state):
        player = game.mover(state)
        moves.append(members.move(names[player], state, player))
        state = game.apply(state, moves[-1])
    return moves


@pytest.mark.parametrize("name", ["mcts-5", "spiel:uniform_random", "own_bots:clever"])
def test_a_league_s_bot_plays_equal_matches_for_equal_seeds_and_matches(name: str) -> None:
    def first_moves(seed: int) -> list[list[int]]:
        members = bots.Members(seed)
        return [_play(members, (name, name), number=number) for number in range(6)]

    found = first_moves(3)
    assert found == first_moves(3) != first_moves(4)
    assert len(set(map(tuple, found))) > 1, "matches of one game differ"
    assert _play(bots.Members(3), (name, name), number=5) == found[5], "whatever was played before"


def test_a_bot_of_openspiel_takes_its_parameters() -> None:
    name = "spiel:fixed_action_preference(actions=4:0:1:2:3:5:6:7:8)"
    assert _play(bots.Members(0), (name, name))[:3] == [4, 0, 1]


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("own_bots:illegal", r"chose 9; expected a legal action, one of \[0, 1,"),
        ("own_bots:nothing", "chose None"),
        ("own_bots:fails", r"raised: KeyError: 'move' \(envs/own_bots.py, line \d+, in fails\)"),
    ],
)
def test_a_bot_that_fails_is_named(name: str, named: str) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=named):
        bots.Members(0).move(name, GAME.initial(), 0)


def test_a_user_s_bot_cannot_change_the_game() -> None:
    state = GAME.initial()
    bots.Members(0).move("own_bots:moves_on", state, 0)
    assert state.move_number() == 0


def test_modules_of_bots_are_imported_before_the_first_match() -> None:
    bots.check_members(("mcts-5", "own_bots:clever", "spiel:uniform_random"))
    with pytest.raises(errors.EnvironmentFailure, match=r"'own_bots:cleverer'.*'own_bots'.*'cleverer'"):
        bots.check_members(("own_bots:cleverer",))


@pytest.mark.parametrize(
    ("name", "game"),
    [
        ("spiel:nobody", "tic_tac_toe"),
        ("mcts-9", "kuhn_poker"),
        ("mcts-9", "matrix_rps"),
    ],
)
def test_a_bot_that_does_not_play_a_game_is_named_with_a_way_out(name: str, game: str) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=f"{name}.*'{game}'"):
        bots.check_plays(name, spiel.load(game))
    with pytest.raises(errors.EnvironmentFailure):
        bots.Members(0).move(name, spiel.load(game).new_initial_state(), 0)
    with pytest.raises(errors.ConfigError, match=rf"--league\.members: .*{name}"):
        registry.check_bots(f"spiel:{game}", ("own_bots:clever", name))


def test_the_package_of_a_bot_is_asked_for_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.check_bots("pgx:hex", ("mcts-9", "own_bots:clever"))
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    registry.check_bots("pgx:hex", ("own_bots:clever",))
    with pytest.raises(errors.ConfigError, match=r"--league\.members: .*mcts-9.*open_spiel"):
        registry.check_bots("pgx:hex", ("own_bots:clever", "mcts-9"))


@pytest.mark.parametrize(("name", "game"), [("mcts-9", "connect_four"), ("spiel:uniform_random", "matrix_rps")])
def test_other_bots_play(name: str, game: str) -> None:
    registry.check_bots(f"spiel:{game}", (name,))


FAKE = f"{sys.executable} {pathlib.Path(__file__).with_name('fake_gtp.py')}"
HEX = "hex(board_size=3)"


def engine(behaviour: str = "plays", **options: float) -> bots.Engine:
    return bots.Engine(f"{FAKE} {behaviour}", bots.gtp_board_of(spiel.load(HEX)), **options)


def state(*moves: int):
    found = spiel.load(HEX).new_initial_state()
    for move in moves:
        found.apply_action(move)
    return found


def test_an_engine_answers_the_moves_of_several_games_at_a_time() -> None:
    program = engine()
    assert program.move(state()) == 0
    assert program.move(state(0, 4)) == 1  # it goes on from its own move
    assert program.move(state(4)) == 0  # another game
    assert program.move(state(0, 1)) == 2
    program.close()


def test_an_engine_that_resigns_passes_or_takes_the_last_place() -> None:
    assert engine("resigns").move(state(0)) == 8


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        ("dies", "exit code 3 at 'genmove white'.*by hand"),
        ("sleeps", "'genmove white' within 0.5 s.*by hand"),
        ("illegal", "A1, which is illegal after 1 moves: A1"),
        ("babbles", "genmove: 'Z99' .*expected one as A1, or swap-pieces"),
        ("floods", "more than 65536 bytes .*'genmove white'.*by hand"),
    ],
)
def test_failures_are_named(behaviour: str, told: str) -> None:
    program = engine(behaviour, answer_seconds=600.0)
    if behaviour == "sleeps":
        program._seconds = 0.5  # once it has started, which takes a busy machine longer
    with pytest.raises(errors.EnvironmentFailure, match=rf"^engine gtp:.* {behaviour} .*{told}"):
        program.move(state(0))


def test_engines_that_do_not_start_or_refuse_the_board_are_named() -> None:
    with pytest.raises(
        errors.EnvironmentFailure, match=r"small answered 'boardsize 3': '. unacceptable size' .*another engine"
    ):
        engine("small")
    for command, cause in (
        ("no-such-engine-here", "No such file"),
        ("", "out of range"),
        ("'", "No closing quotation"),
    ):
        with pytest.raises(errors.EnvironmentFailure, match=f"^engine gtp:{command} .*{cause}.*gtp:gnugo --mode gtp"):
            bots.Engine(command, bots.gtp_board_of(spiel.load(HEX)))


def test_one_process_plays_all_games_of_a_command_and_another_follows_a_dead_one() -> None:
    board = bots.gtp_board_of(spiel.load(HEX))
    first = bots.engine(f"{FAKE} plays", board)
    assert bots.engine(f"{FAKE} plays", board) is first
    first.close()
    second = bots.engine(f"{FAKE} plays", board)
    assert second is not first and second.move(state()) == 0
    second.close()


@pytest.mark.thorough
@pytest.mark.parametrize("env_id", [f"spiel:{HEX}", "pgx:hex(size=3)"])
def test_evaluations_play_an_engine_from_both_sides(env_id: str) -> None:
    names = (f"gtp:{FAKE} plays", "mcts-2")
    settings = sections.EnvConfig(id=env_id, opponents=",".join(names))
    make = pgx_env.make if env_id.startswith("pgx") else spiel.make
    env, generator = make(env_id.partition(":")[2], settings, 4, role=types.Role.EVALUATE), np.random.default_rng(0)
    step, ends = env.reset([0, 1, 2, 3]), dict[str, list[float]]()
    assert env.spec.tasks == opponents.tasks(names) and opponents.of_task(env.spec.tasks[1]) == (names[0], 1)
    for _ in range(60):
        for row in np.flatnonzero(step.final):
            ends.setdefault(env.spec.tasks[step.task[row]], []).append(float(step.reward[row]))
        step = env.step(np.array([generator.choice(np.flatnonzero(mask)) for mask in step.action_mask], np.int32))
    assert ends.keys() == set(env.spec.tasks)
    assert all(set(map(abs, returns)) == {1.0} for returns in ends.values())


def test_names_of_engines_are_their_commands() -> None:
    name = "gtp:gnugo --mode gtp --level 1"
    assert opponents.parse(f"random, {name}") == ("random", name)
    assert opponents.command(name) == "gnugo --mode gtp --level 1" and not opponents.command("mcts-3")
    assert opponents.of_task(f"{name}/second") == (name, 1)
    for wrong in ("gtp:", "gtp: ", "engine:stockfish"):
        with pytest.raises(ValueError, match="COMMAND"):
            opponents.parse(wrong)
    assert bots.make(name, np.random.default_rng(0))  # nothing starts before a move


@pytest.mark.parametrize(
    ("name", "kind", "size", "komi"),
    [("go(board_size=9)", "go", 9, 7.5), ("hex(board_size=5)", "hex", 5, None), ("othello", "othello", 8, None)],
)
def test_places_have_the_names_that_openspiel_gives_them(name: str, kind: str, size: int, komi: float | None) -> None:
    game = spiel.load(name)
    board, state = bots.gtp_board_of(game), game.new_initial_state()
    assert board == bots.GtpBoard(kind, size, komi)
    for action in range(size**2):
        assert state.action_to_string(0, action).split()[-1] == board.vertex(action).lower()
        assert board.action(board.vertex(action)) == board.action(board.vertex(action).lower()) == action


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("go(size=5, komi=6.5)", bots.GtpBoard("go", 5, 6.5)),
        ("go", bots.GtpBoard("go", 9, 7.5)),
        ("go_19x19", bots.GtpBoard("go", 19, 7.5)),
        ("hex(size=5)", bots.GtpBoard("hex", 5, None)),
        ("othello", bots.GtpBoard("othello", 8, None)),
    ],
)
def test_games_of_pgx_have_the_same_boards_without_openspiel(
    name: str, expected: bots.GtpBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    board = bots.gtp_board_of(pgx_games.PgxGame(name))
    assert board == expected
    assert board.action(board.vertex(expected.size**2)) == expected.size**2  # a pass, or a swap


def test_columns_of_go_leave_out_i_and_others_do_not() -> None:
    assert bots.GtpBoard("go", 9, 7.5).vertex(8) == "J1" and bots.GtpBoard("othello", 9, None).vertex(8) == "I1"
    assert bots.GtpBoard("hex", 3, None).vertex(9) == "swap-pieces"


@pytest.mark.parametrize("vertex", ["", "A", "A0", "A10", "K1", "I1", "1A", "A1x", "swap-pieces"])
def test_other_texts_are_no_moves(vertex: str) -> None:
    with pytest.raises(ValueError, match="not a move on this board"):
        bots.GtpBoard("go", 9, 7.5).action(vertex)


def test_colors_have_two_names_each() -> None:
    assert [bots.gtp_color(text) for text in ("b", "Black", "W", "white")] == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="not a color"):
        bots.gtp_color("red")


def test_games_without_such_a_board_are_refused_by_name() -> None:
    with pytest.raises(errors.EnvironmentFailure, match=r"'chess' .*go, othello, hex"):
        bots.gtp_board_of(spiel.load("chess"))
    with pytest.raises(errors.EnvironmentFailure, match=r"4x5 .*square"):
        bots.gtp_board_of(spiel.load("hex(num_cols=5,num_rows=4)"))
