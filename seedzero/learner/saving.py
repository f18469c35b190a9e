"""Decides what checkpoints contain and when they are saved, and restores resumed runs.

`save` and `save_state` are called while the device loop's state does not change: on its thread, or after it has ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

from seedzero.agents import base
from seedzero.config import configs, sections
from seedzero.core import errors
from seedzero.device import meshes, states
from seedzero.learner import together
from seedzero.learner.loop import dispatchers, evaluators, facts, phase, replay_rate
from seedzero.monitoring import league_log, metrics_log
from seedzero.monitoring.metrics import counts, episodes
from seedzero.replay import ring_store
from seedzero.storage.bucket import mirrors
from seedzero.storage.checkpoints import checkpoint, checkpointers, run_dirs, saved_files, trees

_LEAGUE_BYTES = "league_bytes"
"""In a checkpoint's counters: the size of the league's history."""
SMALL_REPLAY_BYTES = 64 * 2**20
"""Observations of this size are written as fast as everything else in a checkpoint."""


@dataclasses.dataclass(eq=False)
class Saves:
    """The checkpoints of a run."""

    config: configs.Config
    directory: run_dirs.RunDir
    log: metrics_log.MetricsLog
    report: Callable[[str], None]
    mirror: dataclasses.InitVar[mirrors.Mirror | None]
    history: league_log.LeagueLog | None = None  # the league's history
    durable_update: int | None = None  # of the newest checkpoint, or None
    hosts: together.Together | None = None  # shared with the run's other hosts, or None

    def __post_init__(self, mirror: mirrors.Mirror | None) -> None:
        self._includes_replay = self._has_failed = False
        self._mark: tuple[object, ...] | None = None
        self.checkpointer = checkpointers.Checkpointer(
            self.directory.checkpoints,
            self.config.checkpoint,
            on_durable=self._durable,
            on_error=self._not_saved,
            uploader=None if mirror is None else mirror.uploads,
            peers=None if self.hosts is None else together.LinkedPeers(self.hosts.link),
            host=None if self.hosts is None else self.hosts.index,
        )

    # ------------------------------------------------------------------------------------ the beginning

    def finished_before(self) -> str:
        """Returns why a resumed run has nothing left to do, or ""; all of several hosts give a reason, or none."""
        found = self._finished_before()
        if self.hosts is None:
            return found
        said = self.hosts.link.gather("finished", found)
        has_part = {index: text for index, text in said.items() if index in self.hosts.parts} or said
        # an empty text: that host has work left, such as the last evaluation; a new one has nothing to say
        return next(iter(has_part.values())) if all(has_part.values()) else ""

    def _finished_before(self) -> str:
        checkpoints = self.directory.checkpoints
        found = list(saved_files.manifests(checkpoints)) if self.directory.resumed else []
        if self.hosts is not None:  # the run's other hosts may lack a later one
            found = [manifest for manifest in found if manifest.step <= self.hosts.step]
        if not found:
            return ""
        newest = max(found, key=lambda manifest: manifest.step)
        with reading_counters(newest.step):
            if not self._is_over(newest.counters):
                return ""
        # Reads everything, so only if the newest seems to be the last.
        whole, _ = saved_files.newest_verified(checkpoints, "state")
        if whole is None:
            return ""
        with reading_counters(whole.step):
            return self._is_over(whole.counters)

    def _is_over(self, counters: Mapping[str, Any]) -> str:
        """Explains why a checkpoint with these counters is a run's last, or returns ""."""
        if counters[phase.IN_LAST]:
            return ""
        evaluated, num_updates = counters["last_evaluation"], counters["num_updates"]
        own = counts.Counts(**counters["ledger"]).env_steps
        budget, num_steps = _budget(self.config, self.hosts, own)
        owed, replay = 0, self.config.replay
        if self.config.agent.SAMPLES and replay.final_updates:
            owed = replay_rate.owed_updates(replay, budget.max_env_steps, replay_rate.start_of(replay, counters))
            num_left_out, min_steps = counters[phase.LEFT_OUT]
            owed -= num_left_out if replay.min_steps >= min_steps else 0
        if spent := budget.spent(num_updates, num_steps, owed):
            number = f"{num_updates} updates" if spent.startswith("--max_updates") else f"{num_steps} steps"
            return f"{number} of {spent}{facts.of_each_host(self.config, spent)}"
        return phase.solved(budget, evaluated)

    def restore(
        self,
        agent: base.Agent,
        shapes: Callable[[Mapping[str, Any]], Mapping[str, base.TrainState]],
        rings: ring_store.Replay | None,
        places: Sequence[int] = (),
    ) -> tuple[dict[str, base.TrainState], checkpoint.Restored] | None:
        """Returns the newest verified checkpoint, with the states of its learning players, and reports it.

        Returns None for a new run. With several hosts, only host 0 has states, the others {}. shapes: takes a
        checkpoint's counters and returns the shapes, dtypes and shardings of the players' states. rings: those of the
        replay with its frames; None if this run's checkpoints do not have the replay. places: as in
        `checkpoint.restore`.
        """
        self._includes_replay = rings is not None
        hosts, checkpoints = self.hosts, self.directory.checkpoints
        has_states = hosts is None or hosts.index == 0

        def trains(counters: Mapping[str, Any]) -> Mapping[str, base.TrainState]:
            with reading_counters(int(counters.get("num_updates", 0))):
                return shapes(counters) if has_states else {}

        def like(counters: Mapping[str, Any]) -> dict[str, trees.Tree]:
            return checkpoint.by_player({name: states.parts(agent, train) for name, train in trains(counters).items()})

        restored = None
        if hosts is None or (hosts.has_part and hosts.step in saved_files.finished(checkpoints / saved_files.STEPS)):
            step: saved_files.Step = "last" if hosts is None else hosts.step
            needs_replay = self.config.run.deterministic
            with _naming_changes(self.directory, self.config):
                restored = checkpoint.restore(
                    checkpoints, like if has_states else None, rings, step, needs_replay=needs_replay, places=places
                )
        if restored is None:
            self._truncate(0, -1, 0)
            return None
        with reading_counters(restored.step):
            counters = dict(restored.counters)
            num_bytes, num_steps = int(counters["metrics_bytes"]), counts.env_steps_of(counters)
            self._mark = _mark(counters, restored.frozen)
            # in deterministic mode, the evaluations after the checkpoint come again
            if not self.config.run.deterministic:
                counters["best_return"] = best_return_of(self.directory.checkpoints, counters)
            restored = restored._replace(counters=counters)
        self.checkpointer.continue_from(restored)
        for text in restored.losses:
            self.report(text)
        self.durable_update = restored.step
        self._truncate(num_bytes, num_steps, int(counters.get(_LEAGUE_BYTES, 0)))
        is_kept = restored.rings is not None or not agent.samples
        self.report(f"resumed at update {restored.step}{'' if is_kept else '; the replay buffer fills again'}")
        return {
            name: states.from_parts(agent, train, checkpoint.of_player(restored.state, name))
            for name, train in trains(restored.counters).items()
        }, restored

    def _truncate(self, size_bytes: int, env_steps: int, league_bytes: int) -> None:
        """Cuts the metrics, and the history of a league, back to a checkpoint's. Raises ResumeError."""
        try:
            self.log.truncate(size_bytes, env_steps)
            if self.history is not None:
                self.history.truncate(league_bytes)
        except OSError as error:
            raise errors.ResumeError(
                f"cannot write the metrics in {self.directory.path}: {error.strerror}; make them writable, or give "
                "another --run_dir"
            ) from None

    # ------------------------------------------------------------------------------------ while it continues

    def save(self, state: dispatchers.CheckpointState) -> None:
        """Begins a checkpoint unless that update is saved already. Raises TrainingFailure if the directory is lost."""
        self.directory.check_ours()
        step, mark = state.counters["num_updates"], _mark(state.counters, state.frozen)
        if mark == self._mark and self.durable_update == step:
            if self.hosts is not None:  # another host may have acted since, and waits until all have this checkpoint
                self.checkpointer.confirm(step)
            return
        self._mark = mark
        counters = self._saved_counters(state)
        rings = state.rings if self._includes_replay else None
        self.checkpointer.save(step, checkpoint.by_player(state.parts), counters, rings, state.frozen)

    def save_state(self, state: dispatchers.CheckpointState) -> None:
        """Saves the small state before a long save of the replay, because an interrupted process may be killed."""
        self.directory.check_ours()
        frames = [] if state.rings is None else [one.observation for one in ring_store.each(state.rings)]
        is_long = self._includes_replay and trees.num_bytes(frames) > SMALL_REPLAY_BYTES
        if is_long and state.counters["num_updates"] != self.durable_update:
            self._mark = None  # the replay is still to come
            counters = self._saved_counters(state)
            parts = checkpoint.by_player(state.parts)
            self.checkpointer.save_state(state.counters["num_updates"], parts, counters, state.frozen)

    def _saved_counters(self, state: dispatchers.CheckpointState) -> dict[str, Any]:
        """Returns the counters of a checkpoint, with the sizes of the files that a resume cuts back."""
        league = {} if self.history is None else {_LEAGUE_BYTES: self.history.size_bytes()}
        several = {} if self.hosts is None else {together.NUM_HOSTS: self.config.cluster.num_hosts}
        return {**state.counters, "metrics_bytes": self.log.size_bytes(), **league, **several}

    def freeze(self, snapshot: dispatchers.NewPlayer) -> bool:
        """Begins to save a frozen player for the next checkpoint; otherwise like `Checkpointer.freeze`."""
        self.directory.check_ours()
        name, version, env_steps = snapshot.name, snapshot.version, snapshot.env_steps
        is_taken = self.checkpointer.freeze(
            name, version, snapshot.snapshot.params, {"env_steps": env_steps}, snapshot.snapshot.scales
        )
        if is_taken and self.history is not None:
            reason = {"reason": snapshot.reason} if snapshot.reason else {}
            counts = {"version": version, "env_steps": env_steps}
            self.history.note(
                {"event": league_log.FREEZE, "player": name, "parent": snapshot.parent, **counts, **reason}
            )
        return is_taken

    def abandon(self) -> None:
        """Any thread: cancels a save that waits for the disk; the next save contains the same state."""
        if self.checkpointer.abandon_save():
            self._mark = None  # afterwards, because a cancelled save has set it

    def save_best(self, ended: evaluators.Ended) -> futures.Future[None]:
        """Begins to save the parameters of the best evaluation so far, and returns as `Checkpointer.save_best`."""
        self.directory.check_ours()
        update, by_player = ended.running.update, ended.running.params
        parts = checkpoint.by_player({name: {saved_files.PARAMS: params} for name, params in by_player.items()})
        counters = {"update": update, "env_steps": ended.running.env_steps, **ended.result.to_json()}
        return self.checkpointer.save_best(update, parts, counters)

    def check(self) -> None:
        """Raises CheckpointError if the last state could not be saved."""
        if self._has_failed:
            raise errors.CheckpointError(
                f"the last state could not be saved, see above; {newest_text(self.durable_update)}. Fix that, and run "
                "the same command again"
            )

    def close(self) -> None:
        """Waits for the checkpoint in progress; after a failed training nothing else waits for it."""
        if self.checkpointer.busy:
            self.report("waiting for the checkpoint in progress")
        try:
            self.checkpointer.close()
        except Exception as error:  # whatever ended it, because the run's own failure must not be hidden
            self.report(f"the checkpoint in progress was lost: {type(error).__name__}: {error}")

    def _durable(self, step: int) -> None:
        self.durable_update = step
        self._has_failed = False

    def _not_saved(self, text: str) -> None:
        self._has_failed = True
        self._mark = None
        self.report(text)


