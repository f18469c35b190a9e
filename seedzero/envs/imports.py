"""Imports foreign packages without their parts for drawing and acceleration."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Prevents the import of the named modules, unless already imported, while the context is entered."""
    hidden: dict[str, Any] = {name: None for name in names if name not in sys.modules}
    sys.modules.update(hidden)
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
