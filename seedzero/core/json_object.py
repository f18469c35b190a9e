"""Reads JSON objects from files and other machines, and writes all numbers as strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

_LARGE = 1e300


def parse(content: str | bytes) -> dict[str, Any]:
    """Returns the object in a JSON text. Raises ValueError if there is none, or if it is nested too deeply."""
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"it holds {'null' if value is None else type(value).__name__}; expected a JSON object")
    return value


def number(value: object, digits: int = 0) -> float | None:
    """Returns a number that JSON and browsers can express, else None; files and networks may hold anything.

    digits: significant digits of a number that is not whole; 0 keeps all.
    """
    if not isinstance(value, (int, float)) or not abs(value) < _LARGE:
        return None
    return float(f"{value:.{digits}g}") if digits and isinstance(value, float) else value


def encode(value: object, *, indent: int | None = None) -> str:
    """Returns strict JSON; infinities and NaN become "inf", "-inf" and "nan", which float() parses."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except (ValueError, TypeError):  # not finite, or a number of numpy's
        return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
