"""From the environments' spec to a device loop: setup, place of the replay, compilation, and the first state."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

from seedzero.agents import base
from seedzero.checkpoints import checkpoint, checkpointers, player_files, trees
from seedzero.config import configs
from seedzero.core import opponents, types, user_code
from seedzero.device import (
    across,
    acting,
    compilation_cache,
    device_programs,
    host_frames,
    meshes,
    setups,
    slow_compile,
    states,
    strategies,
)
from seedzero.equilibria import tabular
from seedzero.league import members
from seedzero.league_play import building, league_seating, snapshot_pools
from seedzero.learner import alike, capacity, saving, together
from seedzero.live import record
from seedzero.loop import device_loop, dispatchers, other_hosts, places, players, rosters, seatings, step_accounting
from seedzero.metrics import aggregator

FROZEN_ON_HOST = 16
"""Frozen players with their parameters in the host's memory, beside the devices', at least."""
_PLAYER = 7
"""Second number of the random keys of learning players."""


def device_loop_for(
    saves: saving.Saves,
    workers: dispatchers.Workers,
    hooks: device_loop.Hooks,
    gathered: aggregator.Aggregator,
    observer: record.Observer,
    spec: types.EnvSpec,
) -> device_loop.DeviceLoop:
    """Returns the loop of a new or resumed run, with its programs being compiled.

    Raises:
      ConfigError: the agent does not go with these environments.
      CapacityError: the replay does not fit.
      CheckpointError, ResumeError: the checkpoint is damaged, or does not fit.
    """
    config, hosts = saves.config, saves.hosts
    setup = setups.make(config, spec, meshes.make(config.training.num_devices))
    train, actor = states.abstract_train(setup), states.abstract_actor(setup)
    is_saved, on_host, text = place_replay(config, setup, train, actor)
    if text:
        hooks.report(text)
    platform = setup.mesh.devices.flat[0].platform
    hooks.report(compilation_cache.expectation(platform, has_images=types.shown(spec.arrays) == "images"))
    strategy, programs = device_programs.prepare(
        setup, train, actor, seed=config.run.seed, on_host=on_host, on_ready=workers.inbox.news.tell
    )
    try:
        pool = members.initial_pool(config.league)
        with slow_compile.without_alarm():
            resumed = saves.restore(setup.agent, train, strategy.whole(actor.rings) if is_saved else None, pool)
            trains, restored = resumed or ({}, None)
            if restored is not None:
                pool = members.in_checkpoint(restored.counters, pool)
            trains = trains or {
                name: states.init_train(setup, seed_of(config.run.seed, pool.of(name).number))
                for name in pool.learning
            }
            if hosts is not None:  # the others may have no checkpoint, or no worker so far
                hosts.link.agreed.begin(max(0, hosts.step), hosts.resolved)
                assert isinstance(strategy, across.AcrossHosts)
                trains = {name: strategy.spread(state) for name, state in trains.items()}
                saving.check_same(setup.agent, trains, restored, saves.directory)
            carried, rings = first_actor(setup, restored, strategy, is_deterministic=config.run.deterministic)
        place = places.Place(0, setup, programs, strategy, rings, carried)
        homes = seatings.homes(setup.layout.num_train, config.worker.envs_per_group, len(pool.learning))

        def make(name: str, number: int, here: places.Place, state: base.TrainState | None = None) -> players.Player:
            """Returns a learning player; state: None: it begins."""
            seed, rate_limiter = seed_of(together.own_seed(config), number), players.make_pacer(config, here.setup)
            changes = config.league.homes_change
            accounting = step_accounting.StepAccounting(here.setup.layout, rate_limiter, gathered, spec, changes)
            train = states.init_train(here.setup, seed) if state is None else state
            return players.Player(name, seed, here, train, rate_limiter=rate_limiter, accounting=accounting)

        learning = [make(name, pool.of(name).number, place, trains[name]) for name in pool.learning]
        if config.league.most_players > 1:
            for at, player in enumerate(learning):
                player.mine = homes == at
        seating = league(config, setup, train, saves, workers, learning) if config.league.on else seatings.Seating()
        if config.league.on and spec.seats:
            hooks = hooks._replace(judge=judge(config, setup))
        dispatcher = dispatchers.Dispatcher(
            config, (place,), tuple(learning), workers, gathered, time.monotonic, seating, observer
        )
        if restored is None and hosts is not None and hosts.step > 0:
            for player in learning:
                player.num_updates = player.version = hosts.step
                player.rate_limiter.restart(hosts.step, 0)  # nothing is owed for the time before
        if restored is not None:
            with saving.reading_counters(restored.step):
                dispatcher.restore(restored.counters, has_replay=restored.rings is not None)
            for name in set(seating.frozen()) - restored.frozen.keys():
                seating.remove(name)  # damaged: it was reported
            if isinstance(seating, league_seating.LeagueSeating) and config.league.homes_change:
                players.restore_homes(learning, seating.homes.mine())
    except Exception:
        programs.close()
        raise
    agreed, kept = None, other_hosts.ALONE
    if hosts is not None:
        kinds = {device.process_index: device.device_kind for device in jax.devices() if device.platform != "cpu"}
        named = [kinds.get(index, name) for index, name in enumerate(hosts.processors)]
        agreed, deterministic = hosts.link.agreed, config.run.deterministic
        kept = alike.Alike(dispatcher, named, hooks.report, hosts.link.leave, deterministic=deterministic)
    after_update = building.Building(config, dispatcher, hooks, make).after_update
    loop = device_loop.DeviceLoop(config, dispatcher, hooks, agreed, kept, after_update)
    if restored is not None:
        loop.others.restore(restored.counters, () if hosts is None else hosts.parts)
    return loop


def league(
    config: configs.Config,
    setup: setups.Setup,
    train: base.TrainState,
    saves: saving.Saves,
    workers: dispatchers.Workers,
    learning: Sequence[players.Player],
) -> league_seating.LeagueSeating:
    """Returns the seating of a league with its frozen players beside the checkpoints. train: a state."""
    like = jax.eval_shape(lambda state: states.snapshot(setup.agent, state), train)
    everywhere = meshes.replicated(setup.mesh)

    def load(name: str) -> states.PlayerSnapshot:
        found = player_files.read(saves.directory.checkpoints, name, like.params, like.scales)
        return states.PlayerSnapshot(found.params, found.scales)

    pool = snapshot_pools.ParamsPool(
        load,
        lambda snapshot: jax.device_put(snapshot, everywhere),
        on_devices=frozen_on_devices(config),
        on_host=frozen_on_host(config),
    )

    def digits(number: int) -> str:
        return members.digits_of(config.run.seed, number) if config.run.deterministic else secrets.token_hex(6)

    for name in filter(opponents.is_of_user, config.league.bots):
        user_code.load(name)  # a missing function is named here, not by each worker
    seating = league_seating.LeagueSeating(
        config,
        setup.layout.num_train,
        pool,
        digits,
        saves.report,
        has_seats=bool(setup.spec.seats),
        num_actions=setup.spec.num_actions,
        knows_bots=functools.partial(rosters.knows_bots, workers.roster),
    )
    seating.live = {player.name: player for player in learning}
    return seating


def judge(config: configs.Config, setup: setups.Setup) -> Callable[[base.Params], float]:
    """Returns the exact judge of parameters, made when it is first asked; raises UsageError if a builder needs it."""
    make = functools.cache(lambda: tabular.judging(setup.agent, config.env.id))
    if config.league.builder == "biased":
        make()
    return lambda params: make()(params)


def frozen_on_devices(config: configs.Config) -> int:
    """Returns the most frozen players on the devices: of the active sets and matches under way."""
    return config.league.active * config.league.most_players + 2


def frozen_on_host(config: configs.Config) -> int:
    """Returns the most frozen players in the host's memory, beside the devices'."""
    return max(FROZEN_ON_HOST, frozen_on_devices(config))


def seed_of(run_seed: int, number: int) -> int:
    """Returns the seed of a learning player, below 2^31: the first one's is the run's."""
    if number == 0:
        return run_seed
    return int(np.random.SeedSequence([run_seed, _PLAYER, number]).generate_state(1)[0]) >> 1


def check(config: configs.Config, spec: types.EnvSpec) -> None:
    """Raises the ConfigError or CapacityError of `device_loop_for` for these environments; allocates nothing."""
    setup = setups.make(config, spec, meshes.make(config.training.num_devices))
    place_replay(config, setup, states.abstract_train(setup), states.abstract_actor(setup))


def place_replay(
    config: configs.Config, setup: setups.Setup, train: base.TrainState, actor: acting.ActorState
) -> tuple[bool, bool, str]:
    """Returns whether checkpoints include the replay, whether the host keeps its frames, and a line about its size."""
    device = setup.mesh.devices.flat[0]
    if not setup.agent.samples:  # the rings of a queue hold nothing that a resumed run could use
        capacity.check_queue(trees.num_bytes(actor.rings) // setup.layout.num_shards, device, setup.slot_length)
        return False, False, ""
    is_small = checkpoint.saves_replay(config.checkpoint, trees.num_bytes(actor.rings))
    is_saved = config.run.deterministic or is_small
    parts, number = states.parts(setup.agent, train), config.league.most_players
    of_all = checkpoint.by_player({str(at): parts for at in range(number)})
    needed = checkpoint.needed_bytes(of_all, actor.rings, is_saved=is_saved)
    if config.league.on:
        # Also those that wait for the disk; a CPU's device shares the memory of the host.
        most = (
            frozen_on_devices(config) + checkpointers.MAX_FREEZES + frozen_on_host(config) * (device.platform == "cpu")
        )
        copies = needed.state_copies + most * trees.num_bytes(setup.agent.acting(train))
        needed = needed._replace(state_copies=copies)
    of_player = trees.num_bytes(train) + 2 * trees.num_bytes(setup.agent.acting(train))  # copies act and evaluate
    capacity.check_players(number, of_player, needed, device)
    on_host, text = capacity.place(
        config.replay,
        needed,
        device,
        num_devices=setup.layout.num_shards,
        may_be_host=setup.learners is None and number == 1,  # else windows are drawn with their frames
    )
    if config.checkpoint.replay == "auto" and not is_saved:
        text += "; checkpoints leave it out and a resume fills it anew (--checkpoint.replay=on saves it)"
    if on_host:
        host_frames.check_length(setup.slot_length, setup.agent.num_kept, ahead=setup.ahead)
    return is_saved, on_host, text


def first_actor(
    setup: setups.Setup, restored: checkpoint.Restored | None, strategy: strategies.Strategy, *, is_deterministic: bool
) -> acting.ActorState:
    """Returns the acting state: empty, or with the rings of a checkpoint."""
    # A deterministic run goes on as after any of its checkpoints, which do not begin anew either.
    begins = restored is None or not is_deterministic
    if restored is None or restored.rings is None:
        return states.init_actor(setup, holds_frames=strategy.holds_frames, begins=begins)
    return acting.ActorState(states.init_carried(setup, begins=begins), strategy.begin(restored.rings))
