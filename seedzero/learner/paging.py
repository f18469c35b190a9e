"""Shows the page of a run while it trains, in a separate process that starts and ends with the run and only reads."""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from seedzero.config import options
from seedzero.core import errors, packages
from seedzero.processes import programs

LARGEST_PORT = 65535
_PACKAGES = ("starlette", "uvicorn")
_URL = re.compile(rb"http://\S+/")
_ROOT = re.compile(r"(https?://(?P<name>[\w.-]+)(:\d+)?)?(?P<path>(/[\w.~%@+:-]+)*)/?", re.ASCII)


class Proxy(NamedTuple):
    """A proxy between browsers and the page: its name, or "" for the page's own, and the page's path there."""

    name: str = ""
    path: str = ""


class PagePlace(NamedTuple):
    """Port and root of a training's page. port: 0 takes any free one. root: that of --page.root."""

    port: int
    root: str = ""


def place(flags: Mapping[str, str]) -> PagePlace | None:
    """Returns the place in a training's flags `page` and `page.root`, or None without a page. Raises UsageError."""
    root = flags.get("page.root", "")
    if "page" not in flags:
        if root:
            raise errors.UsageError(
                f"--page.root={root} is the path of a page, but no page is asked for: give --page=PORT, too"
            )
        return None
    check_packages("--page")
    proxy(root)
    return PagePlace(port("page", flags["page"]), root)


def proxy(root: str) -> Proxy:
    """Returns the proxy of --page.root, or "". Raises UsageError."""
    found = _ROOT.fullmatch(root)
    if root and not (found and any(found.group("name", "path"))):
        raise errors.UsageError(
            f"--page.root={root}: expected the page's path behind a proxy, as /proxy/8000, or its whole address, as "
            "https://NAME/proxy/8000"
        )
    return Proxy(found["name"] or "", found["path"]) if found else Proxy()


def port(name: str, text: str) -> int:
    """Returns the port in a flag's text. Raises UsageError."""
    found = int(options.parse(name, text, int))
    if not 0 <= found <= LARGEST_PORT:
        raise errors.UsageError(f"--{name}={found}: expected at {'least 0' if found < 0 else f'most {LARGEST_PORT}'}")
    return found


def check_packages(user: str) -> None:
    """Raises UsageError without the packages of the extra. user: who needs it, for the message."""
    if missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
        command, verb = packages.install_command(*_PACKAGES), "is" if len(missing) == 1 else "are"
        raise errors.UsageError(
            f"{user} needs the extra page, but {' and '.join(missing)} {verb} not installed here: {command}"
        )


@contextlib.contextmanager
def beside(
    run_dir: pathlib.Path,
    place: PagePlace,
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