@contextlib.contextmanager
def _naming_changes(directory: run_dirs.RunDir, config: configs.Config) -> Iterator[None]:
    """Adds the settings that this resume changes to the error of a checkpoint that does not fit."""
    try:
        yield
    except errors.ResumeError as error:
        earlier = directory.earlier
        if earlier and (changes := run_dirs.differing(run_dirs.parse_saved(earlier).config, config)):
            changed = f"a setting that this resume changes may not fit the checkpoint ({'; '.join(changes)})"
            raise errors.ResumeError(f"{changed}: {error}") from None
        raise


def _budget(config: configs.Config, hosts: together.Together | None, num_steps: int) -> tuple[sections.RunConfig, int]:
    """Returns the budget, and the steps that it counts: of a queue's several hosts all, otherwise this host's."""
    if hosts is None or not hosts.max_env_steps:
        return config.run, num_steps
    if (total := sum(hosts.num_steps) + hosts.num_gone) < hosts.max_env_steps:
        return dataclasses.replace(config.run, max_env_steps=0), num_steps
    if config.agent.SAMPLES:
        return config.run, num_steps
    return dataclasses.replace(config.run, max_env_steps=hosts.max_env_steps), total


def check_same(
    agent: base.Agent,
    trains: Mapping[str, base.TrainState],
    restored: checkpoint.Restored | None,
    directory: run_dirs.RunDir,
) -> None:
    """Raises ResumeError if all hosts' states differ from the one that a host's own checkpoint was made with.

    trains: train states by player, as host 0 has restored them for all.
    """
    if restored is None or not restored.state_sha256:  # of a single host
        return
    parts = checkpoint.by_player({name: states.parts(agent, meshes.own(train)) for name, train in trains.items()})
    if checkpoint.digest(parts) != restored.state_sha256:
        raise errors.ResumeError(
            f"checkpoint {restored.step} in {directory.path} has other parameters than host 0: the "
            "directories are of different runs. Give every host its earlier directory, or delete this host's: it then "
            "begins with an empty replay"
        )


