"""The device loop: one thread keeps the devices busy, a call at a time.

      workers' messages, sessions that ended        other threads: save, stop, end
                        |                                       |
                        v                                       v
    inbox.changed ==> DeviceLoop.step:  asks, budgets, evaluations that begin
                        |
                        |  Scheduler.choose       what runs next, and for which players     scheduler.py, pacing.py
                        v
                      Dispatcher.act | evaluate | update | refresh       submits a call     dispatcher.py, player.py
                        |
                        |  Programs.run_act, Strategy.run_update         a program runs     device/programs.py
                        v
                      InFlight: a completion thread waits for each call, replies and counts;
                        its notice wakes the loop ==> inbox.changed

At most `training.max_in_flight` calls are on their way (`in_flight.py`). Where the host keeps the replay's frames, an
update that finds none read ahead waits on this thread for the windows that the device draws, and so does every refresh
(`host_frames.py`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import NamedTuple

from seedzero.config import config as configs
from seedzero.core import errors
from seedzero.loop import dispatcher as dispatchers
from seedzero.loop import evaluator as evaluators
from seedzero.loop import limiter
from seedzero.loop import player as players
from seedzero.loop import scheduler as schedulers
from seedzero.monitoring import counts

_log = logging.getLogger(__name__)


class Hooks(NamedTuple):
    """The loop's reports, on its own thread."""

    evaluated: Callable[[evaluators.Ended], None]  # after an evaluation; the parameters are a copy
    save: Callable[[], None]  # at a checkpoint's place in deterministic mode
    row: Callable[[], None]  # at a metrics row's place in deterministic mode
    report: Callable[[str], None]  # shows the user a line


