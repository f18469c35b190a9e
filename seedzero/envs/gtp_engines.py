"""Plays against other programs that speak the Go Text Protocol (GTP, version 2): Go, Hex and Othello.

An engine is a process, which all games of a worker share: before a move it gets those moves of the game that it does
not know. It ends with the worker, at the latest when the pipe to it closes.
"""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import time
import weakref
from typing import Any

from seedzero.core import errors
from seedzero.envs import gtp_boards

ANSWER_SECONDS = 60.0
"""Longest wait for an answer."""
_MOST_BYTES = 65_536
"""Longest answer."""


class Engine:
    """A process that speaks GTP and plays on one board."""

    def __init__(self, command: str, board: gtp_boards.GtpBoard, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        """Starts the program. command: split as a shell would, without interpreting a shell's other signs.

        Raises EnvironmentFailure if it does not start, or cannot play on the board.
        """
        self._command, self._board, self._seconds = command, board, answer_seconds
        self._moves: list[int] = []
        self._answers = bytearray()
        try:
            self._process = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        except (OSError, ValueError, IndexError) as error:
            raise errors.EnvironmentFailure(
                f"engine gtp:{command} does not start ({error}); give the command of a program that speaks GTP, as "
                "gtp:gnugo --mode gtp"
            ) from None
        self.close = weakref.finalize(self, _end, self._process)
        self.ask(f"boardsize {board.size}")
        if board.komi is not None:
            self.ask(f"komi {board.komi:g}")
        self.ask("clear_board")

    def move(self, state: Any) -> int:
        """Returns the engine's legal action in a state, a pyspiel.State or a `pgx_games.State`.

        If an engine resigns, it passes, or takes the last legal cell, until the game is over.
        """
        self._catch_up(state.history())
        legal = state.legal_actions()
        vertex = self.ask(f"genmove {gtp_boards.COLORS[len(self._moves) % 2]}").strip()
        if vertex.lower() == "resign":
            return int(legal[-1])
        try:
            action = self._board.action(vertex)
        except ValueError as error:
            raise errors.EnvironmentFailure(f"engine gtp:{self._command} answered genmove: {error}") from None
        if action not in legal:
            raise errors.EnvironmentFailure(
                f"engine gtp:{self._command} moved to {vertex}, which is illegal after {len(self._moves)} moves: "
                f"{self._shown(self._moves)}; let it play by the rules of this game"
            )
        self._moves.append(action)
        return action

    def _catch_up(self, moves: list[int]) -> None:
        """Brings the engine to the position after some moves."""
        if moves[: len(self._moves)] != self._moves:
            self.ask("clear_board")
            self._moves = []
        for action in moves[len(self._moves) :]:
            self.ask(f"play {gtp_boards.COLORS[len(self._moves) % 2]} {self._board.vertex(action)}")
            self._moves.append(action)

    def ask(self, command: str) -> str:
        """Sends a command and returns the answer. Raises EnvironmentFailure if it is late or an error."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{command}\n".encode())
        except OSError:
            pass  # it has ended, as the missing answer shows
        answer = self._answer(command)
        if not answer.startswith("="):
            raise errors.EnvironmentFailure(
                f"engine gtp:{self._command} answered {command!r}: {answer[:200]!r} after {self._shown(self._moves)}; "
                "give another engine, or options with which it plays this game"
            )
        return answer.lstrip("=0123456789").strip()

    def _answer(self, command: str) -> str:
        """Returns the text up to the next empty line."""
        assert self._process.stdout is not None
        output, ends_at = self._process.stdout.fileno(), time.monotonic() + self._seconds
        while b"\n\n" not in self._answers:
            left = ends_at - time.monotonic()
            readable = left > 0 and bool(select.select([output], [], [], left)[0])
            part = os.read(output, _MOST_BYTES) if readable else b""
            self._answers += part.replace(b"\r", b"")
            if part and len(self._answers) <= _MOST_BYTES:
                continue
            self.close()
            code = self._process.returncode
            what = (
                f"sent more than {_MOST_BYTES} bytes in answer to {command!r}"
                if part
                else f"ended with exit code {code} at {command!r}"
                if readable
                else f"did not answer {command!r} within {self._seconds:g} s"
            )
            raise errors.EnvironmentFailure(f"engine gtp:{self._command} {what}; try the command by hand")
        text, _, rest = bytes(self._answers).partition(b"\n\n")
        self._answers = bytearray(rest)
        return text.decode(errors="replace").strip()

    def _shown(self, moves: list[int]) -> str:
        return " ".join(map(self._board.vertex, moves)) or "no moves"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Closes a program's input, ends it and collects its exit code."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_RUNNING: dict[tuple[str, gtp_boards.GtpBoard], Engine] = {}
"""Most engines at a time, as many as the settings may name opponents."""


def engine(command: str, board: gtp_boards.GtpBoard) -> Engine:
    """Returns this process's engine for a command and a board; raises as `Engine`."""
    found = _RUNNING.get((command, board))
    if found is None or not found.close.alive:
        found = _RUNNING[command, board] = Engine(command, board)
    return found
