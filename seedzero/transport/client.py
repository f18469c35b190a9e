"""Connects a worker to its learner: a blocking interface over one gRPC stream that reconnects by itself.

    with client.Client(address, hello) as learner:
        while (assignment := learner.join()) is not None:          # None: training is over
            ... make and reset the environments that the assignment names ...
            learner.start(spec)
            for group, step in enumerate(first_steps):
                learner.send(group, step)
            while isinstance(event := learner.receive(), messages.Actions):
                learner.send(event.group, environments[event.group].step(event.actions))
            if isinstance(event, messages.End):
                break                                               # messages.Restart: join again

The stream has its own thread, which sends heartbeats while the worker's thread steps slow environments. When the
stream breaks, it reconnects, however long that takes, and repeats steps without an answer. The worker notices at most
a Restart, if the learner has ended the session meanwhile. Permanent errors are raised. With several hosts, it leaves a
full or silent one for another, see hosts.py.
"""

from __future__ import annotations

import contextlib
import queue
import types as python_types

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.transport import addresses, connection, hosts, loop_thread, messages, security

_DEFAULTS = sections.TransportConfig()
CLOSE_SECONDS = 5.0
"""Longest time that close() spends on its Goodbye."""


class Client(contextlib.AbstractContextManager["Client"]):
    """A worker's connection to a learner. Only `leave` may be called from other threads.

    Every method may raise the permanent error that ended the connection, and then every later one does: AccessDenied,
    VersionMismatch, SpecMismatch, InvalidMessage, SequenceError.
    """

    def __init__(
        self,
        address: str,
        hello: messages.Hello,
        *,
        settings: sections.TransportConfig = _DEFAULTS,
        access: security.Access = security.PLAIN,
    ) -> None:
        """Starts the transport thread, which connects at the first join(). The learner sets the pace of heartbeats.

        address: one address, or the hosts of one run, "A,B"; `access` is used for all. Raises UsageError if the
        address, or a file of `access`, cannot be read.
        """
        secured = [security.for_client(entry, access) for entry in addresses.listed(address)]
        self._hosts = hosts.Hosts(secured, hello.worker_id, settings.beat_seconds)
        # Bounded by the protocol: at most one answer for each group and one of each other kind of event, see
        # connection.py.
        self._inbox: queue.SimpleQueue[connection.Event] = queue.SimpleQueue()
        self._assignment: types.Assignment | None = None
        self._next_sequence: dict[int, int] = {}
        self._unanswered: set[int] = set()
        self._over: messages.End | Exception | None = None
        self._closed = False
        self._side = connection.WorkerSide(self._hosts, hello, self._inbox.put, settings.lease_seconds)
        self._connection = connection.Connection(self._hosts, settings, self._side)
        self._thread = loop_thread.LoopThread("seedzero-client")
        self._thread.run(self._connection.open())

    @property
    def address(self) -> str:
        """Address of the learner that assigned the session, or that is asked for one."""
        return self._hosts.present.address

    def join(self) -> types.Assignment | None:
        """Waits for an assignment, however long the learner is away or full.

        Call it for the first session and after each Restart; at other times it raises UsageError. Then reset all
        environments with the assignment's seeds. None means that training is over or `leave` was called, so exit with
        success.
        """
        if self._assignment is not None:
            session = f"session {self._assignment.session_id}"
            raise errors.UsageError(f"join() while {session} continues; join again after a Restart")
        self._thread.post(self._side.join)
        assignment = self._take()
        if isinstance(assignment, messages.End):
            return None
        assert isinstance(assignment, types.Assignment)  # other events belong to a session
        self._assignment = assignment
        self._next_sequence, self._unanswered = dict.fromkeys(range(assignment.num_groups), 0), set()
        return assignment

    def start(self, spec: types.EnvSpec) -> None:
        """Sends the environments' spec without blocking. Steps are sent once the learner accepts them.

        The next receive() raises SpecMismatch if the learner's networks were built for another spec.
        """
        self._thread.post(self._side.start, self._running().session_id, spec)

    def send(self, group: int, step: types.EnvStep) -> None:
        """Sends the newest step of a group without blocking.

        A group's first step shows first observations; each later one follows the group's Actions. The transport thread
        reads the arrays, and again after a reconnect, so do not change them until those Actions have come. A later
        call raises the error of a step that is too large or refused.

        Raises InvalidMessage if there is no such group, and SequenceError before the answer to its last step.
        """
        assignment = self._running()
        if (sequence := self._next_sequence.get(group)) is None:
            raise errors.InvalidMessage(f"group {group} is not one of 0 to {assignment.num_groups - 1}")
        if group in self._unanswered:
            raise errors.SequenceError(f"group {group} has an unanswered step; receive its actions first")
        if self._over:
            return
        self._next_sequence[group] = sequence + 1
        self._unanswered.add(group)
        self._thread.post(self._side.submit, assignment.session_id, group, sequence, step)

    def receive(self) -> messages.Actions | messages.Restart | messages.End:
        """Waits for the learner's next message.

        Returns:
          Actions: step that group and send the result.
          Restart: the session is over; reset all environments, then join() again.
          End: training is over or `leave` was called, so exit with success. Later calls return it again.
        """
        event = self._take()
        assert not isinstance(event, types.Assignment)  # only join() asks for one
        if isinstance(event, messages.Actions):
            self._unanswered.discard(event.group)
        elif isinstance(event, messages.Restart):
            self._assignment = None
        return event

    def leave(self, reason: str) -> None:
        """Makes join() return None and receive() return End soon. Any thread and signal handlers may call it."""
        self._inbox.put(messages.End(reason))

    def close(self, reason: str, failed: bool = False) -> None:
        """Says Goodbye on an open stream and ends the transport thread. Further calls do nothing.

        failed: whether the environments failed, so that a restart of this process would fail again.
        """
        if self._closed:
            return
        self._closed = True
        self._thread.run(self._connection.close(reason, failed, CLOSE_SECONDS))
        self._thread.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: python_types.TracebackType | None
    ) -> None:
        reason = "done" if error is None else str(error) or type(error).__name__
        self.close(reason, failed=isinstance(error, errors.EnvironmentFailure))

    def _running(self) -> types.Assignment:
        if self._assignment is None:
            raise errors.UsageError("no session; call join() first")
        return self._assignment

    def _take(self) -> types.Assignment | messages.Actions | messages.Restart | messages.End:
        """Returns the next event; after an error or End, all later calls give the same."""
        event = self._over or self._inbox.get()
        if isinstance(event, (messages.End, Exception)):
            self._over = event
        if isinstance(event, Exception):
            raise event
        return event
