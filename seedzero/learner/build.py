"""Turns the environments' spec into a device loop: setup, place of the replay, compilation, and the first state."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

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
    placements,
    setups,
    slow_compile,
    states,
    strategies,
)
from seedzero.equilibria import tabular
from seedzero.league import members
from seedzero.league_play import building, group_homes, league_seating, snapshot_pools
from seedzero.learner import alike, capacity, first_states, saving, seating, together
from seedzero.live import record
from seedzero.loop import device_loop, dispatchers, other_hosts, places, players, rosters, seatings, step_accounting
from seedzero.metrics import aggregator
from seedzero.replay import ring_store

FROZEN_ON_HOST = 16
"""At least this many frozen players keep their parameters in the host's memory, besides those on devices."""
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
    """Returns the loop of a new or resumed run, whose programs are still being compiled.

    Raises:
      ConfigError: the agent does not suit these environments.
      CapacityError: the replay does not fit.
      CheckpointError, ResumeError: the checkpoint is damaged, or does not fit.
    """
    config, hosts = saves.config, saves.hosts
    here = setups.make_places(config, spec, meshes.make(config.training.num_devices))
    shapes = [_Shapes.of(setup) for setup in here]
    is_saved, on_host, text = place_replay(config, here, shapes)
    _tell(config, here, spec, text, hooks.report)
    prepared = [
        device_programs.prepare(setup, *shape, seed=config.run.seed, on_host=on_host, on_ready=workers.inbox.news.tell)
        for setup, shape in zip(here, shapes, strict=True)
    ]
    try:
        with slow_compile.without_alarm():
            begun = _begin(saves, here, prepared, shapes, is_saved=is_saved)
            made = _make_places(config, here, prepared, begun.restored)
        make = functools.partial(_make_player, config, spec, gathered)
        learning = [make(name, begun.pool.of(name).number, made[at], begun.trains[name]) for name, at in begun.where]
        if config.league.most_players > 1:
            _give_homes(config, made, learning, begun)
        if not config.league.on:
            seats = seating.without_league(config, spec, learning)
        else:
            seats = league(config, made, saves, workers, learning, begun.pool)
            hooks = hooks._replace(judge=judge(config, here[0])) if spec.seats else hooks
        dispatcher = dispatchers.Dispatcher(
            config, tuple(made), tuple(learning), workers, gathered, time.monotonic, seats, observer
        )
        if begun.restored is not None:
            _continue(config, dispatcher, seats, begun.restored)
        elif hosts is not None and hosts.step > 0:
            for player in learning:
                player.num_updates = player.version = hosts.step
                player.rate_limiter.restart(hosts.step, 0)  # nothing is owed for the time before
    except Exception:
        for _, programs in prepared:
            programs.close()
        raise
    agreed, kept = (
        (None, other_hosts.ALONE) if hosts is None else (hosts.link.agreed, _alike(config, dispatcher, hosts, hooks))
    )
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


_Prepared: TypeAlias = Sequence[tuple[strategies.Strategy, device_programs.Programs]]
"""The parts of each place."""


class _Begun(NamedTuple):
    """The players of a run that begins or is resumed: all, each learning player's place by number, and its state."""

    pool: members.Pool
    where: Sequence[tuple[str, int]]
    trains: Mapping[str, base.TrainState]
    restored: checkpoint.Restored | None  # None in a new run


