"""Makes the parts of a learner in the order in which they need each other: reception, model pool, reports, loop."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures

import jax
import numpy as np

from seedzero.config import configs, sections, worker_options
from seedzero.core import env_ids, errors, opponents, plain_files, types
from seedzero.device import meshes, newest_rows, setups, states, tracing
from seedzero.learner import build, callbacks, endings, run_memory, saving, stages, together
from seedzero.learner.live import observers
from seedzero.learner.loop import device_loop, dispatchers, evaluators, inboxes, rosters
from seedzero.learner.processes import in_process, programs, supervisor
from seedzero.monitoring import background, league_log, metrics_log, progress_lines, usage, views
from seedzero.monitoring.metrics import counts, episodes
from seedzero.storage.bucket import mirrors
from seedzero.storage.checkpoints import player_files, run_dirs, trees
from seedzero.transport import addresses, links, messages, model_pool, security, servers

# Makes videos of evaluations for TensorBoard in a separate process, so that training neither waits nor changes.
MAX_SECONDS = 900.0
"""Longest time that a video may take."""


class Filmer:
    """Films an episode with the newest checkpoint after every Nth evaluation. Only one thread may call `evaluated`.

    Videos are made one at a time, so an evaluation in the meantime has none. After a failure no more are made.
    """

    def __init__(
        self,
        run_dir: pathlib.Path,
        every: int,
        *,
        write: Callable[[bytes, int], None],
        say: Callable[[str], None],
        launch: Callable[[Sequence[str]], programs.Process] = programs.launch,
    ) -> None:
        """every: N, or 0 for never.

        write: takes a .gif file and the training steps of its checkpoint, on any thread.
        """
        self._run_dir, self._every = run_dir, every
        self._write, self._say = write, say
        self._program = programs.Program(lambda line: None, programs.System(launch=launch))
        self._num_evaluations, self._has_told = 0, False
        self._thread: threading.Thread | None = None

    def evaluated(self, durable_update: int | None) -> None:
        """Counts an evaluation, and begins a video if one is due. durable_update: that of the newest checkpoint."""
        self._num_evaluations += 1
        is_due = bool(self._every) and self._num_evaluations % self._every == 0
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_due and not durable_update and not self._has_told:
            self._has_told = True
            self._say("videos of evaluations begin after the first checkpoint, see --checkpoint.every_seconds")
        if is_due and durable_update and not is_busy and not self._program.stopping.is_set():
            self._thread = threading.Thread(target=self._film, name="film", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends a video that is being made."""
        self._program.finish()
        self._program.kill()
        if self._thread is not None:
            self._thread.join()

    def _film(self) -> None:
        with tempfile.TemporaryDirectory(prefix="seedzero-film-") as folder:
            target = pathlib.Path(folder) / "evaluation.gif"
            death = self._run([sys.executable, "-m", "seedzero.acting.tables", str(self._run_dir), str(target)])
            if death is None or self._program.stopping.is_set():
                return
            if death.status != errors.DONE:
                return self._give_up(str(death))
            try:
                self._write(target.read_bytes(), counts.env_steps_of(json.loads(death.last_line)))
            except (OSError, ValueError, LookupError, TypeError) as error:
                self._give_up(str(error) if isinstance(error, OSError) else death.last_line)

    def _run(self, command: Sequence[str]) -> programs.Death | None:
        """Describes how a process ended, whose children end with it; None after `stop`."""
        late = threading.Timer(MAX_SECONDS, self._program.kill)
        late.daemon = True
        try:
            return self._program.live(command, niceness=programs.IDLE, started=late.start)
        finally:
            late.cancel()

    def _give_up(self, reason: str) -> None:
        self._program.finish()
        self._say(f"no videos of evaluations: {reason}; --evaluation.video_every=0 turns them off")


