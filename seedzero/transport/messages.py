"""Messages between the wire and its users, on both sides. numpy only.

Shape letters: E environments of one group, A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from seedzero.core import types

MAX_GROUPS = 64
"""Most groups of environments in one worker."""


@dataclasses.dataclass(frozen=True)
class Hello:
    """A worker's introduction.

    Attributes:
      worker_id: its name in reports; a process that takes another's place uses the same name.
      session_id: of the session to resume; "": none.
      roles: those it accepts, at least one.
      environments: ids ("catch") or families ("gym", "atari", "spiel") that it can make; "yours": only its own.
      max_envs: most environments in all groups together.
    """

    worker_id: str
    session_id: str
    roles: tuple[types.Role, ...]
    environments: tuple[str, ...]
    max_envs: int


class StepRequest(NamedTuple):
    """One step of one group, checked against the session's spec; it waits for its actions.

    Attributes:
      session_id: of its session.
      role: of the session.
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
      group: the group that it is for.
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
    """The last message: training is over, or this worker was told to leave."""

    reason: str
