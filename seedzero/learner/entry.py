"""Runs the learner host: server, workers, device loop, checkpoints, metrics and the user's screen.

`train` locks the run directory, makes the parts (`learner_parts.py`), opens the server, starts local workers and
meanwhile builds the networks for their environments; then it resumes, compiles and runs. The main
thread keeps time until the run is over, saves the last state (`stopping.py`) and ends the parts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import shlex
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures

from seedzero.acting.equilibria import game_tree
from seedzero.config import combinations, configs, page_options, presets
from seedzero.core import env_ids, errors, printable, types, user_code
from seedzero.device import compilation_cache
from seedzero.learner import callbacks, endings, learner_parts, stages, stopping, together
from seedzero.learner.loop import device_loop
from seedzero.learner.processes import programs, signals
from seedzero.monitoring import background, console, exporter
from seedzero.storage.bucket import bucket, mirrors, remote
from seedzero.storage.checkpoints import own_runs, run_dirs
from seedzero.transport import addresses, invitation, security, servers

# Opens a unix socket between a learner and its user's processes on the same machine.
_MAX_PATH = 100
"""Paths of unix sockets are limited to about 108 bytes."""


@contextlib.contextmanager
def opened_socket(directory: pathlib.Path, listen: str) -> Iterator[str]:
    """Yields the unix socket of local workers and of `seedzero status --run_dir`.

    It needs neither token nor TLS, because only this user can open its file, and so only the learner knows the token.
    It is in the run directory; if that path is too long or has a comma, or its disk has no sockets, it is in a folder
    that is deleted in the end.
    """
    path = directory.absolute() / "learner.sock"
    if listen.startswith(addresses.UNIX_PREFIX):
        yield f"{addresses.UNIX_PREFIX}{addresses.unix_path(listen)}"
    elif len(os.fsencode(path)) <= _MAX_PATH and "," not in str(path) and _takes_sockets(path.with_name("probe.sock")):
        yield f"{addresses.UNIX_PREFIX}{path}"
    else:
        with tempfile.TemporaryDirectory(prefix="seedzero-") as folder:
            yield f"{addresses.UNIX_PREFIX}{folder}/{path.name}"


def _takes_sockets(path: pathlib.Path) -> bool:
    """Returns whether a unix socket can be made at a path.

    Some network disks and user-space file systems have none.
    """
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()  # left by a killed process
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
        path.unlink()
    except OSError:
        return False
    return True


# Starts a learner: finds its environments' spec, opens its addresses, and waits for its first worker.
def show_spec(parts: learner_parts.LearnerParts) -> None:
    """Gives the reception the environments' spec if it is known; then a resumed run is built at once."""
    resumed, path = parts.directory.resumed, parts.directory.path
    saved = run_dirs.read_spec(path) if resumed else None
    spec = saved or parts.expected
    if spec is None:
        return
    parts.reception.show(spec)
    if resumed:
        if saved is None:
            run_dirs.write_spec(path, spec)
        parts.stage.build(spec)  # its state is restored before anyone joins


def listen(parts: learner_parts.LearnerParts) -> str:
    """Opens the server and returns its address."""
    try:
        return parts.server.start()
    except errors.Error:
        if parts.stage.loop is not None:
            parts.stage.loop.close()
        raise


def announce(parts: learner_parts.LearnerParts, address: str, *, is_quiet: bool = False) -> None:
    """Shows the address to the user, to `seedzero status` and, unless it is_quiet, on standard output."""
    config, screen = parts.config, parts.view.screen
    few_files = servers.allow_descriptors(config.transport.max_workers)
    for text in [*security.warnings(config.transport, config.tls), *filter(None, [few_files])]:
        screen.message(text)
    parts.directory.write_learner(address, time.time(), local=parts.local)
    with contextlib.suppress(OSError):  # standard output may lead to a full disk, or to a reader that has gone
        if not is_quiet:
            print(f"seedzero learner listening on {printable.escape(address)}", flush=True)
    if parts.reception.spec is None and config.worker.num == 0:
        screen.message(invitation.waiting(config), invitation.to_worker(config, address))


