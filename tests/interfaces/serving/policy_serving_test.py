"""The metrics of a policy server."""

from __future__ import annotations

import prometheus_client
from prometheus_client import registry

from seedzero.interfaces.serving import acting_engine, policy_serving


def _text(counts: acting_engine.ServingCounts, num_sessions: int) -> str:
    collectors = registry.CollectorRegistry()
    collectors.register(policy_serving._PolicyCollector(counts, lambda: num_sessions))
    return prometheus_client.generate_latest(collectors).decode()


def test_counters_and_means_of_the_newest_calls() -> None:
    counts = acting_engine.ServingCounts(requests=3, rows=12, calls=2, changes=1)
    counts.newest.extend([(8, 0.25), (4, 0.75)])
    text = _text(counts, 2)
    expected = {"requests_total": 3, "rows_total": 12, "calls_total": 2, "changes_total": 1, "sessions": 2}
    for name, value in expected.items():
        assert f"seedzero_policy_{name} {value:.1f}\n" in text
    assert "seedzero_policy_rows_per_call 6.0\n" in text
    assert 'seedzero_policy_latency_seconds{quantile="0.5"} 0.5\n' in text
    assert 'seedzero_policy_latency_seconds{quantile="0.99"} 0.745\n' in text


def test_before_the_first_call_there_are_no_means() -> None:
    text = _text(acting_engine.ServingCounts(), 0)
    assert "rows_per_call" not in text and "seedzero_policy_requests_total 0.0\n" in text
