"""Messages between the transport and its users on both sides, and the learner behind a server. numpy only.

Shape letters: E environments of one group, A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from seedzero.core import types
from seedzero.transport import links

WORKER_LOST = "worker_lost"
"""Why a session ended whose lease expired, or whose worker's place another process took."""

GOODBYE = "goodbye"
"""Why a session ended whose worker left."""

FAILED = "failed: "
"""Prefix of the reason of a session that an error ended."""

REGROUPED = "regrouped: "
"""Prefix of the reason of a session whose worker gets other groups of environments."""

OVERDUE = FAILED + "overdue: "
"""Prefix of the reason of a session whose worker sent only heartbeats for too long, so that its environments may hang.
"""


@dataclasses.dataclass(frozen=True)
class Hello:
    """A worker's introduction.

    Its environments are ids ("catch") or families ("gym", "atari", "spiel") that it can make, or "yours" for its own.
    """

    worker_id: str  # its name in reports; a process that replaces another one uses the same name
    session_id: str  # of the session to resume, or ""
    roles: tuple[types.Role, ...]  # roles that it accepts, at least one
    environments: tuple[str, ...]
    max_envs: int  # in all groups together
    key: str = dataclasses.field(default="", repr=False)  # from the learner that started the worker, or ""
    knows_bots: bool = False  # it plays a league's bots if it makes the games itself


class StepRequest(NamedTuple):
    """A group's step, checked against the session's spec, that waits for actions."""

    session_id: str
    role: types.Role  # of the session
    group: int  # 0 .. num_groups - 1
    sequence: int  # number of this step within session and group, from 0
    step: types.EnvStep  # the newest observations; read-only arrays
    first: np.ndarray  # [E] bool, true: the first observation of an episode (or of the session)


class LiveAsk(NamedTuple):
    """A page's question; its fields are as in inference.proto."""

    call: int
    environment: int | None  # slot of the environment to watch, or None
    step: int


class Presence(NamedTuple):
    """A session's last signs of life."""

    session_id: str
    worker_id: str
    role: types.Role
    num_groups: int
    envs_per_group: int
    state: str
    quiet_seconds: float  # since the last message
    link: links.WorkerLink | None = None  # None: nothing plausible is known yet
    compresses: bool = False  # its observations are compressed

    def to_json(self) -> dict[str, object]:
        """Returns what the status and pages show of it."""
        return {
            "name": self.worker_id,
            "role": self.role.value,
            "groups": self.num_groups,
            "environments": self.num_groups * self.envs_per_group,
            "state": self.state,
            "quiet_seconds": round(self.quiet_seconds, 2),
            **(self.link.to_json() if self.link else {}),
            **({"compressed": True} if self.compresses else {}),
        }


class Actions(NamedTuple):
    """The learner's answer to a group's step; ignored if the observation was an episode's last."""

    group: int
    actions: np.ndarray  # [E] int32, each in 0 .. num_actions - 1, or [E, D] float32 within the spec's bounds
    weights_version: int  # of the network that chose them
    # [E] uint8; if not 0, the number of the assignment's bot that moves instead; None: no bot moves
    bot: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Restart:
    """The session is over for the learner: reset all environments and join again."""

    reason: str


@dataclasses.dataclass(frozen=True)
class End:
    """The last message: training is over, or this worker must leave."""

    reason: str


Live: TypeAlias = Callable[[LiveAsk, Sequence[Presence]], tuple[str, bytes]]
"""Answers a page, given all sessions, with JSON and the observations of its steps. Runs on the server's event loop."""


Regroup: TypeAlias = Callable[[str, links.WorkerLink | None, str, float], str]
"""Given a session's id, its link, what its worker cannot have measured, or "", and the time in seconds, returns why
the session must end for other groups, or "". Runs on the server's event loop."""


class Handler(Protocol):
    """The learner behind a server. The server's event-loop thread calls it, so no method may block."""

    def assign(self, hello: Hello) -> types.Assignment:
        """Returns a joining worker's assignment, with a new session id and resumed=False; may raise errors.Error."""

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        """Takes a session's spec, once; may raise SpecMismatch. When it returns, the worker may send steps."""

    def step(self, request: StepRequest) -> None:
        """Queues a step for `Server.reply`. A group has at most one unanswered step."""

    def end(self, session_id: str, reason: str) -> None:
        """Hears of the end of a session, once for each that assign() began and Server.restart() did not end.

        The reason is GOODBYE, or begins with WORKER_LOST, REGROUPED or FAILED.
        """

    def status(self) -> Mapping[str, object]:
        """Returns counters and state that can be written as JSON."""
