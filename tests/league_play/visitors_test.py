"""Copies of players' parameters in other places: matches take the newest that is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from seedzero.device import apart, meshes
from seedzero.league_play import visitors


def _place(number: int) -> Any:
    mesh = meshes.part(meshes.make(2), (number,))
    return SimpleNamespace(number=number, setup=SimpleNamespace(mesh=mesh))


class World:
    """A player at home in the first of two places; `there` tells whether its newest parameters are computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, lock_step: bool) -> None:
        self.home, self.other, self.there = _place(0), _place(1), True
        self.visitors = visitors.Visitors(lock_step=lock_step)
        self.player: Any = SimpleNamespace(name="main", place=self.home)
        self.publish(0)
        monkeypatch.setattr(apart, "is_there", lambda tree: self.there)

    def publish(self, number: int) -> None:
        self.player.params = {"w": jax.device_put(jnp.full(2, float(number)), jax.devices()[0])}

    def seen(self) -> float:
        found = self.visitors.params(self.player, self.other)["w"]
        assert found.devices() == {jax.devices()[1]}
        return float(found[0])


def test_a_match_elsewhere_takes_the_newest_parameters_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, lock_step=False)
    assert world.seen() == 0
    world.there = False
    world.publish(1)
    assert world.seen() == 0  # an update is under way, and delays nobody
    world.there = True
    assert world.seen() == 1
    before = world.visitors.params(world.player, world.other)
    assert world.visitors.params(world.player, world.other) is before  # copied once
    assert world.visitors.params(world.player, world.home) is world.player.params


def test_in_lock_step_a_match_elsewhere_takes_the_newest_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, lock_step=True)
    world.there = False
    for number in range(3):
        world.publish(number)
        assert world.seen() == number


def test_copies_of_a_player_that_has_retired_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, lock_step=False)
    world.seen()
    world.visitors.forget("main_1")
    assert world.visitors._copies.keys() == {("main", 1)}
    world.visitors.forget("main")
    assert not world.visitors._copies
