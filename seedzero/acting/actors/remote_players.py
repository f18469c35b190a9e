"""Lets agents behind policy servers play matches, so that two teams can meet without sharing a run directory.

Shape letters: B games.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seedzero.acting.actors import actor
from seedzero.core import types
from seedzero.storage.checkpoints import run_dirs
from seedzero.transport import policy_client, policy_codec, security


class Served(NamedTuple):
    """Names a policy server's player, as HOST:PORT or HOST:PORT/PLAYER, with the credentials for the server."""

    name: str
    access: security.Access = security.PLAIN

    def __str__(self) -> str:
        return self.name


class RemotePlayer:
    """A policy server's player. version: number of updates behind its parameters."""

    def __init__(self, served: Served, spec: types.EnvSpec) -> None:
        """Connects to the server for a match of a game with this spec.

        Raises SpecMismatch if the server's agent plays another game; for other errors see `policy_client.describe`.
        """
        address, _, player = served.name.partition("/")
        self._secured, self._player = security.for_client(address, served.access), player
        self._clients: list[policy_client.PolicyClient] = []
        self._offer = policy_client.describe(self._secured)
        run_dirs.check_equal_spec(spec, self._offer.spec)
        self.version = self._offer.players.get(player or next(iter(self._offer.players)), 0)

    def to_json(self) -> dict[str, int | str]:
        """Returns the fields of a result that name the player, as `SavedAgent.to_json` does."""
        return {"step": self.version, **({"policy": "sample"} if self._offer.draws else {})}

    @property
    def max_rows(self) -> int:
        """Most rows in one request."""
        return self._offer.max_rows

    def actor(self, num_rows: int) -> RemoteActor:
        """Opens a session that keeps a memory for each row."""
        client = policy_client.PolicyClient(self._secured, self._offer, player=self._player, num_rows=num_rows)
        self._clients.append(client)
        return RemoteActor(client)

    def close(self) -> None:
        """Closes all sessions."""
        for client in self._clients:
            client.close()


class RemoteActor:
    """Acts for several rows through a policy server, like `saved_actors.SavedActor`."""

    def __init__(self, client: policy_client.PolicyClient) -> None:
        self._client = client

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        """Returns the actions [B], with 0 in rows that the step does not show."""
        rows = np.flatnonzero(actor.shown(step)).astype(np.int32)
        actions = np.zeros(len(first), np.int32)
        if len(rows):  # a request has at least one
            actions[rows] = self._client.act(policy_codec.PolicyRows(rows, step.those(rows), first[rows])).actions
        return actions