def newest_text(update: int | None) -> str:
    """Describes the newest checkpoint by its update."""
    return "there is no checkpoint" if update is None else f"the newest checkpoint is of update {update}"


@contextlib.contextmanager
def reading_counters(step: int) -> Iterator[None]:
    """Raises CheckpointError for a checkpoint whose counters have another form."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise errors.CheckpointError(
            f"the counters of checkpoint {step} do not fit this run ({error!r}); resume with the settings and version "
            "that saved it, move it elsewhere to resume from an earlier one, or give another --run_dir"
        ) from error


def best_return_of(checkpoints: pathlib.Path, counters: Mapping[str, Any]) -> float | None:
    """Returns the mean return that a resumed run must exceed for new best parameters, or None.

    After a crash, the saved best may be newer and better than the checkpoint's counters know. It is worse if the run
    ended before a better one could be written.
    """
    known: float | None = counters["best_return"]
    try:
        _, best, _ = saved_files.find(checkpoints, "best", "params")
    except errors.CheckpointError:  # none, or a damaged one, which the next better one replaces
        return known
    saved, tasks = best.counters.get("mean_return"), best.counters.get("task_returns", {})
    if saved is None or tasks.keys() == episodes.DMLAB_SCORES.keys():  # their score is another number
        return known
    return float(saved)


def _mark(counters: Mapping[str, Any], frozen: Collection[str] = ()) -> tuple[object, ...]:
    """Returns values that change whenever something worth saving changes."""
    evaluated = counters["last_evaluation"] or {"update": 0}
    counts = counters["num_updates"], counters["num_acts"], counters["evaluation_index"], evaluated["update"]
    return *counts, counters["num_reanalyses"], int(counters[phase.IN_LAST]), *sorted(frozen)
