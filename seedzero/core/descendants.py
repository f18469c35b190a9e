"""Finds the programs that a process has started, and theirs in turn, by a mark in their environment.

A simulator that begins its own session belongs to no group of processes that could be killed, and users can seldom
make control groups. The mark is inherited. A program that shall outlive its worker is started without it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import signal
import threading
from collections.abc import Callable, Mapping

from seedzero.core import errors

MARK = "SEEDZERO_STARTED_BY"
"""The variable that holds the numbers of a program and of those that started it, separated by spaces, its own last."""
_ROUNDS = 3
"""Number of passes, because a program may start another one during the search."""


def marked(environment: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Returns an environment for a new program, and the number of that program."""
    number = secrets.token_hex(8)
    return {**environment, MARK: f"{environment.get(MARK, '')} {number}"}, number


def kill(number: str) -> None:
    """Kills the program with a number and all its descendants, except this process; without /proc it does nothing."""
    for _ in range(_ROUNDS):
        found = [pid for pid in _pids() if pid != os.getpid() and number.encode() in _environment(pid)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def kill_own() -> None:
    """Kills all descendants of this process, and the process itself if it leads a group."""
    if numbers := os.environ.get(MARK, "").split():
        kill(numbers[-1])
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def at_end_of_input(function: Callable[[], object]) -> None:
    """Calls a function on a thread once standard input is closed.

    The process that started this one holds the pipe open, so it closes when that process ends, for whatever reason.
    """

    def wait() -> None:
        # Not through sys.stdin, because a thread that waits in it makes Python's own shutdown fatal.
        while os.read(0, 4096):
            pass
        function()

    threading.Thread(target=wait, name="end-of-input", daemon=True).start()


def end_with_input() -> None:
    """Ends this process and everything it has started once standard input is closed."""

    def end() -> None:
        kill_own()
        os._exit(errors.FAILED)

    at_end_of_input(end)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _environment(pid: int) -> bytes:
    """Returns the environment that a process began with; empty for ended processes and those of other users."""
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
