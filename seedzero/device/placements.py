"""Divides learning players between devices: a run's places each have their own devices, players and slots.

They depend only on the numbers of devices and players, so every start of a run finds the same places.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from seedzero.config import configs
from seedzero.core import errors
from seedzero.device import batches


class Placement(NamedTuple):
    """The numbers of a place's devices and players; main players have the lowest numbers."""

    devices: tuple[int, ...]
    players: tuple[int, ...]


class PlannedPlace(NamedTuple):
    """A place with its layout of slots and its sizes of acting batches, as in `batches.plan`."""

    placement: Placement
    layout: batches.Layout
    sizes: tuple[int, ...]


def deal(num_devices: int, num_players: int, divides: Callable[[int], bool] = lambda number: True) -> list[Placement]:
    """Divides players and devices into places.

    If there are enough devices, each player has a place, and the first players get one of the remaining devices each.
    A place leaves devices unused if batches or groups cannot be divided by their number. With fewer devices than
    players, each device is a place, and players are dealt to them in turn.

    Args:
      num_devices: at least 1.
      num_players: at least 1; a single player gets all devices.
      divides: whether that number of devices can share a batch and a group of environments.
    """
    if num_players == 1:
        return [Placement(tuple(range(num_devices)), (0,))]
    if num_devices < num_players:
        return [Placement((device,), tuple(range(device, num_players, num_devices))) for device in range(num_devices)]
    least, num_more = divmod(num_devices, num_players)
    found, begin = list[Placement](), 0
    for player in range(num_players):
        number = next(number for number in range(least + (player < num_more), 0, -1) if number == 1 or divides(number))
        found.append(Placement(tuple(range(begin, begin + number)), (player,)))
        begin += number
    return found


def of(config: configs.Config, num_devices: int) -> list[Placement]:
    """Returns a run's places on this many devices."""
    shared = (*config.agent.shared(config).values(), config.worker.envs_per_group)
    return deal(num_devices, config.league.most_players, lambda number: not any(size % number for size in shared))


def plan(config: configs.Config, num_devices: int, *, has_seats: bool = False) -> list[PlannedPlace]:
    """Returns a run's places with their slots; groups of environments are dealt to the players in turn.

    A group's slots are spread over the devices of its place; slots after the last whole group belong to no place. The
    first place has the evaluation slots. Automatic values of the configuration must be resolved. Raises ConfigError if
    there are fewer groups than places need.
    """
    found = of(config, num_devices)
    if len(found) == 1:
        layout, sizes = batches.plan(config, len(found[0].devices), has_seats=has_seats)
        return [PlannedPlace(found[0], layout, sizes)]
    num_slots, size = config.replay.num_slots, config.worker.envs_per_group
    # the player of each group, once all players learn
    players: np.ndarray = np.arange(num_slots // size) % config.league.most_players
    planned = list[PlannedPlace]()
    for placement in found:
        groups = np.flatnonzero(np.isin(players, placement.players))
        if not groups.size:
            raise errors.ConfigError(
                f"--replay.num_slots={num_slots} has room for {len(players)} groups of environments, and each of "
                f"{config.league.most_players} learning players on {num_devices} devices needs one; give "
                f"--replay.num_slots={config.league.most_players * size} or more"
            )
        own = dataclasses.replace(config, replay=dataclasses.replace(config.replay, num_slots=len(groups) * size))
        if planned:
            own = dataclasses.replace(own, evaluation=dataclasses.replace(own.evaluation, every_updates=0))
        layout, sizes = batches.plan(own, len(placement.devices), has_seats=has_seats)
        planned.append(
            PlannedPlace(placement, layout._replace(numbers=_numbers(num_slots, size, groups, layout)), sizes)
        )
    return planned


def _numbers(num_slots: int, size: int, groups: np.ndarray, layout: batches.Layout) -> np.ndarray:
    """Returns this place's numbers [S] of a run's slots, as in `Layout`. groups: the place's groups, [G] ascending."""
    per_shard = size // layout.num_shards
    shard, local = np.arange(size) % layout.num_shards, np.arange(size) // layout.num_shards
    here = shard * layout.train_per_shard + np.arange(len(groups))[:, None] * per_shard + local
    found = np.full(num_slots, -1)
    found[(groups[:, None] * size + np.arange(size)).reshape(-1)] = here.reshape(-1)
    return found


def text(found: Sequence[Placement], names: Sequence[str], num_devices: int) -> str:
    """Describes the places of the named players, or returns "" if all share the only place."""
    if len(found) == 1:
        return ""
    places = [
        f"{', '.join(names[player] for player in place.players if player < len(names)) or 'players to come'} on "
        f"device{'s' * (len(place.devices) > 1)} {', '.join(map(str, place.devices))}"
        for place in found
    ]
    rest = num_devices - sum(len(place.devices) for place in found)
    left = f"; {rest} left over, which batches and groups of environments don't divide by" if rest else ""
    return f"learning players: {'; '.join(places)}{left}"


def table(layouts: Sequence[batches.Layout]) -> np.ndarray:
    """Returns the place [S] of each training slot, or -1 if it has none. layouts: those of all places."""
    is_there = np.stack([layout.is_here for layout in layouts])
    return np.where(is_there.any(axis=0), is_there.argmax(axis=0), -1)
