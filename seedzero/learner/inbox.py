"""The way of observations from the server to the device loop.

Workers join, show their environments, step and leave at the reception, the server's handler, on the server's thread.
Their messages wait in the inbox: at most one for each group of environments, which bounds them.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping

import numpy as np

from seedzero.checkpoints import spec_file
from seedzero.config import config as configs
from seedzero.core import env_ids, errors, types
from seedzero.device import batch as batches
from seedzero.learner import roster as rosters
from seedzero.monitoring import counts
from seedzero.monitoring import view as views
from seedzero.transport import messages


@dataclasses.dataclass(eq=False)
class Reception:
    """Keeps the roster and the inbox; the first worker provides an unknown spec."""

    config: configs.Config
    roster: rosters.Roster
    view: views.View  # takes the spec, and answers for the status
    report: Callable[[str], None]  # shows the user a line
    on_join: Callable[[], None]  # called after a worker's environments were accepted
    on_overdue: Callable[[str], None]  # takes the name of a local worker after too long with heartbeats alone
    check: Callable[[types.EnvSpec], None]  # raises UsageError for environments without a possible network or replay
    spec: types.EnvSpec | None = None  # of the environments; None: it is not known yet
    has_begun: bool = False  # environments of a worker have been there
    has_trained: bool = False  # so have those of one that trains

    def __post_init__(self) -> None:
        self.inbox = Inbox()
        self._has_made: set[str] = set()  # names of local workers whose environments were there

    def show(self, spec: types.EnvSpec) -> None:
        """Takes the spec of the networks being built."""
        self.spec = spec
        self.view.progress.spec = spec

    def assign(self, hello: messages.Hello) -> types.Assignment:
        """Handler: returns a joining worker's environments."""
        return self.roster.assign(hello)

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        """Handler: a worker's environments are ready; with an unknown spec, networks are built for the first ones."""
        if self.spec is None:
            if self.config.env.id == env_ids.REMOTE:
                self._check(spec)
            self.show(spec)
        assert self.spec is not None
        spec_file.check_equal(spec, self.spec)
        if (completed := spec_file.completed(self.spec, spec)) != self.spec:  # of a run of an earlier version
            self.show(completed)
            spec_file.write(self.view.directory.path, completed)
        session = self.roster.begin(session_id)
        if session.is_local:
            self._has_made.add(session.worker_id)
        self.has_begun = True
        self.has_trained |= session.role is types.Role.TRAIN
        self.inbox.notify()
        self.on_join()
        if session.role is types.Role.TRAIN and not self.config.run.deterministic:
            self.report(f"worker {session.worker_id} joined with {len(session.all_slots)} environments{self._kept()}")
            # A remote environment is evaluated by a worker of its own, which may never come.
            remote = self.config.env.id == env_ids.REMOTE
            if remote and self.roster.has_evaluation and not self.roster.started(types.Role.EVALUATE):
                self.report("evaluation is off until another worker joins that accepts it")

    def _kept(self) -> str:
        """Returns the share of the replay filled by the present environments; "": all of it, or no environments."""
        replay, present = self.config.replay, sum(self.roster.sizes())
        if not 0 < present < replay.num_sharing or not self.config.agent.SAMPLES:
            return ""
        kept = replay.capacity * present // replay.num_sharing
        return (
            f"; {present} of {replay.num_sharing} are here, which fill {kept} of the replay's {replay.capacity} steps"
        )

    def _check(self, spec: types.EnvSpec) -> None:
        """Refuses a worker with environments beyond any network or replay; the run can go on for others."""
        try:
            self.check(spec)
        except errors.UsageError as error:
            raise errors.SpecMismatch(f"this learner cannot be built for these environments: {error}") from None

    def step(self, request: messages.StepRequest) -> None:
        """Handler: observations arrived."""
        with self.inbox.changed:  # so that the loop cannot end the session in between
            session = self.roster.get(request.session_id)
            if session is None:
                return  # the loop ended it a moment ago; the worker is being told
            self.inbox.put(batches.Message(request, session.slots[request.group], time.monotonic()))

    def end(self, session_id: str, reason: str) -> None:
        """Handler: a worker's session is over."""
        session = self.roster.remove(session_id)
        if session is None:
            return
        is_lost = reason != messages.GOODBYE
        if session.started:
            lost = counts.WORKER_LOST if is_lost else counts.WORKER_LEFT
            self.inbox.end_session(session_id, session.role, session.all_slots, lost)
        kept = self._kept() if is_lost and session.role is types.Role.TRAIN else ""
        self.report(f"worker {session.worker_id} left: {reason}{kept}")
        if not session.is_local:
            return
        # Environments may take long to be made the first time; those that were there before hang in their reset.
        if reason.startswith(messages.OVERDUE) and session.worker_id in self._has_made:
            self.on_overdue(session.worker_id)
        self._has_made.discard(session.worker_id)  # its process may be another next time

    def status(self) -> Mapping[str, object]:
        """Handler: returns the status for `seedzero status`."""
        return self.view.status()


