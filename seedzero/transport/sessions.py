"""Knows phases, sessions, leases and sequence numbers: the protocol's rules without sockets, threads or clocks.

protos/seedzero/transport/inference.proto explains the rules. Times are seconds of any one clock, passed in.

Shape letters: E environments of one group.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from seedzero.core import errors, packing, types
from seedzero.transport import codec, links, messages

StreamT = TypeVar("StreamT")
Place: TypeAlias = Callable[[], str]
"""Names a group and its step for an error."""
_ON_FIRST = "on an episode's first observation; expected next-step auto-reset, see inference.proto"


class StreamPhase(enum.IntEnum):
    NEW = 0  # before Assign
    ASSIGNED = 1  # Assign was sent, and the session's Spec comes next
    STARTED = 2  # Start was sent; steps and answers follow
    RESTARTED = 3  # Restart was sent; messages until the next Hello belong to the session that is over
    CLOSED = 4  # nothing more is sent after the waiting messages

    def after(self, message: str, session_id: str = "", table: Transitions | None = None) -> StreamPhase:
        """Returns the phase after a message ("" has no content). Raises InvalidMessage for a message out of place.

        table: None for that of workers' streams.
        """
        phase = (TRANSITIONS if table is None else table)[message][self]
        if isinstance(phase, StreamPhase):
            return phase
        raise errors.InvalidMessage(phase.format(message.capitalize(), session_id))


Transitions: TypeAlias = Mapping[str, tuple[StreamPhase | str, ...]]
"""For each message: the next phase for every phase in order, or why it is rejected."""

NEW, ASSIGNED, STARTED, RESTARTED, CLOSED = StreamPhase
_NO_HELLO = "{} came before Hello; expected Hello first"
_TWICE = "{} came twice; session {} continues"
_NO_ASSIGN = "the learner sent {} before Assign"

TRANSITIONS: Transitions = {
    "hello": (NEW, _TWICE, _TWICE, RESTARTED, CLOSED),
    "spec": (_NO_HELLO, ASSIGNED, STARTED, RESTARTED, CLOSED),
    "step": (_NO_HELLO, "a {} came before Spec; expected Spec after every Assign", STARTED, RESTARTED, CLOSED),
    "heartbeat": tuple(StreamPhase),
    "goodbye": tuple(StreamPhase),
    "assign": (ASSIGNED, ASSIGNED, STARTED, ASSIGNED, CLOSED),
    "start": (_NO_ASSIGN, STARTED, STARTED, _NO_ASSIGN, CLOSED),
    "restart": (RESTARTED, RESTARTED, RESTARTED, RESTARTED, CLOSED),
    "close": (CLOSED,) * 5,
    "": ("a message without content; expected Hello, Spec, Step, Heartbeat or Goodbye",) * 5,
}
"""The table of workers' streams; the learner's messages and close() change the phase, too."""

Repeat = enum.Enum("Repeat", ["NEW", "PENDING"])
"""What a sequence number without an answer means."""


@dataclasses.dataclass
class Group:
    """The progress of a group of environments."""

    final: np.ndarray  # [E] bool, true: the last accepted observation was its episode's last (or there was none yet)
    owed_since: float  # time since which the worker owes the Spec or the next step; infinity if it owes none
    any_final: bool = True  # whether one of `final` is true
    next_sequence: int = 0  # number of the next new step
    pending: bool = False  # the step numbered next_sequence - 1 has no answer yet
    last_reply: bytes = b""  # answer to the step numbered next_sequence - 1, unless pending
    asked_bots: bool = False  # the last reply names bots, so the next step reports their actions
    arrived: float = 0.0  # time of the newest step

    def look_up(self, group: int, sequence: int) -> Repeat | bytes:
        """Returns NEW, PENDING, or the answer to a step of this number. Raises SequenceError for other numbers."""
        if sequence == self.next_sequence and not self.pending:
            return Repeat.NEW
        if sequence == self.next_sequence - 1:
            return Repeat.PENDING if self.pending else self.last_reply
        kind = "older than" if sequence < self.next_sequence else "a gap after" if not self.pending else "ahead of"
        state = "unanswered " if self.pending else ""
        expected = f"{self.next_sequence - 1} again" if self.pending else f"{self.next_sequence}"
        raise errors.SequenceError(
            f"step {sequence} of group {group} is {kind} the {state}step {self.next_sequence - 1}; expected {expected}"
        )


class LearnerSession(Generic[StreamT]):
    """A worker's environments from one reset to the next."""

    def __init__(self, worker_id: str, assignment: types.Assignment, lease_seconds: float, now: float) -> None:
        self.worker_id, self.assignment = worker_id, assignment
        self._lease_seconds = lease_seconds
        self.renew(now)
        self.spec: types.EnvSpec | None = None
        self.layout: codec.StepLayout  # from begin() on
        self.stream: StreamT | None = None
        size, num_groups = assignment.envs_per_group, assignment.num_groups
        self.meter = links.Meter(num_groups, size)
        self._groups = tuple(Group(np.ones(size, np.bool_), now) for _ in range(num_groups))

    @property
    def owed_since(self) -> float:
        """Time since which the worker's Spec or step is awaited; infinity if the worker waits for answers."""
        return min(group.owed_since for group in self._groups)

    def renew(self, now: float) -> None:
        """Restarts the lease."""
        self.expires_at = now + self._lease_seconds

    def restart_deadlines(self, now: float) -> None:
        """Restarts the lease, the worker's deadlines, and the measurements."""
        self.renew(now)
        self.meter.restart()
        for group in self._groups:
            group.owed_since = max(group.owed_since, now)

    def begin(self, spec: types.EnvSpec, now: float) -> bool:
        """Takes the spec and returns whether it is the session's first. Raises SpecMismatch for a changed spec."""
        if self.spec not in (None, spec):
            raise errors.SpecMismatch(f"session {self.assignment.session_id} began with {self.spec}; now came {spec}")
        is_first, self.spec = self.spec is None, spec
        for group in self._groups if is_first else ():
            group.owed_since = now
        self.layout = codec.StepLayout(spec, self.assignment.envs_per_group)
        self._num_seats = spec.num_seats(self.assignment.role)
        if self._num_seats and self.assignment.envs_per_group % self._num_seats:
            trains = self.assignment.role is types.Role.TRAIN
            raise errors.SpecMismatch(
                f"groups have {self.assignment.envs_per_group} rows, and a game {self._num_seats} seats "
                f"({', '.join(spec.seats)}); give --{'worker.envs_per_group' if trains else 'evaluation.num_envs'} a "
                f"multiple of {self._num_seats}"
            )
        return is_first

    def look_up(self, group: int, sequence: int) -> Repeat | bytes:
        """Returns NEW, PENDING, or the answer to this step. Raises InvalidMessage for an unknown group."""
        if group >= len(self._groups):
            raise errors.InvalidMessage(f"group is {group}; expected 0 to {len(self._groups) - 1}")
        return self._groups[group].look_up(group, sequence)

    def arrive(self, group: int, now: float) -> None:
        """Measures a NEW step, before `accept`."""
        state = self._groups[group]
        state.arrived = now
        if state.next_sequence:
            self.meter.stepped(now - state.owed_since)

    def accept(self, group: int, sequence: int, step: types.EnvStep) -> messages.StepRequest:
        """Takes a NEW step, which is pending from now on. Raises InvalidMessage for impossible values."""
        state = self._groups[group]
        first, final, shown = state.final, step.final, step.shown

        def place() -> str:
            return f"of group {group} ({self.assignment.env}), {sequence} steps after its reset,"

        if self._num_seats:
            shown = np.ones_like(first) if shown is None else shown
            first, final = first & shown, np.where(shown, final, first)
        elif shown is not None:
            _refuse(place, ~shown, "a row that is not shown; expected all: an evaluation's rows are games")
        if (step.played is not None) is not state.asked_bots:
            fault = "does not tell" if state.asked_bots else "tells"
            raise errors.InvalidMessage(
                f"the step {place()} {fault} the played actions; expected them after Actions with a bot, and only then"
            )
        _check_values(place, step, shown, self.spec.packed if self.spec else ())
        if state.any_final:
            _refuse(place, first & final, f"terminated or truncated {_ON_FIRST}")
            _refuse(place, first & (step.reward != 0), f"a reward other than 0 {_ON_FIRST}")
        if shown is not None and self._num_seats:
            _check_seats(place, step, shown, final, self._num_seats)
        state.final, state.any_final = final, codec.any_true(final)
        state.next_sequence, state.pending, state.last_reply = sequence + 1, True, b""
        state.owed_since = math.inf
        return messages.StepRequest(self.assignment.session_id, self.assignment.role, group, sequence, step, first)

    def answer(self, group: int, sequence: int, reply: bytes, now: float, *, asks_bots: bool = False) -> bool:
        """Keeps the answer to the pending step; returns False if that step is not pending.

        asks_bots: it names some.
        """
        state = self._groups[group]
        if not state.pending or sequence != state.next_sequence - 1:
            return False
        state.pending, state.last_reply, state.owed_since, state.asked_bots = False, reply, now, asks_bots
        self.meter.answered(now - state.arrived)
        self.meter.num_bytes += len(reply)
        return True


