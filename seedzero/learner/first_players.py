"""Begins or resumes a run's players and places: their states, the slots at home with them, and their counters."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from seedzero.agents import base
from seedzero.config import configs, league_config, seats_config
from seedzero.core import errors, types
from seedzero.device import across, acting, device_programs, setups, states, strategies
from seedzero.league import members
from seedzero.learner import saving, together
from seedzero.learner.league_play import league_seating
from seedzero.learner.loop import dispatchers, places, players, rosters, seatings
from seedzero.replay import ring_store
from seedzero.storage.bucket import run_copy
from seedzero.storage.checkpoints import checkpoint, manifest, player_files, run_dirs, saved_files, trees


# Chooses the players that a run begins with, and their seating.
def player_pool(config: configs.Config, spec: types.EnvSpec) -> members.Pool:
    """Returns the players of a new run: a league's, or one for each policy."""
    if names := seats_config.policies(config, spec.seats):
        return members.of_policies(tuple(dict.fromkeys(names)))
    return members.initial_pool(config.league)


def make_seating(
    saves: saving.Saves,
    here: Sequence[places.Place],
    learning: Sequence[players.Player],
    members_now: members.Pool,
    roster: rosters.Roster,
) -> seatings.Seating:
    """Returns the seating of players in a league, in seats or alone; several players get their slots here."""
    config, setup = saves.config, here[0].setup
    if not config.league.on:
        return _without_league(config, setup.spec, learning)
    like = jax.eval_shape(lambda state: states.snapshot(setup.agent, state), states.abstract_train(setup))

    def load(name: str) -> states.PlayerSnapshot:
        found = player_files.read(saves.directory.checkpoints, name, like.params, like.scales)
        return states.PlayerSnapshot(found.params, found.scales)

    return league_seating.make(config, here, learning, members_now, load, saves.report, roster)


def _without_league(
    config: configs.Config, spec: types.EnvSpec, learning: Sequence[players.Player]
) -> seatings.Seating:
    names = seats_config.policies(config, spec.seats)
    if not names:
        return seatings.Seating()
    numbers = {player.name: number for number, player in enumerate(learning)}
    homes = seatings.SeatHomes([numbers[name] for name in names])
    table = homes.table(config.replay.num_slots)
    for number, player in enumerate(learning):
        player.mine = table == number
    return homes


# Makes the learning states that a new run begins with: random parameters, or another run's (`--init_from`).
_MOST_NAMED = 5
"""The most arrays with other shapes that a message lists."""


def make_states(
    saves: saving.Saves, here: Sequence[setups.Setup], where: Mapping[str, int], seeds: Mapping[str, int]
) -> dict[str, base.TrainState]:
    """Returns the states of a new run's learning players by name.

    Optimizers and counters begin at zero, also with another run's parameters.

    Args:
      here: the places.
      where: each player's place, by name.
      seeds: the players' seeds, by name.

    Raises ResumeError, CheckpointError or BucketError if the other run cannot be used, or its arrays do not fit.
    """
    made = {name: states.init_train(here[where[name]], seed) for name, seed in seeds.items()}
    text, hosts = saves.config.run.init_from, saves.hosts
    if not text or not (hosts is None or (hosts.index == 0 and hosts.step <= 0)):  # host 0's states are used by all
        return made
    given = read_states(
        run_dirs.parse_origin(text), saves.config, here[0].agent, next(iter(made.values())), saves.report
    )
    return {name: states.with_fields(here[where[name]], train, given) for name, train in made.items()}


def read_states(
    origin: run_dirs.Origin,
    config: configs.Config,
    agent: base.Agent,
    like: base.TrainState,
    report: Callable[[str], None],
) -> dict[str, base.Params]:
    """Returns fields of a player's train state from another run's newest checkpoint, as in `states.learned`.

    like: a train state of the agent, of which shapes are enough. Errors are those of `make`.
    """

    def fetch(copy: run_copy.Copy) -> None:
        if "-" in origin.player:
            copy.fetch_player(origin.player)
        else:
            copy.fetch_state()

    with run_copy.local(origin.place, fetch) as path:
        there = run_dirs.read_saved(path).config
        run_dirs.check_origin_agent(origin, there, config)
        directory = path / "checkpoints"
        try:
            if "-" in origin.player:
                wanted = states.snapshot(agent, like)
                frozen = player_files.read(directory, origin.player, wanted.params, wanted.scales)
                given = states.fields_of(agent, like, states.PlayerSnapshot(frozen.params, frozen.scales))
                step = frozen.step
            else:
                given, found, skipped = _newest(directory, origin, agent, like)
                step = found.step
                for text in skipped.values():
                    report(f"--init_from={origin.text}: {text}")
        except _Misfit as misfit:
            raise errors.ResumeError(_advice(misfit, origin, there, config)) from None
    report(f"starts from update {step} of {origin.text}; optimizer and counters begin at 0")
    if missing := sorted(set(agent.scales) - given.keys()):
        report(f"that checkpoint lacks the statistics {', '.join(missing)}: they begin at 0, too")
    return given


