"""A tap on the device loop: its newest calls and the steps of a few environments, kept while a page watches.

Nobody watches most runs: then each place of the loop looks at `Tap.is_on`, and that is all. An ask turns the tap on;
`IDLE_SECONDS` after the last one the loop turns it off.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from seedzero.device import batch as batches
from seedzero.loop import peeking
from seedzero.replay import rings as ring_store

IDLE_SECONDS = 10.0
MAX_CALLS = 1024
MAX_STEPS = 512
"""Kept steps of an environment, fewer where their observations are large."""
MAX_KEPT_BYTES = 8 << 20
"""Kept observations of an environment."""
MAX_WATCHED = 4
"""Environments that are watched at a time."""
_log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class TimedCall:
    """A call on the devices, or a wait of the loop; times in seconds of the loop's clock."""

    kind: str
    began: float  # to be prepared
    dispatched: float = 0.0
    ended: float = 0.0  # on the host, with its results
    rows: int = 0  # of an acting batch
    size: int = 0  # of that batch, with padding
    age: int | None = None  # updates between the acting and the newest parameters
    reason: str = ""  # of a wait

    def row(self) -> list[Any]:
        times = (self.began, self.dispatched, self.ended)
        return [self.kind, *(round(time, 6) for time in times), self.rows, self.size, self.age, self.reason]


@dataclasses.dataclass(slots=True)
class SeenStep:
    """A step of a watched environment."""

    number: int
    message: batches.Message | None  # until the action is known
    observation: bytes  # the newest frame, as the worker sent it
    reward: float  # received on the way to the observation
    first: bool  # of an episode or session
    terminated: bool
    truncated: bool
    task: int
    action: Any = None  # None: none follows, or it is not known yet
    stored: list[float] | None = None  # numbers that the agent stored, by `peeking.Peek.columns`


class Kept(NamedTuple):
    """Answered steps of an environment, the oldest first, and the names and widths of their stored numbers."""

    steps: Sequence[SeenStep]
    columns: Sequence[tuple[str, int]]
    watch: int  # number of the watch: the steps of another one are counted anew


