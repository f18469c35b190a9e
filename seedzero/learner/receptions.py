"""Receives workers, as the server's handler on the server's thread.

Workers join, show their environments, step and leave here. Their messages wait in the inbox for the device loop.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence

from seedzero.checkpoints import spec_file
from seedzero.config import configs
from seedzero.core import env_ids, errors, types
from seedzero.device import newest_rows
from seedzero.live import answer, observers
from seedzero.loop import inboxes, rosters
from seedzero.metrics import counts
from seedzero.monitoring import views
from seedzero.transport import messages


@dataclasses.dataclass(eq=False)
class Reception:
    """Keeps the roster and the inbox; if the spec is unknown, the first worker provides it."""

    config: configs.Config
    roster: rosters.Roster
    view: views.View  # takes the spec, and answers status requests
    report: Callable[[str], None]  # shows the user a message
    on_join: Callable[[], None]  # called once a worker's environments are accepted
    on_overdue: Callable[[str], None]  # takes the name of a local worker that has sent only heartbeats for too long
    check: Callable[[types.EnvSpec], None]  # raises UsageError for environments that no network or replay suits
    spec: types.EnvSpec | None = None  # the environments' spec; None: not known yet
    has_begun: bool = False  # a worker's environments have been there
    has_trained: bool = False  # so have those of a training worker

    def __post_init__(self) -> None:
        self.inbox = inboxes.Inbox()
        self.step = functools.partial(self.inbox.step, self.roster.get, time.monotonic)  # handler, too
        self.observer = observers.LiveObserver(
            time.monotonic, newest_rows.NewestReader
        )  # of the device loop, for pages
        self._live = answer.LiveView(
            self.observer, self.status, lambda: self.view.gathered.means(), self.roster.started, lambda: self.spec
        )
        self._has_made: set[str] = set()  # names of local workers whose environments were there

    def show(self, spec: types.EnvSpec) -> None:
        """Takes the spec for which networks are being built."""
        self.spec = self.roster.spec = spec
        self.view.progress.show(spec)

    def assign(self, hello: messages.Hello) -> types.Assignment:
        """Handler: returns a joining worker's environments."""
        return self.roster.assign(hello)

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        """Handler: a worker's environments are ready.

        If the spec is unknown, networks are built for the first ones.
        """
        tasks, joining = spec.tasks, self.roster.get(session_id)
        role = types.Role.TRAIN if joining is None else joining.role
        is_own = self.config.env.id != env_ids.REMOTE  # some workers' environments name their own tasks
        if is_own and role is types.Role.EVALUATE and (spec.seats or spec.num_players == 2):
            spec = dataclasses.replace(spec, tasks=spec.seats)  # these only report the opponents of evaluations
        elif spec.seats and tasks != spec.seats:
            raise errors.SpecMismatch(f"the tasks of seats {list(spec.seats)} are {list(tasks)}; expected these seats")
        if self.spec is None:
            if self.config.env.id == env_ids.REMOTE:
                self._check(spec)
            self.show(spec)
        assert self.spec is not None
        spec_file.check_equal(spec, self.spec)
        session = self.roster.begin(session_id, tasks, spec.num_seats(role))
        if session.is_local:
            self._has_made.add(session.worker_id)
        self.has_begun = True
        self.has_trained |= session.role is types.Role.TRAIN
        self.inbox.news.tell()
        self.on_join()
        if session.role is types.Role.TRAIN and not self.config.run.deterministic:
            self.report(f"worker {session.worker_id} joined with {len(session.all_slots)} environments{self._kept()}")
            # A remote environment is evaluated by a separate worker, which may never come.
            remote = self.config.env.id == env_ids.REMOTE
            if remote and self.roster.has_evaluation and not self.roster.started(types.Role.EVALUATE):
                self.report("evaluation is off until another worker joins that accepts it")

    def _kept(self) -> str:
        """Returns the share of the replay that the present environments fill.

        "" for all of it, or without environments.
        """
        replay, present = self.config.replay, sum(self.roster.sizes())
        if not 0 < present < replay.num_sharing or not self.config.agent.SAMPLES:
            return ""
        kept = replay.capacity * present // replay.num_sharing
        return (
            f"; {present} of {replay.num_sharing} are here, which fill {kept} of the replay's {replay.capacity} steps"
        )

    def _check(self, spec: types.EnvSpec) -> None:
        """Rejects a worker whose environments no network or replay suits; the run can continue with others."""
        try:
            self.check(spec)
        except errors.UsageError as error:
            raise errors.SpecMismatch(f"this learner cannot be built for these environments: {error}") from None

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
        # Environments may take long to be made at first; those that existed before are stuck in their reset.
        if reason.startswith(messages.OVERDUE) and session.worker_id in self._has_made:
            self.on_overdue(session.worker_id)
        self._has_made.discard(session.worker_id)  # the next time it may be another process

    def status(self) -> Mapping[str, object]:
        """Handler: returns the status for `seedzero status`."""
        return self.view.status()

    def live(self, asked: messages.LiveAsk, present: Sequence[messages.Presence]) -> tuple[str, bytes]:
        """Server: returns the live view for a page."""
        return self._live.answer(asked, present)
