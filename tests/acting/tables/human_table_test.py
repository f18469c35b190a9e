"""A person's games: turns, undo, resigning, records, and that a seat sees its own part alone."""

from __future__ import annotations

import errno
import functools
import pathlib
import tempfile
from typing import Any

import numpy as np
import play_runs
import pytest

from seedzero.acting.actors import acting_program, agent_choice
from seedzero.acting.tables import human_table, records, rethinking
from seedzero.core import errors

KUHN, TIC_TAC_TOE = "spiel:kuhn_poker", "spiel:tic_tac_toe"


@functools.cache
def _run(env_id: str, agent: str = "") -> pathlib.Path:
    return play_runs.make(pathlib.Path(tempfile.mkdtemp(prefix="seedzero-")), env_id, agent)


def _table(
    env_id: str, seat: str | None = None, agent: str = "", seed: int = 0, **given: Any
) -> human_table.HumanTable:
    return human_table.HumanTable(
        agent_choice.AgentChoice(_run(env_id, agent), seed=seed, trusted=True, **given), seat
    )


def _play_out(table: human_table.HumanTable) -> None:
    """Plays the first legal move each time, to the end."""
    while moves := table.moves():
        table.play(moves[0].action)


@pytest.mark.thorough
def test_both_sides_move_in_turn_by_the_games_own_names() -> None:
    table = _table(TIC_TAC_TOE)
    assert table.seats == ("first", "second") and table.names == []
    assert [move.name for move in table.moves()][:2] == ["x(0,0)", "x(0,1)"] and len(table.moves()) == 9
    table.play(4)
    assert [name[0] for name in table.names] == ["x", "o"] and table.names[0] == "x(1,1)"
    assert table.text().count("x") == table.text().count("o") == 1 and len(table.moves()) == 7


@pytest.mark.thorough
def test_in_the_second_seat_the_agent_begins() -> None:
    table = _table(TIC_TAC_TOE, "second")
    assert table.seat == 1 and len(table.names) == 1 and table.names[0].startswith("x")
    assert all(move.name.startswith("o") for move in table.moves())


@pytest.mark.thorough
def test_a_lost_row_of_three_is_counted() -> None:
    table = _table(TIC_TAC_TOE)
    _play_out(table)
    outcome, total = table.result()
    assert table.is_over and outcome == np.sign(total)
    found = table.to_json()
    assert found["wins"] + found["draws"] + found["losses"] == 1 and found["step"] == 90
    assert {1: "wins", 0: "draws", -1: "losses"}[int(np.sign(total))] == next(
        name for name in ("wins", "draws", "losses") if found[name]
    )


@pytest.mark.thorough
def test_moves_taken_back_leave_the_position_and_the_agents_answers_as_they_were() -> None:
    table = _table(TIC_TAC_TOE)
    positions, num_legal = [table.text()], [9]
    for _ in range(2):
        table.play(table.moves()[0].action)
        positions.append(table.text())
        num_legal.append(len(table.moves()))
    names = list(table.names)
    table.undo()
    assert table.text() == positions[1] and table.names == names[:2] and len(table.moves()) == num_legal[1]
    table.play(table.moves()[0].action)
    assert table.names == names and table.text() == positions[2]
    table.undo()
    table.undo()
    assert table.text() == positions[0] and table.names == []
    with pytest.raises(errors.UsageError, match="no move"):
        table.undo()


@pytest.mark.thorough
def test_an_ended_game_that_is_taken_back_counts_no_more() -> None:
    table = _table(TIC_TAC_TOE)
    _play_out(table)
    table.undo()
    assert not table.is_over and [table.to_json()[name] for name in ("wins", "draws", "losses")] == [0, 0, 0]
    table.end(human_table.RESIGNED)
    assert table.result()[0] == human_table.LOST and table.to_json()["losses"] == 1 and table.moves() == []
    table.undo()
    assert table.to_json()["losses"] == 0 and table.moves()


@pytest.mark.thorough
def test_a_seat_of_poker_sees_its_own_card_alone() -> None:
    """Kuhn poker's information state begins with the seat's own card; the other one differs."""
    for seed in range(6):
        table = _table(KUHN, seed=seed)
        cards = [int(card) for card in str(table._env.states[0]).split()[:2]]
        assert table.text()[0] == str(cards[0]) and str(cards[1]) not in table.text()
        assert [move.name for move in table.moves()] == ["Pass", "Bet"] and table.names == []
        with pytest.raises(errors.UsageError, match="hidden"):
            table.undo()
        _play_out(table)
        assert str(cards[1]) not in table.text()
        assert table.result()[1] in (-2.0, -1.0, 1.0, 2.0) and table.names == []


def test_simultaneous_moves_are_made_before_either_side_sees_them() -> None:
    table = _table("spiel:matrix_rps", "second")
    assert [move.name for move in table.moves()] == ["Rock", "Paper", "Scissors"]
    table.play(0)
    assert table.is_over and table.result()[1] in (-1.0, 0.0, 1.0)
    assert table.result()[0] == np.sign(table.result()[1])


def test_a_game_of_three_seats_has_an_agent_in_the_others() -> None:
    table = _table("spiel:kuhn_poker(players=3)", "2")
    assert table.seats[table.seat] == "seat 2"
    _play_out(table)
    assert table.is_over and table.result()[0] is None


@pytest.mark.thorough
def test_games_of_pgx_are_drawn_with_names_of_their_cells() -> None:
    table = _table("pgx:tic_tac_toe", "second")
    assert table.text().count("X") == 1 and table.has_undo
    (begun,) = table.names
    table.play(table.moves()[0].action)
    marks = [line[3:].split() for line in table.text().splitlines()[:3]]
    assert sum(row.count("X") for row in marks) == 2 and sum(row.count("O") for row in marks) == 1
    column, line = "abc".index(begun[0]), 3 - int(begun[1])
    assert marks[line][column] == "X"
    table.undo()
    assert table.names == [begun] and table.text().count("X") == 1


