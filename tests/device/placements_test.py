"""Players over devices: the places of a run, and the slots of each."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.config import configs, options
from seedzero.core import errors
from seedzero.device import placements


@pytest.mark.parametrize(
    ("num_devices", "num_players", "devices", "players"),
    [
        (4, 10, [1, 1, 1, 1], [(0, 4, 8), (1, 5, 9), (2, 6), (3, 7)]),
        (8, 3, [3, 3, 2], [(0,), (1,), (2,)]),
        (8, 2, [4, 4], [(0,), (1,)]),
        (2, 5, [1, 1], [(0, 2, 4), (1, 3)]),
        (1, 4, [1], [(0, 1, 2, 3)]),
        (3, 3, [1, 1, 1], [(0,), (1,), (2,)]),
        (5, 2, [3, 2], [(0,), (1,)]),
        (5, 1, [5], [(0,)]),
    ],
)
def test_players_are_dealt_over_devices(
    num_devices: int, num_players: int, devices: list[int], players: list[tuple[int, ...]]
) -> None:
    found = placements.deal(num_devices, num_players)
    assert [len(place.devices) for place in found] == devices
    assert [place.players for place in found] == players
    used = [device for place in found for device in place.devices]
    assert used == list(range(sum(devices))) and sum(devices) <= num_devices


def test_a_place_leaves_devices_that_its_batches_cannot_use() -> None:
    found = placements.deal(8, 3, lambda number: 64 % number == 0)
    assert [place.devices for place in found] == [(0, 1), (2, 3), (4, 5)]
    alone = placements.deal(3, 1, lambda number: 64 % number == 0)  # is refused with its reason elsewhere
    assert [place.devices for place in alone] == [(0, 1, 2)]


def _config(**changes: options.Value) -> configs.Config:
    values: dict[str, options.Value] = {
        "league.freeze_every": 1000,
        "league.main_exploiters": 1,
        "worker.envs_per_group": 4,
        "worker.num_groups": 4,
        "replay.num_slots": 18,
        "replay.batch_size": 8,
        "batcher.max_batch": 8,
        "evaluation.every_updates": 10,
        "evaluation.num_envs": 2,
    }
    return configs.override(configs.Config(), values | {name.replace("__", "."): to for name, to in changes.items()})


def test_groups_take_the_places_in_turn_and_spread_over_a_places_devices() -> None:
    first, second = placements.plan(_config(), 4)
    groups = np.arange(16).reshape(4, 4)
    assert first.layout.num_slots == second.layout.num_slots == 18
    assert np.flatnonzero(first.layout.is_here).tolist() == groups[[0, 2]].reshape(-1).tolist()
    assert np.flatnonzero(second.layout.is_here).tolist() == groups[[1, 3]].reshape(-1).tolist()
    assert placements.table([first.layout, second.layout]).tolist() == [0] * 4 + [1] * 4 + [0] * 4 + [1] * 4 + [-1] * 2
    assert (first.layout.num_evaluate, second.layout.num_evaluate) == (2, 0)
    assert (first.sizes, second.sizes) == ((1, 2, 4), (1, 2, 4))
    for place, mine in ((first, groups[[0, 2]]), (second, groups[[1, 3]])):
        for slots in mine:  # half of a group is on each device
            shard, local = place.layout.place(slots)
            assert shard.tolist() == [0, 1, 0, 1] and (local < place.layout.train_per_shard).all()
        assert sorted(place.layout.ring(mine.reshape(-1)).tolist()) == list(range(8))
    shard, local = first.layout.place(np.array([18, 19]))  # those of evaluations are behind all training slots
    assert (shard.tolist(), local.tolist()) == ([0, 1], [4, 4])


def test_a_property_of_slots_goes_to_the_rings_of_a_place() -> None:
    _, second = placements.plan(_config(), 2)
    assert second.layout.own(np.arange(18)).tolist() == [4, 5, 6, 7, 12, 13, 14, 15]
    (alone,) = placements.plan(_config(), 1)
    assert alone.layout.own(np.arange(18)).tolist() == list(range(18)) and alone.layout.numbers is None
    assert placements.table([alone.layout]).tolist() == [0] * 18


def test_places_without_groups_are_named() -> None:
    with pytest.raises(errors.ConfigError, match=r"--replay\.num_slots=4 .*\b1\b.*\b2\b.*--replay\.num_slots=8"):
        placements.plan(_config(replay__num_slots=4), 2)


def test_the_start_tells_which_player_learns_where() -> None:
    names = ("main", "main_exploiter_0", "league_exploiter_0")
    assert placements.text(placements.deal(1, 3), names, 1) == ""
    two = placements.text(placements.deal(2, 3), names, 2)
    assert "main, league_exploiter_0 on device 0; main_exploiter_0 on device 1" in two
    eight = placements.text(placements.deal(8, 3, lambda number: 64 % number == 0), names[:2], 8)
    assert "main on devices 0, 1; main_exploiter_0 on devices 2, 3; players to come on devices 4, 5; 2 left" in eight
