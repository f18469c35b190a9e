"""What the TPU's own compiler says of the learner's programs: `scripts/test --tpu`; each takes minutes on two cores.

Networks and searches are small where their size is not what is looked at.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest
import tpu_bounds as tpu

from seedzero.device import states
from seedzero.replay import ring_store

pytestmark = [
    pytest.mark.tpu,
    pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu: pip install '.[tpu]'"),
]

CHIPS = ("v5e-1", "v5e-4", "v5e-8")
SMALL: Mapping[str, Mapping[str, str | int]] = {
    "muzero": {
        "network.resnet_size": "small",
        "network.width": 16,
        "network.head_width": 16,
        "search.num_simulations": 4,
        "search.num_considered": 2,
        "muzero.unroll_steps": 2,
    },
    "vtrace": {},
}
ATARI = {**SMALL["muzero"], "replay.batch_size": 64, "replay.capacity": 200_000}
"""Of 200 thousand steps, frames take 1.8 GB; all else that is in an update's memory is small beside it."""

PRESETS = [
    *(("muzero", name) for name in ("atari", "atari-100k", "atari-large", "pixels")),  # images
    *(("muzero", name) for name in ("catch", "minatar", "tictactoe", "connect_four", "spiel")),  # grids
    *(("muzero", name) for name in ("cartpole", "vector", "continuous")),  # vectors
    *(("vtrace", name) for name in ("atari", "catch", "cartpole")),
]
TEMPORARY_SHARE = 0.25
"""Most temporary memory of a program, as a share of its arguments, where a replay of frames is among them."""

SMALL_SHARE = 0.05
"""Most of the moved bytes that may grow with the replay: sampling weights and small fields."""

FRAMES_SHARE = 0.1
"""Most bytes that a program may move more, as a share of the added frames'; a copy of them would be 2. Small fields,
which are copied, are about 0.03."""


@functools.cache
def _program(name: str, capacity: int) -> tpu.TpuProgram:
    """Returns a program of the atari preset on one chip."""
    traces, _ = _atari(capacity)
    return tpu.compile_program(traces[name], tpu.make_mesh("v5e-1"))


@functools.cache
def _atari(capacity: int) -> tuple[dict[str, Any], Any]:
    """Returns what traces each program of the atari preset on one chip, the largest act alone, and the setup."""
    settings = {**ATARI, "replay.capacity": capacity, "reanalyse.per_insert": 0.5, "replay.priority_alpha": 0.6}
    setup, _ = tpu.make_setup("atari", settings, "v5e-1")
    traces = {
        name: trace for (name, rows), trace in tpu.traces(setup).items() if rows == setup.max_rows or name != "act"
    }
    return traces, setup


@pytest.mark.parametrize("chips", CHIPS)
@pytest.mark.parametrize(("agent", "preset"), PRESETS, ids=lambda value: value)
def test_every_preset_compiles(agent: str, preset: str, chips: str) -> None:
    settings: dict[str, str | int] = {**SMALL[agent], "run.agent": agent}
    if preset == "pixels":  # 200 thousand steps of its frames take 20 GB
        settings["replay.capacity"] = 100_000
    setup, _ = tpu.make_setup(preset, settings, chips)
    for (name, rows), trace in tpu.traces(setup).items():
        if name != "act" or rows == setup.max_rows:
            program = tpu.compile_program(trace, setup.mesh)
            assert program.cost.flop > 0 and program.cost.moved_bytes > 0, name


@pytest.mark.parametrize(("chips", "num_acting"), [("v5e-4", 2), ("v5e-8", 4)])
def test_chips_that_act_and_chips_that_learn_compile(chips: str, num_acting: int) -> None:
    setup, _ = tpu.make_setup("cartpole", {"training.acting_devices": num_acting}, chips)
    found = set()
    for (name, rows), trace in tpu.traces(setup).items():
        if name != "act" or rows == setup.max_rows:
            program = tpu.compile_program(trace, setup.learns_on if name == tpu.LEARN else setup.mesh)
            assert program.cost.flop > 0 and program.cost.moved_bytes > 0, name
            found.add(name)
    assert found == {"act", "draw", "learn"}


