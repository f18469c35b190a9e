"""The dispatcher submits calls to the devices, each with its work on completion."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from seedzero.agents import base
from seedzero.config import config as configs
from seedzero.core import env_ids, errors, types
from seedzero.device import acting, steps
from seedzero.device import batch as batches
from seedzero.device import setup as setups
from seedzero.device import state as states
from seedzero.loop import evaluator as evaluators
from seedzero.loop import in_flight as in_flight_calls
from seedzero.loop import inbox as inboxes
from seedzero.loop import player as players
from seedzero.loop import roster as rosters
from seedzero.monitoring import aggregator, counts, symptoms
from seedzero.replay import rings as ring_store

LEFT_OUT = "left_out"
"""Counter of a checkpoint: updates after the last step that an ended run does without, and replay.min_steps then."""

_MAX_REJECTED = 10
"""Consecutive updates with a non-finite loss or gradient after which training stops."""


class Workers(NamedTuple):
    """The loop's ways to workers. With `restart`, a worker resets its environments and takes a new session id."""

    inbox: inboxes.Inbox
    roster: rosters.Roster
    reply: Callable[[Any, np.ndarray, int], None]  # any thread: request, [E] actions, weights version
    restart: Callable[[str, str], None]  # any thread: session id, reason

    def end_session(self, session: rosters.Session, reason: str) -> None:
        """Has a worker reset its environments."""
        self.roster.remove(session.session_id)
        self.inbox.drop_session(session.session_id, session.role)
        self.restart(session.session_id, reason)


class CheckpointState(NamedTuple):
    """A checkpoint's content."""

    parts: dict[str, dict[str, base.Params]]  # of the train states, by player and name
    rings: ring_store.Rings | None  # the replay with its frames; None: a queue, which keeps none
    host: dict[str, Any]  # counters, as JSON


class _Acted(NamedTuple):
    """An acting call under way: its messages, the row [B] of each environment, and the actions [R] of all rows."""

    messages: Sequence[batches.Message]
    rows: np.ndarray
    version: int
    actions: jax.Array


