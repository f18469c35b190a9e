"""The parameters of frozen players: few on the devices, more on the host, all in files."""

from __future__ import annotations

import collections
from collections.abc import Callable

import jax

from seedzero.agents import base


class ParamsPool:
    """Caches of parameters by name; the least recently used go first. Used by the loop's thread.

    load: reads a player's parameters from its files; raises CheckpointError. place: puts parameters onto the devices.
    on_devices, on_host: most players of each cache.
    """

    def __init__(
        self,
        load: Callable[[str], base.Params],
        place: Callable[[base.Params], base.Params],
        *,
        on_devices: int,
        on_host: int,
    ) -> None:
        self._load, self._place = load, place
        self._on_devices, self._on_host = on_devices, on_host
        self._devices: collections.OrderedDict[str, base.Params] = collections.OrderedDict()
        self._host: collections.OrderedDict[str, base.Params] = collections.OrderedDict()

    def add(self, name: str, params: base.Params) -> None:
        """Keeps parameters that are on the devices; a call of their own may follow before they are computed."""
        self._devices[name] = params
        self._devices.move_to_end(name)
        while len(self._devices) > self._on_devices:
            oldest, found = self._devices.popitem(last=False)
            self._host[oldest] = jax.device_get(found)
            self._host.move_to_end(oldest)
        while len(self._host) > self._on_host:
            self._host.popitem(last=False)

    def get(self, name: str) -> base.Params:
        """Returns a player's parameters on the devices. Raises CheckpointError for damaged or missing files."""
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
