"""The output of commands: one line of JSON ends standard output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seedzero.checkpoints import run_dir


def print_json(value: Mapping[str, object] | Sequence[object]) -> None:
    """Prints one line of strict JSON, numbers that are not finite as text."""
    print(run_dir.encode(value), flush=True)
