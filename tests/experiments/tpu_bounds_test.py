"""The parts of a prediction that need no compiler of TPUs; `tpu_compile_test.py` has those that do."""

from __future__ import annotations

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import roofline
import tpu_bounds as tpu

from seedzero.config import configs, presets
from seedzero.core import errors, types
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


def test_without_the_compiler_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "libtpu" else name)
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    with pytest.raises(errors.UsageError, match=r"libtpu.*-m pip install 'jax\[tpu\]<"):
        tpu.run(chips="v5e-4")


def test_only_some_chips_have_three_dimensions() -> None:
    names = {name: tpu.topology_name(slice_) for name, slice_ in roofline.SLICES.items()}
    assert names["v5e-1"] == "v5e:1x1" and names["v6e-8"] == "v6e:2x4" and names["v5p-8"] == "v5p:2x2x1"


def test_all_programs_of_the_learner_are_there(small: tuple[setups.Setup, configs.Config]) -> None:
    setup, _ = small
    assert list(tpu.traces(setup)) == [("act", 16), ("act", 8), ("update", 16), ("reanalyse", 8)]
    apart = [("draw", 16), ("learn", 16), ("draw_stale", 8), ("renew", 8)]
    assert list(tpu.traces(setup, on_host=True))[2:] == apart
    without, _ = _setup(**{"reanalyse.per_insert": 0.0})
    assert list(tpu.traces(without))[2:] == [("update", 16)]


def test_traces_are_those_of_the_shapes(small: tuple[setups.Setup, configs.Config]) -> None:
    setup, _ = small
    assert all(trace().function.jaxpr.jaxpr.eqns for trace in tpu.traces(setup, on_host=True).values())
    names = tpu.traces(setup)["reanalyse", 8]().metric_names
    assert "refreshed_share" in names


def test_an_update_of_several_hosts_is_traced_for_the_devices_of_all() -> None:
    settings = {"reanalyse.per_insert": 0.5, "reanalyse.batch_size": 8, "training.num_devices": 1}
    config = configs.override(presets.get("atari", "muzero"), {**TINY, **settings, "cluster.num_hosts": 2})
    setup, everywhere = setups.make(config, PIXELS, meshes.make(1)), meshes.make(2)
    traced = tpu.traces(setup, everywhere)
    assert list(traced) == [("act", 16), ("act", 8), ("update", 32), ("align", 32), ("reanalyse", 8)]
    update = traced["update", 32]()
    text = update.function.lower().as_text()
    assert "collective_permute" in text and "num_partitions = 2" in text
    assert "num_partitions = 1" in traced["act", 8]().function.lower().as_text()


def test_several_hosts_take_as_many_steps_and_their_chips_cost_as_much(
    small: tuple[setups.Setup, configs.Config],
) -> None:
    setup, config = small
    rows = _rows(act=1.6, update=2.0, reanalyse=1.6, align=4.0)
    # 0.7 ms a step, and 4.0 ms a hundredth as often as an update, which is every fourth step.
    found = tpu.predict(rows, setup._replace(num_hosts=4), config, 1e9, 3.0)
    assert found["predicted_steps_per_second"] == pytest.approx(4 * 1e3 / 0.71)
    assert found["predicted_updates_per_second"] == pytest.approx(1e3 / 0.71 / 4)
    assert found["usd_200m_frames"] == pytest.approx(50e6 / (4e3 / 0.71) / 3600 * 3.0 * 8)
    cut = tpu.predict(rows, setup._replace(num_hosts=4), config, 100.0, None)
    assert cut["predicted_steps_per_second"] == 400, "a host's, four times"


def test_hosts_that_no_slice_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with pytest.raises(errors.ConfigError, match=r"--cluster\.num_hosts=3, --chips=v5e-4"):
        tpu.make_setup("catch", {"cluster.num_hosts": 3}, "v5e-4")


