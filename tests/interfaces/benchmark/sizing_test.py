"""What many frames a second need, by hand; and that the benchmark measures what it computes with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seedzero.core import types
from seedzero.interfaces.benchmark import players, sizing, subjects
from seedzero.transport import codec

COSTS = sizing.Costs(
    environment_us=180.0,
    worker_us=20.0,
    server_us=10.0,
    wire_bytes=10_000.0,
    acted_per_second=4_000.0,
    envs_a_worker_core=32,
)


def test_needs_of_ten_thousand_frames_a_second_by_hand() -> None:
    assert sizing.needs(10_000, COSTS) == {
        "frames_per_second": 10_000,
        "environments": 64,  # of two cores
        "worker_cores": 2,
        "network_mbit_per_second": pytest.approx(800.0),
        "server_threads": pytest.approx(0.1),
        "acting_machines": pytest.approx(2.5),
    }
    more = sizing.needs(1_000_000, COSTS)
    assert (more["worker_cores"], more["environments"]) == (200, 6_400)
    assert more["server_threads"] == pytest.approx(10.0)


def test_the_bytes_of_a_frame_are_those_of_its_messages() -> None:
    spec = types.EnvSpec((96, 96, 1), "uint8", 6)
    assert 9_216 < sizing._wire_bytes(spec, 16) < 9_216 + 20
    masked = types.EnvSpec((4,), "float32", 6, has_action_mask=True)
    step = types.EnvStep.first(np.zeros((2, 4), np.float32))._replace(action_mask=np.ones((2, 6), bool))
    actions = codec.encode_actions(1, 1_000, np.zeros(2, np.int32), 1_000)
    assert sizing._wire_bytes(masked, 2) == (len(codec.encode_step(1, 1_000, step)) + len(actions)) / 2


def test_a_message_and_a_frame_are_the_line_through_two_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "_message_us", lambda num_bytes, num_envs, seconds: (100 + 4 * num_envs, 2 * num_envs))
    assert sizing._lines(types.EnvSpec((4,), "uint8", 2), 1.0) == [(100.0, 4.0), (0.0, 2.0)]


def test_both_ends_of_the_wire_are_measured() -> None:
    server, worker = sizing._message_us(64, 4, 0.3)
    assert server > 0 and worker > 0


@pytest.mark.thorough
def test_benchmark_measures_what_it_computes_with(monkeypatch: pytest.MonkeyPatch) -> None:
    def acted(preset: str, settings: Any, **rest: Any) -> dict[str, list[subjects.Row]]:
        assert (preset, settings["run.agent"], rest["players"]) == ("catch", "ppo", (1,))
        return {"rows": [{"rows": 32, "rows_per_second": 500.0}, {"rows": 128, "rows_per_second": 1_000.0}]}

    monkeypatch.setattr(players, "run", acted)
    found = sizing.run("catch", {"worker.envs_per_group": 4}, seconds=1.0)
    assert (found["environment"], found["observation_bytes"], found["environments_a_group"]) == ("catch", 50, 4)
    assert found["acted_per_second_of_128"] == 1_000.0 and found["environment_us_a_frame"] > 0
    assert [row["frames_per_second"] for row in found["rows"]] == list(sizing.TARGETS)
    assert [row["acting_machines"] for row in found["rows"]] == [10.0, 100.0, 1_000.0]
