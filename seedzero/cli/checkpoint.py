"""`seedzero checkpoint`: the checkpoints of a run, and whether they are intact."""

from __future__ import annotations

import sys

from seedzero.cli import output, parse
from seedzero.core import errors


def run(arguments: parse.Arguments) -> int:
    """Lists or verifies the checkpoints of a run; returns the exit code, 1 where one is damaged."""
    from seedzero.bucket import run_copy

    path = arguments.flags["run_dir"]
    rows = run_copy.checkpoint_rows(path, content=arguments.words[0] == "verify")
    for row in rows:
        print("  ".join(f"{key}={value}" for key, value in row.items() if value is not None), file=sys.stderr)
    output.print_json(rows)
    damaged = [row for row in rows if not row["ok"]]
    if damaged:
        raise errors.CheckpointError(f"{len(damaged)} of {len(rows)} checkpoints in {path} are damaged; see above")
    return 0


COMMAND = parse.Command(
    summary="Lists the checkpoints of a run, or verifies every byte of them.",
    usage="list|verify --run_dir=DIR",
    words=(("list", "verify"),),
    flags=(parse.Flag("run_dir", "of the training run", "DIR|gs://BUCKET/PATH", required=True),),
    details="""
The last line on standard output is a JSON list, a row a checkpoint. verify ends with 1 where one is damaged; a
resume takes the newest that is whole.""",
    run=run,
)
