"""The benchmark runs and reports what it promises; how fast is for a quiet machine to say."""

from __future__ import annotations

import multiprocessing

import pytest

from seedzero.core import errors
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


def test_a_server_that_dies_ends_the_benchmark() -> None:
    others = multiprocessing.active_children()
    with (
        pytest.raises(errors.Error, match="a process of the benchmark ended early"),
        transport.process(transport.serve_real, 4) as server,
    ):
        (process,) = (child for child in multiprocessing.active_children() if child not in others)
        with transport.process(transport._work_real, transport.receive(server), 4, 64) as worker:
            worker.send(1e-6)
            transport.receive(worker, server)
            worker.send(600.0)
            process.kill()
            transport.receive(worker, server)


def test_a_worker_that_died_between_two_slices_ends_the_benchmark() -> None:
    with (
        pytest.raises(errors.Error, match="a process of the benchmark ended early"),
        transport.process(transport.serve_real, 4) as server,
    ):
        address, others = transport.receive(server), multiprocessing.active_children()
        with transport.process(transport._work_real, address, 4, 64) as worker:
            (process,) = (child for child in multiprocessing.active_children() if child not in others)
            process.kill()
            process.join()
            transport.send(worker, 1.0)
