"""`seedzero evaluate`: a checkpoint's greedy returns."""

from __future__ import annotations

import sys
from typing import Literal

from seedzero.cli import parse
from seedzero.core import errors


def run(arguments: parse.Arguments) -> int:
    """Plays episodes with a checkpoint and prints their statistics; returns the exit code."""
    episodes = arguments.integer("episodes", minimum=1) or 1
    seed = arguments.integer("seed", minimum=0) or 0
    step = _step(arguments)
    from seedzero.cli import output
    from seedzero.runtime import evaluate

    run_dir = arguments.flags["run_dir"]
    print(f"seedzero: evaluating {run_dir}, step {step or 'best'}, {episodes} episodes", file=sys.stderr, flush=True)
    output.print_json(evaluate.evaluate(run_dir, step, episodes, seed))
    return 0


def _step(arguments: parse.Arguments) -> Literal["best", "last"] | int | None:
    step = arguments.flags.get("step")
    if step is None:
        return None
    if step == "best":
        return "best"
    if step == "last":
        return "last"
    if not step.isdecimal():
        raise errors.UsageError(f"--step={step}: expected the number of a saved update, best or last")
    return int(step)


COMMAND = parse.Command(
    summary="Plays greedy episodes with a saved agent and prints their mean return as JSON.",
    usage="--run_dir=DIR [--step=N|best|last] --episodes=N [--seed=N]",
    flags=(
        parse.Flag("run_dir", "of the training run", "DIR", required=True),
        parse.Flag("step", "which checkpoint: an update's number, best (by evaluation while training) or last; "
                   "default: best where there is one", "N|best|last"),
        parse.Flag("episodes", "number of episodes", "N", required=True),
        parse.Flag("seed", "of the environments (default 0)", "N"),
    ),
    details="""
The last line on standard output: episodes, mean_return, std_return, min_return, max_return, mean_length, and for
Atari human_normalized (0: random play, 1: a human).""",
    run=run,
)