class Dispatcher:
    """Submits acting, evaluation, updates and refreshes. Used by the loop's thread, which owns the players."""

    def __init__(
        self,
        config: configs.Config,
        setup: setups.Setup,
        learning: tuple[players.Player, ...],
        carried: acting.Carried,
        workers: Workers,
        gathered: aggregator.Aggregator,
        clock: Callable[[], float],
    ) -> None:
        lock_step = config.run.deterministic
        self.setup = setup
        self.players = learning
        self.workers = workers
        self.gathered = gathered
        self.clock = clock
        # Of the first player. Deterministic runs read no clock.
        evaluation = dataclasses.replace(config.evaluation, every_seconds=0.0) if lock_step else config.evaluation
        self.evaluator = evaluators.Evaluator(evaluation, config.env.id, now=clock())
        lanes = learning[0].strategy.lanes(config.training.max_in_flight)
        self.in_flight = in_flight_calls.InFlight(workers.inbox.changed, *lanes)
        self.left_out = (0, 0)  # updates left out at the run's end, and the min_steps that they lacked
        self._carried = carried
        self._num_acts = 0
        self._publish_every = config.training.publish_every
        self._expects_evaluation = config.env.id != env_ids.REMOTE
        self._config = config
        self._clip_norm = symptoms.clip_norm(config)
        self._kept: dict[str, int] = {}

    # ------------------------------------------------------------------------------------ submitting

    def act(self, chosen: Sequence[players.Player]) -> None:
        """Acts for the chosen players' waiting training environments: a call for each with some, completed as one."""
        acted = []
        for player in chosen:
            player.receive()
            messages = player.intake.take(types.Role.TRAIN, player.programs.sizes[-1])
            if not messages:
                continue  # their session ended a moment ago
            num_inserts = player.num_inserts
            player.intake.record(messages, self.clock())
            self.gathered.add_means({"policy_age": player.num_updates - player.version})
            acted.append(self._run_act(player, messages, player.params, player.version, num_inserts))
        if acted:
            self.in_flight.add(lambda: self._deliver(acted))
            self.evaluator.acted_last = False  # training and evaluation alternate

    def evaluate(self) -> evaluators.Ended | None:
        """Acts for the waiting evaluation environments; returns a complete evaluation."""
        running, player = self.evaluator.running, self.players[0]
        assert running is not None
        messages = player.intake.take(types.Role.EVALUATE, player.programs.sizes[-1])
        if not messages:
            return None  # their session ended a moment ago
        ended = self.evaluator.record(messages, player.num_updates, self.clock())
        if ended is None:
            acted = [self._run_act(player, messages, running.params, running.update, 0)]
            self.in_flight.add(lambda: self._deliver(acted))
        else:
            self.workers.roster.evaluation_index += 1
            reason = "the evaluation is complete; the next one starts with fresh episodes"
            self.workers.end_session(running.session, reason)
        return ended

    def _run_act(
        self,
        player: players.Player,
        messages: Sequence[batches.Message],
        params: base.Params,
        version: int,
        num_inserts: int,
    ) -> _Acted:
        batch, rows = batches.assemble(messages, self.setup.spec, self.setup.layout, player.programs.sizes)
        counters = steps.counters(num_inserts, version, self._num_acts)
        self._num_acts += 1
        self._carried, actions = player.run_act(self._carried, batch, params, counters)
        self.gathered.add_batch(len(rows), len(batch.slot), self.clock() - messages[0].arrived)
        return _Acted(messages, rows, version, actions)

    def _deliver(self, acted: Sequence[_Acted]) -> None:
        """Completion thread: waits for the actions of a tick and sends the replies."""
        for call in acted:
            ends = np.cumsum([len(message.slots) for message in call.messages])
            actions = np.split(np.asarray(call.actions)[call.rows], ends[:-1])
            for message, chosen in zip(call.messages, actions, strict=True):
                self.workers.reply(message.request, chosen, call.version)

    def update(self, player: players.Player) -> None:
        """Learns once, and publishes due parameters."""
        values = player.run_update(self.clock())
        if player.num_updates % self._publish_every == 0:
            player.publish()
        names, settle = player.programs.update.metric_names, player.when_there()

        def collect() -> None:
            fetched = dict(zip(names, np.asarray(values).tolist(), strict=True))
            self.gathered.add_means({**fetched, **symptoms.clipped(self._clip_norm, fetched)})
            if fetched["num_rejected"] >= _MAX_REJECTED:
                raise errors.TrainingFailure(
                    f"the loss or its gradient was not finite in {_MAX_REJECTED} updates in a row; resume from the "
                    f"last checkpoint with a lower learning rate, or look for huge rewards"
                )
            if player.strategy.takes_turns:
                settle()

        self.in_flight.add(collect, in_flight_calls.UPDATING)

    def refresh(self, player: players.Player) -> None:
        """Renews stored targets once."""
        values = player.run_refresh()
        names = player.programs.refresh.metric_names

        def collect() -> None:
            fetched = dict(zip(names, np.asarray(values).tolist(), strict=True))
            share = fetched.pop("refreshed_share")
            self.gathered.add_means({"refreshed_share": share})
            self.gathered.add_means(fetched, weight=share)  # means over the refreshed rows

        self.in_flight.add(collect)

    # ------------------------------------------------------------------------------------ environments

    def discard(self, slots: np.ndarray, reason: str) -> None:
        """Ends the histories of slots without environments, for one of the ledger's reasons."""
        if slots[0] < self.setup.layout.num_train:
            for player in self.players:
                player.intake.cut(slots, reason)
        else:
            self.evaluator.abandon()  # it starts anew with the next environments

    def reset_environments(self) -> None:
        """Starts every training environment anew, seeded by the checkpoint's number, as a resume does."""
        self.workers.roster.epoch += 1
        for session in self.workers.roster.started(types.Role.TRAIN):
            self.discard(session.all_slots, counts.CHECKPOINT_RESET)
            self.workers.end_session(session, "environments are reset at a checkpoint")
        for player in self.players:
            player.intake.drop(counts.CHECKPOINT_RESET)
        self._carried = states.init_carried(self.setup, begins=False)

    def begin_evaluation(self) -> None:
        """Starts a due evaluation with the newest parameters, given its environments."""
        for session in self.evaluating_sessions()[:1]:
            player, now = self.players[0], self.clock()
            params, env_steps = player.copy_params(), player.intake.ledger.counts.stored
            tasks = self.setup.spec.tasks
            self.evaluator.begin(session, player.num_updates, params, tasks, now=now, env_steps=env_steps)

    def evaluating_sessions(self) -> list[rosters.Session]:
        """Returns the environments for a due evaluation to begin in."""
        is_due = self.evaluator.running is None and self.evaluator.is_due(self.players[0].num_updates, self.clock())
        return self.workers.roster.started(types.Role.EVALUATE) if is_due else []

    def end(self, reason: str) -> str | None:
        """Returns why the run is over; None: an evaluation of the newest parameters comes first.

        It is left out where no environments can be expected, and given up where none of its episodes ends in time.
        """
        evaluator, now, num_updates = self.evaluator, self.clock(), self.players[0].num_updates
        if not evaluator.ends:
            if self._config.run.deterministic and not evaluator.is_due(num_updates, now):
                # The evaluation is extra: a larger budget goes on from here as if it had been there from the start.
                self._kept = {"num_acts": self._num_acts, "evaluation_index": self.workers.roster.evaluation_index}
            self._expects_evaluation |= bool(self.workers.roster.started(types.Role.EVALUATE))
            num_steps = self.players[0].intake.ledger.counts.stored
            evaluator.end(now, evaluators.bound(self._config.run, self._config.evaluation, num_steps))
        running = evaluator.running
        if running is not None and running.update < num_updates:
            evaluator.abandon()
            self.workers.end_session(running.session, "the run's last evaluation starts with fresh episodes")
        elif running is None and not (self._expects_evaluation and evaluator.is_due(num_updates, now)):
            evaluator.wait_for_last(now, can_come=False)
            return reason
        if evaluator.wait_for_last(now):
            return None
        if running is None:
            return f"{reason}; its last evaluation took too long"
        evaluator.abandon()
        return f"{reason}; none of the {running.played.num_expected} episodes of its last evaluation ended in time"

    # ------------------------------------------------------------------------------------ checkpoints

    def state(self) -> CheckpointState:
        """Returns a checkpoint's content; acting takes the newest parameters from here on, as after a resume."""
        (player,) = self.players
        player.publish()
        parts, rings = player.state()
        host = {
            "num_acts": self._num_acts,
            **player.to_json(),
            **self.evaluator.to_json(),
            **self.workers.roster.to_json(),
            LEFT_OUT: self.left_out,
            **self._kept,
        }
        return CheckpointState({player.name: parts}, rings, host)

    def restore(self, host: Mapping[str, Any], *, has_replay: bool) -> None:
        """Continues a checkpoint's counters; without its replay, updates wait until new steps are stored."""
        self._num_acts = host["num_acts"]
        for player in self.players:
            player.restore(host, has_replay=has_replay)
        self.evaluator.restore(host)
        self.workers.roster.restore(host)
