"""Makes a saved player of chess an engine of UCI, the protocol of chess programs.

OpenSpiel names the moves, so a game of Pgx is also followed on OpenSpiel's board.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from seedzero.core import errors
from seedzero.envs import spiel, turn_games
from seedzero.evaluation import match

_CASTLING = {4672: 2364, 4673: 2367}
"""OpenSpiel's castling moves (queenside, kingside) -> Pgx's moves of the king by two files."""


class UciSession:
    """One client's position, and the commands of the protocol."""

    def __init__(self, game: turn_games.TurnGame, player: match.Player, *, is_of_pgx: bool) -> None:
        """is_of_pgx: whether the game is Pgx's chess instead of OpenSpiel's."""
        self._game, self._player, self._is_of_pgx = game, player, is_of_pgx
        self._chess = spiel.load("chess")
        self._state, self._shown = game.initial(), self._chess.new_initial_state()

    def answer(self, line: str) -> list[str]:
        """Returns the lines that answer a command; none if it needs no answer or is unknown."""
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
            except (ValueError, errors.EnvironmentFailure) as error:  # the latter where Pgx's game has ended already
                return [f"info string {error}"]
        elif name == "go":
            return [f"bestmove {self._best()}"]
        return []

    def _begin(self, words: Sequence[str]) -> None:
        """Sets up `startpos` or `fen FEN` and plays the moves.

        Raises ValueError if the position or a move is illegal.
        """
        head, moves = list(words), list[str]()
        if "moves" in head:
            head, moves = head[: head.index("moves")], head[head.index("moves") + 1 :]
        if head[:1] == ["fen"] and not self._is_of_pgx:
            fen = " ".join(head[1:])
            try:
                state = shown = self._chess.new_initial_state(fen)
            except RuntimeError:
                raise ValueError(f"position fen {fen[:100]}: OpenSpiel cannot read it") from None
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

    def _best(self) -> str:
        if self._game.is_terminal(self._state):
            return "0000"
        action = int(self._player([self._state])[0])
        # Only one of the two games may end here, for example by a longer move limit; then the move has no name.
        shown = next((each for each in self._shown.legal_actions() if self._own(each) == action), None)
        return "0000" if shown is None else self._name(self._shown, shown)

    def _own(self, action: int) -> int:
        """Returns this game's number for an action of OpenSpiel."""
        return _CASTLING.get(action, action) if self._is_of_pgx else action

    @staticmethod
    def _name(state: Any, action: int) -> str:
        from pyspiel import chess  # type: ignore[import-not-found, unused-ignore]

        return str(chess.action_to_move(action, state.board()).to_lan())


def serve(session: UciSession, lines: Iterable[str], write: Callable[[str], object]) -> None:
    """Answers commands, one a line, until `quit` or the end of the input."""
    for line in lines:
        if line.split()[:1] == ["quit"]:
            return
        for answer in session.answer(line):
            write(f"{answer}\n")
