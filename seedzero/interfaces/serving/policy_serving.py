"""Runs a policy server with its addresses, its metrics, and the newer parameters of its run."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from prometheus_client import core, registry

from seedzero.config import sections
from seedzero.interfaces.serving import acting_engine, followers, http_acting
from seedzero.learner.processes import signals
from seedzero.monitoring import exporter
from seedzero.transport import policy_servers, security

_MAX_HTTP = 256
"""Connections that wait for an action at once, each with a thread."""
_PREFIX = "seedzero_policy_"
_COUNTERS = {
    "requests": "requests answered",
    "rows": "observations answered",
    "calls": "calls of the agent",
    "changes": "parameters that were replaced by newer ones",
}


@dataclasses.dataclass(frozen=True)
class ServeOptions:
    """Settings of a policy server.

    Attributes:
      num_slots: rows of all clients together, each with its memory.
      max_batch: most rows of a call.
      follows: whether to load newer parameters of the run.
      metrics_port: for Prometheus; 0 means any free port, None no metrics.
      metrics_host: the address of that port.
      http_port: for `POST /act` on the server's own host; 0 means any free port, None no HTTP.
    """

    num_slots: int = 4096
    max_batch: int = 64
    follows: bool = False
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    http_port: int | None = None


def serve(
    agents: followers.FollowedAgents,
    settings: sections.TransportConfig,
    secured: security.ServerSecurity,
    options: ServeOptions,
    say: Callable[[str], None],
) -> acting_engine.ServingCounts:
    """Serves until Ctrl-C, SIGTERM or SIGHUP; returns the totals.

    Raises UsageError if an address cannot be used or the agent cannot act by HTTP, and ServingFailure if a call, a
    compilation or following the run fails.
    """
    engine = acting_engine.ActingEngine(
        agents.players, num_slots=options.num_slots, max_batch=options.max_batch, seed=agents.choice.seed
    )
    server = policy_servers.PolicyServer(engine, settings, secured=secured)

    def report(trouble: str) -> None:
        engine.trouble = trouble
        say(trouble or "newer parameters can be read again")

    follower = followers.Follower(
        agents, lambda name, saved: engine.change(name, saved.params, saved.update), report, engine.fail
    )
    with contextlib.ExitStack() as undo:
        stopping = signals.StopSignals(engine.stop, say=lambda _: say("stopping"), cleanup=lambda: None)
        undo.enter_context(stopping)
        if options.metrics_port is not None:
            collector = _PolicyCollector(engine.counts, lambda: server.num_sessions)
            url = undo.enter_context(exporter.serving_from(options.metrics_host, options.metrics_port, collector))
            say(f"metrics for Prometheus: {url}")
        answer: http_acting.Answering = server.answer
        if options.http_port is not None:
            host = settings.listen.rpartition(":")[0].strip("[]")
            http = http_acting.HttpActing(engine, secured.token, host)
            given = (http, "POST /act", "--http_port and --host", secured.https)
            url = undo.enter_context(exporter.serving_app(host, options.http_port, *given, max_connections=_MAX_HTTP))
            say(f"actions by HTTP: {url}/act")
            answer = http.before(server.answer)
        say("compiling the agent")
        engine.compile()
        undo.callback(server.stop, "the policy server stops")
        address = server.start()
        names = ", ".join(f"{name} of update {version}" for name, version in engine.offer().players.items())
        say(f"serving {names} at {address} (Ctrl-C stops)")
        if options.follows:
            undo.callback(follower.stop)
            follower.start()
        # Not a daemon, which would abort a compilation when Python exits; `errors.leave` waits for no thread.
        threading.Thread(target=engine.compile_rest, name="compile").start()
        engine.run(answer, server.announce)
    return engine.counts


class _PolicyCollector(registry.Collector):
    def __init__(self, counts: acting_engine.ServingCounts, num_sessions: Callable[[], int]) -> None:
        self._counts, self._num_sessions = counts, num_sessions

    def collect(self) -> Iterable[core.Metric]:
        return families(self._counts, self._num_sessions())


def families(counts: acting_engine.ServingCounts, num_sessions: int) -> Iterator[core.Metric]:
    """Yields the metrics for Prometheus; means are missing until the first call."""
    for name, text in _COUNTERS.items():
        yield core.CounterMetricFamily(_PREFIX + name, text, value=getattr(counts, name))
    yield core.GaugeMetricFamily(f"{_PREFIX}sessions", "sessions of clients", value=num_sessions)
    newest = np.array(list(counts.newest))
    if len(newest):
        text = "mean rows of the newest calls"
        yield core.GaugeMetricFamily(f"{_PREFIX}rows_per_call", text, value=newest[:, 0].mean())
        text = "seconds from a request's arrival to its answer, of the newest calls"
        seconds = core.GaugeMetricFamily(f"{_PREFIX}latency_seconds", text, labels=("quantile",))
        for quantile in (0.5, 0.99):
            seconds.add_metric((str(quantile),), float(np.quantile(newest[:, 1], quantile)))
        yield seconds
