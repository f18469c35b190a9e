"""`seedzero play --human`: lets a person play against a saved agent in the terminal."""

from __future__ import annotations

import pathlib
import sys
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from seedzero.acting.actors import agent_choice
from seedzero.cli import output, parse, play_page
from seedzero.config import page_options
from seedzero.core import errors, printable
from seedzero.storage.bucket import bucket

if TYPE_CHECKING:
    from seedzero.acting.tables import human_table

_WIDTH = 100
_MOST_NUMBERED = 100
"""Up to this number, moves are listed with their numbers; beyond it, only their names."""
_COMMANDS = {
    "undo": "takes back your last move, and the answers to it",
    "hint": "shows the move that the agent would make for you",
    "think": "shows what the agent finds about your position",
    "resign": "gives the game up",
    "new": "begins another game",
    "sides": "begins another game, in the next seat",
    "help": "shows this list",
    "quit": "ends the program, as Ctrl-D does",
}


def run(arguments: parse.Arguments, choice: agent_choice.AgentChoice) -> int:
    """Plays games with the person at standard input until the person leaves; returns the exit code."""
    check(arguments)
    from seedzero.acting.tables import human_table
    from seedzero.interfaces.page import recordings

    choice = choice.absolute()
    if is_on_page := arguments.switch("page"):
        page_options.check_packages("seedzero play --page")
    with output.others_aside():
        table = human_table.HumanTable(choice, seat(arguments))
        if is_on_page:
            found = _on_page(table, choice, arguments.port("port") or 0)
    if is_on_page:
        output.print_json(found)
        return errors.DONE
    with output.others_aside():
        session = HumanSession(table, choice.path / recordings.FOLDER, sys.stdin.readline, _show)
        try:
            session.play()
        except KeyboardInterrupt:
            _show("")  # after the terminal's ^C
        finally:
            session.finish()
            table.close()
    output.print_json(table.to_json())
    return errors.DONE


def _on_page(table: human_table.HumanTable, choice: agent_choice.AgentChoice, port: int) -> dict[str, Any]:
    """Serves the page with the person's seat until Ctrl-C; returns the result."""
    from seedzero.interfaces.page import human_seat, recordings, serve

    human = human_seat.HumanSeat(table, choice.path / recordings.FOLDER)

    def ready(url: str) -> None:
        output.say(f"play at {url}#/play (Ctrl-C ends the page)")
        play_page.open_browser(f"{url}#/play")

    try:
        serve.serve(choice.path.resolve(), play_page.HOST, port, "", ready, trusted=choice.trusted, human=human)
    finally:
        try:
            human.finish()
        except errors.UsageError as error:
            output.say(str(error))
        table.close()
    return table.to_json()


def seat(arguments: parse.Arguments) -> str | None:
    """Returns the seat that --human names, or None."""
    given = arguments.flags["human"]
    return None if given == "true" else given


def check(arguments: parse.Arguments) -> None:
    """Raises UsageError for flags that mean nothing with --human."""
    for flag in ("video", "max_episode_steps"):
        if flag in arguments.flags:
            raise errors.UsageError(f"--{flag} is for an episode without you; omit it, or --human")
    if bucket.parse(run_dir := arguments.flags["run_dir"]) is not None:
        raise errors.UsageError(f"--run_dir={run_dir}: --human records into a run directory of this machine; give one")


class HumanSession:
    """Plays games at one table by lines of text."""

    def __init__(
        self, table: human_table.HumanTable, folder: pathlib.Path, read: Callable[[], str], show: Callable[[str], None]
    ) -> None:
        """folder: where records go. read: returns the person's next line, "" at the end of input.

        show: prints lines.
        """
        self._table, self._folder, self._read, self._show = table, folder, read, show
        self._num_told = 0  # moves of this game that the person has seen

    def play(self) -> None:
        """Plays until the person quits or the input ends."""
        seats = self._table.seats
        self._show(f"You have the seat {seats[self._table.seat]} of {', '.join(seats)}, and the agent the rest.")
        self._show(f"Type a move by its number or name, or one of: {', '.join(_COMMANDS)}.")
        self._describe()
        while line := self._read():
            word = line.strip()
            if word == "quit":
                return
            try:
                self._obey(word)
            except errors.UsageError as error:
                self._show(str(error))

    def finish(self) -> None:
        """Records the game so far, or says why it cannot."""
        try:
            path = self._table.finish(self._folder)
        except errors.UsageError as error:
            return self._show(str(error))
        if path is not None:
            self._show(f"recorded {path}")

    def _obey(self, word: str) -> None:
        """Makes a move, or obeys a command. Raises UsageError if that is impossible."""
        from seedzero.acting.tables import human_table

        table = self._table
        moves = {move.name: move.action for move in table.moves()}
        moves |= {str(action): action for action in moves.values() if str(action) not in moves}
        match word:
            case "":
                return
            case _ if word in moves:
                table.play(moves[word])
            case "undo":
                table.undo()
                self._num_told = min(self._num_told, len(table.names))
            case "resign":
                table.end(human_table.RESIGNED)
            case "new" | "sides":
                self.finish()
                table.begin((table.seat + (word == "sides")) % len(table.seats))
                self._num_told = 0
                self._show(f"You have the seat {table.seats[table.seat]}.")
            case "hint":
                return self._show(f"the agent would play {table.hint().name}")
            case "think":
                return self._show(str(table.think()))
            case "help":
                return self._show("\n".join(f"{name:<6}  {text}" for name, text in _COMMANDS.items()))
            case _:
                raise errors.UsageError(f"{word!r} is neither a legal move nor a command; `help` lists the commands")
        self._describe()

    def _describe(self) -> None:
        """Shows the moves since the last look, the position, and the legal moves or the result."""
        table = self._table
        if told := table.names[self._num_told :]:
            self._show(f"\nmoves: {', '.join(told)}")
        self._num_told = len(table.names)
        self._show(f"\n{table.text().rstrip()}\n")
        if table.is_over:
            self._show(f"{_ends(*table.result())}; `new`, `sides`{', `undo`' if table.has_undo else ''} or `quit`")
            return
        moves = table.moves()
        are_numbered = len(moves) <= _MOST_NUMBERED and any(move.name != str(move.action) for move in moves)
        shown = [f"{move.action} {move.name}" if are_numbered else move.name for move in moves]
        self._show(textwrap.fill(f"your moves: {', '.join(shown)}", _WIDTH, subsequent_indent="  "))


def _ends(outcome: int | None, total: float) -> str:
    """Describes the result of a finished game in a sentence."""
    words = {1: "you have won", 0: "a draw", -1: "you have lost", None: "the game is over"}
    return f"{words[outcome]}, with a return of {total:g}"


def _show(text: str) -> None:
    """Prints lines on standard error; an environment's text cannot move the cursor."""
    print(printable.escape_lines(text), file=printable.standard_error(), flush=True)
