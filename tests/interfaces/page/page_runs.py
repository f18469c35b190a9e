"""Small run directories for the tests of the page."""

from __future__ import annotations

import json
import pathlib
from typing import Any

CONFIG: dict[str, Any] = {
    "format": 2,
    "preset": "catch",
    "given": {"run.seed": "3"},
    "config": {
        "run.agent": "muzero",
        "run.max_env_steps": 1000,
        "run.max_updates": 0,
        "run.max_seconds": 0.0,
        "env.id": "catch",
        "league.freeze_every": 0,
        "league.builder": "past",
    },
}


def row(number: int, **values: Any) -> dict[str, Any]:
    """Returns row `number` of metrics: 10 updates, 20 steps and 5 seconds each."""
    return {"update": 10 * number, "env_steps": 20 * number, "seconds": 5.0 * number, **values}


def encode(*rows: dict[str, Any]) -> bytes:
    """Returns rows as lines."""
    return b"".join(json.dumps(value).encode() + b"\n" for value in rows)


def write(path: pathlib.Path, *rows: dict[str, Any], **files: Any) -> pathlib.Path:
    """Writes a run directory; files: objects by name without .json."""
    path.mkdir(parents=True, exist_ok=True)
    for name, value in {"config": CONFIG, **files}.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    (path / "metrics.jsonl").write_bytes(encode(*rows))
    return path
