"""Parses and checks the query of a request."""

from __future__ import annotations

from starlette import requests

from seedzero.core import errors
from seedzero.monitoring import metrics_log


class BadQuery(errors.UsageError):
    """A value in a request makes no sense."""


def number(request: requests.Request, name: str, default: float | None = None) -> float | None:
    """Returns a finite number from a request. Raises BadQuery."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e300:
        raise BadQuery(f"{name}: expected a number")
    return value


def count(request: requests.Request, name: str, default: int, most: int, least: int = 0) -> int:
    """Returns a whole number from a request. Raises BadQuery."""
    found = number(request, name, default)
    if found is None or not least <= found <= most or found != int(found):
        raise BadQuery(f"{name}: expected {least} to {most}")
    return int(found)


def several(request: requests.Request, name: str, most: int, least: int = 0) -> list[str]:
    """Returns the values of a request, each once. Raises BadQuery."""
    found = request.query_params.getlist(name)
    if not least <= len(found) <= most:
        raise BadQuery(f"{name}: {len(found)} values; expected {least} to {most}")
    return list(dict.fromkeys(found))


def axis(request: requests.Request) -> str:
    """Returns the x of a request. Raises BadQuery."""
    x = request.query_params.get("x", "env_steps")
    if x not in metrics_log.FIRST_KEYS:
        raise BadQuery(f"x: expected one of {', '.join(metrics_log.FIRST_KEYS)}")
    return x
