"""Reads the flags of a page of runs: its port, and its address behind a proxy."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from typing import NamedTuple

from seedzero.config import options
from seedzero.core import errors, packages

LARGEST_PORT = 65535
_PACKAGES = ("starlette", "uvicorn")
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
