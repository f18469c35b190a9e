"""Bots play games of OpenSpiel and Pgx, as opponents of evaluations and scripted members of a league.

The tree search is OpenSpiel's (UCT, random rollouts).
"""

from __future__ import annotations

import ctypes
import os
import select
import shlex
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from seedzero.core import errors, opponents, packages, user_code
from seedzero.envs import env_base

# Writes and reads moves of Go, Hex and Othello as text, by the Go Text Protocol (GTP, version 2).
COLORS = ("black", "white")
"""Black makes the first move."""
_LETTERS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"
"""Letters of Go's columns, which leave out I."""
_ALL_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LAST = {"go": "pass", "othello": "pass", "hex": "swap-pieces"}
"""Name of the action after those of the board's cells."""


class GtpBoard(NamedTuple):
    """The board of a game as GTP's commands describe it."""

    kind: str  # go, hex or othello
    size: int
    komi: float | None  # None: the game has no komi

    @property
    def _letters(self) -> str:
        return _LETTERS if self.kind == "go" else _ALL_LETTERS

    def vertex(self, action: int) -> str:
        """Returns the name of an action: A1, or pass.

        Rows count from the bottom in Go, and from the top in Hex and Othello.
        """
        row, column = divmod(action, self.size)
        return _LAST[self.kind] if row == self.size else f"{self._letters[column]}{row + 1}"

    def action(self, vertex: str) -> int:
        """Returns the action with a name in any case. Raises ValueError if this board has none."""
        if vertex.lower() == _LAST[self.kind]:
            return self.size**2
        column, row = self._letters.find(vertex[:1].upper()), vertex[1:]
        if not vertex or not 0 <= column < self.size or not row.isdecimal() or not 1 <= int(row) <= self.size:
            raise ValueError(f"{vertex!r} is not a move on this board; expected one as A1, or {_LAST[self.kind]}")
        return (int(row) - 1) * self.size + column


def gtp_color(text: str) -> int:
    """Returns the number of a color: b or black, w or white. Raises ValueError for other names."""
    found = [number for number, name in enumerate(COLORS) if text.lower() in (name, name[0])]
    if not found:
        raise ValueError(f"{text!r} is not a color; expected black or white")
    return found[0]


def gtp_board_of(game: Any) -> GtpBoard:
    """Returns the board of a game, a pyspiel.Game or `pgx_games.PgxGame`.

    Raises EnvironmentFailure for other games.
    """
    # a game of Pgx knows its kind without OpenSpiel
    kind, values = getattr(game, "kind", None) or str(game.get_type().short_name), game.get_parameters()
    if kind not in _LAST:
        raise errors.EnvironmentFailure(f"game {kind!r} has no moves in GTP; the protocol is for {', '.join(_LAST)}")
    return GtpBoard(kind, _size(values), float(values["komi"]) if kind == "go" else None)


def _size(values: Mapping[str, Any]) -> int:
    sizes: Sequence[int] = [int(values[name]) for name in ("num_rows", "num_cols", "board_size") if name in values]
    sizes = sizes[:2] or [8]
    if len(set(sizes)) > 1:
        raise errors.EnvironmentFailure(
            f"a board of {sizes[0]}x{sizes[1]} has no size in GTP: boards are square there"
        )
    return sizes[0]


# Plays against other programs that speak the Go Text Protocol (GTP, version 2): Go, Hex and Othello.
ANSWER_SECONDS = 60.0
"""Longest wait for an answer."""
_MOST_BYTES = 65_536
"""Longest answer."""


class Engine:
    """A process that speaks GTP and plays on one board."""

    def __init__(self, command: str, board: GtpBoard, *, answer_seconds: float = ANSWER_SECONDS) -> None:
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
        vertex = self.ask(f"genmove {COLORS[len(self._moves) % 2]}").strip()
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
            self.ask(f"play {COLORS[len(self._moves) % 2]} {self._board.vertex(action)}")
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


