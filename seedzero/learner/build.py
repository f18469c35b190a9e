"""Turns the environments' spec into a device loop, whose parameters stay equal on all hosts."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

from seedzero.acting.equilibria import tabular
from seedzero.agents import base
from seedzero.config import configs
from seedzero.core import errors, types
from seedzero.device import across, compilation_cache, device_programs, meshes, setups, states
from seedzero.learner import first_players, run_memory, saving, together
from seedzero.learner.league_play import building
from seedzero.learner.live import record
from seedzero.learner.loop import agreement, device_loop, dispatchers, in_flight_calls, players
from seedzero.monitoring.metrics import counts

# Keeps the parameters of a run's hosts equal, whatever their processors compute.
#
# Every host applies the same gradients to the same parameters, so equal processors always have equal bits. Others
# round differently, and their parameters differ from the first update on. So the hosts compare a checksum of their
# train states now and then, on the devices, and all take host 0's state if they differ. Updates happen at the same
# numbers on all hosts (`agreement`), and so do these comparisons.
EVERY_UPDATES = 100
"""Updates between two comparisons, which bounds how long parameters can drift apart."""
RESYNCED = "hosts_resynced"
"""Name of the metric: comparisons since the last row that found a difference."""


class Alike(agreement.Alone):
    """Compares and aligns the train states of all hosts, on the device loop's thread."""

    def __init__(
        self,
        dispatcher: dispatchers.Dispatcher,
        processors: Sequence[str],
        report: Callable[[str], None],
        leave: Callable[[], object],
        *,
        deterministic: bool,
    ) -> None:
        """processors: names by host. report: shows the user a message, from any thread.

        leave: ends with the other hosts.
        """
        self._dispatcher, self._processors, self._report = dispatcher, processors, report
        self._leave, self._deterministic = leave, deterministic
        (self._player,) = dispatcher.players
        self._aligned = self._player.num_updates
        self._is_told = False

    def after_update(self) -> None:
        """Compares if it is time, without waiting, after the update has been submitted."""
        if self._player.num_updates % EVERY_UPDATES == 0:
            checksums = self._align()
            if checksums is not None:
                self._dispatcher.in_flight.add(lambda: self._note(checksums), in_flight_calls.UPDATING)

    def now(self) -> None:
        """Makes all hosts continue from the same state after the same update. Raises ConfigError as `_note` does."""
        checksums = self._align()
        if checksums is not None:
            self._note(checksums)

    def _align(self) -> jax.Array | None:
        """Submits a comparison, unless this state has had one, and returns the checksums [D] of all devices."""
        player = self._player
        if self._aligned == player.num_updates:
            return None
        self._aligned = player.num_updates
        place = player.place
        assert isinstance(place.strategy, across.AcrossHosts)
        run = place.programs.update.result().functions
        player.train, checksums = place.strategy.align(run, player.train)
        return checksums

    def _note(self, checksums: jax.Array) -> None:
        """Waits for a comparison. Counts and reports a difference, or raises ConfigError in a deterministic run."""
        by_host = np.asarray(checksums).reshape(len(self._processors), -1)
        found = [index for index, own in enumerate(by_host) if np.any(own != by_host[0, 0])]
        if not found:
            return
        names = ", ".join(f"host {index} ({self._processors[index]})" for index in found)
        differs = f"{names} computes different bits from host 0 ({self._processors[0]})"
        if self._deterministic:
            self._leave()  # all hosts have found it, so none blames the end of another one
            raise errors.ConfigError(
                f"{differs}, so this run cannot be repeated bit for bit; give all hosts the same processors and "
                "XLA_FLAGS, or start a new run without --deterministic"
            )
        self._dispatcher.gathered.add_totals({RESYNCED: 1})
        if not self._is_told:
            self._is_told = True
            self._report(
                f"{differs}, so their parameters drift apart; all hosts take host 0's every {EVERY_UPDATES} updates "
                f"and at each checkpoint, which {RESYNCED} counts. The same processors and XLA_FLAGS avoid that"
            )


def between(
    config: configs.Config,
    dispatcher: dispatchers.Dispatcher,
    hosts: together.Together,
    report: Callable[[str], None],
) -> Alike:
    """Returns the object that compares states with the run's other hosts."""
    kinds = {device.process_index: device.device_kind for device in jax.devices() if device.platform != "cpu"}
    named = [kinds.get(index, name) for index, name in enumerate(hosts.processors)]
    return Alike(dispatcher, named, report, hosts.link.leave, deterministic=config.run.deterministic)


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
    gathered: counts.Aggregator,
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
        with compilation_cache.without_alarm():
            begun = first_players.begin(saves, here, prepared, shapes, is_saved=is_saved)
            made = first_players.make_places(config, here, prepared, begun.restored)
        make = functools.partial(players.make, config, spec, gathered, together.own_seed(config))
        learning = [make(name, begun.pool.of(name).number, made[at], begun.trains[name]) for name, at in begun.where]
        seats = first_players.make_seating(saves, made, learning, begun.pool, workers.roster)
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
        kept = between(config, dispatcher, hosts, hooks.report)
    after_update = building.Building(config, dispatcher, hooks, make).after_update
    loop = device_loop.DeviceLoop(config, dispatcher, hooks, agreed, kept, after_update)
    if begun.restored is not None:
        loop.others.restore(begun.restored.counters, () if hosts is None else hosts.parts)
    return loop


def _tell(
    config: configs.Config, here: Sequence[setups.Setup], spec: types.EnvSpec, text: str, report: Callable[[str], None]
) -> None:
    """Reports the players' devices, the replay's size (a text), and how long compilation will take."""
    num_devices, names = meshes.make(config.training.num_devices).devices.size, first_players.player_pool(config, spec)
    dealt = setups.places_text(setups.placement_of(config, num_devices), names.learning, num_devices)
    platform, has_images = here[0].mesh.devices.flat[0].platform, types.shown(spec.arrays) == "images"
    for line in filter(None, (dealt, text, compilation_cache.expectation(platform, has_images=has_images))):
        report(line)