def test_an_update_of_four_hosts_waits_twice_for_the_others() -> None:
    setup, _ = tpu.make_setup("catch", {"cluster.num_hosts": 4, "network.width": 16}, "v5e-4")
    everywhere = tpu.make_mesh("v5e-4", 4)
    (trace,) = [trace for (name, _), trace in tpu.traces(setup, everywhere).items() if name == "update"]
    number, num_bytes = tpu.collectives(tpu.compile_program(trace, everywhere).compiled.as_text())
    assert number == 2 and num_bytes > 0


@pytest.mark.parametrize("name", ["act", "update", "reanalyse"])
def test_temporary_memory_is_small_beside_the_replay(name: str) -> None:
    memory = _program(name, ATARI["replay.capacity"]).compiled.memory_analysis()
    assert memory.temp_size_in_bytes < TEMPORARY_SHARE * memory.argument_size_in_bytes


@pytest.mark.parametrize("name", ["act", "update", "reanalyse"])
def test_a_larger_replay_moves_hardly_more(name: str) -> None:
    capacity = int(ATARI["replay.capacity"])
    once, twice = (_program(name, size).counted.moved_bytes for size in (capacity, 2 * capacity))
    _, setup = _atari(capacity)
    added_frames = capacity * int(np.prod(setup.spec.observation_shape))
    assert twice - once < FRAMES_SHARE * added_frames
    assert twice - once < SMALL_SHARE * once


@pytest.mark.parametrize("name", ["act", "update", "reanalyse"])
def test_states_are_updated_in_place(name: str) -> None:
    capacity = int(ATARI["replay.capacity"])
    _, setup = _atari(capacity)
    memory = _program(name, capacity).compiled.memory_analysis()
    actor, train = states.abstract_actor(setup), states.abstract_train(setup)
    donated = {"act": actor, "update": (train, actor.rings), "reanalyse": actor.rings}[name]
    num_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(donated))
    assert memory.alias_size_in_bytes >= num_bytes  # layouts may add padding
    assert memory.output_size_in_bytes - memory.alias_size_in_bytes < 2**16  # actions, or metrics


@pytest.mark.parametrize("shape", [(96, 96, 1), (84, 84, 3), (72, 96, 3), (210, 160, 3)], ids=str)
@pytest.mark.parametrize("length", [160, 1001, 1728])
def test_frames_of_any_shape_are_written_and_read_in_place(shape: tuple[int, ...], length: int) -> None:
    replicated = jax.sharding.NamedSharding(tpu.make_mesh("v5e-1"), jax.sharding.PartitionSpec())

    def struct(like: Any) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=replicated), like)

    frames = struct(jax.eval_shape(lambda: ring_store.zero_rows(32, length, shape, np.dtype(np.uint8))))
    places, new = struct(np.zeros(16, np.int32)), struct(np.zeros((16, *shape), np.uint8))
    put = jax.jit(functools.partial(ring_store.put_rows, unique=True), donate_argnums=0)
    for lowered in (
        put.lower(frames, places, places, new),
        jax.jit(ring_store.get_frames).lower(frames, places, places),
    ):
        assert lowered.compile().memory_analysis().temp_size_in_bytes < 0.1 * 32 * length * np.prod(shape)


def test_a_simulation_has_no_loop() -> None:
    settings = {**ATARI, "search.num_simulations": 16, "search.num_considered": 4}
    setup, _ = tpu.make_setup("atari", settings, "v5e-1")
    traced = tpu.traces(setup)["act", setup.max_rows]()
    sweeps = [trips for _, trips in tpu.loops(traced.function.jaxpr.jaxpr) if trips != 1]
    # Those over sweeps of one width are all that is left: 4, 4, then 2, 2, 2, 2 actions.
    assert sweeps == [2, 4]
    assert len(re.findall(r" while\(", traced.compile().as_text())) == len(sweeps)


_KEYS = f"""
import hashlib
import tpu_bounds as tpu
setup, _ = tpu.make_setup("atari", {dict(ATARI)!r}, "v5e-4")
for (name, _), trace in tpu.traces(setup).items():
    print(name, hashlib.sha256(trace().function.lower().as_text().encode()).hexdigest())
"""


def test_every_process_asks_the_compiler_for_the_same_programs() -> None:
    """All else in a key of XLA's cache is the compiler's version and the machine's."""
    found = [
        subprocess.run(
            [sys.executable, "-c", _KEYS],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.path.dirname(tpu.__file__)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] and found[0].count("act ") >= 1 and found[0].count("update ") == 1