# Receives workers, as the server's handler on the server's thread.
@dataclasses.dataclass(eq=False)
class Reception:
    """Keeps the roster and the inbox; if the spec is unknown, the first worker provides it."""

    config: configs.Config
    roster: rosters.Roster
    view: views.View  # takes the spec, and answers status requests
    report: Callable[[str], None]  # shows the user a message
    on_join: Callable[[], None]  # called once a worker's environments are accepted
    on_overdue: Callable[[str], None]  # takes the name of a local worker that has sent only heartbeats for too long
    check: Callable[[types.EnvSpec], None]  # raises UsageError for environments that no network or replay suits
    spec: types.EnvSpec | None = None  # the environments' spec; None: not known yet
    has_begun: bool = False  # a worker's environments have been there
    has_trained: bool = False  # so have those of a training worker

    def __post_init__(self) -> None:
        self.inbox = inboxes.Inbox()
        self.step = functools.partial(self.inbox.step, self.roster.get, time.monotonic)  # handler, too
        self.observer = observers.LiveObserver(
            time.monotonic, newest_rows.NewestReader
        )  # of the device loop, for pages
        self._live = observers.LiveView(
            self.observer, self.status, lambda: self.view.gathered.means(), self.roster.started, lambda: self.spec
        )
        self._has_made: set[str] = set()  # names of local workers whose environments were there
        self._wrong: set[str] = set()  # ids of sessions whose worker reports impossible times

    def show(self, spec: types.EnvSpec) -> None:
        """Takes the spec for which networks are being built."""
        self.spec = self.roster.spec = spec
        self.view.progress.show(spec)

    def assign(self, hello: messages.Hello) -> types.Assignment:
        """Handler: returns a joining worker's environments."""
        return self.roster.assign(hello)

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        """Handler: a worker's environments are ready.

        If the spec is unknown, networks are built for the first ones.
        """
        tasks, joining = spec.tasks, self.roster.get(session_id)
        role = types.Role.TRAIN if joining is None else joining.role
        is_own = self.config.env.id != env_ids.REMOTE  # some workers' environments name their own tasks
        if is_own and role is types.Role.EVALUATE and (spec.seats or spec.num_players == 2):
            spec = dataclasses.replace(spec, tasks=spec.seats)  # these only report the opponents of evaluations
        elif spec.seats and tasks != spec.seats:
            raise errors.SpecMismatch(f"the tasks of seats {list(spec.seats)} are {list(tasks)}; expected these seats")
        if self.spec is None:
            if self.config.env.id == env_ids.REMOTE:
                self._check(spec)
            self.show(spec)
        assert self.spec is not None
        run_dirs.check_equal_spec(spec, self.spec)
        session = self.roster.begin(session_id, tasks, spec.num_seats(role))
        if session.is_local:
            self._has_made.add(session.worker_id)
        self.has_begun = True
        self.has_trained |= session.role is types.Role.TRAIN
        self.inbox.news.tell()
        self.on_join()
        if session.role is types.Role.TRAIN and not self.config.run.deterministic:
            self.report(f"worker {session.worker_id} joined with {len(session.all_slots)} environments{self._kept()}")
            # A remote environment is evaluated by a separate worker, which may never come.
            remote = self.config.env.id == env_ids.REMOTE
            if remote and self.roster.has_evaluation and not self.roster.started(types.Role.EVALUATE):
                self.report("evaluation is off until another worker joins that accepts it")

    def _kept(self) -> str:
        """Returns the share of the replay that the present environments fill.

        "" for all of it, or without environments.
        """
        replay, present = self.config.replay, sum(self.roster.sizes())
        if not 0 < present < replay.num_sharing or not self.config.agent.SAMPLES:
            return ""
        kept = replay.capacity * present // replay.num_sharing
        return (
            f"; {present} of {replay.num_sharing} are here, which fill {kept} of the replay's {replay.capacity} steps"
        )

    def _check(self, spec: types.EnvSpec) -> None:
        """Rejects a worker whose environments no network or replay suits; the run can continue with others."""
        try:
            self.check(spec)
        except errors.UsageError as error:
            raise errors.SpecMismatch(f"this learner cannot be built for these environments: {error}") from None

    def regroup(self, session_id: str, link: links.WorkerLink | None, problem: str, now: float) -> str:
        """Server: returns why a session must end for other groups, or ""; reports impossible measurements once."""
        session = self.roster.get(session_id)
        if session is None:
            return ""
        if problem and session_id not in self._wrong:
            self._wrong.add(session_id)
            self.report(
                f"worker {session.worker_id} reports {problem}; expected times above 0, and not longer than that: it "
                "keeps its groups, whatever its link"
            )
        planned = None if link is None else self.roster.regroup(session_id, link, now)
        if link is None or planned is None:
            return ""
        number, size = planned
        why = "another worker found no room"
        if number * size >= link.num_envs:
            trip, step = 1000 * link.round_trip_seconds, 1000 * link.step_seconds
            why = f"its round trip takes {trip:.0f} ms, and a step of a group {step:.3g} ms"
        return f"{number} x {size} environments instead of {link.num_groups} x {link.envs_per_group}: {why}"

    def end(self, session_id: str, reason: str) -> None:
        """Handler: a worker's session is over."""
        self._wrong.discard(session_id)
        session = self.roster.remove(session_id)
        if session is None:
            return
        is_lost = reason != messages.GOODBYE
        if session.started:
            lost = counts.WORKER_LOST if is_lost else counts.WORKER_LEFT
            self.inbox.end_session(session_id, session.role, session.all_slots, lost)
        kept = self._kept() if is_lost and session.role is types.Role.TRAIN else ""
        if reason.startswith(messages.REGROUPED):
            self.report(f"worker {session.worker_id} gets {reason.removeprefix(messages.REGROUPED)}")
        else:
            self.report(f"worker {session.worker_id} left: {reason}{kept}")
        if not session.is_local:
            return
        # Environments may take long to be made at first; those that existed before are stuck in their reset.
        if reason.startswith(messages.OVERDUE) and session.worker_id in self._has_made:
            self.on_overdue(session.worker_id)
        self._has_made.discard(session.worker_id)  # the next time it may be another process

    def status(self) -> Mapping[str, object]:
        """Handler: returns the status for `seedzero status`."""
        return self.view.status()

    def live(self, asked: messages.LiveAsk, present: Sequence[messages.Presence]) -> tuple[str, bytes]:
        """Server: returns the live view for a page."""
        return self._live.answer(asked, present)


