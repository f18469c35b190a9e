"""The worker's end of the wire: a blocking interface over one gRPC stream with automatic reconnection.

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

The stream lives on a thread of its own, which sends heartbeats while the worker's thread steps slow environments.
When the stream breaks it reconnects, for as long as it takes, and repeats steps without an answer; the worker sees a
Restart at most, if the learner has ended the session meanwhile. Permanent errors are raised. Of several hosts, a full
one and one without an answer are left for another: see hosts.py.
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
"""Longest time that close() takes for its Goodbye."""


class Client(contextlib.AbstractContextManager["Client"]):
    """A worker's connection to a learner. All methods but `leave` are for the worker's own thread.

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
        """Starts the transport thread; connects with the first join(). The learner sets the pace of heartbeats.

        address: one, or the hosts of one run, "A,B"; `access` is the same for all.
        Raises UsageError if the address, or a file of `access`, cannot be read.
        """
        secured = [security.for_client(entry, access) for entry in addresses.listed(address)]
        self._hosts = hosts.Hosts(secured, hello.worker_id, settings.beat_seconds)
        # Bounded by the protocol: at most one answer a group and one of each other kind of event, see connection.py.
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
        """Address of the learner that assigned the session, or is asked to."""
        return self._hosts.present.address

    def join(self) -> types.Assignment | None:
        """Waits for an assignment, however long the learner is away or full.

        For the first session, and again after each Restart; UsageError before that. Reset all environments with the
        assignment's seeds. None: training is over (or `leave` was called), exit with success.
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
        """Sends the environments' spec; does not block. Steps go out once the learner takes them.

        The next receive() raises SpecMismatch if the learner's networks were built for another spec.
        """
        self._thread.post(self._side.start, self._running().session_id, spec)

    def send(self, group: int, step: types.EnvStep) -> None:
        """Sends the newest step of a group; does not block.

        The first one of a group shows first observations; each later one follows the group's Actions. The arrays are
        read on the transport thread, again after a reconnect: leave them alone until those Actions have come. A later
        call raises the error of a step that is too large or refused.

        Raises InvalidMessage where there is no such group, SequenceError before the answer to its last step.
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
          Actions: step that group and send the outcome.
          Restart: the session is over; reset all environments, then join() again.
          End: training is over (or `leave` was called), exit with success. Later calls return it again.
        """
        event = self._take()
        assert not isinstance(event, types.Assignment)  # only join() asks for one
        if isinstance(event, messages.Actions):
            self._unanswered.discard(event.group)
        elif isinstance(event, messages.Restart):
            self._assignment = None
        return event

    def leave(self, reason: str) -> None:
        """Makes join() return None and receive() return End, soon. For any thread and for signal handlers."""
        self._inbox.put(messages.End(reason))

    def close(self, reason: str, failed: bool = False) -> None:
        """Says Goodbye on an open stream, and ends the transport thread. Further calls do nothing.

        failed: the environments failed; a restart of this process would fail again.
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
        """Returns the next event; an error or End stays for all later calls."""
        event = self._over or self._inbox.get()
        if isinstance(event, (messages.End, Exception)):
            self._over = event
        if isinstance(event, Exception):
            raise event
        return event
