"""Keeps the newest calls of the device loop, and the steps of a few environments, while somebody watches the page.

Nobody watches most runs; then the observer drops all records. A question turns it on, and `IDLE_SECONDS` after the
last one it turns itself off.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from seedzero.learner.live import record

IDLE_SECONDS = 10.0
MAX_CALLS = 1024
MAX_STEPS = 512
"""Most steps kept of an environment; fewer if its observations are large."""
MAX_KEPT_BYTES = 8 << 20
"""Most bytes of observations kept of an environment."""
MAX_WATCHED = 4
"""Most environments that can be watched at the same time."""
_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


@dataclasses.dataclass(slots=True)
class Step:
    """A step of a watched environment."""

    number: int
    observation: bytes  # the newest frame, as the worker sent it
    reward: float  # the reward that came with the observation
    first: bool  # true at the first step of an episode or a session
    terminated: bool
    truncated: bool
    task: int
    action: Any  # None if no action follows
    stored: list[float] | None = None  # numbers that the agent stored, by `Kept.columns`


class Kept(NamedTuple):
    """Steps of an environment, the oldest first, with names and widths of their stored numbers."""

    steps: Sequence[Step]
    columns: Sequence[tuple[str, int]]
    watch: int  # number of the watch; each watch counts its steps from 0
    are_too_large: bool = False  # true if there are steps, but the newest one alone exceeds the limit


class Watched:
    """The newest steps of a watched environment; the observer's lock guards everything but `wants_look`."""

    def __init__(self, slot: int, watch: int, asked: float) -> None:
        self.slot, self.watch, self.asked = slot, watch, asked
        self.wants_look = False
        self._steps = record.Buffer[Step](MAX_STEPS, MAX_KEPT_BYTES)
        # rows that are being read, and the number of the step in the last one
        self._look: tuple[Any, int] | None = None
        self._is_filled = False
        self._last = 0  # number of the newest step at the last `since`

    def take(self, acted: record.Acted) -> None:
        """Adds the environment's step, if it is among these rows, and the rows of its ring that are being read."""
        places, rows = np.flatnonzero(acted.rows.slot == self.slot), acted.rows
        if not len(places):
            return
        place, number = int(places[0]), self._steps.next
        is_final = bool(rows.terminated[place] or rows.truncated[place])
        step = Step(
            number,
            _observation(acted.messages, place),
            reward=float(rows.reward[place]),
            first=bool(rows.first[place]),
            terminated=bool(rows.terminated[place]),
            truncated=bool(rows.truncated[place]),
            task=int(rows.task[place]),
            action=None if acted.actions is None or is_final else acted.actions[place].tolist(),
        )
        # a scripted member's move, which only its next row tells
        if rows.played is not None and rows.played[place] >= 0:
            for before in self._steps.since(number - 1):
                before.action = int(rows.played[place])
        self._steps.add(step, len(step.observation))
        if acted.looks and self.slot in acted.looks:
            self._look = acted.looks[self.slot], number

    def since(self, number: int, most_bytes: float) -> tuple[list[Step], bool]:
        """Returns the steps from this number on, and whether the newest one is too large.

        New steps wait for their stored numbers until the next call.
        """
        if self._look is not None and self._look[0].is_ready:
            self._is_filled, self._look = self._fill(*self._look), None
        self.wants_look |= self._look is None
        steps = self._steps.since(0)
        last, self._last = self._last, self._steps.next - 1
        if not self._is_filled:
            last = self._last
        until = max([last, *(step.number for step in steps if step.stored is not None)])
        found = self._steps.since(number, until, most_bytes=most_bytes)
        return found, not found and bool(self._steps.since(number, until))

    def _fill(self, look: Any, number: int) -> bool:
        """Fills in the stored numbers.

        Returns False if the rows are not those of the steps, because some seats store none.
        """
        rows, has_action = look.rows()
        begin = number + 1 - len(rows)
        found = [(step, rows[step.number - begin]) for step in self._steps.since(begin, number)]
        if not all(_is_of(row, step, has_action=has_action) for step, row in found):
            return False
        for step, row in found:
            step.stored = row[2 + has_action :].tolist()
        return True


def _observation(messages: Sequence[Any], place: int) -> bytes:
    """Returns the observation of one row among the joined messages."""
    for message in messages:
        observations: np.ndarray = message.request.step.observation
        if place < len(observations):
            observation: bytes = observations[place].tobytes()
            return observation
        place -= len(observations)
    raise IndexError(place)