# Serves copies of a learner's players as a model pool, for policy servers on other machines.
_COPY_SECONDS = 30.0
"""Longest wait for the loop, which may be in the middle of a long call."""
Loop = Callable[[], device_loop.DeviceLoop | None]


def pool_of(
    settings: sections.ServeConfig, directory: run_dirs.RunDir, secured: security.ServerSecurity, loop: Loop
) -> tuple[model_pool.ModelPool, str] | None:
    """Returns the pool and its token, or None if the run has no pool.

    Raises UsageError if the token is unusable, or is the one of the workers.
    """
    if not settings.token_file:
        return None
    token = security.read_token(settings.token_file, "--serve.token_file")
    if token == secured.token:
        raise errors.UsageError(
            f"--serve.token_file={settings.token_file} holds the workers' token, and a worker may not fetch "
            "parameters; write another one into a file of its own by `openssl rand -hex 32`"
        )
    return LearnerPool(directory, loop), token


@dataclasses.dataclass(frozen=True)
class LearnerPool:
    """Offers a run's players as a `model_pool.ModelPool`. loop: returns the device loop once it is built."""

    directory: run_dirs.RunDir
    loop: Loop

    def offer(self) -> model_pool.PoolOffer:
        """Returns the players, with the updates of those that learn."""
        learning = {player.name: player.num_updates for player in self._built().dispatcher.players}
        texts = (plain_files.read(self.directory.path / name) for name in (run_dirs.CONFIG_FILE, run_dirs.SPEC_FILE))
        try:
            config, spec = (text.decode() for text in texts)
        except FileNotFoundError:  # a new run writes spec.json once its first worker has joined
            raise errors.UsageError("no worker has joined the learner yet; try again") from None
        return model_pool.PoolOffer(config, spec, learning, tuple(player_files.names(self.directory.checkpoints)))

    def parameters(self, player: str) -> model_pool.Parameters:
        """Returns a player's parameters, copied by the loop between two calls, or from a frozen player's files."""
        loop = self._built()
        if player in player_files.names(self.directory.checkpoints):
            setup = loop.dispatcher.places[0].setup
            like = jax.eval_shape(lambda train: setup.agent.acting(train), states.abstract_train(setup))
            frozen = player_files.read(self.directory.checkpoints, player, like)
            return _parameters(frozen.step, frozen.params)
        copied = loop.copies.ask(player)
        try:
            version, params = copied.result(_COPY_SECONDS)
        except (TimeoutError, futures.CancelledError):
            copied.cancel()  # so that the loop makes no copy that nobody takes
            raise errors.UsageError(
                f"the learner copied no parameters within {_COPY_SECONDS:g} s; try again"
            ) from None
        return _parameters(version, trees.copy(params))

    def _built(self) -> device_loop.DeviceLoop:
        if (loop := self.loop()) is None:
            raise errors.UsageError("the learner has no networks yet, for no worker has joined, or its run is over")
        return loop


