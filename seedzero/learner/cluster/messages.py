"""Defines the messages between learner hosts, JSON objects with a kind and a value, and where hosts reach each other.

From a host to host 0:
- hello: `HostHello`
- built, ready, spent, ask: for `loop.agreement`
- beat: counters, every second
- found: a subject, and what this host says about it
- leaving: this host is done

From host 0 to a host:
- begin: `Begin`
- decisions: of `loop.agreement`, and the counters at them
- beat: the other hosts' counters, every second
- gathered: a subject, and what all hosts say, by index
- left: all are done; lost: why the run has ended
"""

from __future__ import annotations

import dataclasses
import fcntl
import ipaddress
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any, TypeAlias

from seedzero.core import errors, json_object
from seedzero.monitoring.metrics import counts

# Finds the address at which the other hosts can reach this one for gradients.
#
# By default gloo takes the address of the machine's own name, which is loopback in some /etc/hosts, such as Debian's
# 127.0.1.1.
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


SERVICE = "seedzero.cluster.Hosts"
METHOD = "Join"
VERSION = 6
"""Version of these messages; hosts with another one are rejected."""
MAX_BYTES = 2**20
MAX_TEXT = 1000

Message: TypeAlias = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class HostHello:
    """A host that joins. All but index, steps, reached_at and xla_flags are the same on every host."""

    index: int
    num: int  # number of hosts in the run
    settings: str  # digest of all settings that hosts share
    version: int = VERSION
    program: str = ""  # versions of the program and of JAX, and JAX_ENABLE_X64
    # updates of its checkpoints -> digests of their states; None if there are none
    steps: Mapping[int, str] | None = None
    reached_at: str = ""  # the address where it receives gradients; "": its own end of its connection to host 0
    xla_flags: str = ""  # its environment's XLA_FLAGS, in order


@dataclasses.dataclass(frozen=True)
class Begin:
    """How all hosts begin."""

    devices: str  # HOST:PORT where JAX's processes meet
    step: int  # update of the checkpoint from which all resume, or -1 for a new run
    num_hosts: int = 1  # hosts of the run that made it
    parts: tuple[int, ...] = ()  # hosts that resume from their own parts of it
    num_gone: int = 0  # training steps of the hosts without such a part


def encode(message: Message) -> bytes:
    """Encodes a message for the wire."""
    return json.dumps(message).encode()


def decode(data: bytes) -> dict[str, Any]:
    """Decodes a message from the wire. Raises InvalidMessage."""
    try:
        return json_object.parse(data)
    except ValueError as error:
        raise errors.InvalidMessage(f"a host's message cannot be read: {error}") from None


def hello(message: Message) -> HostHello:
    """Parses a host's first message. Raises InvalidMessage."""
    try:
        found = message["hello"]
        return HostHello(
            number(found["index"]),
            number(found["num"]),
            str(found["settings"])[:MAX_TEXT],
            number(found["version"]),
            str(found["program"])[:MAX_TEXT],
            None if found["steps"] is None else {number(int(step)): str(own) for step, own in found["steps"].items()},
            str(ipaddress.ip_address(found.get("reached_at", "0.0.0.0"))),  # earlier versions do not send it
            str(found.get("xla_flags", ""))[:MAX_TEXT],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise errors.InvalidMessage(f"no host says hello like this: {error!r}") from None


def steps(found: Message) -> counts.Counts:
    """Parses a host's counters. Raises InvalidMessage."""
    try:
        discarded = {str(name)[:MAX_TEXT]: number(each) for name, each in found["discarded"].items()}
        acknowledged, stored, pending = (number(found[name]) for name in ("acknowledged", "stored", "pending"))
        return counts.Counts(acknowledged, stored, pending, discarded, number(found["num_samples"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise errors.InvalidMessage(f"no host counts like this: {error!r}") from None


def number(value: object) -> int:
    """Returns an integer in a message. Raises InvalidMessage."""
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 2**63:
        raise errors.InvalidMessage(f"{value!r:.80}: expected a whole number")
    return value
