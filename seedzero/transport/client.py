"""The worker's end of the wire: a blocking interface over one gRPC stream that heals by itself.

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
When the stream breaks it reconnects, for as long as it takes, and repeats what was not answered; the worker does not
notice, except by a Restart if the learner has given the run up meanwhile. What trying again cannot heal is raised.
"""

from __future__ import annotations

import queue
import types as python_types

from seedzero.config import config
from seedzero.core import errors, types
from seedzero.transport import connection, loop_thread, messages, security

_DEFAULTS = config.TransportConfig()
CLOSE_SECONDS = 5.0
"""Longest time that close() spends on saying goodbye."""


class Client:
    """A worker's connection to its learner. All methods but `leave` are for one thread, the worker's own.

    Every method may raise what ended the connection for good: AccessDenied, VersionMismatch, SpecMismatch,
    InvalidMessage, SequenceError. It raises it again in every later call.
    """

    def __init__(
        self,
        address: str,
        hello: messages.Hello,
        *,
        settings: config.TransportConfig = _DEFAULTS,
        access: security.Access = security.PLAIN,
    ) -> None:
        """Starts the transport thread; connects with the first join().

        Args:
          address: of the learner, see transport/address.py.
          hello: who we are; its run id stays empty (the client keeps the current one itself).
          settings: keepalive, ping timeout and longest back-off are used; heartbeats follow the learner's word.
          access: token and TLS.

        Raises:
          UsageError: the address, or a file of `access`, cannot be read.
        """
        secured = security.for_client(address, access)
        # Holds at most one answer a group and the run's own events, so nothing is ever put aside: see connection.py.
        self._inbox: queue.SimpleQueue[connection.Event] = queue.SimpleQueue()
        self._assignment: types.Assignment | None = None
        self._next_sequence: dict[int, int] = {}
        self._unanswered: set[int] = set()
        self._held: messages.Restart | None = None
        self._over: messages.End | Exception | None = None
        self._closed = False
        self._connection = connection.Connection(secured, hello, settings, self._inbox.put)
        self._thread = loop_thread.LoopThread("seedzero-client")
        self._thread.run(self._connection.open())

    def join(self) -> types.Assignment | None:
        """Waits for an assignment, however long the learner is away or full.

        For the first run, and again after each Restart. Reset all environments with the assignment's seeds.

        Returns:
          What to run, with a new run id; None: training is over (or `leave` was called), exit with success.

        Raises:
          UsageError: the last run is not over.
        """
        if self._assignment is not None:
            raise errors.UsageError(
                f"join() while run {self._assignment.session_id} goes on; join again after a Restart"
            )
        self._thread.post(self._connection.join)
        while True:
            match self._take():
                case types.Assignment() as assignment:
                    self._assignment = assignment
                    self._next_sequence = dict.fromkeys(range(assignment.num_groups), 0)
                    self._unanswered = set()
                    return assignment
                case messages.End():
                    return None

    def start(self, spec: types.EnvSpec) -> None:
        """Tells the learner what the environments look like and waits until it takes steps.

        A Restart or End that comes instead is what the next receive() returns; steps sent until then are dropped.

        Raises:
          SpecMismatch: the learner's networks were built for another spec.
        """
        assignment = self._running()
        self._thread.post(self._connection.start, assignment.session_id, spec)
        match self._take():
            case messages.Restart() as restart:
                self._held = restart

    def send(self, group: int, step: types.EnvStep) -> None:
        """Has the newest step of a group sent; does not block.

        The first one of a group shows first observations; each later one follows the group's Actions. The arrays are
        read on the transport thread, again after a reconnect: leave them alone until those Actions have come. A step
        that is too large, or that the learner refuses, is raised by a later call.

        Raises:
          InvalidMessage: no such group.
          SequenceError: the group's last step has no answer yet.
        """
        assignment = self._running()
        sequence = self._next_sequence.get(group)
        if sequence is None:
            raise errors.InvalidMessage(f"group {group} is not one of 0 to {assignment.num_groups - 1}")
        if group in self._unanswered:
            raise errors.SequenceError(f"group {group} has an unanswered step; receive its actions first")
        if self._held or self._over:
            return
        self._next_sequence[group] = sequence + 1
        self._unanswered.add(group)
        self._thread.post(self._connection.submit, assignment.session_id, group, sequence, step)

    def receive(self) -> messages.Actions | messages.Restart | messages.End:
        """Waits for what the learner says next.

        Returns:
          Actions: step that group and send the outcome.
          Restart: the run is over; reset all environments, then join() again.
          End: training is over (or `leave` was called), exit with success. Later calls return it again.
        """
        event = self._held or self._take()
        self._held = None
        if isinstance(event, messages.Actions):
            self._unanswered.discard(event.group)
            return event
        if isinstance(event, messages.Restart):
            self._assignment = None
            return event
        if isinstance(event, messages.End):
            return event
        raise errors.UsageError(f"{type(event).__name__} instead of actions; call start() before receive()")

    def leave(self, reason: str) -> None:
        """Makes join() return None and receive() return End, soon. For any thread and for signal handlers."""
        self._thread.post(self._connection.leave, reason)

    def close(self, reason: str, failed: bool = False) -> None:
        """Says goodbye where a stream is open, and ends the transport thread. Further calls do nothing.

        Args:
          reason: for the learner's log.
          failed: the environments failed; a restart of this process would fail again.
        """
        if self._closed:
            return
        self._closed = True
        self._thread.run(self._connection.close(reason, failed, CLOSE_SECONDS))
        self._thread.stop()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: python_types.TracebackType | None
    ) -> None:
        reason = "done" if error is None else str(error) or type(error).__name__
        self.close(reason, failed=isinstance(error, errors.EnvironmentFailure))

    def _running(self) -> types.Assignment:
        if self._assignment is None:
            raise errors.UsageError("no run; call join() first")
        return self._assignment

    def _take(self) -> connection.Event:
        """Returns the next event; an error or End stays for all later calls."""
        event = self._over or self._inbox.get()
        if isinstance(event, (messages.End, Exception)):
            self._over = event
        if isinstance(event, Exception):
            raise event
        return event