def _parameters(version: int, params: trees.Tree) -> model_pool.Parameters:
    arrays = jax.tree.map(np.asarray, params)
    return model_pool.Parameters(version, trees.digest(arrays), jax.tree.leaves(arrays))


# Reports an evaluation to the screen, the metrics, the videos and the checkpoints.
_MOST_TOLD = 5
"""Opponents in a message, if there are more."""


def evaluated(
    view: views.View,
    saves: saving.Saves,
    films: Filmer,
    called: callbacks.Callbacks,
    ended: evaluators.Ended,
) -> None:
    """Shows and writes the result of an evaluation, and saves the best parameters."""
    result, update = ended.result, ended.running.update
    values = {f"evaluation_{name}": value for name, value in result.flat().items()}
    if ended.cut_short:
        values[metrics_log.UNFINISHED] = result.unfinished or result.cut_off
    normalized = ended.human_normalized
    if normalized is not None:
        values["evaluation_human_normalized"] = normalized
    if ended.best_score is not None:
        values["evaluation_best_score"] = ended.best_score
    began = {"update": update, "env_steps": ended.running.env_steps}  # training may have continued meanwhile
    view.write_row({**began, "kind": "evaluation", **values}, gathered=False)
    reason = "as the first evaluation took too long" if ended.cut_short and not result.unfinished else "as too long"
    cut = f", {result.cut_off} of them cut off {reason}" if result.cut_off else ""
    best = "; the best so far" if ended.is_record else ""
    if result.unfinished:
        best = (
            f"; cut short, since {result.unfinished} more had not ended in time: give it more time, or "
            "--evaluation.max_episode_steps=N to end them earlier"
        )
    score = "" if normalized is None or ended.cut_short else f", human-normalized {normalized:.3f}"
    shown = _against(opponents.mean_returns(result.task_returns))
    shown += "".join(f", {name} {value:.4g}" for name, value in result.info.items())
    scored = episodes.with_error(result.to_json(), len(ended.running.policies))
    error = f" +- {scored['stderr_return']:.2g}" if "stderr_return" in scored else ""
    view.screen.message(
        f"evaluation at update {update}: return {result.mean_return:.4g}{error} over "
        f"{result.episodes} episodes{cut}{shown}{score}{best}"
    )
    films.evaluated(saves.durable_update)
    scores = {"human_normalized": normalized, "best_score": ended.best_score, "is_best": ended.is_best}
    scores[counts.CUT_SHORT] = ended.cut_short
    saved = saves.save_best(ended) if ended.is_best else None
    called.note("on_evaluation", {**began, **result.to_json(), **scores}, saved)


