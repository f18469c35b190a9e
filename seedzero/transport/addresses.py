"""Reads addresses: "HOST:PORT" and "unix:PATH", for clients also "dns:///HOST:PORT" and "dns://DNS_SERVER/HOST:PORT".

A worker takes several, "A,B", which are the hosts of one run.

A client resolves a name again whenever it connects, because each attempt has its own channel and gRPC keeps no names.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import pathlib
import re
import socket
import stat
import urllib.parse
from collections.abc import Mapping

from seedzero.core import errors

UNIX_PREFIX = "unix:"
MAX_UNIX_PATH_BYTES = 107
_PROBE_SECONDS = 1.0


def listed(text: str) -> tuple[str, ...]:
    """Returns the addresses in "A,B".

    Raises UsageError for empty or repeated entries, or unix sockets among several.
    """
    if "," not in text:
        return (text,)
    entries, expected = tuple(text.split(",")), "expected HOST:PORT,HOST:PORT or unix:PATH,unix:PATH"
    if len({entry.startswith(UNIX_PREFIX) for entry in entries if entry}) == 2:
        raise errors.UsageError(
            f"the list of addresses {text!r} has unix sockets and others; {expected}, and no path with a comma"
        )
    targets: dict[str, str] = {}
    for place, entry in enumerate(entries, start=1):
        if not entry or entry != entry.strip():
            fault = "has spaces around it" if entry.strip() else "is empty"
            raise errors.UsageError(f"entry {place} of the list of addresses {text!r} {fault}; {expected}")
        if first := targets.get(key := target(entry)):
            raise errors.UsageError(
                f"the list of addresses {text!r} has {first!r} and {entry!r}, the same host; give each host once"
            )
        targets[key] = entry
    return entries


def target(address: str) -> str:
    """Returns gRPC's name of a client's address. Raises UsageError for an address in none of the forms above."""
    if named := re.fullmatch(r"dns:(?://[^/]*/)?(.*)", address):
        _check_host_and_port(named[1], address)
        return address
    return bound_target(address)


def bound_target(address: str) -> str:
    """Returns gRPC's name of a server's address. Raises UsageError unless it is HOST:PORT or unix:PATH."""
    if address.startswith(UNIX_PREFIX):
        return UNIX_PREFIX + urllib.parse.quote(str(unix_path(address)))
    _check_host_and_port(address, address)
    return address


def _check_host_and_port(text: str, address: str) -> None:
    """Raises UsageError, naming the whole address, unless `text` is HOST:PORT."""
    found = re.fullmatch(r"(?:\[.*\]|[^:]+):([0-9]+)", text, re.DOTALL)
    if found is None or int(found[1]) > 65535:
        forms = "neither HOST:PORT (127.0.0.1:50051, [::1]:50051) nor unix:PATH"
        raise errors.UsageError(f"address {address!r} is {forms}")


def unix_path(address: str) -> pathlib.Path:
    """Returns the absolute path of a unix socket. Raises UsageError if it is empty or too long."""
    name = address.removeprefix(UNIX_PREFIX)
    if not name:
        raise errors.UsageError(f"address {address!r} has no path; write unix:PATH")
    path = pathlib.Path(name).absolute()
    if (size := len(os.fsencode(path))) > MAX_UNIX_PATH_BYTES:
        excess = f"{size} bytes; a unix socket's has at most {MAX_UNIX_PATH_BYTES}"
        raise errors.UsageError(f"the path of {address!r} has {excess}; choose a shorter one by --listen")
    if "," in str(path):
        raise errors.UsageError(
            f"the path of {address!r} has a comma, where gRPC begins another address; choose one without by --listen"
        )
    return path


def free_unix_path(address: str) -> None:
    """Removes a dead server's socket file, if present.

    gRPC would replace any socket file, even that of a living server, which nobody could then reach. Raises UsageError
    in that case, and if the file is not a socket or its directory does not exist.
    """
    path = unix_path(address)
    if not path.parent.is_dir():
        raise errors.UsageError(f"cannot listen on {address}: there is no directory {path.parent}")
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise errors.UsageError(f"cannot listen on {address}: {path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_SECONDS)
        # Anything but a refusal, such as a full backlog, comes from a process that holds the socket.
        if probe.connect_ex(str(path)) not in (errno.ECONNREFUSED, errno.ENOENT):
            raise errors.UsageError(f"cannot listen on {address}: another process listens there")
    path.unlink(missing_ok=True)


_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
"""gRPC's variables; of both kinds, the first one that is set counts, even if it is empty."""


def proxy_remark(address: str, variables: Mapping[str, str] = os.environ) -> str:
    """Ends a message about a call that failed with the proxy in between and how to avoid it; "" without a proxy.

    The proxy's user name and password are omitted.
    """
    name = next((name for name in _VARIABLES if name in variables), "")
    if address.startswith(UNIX_PREFIX) or not name:
        return ""
    try:
        found = urllib.parse.urlsplit(variables[name])
        port = f":{found.port}" if found.port else ""
    except ValueError:  # gRPC cannot read it either
        return ""
    host = address.rpartition("/")[2].rpartition(":")[0].strip("[]")
    excluding = next((name for name in _EXCEPTIONS if name in variables), "no_proxy")
    excluded = variables.get(excluding, "")
    if found.scheme != "http" or _is_excluded(host, excluded):
        return ""
    others = f"{excluded}," if excluded else ""
    return (
        f"; the variable {name}=http://{found.hostname}{port} sends this through a proxy: where the learner is "
        f"reached without it, set {excluding}={others}{host}"
    )


def _is_excluded(host: str, excluded: str) -> bool:
    """Returns whether a host is in a list of networks, names and domains, as gRPC reads the list."""
    for entry in filter(None, (entry.strip() for entry in excluded.split(","))):
        if f".{host}".lower().endswith(f".{entry.removeprefix('.')}".lower()):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:  # a name
            continue
    return False
