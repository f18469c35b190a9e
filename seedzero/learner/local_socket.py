"""Opens a unix socket between a learner and its user's processes on the same machine."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import stat
import tempfile
from collections.abc import Iterator

from seedzero.transport import addresses

_MAX_PATH = 100
"""Paths of unix sockets are limited to about 108 bytes."""


@contextlib.contextmanager
def opened(directory: pathlib.Path, listen: str) -> Iterator[str]:
    """Yields the unix socket of local workers and of `seedzero status --run_dir`.

    It needs neither token nor TLS, because only this user can open its file, and so only the learner knows the token.
    It is in the run directory; if that path is too long or has a comma, or its disk has no sockets, it is in a folder
    that is deleted in the end.
    """
    path = directory.absolute() / "learner.sock"
    if listen.startswith(addresses.UNIX_PREFIX):
        yield f"{addresses.UNIX_PREFIX}{addresses.unix_path(listen)}"
    elif len(os.fsencode(path)) <= _MAX_PATH and "," not in str(path) and _takes_sockets(path.with_name("probe.sock")):
        yield f"{addresses.UNIX_PREFIX}{path}"
    else:
        with tempfile.TemporaryDirectory(prefix="seedzero-") as folder:
            yield f"{addresses.UNIX_PREFIX}{folder}/{path.name}"


def _takes_sockets(path: pathlib.Path) -> bool:
    """Returns whether a unix socket can be made at a path.

    Some network disks and user-space file systems have none.
    """
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()  # left by a killed process
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
        path.unlink()
    except OSError:
        return False
    return True