def _against(returns: Mapping[str, float]) -> str:
    """Returns the part of a message with the mean returns against all opponents, or, of many, the lowest."""
    is_long = len(returns) > _MOST_TOLD
    told = dict(sorted(returns.items(), key=lambda pair: pair[1])[:_MOST_TOLD]) if is_long else returns
    against = ", ".join(f"{name} {value:.3g}" for name, value in told.items())
    rest = f", more against {len(returns) - len(told)} others" if is_long else ""
    return f", against {against}{rest}" if against else ""


@dataclasses.dataclass(frozen=True)
class LearnerParts:
    directory: run_dirs.RunDir
    mirrored: mirrors.Mirror | None  # the run's bucket; None if it has none
    local: str  # unix socket of local workers
    expected: types.EnvSpec | None  # the environments' spec if this machine knows it; None: workers report it
    ending: endings.Ending
    saves: saving.Saves
    view: views.View
    reception: Reception
    workers: supervisor.Supervisor | in_process.InProcess
    server: servers.Server
    films: Filmer
    stage: stages.RunStage
    callbacks: callbacks.Callbacks
    hosts: together.Together | None = None  # the run's other hosts, or None

    @property
    def config(self) -> configs.Config:
        return self.directory.config

    def seconds_left(self) -> float:
        """Returns what is left of --max_seconds; infinity without it."""
        max_seconds = self.config.run.max_seconds
        return max_seconds - self.view.progress.seconds() if max_seconds else float("inf")


