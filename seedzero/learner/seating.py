"""Chooses the players that a run begins with, and their seating if agents have their own policies."""

from __future__ import annotations

from collections.abc import Sequence

from seedzero.config import configs, seats_config
from seedzero.core import types
from seedzero.league import members
from seedzero.loop import players, seat_homes, seatings


def pool(config: configs.Config, spec: types.EnvSpec) -> members.Pool:
    """Returns the players of a new run: a league's, or one for each policy."""
    if names := seats_config.policies(config, spec.seats):
        return members.of_policies(tuple(dict.fromkeys(names)))
    return members.initial_pool(config.league)


def without_league(
    config: configs.Config, spec: types.EnvSpec, learning: Sequence[players.Player]
) -> seatings.Seating:
    """Returns the seating of one player, or of players at home in seats, who get their slots here."""
    names = seats_config.policies(config, spec.seats)
    if not names:
        return seatings.Seating()
    numbers = {player.name: number for number, player in enumerate(learning)}
    homes = seat_homes.SeatHomes([numbers[name] for name in names])
    table = homes.table(config.replay.num_slots)
    for number, player in enumerate(learning):
        player.mine = table == number
    return homes
