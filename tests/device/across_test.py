"""Updates over the devices of all hosts; here of one host, whose arrays are all there are.

`tests/e2e/hosts_run_test.py` has two.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest

from seedzero.config import config as configs
from seedzero.core import types
from seedzero.device import across, acting, steps, tracing
from seedzero.device import batch as batches
from seedzero.device import mesh as meshes
from seedzero.device import setup as setups
from seedzero.device import state as states
from seedzero.device import strategy as strategies

SPEC = types.EnvSpec((4, 4, 1), "uint8", 3)
SHARED = {
    "network.width": 8,
    "search.num_simulations": 2,
    "worker.envs_per_group": 4,
    "worker.num_groups": 1,
    "replay.num_slots": 4,
    "replay.capacity": 128,
    "replay.batch_size": 8,
    "batcher.max_batch": 4,
}
AGENTS = {
    "muzero": {"replay.priority_alpha": 0.6},
    "ppo": {"ppo.batch_size": 4, "ppo.unroll_length": 4, "ppo.width": 8},
}


@pytest.fixture(scope="module", params=sorted(AGENTS))
def made(request: pytest.FixtureRequest) -> setups.Setup:
    values = {**SHARED, **AGENTS[request.param], "run.agent": request.param}
    return setups.make(configs.override(configs.Config(), values), SPEC, meshes.make(2))


def _learned(made: setups.Setup, learning: strategies.Strategy) -> list[np.ndarray]:
    """Returns the arrays of train state and rings after some steps and updates."""
    train, actor = states.abstract_train(made), states.abstract_actor(made)
    tracer = tracing.ProgramTracer(made, train, actor, learning.held)
    act = tracer.act(made.sizes[-1]).compile()
    update = {name: trace().compile() for name, trace in learning.trace_update(tracer).items()}
    trained, acted = states.init_train(made, 3), states.init_actor(made)
    if isinstance(learning, across.AcrossHosts):
        trained = learning.spread(trained)
    rows = batches.padding(SPEC, made.layout, made.sizes[-1])
    slots = np.tile(np.arange(made.sizes[-1], dtype=np.int32), made.layout.num_shards)
    random = np.random.RandomState(0)
    for step in range(12):
        shown = random.randint(0, 255, rows.observation.shape).astype(np.uint8)
        reward = random.rand(len(rows.reward)).astype(np.float32)
        first = np.full(len(slots), step == 0)
        given = rows._replace(observation=shown, reward=reward, slot=slots, ring=slots, first=first)
        params = learning.copy(made.agent.acting(trained))
        acted, _ = act(np.int32(3), params, acted, given, steps.counters(4 * step, 0, step))
    for number in range(2):
        feed = steps.example_feed(made) if not made.agent.samples else np.int32(44)
        trained, rings, values = learning.run_update(update, (np.int32(3), trained, acted.rings), feed, number)
        acted = acting.ActorState(acted.carried, rings)
    assert np.all(np.isfinite(np.asarray(values)))
    return [np.asarray(leaf) for leaf in jax.tree.leaves((meshes.own(trained), acted.rings))]


def test_one_host_alone_learns_the_same_bits(made: setups.Setup) -> None:
    alone, together = _learned(made, strategies.Strategy()), _learned(made, across.AcrossHosts(made, 3))
    assert len(alone) == len(together)
    assert all(one.tobytes() == other.tobytes() for one, other in zip(alone, together, strict=True))


def test_a_broadcast_keeps_every_bit() -> None:
    tree = {"a": np.array([-0.0, np.nan, 1e-45], np.float32), "b": (np.arange(3, dtype=np.int32), np.bool_(True))}
    found = across.broadcast(tree)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
