"""A person's whole games in a real browser: board and buttons, undo, hint, thought, resigning, the other side."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

import browser_driver
import play_runs

from seedzero.acting.actors import agent_choice
from seedzero.acting.tables import human_table
from seedzero.interfaces.page import app, human_seat

pytestmark = browser_driver.NEEDS_BROWSER
YOUR_TURN = "document.querySelector('.told')?.textContent === 'It is your turn.'"
OVER = "/^(You have|A draw|The game is over)/.test(document.querySelector('.told')?.textContent)"


@contextlib.contextmanager
def _playing(
    root: pathlib.Path, game: str, profile: pathlib.Path
) -> Iterator[tuple[browser_driver.Tab, human_seat.HumanSeat]]:
    """While entered, a browser shows the game of an agent with random parameters."""
    run = play_runs.make(root / "run", game)
    seat = human_seat.HumanSeat(human_table.HumanTable(agent_choice.AgentChoice(run)), run / "records")
    with browser_driver.shown(app.Page(root, human=seat), "#/play", profile) as tab:
        yield tab, seat


def test_a_whole_game_of_tic_tac_toe(tmp_path: pathlib.Path) -> None:
    with _playing(tmp_path, "spiel:tic_tac_toe", tmp_path / "profile") as (tab, seat):
        tab.wait(YOUR_TURN)
        assert tab.value("document.querySelectorAll('button.cell:not(:disabled)').length") == 9
        tab.click("hint")
        hinted = tab.wait("document.querySelector('.cell.hinted')?.dataset.action")
        assert f"would play {seat._table.hint().name}" in tab.value("document.querySelector('.told').textContent")
        tab.value(f"document.querySelector('.cell[data-action=\"{hinted}\"]').click()")
        tab.wait("document.querySelectorAll('.table .cell.stone-2').length === 1")
        assert tab.value("document.querySelectorAll('.table .cell.last').length") == 2, (
            "the last moves of both are marked"
        )
        assert tab.value("document.querySelectorAll('.played li').length") == 2
        tab.click("what it thinks")
        tab.wait("document.querySelectorAll('[role=treeitem]').length === 5")
        assert tab.value("document.querySelectorAll('.table .cell.share').length") == 7, "the agent's visits"
        tab.click("undo")
        tab.wait("document.querySelectorAll('button.cell:not(:disabled)').length === 9")
        tab.click("change sides")
        tab.wait("document.querySelectorAll('.table .cell.stone-1').length === 1")
        while not tab.value(OVER):
            tab.value("document.querySelector('button.cell:not(:disabled)').click()")
            tab.wait(f"({YOUR_TURN}) || ({OVER})")
        assert tab.value("document.querySelectorAll('button.cell:not(:disabled), .moves button').length") == 0
        tab.click("new game")
        tab.wait(YOUR_TURN)
        tab.click("resign")
        tab.wait("document.querySelector('.told').textContent.startsWith('You have lost.')")
        assert tab.errors == []
    assert len(seat._table.records) == 1


def test_an_answer_that_comes_late_leaves_the_page_that_you_have_gone_to(tmp_path: pathlib.Path) -> None:
    with _playing(tmp_path, "spiel:tic_tac_toe", tmp_path / "profile") as (tab, seat):
        tab.wait(YOUR_TURN)
        with seat._lock:
            tab.value("document.querySelector('button.cell').click()")
            tab.value("location.hash = '#/'")
            tab.wait("document.querySelector('h1').textContent === 'Runs'")
        tab.wait("performance.getEntriesByType('resource').some((one) => one.name.endsWith('/api/play'))")
        tab.value("new Promise(requestAnimationFrame)")
        assert tab.value("document.querySelector('h1').textContent") == "Runs" and tab.errors == []


def test_a_game_of_poker_shows_one_s_own_card_alone(tmp_path: pathlib.Path) -> None:
    with _playing(tmp_path, "spiel:kuhn_poker", tmp_path / "profile") as (tab, seat):
        tab.wait(YOUR_TURN)
        mine, other = str(seat._table._env.states[0]).split()[:2]
        assert tab.value("document.querySelector('pre.position').textContent") == mine != other
        assert (
            tab.value("[...document.querySelectorAll('.moves button')].map((b) => b.textContent).join()") == "Pass,Bet"
        )
        while not tab.value(OVER):
            tab.value("document.querySelector('.moves button').click()")
            tab.wait(f"({YOUR_TURN}) || ({OVER})")
        assert tab.value("document.querySelector('pre.position').textContent")[0] == mine and tab.errors == []
