"""A caller's functions of `seedzero.train`, called on a thread of their own, one after the other.

Training never waits for them: up to 1,000 rows and evaluations wait for a slow function, heartbeats, metrics and
checkpoints go on.
"""

from __future__ import annotations

import dataclasses
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any, TypeAlias

from seedzero.core import errors, printable, user_code
from seedzero.learner import endings

Function: TypeAlias = Callable[[dict[str, Any]], str | None]
"""Takes a row, or an evaluation; a returned text ends the run."""

_Call: TypeAlias = tuple[str, dict[str, Any], futures.Future[None] | None]
CLOSE_SECONDS = 10.0
"""Longest wait for functions at the end of a run."""
MOST_WAITING = 1000
"""Calls that wait for a function that is behind; later ones are left out, and counted."""


@dataclasses.dataclass(frozen=True)
class Caller:
    """The program that trains.

    Attributes:
      say: takes sentences for the user before the learner has its console, and a command line that ends one.
      handles_signals: Ctrl-C, SIGTERM and SIGHUP save and end the training; only the main thread can.
      leaves_when_late: ends the process, with `exit_codes.FAILED` and the newest checkpoint, where --max_seconds has
        passed and a call on the device does not return (`deadline`); false: training ends when it returns.
      functions: on_row and on_evaluation, where given.
    """

    say: Callable[..., None] = printable.say
    handles_signals: bool = True
    leaves_when_late: bool = False
    functions: Mapping[str, Function] = dataclasses.field(default_factory=dict)


class Callbacks:
    """The functions, by the names of their arguments. `note` is for any thread, all else for the main thread.

    Attributes:
      reason: text that a function has returned, in one line; "": none so far.
    """

    def __init__(self, functions: Mapping[str, Function], ending: endings.Ending) -> None:
        """ending: is told of a function that raises, and wakes the main thread for a reason."""
        self.reason = ""
        self._functions, self._ending = functions, ending
        self._waiting: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._now, self._num_left_out = "", 0
        self._thread = threading.Thread(target=self._run, name="callbacks", daemon=True)

    def start(self) -> None:
        """Starts the thread, if there are functions."""
        if self._functions:
            self._thread.start()

    def close(self) -> None:
        """Ends the thread after the calls so far."""
        self._waiting.put(None)

    def note(self, name: str, values: Mapping[str, Any], after: futures.Future[None] | None = None) -> None:
        """Has the function `name`, if there is one, called with a copy of the values, unless too many calls wait.

        after: ends before that call and later ones, such as the save of a checkpoint; None: nothing is awaited.
        """
        if name not in self._functions:
            return
        if self._waiting.qsize() >= MOST_WAITING:
            self._num_left_out += 1
        else:
            self._waiting.put((name, dict(values), after))

    def finish(self) -> str:
        """Waits for all calls, up to a time; returns a sentence about missing ones, or "". Raises CallbackError."""
        if not self._functions:
            return ""
        self.close()
        self._thread.join(CLOSE_SECONDS)
        self._ending.check()
        if not self._thread.is_alive():
            left_out = f"{self._num_left_out} calls were left out: {MOST_WAITING} others waited for the functions"
            return left_out if self._num_left_out else ""
        frame, name = sys._current_frames().get(self._thread.ident or 0), self._now
        place = user_code.place_of(self._functions[name], traceback.extract_stack(frame) if frame else ())
        missed = f"{self._waiting.qsize() - 1 + self._num_left_out} later calls are left out"
        return f"{name} has not returned {CLOSE_SECONDS:g} s after the end of training, at {place}; {missed}"

    def _run(self) -> None:
        while (call := self._waiting.get()) is not None:
            self._now, values, after = call
            futures.wait([after] if after else [])
            function = self._functions[self._now]
            try:
                found = function(values)
                if found is not None and not (isinstance(found, str) and found.strip()):
                    raise TypeError(f"it returned {found!r:.80}; expected None, or a string that ends the run")
            except BaseException as error:  # also SystemExit, which would end the thread alone
                text = user_code.raised(self._now, error, function, remedy="fix it, and resume the run")
                failure = errors.CallbackError(text)
                failure.__cause__ = error
                self._ending.failure = self._ending.failure or failure
                self._ending.notify()
                return
            if found is not None:
                self.reason = self.reason or " ".join(found.split())
                self._ending.notify()
