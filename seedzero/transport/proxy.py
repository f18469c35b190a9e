"""Finds the proxy that gRPC takes from this process's variables; a learner is rarely behind one."""

from __future__ import annotations

import ipaddress
import os
import urllib.parse
from collections.abc import Mapping

from seedzero.transport import addresses

_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
"""gRPC's variables; of both kinds, the first one that is set counts, even if it is empty."""


def remark(address: str, variables: Mapping[str, str] = os.environ) -> str:
    """Ends a message about a call that failed with the proxy in between and how to avoid it; "" without a proxy.

    The proxy's user name and password are omitted.
    """
    name = next((name for name in _VARIABLES if name in variables), "")
    if address.startswith(addresses.UNIX_PREFIX) or not name:
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
