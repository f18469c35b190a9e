"""Keeps descriptors from forked processes, and libraries that would hang there.

A callback or the caller's script may fork (multiprocessing's default on Linux), and such a child may outlive training.
A copy of a descriptor would keep a lock, a port or a pipe alive, so in the child each becomes /dev/null. A program
that is executed gets none of them anyway. The threads of JAX and gRPC are not in the child, which would wait for them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from collections.abc import Iterable
from typing import Protocol

from seedzero.core import errors


class HasDescriptor(Protocol):
    """An open file or socket; a closed one raises ValueError, or returns -1."""

    def fileno(self) -> int: ...


_own = weakref.WeakSet[HasDescriptor]()
_own_places = set[int | str]()  # ports, and paths of unix sockets
_null: list[int] = []
"""Opened at the first use, because a child at its limit of descriptors could not open it."""
_used = set[str]()
"""Libraries whose threads work in this process; some stay after the last thing that needed them."""
_left_behind = set[str]()
"""Libraries whose threads only the process has that forked this one."""


def uses(library: str) -> None:
    """Notes that a library's threads work in this process. Raises UsageError as `check`."""
    check(library)
    _used.add(library)


def is_lost(library: str) -> bool:
    """Returns whether this process was forked while a library was in use, so that its calls would hang here."""
    return library in _left_behind


def check(library: str) -> None:
    """Raises UsageError if a library is lost, see `is_lost`."""
    if is_lost(library):
        raise errors.UsageError(
            f"{library} was in use when this process was forked, and cannot be used here; begin the process by "
            "multiprocessing.get_context('spawn'), or load and connect only in forked processes, not before"
        )


def keep(*things: HasDescriptor | None) -> None:
    """Keeps open files and sockets from the children of later forks until they are closed."""
    _own.update(thing for thing in things if thing is not None)
    _begin()


def keep_listener(place: int | str) -> None:
    """Keeps all sockets at a port, or at a unix socket's path, from the children; for sockets of a library in C."""
    _own_places.add(place)
    _begin()


def forget_listener(place: int | str) -> None:
    """Reverses `keep_listener`."""
    _own_places.discard(place)


def _begin() -> None:
    if not _null:
        _null.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))


def _let_go() -> None:
    _left_behind.update(_used)
    for thing in list(_own):
        with contextlib.suppress(OSError, ValueError):
            if (descriptor := thing.fileno()) > 2:
                os.dup2(_null[0], descriptor, inheritable=False)
    for descriptor in _all_descriptors() if _own_places else ():
        if _own_places.intersection(_place(descriptor)):
            os.dup2(_null[0], descriptor, inheritable=False)


def _all_descriptors() -> list[int]:
    try:
        return list(map(int, os.listdir("/dev/fd")))  # the one that the listing used is closed now
    except OSError:
        return []


def _place(descriptor: int) -> Iterable[int | str]:
    """Returns the port or the path at which a socket listens or was accepted."""
    try:
        opened = socket.socket(fileno=descriptor)
    except OSError:  # no socket
        return ()
    try:
        name = opened.getsockname()
    except OSError:
        return ()
    finally:
        opened.detach()
    if opened.family in (socket.AF_INET, socket.AF_INET6):
        return (name[1],)
    return (name,) if isinstance(name, str) else ()


os.register_at_fork(after_in_child=_let_go)
