"""Begins or resumes a run's players and places: their states, the slots at home with them, and their counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from seedzero.agents import base
from seedzero.checkpoints import checkpoint
from seedzero.config import configs
from seedzero.device import across, acting, device_programs, setups, states, strategies
from seedzero.league import members
from seedzero.league_play import league_seating
from seedzero.learner import first_states, saving, seating, together
from seedzero.loop import dispatchers, places, players, seatings
from seedzero.replay import ring_store

Prepared: TypeAlias = Sequence[tuple[strategies.Strategy, device_programs.Programs]]
"""The parts of each place."""


class Begun(NamedTuple):
    """The players of a run that begins or is resumed: all, each learning player's place by number, and its state."""

    pool: members.Pool
    where: Sequence[tuple[str, int]]
    trains: Mapping[str, base.TrainState]
    restored: checkpoint.Restored | None  # None in a new run


def begin(
    saves: saving.Saves,
    here: Sequence[setups.Setup],
    prepared: Prepared,
    shapes: Sequence[states.Shapes],
    *,
    is_saved: bool,
) -> Begun:
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
        seeds = {name: players.seed_of(config.run.seed, pool.of(name).number) for name in pool.learning}
        trains = first_states.make(saves, here, where, seeds)
    if hosts is not None:  # the others may not have a checkpoint or a worker yet
        hosts.link.agreed.begin(max(0, hosts.step), hosts.resolved)
        together.check_environments(hosts.link, here[0].spec)
        ((strategy, _),) = prepared
        assert isinstance(strategy, across.AcrossHosts)
        trains = {name: strategy.spread(state) for name, state in trains.items()}
        saving.check_same(agent, trains, restored, saves.directory)
    return Begun(pool, [(name, where[name]) for name in pool.learning], trains, restored)


def make_places(
    config: configs.Config, here: Sequence[setups.Setup], prepared: Prepared, restored: checkpoint.Restored | None
) -> list[places.Place]:
    """Returns the places, with their acting states on the devices."""
    made = []
    for number, (setup, (strategy, programs)) in enumerate(zip(here, prepared, strict=True)):
        first = actor(setup, restored, strategy, is_deterministic=config.run.deterministic, place=number)
        made.append(places.Place(number, setup, programs, strategy, first.rings, first.carried))
    return made


def actor(
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


def restore(
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
