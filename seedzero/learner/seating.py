"""Chooses the players that a run begins with, and their seating."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from seedzero.config import configs, seats_config
from seedzero.core import types
from seedzero.device import states
from seedzero.league import members
from seedzero.learner import saving
from seedzero.learner.league_play import league_seating
from seedzero.learner.loop import places, players, rosters, seatings
from seedzero.storage.checkpoints import player_files


def pool(config: configs.Config, spec: types.EnvSpec) -> members.Pool:
    """Returns the players of a new run: a league's, or one for each policy."""
    if names := seats_config.policies(config, spec.seats):
        return members.of_policies(tuple(dict.fromkeys(names)))
    return members.initial_pool(config.league)


def make(
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
