"""The state on the device and its programs: every call that changes it goes through here.

The device loop's thread owns all of it. A call is dispatched and returns at once, with arrays that are still being
computed.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax

from seedzero.agents import base
from seedzero.device import apart, steps
from seedzero.device import batch as batches
from seedzero.device import mesh as meshes
from seedzero.device import programs as device_programs
from seedzero.device import setup as setups
from seedzero.device import state as states
from seedzero.replay import rings as ring_store


class Runner:
    """Owns the train state, the acting state, the acting parameters, and counts the calls.

    Attributes:
      programs: compiled device functions.
      num_updates: dispatched since the run began, resumes included.
      num_refreshes: likewise.
      params: that act.
      version: updates that these have seen.
    """

    def __init__(
        self,
        setup: setups.Setup,
        programs: device_programs.Programs,
        train: base.TrainState,
        actor: states.ActorState,
    ) -> None:
        self.programs = programs
        self._setup = setup
        self._train = train
        self._actor = actor
        self._num_acts = 0
        self.num_updates = 0
        self.num_refreshes = 0
        self.params = self.copy_params()
        self.version = 0
        self._published: collections.deque[tuple[base.Params, int]] = collections.deque()  # not there yet, by version

    def copy_params(self) -> base.Params:
        """Returns a copy of the newest parameters for acting, on the devices that act."""
        params = states.copy(self._setup.agent.acting(self._train))
        return jax.device_put(params, meshes.replicated(self._setup.mesh)) if self._setup.learners else params

    def publish(self) -> None:
        """Has acting use the newest parameters from now on; with learners apart, once they are there."""
        if len(self._published) == apart.MOST_COPIES:
            self._published.pop()  # the oldest is the first to be there, and the newest is wanted
        self._published.append((self.copy_params(), self.num_updates))
        self.receive()

    def receive(self) -> None:
        """Has acting use the newest published parameters that it need not wait for."""
        waits = self._setup.learners is None or not self._setup.ahead
        while self._published and (waits or apart.is_there(self._published[0][0])):
            self.params, self.version = self._published.popleft()

    def when_there(self) -> Callable[[], object]:
        """Returns a function that waits, on any thread, until acting need not wait for what is published by now."""
        return functools.partial(jax.block_until_ready, [params for params, _ in self._published])

    def act(self, batch: batches.Batch, params: base.Params, version: int, num_inserts: int) -> jax.Array:
        """Acts on a batch with parameters of a version; returns the actions of its rows."""
        counters = steps.counters(num_inserts, version, self._num_acts)
        self._num_acts += 1
        program = self.programs.act(len(batch.slot) // self._setup.layout.num_shards)
        self._actor, acted = program(params, self._actor, batch, counters)
        return acted

    def forget(self) -> None:
        """Has environments carry what they do before anything was seen."""
        self._actor = self._actor._replace(carried=states.init_carried(self._setup, begins=False))

    def update(self, feed: steps.Feed) -> jax.Array:
        """Learns from the windows that the feed leads to; returns metrics [M], `programs.metric_names`."""
        number = (self.num_updates,) if self._setup.learners else ()
        self._train, rings, values = self.programs.update(self._train, self._actor.rings, feed, *number)
        self._actor = self._actor._replace(rings=rings)
        self.num_updates += 1
        return values

    def refresh(self, num_inserts: int) -> jax.Array:
        """Renews stored targets with the newest parameters; returns metrics [M], `programs.refresh_metric_names`.

        With learners apart, the newest are those that act.
        """
        if self._setup.learners:
            params, version = self.params, self.version
        else:
            params, version = self._setup.agent.acting(self._train), self.num_updates
        counters = steps.counters(num_inserts, version, self.num_refreshes)
        rings, values = self.programs.refresh(params, self._actor.rings, counters)
        self._actor = self._actor._replace(rings=rings)
        self.num_refreshes += 1
        return values

    def state(self) -> tuple[dict[str, base.Params], ring_store.Rings | None]:
        """Returns the parts of the train state, and the replay with its frames; None for a queue, which keeps none."""
        agent = self._setup.agent
        rings = self.programs.with_frames(self._actor.rings) if agent.samples else None
        return states.parts(agent, self._train), rings

    def to_json(self) -> dict[str, Any]:
        """Returns the part of a checkpoint's counters."""
        return {
            "num_updates": self.num_updates,
            "num_acts": self._num_acts,
            "num_reanalyses": self.num_refreshes,  # the name in checkpoints
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continues a checkpoint's counters."""
        self.num_updates = saved["num_updates"]
        self._num_acts = saved["num_acts"]
        self.num_refreshes = saved.get("num_reanalyses", 0)  # missing in checkpoints from before there was reanalysis
        self.params, self.version = self.copy_params(), self.num_updates
