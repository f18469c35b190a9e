"""Device functions before they are compiled."""

from __future__ import annotations

from typing import Any

import fake_agent
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.device import host_frames, memory, steps, tracing
from seedzero.device import mesh as meshes
from seedzero.device import setup as setups
from seedzero.device import state as states
from seedzero.device import strategy as strategies
from seedzero.replay import windows as windowing


def _compute(params: base.Params, windows: windowing.Windows, key: jax.Array) -> Any:
    return {"target": windows.reward[:, 0] + 100}, {"change": windows.reward[:, 0]}


REFRESH = base.Refresh(per_insert=1.0, batch_size=64, min_age=0, length=1, observe=(0,), compute=_compute)


def _update(tracer: tracing.ProgramTracer) -> tracing.UncompiledProgram:
    return strategies.Strategy().trace_update(tracer)["update"]()


def test_state_that_a_program_is_not_given_lies_beside_its_arguments() -> None:
    setup = fake_agent.make_setup(fake_agent.make())
    train, actor = states.abstract_train(setup), states.abstract_actor(setup)
    on_host = actor._replace(rings=actor.rings._replace(observation=None))
    frames = host_frames.HostFrames(setup.spec, setup.layout, setup.slot_length, meshes.sharded(setup.mesh))
    with_host = host_frames.FramesWithHost(frames, ahead=False, on_ready=lambda: None)
    tracer = tracing.ProgramTracer(setup, train, actor, strategies.Strategy().held)
    tracer_of_host = tracing.ProgramTracer(setup, train, on_host, with_host.held)
    params, carried = map(memory.device_bytes, (setup.agent.acting(train), actor.carried))
    # Two copies of the parameters: acting's, and that of a running evaluation.
    assert tracer.act(8).elsewhere == params + memory.device_bytes(train)
    assert _update(tracer).elsewhere == 2 * params + carried
    assert with_host.trace_update(tracer_of_host)["learn"]().elsewhere == 2 * params + carried


def test_the_seed_is_an_argument_of_the_programs_and_no_part_of_them() -> None:
    setup = fake_agent.make_setup(fake_agent.make(refresh=REFRESH), 2)
    train, actor = states.abstract_train(setup), states.abstract_actor(setup)
    strategy = strategies.Strategy()
    tracers = [tracing.ProgramTracer(setup._replace(seed=seed), train, actor, strategy.held) for seed in (1, 2)]
    refresh = [strategy.trace_refresh(tracer)["refresh"]() for tracer in tracers]
    traced = ([tracer.act(8), _update(tracer), found] for tracer, found in zip(tracers, refresh, strict=True))
    for one, other in zip(*traced, strict=True):
        assert one.function.lower().as_text() == other.function.lower().as_text()

    def arguments() -> tuple[Any, ...]:
        rings = states.init_actor(setup).rings
        rows = np.arange(rings.reward.size, dtype=np.float32).reshape(rings.reward.shape)
        rings = rings._replace(weight=jnp.ones_like(rings.weight), reward=rings.reward + rows)
        return states.init_train(setup), rings, np.int32(0)

    losses = []
    for seed, tracer in zip((1, 2), tracers, strict=True):
        update = _update(tracer)
        values = dict(zip(update.metric_names, np.asarray(update.seeded()(*arguments())[2]).tolist(), strict=True))
        _, _, expected = steps.make_update(setup._replace(seed=seed))(*arguments())
        assert values == pytest.approx(jax.tree.map(float, expected)) and list(values) == sorted(values)
        losses.append(values["loss"])
    assert losses[0] != losses[1]  # other windows are drawn


def test_a_program_with_metrics_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = fake_agent.make_setup(fake_agent.make(), 1)
    shapes = states.abstract_train(setup), states.abstract_actor(setup)
    tracer = tracing.ProgramTracer(setup, *shapes, strategies.Strategy().held)
    traced: list[setups.Setup] = []
    make_update = steps.make_update
    monkeypatch.setattr(steps, "make_update", lambda setup: traced.append(setup) or make_update(setup))
    assert _update(tracer).metric_names
    assert len(traced) == 1
