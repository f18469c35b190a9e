"""Device functions before they are compiled."""

from __future__ import annotations

from typing import Any

import device_world
import fake_agent
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import configs, options
from seedzero.core import types
from seedzero.device import host_frames, meshes, setups, states, steps, strategies, tracing

SPEC = types.EnvSpec((2,), "float32", 3)
MUZERO: dict[str, options.Value] = {
    **device_world.MUZERO,
    "replay.capacity": 100,
    "replay.num_slots": 8,
    "replay.batch_size": 32,
    "reanalyse.per_insert": 1.0,
    "reanalyse.batch_size": 4,
}


def _tracer(setup: setups.Setup) -> tracing.ProgramTracer:
    shapes = states.abstract_train(setup), states.abstract_actor(setup)
    return tracing.ProgramTracer(setup, *shapes, strategies.Strategy().held)


def _update(tracer: tracing.ProgramTracer) -> tracing.UncompiledProgram:
    return strategies.Strategy().trace_update(tracer)["update"]()


def test_state_that_a_program_is_not_given_lies_beside_its_arguments() -> None:
    setup = fake_agent.make_setup(fake_agent.make())
    train, actor = states.abstract_train(setup), states.abstract_actor(setup)
    on_host = actor._replace(rings=actor.rings._replace(observation=None))
    frames = host_frames.HostFrames(setup.spec, setup.layout, setup.slot_length, meshes.sharded(setup.mesh))
    with_host = host_frames.FramesWithHost(frames, ahead=False, on_ready=lambda: None)
    tracer = _tracer(setup)
    tracer_of_host = tracing.ProgramTracer(setup, train, on_host, with_host.held)
    params, carried = map(tracing.device_bytes, (setup.agent.acting(train), actor.carried))
    # Two copies of the parameters: acting's, and that of a running evaluation.
    assert tracer.act(8).elsewhere == params + tracing.device_bytes(train)
    assert _update(tracer).elsewhere == 2 * params + carried
    assert with_host.trace_update(tracer_of_host)["learn"]().elsewhere == 2 * params + carried


@pytest.mark.thorough
def test_runs_of_other_seeds_find_the_programs_in_the_cache() -> None:
    texts = []
    for seed in (1, 2):
        setup = setups.make(configs.override(configs.Config(), {**MUZERO, "run.seed": seed}), SPEC, meshes.make(2))
        tracer = _tracer(setup)
        reanalyse = strategies.Strategy().trace_reanalyse(tracer)["reanalyse"]()
        texts.append([traced.function.lower().as_text() for traced in (tracer.act(8), _update(tracer), reanalyse)])
    assert texts[0] == texts[1] and len(set(texts[0])) == 3


@pytest.mark.thorough
def test_the_seed_is_an_argument_of_the_programs_and_no_part_of_them() -> None:
    setup = fake_agent.make_setup(fake_agent.make(), 2)
    traced, losses = _update(_tracer(setup)), []
    update, names = traced.compile(), traced.metric_names
    for seed in map(np.int32, (1, 2, 1)):
        values = dict(zip(names, np.asarray(update(seed, *_arguments(setup))[2]).tolist(), strict=True))
        _, _, expected = steps.make_update(setup)(seed, *_arguments(setup))
        assert values == pytest.approx(jax.tree.map(float, expected)) and list(values) == sorted(values)
        losses.append(values["loss"])
    assert losses[0] == losses[2] != losses[1]  # other windows are drawn


def _arguments(setup: setups.Setup) -> tuple[Any, ...]:
    """Returns the arguments of an update: every row of the rings has its own reward."""
    rings = states.init_actor(setup).rings
    rows = np.arange(rings.reward.size, dtype=np.float32).reshape(rings.reward.shape)
    rings = rings._replace(weight=jnp.ones_like(rings.weight), reward=rings.reward + rows)
    return states.init_train(setup, 0), rings, np.int32(0)


def test_a_program_with_metrics_is_traced_once() -> None:
    agent, traced = fake_agent.make(), []

    def update(*arguments: Any) -> Any:
        traced.append(arguments)
        return agent.update(*arguments)

    assert _update(_tracer(fake_agent.make_setup(agent._replace(update=update), 1))).metric_names
    assert len(traced) == 1
