"""Addresses: "HOST:PORT" and "unix:PATH"; for clients "dns:///HOST:PORT" and "dns://DNS_SERVER/HOST:PORT" too.

A client resolves a name anew whenever it connects: each attempt has a channel of its own, and gRPC keeps no names.
"""

from __future__ import annotations

import errno
import os
import pathlib
import re
import socket
import stat
import urllib.parse

from seedzero.core import errors

UNIX_PREFIX = "unix:"
MAX_UNIX_PATH_BYTES = 107
_PROBE_SECONDS = 1.0


def target(address: str) -> str:
    """Returns gRPC's name of this address, for a client.

    Raises:
      UsageError: it has none of the forms above, or the path is too long for a socket.
    """
    named = re.fullmatch(r"dns:(//[^/]*/)?(.*)", address)
    if named is None:
        return bound_target(address)
    _check_host_and_port(named[2], address)
    return address


def bound_target(address: str) -> str:
    """Returns gRPC's name of this address, for a server.

    Raises:
      UsageError: it is neither HOST:PORT nor unix:PATH, or the path is too long for a socket.
    """
    if address.startswith(UNIX_PREFIX):
        return UNIX_PREFIX + urllib.parse.quote(str(unix_path(address)))
    _check_host_and_port(address, address)
    return address


def _check_host_and_port(text: str, address: str) -> None:
    """Raises UsageError, which names the whole address, unless `text` is HOST:PORT."""
    host, separator, port = text.rpartition(":")
    bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not separator or not host or bare_ipv6 or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise errors.UsageError(
            f"address {address!r} is neither HOST:PORT (127.0.0.1:50051, [::1]:50051) nor unix:PATH"
        )


def unix_path(address: str) -> pathlib.Path:
    """Returns the absolute path of a unix socket.

    Raises:
      UsageError: the path is empty or too long.
    """
    name = address.removeprefix(UNIX_PREFIX)
    path = pathlib.Path(name).absolute()
    if not name:
        raise errors.UsageError(f"address {address!r} has no path; write unix:PATH")
    if len(os.fsencode(path)) > MAX_UNIX_PATH_BYTES:
        raise errors.UsageError(
            f"the path of {address!r} has {len(os.fsencode(path))} bytes; a unix socket's has at most "
            f"{MAX_UNIX_PATH_BYTES}; choose a shorter one by --listen"
        )
    return path


def free_unix_path(address: str) -> None:
    """Removes the socket file of a dead server, if there is one.

    gRPC would replace any socket file, also that of a living server, which could not be reached any more.

    Raises:
      UsageError: a server lives there, the file is no socket, or its directory does not exist.
    """
    path = unix_path(address)
    if not path.parent.is_dir():
        raise errors.UsageError(f"cannot listen on {address}: there is no directory {path.parent}")
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise errors.UsageError(f"cannot listen on {address}: {path} exists and is not a socket")
    if _answers(path):
        raise errors.UsageError(f"cannot listen on {address}: another process listens there")
    path.unlink(missing_ok=True)


def _answers(path: pathlib.Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_SECONDS)
        # All but a refusal (a full backlog, say) comes from a process that holds the socket.
        return probe.connect_ex(str(path)) not in (errno.ECONNREFUSED, errno.ENOENT)