_RUNNING: dict[tuple[str, GtpBoard], Engine] = {}
"""Most engines at a time, as many as the settings may name opponents."""


def engine(command: str, board: GtpBoard) -> Engine:
    """Returns this process's engine for a command and a board; raises as `Engine`."""
    found = _RUNNING.get((command, board))
    if found is None or not found.close.alive:
        found = _RUNNING[command, board] = Engine(command, board)
    return found


Bot: TypeAlias = Callable[[Any], int]
"""Takes a pyspiel.State or `pgx_games.State` that is not terminal, and returns a legal action."""

Function: TypeAlias = Callable[[Any, int, np.random.Generator], Any]
"""A user's bot: takes a state as `Bot` does, its player and a generator, and returns that player's legal action."""

_EXPLORATION = 2.0
_MEMORY = 64
"""The most megabytes of a tree."""
_MOST_THROWS = 1000
"""Those of the bots' tournament; with memory for fewer, some bots write beyond it."""
_PLAYS_ROSHAMBO = (
    f"plays only repeated rock-paper-scissors, of up to {_MOST_THROWS} throws, such as "
    "spiel:repeated_game(stage_game=matrix_rps(),num_repetitions=1000,recall=20)"
)
_MEMBER = 9
"""Second number of the random keys of a league's bots."""


def random_move(state: Any, generator: np.random.Generator) -> int:
    """Returns a legal action, all with the same probability."""
    legal = state.legal_actions()
    return int(legal[generator.integers(len(legal))])


def make(name: str, generator: np.random.Generator) -> Bot:
    """Returns an opponent by its name, as in `opponents.parse`; equal numbers of the generator make equal moves."""
    num_simulations = opponents.num_simulations(name)
    if command := opponents.command(name):
        return lambda state: engine(command, gtp_board_of(state.get_game())).move(state)
    if opponents.roshambo_bot(name):
        raise errors.EnvironmentFailure(f"opponent {name} {_PLAYS_ROSHAMBO}")
    if not num_simulations:
        return lambda state: random_move(state, generator)
    pyspiel = _pyspiel(name)

    def move(state: Any) -> int:
        seed, game = int(generator.integers(2**31)), state.get_game()
        if type(game).__module__.partition(".")[0] != "pyspiel":  # a game in Python, or of Pgx: no bot in C++ plays it
            return int(_in_python(game, num_simulations, seed).step(state))
        rollouts = pyspiel.RandomRolloutEvaluator(1, seed)
        bot = pyspiel.MCTSBot(game, rollouts, _EXPLORATION, num_simulations, _MEMORY, True, seed, False)
        return int(bot.step(state))

    return move


def _pyspiel(name: str) -> Any:
    """Returns OpenSpiel's module for a bot. Raises EnvironmentFailure if the package is missing."""
    try:
        import pyspiel  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise errors.EnvironmentFailure(
            f"opponent {name} is a bot of the missing package open_spiel ({error}); install it on this machine: "
            f"{packages.install_command('open_spiel')}"
        ) from error
    return pyspiel


class Members:
    """The bots of a league in one game. Each is made for a match, and draws by the game's seed and the match."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.begin(0)

    def begin(self, number: int) -> None:
        """Begins the game's match with a number."""
        self._number, self._bots = number, dict[tuple[str, int], Bot]()

    def move(self, name: str, state: Any, player: int) -> int:
        """Returns a bot's legal action for a player of a state, as in `Bot`.

        Raises EnvironmentFailure if it has none.
        """
        with env_base.failures_of(f"bot {name!r} of the league raised"):
            if (name, player) not in self._bots:
                generator = np.random.default_rng([self._seed, _MEMBER, self._number])
                self._bots[name, player] = _member(name, state.get_game(), player, generator)
            action = self._bots[name, player](state)
        legal = state.legal_actions(player)
        if isinstance(action, bool) or not isinstance(action, (int, np.integer)) or action not in legal:
            raise errors.EnvironmentFailure(
                f"bot {name!r} of the league chose {repr(action)[:100]}; expected a legal action, one of {legal}"
            )
        return int(action)


