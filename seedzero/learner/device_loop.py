"""The device loop: one thread owns parameters, optimizer, replay and keys, and decides what runs next.

`step` makes one decision and dispatches one call; `run` drives it and sleeps on the inbox's condition until a
message, a completion or a deadline changes something. JAX's dispatch does not block, so at most
`training.max_in_flight` calls are; the completion thread waits for each, hands actions to the server and fetches
metrics.

Where the host keeps the replay's frames, an update that finds none read ahead waits on this thread for the windows
that the device draws, and so does every call that reanalyses (`host_frames.py`).
"""

from __future__ import annotations

import dataclasses
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from seedzero.agents import base
from seedzero.config import config as config_lib
from seedzero.core import errors, types
from seedzero.device import batch as batch_lib
from seedzero.device import programs, steps
from seedzero.evaluation import episodes, evaluation
from seedzero.learner import inbox as inbox_lib
from seedzero.learner import ledger, limiter, roster
from seedzero.monitoring import counts, metrics
from seedzero.replay import rings as rings_lib

_MAX_REJECTED = 10
"""Consecutive updates with a non-finite loss or gradient after which training stops."""

_log = logging.getLogger(__name__)


class Replies(NamedTuple):
    """How the loop reaches workers; both may be called from any thread.

    Attributes:
      reply: (request, [E] int32 actions, weights version).
      restart: (run id, reason): the worker resets its environments and takes a new run id.
    """

    reply: Callable[[Any, np.ndarray, int], None]
    restart: Callable[[str, str], None]


class Hooks(NamedTuple):
    """What the loop tells the rest of the runtime, on its own thread.

    Attributes:
      evaluated: (result, update, parameters, is the best so far) after an evaluation; the parameters are a copy.
      save: () -> None at a checkpoint's place in deterministic mode.
      row: () -> None at a metrics row's place in deterministic mode.
    """

    evaluated: Callable[[evaluation.Result, int, base.Params, bool], None]
    save: Callable[[], None]
    row: Callable[[], None]


@dataclasses.dataclass
class _Running:
    """An evaluation under way: its environments, frozen parameters, and what it has seen."""

    run: roster.Session
    update: int
    params: base.Params
    played: evaluation.Evaluation


