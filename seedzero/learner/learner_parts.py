"""Makes the parts of a learner in the order in which they need each other; nothing runs yet."""

from __future__ import annotations

import dataclasses
import functools
import secrets
import time
from collections.abc import Mapping, Sequence

from seedzero.bucket import mirrors
from seedzero.checkpoints import run_dirs
from seedzero.config import configs, worker_options
from seedzero.core import env_ids, types
from seedzero.device import memory, meshes, placements
from seedzero.learner import (
    build,
    callbacks,
    endings,
    filming,
    pooling,
    receptions,
    reports,
    run_memory,
    saving,
    stages,
    together,
)
from seedzero.loop import device_loop, dispatchers, rosters
from seedzero.metrics import aggregator
from seedzero.monitoring import background, forecast, league_log, metrics_log, progress_lines, usage, views
from seedzero.processes import programs, supervisor
from seedzero.transport import addresses, security, servers


@dataclasses.dataclass(frozen=True)
class LearnerParts:
    directory: run_dirs.RunDir
    mirrored: mirrors.Mirror | None  # the run's bucket; None if it has none
    local: str  # unix socket of local workers
    expected: types.EnvSpec | None  # the environments' spec if this machine knows it; None: workers report it
    ending: endings.Ending
    saves: saving.Saves
    view: views.View
    reception: receptions.Reception
    workers: supervisor.Supervisor
    server: servers.Server
    films: filming.Filmer
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
) -> LearnerParts:
    """Returns a run's parts. Arguments are as in `LearnerParts`; watch is as in `View`, functions as in `Callbacks`.

    Raises UsageError for an unsuitable configuration.
    """
    config, say = directory.config, screen.message
    acting, _ = meshes.split(meshes.make(config.training.num_devices), config.training.acting_devices)
    planned = placements.plan(config, acting.devices.size)
    ending, gathered, key = endings.Ending(), aggregator.Aggregator(), secrets.token_hex()
    called = callbacks.Callbacks(functions or {}, ending)
    log = metrics_log.MetricsLog(directory.path, tensorboard=config.metrics.tensorboard, report=say, config=config)
    history = league_log.LeagueLog(directory.path, say) if config.league.on else None
    shared = together.budgeted(config, () if hosts is None else hosts.num_steps)
    saves = saving.Saves(shared, directory, log, say, mirrored, history, hosts=hosts)
    own = configs.override(config, {"run.seed": together.own_seed(config)})  # of environments
    max_group = min(one.sizes[-1] * one.layout.num_shards for one in planned)
    table = placements.table([one.layout for one in planned]) if len(planned) > 1 else None
    roster = rosters.Roster(own, planned[0].layout, max_group, key, table)
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
        forecast.Forecast(config) if acting.devices.flat[0].platform == "cpu" else None,
        watch,
        history=history,
        on_row=functools.partial(called.note, "on_row"),
        usage=usage.Usage(memory.used_bytes).row,
    )
    workers = _workers(directory, local, key, ending, screen, has_evaluator=roster.has_evaluation)
    check = functools.partial(run_memory.check, config)
    reception = receptions.Reception(config, roster, view, say, ending.notify, workers.restart, check)
    server = _server(directory, reception, local, hosts, lambda: stage.loop)
    progress.silent = server.silent
    films = filming.Filmer(directory.path, config.evaluation.video_every, write=log.write_video, say=say)
    hooks = device_loop.Hooks(
        functools.partial(reports.evaluated, view, saves, films, called),
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
    reception: receptions.Reception,
    local: str,
    hosts: together.Together | None,
    loop: pooling.Loop,
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
        pool=pooling.of_config(config.serve, directory, secured, loop),
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
