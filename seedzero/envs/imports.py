"""Imports of foreign packages without what they only draw or accelerate with."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """While entered, these modules cannot be imported, save where they already are."""
    hidden: dict[str, Any] = {name: None for name in names if name not in sys.modules}
    sys.modules.update(hidden)
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
