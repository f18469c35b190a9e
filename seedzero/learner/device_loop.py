"""The device loop: one thread decides what the device does next.

`step` makes one decision and dispatches one call; `run` drives it and sleeps on the inbox's condition until a message,
a completion or a deadline changes something. At most `training.max_in_flight` calls are on their way (`in_flight.py`).

Where the host keeps the replay's frames, an update that finds none read ahead waits on this thread for the windows
that the device draws, and so does every refresh (`host_frames.py`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import NamedTuple

from seedzero.config import config as configs
from seedzero.core import errors, types
from seedzero.learner import calls as device_calls
from seedzero.learner import evaluator as evaluators
from seedzero.learner import limiter
from seedzero.monitoring import counts

_log = logging.getLogger(__name__)


class Hooks(NamedTuple):
    """The loop's reports, on its own thread."""

    evaluated: Callable[[evaluators.Ended], None]  # after an evaluation; the parameters are a copy
    save: Callable[[], None]  # at a checkpoint's place in deterministic mode
    row: Callable[[], None]  # at a metrics row's place in deterministic mode
    report: Callable[[str], None]  # shows the user a line


class DeviceLoop:
    """Decides what the device does with `calls`. Methods run on the loop's thread unless they say otherwise."""

    def __init__(self, config: configs.Config, calls: device_calls.Calls, hooks: Hooks) -> None:
        self.calls = calls
        self._config = config
        self._hooks = hooks
        self._clock = calls.clock
        self._changed = calls.workers.inbox.changed
        self._asked: Callable[[], None] | None = None  # by other threads
        self._asked_to_stop: str | None = None
        self._spent = ""  # the budget that was found spent, also by another thread
        self._over: str | None = None  # the reason why the run is over
        self._is_dispatching = False

    # ------------------------------------------------------------------------------------ driving

    def run(self) -> str:
        """Works until the run is over and returns why. Raises TrainingFailure."""
        in_flight = self.calls.in_flight
        in_flight.start()
        try:
            while self._over is None:
                self._wait_for_work()
                while self._over is None and self.step():
                    pass
            in_flight.settle()
        finally:
            in_flight.stop()
        in_flight.check()
        return self._over

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
        """Any thread: ends `run` after one more evaluation, because a budget is spent."""
        with self._changed:
            self._spent = spent
            self._changed.notify_all()

    def look(self) -> counts.Snapshot:
        """Any thread: returns the counters."""
        calls, refresh = self.calls, self.calls.setup.agent.refresh
        runner, programs = calls.runner, calls.runner.programs
        return counts.Snapshot(
            counts=calls.intake.ledger.counts,
            num_updates=runner.num_updates,
            owed_updates=calls.pacer.owed_updates(self._config.run.max_env_steps),
            num_samples=calls.pacer.num_samples(runner.num_updates, calls.intake.ledger.counts.stored),
            num_refreshed=runner.num_refreshes * refresh.batch_size if refresh else None,
            version=runner.version,
            last_evaluation=calls.evaluator.last,
            evaluating=calls.evaluator.running is not None,
            remaining=calls.evaluator.remaining(),
            lacking=calls.lacking,
            is_compiled=bool(programs.sizes) and programs.update_compiled,
        )

    def pulse(self) -> int | None:
        """Any thread: returns a number that changes with every call that returns; None: no call is under way."""
        in_flight = self.calls.in_flight
        return in_flight.num_completed if self._is_dispatching or not in_flight.is_empty else None

    def close(self) -> None:
        """Ends the preparation of further calls."""
        self.calls.runner.programs.close()

    def _wait_for_work(self) -> None:
        with self._changed:
            while True:
                seconds_left = self._seconds_left()  # read first: a deadline that passes meanwhile is work
                if self._has_work():
                    return
                held = self._held() if self.calls.in_flight.is_empty else ()
                started = self._clock()
                self._changed.wait(seconds_left)
                self.calls.gathered.add_totals(dict.fromkeys(held, self._clock() - started))

    def _seconds_left(self) -> float | None:
        """Returns how long until a deadline makes work; None: there is no deadline."""
        now = self._clock()
        calls = self.calls
        of_evaluation = (calls.evaluator.seconds_left, calls.evaluator.pause_left)
        parts = (calls.intake.fill_seconds_left, calls.pacer.seconds_left, *of_evaluation)
        deadlines = [seconds_left(now) for seconds_left in parts]
        return min((seconds for seconds in deadlines if seconds is not None and seconds > 0), default=None)

    def _held(self) -> tuple[str, ...]:
        """Returns what passes while the device idles: its idle time, and ready work that the pace holds back."""
        if self.calls.evaluator.pause_left(self._clock()):
            return ("device_idle_seconds",)
        progress = self._progress()
        acting = ("acting_held_seconds",) if progress.can_act else ()
        updating = ("updating_held_seconds",) if progress.can_update else ()
        return ("device_idle_seconds", *acting, *updating)

    def _has_work(self) -> bool:
        return (
            self.calls.in_flight.has_failed
            or self._asked is not None
            or self._asked_to_stop is not None
            or (bool(self._budget_spent()) and self.calls.evaluator.seconds_left(self._clock()) in (None, 0.0))
            or self.calls.workers.inbox.has_ended
            or self.calls.can_begin_evaluation()
            or (self.calls.in_flight.has_room and self._next() is not limiter.Work.WAIT)
        )

    def _next(self) -> limiter.Work:
        progress = self._progress()
        evaluating = self.calls.evaluator
        if evaluating.ends or evaluating.pause_left(self._clock()):
            return limiter.Work.EVALUATE if progress.can_evaluate else limiter.Work.WAIT
        return self.calls.pacer.choose(progress, self._clock())

    # ------------------------------------------------------------------------------------ one decision

    def step(self) -> bool:
        """Makes one decision; returns whether it dispatched anything."""
        calls = self.calls
        calls.in_flight.check()
        self._handle_requests()
        if self._over is not None:
            return False
        for slots, reason in calls.workers.inbox.take_ended():
            calls.discard(slots, reason)
        if spent := self._budget_spent():
            self._spent = spent  # steps that a lost worker takes away do not undo it: the last evaluation has begun
            begins_to_end = not calls.evaluator.ends
            if begins_to_end:
                self._leave_out_updates()
            if ended := calls.evaluator.cut_last(self._clock()):
                self._hooks.evaluated(ended)
            self._over = calls.end(spent)
            if self._over is not None:
                return False
            if begins_to_end:
                self._hooks.report(f"{spent}: one more evaluation")
        if calls.can_begin_evaluation():
            calls.begin_evaluation()
        work = self._next() if calls.in_flight.has_room else limiter.Work.WAIT
        self._is_dispatching = work is not limiter.Work.WAIT
        try:
            self._dispatch(work)
        finally:
            self._is_dispatching = False
        if work is limiter.Work.UPDATE and self._config.run.deterministic:
            self._keep_time()
        return work is not limiter.Work.WAIT

    def _dispatch(self, work: limiter.Work) -> None:
        """Dispatches the call that was decided on; that may wait for earlier ones."""
        if work is limiter.Work.ACT:
            self.calls.act()
        elif work is limiter.Work.EVALUATE:
            self._evaluate()
        elif work is limiter.Work.REFRESH:
            self.calls.refresh()
        elif work is limiter.Work.UPDATE:
            self.calls.update()

    def _handle_requests(self) -> None:
        with self._changed:
            action, self._asked = self._asked, None
            reason = self._asked_to_stop
        if action is not None:
            action()
        if reason is not None:
            self._over = reason

    def _progress(self) -> limiter.Progress:
        calls, lock_step = self.calls, self._config.run.deterministic
        runner, programs = calls.runner, calls.runner.programs
        sizes = programs.sizes
        ready = bool(sizes) and (not lock_step or sizes == programs.all_sizes)
        has_room = calls.has_room_to_act
        can_sample = calls.intake.can_sample
        evaluating = calls.evaluator.running is not None
        num_inserts = calls.intake.ledger.counts.stored
        only_learns = self._config.run.has_all_steps(num_inserts)
        may_act = ready and not only_learns and calls.intake.can_act(self._full_batch(), self._clock())
        can_act = may_act and has_room and not calls.awaits_update
        return limiter.Progress(
            num_inserts=num_inserts,
            num_kept=calls.intake.num_kept,
            num_updates=runner.num_updates,
            num_refreshes=runner.num_refreshes,
            can_act=can_act,
            can_evaluate=has_room and ready and evaluating and calls.workers.inbox.num_rows(types.Role.EVALUATE) > 0,
            can_update=calls.has_room_to_learn and programs.update_ready and can_sample,
            can_refresh=has_room and programs.refresh_ready and can_sample,
            evaluating=evaluating or (lock_step and calls.evaluator.is_due(runner.num_updates)),
            evaluated_last=calls.evaluator.acted_last,
            only_learns=only_learns,
            waits_to_act=may_act and not can_act,
        )

    def _full_batch(self) -> int:
        """Returns the rows of a batch that need not wait for others: the largest, or all that there are."""
        largest = self.calls.setup.max_rows
        waits = self._config.batcher.wait_microseconds > 0
        return min(largest, sum(self.calls.workers.roster.sizes())) if waits else largest

    def _evaluate(self) -> None:
        ended = self.calls.evaluate()
        if ended is None:
            return
        self._hooks.evaluated(ended)
        mean_return, bar = ended.result.mean_return, self._config.run.stop_at_return
        if mean_return >= bar and not ended.cut_short:
            self._over = f"evaluation returned {mean_return:g}, --stop_at_return={bar:g}"

    def _keep_time(self) -> None:
        """Deterministic mode: does what falls on fixed update counts."""
        num_updates = self.calls.runner.num_updates
        if num_updates % self._config.checkpoint.every_updates == 0:
            self.calls.in_flight.settle()
            self.calls.reset_environments()
            self.calls.runner.publish()
            self._hooks.row()
            self._hooks.save()
        elif num_updates % self._config.metrics.every_updates == 0:
            self.calls.in_flight.settle()
            self._hooks.row()

    def _budget_spent(self) -> str:
        """Returns the budget that is spent, or ""."""
        intake, num_updates, budget = self.calls.intake, self.calls.runner.num_updates, self._config.run
        can_learn = intake.num_kept >= self._config.replay.min_steps
        owed = self.calls.pacer.owed_updates(budget.max_env_steps) if can_learn else 0
        spent = budget.spent(num_updates, intake.ledger.counts.stored, owed)
        return f"{spent} reached" if spent else self._spent

    def _leave_out_updates(self) -> None:
        """Says how many updates after the last step a run ends without, and counts them, for `Saves`."""
        calls, config = self.calls, self._config
        num_stored, num_kept = calls.intake.ledger.counts.stored, calls.intake.num_kept
        if not config.run.has_all_steps(num_stored) or num_kept >= config.replay.min_steps:
            return
        num_left_out = calls.pacer.owed_updates(config.run.max_env_steps) - calls.runner.num_updates
        if num_left_out > 0:
            calls.left_out = num_left_out, config.replay.min_steps
            self._hooks.report(
                f"{num_left_out} of the updates after the last step are left out: the replay holds {num_kept} steps, "
                f"and learning needs --replay.min_steps={config.replay.min_steps}. A run that goes on from a "
                "checkpoint without replay begins with an empty one"
            )


@contextlib.contextmanager
def running(loop: DeviceLoop, on_end: Callable[[], None]) -> Iterator[futures.Future[str]]:
    """While entered, runs a loop on a thread of its own; leaving stops it.

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
