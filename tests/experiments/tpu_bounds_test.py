"""The parts of a prediction that need no compiler of TPUs; `tpu_compile_test.py` has those that do."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import roofline
import tpu_bounds as tpu

from seedzero.config import configs, presets
from seedzero.core import types
from seedzero.device import meshes, setups, tracing

TINY = {
    "worker.envs_per_group": 8,
    "search.num_simulations": 4,
    "search.num_considered": 2,
    "network.kind": "mlp",
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "muzero.unroll_steps": 1,
    "replay.capacity": 512,
    "replay.batch_size": 16,
    "replay.num_slots": 16,
    "batcher.max_batch": 16,
    "training.num_devices": 2,
    "evaluation.num_envs": 4,
}
PIXELS = types.EnvSpec(observation_shape=(6, 6, 1), observation_dtype="uint8", num_actions=3, frames_per_step=4)


def _setup(agent: str = "muzero", **settings: Any) -> tuple[setups.Setup, configs.Config]:
    tiny = {name: value for name, value in TINY.items() if configs.is_read(name, agent)}
    config = configs.override(presets.get("atari", agent), {**tiny, **settings})
    return setups.make(config, PIXELS, meshes.make(2)), config


@pytest.fixture(scope="module")
def small() -> tuple[setups.Setup, configs.Config]:
    return _setup(**{"reanalyse.per_insert": 0.5, "reanalyse.batch_size": 8})


def test_all_programs_of_the_learner_are_there(small: tuple[setups.Setup, configs.Config]) -> None:
    setup, _ = small
    assert list(tpu.traces(setup)) == [("act", 16), ("act", 8), ("update", 16), ("reanalyse", 8)]
    apart = [("draw", 16), ("learn", 16), ("draw_stale", 8), ("renew", 8)]
    assert list(tpu.traces(setup, on_host=True))[2:] == apart
    without, _ = _setup(**{"reanalyse.per_insert": 0.0})
    assert list(tpu.traces(without))[2:] == [("update", 16)]


def _rows(**milliseconds: float) -> list[dict[str, Any]]:
    rows = [
        {"name": name, "rows": 16, "roofline_ms": time, "estimated_ms": 2 * time}
        for name, time in milliseconds.items()
    ]
    return [*rows, {"name": "act", "rows": 8, "roofline_ms": 1e9, "estimated_ms": 1e9}]


def test_the_device_or_the_host_bounds_the_pace(small: tuple[setups.Setup, configs.Config]) -> None:
    setup, config = small
    rows = _rows(act=1.6, update=2.0, reanalyse=1.6)
    # 1.6 / 16 + 2.0 / 4 + 1.6 / 16 ms a step; smaller batches don't count.
    found = tpu.predict(rows, setup, config, None, None)
    assert found["device_steps_per_second"] == found["predicted_steps_per_second"] == pytest.approx(1e3 / 0.7)
    assert found["estimated_steps_per_second"] == pytest.approx(1e3 / 1.4)
    assert found["predicted_updates_per_second"] == pytest.approx(1e3 / 0.7 / 4)
    assert found["host_steps_per_second"] == roofline.ATARI_STEPS_PER_SECOND and "usd_200m_frames" not in found
    cut = tpu.predict(rows, setup, config, 500.0, 3.0)
    assert cut["device_steps_per_second"] == pytest.approx(1e3 / 0.7)
    assert cut["predicted_steps_per_second"] == 500 and cut["predicted_updates_per_second"] == 125
    assert cut["hours_200m_frames"] == pytest.approx(50e6 / 500 / 3600)
    assert cut["usd_200m_frames"] == pytest.approx(50e6 / 500 / 3600 * 3.0 * 2)  # two devices


def test_every_known_trip_counts() -> None:
    mesh = meshes.make(1)

    def loop(trips: int) -> roofline.Cost:
        def body(_: int, x: jax.Array) -> jax.Array:
            return x @ x

        function = meshes.over_devices(
            lambda x: jax.lax.fori_loop(0, trips, body, x), mesh, meshes.REPLICATED, meshes.REPLICATED
        )
        shape = jax.ShapeDtypeStruct((32, 32), np.float32, sharding=meshes.replicated(mesh))
        traced = tracing.UncompiledProgram("loop", function.trace(shape))  # type: ignore[attr-defined]
        program = tpu.compile_program(lambda: traced, mesh)
        assert program.open_loops == 0
        return program.cost

    product = 2 * 32**3
    assert loop(2).flop == pytest.approx(2 * product, rel=0.02)
    assert loop(7).flop == pytest.approx(7 * product, rel=0.02)
    assert loop(1).flop == pytest.approx(product, rel=0.02)
