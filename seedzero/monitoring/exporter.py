"""Serves metrics to Prometheus over HTTP: the numbers of `seedzero status` and of the newest row of metrics.jsonl."""

from __future__ import annotations

import collections
import contextlib
import re
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from wsgiref import simple_server

import prometheus_client
from prometheus_client import core, registry

from seedzero.core import errors, forks, host_names
from seedzero.monitoring import metrics_log

MAX_CONNECTIONS = 16  # a scrape takes milliseconds
CONNECTION_SECONDS = 10.0
"""Time limit for a whole request, from its connection to the last byte of the answer."""

_PREFIX = "seedzero_"

Scrape = tuple[Mapping[str, Any], Mapping[str, metrics_log.Value]]
"""The status, and the newest row of metrics.jsonl that is not an evaluation, or {}."""

# A resume continues these counters, which get the suffix _total. Zeros are left out: a resume begins with them.
_COUNTERS = {
    "env_steps": "training steps, those that no update has seen among them",
    "updates": "updates done",
    "steps_acknowledged": "training steps whose action went out: stored, pending or discarded",
    "steps_stored": "training steps stored",
}
_GAUGES = {
    "weights_version": "updates behind the newest parameters that act",
    "durable_update": "updates in the newest checkpoint on the disk",
    "workers": "training workers that are connected",
    "environments": "training environments of those workers",
    "steps_pending": "training steps that wait for their next observation",
    "samples_per_insert": "windows trained on for each stored step",
    "env_steps_per_second": "training steps stored a second",
    "updates_per_second": "updates a second",
}
_OWN = {*_COUNTERS, *_GAUGES, "steps_discarded", "matches", "stalled"}
_OWN_BEGINNINGS = ("evaluation_", "task_")


@contextlib.contextmanager
def serving(host: str, port: int, read: Callable[[], Scrape]) -> Iterator[str]:
    """Serves a learner's metrics while the context is entered; yields the URL. See `serving_from`."""
    with serving_from(host, port, _Collector(read)) as url:
        yield url


@contextlib.contextmanager
def serving_from(host: str, port: int, collector: registry.Collector) -> Iterator[str]:
    """Serves the metrics of a collector while the context is entered; yields the URL.

    collector: called on a thread for each request. port: 0 means any free one. Raises UsageError if the address cannot
    be bound.
    """
    collectors = registry.CollectorRegistry()
    collectors.register(collector)
    prometheus_client.ProcessCollector(registry=collectors)
    app = prometheus_client.make_wsgi_app(collectors)
    if host_names.is_loopback(host):  # elsewhere Prometheus may use any name
        app = _for_names(app, host_names.HostNames(host, own=()))
    with serving_app(host, port, app, "metrics", "--metrics_port and --metrics_host") as url:
        yield f"{url}/metrics"


def _for_names(app: Any, names: host_names.HostNames) -> Any:
    """Returns a WSGI application that refuses other names of this machine, which a web page could point here."""

    def guarded(environ: dict[str, Any], start_response: Any) -> Any:
        if names.allows(host := environ.get("HTTP_HOST", "")):
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"Host is {host:.100}; expected {' or '.join(names.names)}, or an address of this machine\n".encode()]

    return guarded


