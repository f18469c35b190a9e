"""Parses and checks the query of a request."""

from __future__ import annotations

from starlette import requests

from seedzero.core import errors


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
