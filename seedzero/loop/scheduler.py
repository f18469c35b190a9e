"""The scheduler: chooses the next call on the devices, from counters and the clock."""

from __future__ import annotations

from seedzero.config import config as configs
from seedzero.core import types
from seedzero.loop import dispatcher as dispatchers
from seedzero.loop import in_flight as in_flight_calls
from seedzero.loop import limiter
from seedzero.loop import player as players
from seedzero.monitoring import counts


class Scheduler:
    """Chooses among the calls that the dispatcher may submit. Used by the loop's thread but for `look`."""

    def __init__(self, config: configs.Config, dispatcher: dispatchers.Dispatcher) -> None:
        self._config = config
        self._dispatcher = dispatcher
        self._clock = dispatcher.clock

    def choose(self) -> tuple[limiter.Work, list[players.Player]]:
        """Returns the next call and its players, several for acting alone; the largest debt goes first."""
        learning = self._dispatcher.players
        work, numbers = limiter.fairest([self._choose(player) for player in learning])
        return work, [learning[number] for number in numbers]

    def _choose(self, player: players.Player) -> tuple[limiter.Work, float]:
        """Returns a player's next call and debt."""
        progress, evaluator = self.progress(player), self._dispatcher.evaluator
        debt = player.pacer.debt(progress)
        if evaluator.ends or evaluator.pause_left(self._clock()):
            return limiter.Work.EVALUATE if progress.can_evaluate else limiter.Work.WAIT, debt
        return player.pacer.choose(progress, self._clock()), debt

    def progress(self, player: players.Player) -> limiter.Progress:
        """Returns the facts for a player's pace."""
        dispatcher, lock_step = self._dispatcher, self._config.run.deterministic
        sizes, evaluator, intake = player.programs.sizes, dispatcher.evaluator, player.intake
        ready = bool(sizes) and (not lock_step or sizes == player.programs.all_sizes)
        has_room = dispatcher.in_flight.has_room_in(in_flight_calls.ACTING)
        may_learn = dispatcher.in_flight.has_room_in(in_flight_calls.UPDATING)
        evaluating = evaluator.running is not None
        num_inserts = intake.ledger.counts.stored
        only_learns = self._config.run.has_all_steps(num_inserts)
        may_act = ready and not only_learns and intake.can_act(self._full_batch(), self._clock())
        awaits_update = player.strategy.takes_turns and not may_learn
        can_act = may_act and has_room and not awaits_update
        waiting = dispatcher.workers.inbox.num_rows(types.Role.EVALUATE)
        return limiter.Progress(
            num_inserts=num_inserts,
            num_kept=intake.num_kept,
            num_updates=player.num_updates,
            num_refreshes=player.num_refreshes,
            can_act=can_act,
            can_evaluate=has_room and ready and evaluating and waiting > 0,
            can_update=may_learn and player.can_update,
            can_refresh=has_room and player.programs.refresh_ready and intake.can_sample,
            evaluating=evaluating or (lock_step and evaluator.is_due(player.num_updates, self._clock())),
            evaluated_last=evaluator.acted_last,
            only_learns=only_learns,
            waits_to_act=may_act and not can_act,
        )

    def _full_batch(self) -> int:
        """Returns the rows of a batch with nothing to wait for: the largest batch, or all environments."""
        largest = self._dispatcher.setup.max_rows
        waits = self._config.batcher.wait_microseconds > 0
        return min(largest, sum(self._dispatcher.workers.roster.sizes())) if waits else largest

    def seconds_left(self) -> float | None:
        """Returns how long until a deadline makes work; None: there is no deadline."""
        now, evaluator = self._clock(), self._dispatcher.evaluator
        deadlines = [evaluator.seconds_left(now), evaluator.pause_left(now)]
        for player in self._dispatcher.players:
            deadlines += [player.intake.fill_seconds_left(now), player.pacer.seconds_left(now)]
        return min((seconds for seconds in deadlines if seconds is not None and seconds > 0), default=None)

    def held(self) -> tuple[str, ...]:
        """Returns the metrics of seconds while the devices idle: ready work that the pace holds back, too."""
        if self._dispatcher.evaluator.pause_left(self._clock()):
            return ("device_idle_seconds",)
        progress = [self.progress(player) for player in self._dispatcher.players]
        acting = ("acting_held_seconds",) if any(found.can_act for found in progress) else ()
        updating = ("updating_held_seconds",) if any(found.can_update for found in progress) else ()
        return ("device_idle_seconds", *acting, *updating)

    # ------------------------------------------------------------------------------------ budgets

    @property
    def num_updates(self) -> int:
        """Updates of all players."""
        return sum(player.num_updates for player in self._dispatcher.players)

    def budget_spent(self) -> str:
        """Returns a line about the spent budget, or ""."""
        budget = self._config.run
        owed = sum(
            player.pacer.owed_updates(budget.max_env_steps)
            for player in self._dispatcher.players
            if player.intake.num_kept >= self._config.replay.min_steps
        )
        spent = budget.spent(self.num_updates, self._num_stored, owed)
        return f"{spent} reached" if spent else ""

    @property
    def _num_stored(self) -> int:
        return sum(player.intake.ledger.counts.stored for player in self._dispatcher.players)

    def leave_out_updates(self) -> str:
        """Counts the updates left out after a run's last step, for `Saves`; returns a line about them."""
        (player,), config = self._dispatcher.players, self._config
        num_stored, num_kept = player.intake.ledger.counts.stored, player.intake.num_kept
        if not config.run.has_all_steps(num_stored) or num_kept >= config.replay.min_steps:
            return ""
        num_left_out = player.pacer.owed_updates(config.run.max_env_steps) - player.num_updates
        if num_left_out <= 0:
            return ""
        self._dispatcher.left_out = num_left_out, config.replay.min_steps
        return (
            f"{num_left_out} of the updates after the last step are left out: the replay holds {num_kept} steps, "
            f"and learning needs --replay.min_steps={config.replay.min_steps}. A run that goes on from a "
            "checkpoint without replay begins with an empty one"
        )

    def look(self) -> counts.Snapshot:
        """Any thread: returns the counters."""
        (player,), evaluator = self._dispatcher.players, self._dispatcher.evaluator
        refresh, programs, steps = player.setup.agent.refresh, player.programs, player.intake.ledger.counts
        training = self._dispatcher.workers.roster.started(types.Role.TRAIN)
        return counts.Snapshot(
            counts=steps,
            num_updates=player.num_updates,
            owed_updates=player.pacer.owed_updates(self._config.run.max_env_steps),
            num_samples=player.pacer.num_samples(player.num_updates, steps.stored),
            num_refreshed=player.num_refreshes * refresh.batch_size if refresh else None,
            version=player.version,
            last_evaluation=evaluator.last,
            evaluating=evaluator.running is not None,
            remaining=evaluator.remaining(),
            lacking=player.intake.lacking([session.all_slots for session in training]),
            is_compiled=bool(programs.sizes) and programs.update_ready,
        )
