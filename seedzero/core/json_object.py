"""JSON objects from files and other machines."""

from __future__ import annotations

import json
from typing import Any


def parse(content: str | bytes) -> dict[str, Any]:
    """Returns the object in a JSON text. Raises ValueError if it is none, or nested too deeply."""
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"it holds {'null' if value is None else type(value).__name__}; expected a JSON object")
    return value