def prepare(parts: learner_parts.LearnerParts) -> None:
    """Builds a new run and waits for its first worker; in the other order if only workers know the spec.

    Raises TrainingFailure if none comes in time.
    """
    reception, stage, ending = parts.reception, parts.stage, parts.ending
    if reception.spec is not None:
        stage.build(reception.spec)
    is_late = parts.seconds_left() <= 0
    while not (reception.has_begun or ending.is_interrupted) and parts.seconds_left() > 0:
        ending.check()
        ending.wait(parts.seconds_left())
    if ending.is_interrupted:
        return
    if not reception.has_begun:
        ending.check()
        raise _slow(parts.config.run.max_seconds) if is_late else lonely(parts.config.run.max_seconds)
    assert reception.spec is not None
    if stage.loop is None:
        stage.build(reception.spec)
    run_dirs.write_spec(parts.directory.path, reception.spec)


def lonely(max_seconds: float) -> errors.TrainingFailure:
    """Returns the failure of a run without a training worker."""
    return errors.TrainingFailure(
        f"no worker joined within --max_seconds={max_seconds:g}, so nothing was learned: "
        "start workers earlier, or give it more time"
    )


def _slow(max_seconds: float) -> errors.TrainingFailure:
    """Returns the failure of a run whose budget is spent before its networks are built."""
    return errors.TrainingFailure(
        f"--max_seconds={max_seconds:g} passed before the networks were built, so nothing was learned: give it more, "
        "or give --max_updates instead, which does not count that time"
    )


# Shows the page of a run while it trains, in a separate process that starts and ends with the run and only reads.
_URL = re.compile(rb"http://\S+/")


