"""Copies the acting parameters of learning players to other places for matches there."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from seedzero.agents import base
from seedzero.device import apart, meshes
from seedzero.loop import places, players


class _Visitor(NamedTuple):
    """A copy, and a weak reference to a leaf of its source, which returns None once that is deleted."""

    params: base.Params
    source: Any


class Visitors:
    """The newest copies that are ready, so that no match waits for an update in another place.

    In lock step, copies are always of the newest published parameters, and calls wait for these. Used by the loop's
    thread.
    """

    def __init__(self, *, lock_step: bool) -> None:
        self._lock_step = lock_step
        self._copies: dict[tuple[str, int], _Visitor] = {}

    def welcome(self, player: players.Player, here: Sequence[places.Place]) -> None:
        """Makes the first copies of a player before its updates begin. here: all places of the run."""
        for place in here:
            self.params(player, place)

    def params(self, player: players.Player, place: places.Place) -> base.Params:
        """Returns a player's published parameters on a place's devices.

        Only the first copy may have to be waited for.
        """
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
        """Drops the copies of a retired player."""
        self._copies = {key: copy for key, copy in self._copies.items() if key[0] != name}
