"""One of two hosts of `across_test.py`, as a process: INDEX ADDRESS DIRECTORY AGENT.

It learns from its half of the rings in DIRECTORY, and writes its train state and rings there.
"""

from __future__ import annotations

import pathlib
import sys

import jax
import numpy as np

from seedzero.config import configs
from seedzero.core import types
from seedzero.device import across, collectives, meshes, setups, states, steps, strategies, tracing
from seedzero.replay import ring_store

SPEC = types.EnvSpec((4, 4, 1), "uint8", 3)
SHARED = {
    "network.width": 8,
    "search.num_simulations": 2,
    "worker.envs_per_group": 4,
    "worker.num_groups": 1,
    "batcher.max_batch": 4,
}
AGENTS = {
    "muzero": {"replay.priority_alpha": 0.6},
    "ppo": {"ppo.unroll_length": 4, "network.width": 8},
    "apex": {"replay.priority_alpha": 0.6, "network.width": 8},
}
STORED = 44
"""Steps in all rings together."""
NUM_UPDATES = 1


def make(agent: str, num_hosts: int, num_devices: int) -> setups.Setup:
    """Returns the setup of a host with its share of 4 slots and 8 windows (MuZero) or 4 unrolls (PPO)."""
    sizes = {"replay.num_slots": 4, "replay.batch_size": 8, "replay.capacity": 128}
    shares = {name: size // num_hosts for name, size in sizes.items()}
    shares |= {
        "ppo.batch_size": 4 // num_hosts,
        "batcher.max_batch": 4 // num_hosts,
        "cluster.num_hosts": num_hosts,
    }
    values = {**SHARED, **AGENTS[agent], **shares, "run.agent": agent, "worker.envs_per_group": 4 // num_hosts}
    return setups.make(configs.override(configs.Config(), values), SPEC, meshes.make(num_devices))


def learn(
    made: setups.Setup, learning: strategies.Strategy, rings: ring_store.Rings, steps_stored: int
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Returns the train state, by path, and the rings after some updates from these rings; donates them."""
    train, actor = states.abstract_train(made), states.abstract_actor(made)
    tracer = tracing.ProgramTracer(made, train, actor, learning.held)
    update = {name: trace().compile() for name, trace in learning.trace_update(tracer).items()}
    trained = states.init_train(made, 3)
    if isinstance(learning, across.AcrossHosts):
        trained = learning.spread(trained)
    for number in range(NUM_UPDATES):
        feed = np.int32(steps_stored)
        if not made.agent.samples:
            example = steps.example_feed(made)
            feed = example._replace(weight=np.ones_like(example.weight))
        trained, rings, values = learning.run_update(update, (np.int32(3), trained, rings), feed, number)
    assert np.all(np.isfinite(np.asarray(values)))
    leaves = jax.tree_util.tree_leaves_with_path(meshes.own(trained))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}, host_arrays(rings)


def host_arrays(rings: ring_store.Rings) -> list[np.ndarray]:
    """Returns a host's rings as numpy's arrays."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(rings)]


def half(made: setups.Setup, whole: list[np.ndarray], index: int) -> ring_store.Rings:
    """Returns the rings of one of two hosts."""
    like = states.abstract_actor(made).rings
    leaves, structure = jax.tree.flatten(like)
    parts = [array[index * leaf.shape[0] :][: leaf.shape[0]] for array, leaf in zip(whole, leaves, strict=True)]
    placed = [jax.device_put(part, leaf.sharding) for part, leaf in zip(parts, leaves, strict=True)]
    found: ring_store.Rings = jax.tree.unflatten(structure, placed)
    return found


def main() -> None:
    """Learns as a host."""
    index, address, directory, agent = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4]
    jax.distributed.initialize(address, 2, index, coordinator_bind_address=address)
    collectives.use_gloo("127.0.0.1")
    made = make(agent, 2, 1)
    with np.load(directory / "rings.npz") as saved:
        rings = half(made, [saved[f"arr_{number}"] for number in range(len(saved.files))], index)
    train, after = learn(made, across.AcrossHosts(made, 3), rings, STORED)
    np.savez(directory / f"train-{index}.npz", **train)
    np.savez(directory / f"rings-{index}.npz", *after)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
