"""Keeps descriptors from forked processes, where a copy would keep a lock, a port or a pipe alive.

A callback or the caller's script may fork (multiprocessing's default on Linux), and such a child may outlive training.
In the child, each of these descriptors becomes /dev/null. A program that is executed gets none of them anyway.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from collections.abc import Iterable
from typing import Protocol


class HasDescriptor(Protocol):
    """An open file or socket; a closed one raises ValueError, or returns -1."""

    def fileno(self) -> int: ...


_own = weakref.WeakSet[HasDescriptor]()
_own_places = set[int | str]()  # ports, and paths of unix sockets
_null: list[int] = []
"""Opened at the first use, because a child at its limit of descriptors could not open it."""


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
