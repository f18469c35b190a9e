"""Checks the names of Pgx's games, without importing JAX, which their rules need.

The learner reads names before it has chosen its devices, and a worker for other environments has no JAX.
"""

from __future__ import annotations

import ast
from typing import Any

from seedzero.core import errors, user_code


def check(name: str) -> None:
    """Raises EnvironmentFailure for a name that no game has; imports neither Pgx nor a user's module."""
    parsed(name)


def module(name: str) -> str:
    """Returns the module in a user's MODULE:OBJECT, or "" for a game of Pgx."""
    return user_code.module_of(f"pgx:{name}")


def kind(name: str) -> str:
    """Returns the name of a game without its arguments and its size, such as go, or a user's MODULE:OBJECT."""
    game = parsed(name)[0]
    return "go" if game in ("go_9x9", "go_19x19") else game


def parsed(name: str) -> tuple[str, dict[str, Any]]:
    """Parses the name of a game and its arguments: GAME, or GAME(size=5, ...).

    Raises EnvironmentFailure for other forms.
    """
    if module(name):
        return name, {}
    game_name, bracket, rest = name.partition("(")
    if not bracket:
        return name, {}
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        return game_name, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, AssertionError):
        raise errors.EnvironmentFailure(f"{name!r} is not a game; expected, for example, hex or hex(size=5)") from None
