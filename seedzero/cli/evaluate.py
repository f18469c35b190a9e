"""`seedzero evaluate`: a checkpoint's greedy returns. `seedzero play`: a video of one episode."""

from __future__ import annotations

import contextlib
import pathlib
from typing import Literal

from seedzero.cli import output, parse
from seedzero.core import errors

_EXHAUSTIVE = "exhaustive"


def run(arguments: parse.Arguments) -> int:
    """Plays episodes with a checkpoint and prints their statistics; returns the exit code."""
    opponent = arguments.flags.get("opponent")
    episodes = _episodes(arguments, opponent)
    seed = arguments.integer("seed", minimum=0) or 0
    step = _step(arguments)
    from seedzero.bucket import run_copy
    from seedzero.evaluation import evaluate

    run_dir = arguments.flags["run_dir"]
    amount = "every line of play" if opponent == _EXHAUSTIVE else f"{episodes} episodes"
    output.say(f"evaluating {run_dir}, {f'step {step}, ' if step else ''}{amount}")
    with contextlib.ExitStack() as copies:
        path = copies.enter_context(run_copy.local(run_dir, lambda copy: copy.fetch_params(step)))
        if opponent is not None and "://" in opponent:
            opponent = str(copies.enter_context(run_copy.local(opponent, lambda copy: copy.fetch_params("last"))))
        result = evaluate.evaluate(str(path), step, episodes, seed, opponent)
    output.say(f"evaluated the checkpoint of update {result['step']}")
    output.print_json(result)
    return 0


def _episodes(arguments: parse.Arguments, opponent: str | None) -> int:
    episodes = arguments.integer("episodes", minimum=1)
    if episodes is None and opponent != _EXHAUSTIVE:
        raise errors.UsageError("--episodes=N is missing: number of episodes")
    return episodes or 1


def _step(arguments: parse.Arguments) -> Literal["best", "last"] | int | None:
    step = arguments.flags.get("step")
    if step is None:
        return None
    named: dict[str, Literal["best", "last"]] = {"best": "best", "last": "last"}
    if step not in named and not step.isdecimal():
        raise errors.UsageError(f"--step={step}: expected the number of a saved update, best or last")
    return named.get(step) or int(step)


def play(arguments: parse.Arguments) -> int:
    """Plays one greedy episode into a video; returns the exit code."""
    run_dir, video = arguments.flags["run_dir"], pathlib.Path(arguments.flags["video"])
    from seedzero.evaluation import video as video_lib

    video_lib.check_path(video)  # before JAX is loaded
    from seedzero.bucket import run_copy
    from seedzero.evaluation import evaluate

    output.say(f"playing {run_dir} into {video}")
    with run_copy.local(run_dir, lambda copy: copy.fetch_params(None)) as path:
        result = evaluate.play(str(path), video)
    output.say(f"played the checkpoint of update {result['step']}")
    output.print_json(result)
    return 0


COMMAND = parse.Command(
    summary="Plays greedy episodes with a saved agent and prints their mean return as JSON.",
    usage="--run_dir=DIR [--step=N|best|last] --episodes=N [--seed=N] [--opponent=random|exhaustive|RUN_DIR]",
    flags=(
        parse.Flag("run_dir", "of the training run", "DIR|gs://BUCKET/PATH", required=True),
        parse.Flag(
            "step",
            "which checkpoint: an update's number, best (by evaluation while training, the first one left out) or "
            "last; default: best where there is one, last in games of two players",
            "N|best|last",
        ),
        parse.Flag("episodes", "number of episodes", "N"),
        parse.Flag("seed", "of the environments, of random moves (default 0)", "N"),
        parse.Flag(
            "opponent",
            "games of two players: random moves (the default); exhaustive: every line of play that "
            "the other side has, once, in small games; or the last checkpoint of another run of the same game",
            "random|exhaustive|RUN_DIR",
        ),
    ),
    details="""
The last line on standard output: step (the checkpoint's update), episodes, mean_return, std_return, min_return,
max_return, mean_length, and for Atari human_normalized (0: random play, 1: a human).

Games of two players add opponent, wins, draws, losses, and the same three as `first` and `second`: with the first
move and without it, which is half of --episodes each; lengths are moves of both. Two agents without noise would
always play the same game: each pair of games begins with the same 2 random moves, by --seed, and the agents change
sides. The lines of `exhaustive` are counted, not weighted.""",
    run=run,
)
PLAY = parse.Command(
    summary="Plays one greedy episode with a saved agent and writes it as a video.",
    usage="--run_dir=DIR --video=FILE.mp4|FILE.gif",
    flags=(
        parse.Flag("run_dir", "of the training run", "DIR|gs://BUCKET/PATH", required=True),
        parse.Flag("video", "file to write", "FILE.mp4|FILE.gif", required=True),
    ),
    run=play,
)
