"""Flax that compares the shape of each parameter with its initializer's once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

compared: set[tuple[Any, str, tuple[int, ...]]] = set()
"""Initializers, their arguments, and the shapes of parameters that Flax has found to be theirs."""


def compare_once() -> None:
    """Has Flax trace an initializer once for a shape, not each time that a network reads a parameter.

    That is a twelfth of the time of tracing and lowering an update. A parameter of another shape is refused as before.
    """
    from flax.core import scope  # which takes half a second to import

    param = scope.Scope.param

    @functools.wraps(param)
    def find(self: scope.Scope, name: str, init_fn: Any, *init_args: Any, **options: Any) -> Any:
        if not self.has_variable("params", name):
            return param(self, name, init_fn, *init_args, **options)
        found = self.get_variable("params", name)
        seen = (init_fn, str((init_args, options)), np.shape(found))
        if seen in compared:
            self.reserve(name, "params")
            return found
        found = param(self, name, init_fn, *init_args, **options)
        compared.add(seen)
        return found

    scope.Scope.param = find  # type: ignore[method-assign]
