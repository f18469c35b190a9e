"""Measurements of a policy server: the rate of a run, worked by hand."""

from __future__ import annotations

import pathlib

import pytest
import runs  # see conftest.py
import serving


def test_a_run_s_rate_is_that_of_the_second_half_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"seconds": 10.0, "env_steps": 100},  # it compiled until now
        {"seconds": 19.0, "env_steps": 2_000},
        {"seconds": 21.0, "env_steps": 3_000},
        {"seconds": 40.0, "kind": "evaluation"},
        {"seconds": 40.0, "env_steps": 12_500},
    ]
    monkeypatch.setattr(runs, "rows", lambda path: rows)
    assert serving._steps_per_second(pathlib.Path()) == 500.0  # 9,500 steps in 19 s


@pytest.mark.thorough
def test_a_measurement_of_a_server_reads_its_address_and_its_rate() -> None:
    found = serving.rate(str(pathlib.Path(__file__).parents[2] / "examples/trained/cartpole"), 1, 1, 0.2)
    assert found["rows_per_second"] > 0
    assert 0 < found["p50_ms"] <= found["p99_ms"]
