"""Finds the learner of a run directory and asks it for its live view."""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import Any

from seedzero.core import errors
from seedzero.monitoring import status
from seedzero.storage.checkpoints import run_dirs, run_lock
from seedzero.transport import addresses, messages, probe

ENDED = "no learner is at work in this run: there is nothing live to see"


class RunningLearner:
    """Keeps a connection to the learner of a run directory. For one thread at a time."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._probe: probe.LiveProbe | None = None

    def ask(
        self, *, call: int = 0, environment: int | None = None, step: int = 0, deadline_seconds: float
    ) -> tuple[dict[str, Any], bytes]:
        """Returns the learner's answer, and the observations of its steps; arguments as in `messages.LiveAsk`.

        Raises UsageError if no learner runs on this machine, VersionMismatch for an older one, ProtocolError if it
        does not answer.
        """
        if self._probe is None:
            self._probe = probe.LiveProbe(find(self._path))
        try:
            return self._probe.ask(messages.LiveAsk(call, environment, step), deadline_seconds=deadline_seconds)
        except errors.Error:
            self.close()
            find(self._path)  # the run may have ended meanwhile
            raise

    def close(self) -> None:
        """Closes the connection."""
        found, self._probe = self._probe, None
        if found is not None:
            found.close()


def find(path: pathlib.Path) -> str:
    """Returns the unix socket of a run directory's running learner. Raises UsageError if none runs here."""
    learner = run_dirs.read_learner(path)
    holder = None if learner is None else run_dirs.holder(path)
    if learner is None or holder is None:
        raise errors.ResumeError(ENDED)
    if holder == run_lock.UNKNOWN:
        raise errors.ResumeError("only the user whose run this is sees its live view")
    if str(learner["pid"]) != holder:
        raise errors.ResumeError(status.NOT_STARTED)
    try:
        with contextlib.suppress(PermissionError):  # another user's
            os.kill(learner["pid"], 0)
    except ProcessLookupError:
        raise errors.ResumeError(
            "the learner works on another machine, or in a container: open a page there"
        ) from None
    if not learner["local"].startswith(addresses.UNIX_PREFIX):
        raise errors.ResumeError("the learner has no socket for pages of its machine")
    return str(learner["local"])