def _begin(
    saves: saving.Saves,
    here: Sequence[setups.Setup],
    prepared: _Prepared,
    shapes: Sequence[_Shapes],
    *,
    is_saved: bool,
) -> _Begun:
    """Returns the players of the newest checkpoint, or new ones. is_saved: whether checkpoints include the replay."""
    config, hosts, agent = saves.config, saves.hosts, here[0].agent
    pool, sizes = seating.pool(config, here[0].spec), [setup.layout.num_shards for setup in here]
    sizes = sizes if len(here) > 1 else []

    def spots(counters: Mapping[str, Any]) -> dict[str, int]:
        """Returns the numbers of the places of a checkpoint's players, or {} in a new run."""
        names, kept = members.in_checkpoint(counters, pool).learning if counters else pool.learning, {}
        if counters.get(ring_store.PLACES, []) == sizes:
            kept = {name: own.get(players.PLACE, 0) for name, own in counters.get("players", {}).items()}
        return {name: kept.get(name, at % len(here)) for at, name in enumerate(names)}

    whole = [strategy.whole(shape.actor.rings) for (strategy, _), shape in zip(prepared, shapes, strict=True)]
    resumed = saves.restore(
        agent,
        lambda counters: {name: shapes[place].train for name, place in spots(counters).items()},
        ring_store.together(whole) if is_saved else None,
        sizes,
    )
    trains, restored = resumed or ({}, None)
    where = spots({} if restored is None else restored.counters)
    if restored is not None:
        pool = members.in_checkpoint(restored.counters, pool)
    if not trains:
        seeds = {name: seed_of(config.run.seed, pool.of(name).number) for name in pool.learning}
        trains = first_states.make(saves, here, where, seeds)
    if hosts is not None:  # the others may not have a checkpoint or a worker yet
        hosts.link.agreed.begin(max(0, hosts.step), hosts.resolved)
        together.check_environments(hosts.link, here[0].spec)
        ((strategy, _),) = prepared
        assert isinstance(strategy, across.AcrossHosts)
        trains = {name: strategy.spread(state) for name, state in trains.items()}
        saving.check_same(agent, trains, restored, saves.directory)
    return _Begun(pool, [(name, where[name]) for name in pool.learning], trains, restored)


def _make_places(
    config: configs.Config, here: Sequence[setups.Setup], prepared: _Prepared, restored: checkpoint.Restored | None
) -> list[places.Place]:
    """Returns the places, with their acting states on the devices."""
    made = []
    for number, (setup, (strategy, programs)) in enumerate(zip(here, prepared, strict=True)):
        actor = first_actor(setup, restored, strategy, is_deterministic=config.run.deterministic, place=number)
        made.append(places.Place(number, setup, programs, strategy, actor.rings, actor.carried))
    return made


def _make_player(
    config: configs.Config,
    spec: types.EnvSpec,
    gathered: aggregator.Aggregator,
    name: str,
    number: int,
    place: places.Place,
    state: base.TrainState | None = None,
) -> players.Player:
    """Returns a learning player. number: as in `members.Member`. state: None if it is new."""
    seed, rate_limiter = seed_of(together.own_seed(config), number), players.make_pacer(config, place.setup)
    changes = config.league.homes_change
    accounting = step_accounting.StepAccounting(place.setup.layout, rate_limiter, gathered, spec, changes)
    train = place.make_train(np.int32(seed)) if state is None else state
    return players.Player(name, seed, place, train, rate_limiter=rate_limiter, accounting=accounting)


def _give_homes(
    config: configs.Config, made: Sequence[places.Place], learning: Sequence[players.Player], begun: _Begun
) -> None:
    """Deals the groups of environments to the players when a run begins."""
    layouts = [place.setup.layout for place in made]
    by_number = {begun.pool.of(name).number: place for name, place in begun.where}
    size, table = config.worker.envs_per_group, placements.table(layouts)
    homes = group_homes.GroupHomes(layouts[0].num_slots, size, begun.pool, table, by_number)
    for player, own in zip(learning, homes.mine(), strict=True):
        player.mine = own


def _continue(
    config: configs.Config,
    dispatcher: dispatchers.Dispatcher,
    seats: seatings.Seating,
    restored: checkpoint.Restored,
) -> None:
    """Restores the counters of a checkpoint, without its frozen players whose parameters are missing."""
    with saving.reading_counters(restored.step):
        dispatcher.restore(restored.counters, has_replay=restored.rings is not None)
    for name in set(seats.frozen()) - restored.frozen.keys():
        seats.remove(name)  # damaged, which was reported
    if isinstance(seats, league_seating.LeagueSeating) and config.league.homes_change:
        players.restore_homes(dispatcher.players, seats.homes.mine())


