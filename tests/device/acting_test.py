"""Frames and memory that environments carry from step to step."""

from __future__ import annotations

import functools
from typing import Any

import fake_agent
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.core import types
from seedzero.device import acting, batches, states, steps

SPEC = types.EnvSpec((2, 2, 1), "uint8", 3, observation_high=9)
SHOWN = [(1, True), (2, False), (3, False), (4, False), (7, True), (8, False)]
STACKS = [[1, 1, 1], [1, 1, 2], [1, 2, 3], [2, 3, 4], [7, 7, 7], [7, 7, 8]]


def test_without_a_stack_environments_carry_no_frames() -> None:
    carried = acting.initial(fake_agent.make(), SPEC, 5)
    assert carried.past == {} and carried.memory.shape == (5,)
    frame = jnp.ones((5, 2, 2, 1), jnp.uint8)
    past, stacked = acting.push(SPEC, 1, {}, frame, jnp.zeros(5, bool))
    assert past == {} and stacked[types.OBSERVATION].tolist() == frame.tolist()


def test_a_number_alone_is_seen_as_a_vector() -> None:
    spec = types.EnvSpec((), "int32", 2)
    past = acting.initial(fake_agent.make(stack=2), spec, 2).past
    assert past[types.OBSERVATION].shape == (2, 1)
    past, stacked = acting.push(spec, 2, past, jnp.array([5, 6], jnp.int32), jnp.array([True, False]))
    assert stacked[types.OBSERVATION].tolist() == [[5, 5], [0, 6]]
    _, alone = acting.push(spec, 1, {}, jnp.array([5, 6], jnp.int32), jnp.array([True, False]))
    assert alone[types.OBSERVATION].tolist() == [[5], [6]]


def test_the_agent_knows_the_updates_of_its_parameters_and_reports_its_own_metrics() -> None:
    agent = fake_agent.make()

    def act(params: Any, memory: Any, inputs: base.Inputs, key: Any) -> Any:
        memory, outputs = agent.act(params, memory, inputs, key)
        metrics = {"epsilon": inputs.reward / (1.0 + inputs.num_updates), "own": inputs.own & (inputs.reward > 0)}
        return memory, outputs._replace(metrics=metrics)

    setup = fake_agent.make_setup(agent._replace(act=act))
    batch, rows = fake_agent.batch(setup, [0, 2], reward=np.array([4.0, 8.0]))
    params = {"weight": jnp.ones(()), "bias": jnp.zeros(())}
    program = acting.make_act(setup)
    for own in (True, False):
        counters = steps.counters(0, 3, 0, own=own)
        _, (action, metrics) = program(fake_agent.SEED, params, states.init_actor(setup), batch, counters)
        assert np.asarray(metrics["own"])[rows].any() == own
    assert np.asarray(action)[rows].tolist() == [0, 2] and metrics.keys() == {"epsilon", "own"}
    assert np.asarray(metrics["epsilon"])[rows].tolist() == [1.0, 2.0]


def test_channels_of_a_frame_stay_together() -> None:
    spec = types.EnvSpec((1, 2), "float32", 2)
    past = {types.OBSERVATION: jnp.array([[[1.0, 2.0, 3.0, 4.0]]])}
    past, stacked = acting.push(spec, 3, past, jnp.array([[[5.0, 6.0]]]), jnp.array([False]))
    assert stacked[types.OBSERVATION].tolist() == [[[1, 2, 3, 4, 5, 6]]]
    assert past[types.OBSERVATION].tolist() == [[[3, 4, 5, 6]]]


@pytest.mark.parametrize("jit", [False, True])
def test_the_agent_acts_on_stacks_and_all_else_that_environments_show(jit: bool) -> None:
    """Each row has a stack and a memory of its own; one episode begins anew while the other goes on."""

    def act(params: Any, memory: Any, inputs: base.Inputs, key: jax.Array) -> tuple[Any, base.Outputs]:
        assert inputs.num_slots == 9
        given: Any = {"params": params, "memory": memory, "key": jax.random.key_data(key), "inputs": inputs}
        return memory + 10, base.Outputs(inputs.slot, given)

    agent = fake_agent.make(stack=3)._replace(act=act)
    carried, step = acting.initial(agent, SPEC, 2), functools.partial(acting.act, agent, SPEC, 9)
    step, stacks = jax.jit(step) if jit else step, []
    for index, (number, first) in enumerate(SHOWN):
        frame = np.full((2, 2, 2, 1), number, np.uint8)
        frame[1] += 20
        seen = batches.Batch(
            observation=jnp.asarray(frame),
            reward=jnp.array([number, -number], jnp.float32),
            first=jnp.array([first, number == 1]),
            action_mask=jnp.array([[True, False, True], [True, True, number == 1]]),
            action_mode=jnp.array([types.EXPLORE, types.GREEDY]),
            slot=jnp.array([4, 2]),
        )
        key = jax.random.key(index)
        carried, outputs = step(jnp.float32(number), carried, seen, key)
        given: Any = outputs.stored
        assert given["params"] == number and given["memory"].tolist() == [10 * index] * 2
        assert given["key"].tolist() == jax.random.key_data(key).tolist()
        for name in ("reward", "first", "action_mask", "action_mode", "slot"):
            np.testing.assert_array_equal(getattr(given["inputs"], name), getattr(seen, name))
        assert given["inputs"].task.tolist() == [0, 0]
        _, outputs = step(jnp.float32(number), carried, seen._replace(task=jnp.array([3, 1])), key)
        told: Any = outputs.stored
        assert told["inputs"].task.tolist() == [3, 1]
        assert given["inputs"].observation.keys() == {types.OBSERVATION}
        stacks.append(given["inputs"].observation[types.OBSERVATION][:, 0, 0].tolist())
    past = carried.past[types.OBSERVATION]
    assert carried.past.keys() == {types.OBSERVATION} and (past.shape, past.dtype) == ((2, 2, 2, 2), jnp.uint8)
    assert [first for first, _ in stacks] == STACKS  # copies of an episode's first frame lie before it
    assert [second for _, second in stacks][3:] == [[22, 23, 24], [23, 24, 27], [24, 27, 28]]
