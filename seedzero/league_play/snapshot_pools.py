"""The snapshots that are frozen players: few on the devices, more on the host, all in files."""

from __future__ import annotations

import collections
from collections.abc import Callable

import jax

from seedzero.device import states


class ParamsPool:
    """Caches of snapshots by name; the least recently used go first. Used by the loop's thread.

    load: reads a player's snapshot from its files; raises CheckpointError. place: puts one onto the devices.
    on_devices, on_host: most players of each cache.
    """

    def __init__(
        self,
        load: Callable[[str], states.PlayerSnapshot],
        place: Callable[[states.PlayerSnapshot], states.PlayerSnapshot],
        *,
        on_devices: int,
        on_host: int,
    ) -> None:
        self._load, self._place = load, place
        self._on_devices, self._on_host = on_devices, on_host
        self._devices: collections.OrderedDict[str, states.PlayerSnapshot] = collections.OrderedDict()
        self._host: collections.OrderedDict[str, states.PlayerSnapshot] = collections.OrderedDict()

    def add(self, name: str, snapshot: states.PlayerSnapshot) -> None:
        """Keeps a snapshot that is on the devices; a call of its own may follow before it is computed."""
        self._devices[name] = snapshot
        self._devices.move_to_end(name)
        while len(self._devices) > self._on_devices:
            oldest, found = self._devices.popitem(last=False)
            self._host[oldest] = jax.device_get(found)
            self._host.move_to_end(oldest)
        while len(self._host) > self._on_host:
            self._host.popitem(last=False)

    def get(self, name: str) -> states.PlayerSnapshot:
        """Returns a player's snapshot on the devices. Raises CheckpointError for damaged or missing files."""
        found = self._devices.get(name)
        if found is None:
            kept = self._host.pop(name, None)
            found = self._place(self._load(name) if kept is None else kept)
        self.add(name, found)
        return found

    def forget(self, name: str) -> None:
        """Drops a player."""
        self._devices.pop(name, None)
        self._host.pop(name, None)
