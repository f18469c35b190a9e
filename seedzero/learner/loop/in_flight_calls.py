"""Keeps the device calls in flight, with a thread that waits for each in turn.

JAX's dispatch does not block. The completion thread waits for the oldest call, hands its actions to the server and
fetches its metrics. Each place has its own lane and thread, so that no player waits for another's call. If learning
and acting have different devices, each has a lane, so that actions do not wait for an update.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

from seedzero.core import errors
from seedzero.learner.live import record
from seedzero.learner.loop import inboxes

ACTING, UPDATING = 0, -1
"""Lanes of a run with one place: the first and the last; they are the same if all devices both act and learn."""


_SLOW_SECONDS = 0.05
"""An update is slow from this time on; replies may wait for several that are shorter."""
_KEPT = 0.8
"""Share of a slow update's time that counts at the next update."""


class Lane:
    """Calls that complete in the order of their dispatch; `number` are in flight."""

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.number = 0
        # and the mark of the end
        self.waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=maximum + 1)


class UpdateTimes:
    """Measures the updates of one of several hosts, which wait for each other on the devices.

    A device runs calls in the order of their dispatch, so an acting call after two updates waits for both.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._num_begun = self._num_ended = 0  # counted by the loop's thread, and by a completion thread
        self._ended = clock()  # time of the last one
        self._seconds = 0.0  # of the newest ones: a host that is sometimes slow is slow

    def begin(self) -> Callable[[], None]:
        """Counts a submitted update; returns a function to call when it ends."""
        began, self._num_begun = self._clock(), self._num_begun + 1

        def end() -> None:
            now = self._clock()
            self._seconds = max(now - max(began, self._ended), _KEPT * self._seconds)
            self._ended = now
            self._num_ended += 1

        return end

    @property
    def are_slow(self) -> bool:
        """Whether a recent update took long."""
        return self._seconds > _SLOW_SECONDS

    @property
    def awaits_slow(self) -> bool:
        """Whether an update is in flight and updates are slow, so that the next one waits for it to end."""
        return self._num_begun > self._num_ended and self.are_slow


class InFlight:
    """Counts dispatched calls and completes them, in order within a lane.

    news: wakes the loop at each completion. maxima: most calls in flight of each lane; ask `has_room_in` before a
    call. observer: sees each call.
    """

    def __init__(self, news: inboxes.News, *maxima: int, observer: record.Observer = record.NOBODY) -> None:
        self._news = news
        self._observer = observer
        self.lanes = tuple(Lane(maximum) for maximum in maxima)
        self._failure: BaseException | None = None
        self.num_completed = 0
        """Calls that have returned, including failed ones."""
        self._threads = [
            threading.Thread(target=self.work, args=(lane,), name="completions") for lane in range(len(maxima))
        ]

    def start(self) -> None:
        """Starts the completion threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the completion threads after the calls in flight."""
        for lane, thread in zip(self.lanes, self._threads, strict=True):
            lane.waiting.put(None)
            thread.join()

    def has_room_in(self, *lanes: int) -> bool:
        """Returns whether another call may be dispatched in one of these lanes."""
        with self._news:
            return any(self.lanes[lane].number < self.lanes[lane].maximum for lane in lanes)

    def is_empty_in(self, *lanes: int) -> bool:
        """Returns whether no call of these lanes is in flight."""
        with self._news:
            return not any(self.lanes[lane].number for lane in lanes)

    @property
    def is_empty(self) -> bool:
        """Whether the devices have nothing to do."""
        return self.is_empty_in(*range(len(self.lanes)))

    def add(self, when_done: Callable[[], None], lane: int = 0) -> None:
        """Counts a dispatched call; the lane's completion thread runs `when_done`, which waits for the results."""
        with self._news:
            self.lanes[lane].number += 1
        self.lanes[lane].waiting.put(when_done)

    def add_call(
        self, kind: str, began: float, collect: Callable[[], Sequence[record.Acted] | None], lane: int = ACTING
    ) -> None:
        """Counts a dispatched call. began: when its preparation began, by the observer's clock.

        collect: waits for the results.
        """
        dispatched = self._observer.clock()

        def when_done() -> None:
            acted = collect() or ()
            self._observer.note(record.CallRecord(kind, began, dispatched, self._observer.clock(), acted))

        self.add(when_done, lane)

    def settle(self) -> None:
        """Waits until no call is in flight; raises the error of `check`."""
        with self._news:
            self._news.wait_for(lambda: self.is_empty or self._failure is not None)
        self.check()

    def check(self) -> None:
        """Raises the failure of a call: an Error of its completion unchanged, else TrainingFailure."""
        if self._failure is None:
            return
        if isinstance(self._failure, errors.Error):
            raise self._failure
        raise errors.TrainingFailure(
            f"a call on the device failed ({self._failure}); its state is lost: run the same command again to "
            f"resume from the last checkpoint"
        ) from self._failure

    def complete_next(self, lane: int = 0) -> bool:
        """Completion thread: waits for the oldest call of a lane and completes it; returns False at the end."""
        when_done = self.lanes[lane].waiting.get()
        if when_done is None:
            return False
        try:
            if self._failure is None:
                when_done()
        except Exception as error:  # a failed device call has consumed its donated state: everything stops
            self._failure = error
        with self._news:
            self.lanes[lane].number -= 1
            self.num_completed += 1
            self._news.tell()
        return True

    def work(self, lane: int = 0) -> None:
        """Completion thread: completes the calls of a lane until the end."""
        while self.complete_next(lane):
            pass
