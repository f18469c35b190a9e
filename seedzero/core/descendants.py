"""Programs that a process has started, and theirs, in whatever session they are: by a mark in their environment.

A simulator that begins a session of its own is in no group of processes that could be killed, and control groups are
seldom a user's to make. The mark is inherited; a program that shall outlive its worker is started without it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import signal
import threading
from collections.abc import Callable, Mapping

from seedzero.core import exit_codes

MARK = "SEEDZERO_STARTED_BY"
"""The variable with the numbers of a program and of those that started it, with spaces, its own last."""
_ROUNDS = 3
"""A program may start another one while it is looked for."""


def marked(environment: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Returns an environment for a new program, and the program's number."""
    number = secrets.token_hex(8)
    return {**environment, MARK: f"{environment.get(MARK, '')} {number}"}, number


def kill(number: str) -> None:
    """Kills the program of a number with all its descendants, but not this process; without /proc nothing."""
    for _ in range(_ROUNDS):
        found = [pid for pid in _pids() if pid != os.getpid() and number.encode() in _environment(pid)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def kill_own() -> None:
    """Kills all descendants of this process, and itself if it leads a group."""
    if numbers := os.environ.get(MARK, "").split():
        kill(numbers[-1])
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def at_end_of_input(function: Callable[[], object]) -> None:
    """Calls a function, on a thread, once standard input is closed.

    Whoever has started this process holds that pipe open: it closes when that ends, however it happens.
    """

    def wait() -> None:
        # Not through sys.stdin: a thread that waits in it makes Python's own end fatal.
        while os.read(0, 4096):
            pass
        function()

    threading.Thread(target=wait, name="end-of-input", daemon=True).start()


def end_with_input() -> None:
    """Ends this process, and all that it has started, once standard input is closed."""

    def end() -> None:
        kill_own()
        os._exit(exit_codes.FAILED)

    at_end_of_input(end)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _environment(pid: int) -> bytes:
    """Returns the environment that a process began with; empty of other users' and ended processes."""
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