class DeviceLoop:
    """Owns the device's state. All methods run on the loop's thread unless they say otherwise.

    Args:
      config: of the run, resolved.
      spec: of the environments.
      layout: of the slots.
      compiled: device functions.
      train: training state; owned and donated from now on.
      actor: acting state; owned and donated from now on.
      inbox: where messages wait.
      people: who is here.
      replies: to workers.
      hooks: to the rest of the runtime.
      gathered: collects metrics between rows.
      clock: monotonic seconds.
    """

    def __init__(
        self,
        config: config_lib.Config,
        spec: types.EnvSpec,
        layout: batch_lib.Layout,
        compiled: programs.Programs,
        train: base.TrainState,
        actor: steps.ActorState,
        inbox: inbox_lib.Inbox,
        people: roster.Roster,
        replies: Replies,
        hooks: Hooks,
        gathered: metrics.Aggregator,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._spec = spec
        self._layout = layout
        self._programs = compiled
        self._train = train
        self._actor = actor
        self._inbox = inbox
        self._roster = people
        self._replies = replies
        self._hooks = hooks
        self._gathered = gathered
        self._clock = clock
        rows = compiled.all_sizes[-1] * layout.num_shards
        self._limiter = limiter.make(config.replay, config.reanalyse, rows)
        self._choose = limiter.choose_lock_step if config.run.deterministic else limiter.choose
        self._ledger = ledger.Ledger(layout.num_train)
        self._episodes = episodes.Episodes(layout.num_train, spec.num_players)
        self._stored_per_shard = np.zeros(layout.num_shards, np.int64)
        self._num_updates = 0
        self._num_acts = 0
        self._num_reanalyses = 0
        self._version = 0
        self._params = steps.copy_params(train.params)
        self._running: _Running | None = None
        self._evaluated_last = False
        self._last_evaluation: dict[str, Any] | None = None
        self._evaluation_due = 0
        self._best_return = -np.inf
        self._reason_to_stop: str | None = None
        self._in_flight = 0
        most = config.training.max_in_flight + 1  # and the mark of the end
        self._completions: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=most)
        self._failure: BaseException | None = None
        self._requested: Callable[[], None] | None = None
        self._stop_requested: str | None = None
        self._snapshot = counts.Snapshot(self._ledger.counts, 0, 0, 0, None, False, False)

    # ------------------------------------------------------------------------------------ driving

    def run(self) -> str:
        """Works until the run is over and returns why.

        Raises:
          TrainingFailure: training cannot go on.
        """
        completer = threading.Thread(target=self._complete, name="completions")
        completer.start()
        try:
            while self._reason_to_stop is None:
                self._wait_for_work()
                while self._reason_to_stop is None and self.step():
                    pass
            self.settle()
        finally:
            self._completions.put(None)
            completer.join()
        if self._failure is not None:
            raise self._failure
        return self._reason_to_stop

    def request(self, action: Callable[[], None]) -> None:
        """Any thread: has `action` run on the loop's thread between two calls, the newest request only."""
        with self._inbox.changed:
            self._requested = action
            self._inbox.changed.notify_all()

    def stop(self, reason: str) -> None:
        """Any thread: ends `run` after the calls in flight."""
        with self._inbox.changed:
            self._stop_requested = reason
            self._inbox.changed.notify_all()

    @property
    def is_compiled(self) -> bool:
        """Any thread: whether acting and updating have their programs."""
        return bool(self._programs.sizes) and self._programs.update_compiled

    def look(self) -> counts.Snapshot:
        """Any thread: returns the counters."""
        return self._snapshot._replace(is_compiled=self.is_compiled)

    def close(self) -> None:
        """Ends what prepares further calls."""
        self._programs.close()

    def settle(self) -> None:
        """Waits until nothing is in flight.

        Raises:
          TrainingFailure: a call failed.
        """
        with self._inbox.changed:
            self._inbox.changed.wait_for(lambda: self._in_flight == 0 or self._failure is not None)
        self._raise_failure()

    def _wait_for_work(self) -> None:
        with self._inbox.changed:
            while True:
                left = self._fill_seconds_left()  # read first: a deadline that passes meanwhile is work
                if self._has_work():
                    return
                held = self._held() if self._in_flight == 0 else ()
                started = self._clock()
                self._inbox.changed.wait(left if left > 0 else None)
                self._gathered.add_totals(dict.fromkeys(held, self._clock() - started))

    def _held(self) -> tuple[str, ...]:
        """Returns what passes while the device idles: its idle time, and who is ready but held by the band."""
        progress = self._progress()
        acting = ("acting_held_seconds",) if progress.can_act else ()
        updating = ("updating_held_seconds",) if progress.can_update else ()
        return ("device_idle_seconds", *acting, *updating)

    def _has_work(self) -> bool:
        return (
            self._failure is not None
            or self._requested is not None
            or self._stop_requested is not None
            or self._inbox.has_ended
            or self._can_begin_evaluation()
            or (self._in_flight < self._config.training.max_in_flight and self._next() is not limiter.Work.WAIT)
        )

    def _next(self) -> limiter.Work:
        return self._choose(self._limiter, self._progress())

    # ------------------------------------------------------------------------------------ one decision

    def step(self) -> bool:
        """Makes one decision; returns whether it dispatched anything."""
        self._raise_failure()
        self._obey()
        if self._reason_to_stop is not None:
            return False
        for slots in self._inbox.take_ended():
            self._discard(slots, counts.WORKER_LOST)
        self._begin_evaluation()
        with self._inbox.changed:
            if self._in_flight >= self._config.training.max_in_flight:
                return False
        work = self._next()
        if work is limiter.Work.WAIT:
            return False
        if work is limiter.Work.ACT:
            self._act()
        elif work is limiter.Work.EVALUATE:
            self._evaluate()
        elif work is limiter.Work.REANALYSE:
            self._reanalyse()
        else:
            self._update()
        self._publish_snapshot()
        self._check_budgets()
        return True

    def _progress(self) -> limiter.Progress:
        lock_step = self._config.run.deterministic
        waiting = self._inbox.num_rows(types.Role.TRAIN)
        ready = bool(self._programs.sizes) and (not lock_step or self._programs.sizes == self._programs.all_sizes)
        full = waiting == self._num_expected()
        can_sample = bool(self._stored_per_shard.all())
        return limiter.Progress(
            num_inserts=self._ledger.counts.stored,
            num_kept=int(self._stored_per_shard.sum()),
            num_updates=self._num_updates,
            num_reanalyses=self._num_reanalyses,
            can_act=ready and waiting > 0 and (full if lock_step else self._is_filled(waiting)),
            can_evaluate=ready and self._running is not None and self._inbox.num_rows(types.Role.EVALUATE) > 0,
            can_update=self._programs.update_ready and can_sample,
            can_reanalyse=self._programs.reanalyse_ready and can_sample,
            evaluating=self._running is not None or (lock_step and self._is_evaluation_due()),
            evaluated_last=self._evaluated_last,
        )

    def _num_expected(self) -> int:
        """Training environments that a lock-step acting call waits for."""
        worker = self._config.worker
        return worker.num * worker.num_groups * worker.envs_per_group

    def _is_filled(self, waiting: int) -> bool:
        """Whether a batch goes now: it is full, or has waited long enough for more."""
        return waiting >= self._programs.all_sizes[-1] or self._fill_seconds_left() <= 0

    def _fill_seconds_left(self) -> float:
        """Returns how long the oldest message may still wait for others; 0 or less: no longer."""
        wait_microseconds = self._config.batcher.wait_microseconds
        oldest = self._inbox.oldest(types.Role.TRAIN) if wait_microseconds else None
        return 0.0 if oldest is None else oldest + wait_microseconds * 1e-6 - self._clock()

    # ------------------------------------------------------------------------------------ acting

    def _act(self) -> None:
        messages = self._take(types.Role.TRAIN)
        slots = np.concatenate([message.slots for message in messages])
        first = np.concatenate([message.request.first for message in messages])
        reward = np.concatenate([message.request.step.reward for message in messages])
        final = np.concatenate([_final(message.request.step) for message in messages])
        num_inserts = self._ledger.counts.stored
        self._ledger.record(slots, first, final)
        shard, _ = self._layout.place(slots)
        self._stored_per_shard += np.bincount(shard[~first], minlength=self._layout.num_shards)
        for episode in self._episodes.record(slots, reward, first, final):
            self._gathered.add_episode(
                types.Role.TRAIN, episode.total, episode.length, num_players=self._spec.num_players
            )
        self._gathered.add_means({"policy_age": self._num_updates - self._version})
        self._dispatch_act(messages, self._params, self._version, num_inserts)
        self._evaluated_last = False

    def _take(self, role: types.Role) -> list[batch_lib.Message]:
        sizes = self._programs.sizes
        messages = self._inbox.take(role, self._layout, sizes[-1])
        if self._config.run.deterministic:
            messages.sort(key=lambda message: int(message.slots[0]))
        return messages

    def _dispatch_act(
        self, messages: list[batch_lib.Message], params: base.Params, version: int, num_inserts: int
    ) -> None:
        batch, rows = batch_lib.assemble(messages, self._spec, self._layout, self._programs.sizes)
        num_rows = len(batch.slot) // self._layout.num_shards
        counters = steps.act_counters(num_inserts, version, self._num_acts)
        self._num_acts += 1
        self._actor, acted = self._programs.act(num_rows)(params, self._actor, batch, counters)
        self._gathered.add_batch(len(rows), len(batch.slot), self._clock() - messages[0].arrived)

        def deliver() -> None:
            actions = np.asarray(acted.action)[rows]
            start = 0
            for message in messages:
                end = start + len(message.slots)
                self._replies.reply(message.request, actions[start:end], version)
                start = end

        self._dispatched(deliver)

    def _discard(self, slots: np.ndarray, reason: str) -> None:
        if slots[0] < self._layout.num_train:
            self._ledger.discard(slots, reason)
        elif self._running is not None:
            self._running = None  # its environments are gone: the evaluation starts anew with the next ones
        self._publish_snapshot()

    # ------------------------------------------------------------------------------------ training

    def _update(self) -> None:
        num_inserts = np.int32(self._ledger.counts.stored)
        self._train, rings, values = self._programs.update(self._train, self._actor.rings, num_inserts)
        self._actor = self._actor._replace(rings=rings)
        self._num_updates += 1
        names = self._programs.metric_names

        def collect() -> None:
            fetched = dict(zip(names, np.asarray(values).tolist(), strict=True))
            self._gathered.add_means(fetched)
            if fetched["num_rejected"] >= _MAX_REJECTED:
                raise errors.TrainingFailure(
                    f"the loss or its gradient was not finite in {_MAX_REJECTED} updates in a row; resume from the "
                    f"last checkpoint with a lower --optimizer.learning_rate, or look for huge rewards"
                )

        self._dispatched(collect)
        if self._num_updates % self._config.training.publish_every == 0:
            self.publish()
        self._publish_snapshot()
        if self._config.run.deterministic:
            self._keep_time()

    def _reanalyse(self) -> None:
        """Renews targets with the newest parameters, published or not."""
        counters = steps.reanalyse_counters(self._ledger.counts.stored, self._num_updates, self._num_reanalyses)
        rings, values = self._programs.reanalyse(self._train.params, self._actor.rings, counters)
        self._actor = self._actor._replace(rings=rings)
        self._num_reanalyses += 1
        names = self._programs.reanalyse_metric_names

        def collect() -> None:
            fetched = dict(zip(names, np.asarray(values).tolist(), strict=True))
            renewed = fetched.pop("reanalyse_renewed")
            self._gathered.add_means({"reanalyse_renewed": renewed})
            self._gathered.add_means(fetched, weight=renewed)  # means over the renewed rows

        self._dispatched(collect)

    def publish(self) -> None:
        """Has acting use the newest parameters from now on."""
        self._params = steps.copy_params(self._train.params)
        self._version = self._num_updates

    def _keep_time(self) -> None:
        """Deterministic mode: what falls on fixed update counts."""
        if self._num_updates % self._config.checkpoint.every_updates == 0:
            self.settle()
            self.reset_environments()
            self.publish()
            self._hooks.row()
            self._hooks.save()
        elif self._num_updates % self._config.metrics.every_updates == 0:
            self.settle()
            self._hooks.row()

    def reset_environments(self) -> None:
        """Deterministic mode: every training environment starts anew, seeded by the checkpoint's number."""
        self._roster.epoch += 1
        for run in self._roster.started(types.Role.TRAIN):
            self._discard(run.all_slots, counts.CHECKPOINT_RESET)
            self._end_session(run, "environments are reset at a checkpoint")

    def _end_session(self, run: roster.Session, reason: str) -> None:
        self._roster.remove(run.session_id)
        self._inbox.drop_session(run.session_id, run.role)
        self._replies.restart(run.session_id, reason)

    # ------------------------------------------------------------------------------------ evaluating

    def _is_evaluation_due(self) -> bool:
        every = self._config.evaluation.every_updates
        return every > 0 and self._num_updates >= self._evaluation_due and self._num_updates > 0

    def _can_begin_evaluation(self) -> bool:
        return self._running is None and self._is_evaluation_due() and bool(self._roster.started(types.Role.EVALUATE))

    def _begin_evaluation(self) -> None:
        if not self._can_begin_evaluation():
            return
        runs = self._roster.started(types.Role.EVALUATE)
        slots = runs[0].all_slots
        played = evaluation.Evaluation(slots, self._config.evaluation.episodes)
        params = steps.copy_params(self._train.params)
        self._running = _Running(runs[0], self._num_updates, params, played)

    def _evaluate(self) -> None:
        running = self._running
        assert running is not None
        messages = self._take(types.Role.EVALUATE)
        for message in messages:
            step = message.request.step
            running.played.record(message.slots, step.reward, message.request.first, _final(step))
        if running.played.done:
            self._finish_evaluation(running)
        else:
            self._dispatch_act(messages, running.params, running.update, 0)
        self._evaluated_last = True

    def _finish_evaluation(self, running: _Running) -> None:
        result = running.played.result()
        is_best = result.mean_return >= self._best_return
        if is_best:
            self._best_return = result.mean_return
        self._last_evaluation = {"update": running.update, **dataclasses.asdict(result)}
        every = self._config.evaluation.every_updates
        self._evaluation_due = (running.update // every + 1) * every
        self._running = None
        self._roster.evaluation_index += 1
        self._end_session(running.run, "the evaluation is complete; the next one starts with fresh episodes")
        self._publish_snapshot()
        self._hooks.evaluated(result, running.update, running.params, is_best)
        if result.mean_return >= self._config.run.stop_at_return:
            self._reason_to_stop = (
                f"evaluation returned {result.mean_return:g}, --stop_at_return={self._config.run.stop_at_return:g}"
            )

    # ------------------------------------------------------------------------------------ ends and state

    def _check_budgets(self) -> None:
        run = self._config.run
        if run.max_updates and self._num_updates >= run.max_updates:
            self._reason_to_stop = f"--max_updates={run.max_updates} reached"
        elif run.max_env_steps and self._ledger.counts.stored >= run.max_env_steps:
            self._reason_to_stop = f"--max_env_steps={run.max_env_steps} reached"

    def _obey(self) -> None:
        with self._inbox.changed:
            requested, self._requested = self._requested, None
            stop = self._stop_requested
        if requested is not None:
            requested()
        if stop is not None:
            self._reason_to_stop = stop

    def _publish_snapshot(self) -> None:
        self._snapshot = counts.Snapshot(
            self._ledger.counts,
            self._num_updates,
            self._num_reanalyses * self._config.reanalyse.batch_size,
            self._version,
            self._last_evaluation,
            self._running is not None,
            self.is_compiled,
        )

    def state(self) -> tuple[base.TrainState, rings_lib.Rings, dict[str, Any]]:
        """Returns what a checkpoint holds: training state, replay, and counters as JSON.

        Acting takes the newest parameters from here on, as it will after a resume.
        """
        self.publish()
        host = {
            "num_updates": self._num_updates,
            "num_acts": self._num_acts,
            "num_reanalyses": self._num_reanalyses,
            "ledger": self._ledger.to_json(),
            "stored_per_shard": self._stored_per_shard.tolist(),
            "last_evaluation": self._last_evaluation,
            "evaluation_due": self._evaluation_due,
            "evaluation_index": self._roster.evaluation_index,
            "best_return": self._best_return if np.isfinite(self._best_return) else None,
            "epoch": self._roster.epoch,
        }
        return self._train, self._programs.whole(self._actor.rings), host

    def restore(self, host: Mapping[str, Any], *, has_replay: bool) -> None:
        """Continues a checkpoint's counters; without its replay, updates wait until new steps are stored."""
        self._num_updates = host["num_updates"]
        self._num_acts = host["num_acts"]
        self._num_reanalyses = host.get("num_reanalyses", 0)  # checkpoints from before there was reanalysis
        self._ledger.restore(host["ledger"])
        self._last_evaluation = host["last_evaluation"]
        self._evaluation_due = host["evaluation_due"]
        self._best_return = -np.inf if host["best_return"] is None else host["best_return"]
        self._roster.evaluation_index = host["evaluation_index"]
        self._roster.epoch = host["epoch"]
        if has_replay:
            self._stored_per_shard[:] = host["stored_per_shard"]
        self.publish()
        self._publish_snapshot()

    # ------------------------------------------------------------------------------------ completions

    def _dispatched(self, when_done: Callable[[], None]) -> None:
        with self._inbox.changed:
            self._in_flight += 1
        self._completions.put(when_done)

    def _complete(self) -> None:
        """The completion thread."""
        while self.complete_next():
            pass

    def complete_next(self) -> bool:
        """Completion thread: waits for the oldest call and passes on what it gave; returns False at the end."""
        when_done = self._completions.get()
        if when_done is None:
            return False
        try:
            if self._failure is None:
                when_done()
        except Exception as error:  # a failed device call has consumed its donated state: everything stops
            self._failure = error
        with self._inbox.changed:
            self._in_flight -= 1
            self._inbox.changed.notify_all()
        return True

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        if isinstance(self._failure, errors.Error):
            raise self._failure
        raise errors.TrainingFailure(
            f"a call on the device failed ({self._failure}); its state is lost: run the same command again to "
            f"resume from the last checkpoint"
        ) from self._failure


def _final(step: types.EnvStep) -> np.ndarray:
    final: np.ndarray = step.terminated | step.truncated
    return final
