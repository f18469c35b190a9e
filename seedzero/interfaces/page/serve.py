"""Runs the page's web server until a signal, and ends it quickly even if streams are open."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import pathlib
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http import h11_impl

from seedzero.core import errors, host_names
from seedzero.interfaces.page import app, human_seat
from seedzero.learner.processes import signals

# Limits slow connections: drops peers that keep the page waiting too long, or sooner if others need their places.
MAX_CONNECTIONS = 512
PATIENCE_SECONDS = 10.0
"""Time limit for sending a whole request, and for taking `LEAST_BYTES` of an answer."""
LEAST_BYTES = 64 << 10
MAX_UNSENT_BYTES = 64 << 20
"""Memory for unsent answers; beyond it the peers that have kept the page waiting longest are dropped."""


class BrowserConnection(h11_impl.H11Protocol):
    """An HTTP connection, where either the page works, or waits for its peer to send a request or take an answer.

    Only waiting is limited in time. Bytes that do not complete a request do not end the wait.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.waiting_since: float | None = None  # by the event loop's clock; None while the page works
        self._unsent = 0  # bytes unsent at that time
        self._timer: asyncio.TimerHandle | None = None

    @property
    def unsent(self) -> int:
        """Bytes of answers that the peer has not taken."""
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a place; if there was none left, drops the peer that has kept the page waiting longest."""
        super().connection_made(transport)
        others = [one for one in self._waiting() if one is not self]
        if others and len(self.connections) >= MAX_CONNECTIONS:
            others[0].drop()
        self._begin_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the wait."""
        super().connection_lost(exc)
        self._stop_waiting()

    def data_received(self, data: bytes) -> None:
        """Ends the wait once a request is complete."""
        super().data_received(data)
        if self._works():
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Waits for the next request, unless it has arrived already."""
        super().on_response_complete()
        self._begin_turn()

    def pause_writing(self) -> None:
        """Begins to wait until the answer is taken; drops peers if all unsent answers together are too large."""
        super().pause_writing()
        self._begin_turn()
        waiting = self._waiting()
        total = sum(one.unsent for one in waiting)
        for one in waiting:
            if total > MAX_UNSENT_BYTES:
                total -= one.unsent
                one.drop()

    def resume_writing(self) -> None:
        """Ends the wait for an answer to be taken."""
        super().resume_writing()
        self._begin_turn()

    def drop(self) -> None:
        """Closes the connection and discards unsent answers."""
        self._stop_waiting()
        self.connections.discard(self)
        self.transport.abort()

    def _waiting(self) -> list[BrowserConnection]:
        """Returns the connections whose peers keep the page waiting, the longest first."""
        found = [
            one for one in self.connections if isinstance(one, BrowserConnection) and one.waiting_since is not None
        ]
        return sorted(found, key=lambda one: one.waiting_since or 0.0)

    def _works(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not (cycle.more_body or cycle.response_complete or self.flow.write_paused)

    def _begin_turn(self) -> None:
        self._stop_waiting()
        if not self._works():
            self.waiting_since, self._unsent = self.loop.time(), self.unsent
            self._timer = self.loop.call_later(PATIENCE_SECONDS, self._look)

    def _stop_waiting(self) -> None:
        self.waiting_since = None
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Drops the peer, unless it has taken enough of an answer meanwhile."""
        if self._unsent - self.unsent >= LEAST_BYTES:
            self._begin_turn()
        else:
            self.drop()


_END_SECONDS = 2
_MAX_HEAD_BYTES = 64 << 10
"""Limit of a request's header, which includes cookies of all other programs on the host."""
_M_MMAP_THRESHOLD = -3
"""Parameter of glibc's mallopt: freed blocks of at least this many bytes return to the system."""


def serve(
    root: pathlib.Path,
    host: str,
    port: int,
    token: str,
    ready: Callable[[str], None],
    *,
    trusted: bool = False,
    proxy: tuple[str, str] = ("", ""),
    human: human_seat.HumanSeat | None = None,
) -> None:
    """Serves the runs below a directory until SIGINT, SIGTERM or SIGHUP. Raises UsageError.

    Args:
      port: 0 means any free port.
      token: "" if none is required.
      ready: receives the URL.
      trusted, human: see `app.Page`.
      proxy: name and path of the page behind a proxy, "" for its own.
    """
    if not token and not host_names.is_loopback(host):
        raise errors.UsageError(
            f"--host={host} can be reached from other machines, and without a token anyone who reaches it may read "
            "all runs; give --token_file=FILE (`openssl rand -hex 32 > FILE` makes a token)"
        )
    _return_large_blocks()
    with _bound(host, port) as listener:
        number = listener.getsockname()[1]
        page = app.Page(root, trusted=trusted, human=human)
        try:
            asyncio.run(_serve(page, host, number, token, listener, ready, proxy))
        finally:
            page.thinker.close()


async def _serve(
    page: app.Page,
    host: str,
    port: int,
    token: str,
    listener: socket.socket,
    ready: Callable[[str], None],
    proxy: tuple[str, str],
) -> None:
    # Cookies apply to all ports of a host, so each page puts its port into the name.
    hosts = host_names.HostNames(host, proxy=proxy[0])
    made = app.make(page, hosts=hosts, token=token, cookie=f"seedzero_page_{port}", root=proxy[1])
    config = uvicorn.Config(
        made,
        http=BrowserConnection,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=_END_SECONDS,
    )
    server = _Server(config)

    def stop() -> None:
        page.places.ending.set()
        page.thinker.stop()
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in signals.STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            loop.add_signal_handler(number, stop)
    ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
    await server.serve(sockets=[listener])


def _return_large_blocks() -> None:
    """Makes the memory of large answers return to the system; glibc would keep freed blocks for each thread."""
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 128 << 10)


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers, which would raise the signal again at the end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signal handlers unchanged."""
        yield


def _bound(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises UsageError with the address."""
    bare = host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:  # the latter for names that no host can have
        raise errors.UsageError(
            f"the page cannot listen on {host}:{port}: {getattr(error, 'strerror', error)}; choose another address by "
            "--port and --host (--port=0 takes any free port)"
        ) from None
    return listener
