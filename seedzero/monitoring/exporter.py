"""Metrics for Prometheus: the numbers of `seedzero status` and of the newest row of metrics.jsonl, over HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import prometheus_client
from prometheus_client import core, registry

from seedzero.core import errors
from seedzero.monitoring import metrics

_PREFIX = "seedzero_"
_STALLED = "stalled"
_DISCARDED = "steps_discarded"
_EVALUATION = "last_evaluation"


class Scrape(NamedTuple):
    """The values of one scrape.

    Attributes:
      status: of `seedzero status`.
      row: the newest row of metrics.jsonl, except evaluations; empty before the first.
    """

    status: Mapping[str, Any]
    row: Mapping[str, metrics.Value]


# A resume continues counters; they get the suffix _total.
_COUNTERS = {
    "env_steps": "training steps stored",
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


class Exporter:
    """Serves metrics at an address, from `start` to `stop`."""

    def __init__(self, host: str, port: int, read: Callable[[], Scrape]) -> None:
        """
        Args:
          host: to bind.
          port: to bind; 0: any free one.
          read: returns the values; called on a thread for each request.
        """
        self._host, self._port = host, port
        self._registry = registry.CollectorRegistry()
        self._registry.register(_Collector(read))
        prometheus_client.ProcessCollector(registry=self._registry)

    def start(self) -> str:
        """Starts to serve; returns the URL. Raises UsageError if the address cannot be bound."""
        try:
            self._server, self._thread = prometheus_client.start_http_server(
                self._port, self._host, registry=self._registry
            )
        except OSError as error:
            raise errors.UsageError(
                f"cannot serve metrics on {self._host}:{self._port}: {error.strerror}; choose another address by "
                "--metrics_port and --metrics_host"
            ) from None
        return f"http://{self._host}:{self._server.server_port}/metrics"

    def stop(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Collector(registry.Collector):
    def __init__(self, read: Callable[[], Scrape]) -> None:
        self._read = read

    def collect(self) -> Iterable[core.Metric]:
        return families(self._read())

    def describe(self) -> Iterable[core.Metric]:
        """Returns nothing: the names come with the values, and those with the first request."""
        return ()


def families(scrape: Scrape) -> Iterator[core.Metric]:
    """Yields the metrics for Prometheus; values that do not exist yet are left out."""
    status = scrape.status
    for key, text in _COUNTERS.items():
        yield core.CounterMetricFamily(_PREFIX + key, text, value=status[key])
    for key, text in _GAUGES.items():
        if status[key] is not None:
            yield core.GaugeMetricFamily(_PREFIX + key, text, value=status[key])
    discarded = core.CounterMetricFamily(
        _PREFIX + _DISCARDED, "training steps given up, by reason", labels=("reason",)
    )
    for reason, count in status[_DISCARDED].items():
        discarded.add_metric((reason,), count)
    yield discarded
    yield core.GaugeMetricFamily(
        _PREFIX + _STALLED, "1: nothing happens; `seedzero status` says why", value=status[_STALLED] is not None
    )
    for key, value in (status[_EVALUATION] or {}).items():
        yield core.GaugeMetricFamily(f"{_PREFIX}evaluation_{key}", f"{key} of the last evaluation", value=value)
    yield from _of_row(scrape)


def _of_row(scrape: Scrape) -> Iterator[core.Metric]:
    for key, value in scrape.row.items():
        if isinstance(value, (int, float)) and key not in scrape.status and key not in metrics.FIRST_KEYS:
            name = _PREFIX + re.sub(r"\W", "_", key)
            yield core.GaugeMetricFamily(name, f"{key} in the newest row of metrics.jsonl", value=value)
