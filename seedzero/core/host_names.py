"""Decides which names of a host a browser may use for a server of this machine.

A web page can point a name of its own at this machine (DNS rebinding), and would then read the server's answers.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable


def is_loopback(host: str) -> bool:
    """Returns whether a host can only be reached from this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class HostNames:
    """The names by which a browser may call a server; others, which DNS may point here, are rejected.

    Addresses need not be listed: on loopback those of this machine are allowed, elsewhere all are.
    """

    def __init__(self, host: str, own: Iterable[str] | None = None, proxy: str = "") -> None:
        """host: the value of --host. own: names of this machine; None asks the system.

        proxy: the proxy's name, or "".
        """
        self._is_local = is_loopback(host)
        given = {host.lower()} if host not in ("", "0.0.0.0", "::") else set()
        names = own if own is not None else (socket.gethostname(), socket.getfqdn())
        others = set() if self._is_local else {name.lower() for name in names}
        self.names = sorted({"localhost", *given, *others, proxy.lower()} - {""})

    def allows(self, header: str) -> bool:
        """Returns whether a Host header names the server. The port may be any, because tunnels have their own."""
        host, colon, port = header.lower().rpartition(":")
        if not colon or header.endswith("]"):
            host, port = header.lower(), ""
        if port and not (port.isascii() and port.isdigit()):
            return False
        if host in self.names:
            return True
        try:
            address = ipaddress.ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
        except ValueError:
            return False
        return address.is_loopback or not self._is_local
