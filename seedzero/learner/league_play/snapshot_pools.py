"""Caches the parameters of frozen players: a few on each place's devices, more on the host, and all in files."""

from __future__ import annotations

import collections
from collections.abc import Callable

import jax

from seedzero.config import configs
from seedzero.device import states

_ON_HOST = 16
"""At least this many frozen players keep their parameters in the host's memory, besides those on devices."""


class ParamsPool:
    """Caches snapshots by name and drops the least recently used ones; used by the loop's thread.

    load: reads a player's snapshot from its files, or raises CheckpointError. put: one function for each place, which
    copies a snapshot to its devices. on_devices, on_host: limits of the caches; each place has one on its devices.
    """

    def __init__(
        self,
        load: Callable[[str], states.PlayerSnapshot],
        *put: Callable[[states.PlayerSnapshot], states.PlayerSnapshot],
        on_devices: int,
        on_host: int,
    ) -> None:
        self._load, self._put = load, put
        self._on_devices, self._on_host = on_devices, on_host
        self._devices: list[collections.OrderedDict[str, states.PlayerSnapshot]] = [
            collections.OrderedDict() for _ in put
        ]
        self._host: collections.OrderedDict[str, states.PlayerSnapshot] = collections.OrderedDict()

    def add(self, name: str, snapshot: states.PlayerSnapshot, place: int = 0) -> None:
        """Adds a snapshot on a place's devices, which may still be being computed."""
        here = self._devices[place]
        here[name] = snapshot
        here.move_to_end(name)
        while len(here) > self._on_devices:
            oldest, found = here.popitem(last=False)
            if oldest not in self._host:  # another place may have copied it to the host
                self._host[oldest] = jax.device_get(found)
            self._host.move_to_end(oldest)
        while len(self._host) > self._on_host:
            self._host.popitem(last=False)

    def get(self, name: str, place: int = 0) -> states.PlayerSnapshot:
        """Returns a player's snapshot on a place's devices.

        Raises CheckpointError if its files are damaged or missing.
        """
        found = self._devices[place].get(name)
        if found is None:
            kept = self._host.pop(name, None)
            if kept is None:
                kept = next((cache[name] for cache in self._devices if name in cache), None)
            found = self._put[place](self._load(name) if kept is None else kept)
        self.add(name, found, place)
        return found

    def forget(self, name: str) -> None:
        """Drops a player from all caches."""
        for cache in self._devices:
            cache.pop(name, None)
        self._host.pop(name, None)


def most_on_devices(config: configs.Config, num_players: int) -> int:
    """Returns the most frozen players on a place's devices, for active sets and running matches."""
    return config.league.active * num_players + 2


def most_on_host(config: configs.Config) -> int:
    """Returns the most frozen players in the host's memory, besides those on devices."""
    return max(_ON_HOST, most_on_devices(config, config.league.most_players))
