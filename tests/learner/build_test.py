"""The hosts' train states are compared now and then; the device's part is imitated (`tests/device/across_test.py`)."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, cast

import jax
import numpy as np
import pytest

from seedzero.core import errors
from seedzero.device import across
from seedzero.learner import build

SAME, OTHER = (7, 7, 7, 7), (7, 7, 7, 9)
"""Checksums of two hosts with two devices each."""


class Strategy(across.AcrossHosts):
    """Gives the checksums that a test says; the train state is the number of comparisons."""

    def __init__(self) -> None:
        self.checksums = SAME

    def align(self, run: Any, train: Any) -> tuple[Any, jax.Array]:
        assert run == {"align": None}
        return train + 1, cast(Any, np.array(self.checksums, np.uint32))


class World:
    """A player at an update, and a log of calls on their way, totals of metrics, and lines for the user."""

    def __init__(self, *, deterministic: bool = False, num_updates: int = 0) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.totals: list[Any] = []
        self.said: list[str] = []
        self.left = 0
        self.strategy = Strategy()
        update = types.SimpleNamespace(result=lambda: types.SimpleNamespace(functions={"align": None}))
        programs = types.SimpleNamespace(update=update)
        place = types.SimpleNamespace(strategy=self.strategy, programs=programs)
        self.player = types.SimpleNamespace(num_updates=num_updates, train=0, place=place)
        dispatcher: Any = types.SimpleNamespace(
            players=(self.player,),
            in_flight=types.SimpleNamespace(add=lambda call, lane: self.waiting.append(call)),
            gathered=types.SimpleNamespace(add_totals=self.totals.append),
        )
        self.alike = build.Alike(
            dispatcher, ("CPU A", "CPU B"), self.said.append, self._leave, deterministic=deterministic
        )

    def _leave(self) -> None:
        self.left += 1

    def update(self, number: int) -> None:
        """Submits so many updates, and waits for their calls."""
        for _ in range(number):
            self.player.num_updates += 1
            self.alike.after_update()
        for call in self.waiting:
            call()
        self.waiting.clear()


def test_equal_hosts_are_compared_at_intervals_and_told_nothing() -> None:
    world = World()
    world.update(2 * build.EVERY_UPDATES + 50)
    assert world.player.train == 2 and world.totals == world.said == []


def test_hosts_that_differ_are_aligned_counted_and_told_once_with_both_processors() -> None:
    world = World()
    world.strategy.checksums = OTHER
    world.update(3 * build.EVERY_UPDATES)
    assert world.totals == [{"hosts_resynced": 1}] * 3
    (text,) = world.said
    assert "host 1 (CPU B)" in text and "host 0 (CPU A)" in text
    assert " every 100 updates " in text and "hosts_resynced" in text and "XLA_FLAGS" in text


def test_a_state_is_compared_once_before_it_is_saved() -> None:
    world = World(num_updates=40)
    world.alike.now()  # as it was given to all
    world.update(1)
    for _ in range(2):
        world.alike.now()
    assert world.player.train == 1
    world.update(build.EVERY_UPDATES - 41)
    world.alike.now()
    assert world.player.train == 2


def test_a_deterministic_run_of_hosts_that_differ_ends_by_name() -> None:
    world = World(deterministic=True)
    world.strategy.checksums = OTHER
    with pytest.raises(errors.ConfigError, match=r"host 1 \(CPU B\).*\b0\b.*--deterministic"):
        world.update(build.EVERY_UPDATES)
    assert world.left == 1
    world.player.num_updates += 1
    with pytest.raises(errors.ConfigError):
        world.alike.now()