def test_agents_of_an_environment_of_ones_own_share_it_with_a_person() -> None:
    table = _table("pettingzoo:own_agents:Herd", "bee")
    assert table.seats == ("ant", "bee", "cat") and [move.name for move in table.moves()] == ["0", "1"]
    assert "observation: 0 1" in table.text()
    table.play(1)
    assert table.is_over or "observation: 1 1" in table.text()
    _play_out(table)
    assert table.is_over and table.result()[0] is None


@pytest.mark.thorough
def test_a_hint_is_the_agents_own_move_and_remembers_nothing() -> None:
    table = _table(TIC_TAC_TOE, simulations=8)
    move = table.hint()
    assert move in table.moves()
    thought = table.think()
    assert (thought.num_simulations, thought.name) == (8, move.name)
    assert thought.root is not None and thought.root.children[0].position is not None
    table.play(move.action)
    assert table.names[0] == move.name


def test_another_game_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(KUHN)

    def refuse(*_: object) -> None:
        pytest.fail("a program is made")

    monkeypatch.setattr(acting_program, "ActingProgram", refuse)
    table.begin(1)
    _play_out(table)


def test_an_agent_without_a_search_thinks_in_probabilities_with_the_games_names() -> None:
    thought = _table(KUHN, "second").think()
    assert {choice.name for choice in thought.choices} == {"Pass", "Bet"} and thought.name in ("Pass", "Bet")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("env_id", "agent"), [(TIC_TAC_TOE, ""), (KUHN, ""), ("pgx:tic_tac_toe", "alphazero"), ("pgx:tic_tac_toe", "")]
)
def test_a_game_is_recorded_as_the_page_reads_it(env_id: str, agent: str, tmp_path: pathlib.Path) -> None:
    table = _table(env_id, "second", agent)
    _play_out(table)
    path = table.finish(tmp_path / "records")
    assert path == tmp_path / "records" / "human-1.npz"
    record = records.read_record(path)
    assert record.header["human"] == "second" and record.header["ended"] == "" and not record.header["cut_off"]
    assert record.num_steps >= 1 and record.arrays["terminated"][-1] and record.arrays["reward"].any()
    if env_id != KUHN:
        assert record.arrays["move"].tolist() == table.names
        assert record.arrays["mover"].tolist() == [n % 2 for n in range(record.num_steps)]
        thought = rethinking.load(table._choice, record.header).think(record, 1)
        has_position = agent == "alphazero" or env_id == TIC_TAC_TOE
        assert thought.root is not None and has_position == (thought.root.position is not None)
        assert not has_position or thought.root.position.lower().count("x") == 1
    else:
        assert record.header["task"] == "second" and record.header["return"] == table.result()[1]
    table.begin(0)
    assert table.finish(tmp_path / "records") is None
    table.begin(0)
    table.play(table.moves()[0].action)
    is_over = table.is_over  # poker may end by one move
    table.end(human_table.RESIGNED)
    again = table.finish(tmp_path / "records")
    assert again == tmp_path / "records" / "human-2.npz" and table.to_json()["records"] == [str(path), str(again)]
    header = records.read_record(again).header
    assert (header["ended"], header["cut_off"]) == (("", False) if is_over else ("resigned", True))


def test_games_that_end_at_once_in_two_processes_are_both_recorded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, written = list[pathlib.Path](), list[pathlib.Path]()

    def write(path: pathlib.Path, header: Any, content: Any) -> None:
        written.append(path)
        if len(written) == 1:  # the other one ends while this one is written
            found.append(human_table.write_record(tmp_path, {}, {}))

    monkeypatch.setattr(human_table.records, "write", write)
    found.append(human_table.write_record(tmp_path, {}, {}))
    assert [path.name for path in found] == ["human-2.npz", "human-1.npz"]
    assert sorted(written) == sorted(found) == sorted(tmp_path.iterdir())


def test_a_move_that_is_cut_off_is_not_recorded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(actions: np.ndarray) -> None:
        raise KeyboardInterrupt

    table = _table(TIC_TAC_TOE)
    table.play(4)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(table._env, "step", cut_off)
        table.play(table.moves()[0].action)
    path = table.finish(tmp_path)
    assert path is not None and records.read_record(path).arrays["move"].tolist() == table.names
    assert len(table.names) == 2


def test_a_game_that_cannot_be_written_leaves_no_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: pathlib.Path, header: Any, content: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(human_table.records, "write", write)
    with pytest.raises(errors.UsageError, match="No space left"):
        human_table.write_record(tmp_path, {}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_mistakes_are_named() -> None:
    with pytest.raises(errors.UsageError, match=r"--human.*one seat"):
        _table("catch")
    with pytest.raises(errors.UsageError, match="--human=third: expected one of the seats first, second"):
        _table(TIC_TAC_TOE, "third")
    with pytest.raises(errors.UsageError, match=r"--simulations=4.*does not search"):
        _table(KUHN, simulations=4)
    run = play_runs.make(pathlib.Path(tempfile.mkdtemp()), "pettingzoo:own_agents:Herd", seats__policies="each")
    with pytest.raises(errors.UsageError, match=r"--human.*ant, bee, cat"):
        human_table.HumanTable(agent_choice.AgentChoice(run, trusted=True))
    table = _table(TIC_TAC_TOE)
    table.play(4)
    with pytest.raises(errors.UsageError, match=r"\b4\b.*not legal"):
        table.play(4)
    table.end(human_table.RESIGNED)
    with pytest.raises(errors.UsageError, match="game is over; begin a new one"):
        table.hint()