def _is_of(row: np.ndarray, step: Step, *, has_action: bool) -> bool:
    is_same_action = not has_action or step.action is None or step.action == row[2]
    return bool(row[0] == step.reward and bool(row[1]) == step.first and is_same_action)


def _harmless(method: Callable[..., _Result]) -> Callable[..., _Result | None]:
    """Wraps an observer's method so that a failure turns the observer off, because a page must not end a run."""

    @functools.wraps(method)
    def guarded(observer: LiveObserver, *arguments: Any) -> _Result | None:
        if not observer.is_on:
            return None
        try:
            return method(observer, *arguments) if observer.is_watched() else None
        except Exception as error:
            observer.is_on = False
            _log.error("the live view failed and is off until the next question", exc_info=error)
            return None

    return guarded


class LiveObserver(record.Observer):
    """Keeps the newest calls of the loop, and watches environments that pages ask for."""

    def __init__(self, clock: Callable[[], float], make_reader: Callable[[Any], Any]) -> None:
        """make_reader: returns a `device.newest_rows.NewestReader` for a place's rings."""
        self.is_on = False
        """Whether anybody watches."""
        self._clock = clock
        self._asked = 0.0
        self._lock = threading.Lock()
        self._calls = record.Buffer[list[Any]](MAX_CALLS, first=1)
        self._watches = itertools.count()
        self._watched: dict[int, Watched] = {}
        self._make_reader = make_reader
        self._readers: dict[int, Any] = {}  # by number of the place

    # ------------------------------------------------------------------------------------ any thread

    def clock(self) -> float:
        return self._clock()

    def ask(self) -> None:
        """Turns the observer on, or keeps it turned on."""
        self._asked = self.clock()
        self.is_on = True

    def is_watched(self) -> bool:
        """Returns whether anybody has asked recently; otherwise drops all records."""
        if self.is_on and self.clock() - self._asked > IDLE_SECONDS:
            self.is_on = False
            with self._lock:
                self._calls.clear()
                self._watched = {}
        return self.is_on

    def calls_since(self, number: int) -> list[list[Any]]:
        """Returns the kept calls after this number (all for 0), each beginning with its number."""
        with self._lock:
            return self._calls.since(number + 1)

    def steps_since(self, slot: int, number: int, *, most_bytes: float = float("inf")) -> Kept | None:
        """Watches an environment and returns its kept steps from this number on, or None if too many are watched.

        most_bytes: limit of their observations; older steps are left out.
        """
        with self._lock:
            now = self.clock()
            alive = {key: one for key, one in self._watched.items() if now - one.asked <= IDLE_SECONDS}
            watched = alive.get(slot)
            if watched is None:
                if len(alive) >= MAX_WATCHED:
                    return None
                watched = alive[slot] = Watched(slot, next(self._watches), now)
            watched.asked = now
            self._watched = alive  # a new dictionary, because other threads may be iterating over the old one
            # all readers have the same columns
            columns = next((reader.columns for reader in self._readers.values()), ())
            steps, are_too_large = watched.since(number, most_bytes)
            return Kept(steps, columns, watched.watch, are_too_large)

    @_harmless
    def note(self, call: record.CallRecord) -> None:
        with self._lock:
            self._calls.add([self._calls.next, *call.to_json()])
            self._take(*call.acted)

    # ------------------------------------------------------------------------------------ the loop's thread

    @_harmless
    def see(self, acted: record.Acted) -> None:
        with self._lock:
            self._take(acted)

    @_harmless
    def look(self, slots: np.ndarray, place: Any) -> Mapping[int, Any]:
        looks, layout = {}, place.setup.layout
        for watched in self._watched.values():
            if watched.wants_look and watched.slot < layout.num_slots and np.any(slots == watched.slot):
                if place.number not in self._readers:
                    self._readers[place.number] = self._make_reader(place.rings)
                reader, ring = self._readers[place.number], int(layout.ring(np.array(watched.slot)))
                if reader.is_ready and (look := reader.look(place.rings, ring)) is not None:
                    looks[watched.slot], watched.wants_look = look, False
        return looks

    def _take(self, *parts: record.Acted) -> None:
        for acted in parts:
            for watched in self._watched.values():
                watched.take(acted)
