"""The device loop is a thread that keeps the devices busy, one turn at a time.

      workers' messages, sessions that ended        other threads: save, stop, end
                        |                                       |
                        v                                       v
    inbox.News ==> DeviceLoop.step: notes the news, and the phase of the run         phase.py
                        |
                        |  one snapshot of facts, one decision                       facts.py, scheduler.py
                        v
                      Dispatcher.act | evaluate | update | reanalyse: submits a call   dispatchers.py, players.py
                        |
                        |  Place.run_act, Strategy.run_update: a program runs        places.py, device/strategies.py
                        v
                      InFlight: a completion thread waits for each call, replies and counts;
                        its notice wakes the loop ==> inbox.News

At most `training.max_in_flight` calls are on their way (`in_flight_calls.py`). If the host keeps the replay's frames,
an update for which none were read ahead waits on this thread for the windows that the device draws, and so does every
reanalysis (`host_frames.py`).
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple, TypeAlias

from seedzero.agents import base
from seedzero.config import configs
from seedzero.core import errors
from seedzero.learner.live import record
from seedzero.learner.loop import (
    agreement,
    dispatchers,
    evaluators,
    facts,
    inboxes,
    phase,
    players,
    rate_limiting,
    scheduler,
)
from seedzero.monitoring.metrics import counts

# Copies of learning players' parameters for other threads, made by the device loop between two calls.
Copied: TypeAlias = futures.Future[tuple[int, base.Params]]
"""A player's updates, and its parameters; UsageError: no such player learns."""


class ParamsCopies:
    """The copies that were asked for. news: wakes the loop."""

    def __init__(self, news: inboxes.News) -> None:
        self._news = news
        self._asked: list[tuple[str, Copied]] | None = []  # None: the loop is over

    def ask(self, player: str) -> Copied:
        """Any thread: asks for a copy of the newest parameters. Raises UsageError once the loop is over."""
        copied = Copied()
        with self._news:
            if self._asked is None:
                raise errors.UsageError("this run is over")
            self._asked.append((player, copied))
            self._news.tell()
        return copied

    def make(self, learning: Sequence[players.Player]) -> None:
        """Loop's thread: makes the copies; they may still be being computed."""
        with self._news:
            asked, self._asked = self._asked or [], []
        for name, copied in asked:
            if not copied.set_running_or_notify_cancel():
                continue
            if (player := {player.name: player for player in learning}.get(name)) is None:
                copied.set_exception(errors.UsageError(f"no player {name!r} is in this run"))
            else:
                copied.set_result((player.num_updates, player.copy_params()))

    def close(self) -> None:
        """After the loop's end: cancels what it has left."""
        with self._news:
            asked, self._asked = self._asked or [], None
        for _, copied in asked:
            copied.cancel()


_log = logging.getLogger(__name__)


def without_exploitability(params: base.Params) -> float:
    """Refuses, because the exact judge is only for games of two seats."""
    raise ValueError("the exact judge is for games of OpenSpiel with two seats, and this run has none")


class Hooks(NamedTuple):
    """What the loop reports, on its own thread."""

    evaluated: Callable[[evaluators.Ended], None]  # after an evaluation; the parameters are a copy
    save: Callable[
        [dispatchers.CheckpointState], None
    ]  # at a checkpoint's place in deterministic mode, else before the last evaluation
    row: Callable[[], None]  # at a metrics row's place in deterministic mode
    report: Callable[[str], None]  # shows the user a message
    freeze: Callable[[dispatchers.NewPlayer], bool]  # saves a frozen player; false: it cannot be saved
    note: Callable[[Mapping[str, Any]], None]  # makes another decision of a league's builder
    judge: Callable[[base.Params], float] = without_exploitability  # returns the NashConv of a player's parameters


