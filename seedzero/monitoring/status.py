"""Finds the learner of a run, and gets its status and live view, or the last status after it has ended."""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

from seedzero.core import errors, json_object
from seedzero.storage.bucket import bucket, lease
from seedzero.storage.checkpoints import run_dirs, run_lock
from seedzero.transport import addresses, messages, probe, security

NOT_STARTED = "the learner has not answered yet"


def from_server(
    address: str, access: security.Access = security.PLAIN, *, deadline_seconds: float = probe.DEADLINE_SECONDS
) -> dict[str, Any]:
    """Returns the status of a running learner; see `probe.status`."""
    return {**probe.status(address, access, deadline_seconds=deadline_seconds), "alive": True}


def from_bucket(url: bucket.Url, store: bucket.Store, *, clock: Callable[[], float] = time.time) -> dict[str, Any]:
    """Returns the last status in a bucket. clock: seconds since the epoch.

    "alive" is true while the learner's lease there is fresh, provided that the two machines' clocks agree;
    "renewed_seconds_ago" is the lease's age. Raises ResumeError without a run or a status, and BucketError.
    """
    status, leased = store.read(run_dirs.STATUS_FILE).content, store.read(lease.NAME).content
    if status is None:
        if leased is not None or store.read(run_dirs.CONFIG_FILE).content is not None:
            raise _unwritten(url)
        raise errors.ResumeError(f"{url} holds no run, or there is no such bucket; give --run_dir of a training run")
    try:
        last = json_object.parse(status)
    except ValueError as error:
        raise errors.ResumeError(f"{url}/{run_dirs.STATUS_FILE} is damaged ({error})") from None
    if leased is None:
        return {**last, "alive": False}
    holder = lease.parse(leased, url)
    age = max(0.0, clock() - holder.renewed)
    return {**last, "alive": holder.is_fresh(clock()), "host": holder.host, "renewed_seconds_ago": round(age, 1)}


def from_run_dir(path: str | os.PathLike[str], *, deadline_seconds: float = probe.DEADLINE_SECONDS) -> dict[str, Any]:
    """Returns the status of a run directory's learner, or the last one written there.

    "alive" is true if a learner holds the directory, and "unknown" if this user may not know. A learner on this
    machine that does not answer yet is "stalled"; one on another machine or in another container is not asked. Raises
    ResumeError without a run or a status.
    """
    directory = pathlib.Path(path)
    run_dirs.read_saved(directory)
    learner = run_dirs.read_learner(directory)
    holder = run_dirs.holder(directory)
    if holder is None:  # whatever learner.json says, the learner was killed, or the directory is a copy
        return {**_last(directory), "alive": False}
    if holder == run_lock.UNKNOWN:
        return {**_last(directory), "alive": run_lock.UNKNOWN}
    if learner is None or str(learner["pid"]) != holder:  # the holder has not written its own yet
        return {**_last(directory), "alive": True, "stalled": NOT_STARTED}
    try:
        with contextlib.suppress(PermissionError):  # another user's
            os.kill(learner["pid"], 0)
        return from_server(learner["local"], deadline_seconds=deadline_seconds)  # which needs no token
    except ProcessLookupError:
        return {**_last(directory), "alive": True}
    except errors.ProtocolError:
        return {**_last(directory), "alive": True, "stalled": NOT_STARTED}


def _unwritten(run: object) -> errors.ResumeError:
    return errors.ResumeError(
        f"{run} has no {run_dirs.STATUS_FILE}, which its learner writes while it runs; if none runs, `seedzero train "
        f"--run_dir={run}` starts it again"
    )


def _last(directory: pathlib.Path) -> dict[str, Any]:
    status = run_dirs.read_status(directory)
    if status is None:
        raise _unwritten(directory)
    return dict(status)


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
            self._probe = probe.LiveProbe(find_learner(self._path))
        try:
            return self._probe.ask(messages.LiveAsk(call, environment, step), deadline_seconds=deadline_seconds)
        except errors.Error:
            self.close()
            find_learner(self._path)  # the run may have ended meanwhile
            raise

    def close(self) -> None:
        """Closes the connection."""
        found, self._probe = self._probe, None
        if found is not None:
            found.close()


def find_learner(path: pathlib.Path) -> str:
    """Returns the unix socket of a run directory's running learner. Raises UsageError if none runs here."""
    learner = run_dirs.read_learner(path)
    holder = None if learner is None else run_dirs.holder(path)
    if learner is None or holder is None:
        raise errors.ResumeError(ENDED)
    if holder == run_lock.UNKNOWN:
        raise errors.ResumeError("only the user whose run this is sees its live view")
    if str(learner["pid"]) != holder:
        raise errors.ResumeError(NOT_STARTED)
    try:
        with contextlib.suppress(PermissionError):  # another user's
            os.kill(learner["pid"], 0)
    except ProcessLookupError:
        raise errors.ResumeError(
            "the learner works on another machine, or in a container: open a page there"
        ) from None
    if not learner["local"].startswith(addresses.UNIX_PREFIX):
        raise errors.ResumeError("the learner opened no socket for pages on its own machine")
    return str(learner["local"])
