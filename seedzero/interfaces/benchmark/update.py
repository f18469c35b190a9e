"""Compares the whole update with the bare gradient of its loss, and times the update's parts.

The bare gradient uses one fixed batch of windows and targets: it samples nothing, makes no targets and changes no
parameters. Each part is a separate program. XLA fuses and overlaps parts within one program, so their times need not
sum to the update's.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base, learning, muzero_loss
from seedzero.device import meshes, states, strategies, tracing
from seedzero.interfaces.benchmark import replay, subjects
from seedzero.ops import nstep
from seedzero.replay import windowing


def run(preset: str = "", settings: subjects.Settings | None = None, *, seconds: float = 10.0) -> dict[str, Any]:
    """Returns the update's speed, its "ratio" to the bare gradient's, and a row for each part.

    ratio_to_update: the part's time relative to the update's.
    """
    subject = subjects.make(preset, settings or {})
    slices = subjects.interleave(_programs(subject), seconds=seconds)
    milliseconds = {part: subjects.milliseconds(slices, part) for part in slices}
    updates_per_second, batch_size = 1e3 / milliseconds["update"], subject.config.replay.batch_size
    return {
        **subjects.facts(subject),
        "batch": batch_size,
        "updates_per_second": updates_per_second,
        "samples_per_second": updates_per_second * batch_size,
        "ratio": subjects.ratio(slices, "update", "gradient"),
        "rows": [
            {"part": part, "milliseconds": time, "ratio_to_update": subjects.ratio(slices, "update", part)}
            for part, time in milliseconds.items()
        ],
    }


def _programs(subject: subjects.Subject) -> dict[str, subjects.Program]:
    rings = subjects.filled_actor(subject).rings
    train = states.init_train(subject.setup, subject.config.run.seed)
    sample = replay.sampler(subject)
    return {
        "update": _update(subject),
        "sample": lambda: sample(rings, subject.num_inserts, np.int32(0)),
        **_gradients(subject, train, sample(rings, subject.num_inserts, np.int32(0))),
        "optimizer": _optimizer(subject, train),
    }


def _update(subject: subjects.Subject) -> subjects.Program:
    """The learner's own program, including metrics."""
    setup, strategy = subject.setup, strategies.Strategy()
    shapes = states.abstract_train(setup), states.abstract_actor(setup)
    update = strategy.trace_update(tracing.ProgramTracer(setup, *shapes, strategy.held))["update"]().compile()

    def step(state: tuple[base.TrainState, Any], call: int) -> tuple[Any, jax.Array]:
        *state, metrics = update(subject.seed, *state, subject.num_inserts)
        return state, metrics

    # Each has its own states, because every call donates them.
    train = states.init_train(setup, subject.config.run.seed)
    return subjects.carrying(step, (train, subjects.filled_actor(subject).rings))


def _gradients(
    subject: subjects.Subject, train: base.TrainState, windows: windowing.Windows
) -> dict[str, subjects.Program]:
    """Makes the targets of fixed windows, and the bare gradient for these targets."""
    parts, sharded, replicated = subject.parts, meshes.SHARDED, meshes.REPLICATED

    def prepare(target_params: base.Params, windows: windowing.Windows) -> nstep.Targets:
        return muzero_loss.make_targets(parts, target_params, windows)

    def gradient(params: base.Params, windows: windowing.Windows, targets: nstep.Targets) -> Any:
        def loss(params: base.Params) -> jax.Array:
            return muzero_loss.loss_and_metrics(parts, params, windows, targets, jax.random.key(0))[0]

        return jax.lax.pmean(jax.grad(loss)(params), meshes.AXIS)

    make_targets = meshes.over_devices(prepare, subject.setup.mesh, (replicated, sharded), sharded)
    bare = meshes.over_devices(gradient, subject.setup.mesh, (replicated, sharded, sharded), replicated)
    targets = make_targets(train.target_params, windows)
    return {
        "targets": lambda: make_targets(train.target_params, windows),
        "gradient": lambda: bare(train.params, windows, targets),
    }


def _optimizer(subject: subjects.Subject, train: base.TrainState) -> subjects.Program:
    """One step of the optimizer, with the parameters used as the gradient."""
    parts, replicated = subject.parts, meshes.REPLICATED

    def step(train: Any, gradients: base.Params) -> tuple[base.TrainState, base.Metrics]:
        metrics = {"loss": jnp.zeros(())}
        return learning.apply_gradients(train, gradients, metrics, optimizer=parts.optimizer, schedule=parts.schedule)

    mapped = meshes.over_devices(step, subject.setup.mesh, replicated, replicated, donate=(0,))
    return subjects.carrying(lambda state, call: mapped(state, train.params), states.copy(train))
