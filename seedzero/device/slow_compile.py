"""Hides XLA's alarm about a slow compilation from the user.

Two minutes into a compilation, and again when it ends, XLA logs an error, "Very slow compile? If you want to file a
bug ...". It cannot be turned off; only the level of XLA's whole log can be set. So that log's errors are hidden from
shortly before the alarm until the compilation ends. If it fails, it raises an exception anyway.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import jax
from jaxlib import utils

from seedzero.device import patience

HIDE_SECONDS = 100.0
"""After this time in one compilation, errors in XLA's log are hidden; the alarm comes after 120 s."""
LEVEL = "TF_CPP_MIN_LOG_LEVEL"
USUAL_LEVEL = "1"
"""The level that JAX sets if the user sets none: warnings and errors are logged."""
_ERRORS_HIDDEN = 3

_lock = threading.Lock()
_num_hiding = 0


@contextlib.contextmanager
def without_alarm(hide_seconds: float = HIDE_SECONDS) -> Iterator[None]:
    """Any thread: hides the alarm around a compilation. A level that the user has set is not changed."""
    if os.environ.get(LEVEL) != USUAL_LEVEL or getattr(jax.config, "jax_logging_level", None) not in (None, "NOTSET"):
        yield
        return

    def hide(over: threading.Event) -> None:
        if not over.wait(hide_seconds):
            _add(1)
            over.wait()
            _add(-1)

    with patience.beside("compile-log", hide):
        yield


def _add(number: int) -> None:
    """Counts the threads that hide errors in XLA's log, which stay hidden while there is one."""
    global _num_hiding
    with _lock:
        _num_hiding += number
        _set_level(_ERRORS_HIDDEN if _num_hiding else int(USUAL_LEVEL))


def _set_level(level: int) -> None:
    utils.absl_set_min_log_level(level)