def _check_values(
    place: Place, step: types.EnvStep, shown: np.ndarray | None, packed: Sequence[types.ArraySpec]
) -> None:
    """Raises InvalidMessage if a number is not finite, or no action is legal.

    shown: [E] bool; None: all. packed: `EnvSpec.packed`.
    """
    arrays = {"reward": step.reward, "observation": step.observation}
    if packed:
        arrays |= {f"observation {name!r}": array for name, array in packing.unpack(packed, step.observation).items()}
    for name, values in arrays.items():
        if values.dtype.kind == "f" and not codec.all_true(finite := np.isfinite(values)):
            wrong = ~finite.reshape(len(values), -1).all(axis=1)
            _refuse(place, wrong, f"{values[~finite][0]} in its {name}; expected finite numbers: fix the environment")
    if step.action_mask is not None:
        wrong = ~np.any(step.action_mask, axis=1)
        _refuse(place, wrong if shown is None else wrong & shown, "an action_mask without a legal action")


def _check_seats(place: Place, step: types.EnvStep, shown: np.ndarray, final: np.ndarray, num_seats: int) -> None:
    """Raises InvalidMessage for rows of seats that do not make up a game. final: [E] bool, after the step."""
    _refuse(place, ~shown & (step.final | (step.reward != 0)), "a reward or an end in a row that is not shown")
    games = (-1, num_seats)
    chairs = np.sort(step.tasks.reshape(games), axis=1)
    wrong = np.repeat(np.any(chairs[:, 1:] == chairs[:, :-1], axis=1), num_seats)
    _refuse(place, wrong, "the chair (its task) of another seat of its game; expected all different")
    moves = np.any((shown & ~step.final).reshape(games), axis=1)
    ends = np.any(shown.reshape(games), axis=1) & np.all(final.reshape(games), axis=1)
    _refuse(place, np.repeat(~moves & ~ends, num_seats), "a game in which no seat moves, and which is not over")


def _refuse(place: Place, wrong: np.ndarray, fault: str) -> None:
    if codec.any_true(wrong):
        raise errors.InvalidMessage(f"environment {int(wrong.argmax())} {place()} has {fault}")