def _alike(
    config: configs.Config, dispatcher: dispatchers.Dispatcher, hosts: together.Together, hooks: device_loop.Hooks
) -> alike.Alike:
    """Returns the object that compares states with the run's other hosts."""
    kinds = {device.process_index: device.device_kind for device in jax.devices() if device.platform != "cpu"}
    named = [kinds.get(index, name) for index, name in enumerate(hosts.processors)]
    return alike.Alike(dispatcher, named, hooks.report, hosts.link.leave, deterministic=config.run.deterministic)


class _Shapes(NamedTuple):
    """Returns shapes, dtypes and shardings of a player's train state and of the acting state in a place."""

    train: base.TrainState
    actor: acting.ActorState

    @classmethod
    def of(cls, setup: setups.Setup) -> _Shapes:
        return cls(states.abstract_train(setup), states.abstract_actor(setup))


def first_actor(
    setup: setups.Setup,
    restored: checkpoint.Restored | None,
    strategy: strategies.Strategy,
    *,
    is_deterministic: bool,
    place: int = 0,
) -> acting.ActorState:
    """Returns the acting state of a place: empty, or with a checkpoint's rings."""
    # A deterministic run continues as after any of its checkpoints, which do not restart either.
    begins = restored is None or not is_deterministic
    if restored is None or restored.rings is None:
        return states.init_actor(setup, holds_frames=strategy.holds_frames, begins=begins)
    rings = ring_store.each(restored.rings)[place]
    return acting.ActorState(states.init_carried(setup, begins=begins), strategy.begin(rings))


def league(
    config: configs.Config,
    here: Sequence[places.Place],
    saves: saving.Saves,
    workers: dispatchers.Workers,
    learning: Sequence[players.Player],
    members_now: members.Pool,
) -> league_seating.LeagueSeating:
    """Returns the seating of a league, whose frozen players are stored with the checkpoints."""
    setup = here[0].setup
    like = jax.eval_shape(lambda state: states.snapshot(setup.agent, state), states.abstract_train(setup))

    def load(name: str) -> states.PlayerSnapshot:
        found = player_files.read(saves.directory.checkpoints, name, like.params, like.scales)
        return states.PlayerSnapshot(found.params, found.scales)

    def put(place: places.Place) -> Callable[[states.PlayerSnapshot], states.PlayerSnapshot]:
        return functools.partial(jax.device_put, device=meshes.replicated(place.setup.mesh))

    pool = snapshot_pools.ParamsPool(
        load,
        *map(put, here),
        on_devices=frozen_on_devices(config, max(place.setup.num_players for place in here)),
        on_host=frozen_on_host(config),
    )

    def digits(number: int) -> str:
        return members.digits_of(config.run.seed, number) if config.run.deterministic else secrets.token_hex(6)

    for name in filter(opponents.is_of_user, config.league.bots):
        user_code.load(name)  # a missing function is reported here, not by each worker
    found = league_seating.LeagueSeating(
        config,
        setup.spec,
        setup.layout.num_slots,
        pool,
        digits,
        saves.report,
        knows_bots=functools.partial(rosters.knows_bots, workers.roster),
        places=placements.table([place.setup.layout for place in here]),
    )
    found.live = {player.name: player for player in learning}
    found.homes.where |= {members_now.of(player.name).number: player.place.number for player in learning}
    for player in learning:
        found.visitors.welcome(player, here)
    return found


def judge(config: configs.Config, setup: setups.Setup) -> Callable[[base.Params], float]:
    """Returns the exact judge of parameters, made at the first call. Raises UsageError if a builder needs it."""
    make = functools.cache(lambda: tabular.judging(setup.agent, config.env.id))
    if config.league.builder == "biased":
        make()
    return lambda params: make()(params)


def frozen_on_devices(config: configs.Config, num_players: int) -> int:
    """Returns the most frozen players on a place's devices, for active sets and running matches."""
    return config.league.active * num_players + 2


def frozen_on_host(config: configs.Config) -> int:
    """Returns the most frozen players in the host's memory, besides those on devices."""
    return max(FROZEN_ON_HOST, frozen_on_devices(config, config.league.most_players))


