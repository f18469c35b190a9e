"""Copies of learning players' acting parameters in other places than their own, for matches there."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from seedzero.agents import base
from seedzero.device import apart, meshes
from seedzero.loop import places, players


class _Visitor(NamedTuple):
    """A copy, and a function for a leaf of its source, which returns None once that is gone."""

    params: base.Params
    source: Any


class Visitors:
    """The newest computed copies: no match waits for another place's update under way.

    In lock step each is of the newest published parameters, and its calls wait for these. Used by the loop's thread.
    """

    def __init__(self, *, lock_step: bool) -> None:
        self._lock_step = lock_step
        self._copies: dict[tuple[str, int], _Visitor] = {}

    def welcome(self, player: players.Player, here: Sequence[places.Place]) -> None:
        """Makes the first copies of a player, before it has updates under way; here: the run's places."""
        for place in here:
            self.params(player, place)

    def params(self, player: players.Player, place: places.Place) -> base.Params:
        """Returns a player's published parameters on the devices of a place; only the first copy may wait."""
        if player.place is place:
            return player.params
        newest = jax.tree.leaves(player.params)[0]
        found = self._copies.get((player.name, place.number))
        is_old = found is None or found.source() is not newest
        if found is None or (is_old and (self._lock_step or apart.is_there(player.params))):
            copied = jax.device_put(player.params, meshes.replicated(place.setup.mesh))
            found = self._copies[player.name, place.number] = _Visitor(copied, weakref.ref(newest))
        return found.params

    def forget(self, name: str) -> None:
        """Drops the copies of a player that has retired."""
        self._copies = {key: copy for key, copy in self._copies.items() if key[0] != name}
