from __future__ import annotations

import itertools

import numpy as np
import pytest

from seedzero.config import configs, league_config, presets
from seedzero.device import placements
from seedzero.league import members
from seedzero.learner.league_play import group_homes


def _pool() -> members.Pool:
    return members.initial_pool(league_config.LeagueConfig(main_exploiters=1, max_players=3))


def test_groups_take_the_first_players_in_turn_and_change_with_them() -> None:
    pool = _pool()
    found = group_homes.GroupHomes(8, 2, pool)
    assert found.table.tolist() == [0, 0, 1, 1, 0, 0, 1, 1] and found.of_groups == [0, 1, 0, 1]
    pool, _ = members.add(pool, "main")
    assert found.change(pool).tolist() == [6, 7] and found.of_groups == [0, 1, 0, 2]
    assert found.change(pool.retire("main_exploiter_0")).tolist() == [2, 3]  # to the player with fewer groups
    assert found.of_groups == [0, 2, 0, 2] and found.table.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert [np.flatnonzero(mine).tolist() for mine in found.mine()] == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_the_last_group_may_be_smaller() -> None:
    pool = _pool()
    found = group_homes.GroupHomes(5, 2, pool)
    pool, _ = members.add(pool, "main")
    assert found.change(pool).tolist() == [4] and found.table.tolist() == [0, 0, 1, 1, 2]


def test_a_checkpoint_brings_the_homes_back() -> None:
    pool, _ = members.add(_pool(), "main")
    pool = pool.retire("main_exploiter_0")
    found = group_homes.GroupHomes(8, 2, _pool())
    found.restore([2, 0, 0, 2], pool)
    assert found.table.tolist() == [1, 1, 0, 0, 0, 0, 1, 1] and found.of_groups == [2, 0, 0, 2]
    for damaged in ([0, 2], [0, 1, 0, 2], [0, "2", 0, 2]):
        with pytest.raises(ValueError, match="the homes of groups are"):
            found.restore(damaged, pool)  # type: ignore[arg-type]


def test_a_run_whose_groups_stay_saves_no_homes() -> None:
    found = group_homes.GroupHomes(8, 2, _pool())
    found.restore(None, _pool())
    assert found.of_groups == [0, 1, 0, 1]


PLACES = np.repeat([0, 1, 0, 1, 0, 1, -1], [2, 2, 2, 2, 2, 2, 1])
"""Six groups of two slots, which two places take in turn, and a slot in none."""


def test_groups_stay_in_their_place_as_players_come_and_go() -> None:
    pool = _pool()
    found = group_homes.GroupHomes(13, 2, pool, PLACES)
    assert found.of_groups == [0, 1, 0, 1, 0, 1, -1]
    pool, _ = members.add(pool, "main")
    found.where[2] = 0
    assert found.change(pool).tolist() == [4, 5] and found.of_groups == [0, 1, 2, 1, 0, 1, -1]
    pool = pool.retire("main_exploiter_0")
    del found.where[1]
    assert found.change(pool).tolist() == [2, 3, 6, 7, 10, 11]  # nobody is left in the second place
    assert found.of_groups == [0, -1, 2, -1, 0, -1, -1]
    assert [np.flatnonzero(mine).tolist() for mine in found.mine()] == [[0, 1, 8, 9], [4, 5]]
    again = group_homes.GroupHomes(13, 2, _pool(), PLACES)
    again.where = {0: 0, 2: 0}
    again.restore(found.of_groups, pool)
    assert again.of_groups == found.of_groups
    pool, _ = members.add(pool, "main_exploiter")
    found.where[3] = 1
    assert found.change(pool).tolist() == [2, 3, 6, 7, 10, 11] and found.of_groups == [0, 3, 2, 3, 0, 3, -1]


def test_where_players_are_dealt_over_other_devices_their_groups_begin_anew() -> None:
    pool = _pool()
    saved = group_homes.GroupHomes(8, 2, pool)
    assert saved.of_groups == [0, 1, 0, 1]
    found = group_homes.GroupHomes(8, 2, pool, np.repeat([0, 0, 1, 1], 2))
    found.restore(saved.of_groups, pool)
    assert found.of_groups == [0, 0, 1, 1]


def _dealt(num_devices: int, pool: members.Pool) -> group_homes.GroupHomes:
    """Returns the homes of a start on so many devices, as a checkpoint of other devices finds them."""
    chosen = {"league.max_players": 3, "worker.envs_per_group": 4, "replay.num_slots": 24, "batcher.max_batch": 24}
    config = configs.override(presets.get("league-tictactoe"), {**chosen, "replay.batch_size": 8})
    planned = placements.plan(config, num_devices)
    places = placements.table([one.layout for one in planned]) if len(planned) > 1 else None
    found = group_homes.GroupHomes(24, 4, members.initial_pool(config.league), places)
    numbers = [pool.of(name).number for name in pool.learning]
    found.where |= {number: at % len(planned) for at, number in enumerate(numbers)}
    return found


def _pools() -> dict[str, members.Pool]:
    """Returns the players of a league to which a builder adds, and from which it retires."""
    first = members.initial_pool(league_config.LeagueConfig(max_players=3))
    two, _ = members.add(first, "main_exploiter")
    three, _ = members.add(two, "league_exploiter")
    fewer = three.retire("main_exploiter_0")
    return {"one": first, "two": two, "three": three, "one retired": fewer, "again": members.add(fewer, "main")[0]}


@pytest.mark.parametrize(("was", "now"), list(itertools.product((1, 2, 3, 4), repeat=2)))
@pytest.mark.parametrize("players", _pools())
def test_a_league_of_any_players_is_dealt_to_other_devices(was: int, now: int, players: str) -> None:
    pool = _pools()[players]
    saved, found = _dealt(was, pool), _dealt(now, pool)
    saved.change(pool)
    found.restore(saved.of_groups, pool)
    numbers = {pool.of(name).number for name in pool.learning}
    taken = {found.where[number] for number in numbers}
    for home, place in zip(found.of_groups, found._places, strict=True):
        assert (home == group_homes.NOBODY) == (place not in taken), found.of_groups
        assert home == group_homes.NOBODY or found.where[home] == place
    assert set(found.of_groups) - {group_homes.NOBODY} == numbers  # nobody is without environments
    if was == now:
        assert found.of_groups == saved.of_groups
