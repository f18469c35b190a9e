"""Connects a learner host to the others: it joins them, receives decisions, and notices if a host has gone.

Host 0 is the hub (`hub.py`), which makes the decisions and sends them. Every other host has a stream to it
(`member.py`). Everything happens on one event-loop thread, to which calls from other threads are posted.
"""

from __future__ import annotations

import abc
import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from seedzero.core import errors, printable
from seedzero.learner.cluster import messages
from seedzero.learner.loop import agreement
from seedzero.transport import loop_thread

BEAT_SECONDS = 1.0
_LEAVE_SECONDS = 60.0
"""How long a host that is done waits for the others."""


class Link(abc.ABC):
    """What both ends have in common. Call its methods on any thread except the link's own."""

    def __init__(
        self, hello: messages.HostHello, silence_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """silence_seconds: a host counts as gone after this time without a message."""
        self.hello, self._silence_seconds, self._clock = hello, silence_seconds, clock
        self.agreed = agreement.Agreed(hello.index, hello.num, self.send)
        self.tick: Callable[[], object] = lambda: None
        """Called every second on the link's thread while this host is alive and has heard from the others."""
        self.counters: Callable[[], Mapping[str, Any]] = dict
        """Returns this host's counters for the others; called on the link's thread."""
        self.lock_step = False
        """Whether the others' counters only apply at their place among the updates."""
        self.details: Mapping[int, Mapping[str, Any]] = {}
        """The newest `counters` of the other hosts, by index."""
        self.warnings: list[str] = []
        """Messages for the user about the other hosts; on host 0, once all have joined."""
        self._changed = threading.Condition()
        self.missing = ""
        """A sentence about the hosts that lack their part of the newest checkpoint, or ""."""
        self._gathered: dict[str, dict[int, str]] = {}
        self._has_left = False  # whether this host is done
        self._all_left = self._is_closed = False
        self._lost = ""
        self._on_lost: Callable[[str], None] = lambda reason: None
        self._thread = loop_thread.LoopThread("seedzero-hosts")

    @abc.abstractmethod
    def meet(self, deadline_seconds: float) -> messages.Begin:
        """Waits until all hosts have joined, and returns how they begin.

        Raises UsageError, or TrainingFailure if too late.
        """

    @abc.abstractmethod
    def send(self, message: messages.Message) -> None:
        """Sends a message to host 0, or on host 0 handles it."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Closes the connections; called on the link's thread."""

    def when_lost(self, tell: Callable[[str], None]) -> None:
        """Calls `tell` once, on the link's thread, with the reason why the run has ended, at once if it is known."""
        with self._changed:
            self._on_lost = tell
            reason = self._lost
        if reason:
            self._thread.post(tell, reason)

    def gather(self, subject: str, found: str = "") -> dict[int, str]:
        """Tells the others what this host says about a subject, and returns what all hosts say, by index.

        It waits for all hosts, so every host must call it equally often for a subject. Raises TrainingFailure if the
        run ends before.
        """
        self.send({"found": [subject, found[: messages.MAX_TEXT]]})
        with self._changed:
            self._changed.wait_for(lambda: subject in self._gathered or self._lost or self._all_left)
            if subject not in self._gathered:
                raise errors.TrainingFailure(self._lost or "the other hosts have left")
            return self._gathered.pop(subject)

    def leave(self, deadline_seconds: float = _LEAVE_SECONDS) -> bool:
        """Reports that this host is done, waits for the others, and closes the link.

        Returns whether all were done in time.
        """
        with self._changed:
            self._has_left = True
        self.send({"leaving": True})
        with self._changed:
            self._changed.wait_for(lambda: self._all_left or self._lost, deadline_seconds)
            done = self._all_left
        self.stop()
        return done

    def stop(self) -> None:
        """Closes the link without a message; later calls do nothing."""
        with self._changed:
            self._has_left, is_closed, self._is_closed = True, self._is_closed, True
        if not is_closed:
            self._thread.run(self.close())
            self._thread.stop()

    # --- on the link's thread

    def receive(self, message: messages.Message) -> None:
        """Handles a message from host 0. Raises InvalidMessage."""
        for kind, value in message.items():
            if kind == "decisions":
                steps = {int(index): messages.steps(each) for index, each in message["steps"].items()}
                made = [(agreement.Kind(name), messages.number(number), str(reason)) for name, number, reason in value]
                self.agreed.decide(*(agreement.Decision(*each, steps) for each in made))
            elif kind == "beat":
                self.details = {int(index): found for index, found in value.items() if int(index) != self.hello.index}
                if not self.lock_step:
                    seen = self.details.items()
                    self.agreed.others = {index: messages.steps(each["steps"]) for index, each in seen}
            elif kind == "gathered":
                subject, found = value
                with self._changed:
                    self._gathered[str(subject)] = {
                        int(index): printable.escape(str(one)) for index, one in found.items()
                    }
                    self._changed.notify_all()
            elif kind == "left":
                with self._changed:
                    self._all_left = True
                    self._changed.notify_all()
            elif kind == "lost":
                self.lose(str(value)[: messages.MAX_TEXT])

    def lose(self, reason: str) -> None:
        """Records that the run has ended because a host has gone, unless this host is done anyway."""
        with self._changed:
            if self._lost or self._all_left:
                return
            self._lost, is_done, tell = reason, self._has_left, self._on_lost
            self._changed.notify_all()
        if not is_done:
            tell(reason)

    async def beating(self, beat: Callable[[], object]) -> None:
        """Calls `beat` and `tick` every second."""
        while True:
            beat()
            self.tick()
            await asyncio.sleep(BEAT_SECONDS)


def silent(index: int, seconds: float) -> str:
    """Returns why the run ends if a host is silent."""
    return f"host {index} has been silent for {seconds:.0f} s: it hangs, or the network is down"
