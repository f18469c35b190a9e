"""The learner host: server, workers, device loop, checkpoints, metrics and the user's screen, wired.

`train` is the main job: lock the run directory, open the server, start local workers, build the networks for their
environments meanwhile, resume, compile, go. The main thread then keeps time until the run is over, saves and stops.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import secrets
import shlex
import socket
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from typing import NamedTuple

from seedzero.bucket import bucket, remote
from seedzero.bucket import mirror as mirrors
from seedzero.checkpoints import run_dir as run_dirs
from seedzero.checkpoints import spec_file
from seedzero.config import combinations, worker_options
from seedzero.config import config as configs
from seedzero.core import env_ids, errors, exit_codes, printable, types, user_code
from seedzero.device import batch as batches
from seedzero.device import compilation_cache
from seedzero.device import mesh as meshes
from seedzero.learner import build, deadline, device_loop, result
from seedzero.learner import dispatcher as dispatchers
from seedzero.learner import ending as endings
from seedzero.learner import evaluator as evaluators
from seedzero.learner import reception as receptions
from seedzero.learner import saves as saving
from seedzero.monitoring import background, console, exporter, forecast, metrics
from seedzero.monitoring import view as views
from seedzero.processes import program as programs
from seedzero.processes import signals, supervisor
from seedzero.transport import address as addresses
from seedzero.transport import descriptors, security
from seedzero.transport import server as servers

_TICK_SECONDS = 0.5
_MAX_SOCKET_PATH = 100
"""Unix socket paths are limited to about 108 bytes."""
_STOP_WORKERS_SECONDS = 5.0
_INTERRUPTED = "interrupted"


def train(
    config: configs.Config,
    path: pathlib.Path | bucket.Url,
    resume_command: str,
    *,
    preset: str,
    given: Mapping[str, str],
    spec: types.EnvSpec | None = None,
    handles_signals: bool = True,
    leaves_when_late: bool = False,
) -> result.Result:
    """Trains until a budget is spent, a return is reached or the user stops it, and returns how it ended.

    Args:
      config: with everything resolved that depends on the machine.
      path: run directory, or its place in a bucket; made if missing, resumed if it holds a run.
      resume_command: shown where the run stops before it is finished.
      given: the user's settings, by SECTION.KEY.
      spec: of the environments, if this machine knows it: a new run's networks are built while its workers start.
      handles_signals: Ctrl-C, SIGTERM and SIGHUP save and end the training; only the main thread can.
      leaves_when_late: ends the process, with `exit_codes.FAILED` and the newest checkpoint, where --max_seconds has
        passed and a call on the device does not return (`deadline`); false: training ends when it returns.

    Raises:
      UsageError: an unsuitable configuration, directory, address or memory.
      BucketError: the bucket cannot be used.
      TrainingFailure: training cannot go on.
    """
    with contextlib.ExitStack() as opened:
        screen = background.Screen(console.Console(config.metrics.every_seconds))
        opened.callback(screen.close)
        mirrored = None
        if isinstance(path, bucket.Url):
            mirrored = mirrors.Mirror(path, config.bucket, config.checkpoint, report=screen.message)
            opened.callback(mirrored.finish)
            compilation_cache.enable(mirrored.path / remote.PROGRAMS)
            with bucket.naming(mirrored.path, path):
                directory = run_dirs.open_run_dir(
                    mirrored.path, config, preset=preset, given=given, fill=mirrored.fill
                )
        else:
            compilation_cache.enable()
            directory = run_dirs.open_run_dir(path, config, preset=preset, given=given)
        opened.enter_context(directory)
        made = None
        try:
            combinations.check(directory.config)  # with the values that the directory fixes, such as its slots
            for note in directory.notes:
                screen.message(note)
            local = opened.enter_context(local_address(directory.path, directory.config.transport.listen))
            made = _Learner(directory, screen, mirrored, local, spec)
            ended = made.run(handles_signals=handles_signals, leaves_when_late=leaves_when_late)
        except errors.UsageError:
            if (made is None or not made.listens) and (mirrored is None or directory.resumed):
                directory.abandon()
            raise
        if ended.is_new:
            if made.num_updates == 0:
                screen.message(f"nothing to score: {result.without_updates(directory.config)}; train longer")
            elif made.has_checkpoint:
                program, at = resume_command.partition(" train ")[0], f"--run_dir={shlex.quote(str(path))}"
                at += " --trust_run_dir" if user_code.named(configs.flatten(config)) else ""
                _show_next(screen, program, at, is_remote=config.env.id == env_ids.REMOTE)
            if ended.finished:
                screen.message(f"finished: {ended.finished}")
            else:
                again = "resume" if made.has_checkpoint else "start again"
                screen.message(f"stopped; to {again}:", resume_command)
        return result.read(directory.checkpoints, str(path), finished=ended.finished)


class _Ended(NamedTuple):
    """finished: why the run is finished, "": it was stopped. is_new: false: it had been finished before."""

    finished: str
    is_new: bool = True


def _show_next(screen: background.Screen, program: str, at: str, *, is_remote: bool) -> None:
    """Shows the commands that score and show a run; is_remote: its environments come with workers."""
    screen.message("score it:", f"{program} evaluate {at}{' --listen=127.0.0.1:0' if is_remote else ''}")
    if not is_remote:
        screen.message("watch it:", f"{program} play {at} --video=play.mp4")


class _Learner:
    """One call of `train`, driven by the main thread."""

    # ------------------------------------------------------------------------------------ start

    def __init__(
        self,
        directory: run_dirs.RunDir,
        screen: background.Screen,
        mirrored: mirrors.Mirror | None,
        local: str,
        spec: types.EnvSpec | None,
    ) -> None:
        config = directory.config
        self._config = config
        self._directory = directory
        self._screen = screen
        self._mirrored = mirrored
        self._ending = endings.Ending()
        self._key = secrets.token_hex()
        self._gathered = metrics.Aggregator()
        self._view = views.View(
            config, directory, screen, lambda: self._reception.roster.sizes(), self._gathered, time.monotonic
        )
        acting, _ = meshes.split(meshes.make(config.training.num_devices), config.training.acting_devices)
        if acting.devices.flat[0].platform == "cpu":
            self._view.forecast = forecast.Forecast(config)
        layout, sizes = batches.plan(config, acting.devices.size)
        self._reception = receptions.Reception(
            config,
            layout,
            sizes[-1] * layout.num_shards,
            self._view,
            screen.message,
            self._ending.notify,
            lambda name: self._workers.restart(name),
            self._key,
        )
        self._saves = saving.Saves(config, directory, self._view, screen.message, mirrored)
        self._local = local
        self._expected = spec if config.worker.num else None  # workers elsewhere may have other versions of it
        self._server = self._make_server()
        self._view.progress.silent = self._server.silent
        self._workers = self._make_workers(has_evaluator=layout.num_evaluate > 0)
        self._loop: device_loop.DeviceLoop | None = None
        self._is_building = False
        self._is_finishing = False  # the loop has ended, and the last state is being saved
        self.listens = False
        """Whether it got its addresses, so that something may come of it."""

    def _make_server(self) -> servers.Server:
        transport = self._config.transport
        is_local = not transport.listen or transport.listen.startswith(addresses.UNIX_PREFIX)
        return servers.Server(
            self._reception,
            dataclasses.replace(transport, listen=self._local if is_local else transport.listen),
            secured=security.for_server(transport.token_file, self._config.tls),
            local="" if is_local else self._local,
            clock=time.monotonic,
        )

    def _make_workers(self, *, has_evaluator: bool) -> supervisor.Supervisor:
        num_train = self._config.worker.num
        evaluates = has_evaluator and self._config.env.id != env_ids.REMOTE
        options = worker_options.of_learner(self._config)

        def name(index: int) -> str:
            return f"local-{index}" if index < num_train else "evaluator"

        def command(index: int) -> Sequence[str]:
            role = "train" if index < num_train else "evaluate"
            return worker_options.command(options, server=self._local, worker_id=name(index), role=role)

        environment = {**programs.WORKER_ENVIRONMENT, worker_options.KEY: self._key}
        return supervisor.Supervisor(
            command,
            num_train + evaluates,
            on_failure=self._ending.fail,
            log_dir=self._directory.logs,
            report=self._screen.message,
            name=name,
            system=programs.System(functools.partial(programs.launch, environment=environment)),
        )

    # ------------------------------------------------------------------------------------ run

    def run(self, *, handles_signals: bool, leaves_when_late: bool) -> _Ended:
        """Trains; returns how that ended."""
        finished = self._saves.finished_before()
        if finished:
            self._screen.message(f"this run is finished: {finished}; raise that to go on")
            self._view.write_finished(finished)
            return _Ended(finished, is_new=False)
        stop_signals = signals.StopSignals(
            self._interrupt, say=self._screen.message, cleanup=lambda: self._leave_at_once("left at once")
        )
        late = deadline.Deadline(self._seconds_left, self._pulse, self._leave_late)
        self._screen.look = self._view.shown
        with (
            stop_signals if handles_signals else contextlib.nullcontext(),
            late.watched() if leaves_when_late else contextlib.nullcontext(),
            self._metrics_served() as url,
            self._view.sending(),
        ):
            if url:
                self._screen.message(f"metrics for Prometheus at {url}")
            if self._mirrored is not None:
                self._mirrored.begin(self._ending.fail)
            self._show_spec()
            address = self._listen()
            try:
                self._announce(address)
                self._workers.start()
                finished = self._train(address)
            finally:
                self._stop(finished)
        return _Ended(finished)

    def _show_spec(self) -> None:
        """Tells the reception what the environments are, if that is known; then a resumed run is built at once."""
        resumed, path = self._directory.resumed, self._directory.path
        saved = spec_file.read(path) if resumed else None
        spec = saved or self._expected
        if spec is None:
            return
        self._reception.show(spec)
        if resumed:
            if saved is None:
                spec_file.write(path, spec)
            self._build()  # its state is back before anyone joins

    def _listen(self) -> str:
        """Opens the server; returns its address."""
        try:
            address = self._server.start()
        except errors.Error:
            if self._loop is not None:
                self._loop.close()
            raise
        self.listens = True
        return address

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint."""
        return self._view.durable_update is not None

    @property
    def num_updates(self) -> int:
        """Updates so far, resumes included."""
        return self._view.progress.snapshot().num_updates

    def _metrics_served(self) -> contextlib.AbstractContextManager[str]:
        """Answers Prometheus while it is entered, if that is configured."""
        host, port = self._config.metrics.host, self._config.metrics.port
        return contextlib.nullcontext("") if port < 0 else exporter.serving(host, port, self._view.scrape)

    def _announce(self, address: str) -> None:
        few_files = descriptors.allow(self._config.transport.max_workers)
        for text in [*security.warnings(self._config.transport, self._config.tls), *filter(None, [few_files])]:
            self._screen.message(text)
        self._directory.write_learner(address, time.time(), local=self._local)
        with contextlib.suppress(OSError):  # a full disk behind standard output, or a reader that has gone
            print(f"seedzero learner listening on {printable.escape(address)}", flush=True)

    def _build(self) -> None:
        """Builds networks and replay for the environments, begins to compile, and resumes."""
        reception = self._reception
        assert reception.spec is not None
        workers = dispatchers.Workers(reception.inbox, reception.roster, self._server.reply, self._server.restart)
        hooks = device_loop.Hooks(self._evaluated, self._save, lambda: self._view.write_row({}), self._screen.message)
        self._is_building = True
        try:
            self._loop = build.device_loop_for(
                self._config, reception.spec, workers, hooks, self._saves, self._gathered, self._screen.message
            )
        finally:
            self._is_building = False
        self._view.progress.read = self._loop.look

    def _prepare(self, address: str) -> None:
        """Builds a new run and waits for its first worker, or the other way round where only workers know the spec."""
        if self._reception.spec is not None:
            self._build()
        elif self._config.worker.num == 0:
            self._screen.message("waiting for a worker:", worker_options.invitation(self._config, address))
        while not (self._reception.has_begun or self._ending.is_interrupted) and self._seconds_left() > 0:
            self._ending.check()
            self._ending.wait(self._seconds_left())
        if self._ending.is_interrupted:
            return
        if not self._reception.has_begun:
            self._ending.check()
            raise self._lonely()
        if self._loop is None:
            self._build()
        assert self._reception.spec is not None
        spec_file.write(self._directory.path, self._reception.spec)

    def _lonely(self) -> errors.TrainingFailure:
        return errors.TrainingFailure(
            f"no worker joined within --max_seconds={self._config.run.max_seconds:g}, so nothing was learned: "
            "start workers earlier, or give it more time"
        )

    def _train(self, address: str) -> str:
        """Returns why the run is finished, or "" where it was stopped before; raises TrainingFailure."""
        if self._loop is None:
            self._prepare(address)
        if self._loop is None or self._ending.is_interrupted:  # by then `_interrupt` may have found no loop to stop
            return ""
        with device_loop.running(self._loop, self._ending.notify) as over:
            self._keep_time(self._loop, over)
        if self._seconds_left() <= 0 and not (self._reception.has_trained or self._directory.resumed):
            self._ending.check()
            raise self._lonely()  # only the process that evaluates was there
        # What failed has left a state on the device that is not to be trusted: then nothing is saved.
        return self._finish(self._loop, over.result())

    def _seconds_left(self) -> float:
        """Returns the rest of --max_seconds; infinity without it."""
        max_seconds = self._config.run.max_seconds
        return max_seconds - self._view.progress.seconds() if max_seconds else float("inf")

    def _keep_time(self, loop: device_loop.DeviceLoop, over: futures.Future[str]) -> None:
        """Shows progress, writes metrics and asks for checkpoints until the device loop ends."""
        config, now = self._config, time.monotonic()
        deterministic = config.run.deterministic  # there, updates are the time of rows and checkpoints
        next_row = now + config.metrics.every_seconds
        next_save = float("inf") if deterministic else now + (config.checkpoint.every_seconds or float("inf"))
        reported_late = False
        while not over.done():
            self._ending.wait(_TICK_SECONDS)
            now = time.monotonic()
            self._view.observe(now)
            if self._ending.failure is not None:
                return
            if now >= next_row:
                next_row = now + config.metrics.every_seconds
                self._directory.check_ours()
                if not deterministic:
                    self._view.write_row({})
                self._view.write_status(alive=True)
            if now >= next_save and not self._saves.checkpointer.busy:
                next_save, reported_late = now + config.checkpoint.every_seconds, False
                loop.request(self._save)
            elif now >= next_save and self._mirrored is not None and not reported_late:
                reported_late = True
                self._screen.message(
                    f"a checkpoint is due, but the last one is still on its way to {self._mirrored.url}: it waits; "
                    f"raise --checkpoint.every_seconds={config.checkpoint.every_seconds:g} if that goes on"
                )
            if self._seconds_left() <= 0:
                loop.end(f"--max_seconds={config.run.max_seconds:g} passed")

    # ------------------------------------------------------------------------------------ on the loop's thread

    def _save(self) -> None:
        assert self._loop is not None
        self._saves.save(self._loop.dispatcher.state())

    def _evaluated(self, ended: evaluators.Ended) -> None:
        result, update = ended.result, ended.running.update
        values = {f"evaluation_{name}": value for name, value in result.flat().items()}
        normalized = ended.human_normalized
        if normalized is not None:
            values["evaluation_human_normalized"] = normalized
        began = {"update": update, "env_steps": ended.running.env_steps}  # training may have gone on meanwhile
        self._view.write_row({**began, "kind": "evaluation", **values}, gathered=False)
        cut = f", {result.cut_off} of them cut off as too long" if result.cut_off else ""
        best = "; the best so far" if ended.is_record else ""
        if result.unfinished:
            best = (
                f"; cut, as {result.unfinished} more had not ended in time: give it more, or "
                "--evaluation.max_episode_steps=N to end them earlier"
            )
        score = "" if normalized is None else f", human-normalized {normalized:.3f}"
        self._screen.message(
            f"evaluation at update {update}: return {result.mean_return:.4g} +- {result.std_return:.3g} over "
            f"{result.episodes} episodes{cut}{score}{best}"
        )
        if ended.is_best:
            self._saves.save_best(ended)

    # ------------------------------------------------------------------------------------ stop

    def _interrupt(self) -> None:
        """Signal: asks for a stop."""
        self._workers.finish()  # all processes of a machine that is taken away may have been told to stop
        self._ending.interrupt()
        loop = self._loop  # another thread may set it to None
        if loop is not None:
            loop.stop(_INTERRUPTED)
            # In deterministic mode the last state is not saved, and a save on its way counts; so does the last one.
            if not (self._config.run.deterministic or self._is_finishing):
                self._saves.abandon()  # so that the loop ends at once

    def _leave_at_once(self, reason: str) -> None:
        """Any thread, before the process ends at once: cleans up what would outlive it, and says what is lost."""
        self._workers.kill()
        self._screen.abandon(f"{reason}; {self._lost()}")

    def _lost(self) -> str:
        """Returns what is lost where nothing more is saved."""
        loop, durable = self._loop, self._view.durable_update
        if loop is None:
            return "the run is as it was" if self._directory.resumed else "nothing was learned"
        num_updates = loop.look().num_updates
        saved = "there is no checkpoint" if durable is None else f"the newest checkpoint is of update {durable}"
        return f"{saved}; updates lost: {num_updates - (durable or 0)}"

    def _pulse(self) -> object | None:
        """Any thread: returns what `deadline` watches; saving, and waiting for environments, are no calls."""
        if self._is_building:
            return "building"
        loop = self._loop
        return None if loop is None or self._is_finishing else loop.pulse()

    def _leave_late(self) -> None:
        """Thread of `deadline`: ends the process, since a call does not return."""
        passed = f"--max_seconds={self._config.run.max_seconds:g} passed {deadline.GRACE_SECONDS:g} s ago"
        if self._is_building:
            what = "the networks are still being built and compiled, so give it more time"
        else:
            what = "a call on the device does not return, so neither an evaluation nor a checkpoint ends this run"
        self._leave_at_once(f"{passed}, and {what}")
        os._exit(exit_codes.FAILED)

    def _finish(self, loop: device_loop.DeviceLoop, reason: str) -> str:
        """Saves the last state; returns why the run is finished, "" if it was interrupted."""
        self._is_finishing = True
        self._view.progress.ending = "saving"
        if self._mirrored is not None:
            self._mirrored.uploads.reports_progress = True
        is_interrupted, deterministic = reason == _INTERRUPTED, self._config.run.deterministic
        if not deterministic:
            self._view.write_row({})
        # Deterministic runs are saved at fixed updates and at the end of a budget, or a resume would differ.
        if not (deterministic and (is_interrupted or self._ending.failure is not None)):
            if is_interrupted:
                self._saves.save_state(loop.dispatcher.state())
            self._saves.checkpointer.wait()
            self._save()
        elif self._view.durable_update is not None:
            self._screen.message(f"deterministic: a resume goes on from update {self._view.durable_update}")
        else:
            self._screen.message(
                f"deterministic: the first checkpoint comes at update {self._config.checkpoint.every_updates}, so "
                "nothing is saved, and the same command begins anew"
            )
        self._saves.checkpointer.wait()
        self._view.observe(time.monotonic(), last=True)
        self._ending.check()
        self._saves.check()
        return "" if is_interrupted else reason

    def _stop(self, finished: str) -> None:
        """Ends workers and server; finished: why the run is, "" where it is not."""
        self._view.progress.ending = "leaving"
        self._workers.finish()
        if self._loop is not None:
            self._loop.close()
        self._server.stop(finished=bool(finished), reason=finished or "the learner stops")
        self._workers.stop(_STOP_WORKERS_SECONDS)
        self._view.finished = finished or None
        self._end_saves()
        self._view.progress.ending = ""
        self._view.write_status(alive=False)
        if self._mirrored is not None:
            self._mirrored.finish()  # here, where a second Ctrl-C still leaves at once
        # Cycles of objects hold the loop, and it holds the device's memory, which the next run may want at once.
        last = self._view.progress.snapshot()
        self._view.progress.read = lambda: last
        self._loop = None

    def _end_saves(self) -> None:
        """Waits for the checkpoint in progress, which nobody else does where training failed."""
        if self._saves.checkpointer.busy:
            self._screen.message("waiting for the checkpoint in progress")
        try:
            self._saves.checkpointer.close()
        except Exception as error:  # whatever ended it: the run's own failure must not be hidden
            self._screen.message(f"the checkpoint in progress was lost: {type(error).__name__}: {error}")


@contextlib.contextmanager
def local_address(directory: pathlib.Path, listen: str) -> Iterator[str]:
    """Yields the unix socket of local workers and of `seedzero status --run_dir`.

    It needs neither token nor TLS, since only this user can open its file; so only the learner knows the token. It
    lies in the run directory, or where that path is too long or its disk has no sockets, in a folder that is deleted
    in the end.
    """
    path = directory.absolute() / "learner.sock"
    if listen.startswith(addresses.UNIX_PREFIX):
        yield f"{addresses.UNIX_PREFIX}{addresses.unix_path(listen)}"
    elif len(os.fsencode(path)) <= _MAX_SOCKET_PATH and _takes_sockets(path.with_name("probe.sock")):
        yield f"{addresses.UNIX_PREFIX}{path}"
    else:
        with tempfile.TemporaryDirectory(prefix="seedzero-") as folder:
            yield f"{addresses.UNIX_PREFIX}{folder}/{path.name}"


def _takes_sockets(path: pathlib.Path) -> bool:
    """Returns whether a unix socket can be made at a path; some disks of networks and user programs have none."""
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()  # of a killed process
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
        path.unlink()
    except OSError:
        return False
    return True
