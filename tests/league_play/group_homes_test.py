from __future__ import annotations

import numpy as np
import pytest

from seedzero.config import league_config
from seedzero.league import members
from seedzero.league_play import group_homes


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