def check_members(names: Sequence[str]) -> None:
    """Imports the modules of a league's bots. Raises EnvironmentFailure if one cannot be imported here."""
    for name in filter(opponents.is_of_user, names):
        try:
            user_code.load(name)
        except errors.ConfigError as error:
            raise errors.EnvironmentFailure(f"bot of the league: {error}") from None


def check_installed(name: str) -> None:
    """Raises EnvironmentFailure if the package of a league's bot is missing here."""
    if not opponents.is_of_user(name):
        _pyspiel(name)


def check_plays(name: str, game: Any) -> None:
    """Raises EnvironmentFailure if a bot of OpenSpiel's does not play a pyspiel.Game, or a `PgxGame`."""
    pyspiel, kind = _pyspiel(name), game.get_type()
    if opponents.roshambo_bot(name):
        given = game.get_parameters() if kind.short_name == opponents.REPEATED else {}
        if not given or given["stage_game"]["name"] != "matrix_rps" or given["num_repetitions"] > _MOST_THROWS:
            raise errors.EnvironmentFailure(f"bot {name!r} {_PLAYS_ROSHAMBO}; this game is {game}")
    elif name.startswith(opponents.SPIEL):
        short = name.removeprefix(opponents.SPIEL).partition("(")[0]
        able = pyspiel.bots_that_can_play_game(game, 0)
        if short not in able:
            raise errors.EnvironmentFailure(
                f"bot {name!r} of the league: OpenSpiel has no bot {short!r} for game {kind.short_name!r}; it has "
                f"{', '.join(able)}; one of your own is MODULE:FUNCTION"
            )
    elif opponents.num_simulations(name):
        is_open = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
        if not is_open or kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
            raise errors.EnvironmentFailure(
                f"bot {name!r} of the league: the tree search plays games of perfect information in turn, and game "
                f"{kind.short_name!r} is not one; give {opponents.RANDOM}, or a bot of your own as MODULE:FUNCTION"
            )


def _member(name: str, game: Any, player: int, generator: np.random.Generator) -> Bot:
    """Returns a league's bot for a player of a game."""
    if opponents.is_of_user(name):
        function: Function = user_code.load(name)
        return lambda state: function(state.clone(), player, generator)
    if bot := opponents.roshambo_bot(name):
        check_plays(name, game)
        return _roshambo(bot, player, generator)
    if not name.startswith(opponents.SPIEL):
        check_plays(name, game)
        return make(name, generator)
    import pyspiel

    text = name.removeprefix(opponents.SPIEL)
    given = {key: value for key, value in pyspiel.game_parameters_from_string(text).items() if key != "name"}
    seed = int(generator.integers(2**31))  # bots without chance ignore it
    made: Any = pyspiel.load_bot(text.partition("(")[0], game, player, {"seed": seed, **given})
    return lambda state: made.step(state)


def _roshambo(name: str, player: int, generator: np.random.Generator) -> Bot:
    """Returns a bot for one match of repeated rock-paper-scissors, which it follows from the first throw on.

    All bots of a process draw from the C library's one generator, so it gets a seed of the match before each move.
    """
    import pyspiel

    bot: Any = pyspiel.make_roshambo_bot(player, name, _MOST_THROWS)
    library = ctypes.CDLL(None)

    def move(state: Any) -> int:
        library.srandom(int(generator.integers(2**31)))
        return int(bot.step(state))

    return move


def _in_python(game: Any, num_simulations: int, seed: int) -> Any:
    """Returns OpenSpiel's bot in Python."""
    from open_spiel.python.algorithms import mcts  # type: ignore[import-untyped, unused-ignore]

    random = np.random.RandomState(seed)
    own = getattr(game, "rollouts", None)
    rollouts = mcts.RandomRolloutEvaluator(1, random) if own is None else own(random)
    return mcts.MCTSBot(game, _EXPLORATION, num_simulations, rollouts, random_state=random)