def make(
    directory: run_dirs.RunDir,
    screen: background.Screen,
    local: str,
    *,
    mirrored: mirrors.Mirror | None = None,
    spec: types.EnvSpec | None = None,
    watch: str = "",
    hosts: together.Together | None = None,
    functions: Mapping[str, callbacks.Function] | None = None,
    worker: in_process.Worker | None = None,
) -> LearnerParts:
    """Returns a run's parts. Arguments are as in `LearnerParts`; watch is as in `View`, functions as in `Callbacks`,
    worker as in `Caller`.

    Raises UsageError for an unsuitable configuration.
    """
    config, say = directory.config, screen.message
    acting, _ = meshes.split(meshes.make(config.training.num_devices), config.training.acting_devices)
    planned = setups.plan_places(config, acting.devices.size)
    ending, gathered, key = endings.Ending(), counts.Aggregator(), secrets.token_hex()
    called = callbacks.Callbacks(functions or {}, ending)
    log = metrics_log.MetricsLog(directory.path, tensorboard=config.metrics.tensorboard, report=say, config=config)
    history = league_log.LeagueLog(directory.path, say) if config.league.on else None
    before = together.before_alone(directory.checkpoints) if hosts is None else (*hosts.num_steps, hosts.num_gone)
    *num_steps, num_gone = before
    if num_gone and config.run.max_env_steps:
        say(f"hosts that have left this run made {num_gone:,} of the steps of --max_env_steps")
    shared = together.budgeted(config, num_steps, num_gone)
    saves = saving.Saves(shared, directory, log, say, mirrored, history, hosts=hosts)
    own = configs.override(config, {"run.seed": together.own_seed(config)})  # of environments
    max_group = min(one.sizes[-1] * one.layout.num_shards for one in planned)
    table = setups.places_table([one.layout for one in planned]) if len(planned) > 1 else None
    follows_links = "worker.num_groups" not in directory.saved.given
    roster = rosters.Roster(own, planned[0].layout, max_group, key, table, follows_links=follows_links)
    progress = progress_lines.RunProgress(time.monotonic)
    view = views.View(
        config,
        directory,
        screen,
        roster.sizes,
        gathered,
        log,
        lambda: saves.durable_update,
        progress,
        progress_lines.Forecast(config) if acting.devices.flat[0].platform == "cpu" else None,
        watch,
        history=history,
        on_row=functools.partial(called.note, "on_row"),
        usage=usage.Usage(tracing.used_bytes).row,
    )
    workers: supervisor.Supervisor | in_process.InProcess
    if worker is not None:
        workers = in_process.InProcess(worker, local, ending.fail, {worker_options.KEY: key})
    else:
        workers = _workers(directory, local, key, ending, screen, has_evaluator=roster.has_evaluation)
    check = functools.partial(run_memory.check, config)
    reception = Reception(config, roster, view, say, ending.notify, workers.restart, check)
    server = _server(directory, reception, local, hosts, lambda: stage.loop)
    progress.silent, view.present = server.silent, server.present
    films = Filmer(directory.path, config.evaluation.video_every, write=log.write_video, say=say)
    hooks = device_loop.Hooks(
        functools.partial(evaluated, view, saves, films, called),
        saves.save,
        functools.partial(view.write_row, {}),
        say,
        saves.freeze,
        (lambda decision: None) if history is None else history.note,
    )
    loop_workers = dispatchers.Workers(reception.inbox, roster, server.reply, server.restart)
    building = functools.partial(build.device_loop_for, saves, loop_workers, hooks, gathered, reception.observer)
    stage = stages.RunStage(building, progress.follow)
    if hosts is not None:
        named = config.cluster.worker_address
        hosts.link.counters = lambda: together.counters(stage.loop, roster, named or server.address)
        view.others = lambda: together.lines(hosts.link.details, hosts.link.missing)
    return LearnerParts(
        directory=directory,
        mirrored=mirrored,
        local=local,
        expected=spec if config.worker.num else None,  # workers elsewhere may have other versions of it
        ending=ending,
        saves=saves,
        view=view,
        reception=reception,
        workers=workers,
        server=server,
        films=films,
        stage=stage,
        callbacks=called,
        hosts=hosts,
    )


def _server(
    directory: run_dirs.RunDir,
    reception: Reception,
    local: str,
    hosts: together.Together | None,
    loop: Loop,
) -> servers.Server:
    config, transport = directory.config, directory.config.transport
    secured = security.for_server(transport.token_file, config.tls)
    is_local = not transport.listen or transport.listen.startswith(addresses.UNIX_PREFIX)
    return servers.Server(
        reception,
        dataclasses.replace(transport, listen=local if is_local else transport.listen),
        secured=secured,
        local="" if is_local else local,
        clock=time.monotonic,
        elsewhere=str if hosts is None else lambda: together.emptiest(hosts.link.details),
        live=reception.live,
        pool=pool_of(config.serve, directory, secured, loop),
        regroup=reception.regroup,
    )


def _workers(
    directory: run_dirs.RunDir,
    local: str,
    key: str,
    ending: endings.Ending,
    screen: background.Screen,
    *,
    has_evaluator: bool,
) -> supervisor.Supervisor:
    config, num_train = directory.config, directory.config.worker.num
    options = worker_options.of_learner(config)

    def name(index: int) -> str:
        return f"local-{index}" if index < num_train else "evaluator"

    def command(index: int) -> Sequence[str]:
        role = "train" if index < num_train else "evaluate"
        return worker_options.command(options, server=local, worker_id=name(index), role=role)

    environment = {**programs.WORKER_ENVIRONMENT, worker_options.KEY: key}
    return supervisor.Supervisor(
        command,
        num_train + (has_evaluator and config.env.id != env_ids.REMOTE),
        on_failure=ending.fail,
        log_dir=directory.logs,
        report=screen.message,
        name=name,
        system=programs.System(functools.partial(programs.launch, environment=environment)),
    )
