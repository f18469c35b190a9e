"""Makes a saved player an engine of the Go Text Protocol (GTP, version 2) for Go, Hex and Othello."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import seedzero
from seedzero.acting.tables import match
from seedzero.envs import bots, turn_games

_FINISHED = "the game is over"


class Refusal(Exception):
    """The engine answers this command with an error."""


Command: TypeAlias = Callable[[Sequence[str]], str]
"""Takes a command's arguments and returns the answer's text. Raises `Refusal`, or ValueError for bad arguments."""


class GtpSession:
    """One client's game, and the commands of the protocol."""

    def __init__(self, game: turn_games.TurnGame, board: bots.GtpBoard, player: match.Player) -> None:
        self._game, self._board, self._player = game, board, player
        self._states = [game.initial()]
        self.commands: Mapping[str, Command] = {
            "protocol_version": lambda words: "2",
            "name": lambda words: "seedzero",
            "version": lambda words: seedzero.__version__,
            "known_command": lambda words: str("".join(words[:1]) in self.commands).lower(),
            "list_commands": lambda words: "\n".join(self.commands),
            "boardsize": self._boardsize,
            "komi": self._komi,
            "clear_board": self._clear,
            "play": self._play,
            "genmove": self._move,
            "undo": self._undo,
            "quit": lambda words: "",
        }

    def answer(self, line: str) -> str:
        """Returns the answer to a command line, with its closing empty line, or "" if the line has no command."""
        number, words = _parsed(line)
        if not words:
            return f"?{number} unknown command\n\n" if number else ""
        name, *given = words
        try:
            if name not in self.commands:
                raise Refusal("unknown command")
            return f"={number} {self.commands[name](given)}".rstrip() + "\n\n"
        except (Refusal, ValueError) as error:
            return f"?{number} {error}\n\n"

    def _boardsize(self, words: Sequence[str]) -> str:
        if set(words) != {str(self._board.size)} or len(words) > 2:  # Programs for Hex give both sides.
            raise Refusal(f"unacceptable size: the player has learned on a board of size {self._board.size}")
        return self._clear(())

    def _komi(self, words: Sequence[str]) -> str:
        if self._board.komi is not None and list(map(float, words)) != [self._board.komi]:
            raise Refusal(f"unacceptable komi: the player has learned with {self._board.komi:g}")
        return ""

    def _clear(self, words: Sequence[str]) -> str:
        self._states = [self._game.initial()]
        return ""

    def _play(self, words: Sequence[str]) -> str:
        if len(words) != 2:
            raise Refusal("syntax error: expected a color and a move, as play black A1")
        state, action = self._at_turn(words[0]), self._board.action(words[1])
        if action not in state.legal_actions():
            raise Refusal("illegal move")
        self._states.append(self._game.apply(state, action))
        return ""

    def _move(self, words: Sequence[str]) -> str:
        if len(words) != 1:
            raise Refusal("syntax error: expected a color, as genmove black")
        state = self._at_turn(words[0])
        action = int(self._player([state])[0])
        self._states.append(self._game.apply(state, action))
        return self._board.vertex(action)

    def _at_turn(self, text: str) -> turn_games.State:
        """Returns the current state, in which this color (given by name) is to move."""
        color, state = bots.gtp_color(text), self._states[-1]
        if self._game.is_terminal(state):
            raise Refusal(_FINISHED)
        if (self._game.mover(state) == self._game.first_mover) is (color == 1):
            raise Refusal(f"illegal move: it is the turn of {bots.COLORS[1 - color]}")
        return state

    def _undo(self, words: Sequence[str]) -> str:
        if len(self._states) == 1:
            raise Refusal("cannot undo")
        self._states.pop()
        return ""


def _parsed(line: str) -> tuple[str, list[str]]:
    """Returns a command line's number, or "", and its words without control characters and the comment."""
    words = "".join(c for c in line.partition("#")[0] if c.isprintable() or c == "\t").split()
    return (words.pop(0) if words and words[0].isdecimal() else ""), words


def serve(session: GtpSession, lines: Iterable[str], write: Callable[[str], object]) -> None:
    """Answers commands, one a line, until `quit` or the end of the input."""
    for line in lines:
        if answer := session.answer(line):
            write(answer)
        if _parsed(line)[1][:1] == ["quit"]:
            return
