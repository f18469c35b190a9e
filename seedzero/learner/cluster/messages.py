"""Defines the messages between learner hosts, which are JSON objects with a kind and a value.

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
import ipaddress
import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from seedzero.core import errors, json_object
from seedzero.monitoring.metrics import counts

SERVICE = "seedzero.cluster.Hosts"
METHOD = "Join"
VERSION = 5
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
