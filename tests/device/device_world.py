"""The compiled programs of a setup, and the states that they work on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import fake_agent
import jax
import numpy as np

from seedzero.config import options
from seedzero.core import types
from seedzero.device import device_programs, meshes, setups, states, steps

MUZERO: dict[str, options.Value] = {
    "network.kind": "mlp",
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "search.num_simulations": 2,
    "muzero.unroll_steps": 1,
    "muzero.n_step": 1,
}
EVERYTHING: dict[str, options.Value] = {
    **MUZERO,
    "network.frame_stack": 2,
    "muzero.unroll_steps": 2,
    "replay.priority_alpha": 0.6,
    "reanalyse.per_insert": 1.0,
}
IMAGES = types.EnvSpec((2, 3, 1), "uint8", 3)


class World:
    """A learner without a loop. `ready` is released whenever a program, or an update's frames, are there."""

    def __init__(self, setup: setups.Setup, *, on_host: bool = False) -> None:
        self.setup, self.ready = setup, threading.Semaphore(0)
        shapes = states.abstract_train(setup), states.abstract_actor(setup)
        self.strategy, self.programs = device_programs.prepare(
            setup, *shapes, on_host=on_host, on_ready=self.ready.release
        )
        self.train = states.init_train(setup, 0)
        self.actor = states.init_actor(setup, holds_frames=self.strategy.holds_frames)
        self.stored = self.num_calls = self.num_updates = self.num_reanalyses = 0
        self._params = self._acting()  # of the first state, also after an update that waits

    def _acting(self) -> Any:
        params = states.copy(self.setup.agent.acting(self.train))
        return jax.device_put(params, meshes.replicated(self.setup.mesh))

    def act(self, slots: Sequence[int], *, size: int = 0, **arrays: Any) -> list[Any]:
        """Shows arrays in some slots; returns their actions, of the first parameters. size: rows; 0: the most."""
        setup = self.setup._replace(sizes=(size,)) if size else self.setup
        batch, rows = fake_agent.batch(setup, list(slots), **arrays)
        self.strategy.keep(batch)
        counters = steps.counters(self.stored, 0, self.num_calls)
        act = self.programs.act(len(batch.slot))
        self.actor, acted = act(fake_agent.SEED, self._params, self.actor, batch, counters)
        self.num_calls += 1
        self.stored += sum(slot < self.setup.layout.num_train for slot in slots)
        found: list[Any] = np.asarray(acted)[rows].tolist()
        return found

    def show(self, slots: Sequence[int], random: np.random.Generator) -> list[Any]:
        """As `act`, with the newest parameters, on random images, rewards and ends."""
        self._params, size = self._acting(), len(slots)
        return self.act(
            slots,
            observation=random.integers(0, 256, (size, *self.setup.spec.observation_shape)),
            reward=random.random(size),
            first=self.num_calls == 0,
            terminated=random.random(size) < 0.1,
            action_mode=types.EXPLORE,
        )

    def learn(self, feed: Any = None) -> jax.Array:
        """Returns the metrics of an update, which may still be under way. feed: None: of a replay."""
        run, given = self.programs.update.result(), (fake_agent.SEED, self.train, self.actor.rings)
        feed = np.int32(self.stored) if feed is None else feed
        self.train, rings, values = self.strategy.run_update(run.functions, given, feed, self.num_updates)
        self.actor, self.num_updates = self.actor._replace(rings=rings), self.num_updates + 1
        return values

    def update(self, feed: Any = None) -> dict[str, float]:
        """Returns the metrics of an update."""
        return _named(self.programs.update, self.learn(feed))

    def reanalyse(self, version: int = 100) -> dict[str, float]:
        """Returns the metrics of a reanalysis."""
        given = fake_agent.SEED, self._acting(), self.actor.rings
        counters = steps.counters(self.stored, version, self.num_reanalyses)
        rings, values = self.strategy.run_reanalyse(self.programs.reanalyse.result().functions, given, counters)
        self.actor, self.num_reanalyses = self.actor._replace(rings=rings), self.num_reanalyses + 1
        return _named(self.programs.reanalyse, values)

    def close(self) -> None:
        self.programs.close()
        self.strategy.close()


def _named(program: Any, values: jax.Array) -> dict[str, float]:
    return dict(zip(program.result().metric_names, np.asarray(values).tolist(), strict=True))