@contextlib.contextmanager
def serving_app(
    host: str,
    port: int,
    app: Any,
    content: str,
    flags: str,
    https: ssl.SSLContext | None = None,
    *,
    max_connections: int = MAX_CONNECTIONS,
) -> Iterator[str]:
    """While entered, serves a WSGI application; yields the URL without a path. Errors are those of `serving_from`.

    content, flags: for the error. https: the certificate; None: plain text. max_connections: answered at once; one
    more takes the place of the oldest.
    """
    try:
        server = _Server((host, port), _Handler, max_connections)
    except OSError as error:
        raise errors.UsageError(
            f"cannot serve {content} on {host}:{port}: {error.strerror}; choose another address by {flags}"
        ) from None
    if https is not None:  # handshakes are up to each connection's own thread
        server.socket = https.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.set_app(app)
    thread = threading.Thread(target=server.serve_forever, name=content, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if https else ''}://{f'[{host}]' if ':' in host else host}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """Gives each of a few connections a thread for a limited time; one more connection replaces the oldest.

    There are more than the clients that an application has, so only clients that dawdle are cut off.
    """

    daemon_threads = True
    request_queue_size = 128  # connections that arrive together

    def __init__(
        self, address: tuple[str, int], handler: type[simple_server.WSGIRequestHandler], max_connections: int
    ) -> None:
        self._max_connections = max_connections
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._open: dict[socket.socket, float] = {}  # start times, the oldest first
        self._lock = threading.Lock()
        super().__init__(address, handler)
        forks.keep(self.socket)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a connection's thread; if there are too many, ends the oldest connection."""
        forks.keep(request)
        with self._lock:
            if len(self._open) >= self._max_connections:
                self._cut_off(next(iter(self._open)))
            self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Frees the place of an answered connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Ends connections past their deadline; the server calls it regularly."""
        with self._lock:
            now = time.monotonic()
            for request in [request for request, since in self._open.items() if now - since >= CONNECTION_SECONDS]:
                self._cut_off(request)

    def _cut_off(self, request: socket.socket) -> None:
        """Makes a connection's thread end soon, because it can neither read nor write any more."""
        del self._open[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores broken and slow connections."""


class _Handler(simple_server.WSGIRequestHandler):
    def finish(self) -> None:
        """Takes the rest of a request that was answered early: a reset would reach its sender before the answer."""
        super().finish()
        with contextlib.suppress(OSError):
            if getattr(self, "command", None) == "POST":
                self.connection.shutdown(socket.SHUT_WR)
                while self.connection.recv(1 << 20):
                    pass

    def log_message(self, format: str, *arguments: Any) -> None:
        """Does not log requests."""


class _Collector(registry.Collector):
    def __init__(self, read: Callable[[], Scrape]) -> None:
        self._read = read
        self._highest: dict[str, float] = {}

    def collect(self) -> Iterable[core.Metric]:
        status, row = self._read()
        # A lost worker takes back stored steps, but a counter that falls would look like a restart.
        self._highest = {key: max(status[key], self._highest.get(key, 0)) for key in _COUNTERS}
        return families({**status, **self._highest}, row)


def families(status: Mapping[str, Any], row: Mapping[str, metrics_log.Value]) -> Iterator[core.Metric]:
    """Yields the metrics for Prometheus, except values that do not exist yet."""
    for key, text in _COUNTERS.items():
        if status[key]:
            yield core.CounterMetricFamily(_PREFIX + key, text, value=status[key])
    for key, text in _GAUGES.items():
        if status[key] is not None:
            yield core.GaugeMetricFamily(_PREFIX + key, text, value=status[key])
    text = "training steps given up, by reason"
    discarded = core.CounterMetricFamily(f"{_PREFIX}steps_discarded", text, labels=("reason",))
    for reason, count in status["steps_discarded"].items():
        discarded.add_metric((reason,), count)
    yield discarded
    matches = core.CounterMetricFamily(f"{_PREFIX}matches", "finished matches of a league, by type", labels=("type",))
    for name, count in status.get("matches", {}).items():
        matches.add_metric((name,), count)
    yield from [matches] if matches.samples else []
    stalled = status["stalled"] is not None
    yield core.GaugeMetricFamily(f"{_PREFIX}stalled", "1: nothing happens; `seedzero status` says why", value=stalled)
    evaluated = dict(status["last_evaluation"] or {})
    text = "mean return of a task in the last evaluation"
    returns = core.GaugeMetricFamily(f"{_PREFIX}evaluation_task_return", text, labels=("task",))
    for name, value in evaluated.pop("task_returns", {}).items():
        returns.add_metric((name,), value)
    yield from [returns] if returns.samples else []
    text = "mean of an environment's own number in the last evaluation"
    infos = core.GaugeMetricFamily(f"{_PREFIX}evaluation_info", text, labels=("name",))
    for name, value in evaluated.pop("info", {}).items():
        infos.add_metric((name,), value)
    yield from [infos] if infos.samples else []
    for key, value in evaluated.items():
        yield core.GaugeMetricFamily(f"{_PREFIX}evaluation_{key}", f"{key} of the last evaluation", value=value)
    numbers = {
        key: value
        for key, value in row.items()
        if isinstance(value, (int, float)) and key not in status and key not in metrics_log.FIRST_KEYS
        if not key.startswith(metrics_log.MATCHES)  # exported as a counter above
    }
    yield from _of_row(numbers)


def _of_row(numbers: Mapping[str, float]) -> Iterator[core.Metric]:
    """Yields gauges of a row's numbers; metrics with the same name in Prometheus share it, with a label `metric`."""
    kinds = {key.partition("/")[0] for key in numbers}
    shared = collections.Counter(map(_name, kinds))
    found: dict[str, core.GaugeMetricFamily] = {}
    for key, value in numbers.items():
        kind, is_of_task, task = key.partition("/")
        name = f"{_PREFIX}task_{_name(kind)}" if is_of_task else _PREFIX + _name(kind)
        text = f"{_name(kind)} in the newest row of metrics.jsonl{', of a task' if is_of_task else ''}"
        labels = {"task": task} if is_of_task else {}
        labels |= {"metric": kind} if shared[_name(kind)] > 1 and kind != _name(kind) else {}
        found.setdefault(name, core.GaugeMetricFamily(name, text)).add_sample(name, labels, value)
    yield from found.values()


def _name(kind: str) -> str:
    """Returns the name that a metric has in Prometheus."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", kind)
    return f"row_{name}" if name in _OWN or name.startswith(_OWN_BEGINNINGS) else name