class Inbox:
    """Messages waiting for the device loop, and the meanwhile ended sessions.

    `changed` is the one condition that the device loop waits on; every source of work notifies it.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._waiting: dict[types.Role, list[batches.Message]] = {role: [] for role in types.Role}
        self._ended: list[tuple[np.ndarray, str]] = []

    def notify(self) -> None:
        """Wakes the loop."""
        with self.changed:
            self.changed.notify_all()

    def put(self, message: batches.Message) -> None:
        """Adds a message and wakes the loop."""
        with self.changed:
            self._waiting[message.request.role].append(message)
            self.changed.notify_all()

    def end_session(self, session_id: str, role: types.Role, slots: np.ndarray, reason: str) -> None:
        """Drops the messages of an ended session, and keeps its slots and the ledger's reason for the loop."""
        with self.changed:
            self.drop_session(session_id, role)
            self._ended.append((slots, reason))
            self.changed.notify_all()

    def drop_session(self, session_id: str, role: types.Role) -> None:
        """Drops the messages of a session ended by the loop itself."""
        with self.changed:
            waiting = self._waiting[role]
            self._waiting[role] = [message for message in waiting if message.request.session_id != session_id]

    def take_ended(self) -> list[tuple[np.ndarray, str]]:
        """Returns slots and reasons of the sessions ended since the last call."""
        with self.changed:
            ended, self._ended = self._ended, []
            return ended

    @property
    def has_ended(self) -> bool:
        """Whether sessions ended since the last `take_ended`."""
        with self.changed:
            return bool(self._ended)

    def num_rows(self, role: types.Role, holds: Callable[[np.ndarray], bool] | None = None) -> int:
        """Returns the number of waiting environments, without messages on hold."""
        with self.changed:
            waiting = [message.slots for message in self._waiting[role]]
            return sum(len(slots) for slots in waiting if holds is None or not holds(slots))

    def oldest(self, role: types.Role, holds: Callable[[np.ndarray], bool] | None = None) -> float | None:
        """Returns the arrival of the longest waiting message, without messages on hold."""
        with self.changed:
            waiting = self._waiting[role]
            return next((found.arrived for found in waiting if holds is None or not holds(found.slots)), None)

    def take(
        self,
        role: types.Role,
        layout: batches.Layout,
        max_rows: int,
        holds: Callable[[np.ndarray], bool] | None = None,
    ) -> list[batches.Message]:
        """Returns the ready messages, oldest first, up to `max_rows` rows of every shard.

        holds: says of a message's slots [E] whether it must wait; None: none must.
        """
        with self.changed:
            taken: list[batches.Message] = []
            left: list[batches.Message] = []
            counts = np.zeros(layout.num_shards, np.int64)
            for index, message in enumerate(self._waiting[role]):
                if holds is not None and holds(message.slots):
                    left.append(message)
                    continue
                shard, _ = layout.place(message.slots)
                more = counts + np.bincount(shard, minlength=layout.num_shards)
                if more.max() > max_rows:
                    left += self._waiting[role][index:]
                    break
                counts = more
                taken.append(message)
            self._waiting[role] = left
            return taken
