"""Caches of frozen players' parameters: bounded, and filled from files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seedzero.core import errors
from seedzero.learner.league_play import snapshot_pools


class World:
    """A pool whose files hold a number for each player."""

    def __init__(self, *, on_devices: int, on_host: int) -> None:
        self.loaded: list[str] = []
        self.placed: list[float] = []
        self.pool = snapshot_pools.ParamsPool(self._load, self._place, on_devices=on_devices, on_host=on_host)

    def _load(self, name: str) -> np.ndarray:
        if name == "damaged":
            raise errors.CheckpointError("player damaged: its sha256 differs")
        self.loaded.append(name)
        return np.array(float(name.removeprefix("main-")))

    def _place(self, params: np.ndarray) -> np.ndarray:
        self.placed.append(float(params))
        return params


def test_the_least_recently_used_leaves_the_devices_and_then_the_host() -> None:
    world = World(on_devices=2, on_host=1)
    for number in range(4):
        world.pool.add(f"main-{number}", np.array(float(number)))
    assert not world.loaded and not world.placed
    assert world.pool.get("main-3") == 3 and not world.placed  # still on the devices
    assert world.pool.get("main-1") == 1 and world.placed == [1.0] and not world.loaded  # was on the host
    assert world.pool.get("main-0") == 0 and world.loaded == ["main-0"]  # from its files
    assert world.pool.get("main-1") == 1 and world.loaded == ["main-0"]


def test_damaged_files_are_named_and_a_forgotten_player_is_read_again() -> None:
    world = World(on_devices=2, on_host=2)
    with pytest.raises(errors.CheckpointError, match="damaged"):
        world.pool.get("damaged")
    world.pool.get("main-1")
    world.pool.forget("main-1")
    world.pool.get("main-1")
    assert world.loaded == ["main-1", "main-1"]


def test_each_place_has_its_own_players_and_all_share_the_hosts() -> None:
    placed, loaded = [], []

    def put(place: int) -> Any:
        return lambda params: placed.append((place, float(params))) or params

    def load(name: str) -> Any:
        loaded.append(name)
        return np.array(float(name.removeprefix("main-")))

    pool = snapshot_pools.ParamsPool(load, put(0), put(1), on_devices=1, on_host=9)
    pool.add("main-1", np.array(1.0), 1)
    assert pool.get("main-1", 1) == 1 and not placed
    assert pool.get("main-1", 0) == 1 and placed == [(0, 1.0)] and not loaded  # from the other place's devices
    assert pool.get("main-2", 0) == 2 and loaded == ["main-2"]
    assert pool.get("main-2", 1) == 2 and loaded == ["main-2"]
    assert pool.get("main-1", 1) == 1 and loaded == ["main-2"] and placed[-1] == (1, 1.0)  # from the host
    pool.forget("main-2")
    assert pool.get("main-2", 0) == 2 and loaded == ["main-2", "main-2"]