class WatchedSlot:
    """The newest steps of an environment. `lock` guards `steps` and the steps that wait for their actions."""

    def __init__(self, slot: int, watch: int, asked: float, lock: threading.Lock) -> None:
        self.slot, self.watch, self.asked = slot, watch, asked
        self.lock = lock
        self.steps: collections.deque[SeenStep] = collections.deque()
        self._looked: peeking.Looked | None = None
        self._wants_look = self._is_filled = False
        self._last = 0  # number of the newest step at the last `since`
        self._waiting: collections.deque[SeenStep] = collections.deque()  # for their actions
        self._num_shown = 0
        self._rows: dict[tuple[str, int], int | None] = {}  # of the environment in a group, by session and group

    def show(self, message: batches.Message) -> None:
        """Loop's thread: takes the environment's step of a message that is being acted on."""
        if (row := self._row(message)) is None:
            return
        step = message.request.step
        seen = SeenStep(
            number=self._num_shown,
            message=message,
            observation=step.observation[row].tobytes(),
            reward=float(step.reward[row]),
            first=bool(message.request.first[row]),
            terminated=bool(step.terminated[row]),
            truncated=bool(step.truncated[row]),
            task=0 if step.task is None else int(step.task[row]),
        )
        self._num_shown += 1
        with self.lock:
            self._waiting.append(seen)

    def answer(self, message: batches.Message, actions: Any) -> None:
        """Completion thread: takes the actions for a message; None: none follow."""
        with self.lock:
            if not any(step.message is message for step in self._waiting):
                return  # it came before the watch
            row, is_answered = self._row(message), False
            while not is_answered:
                step = self._waiting.popleft()
                is_answered, step.message = step.message is message, None  # an evaluation's last step gets no answer
                if is_answered and actions is not None and row is not None and not (step.terminated or step.truncated):
                    step.action = actions[row].tolist()
                self.steps.append(step)
            most = max(1, min(MAX_STEPS, MAX_KEPT_BYTES // max(1, len(step.observation))))
            while len(self.steps) > most:
                self.steps.popleft()

    def look(self, peek: peeking.Peek, rings: ring_store.Rings) -> None:
        """Loop's thread: has the device fetch the numbers stored with the newest steps, if that is wanted."""
        if self._wants_look and self._looked is None and self._num_shown and peek.is_ready:
            self._looked, self._wants_look = peek.look(rings, self.slot, self._num_shown - 1), False

    def since(self, number: int) -> list[SeenStep]:
        """Any thread, with the lock: returns the steps from a number on.

        New ones wait for their stored numbers until the next call.
        """
        self._wants_look = True
        if (looked := self._looked) is not None and looked.is_ready:
            self._is_filled, self._looked = looked.fill(self.steps), None
        last, self._last = self._last, self.steps[-1].number if self.steps else 0
        if not self._is_filled:
            last = self._last
        known = max((step.number for step in self.steps if step.stored is not None), default=0)
        return [step for step in self.steps if number <= step.number <= max(last, known)]

    def _row(self, message: batches.Message) -> int | None:
        """Returns the environment's row in a message; None: it is not there."""
        request = message.request
        if message.seating is not None:  # the shown rows differ
            return self._found(message)
        key = request.session_id, request.group
        try:
            return self._rows[key]
        except KeyError:
            if len(self._rows) > 1000:
                self._rows.clear()
            row = self._rows[key] = self._found(message)
            return row

    def _found(self, message: batches.Message) -> int | None:
        places = (message.slots == self.slot).nonzero()[0]
        return int(places[0]) if len(places) else None


def _harmless(method: Callable[..., None]) -> Callable[..., None]:
    """Returns a method of `Tap` that turns the tap off where it fails: whoever looks on must not end a run."""

    @functools.wraps(method)
    def guarded(tap: Tap, *arguments: Any) -> None:
        try:
            method(tap, *arguments)
        except Exception as error:
            tap.is_on = False
            _log.error("the live view failed and is off until the next question", exc_info=error)

    return guarded


class Tap:
    """The newest calls of the loop, and the environments that are watched."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.is_on = False
        """Whether anyone watches. Looked at before every method of the loop's and of the completion threads."""
        self.clock = clock
        self._asked = 0.0
        self._lock = threading.Lock()
        self._calls: collections.deque[tuple[int, TimedCall]] = collections.deque(maxlen=MAX_CALLS)
        self._numbers, self._watches = itertools.count(1), itertools.count()
        self._preparing: TimedCall | None = None
        self._watched: dict[int, WatchedSlot] = {}
        self._peek: peeking.Peek | None = None

    # ------------------------------------------------------------------------------------ any thread

    def ask(self) -> None:
        """Turns the tap on, or keeps it on."""
        self._asked = self.clock()
        self.is_on = True

    def calls_since(self, number: int) -> list[list[Any]]:
        """Returns the kept calls after a number, each with its number first; 0: all."""
        with self._lock:
            return [[place, *call.row()] for place, call in self._calls if place > number]

    def steps_since(self, slot: int, number: int) -> Kept | None:
        """Watches an environment; returns its kept steps from a number on. None: too many are watched."""
        with self._lock:
            now = self.clock()
            alive = {key: one for key, one in self._watched.items() if now - one.asked <= IDLE_SECONDS}
            watched = alive.get(slot)
            if watched is None:
                if len(alive) >= MAX_WATCHED:
                    return None
                watched = alive[slot] = WatchedSlot(slot, next(self._watches), now, self._lock)
            watched.asked = now
            self._watched = alive  # a new one: other threads go through the old one
            columns = () if self._peek is None else self._peek.columns
            return Kept(watched.since(number), columns, watched.watch)

    # ------------------------------------------------------------------------------------ the loop's thread

    @_harmless
    def turn(self, rings: ring_store.Rings) -> None:
        """Looks at the rings for the watched environments, and turns the tap off if nobody asks any more."""
        if self.clock() - self._asked > IDLE_SECONDS:
            self.is_on = False
            with self._lock:
                self._calls.clear()
                self._watched, self._preparing = {}, None
            return
        for watched in self._watched.values():
            if watched.slot < len(rings.cursor):
                if self._peek is None:
                    self._peek = peeking.Peek(rings)
                watched.look(self._peek, rings)

    def begin(self, kind: str) -> None:
        """A call is being prepared."""
        self._preparing = TimedCall(kind, self.clock())

    def count(self, rows: int, size: int, age: int) -> None:
        """Adds an acting batch to the call that is being prepared."""
        if (call := self._preparing) is not None:
            call.rows, call.size, call.age = call.rows + rows, call.size + size, age

    @_harmless
    def show(self, messages: Sequence[batches.Message]) -> None:
        """Takes the messages that are being acted on."""
        for watched in self._watched.values():
            for message in messages:
                watched.show(message)

    def timed(self, when_done: Callable[[], None]) -> Callable[[], None]:
        """The call is dispatched; returns a function for its completion."""
        call, self._preparing = self._preparing, None
        if call is None:
            return when_done
        call.dispatched = self.clock()

        def done() -> None:
            when_done()
            self._add(call)

        return done

    def wait(self, began: float, held: Sequence[str]) -> None:
        """The loop has waited; held: as of `scheduler.Wait`."""
        self._add(TimedCall("wait", began, began, reason=_reason(held)))

    # ------------------------------------------------------------------------------------ the completion thread

    @_harmless
    def answer(self, message: batches.Message, actions: Any) -> None:
        """Takes the actions for a message; None: none follow."""
        for watched in self._watched.values():
            watched.answer(message, actions)

    def _add(self, call: TimedCall) -> None:
        call.ended = self.clock()
        with self._lock:
            self._calls.append((next(self._numbers), call))


def _reason(held: Sequence[str]) -> str:
    if not held:
        return "calls on the devices"
    if "acting_held_seconds" in held:
        return "acting waits for learning"
    return "learning waits for steps" if "updating_held_seconds" in held else "environments"
