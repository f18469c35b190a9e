"""A saved player of chess as an engine by UCI, the protocol of chess programs.

OpenSpiel knows the names of moves, so a game of Pgx is followed in OpenSpiel's chess, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from seedzero.envs import spiel, turn_games
from seedzero.evaluation import match

_CASTLING = {4672: 2364, 4673: 2367}
"""OpenSpiel's castling, to the queen's side and the king's -> Pgx's moves of the king by two files."""


class UciSession:
    """A position, and the protocol's commands."""

    def __init__(self, game: turn_games.TurnGame, player: match.Player, *, is_of_pgx: bool) -> None:
        """is_of_pgx: the game is Pgx's chess, else OpenSpiel's."""
        self._game, self._player, self._is_of_pgx = game, player, is_of_pgx
        self._chess = spiel.load("chess")
        self._state, self._shown = game.initial(), self._chess.new_initial_state()

    def answer(self, line: str) -> list[str]:
        """Returns the lines that answer a line; none for what the protocol leaves unanswered, or does not know."""
        name, *words = line.split() or [""]
        if name == "uci":
            return ["id name seedzero", "id author the seedzero developers", "uciok"]
        if name == "isready":
            return ["readyok"]
        if name == "ucinewgame":
            self._begin(["startpos"])
        elif name == "position":
            try:
                self._begin(words)
            except ValueError as error:
                return [f"info string {error}"]
        elif name == "go":
            return [f"bestmove {self._best()}"]
        return []

    def _begin(self, words: Sequence[str]) -> None:
        """Takes the position of startpos, or of fen FEN, after moves; ValueError: there is no such position."""
        head, moves = list(words), list[str]()
        if "moves" in head:
            head, moves = head[: head.index("moves")], head[head.index("moves") + 1 :]
        if head[:1] == ["fen"] and not self._is_of_pgx:
            state = shown = self._of_fen(" ".join(head[1:]))
        elif head == ["startpos"]:
            state, shown = self._game.initial(), self._chess.new_initial_state()
        else:
            forms = "startpos" if self._is_of_pgx else "startpos or fen FEN"
            raise ValueError(f"position {' '.join(words)[:100]}: expected {forms}, perhaps with moves behind it")
        for number, move in enumerate(moves):
            found = [action for action in shown.legal_actions() if self._name(shown, action) == move]
            if not found:
                raise ValueError(f"illegal move {move[:20]} after {number} moves")
            state = self._game.apply(state, self._own(found[0]))
            shown = shown.child(found[0])
        self._state, self._shown = state, shown

    def _of_fen(self, fen: str) -> Any:
        try:
            return self._chess.new_initial_state(fen)
        except RuntimeError:
            raise ValueError(f"position fen {fen[:100]}: OpenSpiel cannot read it") from None

    def _best(self) -> str:
        if self._game.is_terminal(self._state):
            return "0000"
        action = int(self._player([self._state])[0])
        # What only one of both games allows, such as a draw by a longer limit of moves, has no name.
        shown = next((each for each in self._shown.legal_actions() if self._own(each) == action), None)
        return "0000" if shown is None else self._name(self._shown, shown)

    def _own(self, action: int) -> int:
        """Returns the game's number of OpenSpiel's action."""
        return _CASTLING.get(action, action) if self._is_of_pgx else action

    @staticmethod
    def _name(state: Any, action: int) -> str:
        from pyspiel import chess  # type: ignore[import-not-found, unused-ignore]

        return str(chess.action_to_move(action, state.board()).to_lan())


def serve(session: UciSession, lines: Iterable[str], write: Callable[[str], object]) -> None:
    """Answers the commands in some lines until quit, or the last line."""
    for line in lines:
        if line.split()[:1] == ["quit"]:
            return
        for answer in session.answer(line):
            write(f"{answer}\n")
