"""A policy server in this process, with small agents of random parameters."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import policies

from seedzero.acting.actors import saved_agents
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.interfaces.serving import acting_engine
from seedzero.transport import policy_servers, security

SETTINGS = configs.override(configs.Config(), {"listen": "127.0.0.1:0", "transport.lease_seconds": 30.0}).transport
MASKED = types.EnvSpec((3,), "float32", 4, has_action_mask=True)
PLAIN = types.EnvSpec((3,), "float32", 4)


def agent(spec: types.EnvSpec, seed: int = 0, update: int = 7, **changes: options.Value) -> saved_agents.SavedAgent:
    """Returns an agent with random parameters; other seeds have others."""
    saved = policies.saved(spec, **changes)
    if not seed:
        return saved._replace(update=update)
    random = np.random.default_rng(seed)
    params = jax.tree.map(lambda x: random.normal(size=x.shape).astype(x.dtype), saved.params)
    return saved._replace(params=params, update=update)


class World:
    """A server that runs, and its engine."""

    def __init__(
        self, players: Mapping[str, saved_agents.SavedAgent], settings: Any, secured: Any, given: Any
    ) -> None:
        self.engine = acting_engine.ActingEngine(players, **{"num_slots": 16, "max_batch": 8, **given})
        self.server = policy_servers.PolicyServer(self.engine, settings, secured=secured)
        self.address = self.server.start()
        self._thread = threading.Thread(target=self.engine.run, args=(self.server.answer, self.server.announce))
        self._thread.start()

    def stop(self) -> None:
        self.engine.stop()
        self._thread.join()
        self.server.stop("the test is over")


@contextlib.contextmanager
def serving(
    players: Mapping[str, saved_agents.SavedAgent],
    settings: Any = SETTINGS,
    secured: security.ServerSecurity = security.OPEN,
    **given: Any,
) -> Iterator[World]:
    """While entered, serves players; given: of the engine."""
    world = World(players, settings, secured, given)
    try:
        yield world
    finally:
        world.stop()
