"""The learner behind a server, as the server calls it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from seedzero.core import types
from seedzero.transport import messages

WORKER_LOST = "worker_lost"
"""Reason of a session whose lease expired, or whose worker's place another process took."""

GOODBYE = "goodbye"
"""Reason of a session whose worker left."""

FAILED = "failed: "
"""Begins the reason of a session that an error ended."""


class Handler(Protocol):
    """The learner behind a server. Called on the server's event-loop thread: no method may block."""

    def assign(self, hello: messages.Hello) -> types.Assignment:
        """Returns a joining worker's assignment, with a new session id and resumed=False; may raise errors.Error."""
        ...

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        """Takes a session's spec, once; may raise SpecMismatch. The worker may send steps when this returns."""
        ...

    def step(self, request: messages.StepRequest) -> None:
        """Queues a step, which `Server.reply` answers. A group has at most one unanswered step."""
        ...

    def end(self, session_id: str, reason: str) -> None:
        """Takes the end of a session, once for each that assign() began and Server.restart() did not end.

        The reason is WORKER_LOST, GOODBYE, or begins with FAILED.
        """
        ...

    def status(self) -> Mapping[str, object]:
        """Returns counters and state, ready for JSON."""
        ...
