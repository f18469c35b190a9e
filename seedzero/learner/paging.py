"""Shows the page of a run while it trains, in a separate process that starts and ends with the run and only reads."""

from __future__ import annotations

import contextlib
import pathlib
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from seedzero.config import page_options
from seedzero.processes import programs

_URL = re.compile(rb"http://\S+/")


@contextlib.contextmanager
def beside(
    run_dir: pathlib.Path,
    place: page_options.PagePlace,
    *,
    say: Callable[[str], None],
    launch: Callable[[Sequence[str]], programs.Process] = programs.launch,
) -> Iterator[None]:
    """Shows a run by `seedzero page` while entered, and reports its address, or how it ended.

    say: takes the messages, on any thread.
    """

    def write(line: bytes) -> None:
        if found := _URL.search(line):
            say(f"the page of this run: {found[0].decode()}")

    program = programs.Program(write, programs.System(launch=launch))
    command = [sys.executable, "-m", "seedzero.cli", "page", f"--run_dir={run_dir}", f"--port={place.port}"]
    command += [f"--page.root={place.root}"] if place.root else []
    command += ["--supervised"]

    def live() -> None:
        death = program.live(command, niceness=programs.IDLE)
        if death is not None and not program.stopping.is_set():
            say(f"the page of this run has ended, and training continues without it: {death}")

    thread = threading.Thread(target=live, name="page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        program.finish()
        program.kill()
        thread.join()
