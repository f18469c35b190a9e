"""Updates over the devices of all hosts: of one, bit for bit as without; of two, as one host with as many devices."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
from typing import Any

import across_program
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quick_xla

from seedzero.device import across, batches, meshes, setups, states, steps, strategies, tracing
from seedzero.storage.checkpoints import trees

SPEC = across_program.SPEC


_SLOW = ("muzero",)  # tests/e2e/hosts_run_test.py has two hosts with it
_CASES = [pytest.param(x, marks=pytest.mark.slow if x in _SLOW else ()) for x in sorted(across_program.AGENTS)]


@pytest.fixture(scope="module", params=_CASES)
def agent(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def filled(agent: str) -> list[np.ndarray]:
    """The rings of one host with two devices, after acting."""
    made = across_program.make(agent, 1, 2)
    train, actor = states.abstract_train(made), states.abstract_actor(made)
    tracer = tracing.ProgramTracer(made, train, actor, strategies.Strategy().held)
    act = tracer.act(made.sizes[-1]).compile()
    trained, acted = states.init_train(made, 3), states.init_actor(made)
    rows = batches.padding(SPEC, made.layout, made.sizes[-1])
    slots = np.tile(np.arange(made.sizes[-1], dtype=np.int32), made.layout.num_shards)
    random = np.random.RandomState(0)
    for step in range(across_program.STORED // 4 + 1):
        shown = random.randint(0, 255, rows.observation.shape).astype(np.uint8)
        reward = random.rand(len(rows.reward)).astype(np.float32)
        first = np.full(len(slots), step == 0)
        given = rows._replace(observation=shown, reward=reward, slot=slots, ring=slots, first=first)
        params = strategies.Strategy().copy(made.agent.acting(trained))
        acted, _ = act(np.int32(3), params, acted, given, steps.counters(4 * step, 0, step))
    return across_program.host_arrays(acted.rings)


def _learned(
    made: setups.Setup, learning: strategies.Strategy, filled: list[np.ndarray]
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    return across_program.learn(made, learning, across_program.half(made, filled, 0), across_program.STORED)


Learned = tuple[dict[str, np.ndarray], list[np.ndarray]]


@pytest.fixture(scope="module")
def alone(agent: str, filled: list[np.ndarray]) -> Learned:
    """The state and the rings after learning without other hosts."""
    return _learned(across_program.make(agent, 1, 2), strategies.Strategy(), filled)


@pytest.mark.thorough
def test_one_host_alone_learns_the_same_bits(agent: str, filled: list[np.ndarray], alone: Learned) -> None:
    made = across_program.make(agent, 1, 2)
    together = _learned(made, across.AcrossHosts(made, 3), filled)
    assert all(one.tobytes() == together[0][name].tobytes() for name, one in alone[0].items())
    assert all(one.tobytes() == other.tobytes() for one, other in zip(alone[1], together[1], strict=True))


@pytest.mark.thorough
def test_hosts_wait_for_each_other_twice_an_update_of_muzero_with_priorities() -> None:
    made = across_program.make("muzero", 1, 2)
    learning = across.AcrossHosts(made, 3)
    tracer = tracing.ProgramTracer(made, states.abstract_train(made), states.abstract_actor(made), learning.held)
    traced = learning.trace_update(tracer)["update"]().function
    assert traced.lower().as_text().count("stablehlo.collective_permute") == 2


@pytest.mark.thorough
def test_two_hosts_learn_as_one_with_their_devices(
    agent: str, filled: list[np.ndarray], alone: Learned, tmp_path: pathlib.Path
) -> None:
    state, rings = alone
    np.savez(tmp_path / "rings.npz", *filled)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    program = [sys.executable, across_program.__file__]
    environment = {**os.environ, "XLA_FLAGS": quick_xla.flags()}
    words = [[*program, str(index), address, str(tmp_path), agent] for index in range(2)]
    hosts = [subprocess.Popen(command, env=environment) for command in words]
    assert [host.wait(1500) for host in hosts] == [0, 0]
    found = [np.load(tmp_path / f"train-{index}.npz") for index in range(2)]
    stored = [np.load(tmp_path / f"rings-{index}.npz") for index in range(2)]
    num_moments = 0
    for name, one in state.items():
        first, second = (each[name] for each in found)
        assert first.tobytes() == second.tobytes()
        if ".mu" in name:  # Adam would make steps of rounding errors where a gradient is 0
            np.testing.assert_allclose(first, one, rtol=1e-3, atol=1e-6)
            num_moments += bool(np.any(one))
    assert num_moments >= 4
    for number, one in enumerate(rings):
        joined = np.concatenate([each[f"arr_{number}"] for each in stored])
        np.testing.assert_allclose(joined.astype(np.float64), one.astype(np.float64), rtol=2e-4, atol=2e-6)


def _on_devices(made: setups.Setup, *trees: Any) -> Any:
    """Returns a tree over the devices of a mesh, of which each has its own values."""
    everywhere = meshes.replicated(made.mesh)

    def joined(*leaves: Any) -> jax.Array:
        placed = [jax.device_put(leaf, device) for leaf, device in zip(leaves, made.mesh.devices, strict=True)]
        return jax.make_array_from_single_device_arrays(leaves[0].shape, everywhere, placed)

    return jax.tree.map(joined, *trees)


@pytest.mark.parametrize("part", ["", "float", "half", "whole", "flag", "key", "swapped"])
def test_where_one_bit_differs_all_devices_take_the_first_ones(part: str) -> None:
    def tree() -> dict[str, Any]:
        return {
            "float": np.array([-0.0, np.nan, 1e-45, 3.0], np.float32),
            "half": jnp.array([1.0, -0.0], jnp.bfloat16),
            "whole": np.arange(3, dtype=np.int32),
            "flag": np.bool_(True),
            "key": jax.random.key(3),
            "nothing": np.zeros((0, 2), np.float32),
        }

    changes: dict[str, dict[str, Any]] = {
        "float": {"float": np.array([0.0, np.nan, 1e-45, 3.0], np.float32)},
        "half": {"half": jnp.array([1.0, 0.0], jnp.bfloat16)},
        "whole": {"whole": np.array([0, 1, 3], np.int32)},
        "flag": {"flag": np.bool_(False)},
        "key": {"key": jax.random.key(4)},
        "swapped": {"whole": np.array([1, 0, 2], np.int32)},
    }
    made = across_program.make("ppo", 1, 2)
    other: Any = {**tree(), **changes.get(part, {})}
    aligned, checksums = across.make_align(made)(np.int32(0), _on_devices(made, tree(), other))
    assert (len(set(np.asarray(checksums).tolist())) == 1) == (not part)
    for leaf, expected in zip(jax.tree.leaves(trees.copy(aligned)), jax.tree.leaves(trees.copy(tree())), strict=True):
        assert [np.asarray(shard).tobytes() for shard in meshes.parts(leaf)] == [np.asarray(expected).tobytes()] * 2


def test_a_broadcast_keeps_every_bit() -> None:
    tree = {"a": np.array([-0.0, np.nan, 1e-45], np.float32), "b": (np.arange(3, dtype=np.int32), np.bool_(True))}
    found = across.broadcast(tree)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
