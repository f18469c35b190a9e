"""Keeps the newest calls of the device loop, and the steps of a few environments, while somebody watches the page.

Nobody watches most runs; then the observer drops all records. A question turns it on, and `IDLE_SECONDS` after the
last one it turns itself off.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from seedzero.core import json_object, types
from seedzero.learner.live import record
from seedzero.transport import messages

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


MAX_WORKERS = 200
"""Most workers in a list."""
MAX_LISTED = 512
"""Most environments in a list for each role."""
MAX_BYTES = 2 << 20
"""Most bytes of observations in one answer."""
_MEANS = (
    "batch_fill",
    "batch_rows",
    "batch_wait_seconds",
    "policy_age",
    "policy_lag",
    "policy_lag_max",
    "batch_padding",
)


@dataclasses.dataclass(eq=False)
class LiveView:
    """Answers pages on the server's thread; its functions return the run's present state."""

    observer: LiveObserver
    status: Callable[[], Mapping[str, Any]]
    means: Callable[[], Mapping[str, float]]  # means of metrics since the last row
    sessions: Callable[[types.Role], Sequence[Any]]  # `loop.roster.Session`s that have started
    spec: Callable[[], types.EnvSpec | None]  # the environments' spec, or None if it is not known yet

    def __post_init__(self) -> None:
        self._instance = secrets.token_hex(8)

    def answer(self, asked: messages.LiveAsk, present: Sequence[messages.Presence]) -> tuple[str, bytes]:
        """Returns JSON, and the observations of the steps in it. present: all sessions."""
        self.observer.ask()
        found: dict[str, Any] = {"instance": self._instance, "now": round(self.observer.clock(), 6)}
        observations = b""
        if asked.environment is None:
            found |= self._runtime(asked.call, present)
        else:
            game, observations = self._game(asked.environment, asked.step)
            found |= game
        return json_object.encode(found), observations

    def _runtime(self, call: int, present: Sequence[messages.Presence]) -> dict[str, Any]:
        means = self.means()
        return {
            "calls": self.observer.calls_since(call),
            "status": self.status(),
            "means": {name: means[name] for name in _MEANS if name in means},
            "workers": [one.to_json() for one in present[:MAX_WORKERS]],
            "num_workers": len(present),
        }

    def _game(self, environment: int, step: int) -> tuple[dict[str, Any], bytes]:
        sessions = {role: list(self.sessions(role)) for role in types.Role}
        slots = {
            role.value: sorted(int(slot) for session in found for slot in session.all_slots)[:MAX_LISTED]
            for role, found in sessions.items()
        }
        spec = self.spec()
        found: dict[str, Any] = {
            "environments": slots,
            "environment": environment,
            "spec": None if spec is None else _spec(spec),
            **_of(environment, sessions),
        }
        kept = self.observer.steps_since(environment, step, most_bytes=MAX_BYTES)
        if kept is None:
            return {**found, "note": f"{MAX_WATCHED} environments of this run are watched already"}, b""
        found["instance"] = f"{self._instance}-{kept.watch}"
        note = "an observation is too large to be shown" if kept.are_too_large else ""
        observations = b"".join(one.observation for one in kept.steps)
        return {**found, "note": note, "steps": _columns(kept, spec)}, observations


def _of(environment: int, sessions: Mapping[types.Role, Sequence[Any]]) -> dict[str, Any]:
    """Returns the role and the worker of an environment, "" if it has left."""
    for role, found in sessions.items():
        for session in found:
            if environment in session.all_slots:
                return {"role": role.value, "worker": session.worker_id}
    return {"role": "", "worker": ""}


def _spec(spec: types.EnvSpec) -> dict[str, Any]:
    return {
        "arrays": [array.to_json() for array in spec.arrays],
        "num_actions": spec.num_actions,
        "action_names": spec.action_names,
        "num_players": spec.num_players,
        "seats": spec.seats,
        "tasks": spec.tasks,
    }


def _columns(kept: Kept, spec: types.EnvSpec | None) -> dict[str, Any]:
    """Returns steps by column; stored numbers are null if the agent stores none, or they are not available."""
    names = ("number", "reward", "first", "terminated", "truncated", "task", "action")
    found: dict[str, Any] = {name: [getattr(step, name) for step in kept.steps] for name in names}
    begin = 0
    for name, width in kept.columns:
        rows = [None if step.stored is None else step.stored[begin : begin + width] for step in kept.steps]
        begin += width
        if name in ("value", "log_prob"):
            found[name] = [None if row is None else row[0] for row in rows]
        elif spec is not None and not spec.is_continuous:
            found["policy"] = [None if row is None else _shares(row, is_log=name == "logits") for row in rows]
    return found


def _shares(row: Sequence[float], *, is_log: bool) -> list[float]:
    """Returns probabilities rounded to four digits."""
    values = np.array(row, np.float64)
    if is_log:
        values = np.exp(values - values.max())
        values = values / values.sum()
    shares: list[float] = np.round(values, 4).tolist()
    return shares
