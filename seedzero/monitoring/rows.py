"""Rows of a run's files, metrics.jsonl and league.jsonl: JSON objects, one on each line."""

from __future__ import annotations

from typing import Any

import orjson

from seedzero.core import json_object


def parse(line: bytes) -> dict[str, Any]:
    """Returns the row in a line. Raises ValueError if it holds none, or objects nested too deeply."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:  # NaN, Infinity, and integers of hundreds of digits, too
        return json_object.parse(line)
    return row if isinstance(row, dict) else json_object.parse(line)
