"""The calls that the device loop decides on: each is dispatched with the work that its completion brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from seedzero.agents import base
from seedzero.config import config as configs
from seedzero.core import env_ids, errors, types
from seedzero.device import apart
from seedzero.device import batch as batches
from seedzero.device import setup as setups
from seedzero.learner import evaluator as evaluators
from seedzero.learner import in_flight as in_flight_calls
from seedzero.learner import inbox as inboxes
from seedzero.learner import intake as intakes
from seedzero.learner import pacing
from seedzero.learner import roster as rosters
from seedzero.learner import runner as runners
from seedzero.monitoring import counts, metrics
from seedzero.replay import rings as ring_store

LEFT_OUT = "left_out"
"""Counter of a checkpoint: updates after the last step that an ended run does without, and replay.min_steps then."""

_MAX_REJECTED = 10
"""Consecutive updates with a non-finite loss or gradient after which training stops."""


class Workers(NamedTuple):
    """How the loop reaches workers. With `restart`, one resets its environments and takes a new session id."""

    inbox: inboxes.Inbox
    roster: rosters.Roster
    reply: Callable[[Any, np.ndarray, int], None]  # any thread: request, [E] actions, weights version
    restart: Callable[[str, str], None]  # any thread: session id, reason


class CheckpointState(NamedTuple):
    """A checkpoint's content."""

    parts: dict[str, base.Params]  # of the train state, by name (`device.state.parts`)
    rings: ring_store.Rings | None  # the replay with its frames; None: a queue, which keeps none
    host: dict[str, Any]  # counters, as JSON


