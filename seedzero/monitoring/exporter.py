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


class Seen(NamedTuple):
    """What is shown at one moment.

    Attributes:
      status: as `seedzero status` shows it.
      row: the newest row of metrics.jsonl but those of evaluations; empty before the first.
    """

    status: Mapping[str, Any]
    row: Mapping[str, metrics.Value]


# Counters go on where a resumed run goes on; those get the suffix _total.
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

    def __init__(self, host: str, port: int, read: Callable[[], Seen]) -> None:
        """
        Args:
          host: to bind.
          port: to bind; 0: any free one.
          read: returns what to show; called on a thread for each request.
        """
        self._host, self._port = host, port
        self._registry = registry.CollectorRegistry()
        self._registry.register(_Collector(read))
        prometheus_client.ProcessCollector(registry=self._registry)

    def start(self) -> str:
        """Serves from now on; returns the URL.

        Raises:
          UsageError: the address is in use or not ours to bind.
        """
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
        """Serves no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Collector(registry.Collector):
    def __init__(self, read: Callable[[], Seen]) -> None:
        self._read = read

    def collect(self) -> Iterable[core.Metric]:
        return families(self._read())

    def describe(self) -> Iterable[core.Metric]:
        """Nothing: names follow from what is read, and reading begins with the first request."""
        return ()


def families(seen: Seen) -> Iterator[core.Metric]:
    """Yields what Prometheus is shown. A value that does not exist yet is left out."""
    status = seen.status
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
    yield from _of_row(seen)


def _of_row(seen: Seen) -> Iterator[core.Metric]:
    for key, value in seen.row.items():
        if isinstance(value, (int, float)) and key not in seen.status and key not in metrics.FIRST_KEYS:
            name = _PREFIX + re.sub(r"\W", "_", key)
            yield core.GaugeMetricFamily(name, f"{key} in the newest row of metrics.jsonl", value=value)
