"""The benchmark runs and reports what it promises; how fast is for a quiet machine to say."""

from __future__ import annotations

import pytest

from seedzero.interfaces.benchmark import transport


@pytest.mark.thorough
def test_benchmark_reports_both_rates_and_their_ratio() -> None:
    figures = transport.run(num_workers=2, num_envs=4, observation_bytes=64, seconds=0.3)
    assert list(figures) == [
        "observations_per_second",
        "bare_observations_per_second",
        "ratio",
        "workers",
        "environments",
        "observation_bytes",
    ]
    assert (figures["workers"], figures["environments"], figures["observation_bytes"]) == (2, 8, 64)
    assert figures["observations_per_second"] > 0
    assert figures["bare_observations_per_second"] > 0
    assert 0 < figures["ratio"] < 5
