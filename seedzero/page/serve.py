"""Runs the page's web server until a signal, and ends it quickly even if streams are open."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import pathlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from seedzero.core import errors, host_names
from seedzero.page import app, connections, human_seat
from seedzero.processes import signals

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
        http=connections.BrowserConnection,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        limit_concurrency=connections.MAX_CONNECTIONS,
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
