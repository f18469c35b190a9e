"""The snapshots that are frozen players: few on the devices of each place, more on the host, all in files."""

from __future__ import annotations

import collections
from collections.abc import Callable

import jax

from seedzero.device import states


class ParamsPool:
    """Caches of snapshots by name; the least recently used go first. Used by the loop's thread.

    load: reads a player's snapshot from its files; raises CheckpointError. put: each puts one onto the devices of a
    place. on_devices, on_host: most players of each cache; each place has one on its devices.
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
        """Keeps a snapshot that is on a place's devices; a call of its own may follow before it is computed."""
        here = self._devices[place]
        here[name] = snapshot
        here.move_to_end(name)
        while len(here) > self._on_devices:
            oldest, found = here.popitem(last=False)
            if oldest not in self._host:  # another place may have put it there
                self._host[oldest] = jax.device_get(found)
            self._host.move_to_end(oldest)
        while len(self._host) > self._on_host:
            self._host.popitem(last=False)

    def get(self, name: str, place: int = 0) -> states.PlayerSnapshot:
        """Returns a player's snapshot on a place's devices. Raises CheckpointError for damaged or missing files."""
        found = self._devices[place].get(name)
        if found is None:
            kept = self._host.pop(name, None)
            if kept is None:
                kept = next((cache[name] for cache in self._devices if name in cache), None)
            found = self._put[place](self._load(name) if kept is None else kept)
        self.add(name, found, place)
        return found

    def forget(self, name: str) -> None:
        """Drops a player."""
        for cache in self._devices:
            cache.pop(name, None)
        self._host.pop(name, None)
