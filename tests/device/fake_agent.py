"""An agent of two numbers, and device functions over it: small enough that all it does is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seedzero.agents import base, learning
from seedzero.core import types
from seedzero.device import batches, meshes, setups
from seedzero.replay import sources, windowing

SPEC = types.EnvSpec((1,), "float32", 100)
_WHOLE = sources.Stored((), np.dtype(np.int32))
STORED = {"slot": _WHOLE, "task": _WHOLE, "target": sources.Stored((), np.dtype(np.float32))}
SEED = np.int32(0)
ONE_ROW = sources.Replay(length=1, observe=(0,))


def refreshing_after(agent: base.Agent, min_age: int) -> base.Agent:
    """Returns an agent whose targets, if it reanalyses any, are old after so many updates."""
    return agent._replace(reanalyse=agent.reanalyse and agent.reanalyse._replace(min_age=min_age))


def make(
    data: sources.Replay | sources.Queue = ONE_ROW,
    *,
    stack: int = 1,
    stored: Mapping[str, sources.Stored] | None = None,
    acting: Callable[[base.TrainState], base.Params] = lambda state: state.params,
    reanalyse: base.Reanalyse | None = None,
) -> base.Agent:
    """Returns the agent; stored: more arrays, which get the numbers of an environment's steps."""
    return base.Agent(
        data=data,
        stack=stack,
        stored={**STORED, **(stored or {})},
        init=lambda key: learning.init({"weight": jnp.ones(()), "bias": jnp.zeros(())}, optax.identity()),
        acting=acting,
        initial_memory=lambda num_slots: jnp.zeros(num_slots, jnp.int32),
        act=lambda params, memory, inputs, key: _act(stored or {}, memory, inputs),
        update=_update,
        reanalyse=reanalyse,
    )


def _act(
    stored: Mapping[str, sources.Stored], memory: base.Memory, inputs: base.Inputs
) -> tuple[base.Memory, base.Outputs]:
    """Counts steps, and answers with the environment's slot; a priority is the reward."""
    memory = memory + 1
    found = {"slot": inputs.slot, "task": inputs.task, "target": jnp.zeros_like(inputs.reward)}
    found |= dict.fromkeys(stored, memory)
    return memory, base.Outputs(inputs.slot, found, priority=inputs.reward)


def _update(
    state: learning.TrainState, windows: windowing.Windows, key: jax.Array, axis_name: str | None
) -> tuple[learning.TrainState, jax.Array, base.Metrics]:
    """Predicts the sum of a window's rewards from its first number."""
    number = windows.observation[types.OBSERVATION][:, 0, 0]
    total = jnp.sum(jnp.where(windows.valid, windows.reward, 0.0), axis=1)

    def loss(params: base.Params) -> tuple[jax.Array, tuple[base.Metrics, None]]:
        error = params["weight"] * number + params["bias"] - total
        loss = jnp.mean(windows.weight * jnp.square(error))
        return loss, ({"loss": loss, "time_mean": jnp.mean(windows.weight * windows.time)}, None)

    gradients, metrics, _ = learning.gradients(loss, state.params, axis_name)
    schedule = optax.constant_schedule(0.01)
    state, metrics = learning.apply_gradients(state, gradients, metrics, optimizer=optax.identity(), schedule=schedule)
    return state, jnp.abs(total), metrics


def make_setup(
    agent: base.Agent,
    num_devices: int = 1,
    *,
    num_train: int = 4,
    num_evaluate: int = 0,
    slot_length: int = 12,
    batch_size: int = 4,
    sizes: tuple[int, ...] = (8,),
    spec: types.EnvSpec = SPEC,
    ahead: bool = True,
) -> setups.Setup:
    return setups.Setup(
        agent=agent,
        spec=spec,
        mesh=meshes.make(num_devices),
        layout=batches.Layout(num_devices, num_train, num_evaluate),
        sizes=sizes,
        slot_length=slot_length,
        batch_size=batch_size,
        capacity=1_000,
        ahead=ahead,
    )


def batch(setup: setups.Setup, slots: list[int], **arrays: Any) -> tuple[batches.Batch, np.ndarray]:
    """Returns a batch with these global slots and arrays of theirs, in the middle of episodes, and their rows."""
    num_rows = setup.sizes[-1]
    shard, local = setup.layout.place(np.array(slots))
    padded = batches.padding(setup.spec, setup.layout, num_rows)
    rows = shard * num_rows + np.arange(len(slots))
    padded.slot[rows] = padded.ring[rows] = local
    padded.first[rows] = False
    for name, array in arrays.items():
        getattr(padded, name)[rows] = array
    return padded, rows