def test_collectives_are_counted_with_what_they_bring() -> None:
    text = """
  %ar = f32[10,4]{1,0:T(8,128)} all-reduce(f32[10,4] %x), replica_groups={{0,1}}
  %start = (f32[3]{0}, f32[6]{0}) all-gather-start(f32[3] %y), dimensions={0}
  %done = f32[6]{0} all-gather-done(%start)
  %two = (bf16[8]{0}, pred[2]{0}, u32[]) all-reduce(%a, %b, %c)
  ROOT %r = f32[10]{0} add(%ar, %all-reduce)
"""
    # 40 and 6 numbers of 4 bytes; 8 of 2 bytes, 2 of one, one of 4.
    assert tpu.collectives(text) == (3, 160 + 24 + 16 + 2 + 4)


def test_half_a_ring_keeps_the_stride(small: tuple[setups.Setup, configs.Config]) -> None:
    setup, _ = small
    assert tpu.halved(setup).slot_length == setup.slot_length // 2
    data: Any = setup.agent.data
    strided = setup._replace(agent=setup.agent._replace(data=data._replace(stride=4)), slot_length=20)
    assert tpu.halved(strided).slot_length == 12


def test_calls_follow_from_batches_and_ratios(small: tuple[setups.Setup, configs.Config]) -> None:
    setup, config = small
    calls = tpu.calls_per_step(setup, config)
    # 4 samples of each step in batches of 16; half a position of each step in batches of 8.
    assert calls["act"] == 1 / 16 and calls["update"] == calls["learn"] == 4 / 16 and calls["reanalyse"] == 0.5 / 8


def test_a_queue_learns_from_every_step_once() -> None:
    setup, config = _setup("vtrace")
    data: Any = setup.agent.data
    calls = tpu.calls_per_step(setup, config)
    assert calls["update"] == 1 / (data.batch_size * data.length) and calls["reanalyse"] == 0


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


def test_groups_of_devices_work_at_once() -> None:
    """Eight rows of a call on the device that acts, and all of an update on the other."""
    setup, config = _setup(**{"training.acting_devices": 1, "reanalyse.per_insert": 0.5, "reanalyse.batch_size": 8})
    names = [("act", 16), ("act", 8), ("draw", 16), ("learn", 16), ("reanalyse", 8)]
    assert list(tpu.traces(setup)) == names
    assert all(trace().function.jaxpr.jaxpr.eqns for trace in tpu.traces(setup).values())
    rows = _rows(act=1.6, draw=0.4, learn=2.0, reanalyse=1.6)
    # 1.6 / 16 + 0.4 / 4 + 1.6 / 16 ms a step, and 2.0 / 4.
    found = tpu.predict(rows, setup, config, None, 3.0)
    assert found["acting_steps_per_second"] == pytest.approx(1e3 / 0.3)
    assert found["learning_steps_per_second"] == found["device_steps_per_second"] == pytest.approx(1e3 / 0.5)
    assert found["predicted_updates_per_second"] == pytest.approx(1e3 / 0.5 / 4)
    assert found["usd_200m_frames"] == pytest.approx(50e6 / 2e3 / 3600 * 3.0 * 2)
    prioritized, _ = _setup(**{"training.acting_devices": 1, "replay.priority_alpha": 0.6})
    assert ("write_back", 16) in tpu.traces(prioritized)


def test_loops_are_found_with_their_trips() -> None:
    def inner(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, y: jnp.sin(y), x)

    def function(x: jax.Array, n: jax.Array) -> jax.Array:
        x = jax.jit(lambda x: jax.lax.fori_loop(2, 7, lambda _, y: inner(y) + 1, x))(x)
        return jax.lax.fori_loop(0, n, lambda _, y: y * 2, x)

    traced = jax.jit(function).trace(jnp.ones(4), 3)
    assert [trips for _, trips in tpu.loops(traced.jaxpr.jaxpr)] == [5, None]  # not those within


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
