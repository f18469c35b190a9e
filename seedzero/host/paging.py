"""The page of a run beside its training: a process of its own that starts and ends with the run, and only reads."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from seedzero.config import options
from seedzero.core import errors, packages
from seedzero.processes import program as programs

NICENESS = 19
"""Priority of the process: of the machine's cores it takes what training leaves."""
LARGEST_PORT = 65535
_PACKAGES = ("starlette", "uvicorn")
_URL = re.compile(rb"http://\S+/")


def port(name: str, text: str) -> int:
    """Returns the port in a flag's text. Raises UsageError."""
    found = int(options.parse(name, text, int))
    if not 0 <= found <= LARGEST_PORT:
        raise errors.UsageError(f"--{name}={found}: expected at {'least 0' if found < 0 else f'most {LARGEST_PORT}'}")
    return found


def check_packages(user: str) -> None:
    """Raises UsageError without the packages of the extra; user: of the extra, for the message."""
    if missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
        command = packages.install_command(*_PACKAGES)
        raise errors.UsageError(
            f"{user} needs the extra page, but {' and '.join(missing)} is not installed here: {command}"
        )


@contextlib.contextmanager
def beside(
    run_dir: pathlib.Path,
    port: int,
    *,
    say: Callable[[str], None],
    launch: Callable[[Sequence[str]], programs.Process] = programs.launch,
) -> Iterator[None]:
    """While entered, `seedzero page` shows a run; its address, or its end, is a line for the user.

    port: 0: any free one. say: takes the lines, on any thread.
    """

    def write(line: bytes) -> None:
        if found := _URL.search(line):
            say(f"the page of this run: {found[0].decode()}")

    program = programs.Program(write, programs.System(launch=launch))
    command = [sys.executable, "-m", "seedzero.cli", "page", f"--run_dir={run_dir}", f"--port={port}", "--supervised"]

    def started() -> None:
        process = program.process
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid if process else -1, NICENESS)

    def live() -> None:
        death = program.live(command, started=started)
        if death is not None and not program.stopping.is_set():
            say(f"the page of this run has ended, and training goes on without it: {death}")

    thread = threading.Thread(target=live, name="page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        program.finish()
        if (process := program.process) is not None:  # another thread may set it to None
            process.kill_group()
        thread.join()