def seed_of(run_seed: int, number: int) -> int:
    """Returns the seed of a learning player, below 2^31; the first player's is the run's."""
    if number == 0:
        return run_seed
    return int(np.random.SeedSequence([run_seed, _PLAYER, number]).generate_state(1)[0]) >> 1


def check(config: configs.Config, spec: types.EnvSpec) -> None:
    """Raises the ConfigError or CapacityError of `device_loop_for` for these environments; allocates nothing."""
    here = setups.make_places(config, spec, meshes.make(config.training.num_devices))
    place_replay(config, here, [_Shapes.of(setup) for setup in here])


def place_replay(
    config: configs.Config, here: Sequence[setups.Setup], shapes: Sequence[_Shapes]
) -> tuple[bool, bool, str]:
    """Returns whether checkpoints have the replay, whether the host keeps its frames, and a message about its size."""
    agent = here[0].agent
    if not agent.samples:  # the rings of a queue have nothing that a resumed run could use
        for setup, shape in zip(here, shapes, strict=True):
            num_bytes = trees.num_bytes(shape.actor.rings) // setup.layout.num_shards
            capacity.check_queue(num_bytes, setup.mesh.devices.flat[0], setup.slot_length)
        return False, False, ""
    is_small = checkpoint.saves_replay(config.checkpoint, sum(trees.num_bytes(shape.actor.rings) for shape in shapes))
    is_saved, train = config.run.deterministic or is_small, shapes[0].train
    loads = [_load(config, here[at], shape, is_saved=is_saved, is_first=at == 0) for at, shape in enumerate(shapes)]
    if len(loads) > 1 and here[0].mesh.devices.flat[0].platform == "cpu":  # they share the memory of the host
        needed = checkpoint.Needed(*map(sum, zip(*(load.needed for load in loads), strict=True)))
        loads = [loads[0]._replace(num_players=sum(load.num_players for load in loads), needed=needed, num_devices=1)]
    found = []
    for load in loads:
        of_player = trees.num_bytes(train) + 2 * trees.num_bytes(agent.acting(train))  # copies act and evaluate
        capacity.check_players(load.num_players, of_player, load.needed, load.device)
        # otherwise windows have their frames
        may_be_host = here[0].learners is None and config.league.most_players == 1
        found.append(
            capacity.place(
                config.replay, load.needed, load.device, num_devices=load.num_devices, may_be_host=may_be_host
            )
        )
    on_host, text = found[0]
    if config.checkpoint.replay == "auto" and not is_saved:
        text += "; checkpoints leave it out and a resume fills it again (--checkpoint.replay=on saves it)"
    if on_host:
        host_frames.check_length(here[0].slot_length, agent.num_kept, ahead=here[0].ahead)
    return is_saved, on_host, text


class _Load(NamedTuple):
    """The load of a place: most learning players, bytes over all devices, the first device, and their number."""

    num_players: int
    needed: checkpoint.Needed
    device: jax.Device
    num_devices: int


def _load(config: configs.Config, setup: setups.Setup, shape: _Shapes, *, is_saved: bool, is_first: bool) -> _Load:
    num_players, device = setup.num_players, setup.mesh.devices.flat[0]
    parts = dict.fromkeys(map(str, range(num_players)), states.parts(setup.agent, shape.train))
    needed = checkpoint.needed_bytes(checkpoint.by_player(parts), shape.actor.rings, is_saved=is_saved)
    if config.league.on:
        # Frozen players, including those that wait for the disk, and copies of players that learn in other places.
        most = frozen_on_devices(config, num_players) + checkpointers.MAX_FREEZES
        most += config.league.most_players - num_players
        most += frozen_on_host(config) * (device.platform == "cpu" and is_first)  # all places share one cache
        copies = needed.state_copies + most * trees.num_bytes(setup.agent.acting(shape.train))
        needed = needed._replace(state_copies=copies)
    return _Load(num_players, needed, device, setup.layout.num_shards)
