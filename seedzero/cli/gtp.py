"""`seedzero gtp`: lets programs with a board play a saved player."""

from __future__ import annotations

import os
import sys

from seedzero.api import runs
from seedzero.cli import evaluate, output, parse
from seedzero.core import errors


def run(arguments: parse.Arguments) -> int:
    """Answers GTP's commands on standard input; returns the exit code.

    Standard output has the answers alone: whatever else prints goes to standard error meanwhile.
    """
    choice = evaluate.read_choice(arguments)
    answers = open(os.dup(1), "w", buffering=1, encoding="utf-8")  # noqa: SIM115
    with answers as out, runs.opened(choice) as here, output.others_aside():
        from seedzero.acting.tables import gtp, scoring  # JAX
        from seedzero.envs import bots

        game, player = scoring.engine(here)
        try:
            board = bots.gtp_board_of(game.initial().get_game())
        except errors.EnvironmentFailure as error:
            raise errors.UsageError(f"{arguments.flags['run_dir']}: {error}") from None
        player([game.initial()])  # compiles, before a program's clock runs
        output.say(f"{arguments.flags['run_dir']} plays {game.name}")
        gtp.serve(gtp.GtpSession(game, board, player), sys.stdin, out.write)
    return 0


COMMAND = parse.Command(
    summary="Makes a saved player an engine for programs with a board of Go, Hex or Othello (GTP).",
    usage="--run_dir=DIR [--step=N|best|last] [--simulations=N]",
    flags={
        **parse.RUN_DIR,
        **{name: text for name, text in evaluate.CHECKPOINT.items() if not name.startswith("player")},
        "player=NAME": "a player of the run's league, and not its main one; `seedzero league show` lists them",
        **evaluate.SIMULATIONS,
        "seed=N": "of drawn actions (default 0)",
        **dict.fromkeys(parse.TRUST, "run the code that the run directory names, of makers that you trust"),
    },
    required=("run_dir",),
    details="""
Speaks the Go Text Protocol, version 2, on standard input and output, as GoGui and Sabaki do; give them this command as
an engine. Board and komi are those that the player has learned with; others are answered with an error. Colors take
turns. docs/serving.md has the commands, and engines as opponents.""",
    run=run,
)