class Calls:
    """Acts, evaluates, updates and refreshes. Used by the loop's thread, which owns the runner from now on."""

    def __init__(
        self,
        config: configs.Config,
        setup: setups.Setup,
        runner: runners.Runner,
        workers: Workers,
        gathered: metrics.Aggregator,
        clock: Callable[[], float],
    ) -> None:
        self.setup = setup
        self.runner = runner
        self.workers = workers
        self.gathered = gathered
        self.clock = clock
        self.pacer = pacing.make(config, setup)
        self.intake = intakes.Intake(config, setup.layout, workers.inbox, self.pacer, gathered, spec=setup.spec)
        self.evaluator = evaluators.Evaluator(config.evaluation, config.env.id)
        most_updates = 1 if setup.takes_turns else apart.MOST_UPDATES
        maxima = (config.training.max_in_flight, *([most_updates] if setup.learners else []))
        self.in_flight = in_flight_calls.InFlight(workers.inbox.changed, *maxima)
        self._learning = len(maxima) - 1  # the lane of updates
        self._publish_every = config.training.publish_every
        self._expects_evaluation = config.env.id != env_ids.REMOTE
        self._config = config
        self._kept: dict[str, int] = {}
        self.left_out = (0, 0)  # updates, and the min_steps that they lacked

    @property
    def has_room_to_act(self) -> bool:
        """Whether a call of the acting devices may be dispatched."""
        return self.in_flight.has_room_in(0)

    @property
    def has_room_to_learn(self) -> bool:
        """Whether an update may be dispatched."""
        return self.in_flight.has_room_in(self._learning)

    @property
    def lacking(self) -> str:
        """Any thread: what updates wait for, where more environments have to join."""
        return self.intake.lacking([session.all_slots for session in self.workers.roster.started(types.Role.TRAIN)])

    @property
    def awaits_update(self) -> bool:
        """Whether acting waits for an update under way on other devices."""
        return self.setup.takes_turns and not self.has_room_to_learn

    def act(self) -> None:
        """Acts for the training environments that wait."""
        self.runner.receive()
        messages = self.intake.take(types.Role.TRAIN, self.runner.programs.sizes[-1])
        if not messages:
            return  # their session ended a moment ago
        num_inserts = self._num_inserts()
        self.intake.record(messages, self.clock())
        self.gathered.add_means({"policy_age": self.runner.num_updates - self.runner.version})
        self._dispatch_act(messages, self.runner.params, self.runner.version, num_inserts)
        self.evaluator.acted_last = False

    def _dispatch_act(
        self, messages: list[batches.Message], params: base.Params, version: int, num_inserts: int
    ) -> None:
        setup = self.setup
        batch, rows = batches.assemble(messages, setup.spec, setup.layout, self.runner.programs.sizes)
        action = self.runner.act(batch, params, version, num_inserts)
        self.gathered.add_batch(len(rows), len(batch.slot), self.clock() - messages[0].arrived)

        def deliver() -> None:
            ends = np.cumsum([len(message.slots) for message in messages])
            for message, actions in zip(messages, np.split(np.asarray(action)[rows], ends[:-1]), strict=True):
                self.workers.reply(message.request, actions, version)

        self.in_flight.add(deliver)

    def _num_inserts(self) -> int:
        """Returns the steps stored so far, for sampling; a queue needs none."""
        return self.intake.ledger.counts.stored if self.setup.agent.samples else 0

    def discard(self, slots: np.ndarray, reason: str) -> None:
        """Ends the histories of slots whose environments are gone, for one of the ledger's reasons."""
        if slots[0] < self.setup.layout.num_train:
            self.intake.cut(slots, reason)
        else:
            self.evaluator.running = None  # it starts anew with the next environments

    def update(self) -> None:
        """Learns once, and publishes the parameters when that is due."""
        values = self.runner.update(self.pacer.feed(self._num_inserts(), self.clock()))
        if self.runner.num_updates % self._publish_every == 0:
            self.runner.publish()
        names, settle = self.runner.programs.metric_names, self.runner.when_there()

        def collect() -> None:
            fetched = dict(zip(names, np.asarray(values).tolist(), strict=True))
            self.gathered.add_means(fetched)
            if fetched["num_rejected"] >= _MAX_REJECTED:
                raise errors.TrainingFailure(
                    f"the loss or its gradient was not finite in {_MAX_REJECTED} updates in a row; resume from the "
                    f"last checkpoint with a lower learning rate, or look for huge rewards"
                )
            if self.setup.takes_turns:
                settle()

        self.in_flight.add(collect, self._learning)

    def refresh(self) -> None:
        """Renews stored targets once."""
        values = self.runner.refresh(self._num_inserts())
        names = self.runner.programs.refresh_metric_names

        def collect() -> None:
            fetched = dict(zip(names, np.asarray(values).tolist(), strict=True))
            share = fetched.pop("refreshed_share")
            self.gathered.add_means({"refreshed_share": share})
            self.gathered.add_means(fetched, weight=share)  # means over the refreshed rows

        self.in_flight.add(collect)

    def reset_environments(self) -> None:
        """Starts every training environment anew, seeded by the checkpoint's number, as a resume does."""
        self.workers.roster.epoch += 1
        for session in self.workers.roster.started(types.Role.TRAIN):
            self.intake.cut(session.all_slots, counts.CHECKPOINT_RESET)
            self._end_session(session, "environments are reset at a checkpoint")
        self.intake.ledger.discard_stored(self.pacer.drop(), counts.CHECKPOINT_RESET)
        self.runner.forget()

    def _end_session(self, session: rosters.Session, reason: str) -> None:
        self.workers.roster.remove(session.session_id)
        self.workers.inbox.drop_session(session.session_id, session.role)
        self.workers.restart(session.session_id, reason)

    def can_begin_evaluation(self) -> bool:
        """Returns whether an evaluation is due, and its environments are there."""
        is_due = self.evaluator.running is None and self.evaluator.is_due(self.runner.num_updates)
        return is_due and bool(self.workers.roster.started(types.Role.EVALUATE))

    def begin_evaluation(self) -> None:
        """Starts an evaluation with the newest parameters, if its environments are still there."""
        for session in self.workers.roster.started(types.Role.EVALUATE)[:1]:
            params, tasks = self.runner.copy_params(), self.setup.spec.tasks
            now, env_steps = self.clock(), self.intake.ledger.counts.stored
            self.evaluator.begin(session, self.runner.num_updates, params, tasks, now=now, env_steps=env_steps)

    def evaluate(self) -> evaluators.Ended | None:
        """Acts for the evaluating environments that wait; returns the evaluation when it is complete."""
        running = self.evaluator.running
        assert running is not None
        messages = self.intake.take(types.Role.EVALUATE, self.runner.programs.sizes[-1])
        if not messages:
            return None  # their session ended a moment ago
        ended = self.evaluator.record(messages, self.runner.num_updates, self.clock())
        if ended is None:
            self._dispatch_act(messages, running.params, running.update, 0)
        else:
            self.workers.roster.evaluation_index += 1
            self._end_session(running.session, "the evaluation is complete; the next one starts with fresh episodes")
        return ended

    def end(self, reason: str) -> str | None:
        """Returns why the run is over; None: an evaluation of the newest parameters comes first.

        It is left out where no environments can be expected, and given up where none of its episodes ends in time.
        """
        evaluator, now = self.evaluator, self.clock()
        if not evaluator.ends:
            if self._config.run.deterministic and not evaluator.is_due(self.runner.num_updates):
                # The evaluation is extra: a larger budget goes on from here as if it had been there from the start.
                num_acts, index = self.runner.to_json()["num_acts"], self.workers.roster.evaluation_index
                self._kept = {"num_acts": num_acts, "evaluation_index": index}
            self._expects_evaluation |= bool(self.workers.roster.started(types.Role.EVALUATE))
            num_steps = self.intake.ledger.counts.stored
            evaluator.end(now, evaluators.bound(self._config.run, self._config.evaluation, num_steps))
        running = evaluator.running
        if running is not None and running.update < self.runner.num_updates:
            evaluator.running = None
            self._end_session(running.session, "the run's last evaluation starts with fresh episodes")
        elif running is None and not (self._expects_evaluation and evaluator.is_due(self.runner.num_updates)):
            evaluator.is_awaited = False
            return reason
        evaluator.is_awaited = bool(evaluator.seconds_left(now))
        if evaluator.is_awaited:
            return None
        if running is None:
            return f"{reason}; its last evaluation took too long"
        evaluator.running = None
        return f"{reason}; none of the {running.played.num_expected} episodes of its last evaluation ended in time"

    def state(self) -> CheckpointState:
        """Returns a checkpoint's content; acting takes the newest parameters from here on, as after a resume."""
        self.runner.publish()
        host = {
            **self.runner.to_json(),
            **self.intake.to_json(),
            **self.evaluator.to_json(),
            **self.pacer.to_json(),
            "evaluation_index": self.workers.roster.evaluation_index,
            "epoch": self.workers.roster.epoch,
            "num_assigned": self.workers.roster.num_assigned,
            LEFT_OUT: self.left_out,
            **self._kept,
        }
        return CheckpointState(*self.runner.state(), host)

    def restore(self, host: Mapping[str, Any], *, has_replay: bool) -> None:
        """Continues a checkpoint's counters; without its replay, updates wait until new steps are stored."""
        self.runner.restore(host)
        self.intake.restore(host, has_replay=has_replay)
        self.evaluator.restore(host)
        self.pacer.restore(host)
        self.workers.roster.evaluation_index = host["evaluation_index"]
        self.workers.roster.epoch = host["epoch"]
        self.workers.roster.num_assigned = host.get("num_assigned", 0)  # checkpoints of earlier versions have none
