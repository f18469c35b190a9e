"""Compares the whole acting program with the agent alone, and with its networks alone, in the same batches.

- The program is the learner's: it takes a batch from the host, pushes frames, searches and writes to rings.
- The agent alone pushes frames and searches, without slots and rings.
- The networks alone are the minimum of any search: the root, and one model call for each simulation, in a loop.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.core import types
from seedzero.device import acting, batches, meshes, states, steps
from seedzero.interfaces.benchmark import subjects
from seedzero.networks import observations


def run(preset: str = "", settings: subjects.Settings | None = None, *, seconds: float = 12.0) -> dict[str, Any]:
    """Returns "simulations", and a row for each batch size (rows of all devices) of a preset's learner."""
    subject = subjects.make(preset, settings or {})
    params = states.init_train(subject.setup, subject.config.run.seed).params
    rows = [_row(subject, params, size, seconds / len(subject.setup.sizes)) for size in subject.setup.sizes]
    return {**subjects.facts(subject), "simulations": subject.config.search.num_simulations, "rows": rows}


def _row(subject: subjects.Subject, params: base.Params, num_rows: int, seconds: float) -> subjects.Row:
    batch = subjects.batch(subject, num_rows)
    programs = {
        "program": _program(subject, params, batch),
        "act": _act(subject, params, batch),
        "network": _network(subject, params, len(batch.slot)),
    }
    slices = subjects.interleave(programs, seconds=seconds)
    milliseconds = subjects.milliseconds(slices, "program")
    return {
        "batch": len(batch.slot),
        "milliseconds": milliseconds,
        "environment_steps_per_second": 1e3 * len(batch.slot) / milliseconds,
        **subjects.against(slices, "program", "act", "network"),
    }


def _program(subject: subjects.Subject, params: base.Params, batch: batches.Batch) -> subjects.Program:
    act = functools.partial(acting.make_act(subject.setup), subject.seed, params)
    actor, num_inserts = subjects.filled_actor(subject), int(subject.num_inserts)
    return subjects.carrying(lambda actor, call: act(actor, batch, steps.counters(num_inserts, 0, call)), actor)


def _act(subject: subjects.Subject, params: base.Params, batch: batches.Batch) -> subjects.Program:
    setup = subject.setup

    def act(params: base.Params, carried: acting.Carried, seen: batches.Batch, call: jax.Array) -> Any:
        key = jax.random.fold_in(jax.random.key(1), call)
        return acting.act(setup.agent, setup.spec, setup.layout.num_train, params, carried, seen, key)

    in_specs = (meshes.REPLICATED, meshes.SHARDED, meshes.SHARDED, meshes.REPLICATED)
    mapped = meshes.over_devices(act, setup.mesh, in_specs, meshes.SHARDED, donate=(1,))
    initial = acting.initial(setup.agent, setup.spec, len(batch.slot))
    carried = jax.device_put(initial, meshes.sharded(setup.mesh))
    # They are on the host, as in the program, so both are copied to the device.
    seen = batch._replace(terminated=None, truncated=None, task=None, ring=None)
    return subjects.carrying(lambda carried, call: mapped(params, carried, seen, np.int32(call)), carried)


def _network(subject: subjects.Subject, params: base.Params, num_rows: int) -> subjects.Program:
    setup, cast, num_simulations = subject.setup, subject.parts.network.cast, subject.config.search.num_simulations
    model = setup.agent.model
    assert model is not None

    def evaluate(params: base.Params, observation: dict[str, jax.Array]) -> Any:
        size, params = len(jax.tree.leaves(observation)[0]), cast(params)

        def simulate(embedding: Any, simulation: jax.Array) -> tuple[Any, Any]:
            embedding, reward = model.dynamics(params, embedding, _action(setup.spec, size, simulation))
            return embedding, (model.predict(params, embedding), reward)

        root = model.represent(params, observation)
        _, found = jax.lax.scan(simulate, root, jnp.arange(num_simulations))
        return model.predict(params, root), jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), found)

    mapped = meshes.over_devices(evaluate, setup.mesh, (meshes.REPLICATED, meshes.SHARDED), meshes.SHARDED)
    observation = observations.zeros(setup.spec, setup.agent.stack, num_rows)
    observation = jax.device_put(observation, meshes.sharded(setup.mesh))
    return lambda: mapped(params, observation)


def _action(spec: types.EnvSpec, num_rows: int, number: jax.Array) -> jax.Array:
    """Returns the same action for every row; the middle of the bounds if actions are continuous."""
    if spec.is_continuous:
        return jnp.zeros((num_rows, *spec.action_shape))
    return jnp.full(num_rows, number % spec.num_actions, jnp.int32)