@contextlib.contextmanager
def page_beside(
    run_dir: pathlib.Path,
    place: page_options.PagePlace,
    *,
    say: Callable[[str], None],
    launch: Callable[[Sequence[str]], programs.Process] = programs.launch,
) -> Iterator[None]:
    """Shows a run by `seedzero page` while entered, and reports its address, or how it ended.

    say: takes the messages, on any thread.
    """

    def write(line: bytes) -> None:
        if found := _URL.search(line):
            say(f"the page of this run: {found[0].decode()}")

    program = programs.Program(write, programs.System(launch=launch))
    command = [sys.executable, "-m", "seedzero.cli", "page", f"--run_dir={run_dir}", f"--port={place.port}"]
    command += [f"--page.root={place.root}"] if place.root else []
    command += ["--supervised"]

    def live() -> None:
        death = program.live(command, niceness=programs.IDLE)
        if death is not None and not program.stopping.is_set():
            say(f"the page of this run has ended, and training continues without it: {death}")

    thread = threading.Thread(target=live, name="page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        program.finish()
        program.kill()
        thread.join()


_TICK_SECONDS = 0.5
WORKER_EXIT_SECONDS = 2.0
"""How long a worker may take, after worker.close_seconds, to end by itself with its own exit code and its children."""


def train(
    asked: run_dirs.SavedConfig,
    path: pathlib.Path | bucket.Url,
    resume_command: str,
    caller: callbacks.Caller,
    *,
    spec: types.EnvSpec | None = None,
    hosts: together.Together | None = None,
    page: page_options.PagePlace | None = None,
) -> endings.Result:
    """Trains until a budget is spent, a return is reached or the user stops it; returns the result.

    Args:
      asked: the user's settings, and all values, resolved for this machine.
      path: run directory, or its place in a bucket. It is made if missing, and resumed if it holds a run.
      resume_command: the command to show if the run stops before it is finished.
      spec: that of the environments, if this machine knows it; a new run's networks are then built while its workers
        start.
      hosts: the run's other hosts, or None.
      page: place of a page of the run, on this machine alone, or None.

    Raises:
      UsageError: an unsuitable configuration, directory, address or memory.
      BucketError: the bucket cannot be used.
      TrainingFailure: training cannot continue.
    """
    with contextlib.ExitStack() as opened:
        is_live = None if caller.worker is None else False  # a live line would overwrite a debugger's prompt
        stream = opened.enter_context(open(os.devnull, "w", encoding="utf-8")) if caller.is_quiet else None
        screen = background.Screen(console.Console(asked.config.metrics.every_seconds, stream=stream, live=is_live))
        opened.callback(screen.close)
        mirrored = None
        if isinstance(path, bucket.Url):
            bucket_config, step = asked.config.bucket, None if hosts is None else hosts.step
            mirrored = mirrors.Mirror(path, bucket_config, asked.config.checkpoint, report=screen.message, step=step)
            opened.callback(mirrored.finish)
        directory = opened.enter_context(_open(asked, path, mirrored, screen))
        screen.keep(directory.logs / run_dirs.LEARNER_LOG)
        opened.push(screen.log_failure)
        config = directory.config
        names_code = bool(user_code.named(configs.flatten(config)))
        needs_trust = names_code and (mirrored is not None or not _remember(directory.path, directory.saved, screen))
        config = configs.override(config, caller.unsaved)
        directory = dataclasses.replace(directory, saved=dataclasses.replace(directory.saved, config=config))
        parts = None
        try:
            # with the values that the directory fixes, such as its slots
            combinations.check(config, is_begun=directory.resumed)
            ending = presets.end_sentence(config, preset=asked.preset, explicit=asked.given.keys())
            for note in (*directory.notes, *filter(None, [ending])):
                screen.message(note)
            if page is not None:
                opened.enter_context(page_beside(directory.path, page, say=screen.message))

            def command(name: str) -> str:
                program, at = resume_command.partition(" train ")[0], f"--run_dir={shlex.quote(str(path))}"
                return f"{program} {name} {at}{' --trust_run_dir' if needs_trust else ''}"

            # On the CPU, because the learner's accelerator has no room for a second process.
            is_first = hosts is None or hosts.index == 0  # the other hosts have no parameters to show
            is_shown = is_first and config.env.id != env_ids.REMOTE
            parts = learner_parts.make(
                directory,
                screen,
                opened.enter_context(opened_socket(directory.path, config.transport.listen)),
                mirrored=mirrored,
                spec=spec,
                watch=f"JAX_PLATFORMS=cpu {command('play')} --video=play.mp4" if is_shown else "",
                hosts=hosts,
                functions=caller.functions,
                worker=caller.worker,
            )
            if hosts is not None:
                hosts.link.when_lost(functools.partial(stopping.leave_others, parts))
            finished, had_finished = _hosted(parts, caller)
        except errors.UsageError:
            if (parts is None or not parts.server.has_started) and (mirrored is None or directory.resumed):
                _abandon(directory, screen, names_code=names_code and mirrored is None)
            raise
        if not had_finished:
            _show_next(parts, command, finished=finished, has_parameters=is_first)
            if not finished:
                again = "start again" if parts.saves.durable_update is None else "resume"
                screen.message(f"stopped; to {again}:", resume_command)
        return endings.read_result(directory.checkpoints, str(path), finished=finished)


def _open(
    asked: run_dirs.SavedConfig,
    path: pathlib.Path | bucket.Url,
    mirrored: mirrors.Mirror | None,
    screen: background.Screen,
) -> run_dirs.RunDir:
    """Makes or resumes the run directory, in a bucket its local copy, and turns the cache of compiled programs on."""
    if mirrored is None or isinstance(path, pathlib.Path):
        if uncached := compilation_cache.enable():
            screen.message(uncached)
        return run_dirs.open_run_dir(str(path), asked.config, preset=asked.preset, given=asked.given)
    compilation_cache.enable(mirrored.path / remote.PROGRAMS)
    with bucket.naming(mirrored.path, path):
        return run_dirs.open_run_dir(
            mirrored.path, asked.config, preset=asked.preset, given=asked.given, fill=mirrored.fill
        )


def _remember(path: pathlib.Path, saved: run_dirs.SavedConfig, screen: background.Screen) -> bool:
    """Records a run with a user's code as the user's own, because the user has consented.

    Returns whether that worked.
    """
    problem = own_runs.remember(path, saved)
    if problem:
        screen.message(f"this run cannot be remembered as your own, so its directory needs --trust_run_dir: {problem}")
    return not problem


def _abandon(directory: run_dirs.RunDir, screen: background.Screen, *, names_code: bool) -> None:
    """Undoes a refused start, including the record of an own run."""
    if names_code and directory.earlier is None:
        own_runs.forget(directory.path)
    directory.abandon()
    if names_code and directory.earlier is not None:
        _remember(directory.path, run_dirs.parse_saved(directory.earlier), screen)


def _hosted(parts: learner_parts.LearnerParts, caller: callbacks.Caller) -> tuple[str, bool]:
    """Trains. Returns the reason of a finished training, or "" for a stop, and whether it had finished before."""
    view, screen, metrics = parts.view, parts.view.screen, parts.config.metrics
    finished = parts.saves.finished_before()
    if finished or parts.directory.resumed:
        view.write_finished(finished)
    if finished:
        screen.message(f"this run is finished: {finished}; raise that to continue")
        if parts.mirrored is not None:  # its last checkpoint may be only on this machine
            parts.mirrored.begin(parts.ending.fail)
        return finished, True
    at_once = functools.partial(stopping.leave_at_once, parts, "left at once")
    interrupt, leave = (functools.partial(end, parts) for end in (stopping.interrupt, stopping.leave_late))
    stop_signals = signals.StopSignals(interrupt, say=screen.message, cleanup=at_once)
    late = endings.Deadline(functools.partial(stopping.seconds_left, parts), parts.stage.pulse, leave)
    served = exporter.serving(metrics.host, metrics.port, view.scrape) if metrics.port >= 0 else None
    screen.follow(view.shown)
    with (
        stop_signals if caller.handles_signals else contextlib.nullcontext(),
        late.watched() if caller.leaves_when_late else contextlib.nullcontext(),
        served or contextlib.nullcontext("") as url,
        view.sending(),
    ):
        if url:
            screen.message(f"metrics for Prometheus at {url}")
        if parts.mirrored is not None:
            parts.mirrored.begin(parts.ending.fail)
        show_spec(parts)
        address = listen(parts)
        try:
            announce(parts, address, is_quiet=caller.is_quiet)
            parts.workers.start()
            finished = run(parts, caller.has_built)
        finally:
            stop(parts, finished)
    return finished, False


def run(parts: learner_parts.LearnerParts, has_built: Callable[[], object] = lambda: None) -> str:
    """Trains. Returns the reason of a finished training, or "" after an earlier stop. Raises TrainingFailure.

    has_built: see `callbacks.Caller`.
    """
    directory, reception, stage, ending = parts.directory, parts.reception, parts.stage, parts.ending
    if stage.loop is None:
        prepare(parts)
    loop = stage.loop
    if loop is None or ending.is_interrupted:  # by then `stopping.interrupt` may have found no loop to stop
        return ""
    has_built()
    parts.callbacks.start()
    with device_loop.running(loop, ending.notify) as over:
        keep_time(parts, loop, over)
    if parts.seconds_left() <= 0 and not (reception.has_trained or directory.resumed):
        ending.check()
        raise lonely(parts.config.run.max_seconds)  # only the evaluating process was there
    # A failure may leave an unreliable state on the device, so nothing is saved then. A league's builder
    # fails between two calls, after which the last state is saved.
    if isinstance(failure := over.exception(), errors.BuilderError):
        ending.failure = failure
    elif failure is not None:
        raise failure
    is_asked = ending.is_interrupted or bool(parts.callbacks.reason) or ending.failure is not None
    # A resume by a few more steps has them, and would lack updates again at each try.
    has_steps = directory.resumed and parts.seconds_left() > 0
    if not (is_asked or has_steps or endings.lacks_steps(parts.config)):
        stopping.check_compiled(parts, over.result())
    finished = stopping.finish(parts, "" if ending.failure else over.result())
    if late := parts.callbacks.finish():
        parts.view.screen.message(late)
    return finished


def stop(parts: learner_parts.LearnerParts, finished: str) -> None:
    """Ends workers, server and files. finished: why the run ended, or "" if it is unfinished."""
    view = parts.view
    view.progress.end("leaving")
    parts.workers.finish()
    parts.films.stop()
    parts.callbacks.close()
    if parts.stage.loop is not None:
        parts.stage.loop.close()
    parts.server.stop(finished=bool(finished), reason=finished or "the learner stops")
    parts.workers.stop(parts.config.worker.close_seconds + WORKER_EXIT_SECONDS)
    parts.saves.close()
    view.progress.end("")
    view.write_status(alive=False, finished=finished or None)
    if parts.mirrored is not None:
        parts.mirrored.finish()  # here, because a second Ctrl-C still leaves at once
    parts.stage.enter(stages.Stage.OVER)


def keep_time(parts: learner_parts.LearnerParts, loop: device_loop.DeviceLoop, over: futures.Future[str]) -> None:
    """Shows progress, writes metrics and asks for checkpoints until the device loop ends."""
    config, now = parts.config, time.monotonic()
    deterministic = config.run.deterministic  # in deterministic mode, updates decide when rows and checkpoints are due
    next_row = now + config.metrics.every_seconds
    is_told = parts.hosts is not None and parts.hosts.index > 0  # when to save
    next_save = float("inf") if deterministic or is_told else now + (config.checkpoint.every_seconds or float("inf"))
    reported_late = is_told_to_end = False
    while not over.done():
        parts.ending.wait(_TICK_SECONDS)
        now = time.monotonic()
        parts.view.observe(now)
        if parts.ending.failure is not None:
            return
        if now >= next_row:
            next_row = now + config.metrics.every_seconds
            parts.directory.check_ours()
            if not deterministic:
                parts.view.write_row({})
            parts.view.write_status(alive=True)
        if now >= next_save and not parts.saves.checkpointer.busy:
            next_save, reported_late = now + config.checkpoint.every_seconds, False
            loop.request(parts.saves.save)
        elif now >= next_save and not reported_late and (late := _why_late(parts)):
            reported_late = True
            parts.view.screen.message(late)
        if parts.callbacks.reason and not is_told_to_end:
            is_told_to_end = True
            loop.end(parts.callbacks.reason)
        if parts.seconds_left() <= 0:
            end = functools.partial(stopping.stop, parts, loop) if stopping.still_compiles(parts) else loop.end
            end(f"--max_seconds={config.run.max_seconds:g} passed")


def _why_late(parts: learner_parts.LearnerParts) -> str:
    """Says why a checkpoint that is due waits for the last one, or returns "" while that would repeat itself."""
    if parts.mirrored is not None:
        return (
            f"a checkpoint is due, but the last one is still on its way to {parts.mirrored.url}: it waits; "
            f"raise --checkpoint.every_seconds={parts.config.checkpoint.every_seconds:g} if that continues"
        )
    try:
        parts.saves.checkpointer.check()
    except errors.CheckpointError as error:
        return str(error)
    return ""


def _show_next(
    parts: learner_parts.LearnerParts, command: Callable[[str], str], *, finished: str, has_parameters: bool
) -> None:
    """Shows the commands that evaluate, judge and watch a run. finished: as in `_hosted`."""
    screen, config, spec = parts.view.screen, parts.config, parts.reception.spec
    is_remote, seats = config.env.id == env_ids.REMOTE, spec.seats if spec is not None else ()
    if parts.view.progress.snapshot().num_updates == 0:
        screen.message(f"nothing to score: {endings.without_updates(config)}; train longer")
    elif parts.saves.durable_update is not None and has_parameters:
        screen.message("score it:", f"{command('evaluate')}{' --listen=127.0.0.1:0' if is_remote else ''}")
        if worse := parts.view.worse_greedily():
            screen.message(f"greedy play is worse than training: {worse}")
        is_league_game = len(seats) == 2 and "league" in config.agent.SECTIONS and not is_remote
        if is_league_game and game_tree.can_judge(config.env.id):
            screen.message("judge it:", command("league nash"))
        if not is_remote and spec is not None and (spec.num_players == 2 or (seats and not spec.fixed_seats)):
            screen.message("play against it:", f"{command('play')} --human")
        elif not is_remote and not seats:
            screen.message("watch it:", f"{command('play')} --video=play.mp4")
    if finished:
        screen.message(f"finished: {finished}")