class _Misfit(Exception):
    """Describes a checkpoint's arrays with other shapes, in one text for each."""


def _advice(misfit: _Misfit, origin: run_dirs.Origin, there: configs.Config, here: configs.Config) -> str:
    named = "; ".join(misfit.args[:_MOST_NAMED])
    more = f"; and {len(misfit.args) - _MOST_NAMED} more" if len(misfit.args) > _MOST_NAMED else ""
    differing = run_dirs.differing(there, here)
    why = f"settings differ: {'; '.join(differing)}" if differing else "the environments differ"
    return (
        f"--init_from={origin.text}: that run's parameters do not fit this run: {named}{more}. Probably because "
        f"{why}; give the settings of that run, and an environment with its observations and actions"
    )


class _Found(NamedTuple):
    """An array of a checkpoint, and the directory that contains it."""

    part: str
    leaf: trees.TreeLeaf


def _newest(
    directory: pathlib.Path, origin: run_dirs.Origin, agent: base.Agent, like: base.TrainState
) -> tuple[dict[str, base.Params], manifest.Manifest, dict[int, str]]:
    """Returns the fields of a learning player in the newest whole checkpoint.

    Returns the checkpoint's manifest, too, and why newer ones were skipped, by step. Raises _Misfit.
    """
    path, found, skipped = saved_files.find(directory, "last", "state")
    saved_files.check_has_state(directory.parent, found)
    prefix = _prefix(origin, [part for part in found.arrays if saved_files.part_of(part) == saved_files.PARAMS])
    there = {
        leaf.name: _Found(part, leaf)
        for part in (f"{prefix}{saved_files.PARAMS}", f"{prefix}{checkpoint.STATE}")
        for leaf in found.arrays.get(part, ())
    }
    try:
        given = {
            name: _load(path, there, f"{prefix}{key}", tree)
            for name, (key, tree) in _saved_as(agent, like).items()
            if name not in agent.scales or any(_is_below(leaf, f"{prefix}{key}") for leaf in there)
        }
    except errors.CheckpointError:
        if path.is_dir():
            raise
        return _newest(directory, origin, agent, like)  # its learner has deleted it in the meantime
    return given, found, skipped


def _saved_as(agent: base.Agent, like: base.TrainState) -> dict[str, tuple[str, trees.Tree]]:
    """Returns the key in checkpoints, and the tree, of each field to read; see `states.parts`."""
    acting, fields = agent.acting(like), states.learned(agent, like)
    if acting is fields.get("params"):
        return {name: (name, tree) for name, tree in fields.items()}
    apart = {name: tree is getattr(acting, name, None) for name, tree in fields.items()}
    return {name: (f"{'params' if apart[name] else 'train'}/{name}", tree) for name, tree in fields.items()}


def _prefix(origin: run_dirs.Origin, parts: Sequence[str]) -> str:
    """Returns the prefix of a player's part names; raises ResumeError if the checkpoint lacks the player."""
    players = {part.split("/")[1]: part.removesuffix(saved_files.PARAMS) for part in parts if "/" in part}
    players = players or {league_config.MAIN: ""}
    player = origin.player or (league_config.MAIN if league_config.MAIN in players else "")
    if player in players:
        return players[player]
    raise errors.ResumeError(
        f"--init_from={origin.text}: "
        + (f"there is no player {player}" if player else "its policies have names")
        + f"; give --init_from={origin.place}:PLAYER, one of {', '.join(players)}"
    )


def _is_below(name: str, key: str) -> bool:
    return name == key or name.startswith(f"{key}/")


def _load(path: pathlib.Path, there: Mapping[str, _Found], key: str, like: trees.Tree) -> trees.Tree:
    """Returns the tree under a key as numpy arrays. Raises _Misfit for missing, superfluous and different arrays."""
    wanted = {leaf.name: leaf for leaf in trees.describe({key: like})}
    found = {name: one for name, one in there.items() if _is_below(name, key)}
    shapes = {name: trees.shape_text(leaf) for name, leaf in wanted.items()}
    saved = {name: trees.shape_text(one.leaf) for name, one in found.items()}
    nothing = trees.shape_text(None)
    texts = [
        f"{name} is {saved.get(name, nothing)} there and {shapes.get(name, nothing)} here"
        for name in {**shapes, **saved}
        if saved.get(name) != shapes.get(name)
    ]
    if texts:
        raise _Misfit(*texts)
    arrays: dict[str, np.ndarray] = {}
    for part in {one.part for one in found.values()}:
        leaves = [one.leaf for one in found.values() if one.part == part]
        arrays |= dict(zip([leaf.name for leaf in leaves], trees.load(path / part, leaves), strict=True))
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in wanted])


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
    pool, sizes = player_pool(config, here[0].spec), [setup.layout.num_shards for setup in here]
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
        trains = make_states(saves, here, where, seeds)
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
    begins &= not np.any(np.asarray(rings.reward) > 0)  # else what random actions look for is found
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
