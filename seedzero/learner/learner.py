"""The learner host, wired: server, workers, device loop, checkpoints, metrics, and what the user sees.

`train` is the main job. The order at start: lock the run directory, open the server, start local workers, build
the networks from the first worker's spec, resume, compile, go. The main thread then only keeps time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from seedzero.agents import base
from seedzero.agents import table as agents
from seedzero.bucket import bucket, mirror
from seedzero.checkpoints import checkpoint, run_dir, spec_file, trees
from seedzero.checkpoints import files as checkpoint_files
from seedzero.config import combinations
from seedzero.config import config as config_lib
from seedzero.core import errors, types
from seedzero.device import batch as batch_lib
from seedzero.device import compilation_cache, host_frames, programs, steps
from seedzero.evaluation import evaluation
from seedzero.learner import capacity, device_loop, roster
from seedzero.learner import inbox as inbox_lib
from seedzero.monitoring import console, exporter, metrics, view
from seedzero.processes import signals, supervisor
from seedzero.replay import rings as rings_lib
from seedzero.transport import address as addresses
from seedzero.transport import messages, security, server

_log = logging.getLogger(__name__)

_TICK_SECONDS = 0.5
_MAX_SOCKET_PATH = 100
"""Unix socket paths are limited to about 108 bytes."""
_STOP_WORKERS_SECONDS = 5.0
SMALL_REPLAY_BYTES = 64 * 2**20
"""Observations of this size are written as quickly as all the rest of a checkpoint."""


def train(
    config: config_lib.Config,
    path: pathlib.Path | bucket.Url,
    resume_command: str,
    *,
    preset: str,
    given: Mapping[str, str],
) -> int:
    """Trains until a budget is spent, a return is reached or the user stops it, and returns the exit code.

    Args:
      config: with everything resolved that depends on the machine.
      path: run directory, or where in a bucket it is; made if missing, resumed if it holds a run.
      resume_command: shown where the run stops before it is finished.
      preset: name of the preset.
      given: what the user set, by SECTION.KEY.

    Raises:
      UsageError: the configuration, directory, address or memory does not do.
      BucketError: the bucket cannot be used.
      TrainingFailure: training cannot go on.
    """
    compilation_cache.enable()
    logging.getLogger("absl").setLevel(logging.CRITICAL)  # Orbax's tracebacks, beside our own sentences
    with contextlib.ExitStack() as opened:
        screen = console.Console(config.metrics.every_seconds)
        opened.callback(screen.close)
        mirrored = None
        if isinstance(path, bucket.Url):
            mirrored = opened.enter_context(mirror.Mirror(path, config.bucket, config.checkpoint, say=screen.message))
            with bucket.naming(mirrored.path, path):
                directory = run_dir.open_run_dir(mirrored.path, config, preset=preset, given=given, fill=mirrored.fill)
        else:
            directory = run_dir.open_run_dir(path, config, preset=preset, given=given)
        opened.enter_context(directory)
        combinations.check(directory.config)  # with what the directory fixes, its number of slots above all
        for note in directory.notes:
            screen.message(note)
        return _Learner(directory.config, directory, screen, resume_command, mirrored).run()


class _Learner:
    """One run of the learner. Built and driven by the main thread; the server's thread calls the `Handler` part."""

    def __init__(
        self,
        config: config_lib.Config,
        directory: run_dir.RunDir,
        screen: console.Console,
        resume_command: str,
        mirrored: mirror.Mirror | None,
    ) -> None:
        self._config = config
        self._directory = directory
        self._screen = screen
        self._resume_command = resume_command
        self._mirrored = mirrored
        self._clock = time.monotonic
        self._started = self._clock()
        self._mesh = steps.make_mesh(config.training.num_devices)
        num_shards = self._mesh.devices.size
        self._layout, self._sizes = batch_lib.plan(config, num_shards)
        self._roster = roster.Roster(
            config,
            num_train=self._layout.num_train,
            num_evaluate=self._layout.num_evaluate,
            num_shards=num_shards,
            max_group=self._sizes[-1] * num_shards,
        )
        self._inbox = inbox_lib.Inbox()
        self._gathered = metrics.Aggregator()
        self._view = view.View(config, directory, screen, self._roster.sizes, self._gathered, self._clock)
        self._checkpointer = checkpoint.Checkpointer(
            directory.checkpoints,
            config.checkpoint,
            on_durable=self._durable,
            on_error=self._not_saved,
            uploader=mirrored,
        )
        self._save_failed = False
        self._saved_mark: tuple[int, ...] | None = None
        self._wake = threading.Event()
        self._stop_reason: str | None = None
        self._interrupted = False
        self._failure: errors.TrainingFailure | None = None
        self._loop_failure: errors.Error | None = None
        self._spec = self._view.spec = spec_file.read(directory.path) if directory.resumed else None
        self._loop: device_loop.DeviceLoop | None = None
        self._local = _local_address(directory.path, config.transport.listen)
        listen = config.transport.listen or self._local
        self._server = server.Server(
            self,
            dataclasses.replace(config.transport, listen=listen),
            secured=security.for_server(config.transport.token_file, config.tls),
            local="" if listen == self._local else self._local,
            clock=self._clock,
        )
        self._workers = self._make_supervisor()

    # ------------------------------------------------------------------------------------ the run

    def run(self) -> int:
        """Runs to the end and returns the exit code."""
        finished = self._finished_before()
        if finished:
            self._screen.message(f"this run is finished: {finished}; raise its budget to go on")
            self._view.tell_finished(finished)
            return 0
        stop_signals = signals.StopSignals(self._interrupt, say=self._screen.message, cleanup=self._leave_at_once)
        with stop_signals, self._metrics_served():
            if self._mirrored is not None:
                self._mirrored.begin(lambda reason: self._fail(errors.TrainingFailure(reason)))
            if self._spec is not None:
                self._build(self._spec)  # a resumed run: its state is back before anyone joins
            address = self._server.start()
            finished_reason = ""
            try:
                self._tell_who_may_join()
                self._directory.write_learner(address, time.time(), local=self._local)
                print(f"seedzero learner listening on {address}", flush=True)
                self._address = address
                self._workers.start()
                finished_reason = self._train()
            finally:
                self._workers.finish()
                self._server.stop(finished=bool(finished_reason), reason=finished_reason or "the learner stops")
                self._workers.stop(_STOP_WORKERS_SECONDS)
                self._view.finished = finished_reason or None
                self._view.write_status(alive=False)
                if self._mirrored is not None:
                    self._mirrored.finish()  # here, where a second Ctrl-C still leaves at once
        if finished_reason:
            self._screen.message(f"finished: {finished_reason}")
        else:
            self._screen.message(f"stopped; to resume: {self._resume_command}")
        return 0

    @contextlib.contextmanager
    def _metrics_served(self) -> Iterator[None]:
        """While entered, Prometheus is answered, if that was asked for."""
        if self._config.metrics.port < 0:
            yield
            return
        served = exporter.Exporter(self._config.metrics.host, self._config.metrics.port, self._view.seen)
        self._screen.message(f"metrics for Prometheus at {served.start()}")
        try:
            yield
        finally:
            served.stop()

    def _tell_who_may_join(self) -> None:
        transport = self._config.transport
        if warning := security.exposure(transport.token_file):
            self._screen.message(warning)
        if not transport.listen or combinations.is_of_this_machine(transport.listen):
            return
        if not transport.token_file:
            self._screen.message(f"--insecure: whoever reaches {transport.listen} may join")
        elif not self._config.tls.cert_file:
            self._screen.message(
                f"the token comes in plain text to {transport.listen}: fine in a private network; elsewhere give "
                "--tls.cert_file and --tls.key_file"
            )

    def _build(self, spec: types.EnvSpec) -> None:
        """Makes networks and replay for environments of this spec, begins to compile, and resumes."""
        agent = agents.make(self._config, spec, jax.default_backend())
        replay = self._config.replay
        slot_length = rings_lib.slot_length(replay.capacity, replay.num_slots, agent.stack + steps.RING_MARGIN)
        train = steps.abstract_train(agent, self._mesh)
        actor = steps.abstract_actor(agent, spec, self._layout, slot_length, self._mesh)
        frames = None
        if self._place_replay(train, actor):
            host_frames.check_length(slot_length, agent.stack, ahead=not self._config.run.deterministic)
            frames = host_frames.HostFrames(spec, self._layout, slot_length, steps.sharded(self._mesh))
            actor = actor._replace(rings=actor.rings._replace(observation=None))
        compiled = self._compile(agent, spec, train, actor, frames)
        restored = self._restore(train, compiled.whole(actor.rings))
        if restored is not None:
            train = base.TrainState(**restored.state)
        else:
            train = steps.init_train(agent, self._config.run.seed, self._mesh)
        if restored is not None and restored.rings is not None:
            rings = restored.rings
            if frames is not None:
                frames.resume(np.asarray(rings.cursor))
                rings = rings._replace(observation=None)
            actor = steps.ActorState(steps.init_memory(agent, self._layout, self._mesh), rings)
        else:
            actor = steps.init_actor(agent, spec, self._layout, slot_length, self._mesh, holds_frames=frames is None)
        self._loop = self._make_loop(spec, compiled, train, actor)
        self._view.look = self._loop.look
        if restored is not None:
            self._loop.restore(restored.host, has_replay=restored.rings is not None)

    def _train(self) -> str:
        """Returns why the run is finished, or "" where the user stopped it."""
        if not self._wait_for_spec():
            return ""
        if self._loop is None:
            assert self._spec is not None
            self._build(self._spec)
            spec_file.write(self._directory.path, self._spec)
        assert self._loop is not None
        if self._interrupted:  # while it was built: there was nothing yet that `_interrupt` could have stopped
            return ""
        thread = threading.Thread(target=self._run_loop, name="device-loop")
        thread.start()
        try:
            self._keep_time(thread)
        finally:
            self._loop.stop("stopped")
            thread.join()
            self._loop.close()
        return self._finish()

    def _run_loop(self) -> None:
        assert self._loop is not None
        try:
            self._stop_reason = self._loop.run()
        except errors.Error as error:
            self._loop_failure = error
        except Exception as error:  # whatever ends the device loop ends the run, with its reason
            _log.error("the device loop failed", exc_info=error)
            self._loop_failure = errors.TrainingFailure(
                f"the device loop failed ({type(error).__name__}: {error}); run the same command again to resume from "
                f"the last checkpoint"
            )
        self._wake.set()

    def _keep_time(self, thread: threading.Thread) -> None:
        """Shows progress, writes metrics and asks for checkpoints until the device loop ends."""
        assert self._loop is not None
        next_row = self._clock() + self._config.metrics.every_seconds
        next_save = self._clock() + (self._config.checkpoint.every_seconds or float("inf"))
        deterministic = self._config.run.deterministic
        told_late = False
        while thread.is_alive():
            self._wake.wait(_TICK_SECONDS)
            self._wake.clear()
            now = self._clock()
            self._view.observe(now)
            if self._failure is not None:
                self._loop.stop("failed")
                return
            if not deterministic and now >= next_row:
                next_row = now + self._config.metrics.every_seconds
                self._view.write_row({})
                self._view.write_status(alive=True)
            if not deterministic and now >= next_save:
                if not self._checkpointer.busy:
                    next_save, told_late = now + self._config.checkpoint.every_seconds, False
                    self._loop.request(self._save)
                elif not told_late:
                    told_late = True
                    self._tell_late()
            if self._seconds_left() <= 0:
                self._loop.stop(f"--max_seconds={self._config.run.max_seconds:g} passed")
                thread.join()

    def _tell_late(self) -> None:
        if self._mirrored is not None:
            self._screen.message(
                f"a checkpoint is due, but the last one is still on its way to {self._mirrored.url}: it waits; raise "
                f"--checkpoint.every_seconds={self._config.checkpoint.every_seconds:g} if that goes on"
            )

    def _finish(self) -> str:
        """Saves the last state; returns why the run is finished, "" if it was interrupted."""
        assert self._loop is not None
        if self._loop_failure is not None:
            raise self._loop_failure  # the device's state is not to be trusted, so nothing is saved
        if self._mirrored is not None:
            self._mirrored.narrate()
        interrupted = self._stop_reason == _INTERRUPTED
        if not self._config.run.deterministic:
            self._view.write_row({})
        if not (interrupted and self._config.run.deterministic):
            if interrupted:
                self._save_state()
            self._checkpointer.wait()
            self._save()
        elif self._view.durable_update is not None:
            self._screen.message(f"deterministic: a resume goes on from update {self._view.durable_update}")
        self._checkpointer.wait()
        if self._failure is not None:
            raise self._failure
        if self._save_failed:
            raise errors.CheckpointError(
                f"the last state could not be saved, see above; the newest checkpoint is of update "
                f"{self._view.durable_update}: make room, then run the same command again"
            )
        return "" if interrupted else (self._stop_reason or "")

    # ------------------------------------------------------------------------------------ start

    def _make_supervisor(self) -> supervisor.Supervisor:
        num_train = self._config.worker.num
        evaluates = self._layout.num_evaluate > 0 and self._config.env.id != "remote"

        def command(index: int) -> Sequence[str]:
            role, name = ("train", f"local-{index}") if index < num_train else ("evaluate", "evaluator")
            arguments = [f"--server={self._local}", "--supervised", f"--worker_id={name}", f"--role={role}"]
            transport = self._config.transport
            arguments += [
                f"--keepalive_seconds={transport.keepalive_seconds}",
                f"--ping_timeout_seconds={transport.ping_timeout_seconds}",
                f"--max_backoff_seconds={transport.max_backoff_seconds}",
            ]
            if self._config.worker.threads:
                arguments.append(f"--threads={self._config.worker.threads}")
            return [sys.executable, "-m", "seedzero.worker", *arguments]

        return supervisor.Supervisor(
            command,
            num_train + evaluates,
            on_failure=lambda text: self._fail(errors.TrainingFailure(text)),
            log_dir=self._directory.logs,
            report=self._screen.message,
            clock=self._clock,
        )

    def _finished_before(self) -> str:
        """Returns why a resumed run has nothing left to do, or ""."""
        found = list(checkpoint_files.manifests(self._directory.checkpoints)) if self._directory.resumed else []
        if not found:
            return ""
        host = max(found, key=lambda manifest: manifest.step).host
        budget = self._config.run
        evaluated = host["last_evaluation"]
        if budget.max_updates and host["num_updates"] >= budget.max_updates:
            return f"{host['num_updates']} updates of --max_updates={budget.max_updates}"
        if budget.max_env_steps and host["ledger"]["stored"] >= budget.max_env_steps:
            return f"{host['ledger']['stored']} steps of --max_env_steps={budget.max_env_steps}"
        if evaluated is not None and evaluated["mean_return"] >= budget.stop_at_return:
            return f"evaluation returned {evaluated['mean_return']:g}, --stop_at_return={budget.stop_at_return:g}"
        return ""

    def _wait_for_spec(self) -> bool:
        """Waits for the first worker; returns whether training can begin."""
        if self._spec is None and self._config.worker.num == 0:
            self._screen.message("waiting for a worker: seedzero worker --server=" + self._address)
        while self._spec is None and not self._interrupted and self._failure is None and self._seconds_left() > 0:
            self._wake.wait(min(self._seconds_left(), threading.TIMEOUT_MAX))
            self._wake.clear()
        if self._failure is not None:
            raise self._failure
        if self._spec is None:
            return False
        return not self._interrupted

    def _tell_whether_evaluated(self) -> None:
        """A remote environment is evaluated by a worker of its own, which may never come."""
        remote = self._config.env.id == combinations.REMOTE
        if remote and self._layout.num_evaluate and not self._roster.started(types.Role.EVALUATE):
            self._screen.message("evaluation is off until another worker joins that accepts it")

    def _seconds_left(self) -> float:
        """Returns what is left of --max_seconds; infinity without it."""
        max_seconds = self._config.run.max_seconds
        return self._started + max_seconds - self._clock() if max_seconds else float("inf")

    def _place_replay(self, train: base.TrainState, actor: steps.ActorState) -> bool:
        """Decides whether checkpoints include the replay, and returns whether the host keeps its frames.

        Raises:
          CapacityError: it does not fit.
        """
        self._includes_replay = self._config.run.deterministic or checkpoint.saves_replay(
            self._config.checkpoint, trees.num_bytes(actor.rings)
        )
        on_host, text = capacity.place(
            self._config.replay.placement,
            checkpoint.needed_bytes(train._asdict(), actor.rings, is_saved=self._includes_replay),
            self._mesh.devices.flat[0],
            num_devices=self._layout.num_shards,
            capacity=self._config.replay.capacity,
        )
        self._screen.message(text)
        return on_host

    def _compile(
        self,
        agent: base.Agent,
        spec: types.EnvSpec,
        train: base.TrainState,
        actor: steps.ActorState,
        frames: host_frames.HostFrames | None,
    ) -> programs.Programs:
        def ready() -> None:
            with self._inbox.changed:
                self._inbox.changed.notify_all()

        return programs.Programs(
            agent,
            spec,
            self._layout,
            self._mesh,
            self._sizes,
            train,
            actor,
            seed=self._config.run.seed,
            batch_size=self._config.replay.batch_size,
            capacity=self._config.replay.capacity,
            reanalyse=self._config.reanalyse,
            on_ready=ready,
            frames=frames,
            ahead=not self._config.run.deterministic,
        )

    def _make_loop(
        self, spec: types.EnvSpec, compiled: programs.Programs, train: base.TrainState, actor: steps.ActorState
    ) -> device_loop.DeviceLoop:
        return device_loop.DeviceLoop(
            self._config,
            spec,
            self._layout,
            compiled,
            train,
            actor,
            self._inbox,
            self._roster,
            device_loop.Replies(self._server.reply, self._server.restart),
            device_loop.Hooks(self._evaluated, self._save, lambda: self._view.write_row({})),
            self._gathered,
            self._clock,
        )

    def _restore(self, train: base.TrainState, rings: rings_lib.Rings) -> checkpoint.Restored | None:
        """Returns the newest checkpoint that verifies, and says which; None for a new run."""
        restored = self._checkpointer.restore(train._asdict(), rings if self._includes_replay else None)
        if restored is None:
            self._view.truncate_rows(0, -1)
            return None
        for text in restored.skipped:
            self._screen.message(text)
        self._view.durable_update = restored.step
        self._saved_mark = _mark(restored.host)
        self._view.truncate_rows(restored.host["metrics_bytes"], restored.step)
        replay = "" if restored.rings is not None else "; its replay was not saved and fills anew"
        self._screen.message(f"resumed at update {restored.step}{replay}")
        return restored

    # ------------------------------------------------------------------------------------ on the loop's thread

    def _save(self) -> None:
        """Begins a checkpoint of the loop's state, unless that update is saved already."""
        assert self._loop is not None
        train, rings, host = self._loop.state()
        step = host["num_updates"]
        mark = _mark(host)
        if mark == self._saved_mark and self._view.durable_update == step:
            return
        self._saved_mark = mark
        host["metrics_bytes"] = self._view.num_row_bytes()
        self._checkpointer.save(step, train._asdict(), host, rings if self._includes_replay else None)

    def _save_state(self) -> None:
        """Saves what is small first: who interrupts may kill soon, as clouds do, 30 s after their notice."""
        assert self._loop is not None
        train, rings, host = self._loop.state()
        is_long = self._includes_replay and trees.num_bytes(rings.observation) > SMALL_REPLAY_BYTES
        if is_long and host["num_updates"] != self._view.durable_update:
            host["metrics_bytes"] = self._view.num_row_bytes()
            self._saved_mark = None  # the whole is still to come
            self._checkpointer.save_state(host["num_updates"], train._asdict(), host)

    def _evaluated(self, result: evaluation.Result, update: int, params: base.Params, is_best: bool) -> None:
        values = {f"evaluation_{name}": value for name, value in dataclasses.asdict(result).items()}
        normalized = evaluation.human_normalized(self._config.env.id, result.mean_return)
        if normalized is not None:
            values["evaluation_human_normalized"] = normalized
        self._view.write_row({"update": update, "kind": "evaluation", **values}, gathered=False)
        best = "; the best so far" if is_best else ""
        score = "" if normalized is None else f", human-normalized {normalized:.3f}"
        self._screen.message(
            f"evaluation at update {update}: return {result.mean_return:.4g} +- {result.std_return:.3g} over "
            f"{result.episodes} episodes{score}{best}"
        )
        if is_best:
            self._checkpointer.save_best(update, params, {"update": update, **dataclasses.asdict(result)})

    # ------------------------------------------------------------------------------------ from other threads

    def _durable(self, step: int) -> None:
        self._view.durable_update = step
        self._save_failed = False

    def _not_saved(self, text: str) -> None:
        self._save_failed = True
        self._saved_mark = None
        self._screen.message(text)

    def _interrupt(self) -> None:
        self._interrupted = True
        self._workers.finish()  # they may have been told to stop too, as all processes of a machine that is taken away
        if self._loop is not None:
            self._loop.stop(_INTERRUPTED)
            if not self._config.run.deterministic:  # where the last state is not saved, and what is on its way counts
                self._checkpointer.hurry()
        self._wake.set()

    def _fail(self, error: errors.TrainingFailure) -> None:
        self._failure = error
        self._wake.set()

    def _leave_at_once(self) -> None:
        self._workers.kill()
        self._screen.abandon()

    # ------------------------------------------------------------------------------------ the server's handler

    def assign(self, hello: messages.Hello) -> types.Assignment:
        """Handler: tells a joining worker what to run."""
        return self._roster.assign(hello)

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        """Handler: a worker's environments are there; the first ones decide what the networks are built for."""
        if self._spec is None:
            if self._config.env.id == combinations.REMOTE:
                agents.make(self._config, spec, jax.default_backend())  # refuses what no network can be built for
            self._spec = self._view.spec = spec
        spec_file.check_equal(spec, self._spec)
        run = self._roster.begin(session_id)
        with self._inbox.changed:
            self._inbox.changed.notify_all()
        self._wake.set()
        if run.role is types.Role.TRAIN and not self._config.run.deterministic:
            self._screen.message(f"worker {run.worker_id} joined with {len(run.all_slots)} environments")
            self._tell_whether_evaluated()

    def step(self, request: messages.StepRequest) -> None:
        """Handler: observations arrived."""
        with self._inbox.changed:  # so that the loop cannot end the run in between
            run = self._roster.get(request.session_id)
            if run is None:
                return  # the loop ended it a moment ago; the worker is being told
            self._inbox.put(batch_lib.Message(request, run.slots[request.group], self._clock()))

    def end(self, session_id: str, reason: str) -> None:
        """Handler: a worker's run is over."""
        run = self._roster.remove(session_id)
        if run is None:
            return
        if run.started:
            self._inbox.end_session(session_id, run.role, run.all_slots)
        self._screen.message(f"worker {run.worker_id} left: {reason}")

    def status(self) -> Mapping[str, object]:
        """Handler: what `seedzero status` shows."""
        return self._view.status()


def _local_address(directory: pathlib.Path, listen: str) -> str:
    """Returns the unix socket of local workers and of `seedzero status --run_dir`.

    It needs neither token nor TLS, since only this user can open its file; so the token is nowhere but in the learner.
    """
    if listen.startswith(addresses.UNIX_PREFIX):
        return listen
    path = directory.absolute() / "learner.sock"
    if len(str(path).encode()) > _MAX_SOCKET_PATH:
        path = pathlib.Path(tempfile.mkdtemp(prefix="seedzero-")) / "learner.sock"
    return f"unix:{path}"


def _mark(host: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the counters that have grown wherever there is something new to save."""
    counts = host["num_updates"], host["num_acts"], host["evaluation_index"]
    return *counts, host.get("num_reanalyses", 0)


_INTERRUPTED = "interrupted"
