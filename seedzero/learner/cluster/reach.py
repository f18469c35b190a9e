"""Finds the address at which the other hosts can reach this one for gradients.

By default gloo takes the address of the machine's own name, which is loopback in some /etc/hosts, such as Debian's
127.0.1.1.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct

from seedzero.core import errors

_SIOCGIFADDR = 0x8915
"""Linux's request for the IPv4 address of a network interface, in a `struct ifreq`."""


def own_end(coordinator: str) -> str:
    """Returns the address with which this machine would connect to HOST:PORT; nothing is sent.

    Raises TrainingFailure if the name is not known (yet), or if there is no route to its address.
    """
    host, _, port = coordinator.rpartition(":")
    try:
        family, kind, _, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise errors.TrainingFailure(
            f"--cluster.coordinator={coordinator}: this machine has no way there ({error.strerror})"
        ) from None


def of_interface(name: str) -> str:
    """Returns the address of a network interface. Raises UsageError if there is none."""
    known = ", ".join(each for _, each in socket.if_nameindex())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError as error:
            raise errors.UsageError(
                f"--cluster.interface={name}: expected a network interface of this machine with an IPv4 address "
                f"({error.strerror}); it has {known}"
            ) from None
    return socket.inet_ntoa(found[20:24])


def are_apart(one: str, other: str) -> bool:
    """Returns whether two hosts cannot reach each other, because only one of these addresses is loopback or IPv6."""
    first, second = ipaddress.ip_address(one), ipaddress.ip_address(other)
    return (first.version, first.is_loopback) != (second.version, second.is_loopback)


def only_here(coordinator: str) -> str:
    """Returns a warning if the name in HOST:PORT is loopback on host 0 itself, else ""."""
    host, found = coordinator.rpartition(":")[0].strip("[]"), own_end(coordinator)
    if host in (found, "localhost") or not ipaddress.ip_address(found).is_loopback:
        return ""
    return (
        f"; {host} is {found} here (/etc/hosts), which no other machine reaches: give "
        "--cluster.coordinator=ADDRESS:PORT"
    )
