"""Calls the functions given to `seedzero.train` on a separate thread, one after the other.

Training never waits for them: up to 1,000 rows and evaluations wait for a slow function, while heartbeats, metrics and
checkpoints continue.
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
from seedzero.learner.processes import in_process

Function: TypeAlias = Callable[[dict[str, Any]], str | None]
"""Takes a row or an evaluation; if it returns a text, the run ends."""

_Call: TypeAlias = tuple[str, dict[str, Any], futures.Future[None] | None]
CLOSE_SECONDS = 10.0
"""Longest time to wait for functions when a run ends."""
MOST_WAITING = 1000
"""How many calls may wait for a slow function; later ones are skipped and counted."""


@dataclasses.dataclass(frozen=True)
class Caller:
    """The program that trains, as the learner sees it.

    Attributes:
      say: takes sentences for the user before the learner has its console, with a command line at their end.
      handles_signals: whether Ctrl-C, SIGTERM and SIGHUP save and end the training, which needs the main thread.
      leaves_when_late: whether to end the process, with `errors.FAILED` and the newest checkpoint, if
        --max_seconds has passed and a call on the device does not return (`deadline`). If false, training ends when
        the call returns.
      is_quiet: whether the learner's console is kept in its file alone.
      functions: on_row and on_evaluation, if given.
      has_built: called once the networks are built, before the first step is acted on.
      worker: steps the environments in this process, for a debugger; None: local workers are processes.
      unsaved: values of settings for this process alone, by SECTION.KEY.
    """

    say: Callable[..., None] = printable.say
    handles_signals: bool = True
    leaves_when_late: bool = False
    is_quiet: bool = False
    functions: Mapping[str, Function] = dataclasses.field(default_factory=dict)
    has_built: Callable[[], object] = lambda: None
    worker: in_process.Worker | None = None
    unsaved: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Callbacks:
    """The functions by the names of their arguments. Any thread may call `note`, only the main thread the rest.

    Attributes:
      reason: the text that a function has returned, in one line; "" if none has.
    """

    def __init__(self, functions: Mapping[str, Function], ending: endings.Ending) -> None:
        """ending: hears of a function that raises, and wakes the main thread for a reason."""
        self.reason = ""
        self._functions, self._ending = functions, ending
        self._waiting: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._now, self._num_left_out = "", 0
        self._thread = threading.Thread(target=self._run, name="callbacks", daemon=True)

    def start(self) -> None:
        """Starts the thread if there are functions."""
        if self._functions:
            self._thread.start()

    def close(self) -> None:
        """Ends the thread after the calls made so far."""
        self._waiting.put(None)

    def note(self, name: str, values: Mapping[str, Any], after: futures.Future[None] | None = None) -> None:
        """Queues a call of the function `name`, if there is one, with a copy of the values, if few calls wait.

        after: what must end before that call and later ones, such as the save of a checkpoint, or None.
        """
        if name not in self._functions:
            return
        if self._waiting.qsize() >= MOST_WAITING:
            self._num_left_out += 1
        else:
            self._waiting.put((name, dict(values), after))

    def finish(self) -> str:
        """Waits for all calls, up to a time limit, and returns a sentence about missing ones, or "".

        Raises CallbackError.
        """
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
            except BaseException as error:  # also SystemExit, which would end only the thread
                text = user_code.raised(self._now, error, function, remedy="fix it, and resume the run")
                failure = errors.CallbackError(text)
                failure.__cause__ = error
                self._ending.failure = self._ending.failure or failure
                self._ending.notify()
                return
            if found is not None:
                self.reason = self.reason or " ".join(found.split())
                self._ending.notify()
