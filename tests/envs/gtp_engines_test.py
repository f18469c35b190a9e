"""Programs as opponents: a small engine on pipes plays whole games, and its failures are named."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors, opponents, types
from seedzero.envs import bots, gtp_boards, gtp_engines, pgx_env, spiel

FAKE = f"{sys.executable} {pathlib.Path(__file__).with_name('fake_gtp.py')}"
HEX = "hex(board_size=3)"
REPLACE = {FAKE: "ENGINE"}


def engine(behaviour: str = "plays", **options: float) -> gtp_engines.Engine:
    return gtp_engines.Engine(f"{FAKE} {behaviour}", gtp_boards.of(spiel.load(HEX)), **options)


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
            gtp_engines.Engine(command, gtp_boards.of(spiel.load(HEX)))


def test_one_process_plays_all_games_of_a_command_and_another_follows_a_dead_one() -> None:
    board = gtp_boards.of(spiel.load(HEX))
    first = gtp_engines.engine(f"{FAKE} plays", board)
    assert gtp_engines.engine(f"{FAKE} plays", board) is first
    first.close()
    second = gtp_engines.engine(f"{FAKE} plays", board)
    assert second is not first and second.move(state()) == 0
    second.close()


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
