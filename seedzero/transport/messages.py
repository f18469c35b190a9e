"""Messages between the wire and its users, on both sides, and the learner behind a server. numpy only.

Shape letters: E environments of one group, A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from seedzero.core import types

MAX_GROUPS = 64
"""Most groups of environments in one worker."""

WORKER_LOST = "worker_lost"
"""Reason of a session whose lease expired, or whose worker's place another process took."""

GOODBYE = "goodbye"
"""Reason of a session whose worker left."""

FAILED = "failed: "
"""Begins the reason of a session that an error ended."""

OVERDUE = FAILED + "overdue: "
"""Begins the reason of a session whose worker sent heartbeats alone for too long: its environments may hang."""


@dataclasses.dataclass(frozen=True)
class Hello:
    """A worker's introduction.

    Attributes:
      worker_id: its name in reports; a process that takes another's place uses the same name.
      session_id: of the session to resume; "": none.
      roles: those it accepts, at least one.
      environments: ids ("catch") or families ("gym", "atari", "spiel") that it can make; "yours": only its own.
      max_envs: most environments in all groups together.
      key: of a worker that the learner itself started, as it was given; "": none.
    """

    worker_id: str
    session_id: str
    roles: tuple[types.Role, ...]
    environments: tuple[str, ...]
    max_envs: int
    key: str = dataclasses.field(default="", repr=False)


class StepRequest(NamedTuple):
    """A step of a group, checked against the session's spec, waiting for actions.

    Attributes:
      session_id, role: of its session.
      group: 0 .. num_groups - 1.
      sequence: number of this step within session and group, from 0.
      step: the newest observations; read-only arrays.
      first: [E] bool, true: first observation of an episode (or of the session).
    """

    session_id: str
    role: types.Role
    group: int
    sequence: int
    step: types.EnvStep
    first: np.ndarray


class Actions(NamedTuple):
    """The learner's answer to a group's step.

    Attributes:
      actions: [E] int32, each in 0 .. num_actions - 1, or [E, D] float32 within the spec's bounds; ignored where the
        observation was an episode's last.
      weights_version: of the network that chose them.
    """

    group: int
    actions: np.ndarray
    weights_version: int


@dataclasses.dataclass(frozen=True)
class Restart:
    """The session is over for the learner: reset all environments and join again."""

    reason: str


@dataclasses.dataclass(frozen=True)
class End:
    """The last message: training is over, or this worker must leave."""

    reason: str


class Handler(Protocol):
    """The learner behind a server. Called on the server's event-loop thread: no method may block."""

    def assign(self, hello: Hello) -> types.Assignment:
        """Returns a joining worker's assignment, with a new session id and resumed=False; may raise errors.Error."""

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        """Takes a session's spec, once; may raise SpecMismatch. The worker may send steps when this returns."""

    def step(self, request: StepRequest) -> None:
        """Queues a step for `Server.reply`. A group has at most one unanswered step."""

    def end(self, session_id: str, reason: str) -> None:
        """Takes the end of a session, once for each that assign() began and Server.restart() did not end.

        The reason is GOODBYE, or begins with WORKER_LOST or FAILED.
        """

    def status(self) -> Mapping[str, object]:
        """Returns counters and state, ready for JSON."""