class DeviceLoop:
    """Notes the news, decides, and has the dispatcher submit calls.

    Methods run on the loop's thread unless they say otherwise.
    """

    def __init__(
        self,
        config: configs.Config,
        dispatcher: dispatchers.Dispatcher,
        hooks: Hooks,
        agreed: agreement.Agreed | None = None,
        alike: agreement.Alone = agreement.ALONE,
        after_update: Callable[[], None] = lambda: None,
    ) -> None:
        """agreed, alike: shared with the run's other hosts; None, ALONE without any. after_update: a league's."""
        self.agreed, self.alike, self.others = agreed, alike, agreement.OtherHosts(agreed)
        self.dispatcher = dispatcher
        self.run_phase = phase.RunPhase()
        self._config = config
        self._hooks = hooks
        self._after_update = after_update
        self._news = dispatcher.workers.inbox.news
        self.copies = ParamsCopies(self._news)
        if agreed is not None:
            agreed.follow(self._news.tell)
            agreed.steps = lambda: facts.own_counts(dispatcher)
        # set by other threads, like the next two
        self._asked: Callable[[dispatchers.CheckpointState], None] | None = None
        self._asked_to_stop: str | None = None
        self._asked_to_end = ""
        self._is_submitting = False
        self._last_place = -1  # number of the place of the last call
        # The waits of each place, in seconds; in lock step all wait together.
        self._share = 1.0 if config.run.deterministic else 1.0 / len(dispatcher.places)

    # ------------------------------------------------------------------------------------ driving

    def run(self) -> str:
        """Works until the run is over and returns why. Raises TrainingFailure."""
        in_flight = self.dispatcher.in_flight
        in_flight.start()
        try:
            while self.run_phase.over is None:
                known = self._news.number  # read first, so that later changes count as new
                decision = self.step()
                if isinstance(decision, scheduler.Wait) and self.run_phase.over is None:
                    started = self.dispatcher.clock()
                    self._news.wait_beyond(known, decision.until - started)
                    ended = self.dispatcher.clock()
                    self.dispatcher.observer.note(
                        record.CallRecord(record.WAIT, started, started, ended, held=decision.held)
                    )
                    waited = (ended - started) * self._share
                    self.dispatcher.gathered.add_totals(
                        {name: waited * decision.held.count(name) for name in decision.held}
                    )
            in_flight.settle()
        finally:
            in_flight.stop()
        in_flight.check()
        return self.run_phase.over

    def request(self, save: Callable[[dispatchers.CheckpointState], None]) -> None:
        """Any thread: calls `save` on the loop's thread between two calls; only the newest request counts.

        If there are several hosts, all save, by `Hooks.save`.
        """
        if self.agreed is not None:
            self.agreed.ask(agreement.Kind.SAVE)
            return
        with self._news:
            self._asked = save
            self._news.tell()

    def stop(self, reason: str) -> None:
        """Any thread: ends `run` once the calls in flight have returned."""
        with self._news:
            self._asked_to_stop = reason
            self._news.tell()

    def end(self, spent: str) -> None:
        """Any thread: ends `run` after one more evaluation, because a budget is spent."""
        if self.agreed is not None:
            self.agreed.ask(agreement.Kind.END, spent)
            return
        with self._news:
            self._asked_to_end = spent
            self._news.tell()

    def look(self) -> counts.Snapshot:
        """Any thread: returns the counters."""
        return facts.look(self._config, self.dispatcher, self.run_phase, tuple(self.others.counts().values()))

    def pulse(self) -> int | None:
        """Any thread: returns a number that changes with every returned call, or None if no call is in flight."""
        in_flight = self.dispatcher.in_flight
        return in_flight.num_completed if self._is_submitting or not in_flight.is_empty else None

    def state(self) -> dispatchers.CheckpointState:
        """Loop's thread, or after it has ended: returns a checkpoint's content."""
        found = self.dispatcher.state(self.run_phase)
        return found._replace(counters={**found.counters, **self.others.to_json()})

    def close(self) -> None:
        """Stops preparing further calls."""
        self.copies.close()
        for place in self.dispatcher.places:
            place.close()

    # ------------------------------------------------------------------------------------ one turn

    def step(self) -> scheduler.Call | scheduler.Wait:
        """Takes one turn: notes the news, decides, submits. Raises the failure of an earlier call."""
        self._note_news()
        decision = self.decide()
        if isinstance(decision, scheduler.Call):
            self._is_submitting = True
            try:
                self._submit(decision)
            finally:
                self._is_submitting = False
        return decision

    def decide(self) -> scheduler.Call | scheduler.Wait:
        """Returns the next call according to the present facts."""
        awaits_end = self.agreed is not None and self.agreed.awaits_end
        if self.agreed is not None and awaits_end and self.dispatcher.players[0].can_update:  # else it has no data
            self.agreed.lend(self.dispatcher.everyone.num_updates, self._config.run.max_updates)
        turns = facts.turns(self._config, self.dispatcher, self._last_place)
        if awaits_end or self.run_phase.over is not None or not turns:
            return scheduler.Wait(facts.last_until(self.dispatcher, self.run_phase))  # a call's return is news

        if self.agreed is None:
            return facts.choice(self._config, self.dispatcher, self.run_phase, turns)
        return self.agreed.next_call(facts.readiness(self._config, self.dispatcher, self.run_phase, turns))

    def _submit(self, call: scheduler.Call) -> None:
        """Submits a call, after waiting for earlier calls if necessary."""
        self._last_place = self.dispatcher.players[call.players[0]].place.number
        if call.kind is rate_limiting.Work.ACT:
            self.dispatcher.act(call.players)
            dispatchers.freeze_due(self.dispatcher, self._hooks.freeze)
        elif call.kind is rate_limiting.Work.EVALUATE:
            self._evaluate()
        elif call.kind is rate_limiting.Work.REANALYSE:
            self.dispatcher.reanalyse(self.dispatcher.players[call.players[0]])
        else:
            if self.agreed is not None:
                self.agreed.take_update()
            self.dispatcher.update(self.dispatcher.players[call.players[0]])
            self.alike.after_update()
            self._after_update()
            if self._config.run.deterministic:
                self._keep_time()

    def _note_news(self) -> None:
        """Notes failures, requests, ended sessions, spent budgets, and evaluations that begin."""
        dispatcher = self.dispatcher
        dispatcher.in_flight.check()
        while self.agreed is not None and (decision := self.agreed.take_other()) is not None:
            if decision.kind is agreement.Kind.SAVE:
                self.alike.now()
                self._hooks.save(self.state())
            elif decision.kind is agreement.Kind.END:
                self._asked_to_end = decision.reason
            elif self.run_phase.over is None:
                event = phase.Event.SOLVED if decision.kind is agreement.Kind.SOLVED else phase.Event.STOPPED
                self.run_phase = self.run_phase.after(event, decision.reason)
        with self._news:
            save, self._asked = self._asked, None
            reason, spent = self._asked_to_stop, self._asked_to_end
        if save is not None:
            save(self.state())
        self.copies.make(dispatcher.players)
        if reason is not None and self.run_phase.over is None:
            self.run_phase = self.run_phase.after(phase.Event.STOPPED, reason)
        if self.run_phase.over is not None:
            return
        for slots, reason in dispatcher.workers.inbox.take_ended():
            dispatcher.discard(slots, reason)
        if self.run_phase.phase is phase.Phase.RUNNING:
            if (found := facts.spent(self._config, dispatcher)) and self.agreed is not None:
                self.agreed.spend(found)  # a save may come before the end, but then on all hosts
                found = ""
            if found or spent:
                self._begin_to_end(found or spent, may_wait=not spent)
        else:
            self.run_phase = _after_the_last(dispatcher, self.run_phase, self._hooks, may_wait=not spent)
        if self.run_phase.over is None:
            others = tuple(self.others.counts().values())
            dispatcher.begin_evaluation(is_last=self.run_phase.ends, others=others)

    def _begin_to_end(self, spent: str, *, may_wait: bool) -> None:
        left_out, text = facts.left_out(self._config, self.dispatcher.players)
        if text:
            self._hooks.report(text)
        # The end has begun: steps that a lost worker takes away do not undo it.
        end = self.dispatcher.end(left_out, may_wait=may_wait)
        self.run_phase = self.run_phase.after(phase.Event.SPENT, spent, end)
        self.run_phase = _after_the_last(self.dispatcher, self.run_phase, self._hooks, may_wait=may_wait)
        if self.run_phase.over is None:
            self._hooks.report(f"{spent}: one more evaluation")
            if self.agreed is None and not self._config.run.deterministic:
                self._hooks.save(self.state())  # a call of this evaluation may end the process by not returning

    def _evaluate(self) -> None:
        ended = self.dispatcher.evaluate(is_last=self.run_phase.ends)
        if ended is None:
            return
        self._hooks.evaluated(ended)
        if solved := phase.solved(self._config.run, self.dispatcher.evaluator.last):
            if self.agreed is not None and not self.run_phase.ends:
                self.agreed.ask(agreement.Kind.SOLVED, solved)
            else:
                self.run_phase = self.run_phase.after(phase.Event.SOLVED, solved)
        elif self.run_phase.ends:
            self.run_phase = self.run_phase.after(phase.Event.EVALUATED)

    def _keep_time(self) -> None:
        """Deterministic mode: does the tasks that are due at fixed update counts."""
        num_updates = self.dispatcher.everyone.num_updates
        if num_updates % self._config.checkpoint.every_updates == 0:
            self.dispatcher.in_flight.settle()
            self.dispatcher.reset_environments()
            for player in self.dispatcher.players:
                player.publish()
            self._hooks.row()
            self.alike.now()
            self._hooks.save(self.state())
        elif num_updates % max(1, self._config.checkpoint.every_updates // 10) == 0:
            self.dispatcher.in_flight.settle()
            self._hooks.row()


def _after_the_last(
    dispatcher: dispatchers.Dispatcher, run_phase: phase.RunPhase, hooks: Hooks, *, may_wait: bool
) -> phase.RunPhase:
    """Returns the phase of a run that waits for or plays its last evaluation.

    It is over if the evaluation cannot come, or took too long; then its finished episodes count, if there are any.
    may_wait: for a resume's first worker, because nothing else has asked for an end.
    """
    evaluator, running = dispatcher.evaluator, dispatcher.evaluator.running
    if running is None and not (run_phase.end.expects and dispatcher.is_evaluation_due(is_last=True)):
        return run_phase.after(phase.Event.GIVEN_UP)
    if may_wait and dispatcher.workers.roster.awaits_worker:
        return run_phase.begun_again(math.inf)
    # a resume that only evaluates compiles acting first
    if not dispatcher.places[0].programs.sizes or run_phase.end.began == math.inf:
        return run_phase.begun_again(dispatcher.clock())
    if dispatcher.clock() < facts.last_until(dispatcher, run_phase):
        return run_phase
    if ended := evaluator.cut():
        hooks.evaluated(ended)
        return run_phase.after(phase.Event.EVALUATED)
    if running is None:
        return run_phase.after(phase.Event.GIVEN_UP, f"{run_phase.reason}; its last evaluation took too long")
    evaluator.abandon()
    none = f"none of the {running.played.num_expected} episodes of its last evaluation ended in time"
    return run_phase.after(phase.Event.GIVEN_UP, f"{run_phase.reason}; {none}")


@contextlib.contextmanager
def running(loop: DeviceLoop, on_end: Callable[[], None]) -> Iterator[futures.Future[str]]:
    """Runs a loop on a separate thread while entered; leaving stops the loop.

    Yields why the run is over, once it is, or the Error that ended the loop. on_end: called on the thread.
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
