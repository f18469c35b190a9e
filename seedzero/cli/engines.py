"""`seedzero gtp` and `seedzero uci`: let programs with a board play a saved player."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from seedzero.api import runs
from seedzero.cli import evaluate, output, parse
from seedzero.core import errors

if TYPE_CHECKING:
    from seedzero.envs import turn_games
    from seedzero.evaluation import match


def run_gtp(arguments: parse.Arguments) -> int:
    """Answers GTP's commands on standard input; returns the exit code."""
    with _playing(arguments) as (game, player, out):
        from seedzero.envs import gtp_boards
        from seedzero.evaluation import gtp

        try:
            board = gtp_boards.of(game.initial().get_game())
        except errors.EnvironmentFailure as error:
            raise errors.UsageError(f"{arguments.flags['run_dir']}: {error}") from None
        gtp.serve(gtp.GtpSession(game, board, player), sys.stdin, out.write)
    return 0


def run_uci(arguments: parse.Arguments) -> int:
    """Answers UCI's commands on standard input; returns the exit code."""
    with _playing(arguments) as (game, player, out):
        from seedzero.evaluation import uci

        if game.name.partition("(")[0] != "chess":
            raise errors.UsageError(
                f"{arguments.flags['run_dir']}: game {game.name!r} is no chess, for which UCI is; `seedzero gtp` is "
                "for Go, Hex and Othello"
            )
        is_of_pgx = not game.initial().get_game().__class__.__module__.startswith("pyspiel")
        uci.serve(uci.UciSession(game, player, is_of_pgx=is_of_pgx), sys.stdin, out.write)
    return 0


@contextlib.contextmanager
def _playing(arguments: parse.Arguments) -> Iterator[tuple[turn_games.TurnGame, match.Player, TextIO]]:
    """Yields the game, the compiled player, and standard output, on which nothing else prints meanwhile."""
    choice = evaluate.read_choice(arguments)
    answers = open(os.dup(1), "w", buffering=1, encoding="utf-8")  # noqa: SIM115
    with answers as out, runs.opened(choice) as here, output.others_aside():
        from seedzero.evaluation import scoring  # JAX

        game, player = scoring.engine(here)
        player([game.initial()])  # compiles, before a program's clock runs
        output.say(f"{arguments.flags['run_dir']} plays {game.name}")
        yield game, player, out


_FLAGS = {
    **parse.RUN_DIR,
    **{name: text for name, text in evaluate.CHECKPOINT.items() if not name.startswith("player")},
    "player=NAME": "a player of the run's league, and not its main one; `seedzero league show` lists them",
    **evaluate.SIMULATIONS,
    "seed=N": "of drawn actions (default 0)",
    **dict.fromkeys(parse.TRUST, "run the code that the run directory names, of makers that you trust"),
}
GTP = parse.Command(
    summary="Makes a saved player an engine for programs with a board of Go, Hex or Othello (GTP).",
    usage="--run_dir=DIR [--step=N|best|last] [--simulations=N]",
    flags=_FLAGS,
    required=("run_dir",),
    details="""
Speaks the Go Text Protocol, version 2, on standard input and output, as GoGui and Sabaki do; give them this command as
an engine. Board and komi are those that the player has learned with; others are answered with an error. Colors take
turns. docs/engines.md has the commands, and engines as opponents.""",
    run=run_gtp,
)
UCI = parse.Command(
    summary="Makes a saved player an engine for chess programs (UCI).",
    usage="--run_dir=DIR [--step=N|best|last] [--simulations=N]",
    flags=_FLAGS,
    required=("run_dir",),
    details="""
Speaks UCI on standard input and output. A move takes the player's simulations, whatever time `go` allows. Moves are
named by OpenSpiel (open_spiel), for runs with --env=pgx:chess, too; these take positions by startpos alone.""",
    run=run_uci,
)
