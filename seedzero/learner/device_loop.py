"""The device loop: one thread decides what the device does next.

`step` makes one decision and dispatches one call; `run` drives it and sleeps on the inbox's condition until a message,
a completion or a deadline changes something. At most `training.max_in_flight` calls are on their way (`in_flight.py`).

Where the host keeps the replay's frames, an update that finds none read ahead waits on this thread for the windows
that the device draws, and so does every refresh (`host_frames.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from seedzero.config import config as config_lib
from seedzero.core import types
from seedzero.learner import calls as calls_lib
from seedzero.learner import evaluator, limiter
from seedzero.learner import requests as requests_lib
from seedzero.monitoring import counts, metrics


class Hooks(NamedTuple):
    """The loop's reports, on its own thread.

    Attributes:
      evaluated: after an evaluation; the parameters are a copy.
      save: at a checkpoint's place in deterministic mode.
      row: at a metrics row's place in deterministic mode.
    """

    evaluated: Callable[[evaluator.Ended], None]
    save: Callable[[], None]
    row: Callable[[], None]


class DeviceLoop:
    """Decides what the device does. All methods run on the loop's thread unless they say otherwise.

    Args:
      config: of the run, resolved.
      calls: on the device; owned from now on.
      hooks: to the rest of the learner.
      gathered: collects metrics between rows.
      clock: monotonic seconds.
    """

    def __init__(
        self,
        config: config_lib.Config,
        calls: calls_lib.Calls,
        hooks: Hooks,
        gathered: metrics.Aggregator,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._calls = calls
        self._hooks = hooks
        self._gathered = gathered
        self._clock = clock
        self._requests = requests_lib.Requests(calls.workers.inbox)

    # ------------------------------------------------------------------------------------ driving

    def run(self) -> str:
        """Works until the run is over and returns why.

        Raises:
          TrainingFailure: training cannot go on.
        """
        in_flight = self._calls.in_flight
        in_flight.start()
        try:
            while self._requests.reason_to_stop is None:
                self._wait_for_work()
                while self._requests.reason_to_stop is None and self.step():
                    pass
            in_flight.settle()
        finally:
            in_flight.stop()
        in_flight.check()
        return self._requests.reason_to_stop

    def request(self, action: Callable[[], None]) -> None:
        """Any thread: has `action` run on the loop's thread between two calls, the newest request only."""
        self._requests.put(action)

    def stop(self, reason: str) -> None:
        """Any thread: ends `run` after the calls in flight."""
        self._requests.stop(reason)

    def look(self) -> counts.Snapshot:
        """Any thread: returns the counters."""
        calls, refresh = self._calls, self._calls.setup.agent.refresh
        runner, programs = calls.runner, calls.runner.programs
        return counts.Snapshot(
            counts=calls.intake.ledger.counts,
            num_updates=runner.num_updates,
            num_samples=calls.pacer.num_samples(runner.num_updates, calls.intake.ledger.counts.stored),
            num_refreshed=runner.num_refreshes * refresh.batch_size if refresh else None,
            version=runner.version,
            last_evaluation=calls.evaluator.last,
            evaluating=calls.evaluator.running is not None,
            is_compiled=bool(programs.sizes) and programs.update_compiled,
        )

    def state(self) -> calls_lib.State:
        """Returns a checkpoint's content; acting takes the newest parameters from here on, as after a resume."""
        return self._calls.state()

    def restore(self, host: Mapping[str, Any], *, has_replay: bool) -> None:
        """Continues a checkpoint's counters; without its replay, updates wait until new steps are stored."""
        self._calls.restore(host, has_replay=has_replay)

    def close(self) -> None:
        """Ends the preparation of further calls."""
        self._calls.runner.programs.close()

    def _wait_for_work(self) -> None:
        changed = self._calls.workers.inbox.changed
        with changed:
            while True:
                seconds_left = self._seconds_left()  # read first: a deadline that passes meanwhile is work
                if self._has_work():
                    return
                held = self._held() if self._calls.in_flight.is_empty else ()
                started = self._clock()
                changed.wait(seconds_left)
                self._gathered.add_totals(dict.fromkeys(held, self._clock() - started))

    def _seconds_left(self) -> float | None:
        """Returns how long until a deadline makes work; None: there is no deadline."""
        now = self._clock()
        deadlines = [self._calls.intake.fill_seconds_left(now), self._calls.pacer.seconds_left(now)]
        return min((seconds for seconds in deadlines if seconds is not None and seconds > 0), default=None)

    def _held(self) -> tuple[str, ...]:
        """Returns what passes while the device idles: its idle time, and ready work that the pace holds back."""
        progress = self._progress()
        acting = ("acting_held_seconds",) if progress.can_act else ()
        updating = ("updating_held_seconds",) if progress.can_update else ()
        return ("device_idle_seconds", *acting, *updating)

    def _has_work(self) -> bool:
        return (
            self._calls.in_flight.has_failed
            or self._requests.are_waiting
            or self._calls.workers.inbox.has_ended
            or self._calls.can_begin_evaluation()
            or (self._calls.in_flight.has_room and self._next() is not limiter.Work.WAIT)
        )

    def _next(self) -> limiter.Work:
        return self._calls.pacer.choose(self._progress(), self._clock())

    # ------------------------------------------------------------------------------------ one decision

    def step(self) -> bool:
        """Makes one decision; returns whether it dispatched anything."""
        calls = self._calls
        calls.in_flight.check()
        self._requests.handle()
        if self._requests.reason_to_stop is not None:
            return False
        for slots in calls.workers.inbox.take_ended():
            calls.discard(slots)
        if calls.can_begin_evaluation():
            calls.begin_evaluation()
        work = self._next() if calls.in_flight.has_room else limiter.Work.WAIT
        if work is limiter.Work.ACT:
            calls.act()
        elif work is limiter.Work.EVALUATE:
            self._evaluate()
        elif work is limiter.Work.REFRESH:
            calls.refresh()
        elif work is limiter.Work.UPDATE:
            calls.update()
            if self._config.run.deterministic:
                self._keep_time()
        if work is not limiter.Work.WAIT:
            self._check_budgets()
        return work is not limiter.Work.WAIT

    def _progress(self) -> limiter.Progress:
        calls, lock_step = self._calls, self._config.run.deterministic
        runner, programs = calls.runner, calls.runner.programs
        sizes = programs.sizes
        ready = bool(sizes) and (not lock_step or sizes == programs.all_sizes)
        can_sample = calls.intake.can_sample
        evaluating = calls.evaluator.running is not None
        return limiter.Progress(
            num_inserts=calls.intake.ledger.counts.stored,
            num_kept=calls.intake.num_kept,
            num_updates=runner.num_updates,
            num_refreshes=runner.num_refreshes,
            can_act=ready and calls.intake.can_act(programs.all_sizes[-1], self._clock()),
            can_evaluate=ready and evaluating and calls.workers.inbox.num_rows(types.Role.EVALUATE) > 0,
            can_update=programs.update_ready and can_sample,
            can_refresh=programs.refresh_ready and can_sample,
            evaluating=evaluating or (lock_step and calls.evaluator.is_due(runner.num_updates)),
            evaluated_last=calls.evaluator.acted_last,
        )

    def _evaluate(self) -> None:
        ended = self._calls.evaluate()
        if ended is None:
            return
        self._hooks.evaluated(ended)
        mean_return, bar = ended.result.mean_return, self._config.run.stop_at_return
        if mean_return >= bar:
            self._requests.reason_to_stop = f"evaluation returned {mean_return:g}, --stop_at_return={bar:g}"

    def _keep_time(self) -> None:
        """Deterministic mode: does what falls on fixed update counts."""
        num_updates = self._calls.runner.num_updates
        if num_updates % self._config.checkpoint.every_updates == 0:
            self._calls.in_flight.settle()
            self._calls.reset_environments()
            self._calls.runner.publish()
            self._hooks.row()
            self._hooks.save()
        elif num_updates % self._config.metrics.every_updates == 0:
            self._calls.in_flight.settle()
            self._hooks.row()

    def _check_budgets(self) -> None:
        calls = self._calls
        reason = self._config.run.spent(calls.runner.num_updates, calls.intake.ledger.counts.stored)
        if reason:
            self._requests.reason_to_stop = f"{reason} reached"
