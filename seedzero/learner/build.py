"""Turns the environments' spec into a device loop: setup, place of the replay, compilation, and the first state."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

from seedzero.acting.equilibria import tabular
from seedzero.agents import base
from seedzero.config import configs
from seedzero.core import types
from seedzero.device import compilation_cache, device_programs, meshes, placements, setups, slow_compile, states
from seedzero.learner import alike, first_players, run_memory, saving, seating, together
from seedzero.learner.league_play import building
from seedzero.learner.live import record
from seedzero.learner.loop import agreement, device_loop, dispatchers, players
from seedzero.monitoring.metrics import aggregator


# Judges agents exactly for a league's builder.
def judge(config: configs.Config, setup: setups.Setup) -> Callable[[base.Params], float]:
    """Returns the exact judge of parameters, made at the first call. Raises UsageError if a builder needs it."""
    make = functools.cache(lambda: tabular.judging(setup.agent, config.env.id))
    if config.league.builder == "biased":
        make()
    return lambda params: make()(params)


def device_loop_for(
    saves: saving.Saves,
    workers: dispatchers.Workers,
    hooks: device_loop.Hooks,
    gathered: aggregator.Aggregator,
    observer: record.Observer,
    spec: types.EnvSpec,
) -> device_loop.DeviceLoop:
    """Returns the loop of a new or resumed run, whose programs are still being compiled.

    Raises:
      ConfigError: the agent does not suit these environments.
      CapacityError: the replay does not fit.
      CheckpointError, ResumeError: the checkpoint is damaged, or does not fit.
    """
    config, hosts = saves.config, saves.hosts
    here = setups.make_places(config, spec, meshes.make(config.training.num_devices))
    shapes = [states.Shapes.of(setup) for setup in here]
    is_saved, on_host, text = run_memory.place_replay(config, here, shapes)
    _tell(config, here, spec, text, hooks.report)
    prepared = [
        device_programs.prepare(setup, *shape, seed=config.run.seed, on_host=on_host, on_ready=workers.inbox.news.tell)
        for setup, shape in zip(here, shapes, strict=True)
    ]
    try:
        with slow_compile.without_alarm():
            begun = first_players.begin(saves, here, prepared, shapes, is_saved=is_saved)
            made = first_players.make_places(config, here, prepared, begun.restored)
        make = functools.partial(players.make, config, spec, gathered, together.own_seed(config))
        learning = [make(name, begun.pool.of(name).number, made[at], begun.trains[name]) for name, at in begun.where]
        seats = seating.make(saves, made, learning, begun.pool, workers.roster)
        if config.league.on and spec.seats:
            hooks = hooks._replace(judge=judge(config, here[0]))
        dispatcher = dispatchers.Dispatcher(
            config, tuple(made), tuple(learning), workers, gathered, time.monotonic, seats, observer
        )
        if begun.restored is not None:
            first_players.restore(config, dispatcher, seats, begun.restored)
        elif hosts is not None and hosts.step > 0:
            for player in learning:
                player.num_updates = player.version = hosts.step
                player.rate_limiter.restart(hosts.step, 0)  # nothing is owed for the time before
    except Exception:
        for _, programs in prepared:
            programs.close()
        raise
    agreed, kept = None if hosts is None else hosts.link.agreed, agreement.ALONE
    if hosts is not None:
        kept = alike.between(config, dispatcher, hosts, hooks.report)
    after_update = building.Building(config, dispatcher, hooks, make).after_update
    loop = device_loop.DeviceLoop(config, dispatcher, hooks, agreed, kept, after_update)
    if begun.restored is not None:
        loop.others.restore(begun.restored.counters, () if hosts is None else hosts.parts)
    return loop


def _tell(
    config: configs.Config, here: Sequence[setups.Setup], spec: types.EnvSpec, text: str, report: Callable[[str], None]
) -> None:
    """Reports the players' devices, the replay's size (a text), and how long compilation will take."""
    num_devices, names = meshes.make(config.training.num_devices).devices.size, seating.pool(config, spec)
    dealt = placements.text(placements.of(config, num_devices), names.learning, num_devices)
    platform, has_images = here[0].mesh.devices.flat[0].platform, types.shown(spec.arrays) == "images"
    for line in filter(None, (dealt, text, compilation_cache.expectation(platform, has_images=has_images))):
        report(line)
