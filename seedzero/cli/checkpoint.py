"""`seedzero checkpoint`: lists or verifies the checkpoints of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seedzero.cli import output, parse
from seedzero.core import errors, printable


def run(arguments: parse.Arguments) -> int:
    """Lists or verifies the checkpoints of a run; returns the exit code, which is 1 for a damaged one."""
    as_json = arguments.switch("json")
    from seedzero.storage.bucket import run_copy

    path, verifies = arguments.flags["run_dir"], arguments.words[0] == "verify"
    rows = run_copy.checkpoint_rows(path, content=verifies)
    if as_json:
        output.print_json(rows)
    elif not rows:
        output.say(f"{path} has no checkpoint yet")
    else:
        print("\n".join(map(printable.escape, table(rows, time.time(), verified=verifies))), flush=True)
    damaged = [row for row in rows if not row["ok"]]
    if damaged:
        raise errors.CheckpointError(
            f"{len(damaged)} of {len(rows)} checkpoints in {path} are damaged (see above); a resume takes the newest "
            "that is whole"
        )
    return 0


def table(rows: Sequence[Mapping[str, Any]], now: float, *, verified: bool) -> Iterator[str]:
    """Yields the lines of a table of checkpoints. now: seconds since the epoch."""
    cells = [("update", "written", "size", "replay", "state"), *(_cells(row, now, verified=verified) for row in rows)]
    *widths, _ = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for update, *others, state in cells:
        columns = [f"{update:>{widths[0]}}", *(f"{text:<{n}}" for text, n in zip(others, widths[1:], strict=True))]
        yield "  ".join([*columns, state])


def _cells(row: Mapping[str, Any], now: float, *, verified: bool) -> tuple[str, ...]:
    if not row["ok"]:
        state = f"damaged: {row['reason']}"
    else:
        state = "every byte is right" if verified else "complete"
        state += ", best by evaluation" if row["best"] else ", kept for good" if row["kept_for_good"] else ""
    replay = {None: "-", True: "saved", False: "-"}[row["has_replay"]]
    return (
        str(row["step"]),
        "-" if row["time"] is None else age(max(0.0, now - row["time"])),
        "-" if row["bytes"] is None else size(row["bytes"]),
        replay,
        state,
    )


def size(num_bytes: float) -> str:
    """Returns a size in powers of ten: 999 B, 12.3 kB, 1.2 GB."""
    for unit in ("B", "kB", "MB"):
        if num_bytes < 999.5:
            return f"{num_bytes:.{0 if unit == 'B' else 1}f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.1f} GB"


def age(seconds: float) -> str:
    """Returns the time since something happened: 12 s ago, 3 min ago, 5 h ago, 2 days ago."""
    units = (("days", 86400, 48 * 3600), ("h", 3600, 3600), ("min", 60, 60), ("s", 1, 0))
    name, unit_seconds, _ = next(unit for unit in units if seconds >= unit[2])
    return f"{int(seconds / unit_seconds)} {name} ago"


COMMAND = parse.Command(
    summary="Lists the checkpoints of a run, or verifies every byte of them.",
    usage="list|verify --run_dir=DIR [--json]",
    words=(("list", "verify"),),
    flags={
        **parse.RUN_DIR,
        "json": "print one line of JSON instead of the table: sizes in bytes, times since the epoch",
    },
    required=("run_dir",),
    details="""
One row for each checkpoint, oldest first, the best one by evaluation last. verify ends with 1 if one is damaged; a
resume takes the newest undamaged one. The JSON is a list of step, best, ok, reason, bytes, time, has_replay and
kept_for_good.""",
    run=run,
)