class DeviceLoop:
    """Has the dispatcher submit the scheduler's choices. Methods run on the loop's thread, or say otherwise."""

    def __init__(self, config: configs.Config, dispatcher: dispatchers.Dispatcher, hooks: Hooks) -> None:
        self.dispatcher = dispatcher
        self.scheduler = schedulers.Scheduler(config, dispatcher)
        self._config = config
        self._hooks = hooks
        self._changed = dispatcher.workers.inbox.changed
        self._asked: Callable[[], None] | None = None  # by other threads
        self._asked_to_stop: str | None = None
        self._spent = ""  # the budget that was found spent, also by another thread
        self._is_submitting = False
        self.over: str | None = None
        """Why the run is over; None: it goes on."""

    # ------------------------------------------------------------------------------------ driving

    def run(self) -> str:
        """Works until the run is over and returns why. Raises TrainingFailure."""
        in_flight = self.dispatcher.in_flight
        in_flight.start()
        try:
            while self.over is None:
                self._wait_for_work()
                while self.over is None and self.step():
                    pass
            in_flight.settle()
        finally:
            in_flight.stop()
        in_flight.check()
        return self.over

    def request(self, action: Callable[[], None]) -> None:
        """Any thread: has `action` run on the loop's thread between two calls, the newest request only."""
        with self._changed:
            self._asked = action
            self._changed.notify_all()

    def stop(self, reason: str) -> None:
        """Any thread: ends `run` after the calls in flight."""
        with self._changed:
            self._asked_to_stop = reason
            self._changed.notify_all()

    def end(self, spent: str) -> None:
        """Any thread: ends `run` after one more evaluation: a budget is spent."""
        with self._changed:
            self._spent = spent
            self._changed.notify_all()

    def look(self) -> counts.Snapshot:
        """Any thread: returns the counters."""
        return self.scheduler.look()

    def pulse(self) -> int | None:
        """Any thread: returns a number, changed with every returned call; None: no call is under way."""
        in_flight = self.dispatcher.in_flight
        return in_flight.num_completed if self._is_submitting or not in_flight.is_empty else None

    def close(self) -> None:
        """Ends the preparation of further calls."""
        for player in self.dispatcher.players:
            player.close()

    def _wait_for_work(self) -> None:
        with self._changed:
            while True:
                seconds_left = self.scheduler.seconds_left()  # read first: a deadline that passes meanwhile is work
                if self.has_work():
                    return
                held = self.scheduler.held() if self.dispatcher.in_flight.is_empty else ()
                started = self.dispatcher.clock()
                self._changed.wait(seconds_left)
                self.dispatcher.gathered.add_totals(dict.fromkeys(held, self.dispatcher.clock() - started))

    def has_work(self) -> bool:
        """Returns whether `step` would do something now."""
        dispatcher = self.dispatcher
        last_evaluation_left = dispatcher.evaluator.seconds_left(dispatcher.clock())
        return (
            dispatcher.in_flight.has_failed
            or self._asked is not None
            or self._asked_to_stop is not None
            or (bool(self.scheduler.budget_spent() or self._spent) and last_evaluation_left in (None, 0.0))
            or dispatcher.workers.inbox.has_ended
            or bool(dispatcher.evaluating_sessions())
            or (dispatcher.in_flight.has_room and self.scheduler.choose()[0] is not limiter.Work.WAIT)
        )

    # ------------------------------------------------------------------------------------ one decision

    def step(self) -> bool:
        """Makes one decision; returns whether it submitted a call."""
        dispatcher = self.dispatcher
        dispatcher.in_flight.check()
        self._handle_requests()
        if self.over is not None:
            return False
        for slots, reason in dispatcher.workers.inbox.take_ended():
            dispatcher.discard(slots, reason)
        if spent := self.scheduler.budget_spent() or self._spent:
            self._end(spent)
            if self.over is not None:
                return False
        dispatcher.begin_evaluation()
        if not dispatcher.in_flight.has_room:
            return False
        work, chosen = self.scheduler.choose()
        self._is_submitting = work is not limiter.Work.WAIT
        try:
            self._submit(work, chosen)
        finally:
            self._is_submitting = False
        if work is limiter.Work.UPDATE and self._config.run.deterministic:
            self._keep_time()
        return work is not limiter.Work.WAIT

    def _end(self, spent: str) -> None:
        """Ends the run, or begins to: a budget is spent."""
        self._spent = spent  # steps that a lost worker takes away do not undo it: the last evaluation has begun
        begins_to_end = not self.dispatcher.evaluator.ends
        if begins_to_end and (text := self.scheduler.leave_out_updates()):
            self._hooks.report(text)
        if ended := self.dispatcher.evaluator.cut_last(self.dispatcher.clock()):
            self._hooks.evaluated(ended)
        self.over = self.dispatcher.end(spent)
        if begins_to_end and self.over is None:
            self._hooks.report(f"{spent}: one more evaluation")

    def _submit(self, work: limiter.Work, chosen: Sequence[players.Player]) -> None:
        """Submits the call of the chosen players, possibly after waiting for earlier calls."""
        if work is limiter.Work.ACT:
            self.dispatcher.act(chosen)
        elif work is limiter.Work.EVALUATE:
            self._evaluate()
        elif work is limiter.Work.REFRESH:
            self.dispatcher.refresh(chosen[0])
        elif work is limiter.Work.UPDATE:
            self.dispatcher.update(chosen[0])

    def _handle_requests(self) -> None:
        with self._changed:
            action, self._asked = self._asked, None
            reason = self._asked_to_stop
        if action is not None:
            action()
        if reason is not None:
            self.over = reason

    def _evaluate(self) -> None:
        ended = self.dispatcher.evaluate()
        if ended is None:
            return
        self._hooks.evaluated(ended)
        mean_return, bar = ended.result.mean_return, self._config.run.stop_at_return
        if mean_return >= bar and not ended.cut_short:
            self.over = f"evaluation returned {mean_return:g}, --stop_at_return={bar:g}"

    def _keep_time(self) -> None:
        """Deterministic mode: does the tasks of fixed update counts."""
        num_updates = self.scheduler.num_updates
        if num_updates % self._config.checkpoint.every_updates == 0:
            self.dispatcher.in_flight.settle()
            self.dispatcher.reset_environments()
            for player in self.dispatcher.players:
                player.publish()
            self._hooks.row()
            self._hooks.save()
        elif num_updates % self._config.metrics.every_updates == 0:
            self.dispatcher.in_flight.settle()
            self._hooks.row()


@contextlib.contextmanager
def running(loop: DeviceLoop, on_end: Callable[[], None]) -> Iterator[futures.Future[str]]:
    """While entered, runs a loop on a thread of its own; leaving stops the loop.

    Yields why the run is over, once it is; or the Error that ended the loop. on_end: called on the thread.
    """
    with contextlib.closing(loop), futures.ThreadPoolExecutor(1, "device-loop") as executor:
        over = executor.submit(_run, loop)
        over.add_done_callback(lambda _: on_end())
        try:
            yield over
        finally:
            loop.stop("stopped")


def _run(loop: DeviceLoop) -> str:
    try:
        return loop.run()
    except errors.Error:
        raise
    except Exception as error:  # whatever ends the device loop ends the run, with its reason
        _log.error("the device loop failed", exc_info=error)
        raise errors.TrainingFailure(
            f"the device loop failed ({type(error).__name__}: {error}); run the same command again to resume from "
            f"the last checkpoint"
        ) from error
