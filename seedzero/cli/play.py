"""`seedzero play`: a video of one episode."""

from __future__ import annotations

import pathlib
import sys

from seedzero.cli import parse


def run(arguments: parse.Arguments) -> int:
    """Plays one greedy episode into a video; returns the exit code."""
    run_dir, video = arguments.flags["run_dir"], pathlib.Path(arguments.flags["video"])
    from seedzero.evaluation import video as video_lib

    video_lib.check_path(video)  # before JAX is loaded
    from seedzero.bucket import run_copy
    from seedzero.cli import output
    from seedzero.evaluation import evaluate

    print(f"seedzero: playing {run_dir} into {video}", file=sys.stderr, flush=True)
    with run_copy.local(run_dir, lambda copy: copy.fetch_params(None)) as path:
        output.print_json(evaluate.play(str(path), video))
    return 0


COMMAND = parse.Command(
    summary="Plays one greedy episode with a saved agent and writes it as a video.",
    usage="--run_dir=DIR --video=FILE.mp4|FILE.gif",
    flags=(
        parse.Flag("run_dir", "of the training run", "DIR|gs://BUCKET/PATH", required=True),
        parse.Flag("video", "file to write", "FILE.mp4|FILE.gif", required=True),
    ),
    details="",
    run=run,
)
