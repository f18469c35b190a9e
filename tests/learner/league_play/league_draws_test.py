"""Opponents of groups: active sets of several learning players, and turns through them."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

from seedzero.config import configs, league_config, presets
from seedzero.device import setups
from seedzero.league import members, payoffs
from seedzero.learner.league_play import league_draws

SETTINGS = league_config.LeagueConfig(builder="alphastar", main_exploiters=1, active=3, redraw=4)
TABLE = np.repeat([0, 1, 0], 2)


def _make() -> league_draws.Draws:
    draws = league_draws.Draws(SETTINGS, 1, members.initial_pool(SETTINGS), TABLE)
    draws.redraw(payoffs.Payoff(), members.initial_pool(SETTINGS))
    return draws


def _won(player: str, number: int, kind: str = payoffs.SELF_PLAY) -> list[payoffs.Match]:
    return [payoffs.Match(kind, player, "x", 0, 1, 1.0)] * number


def test_each_learning_player_has_opponents_by_its_kind() -> None:
    main, exploiter = _make().homes
    assert set(exploiter.active) == {"main"} and len(exploiter.active) == 3
    assert set(main.active) <= {"main", "main_exploiter_0"}


def test_a_player_s_opponents_are_drawn_anew_after_its_own_matches() -> None:
    draws = _make()
    assert draws.count([*_won("main", 3), *_won("main_exploiter_0", 3)]) == []
    assert draws.count(_won("main", 9, payoffs.EVALUATION)) == []
    assert [home.name for home in draws.count(_won("main_exploiter_0", 1))] == ["main_exploiter_0"]
    assert [home.num_matches for home in draws.homes] == [3, 4]


def test_slots_of_a_group_take_its_opponents_in_turn() -> None:
    draws = _make()
    draws.homes[0].active = ("a", "b", "c")
    draws.homes[1].active = ("d", "e", "f")
    for group, expected in ((0, "abc"), (2, "def"), (4, "abc")):
        slots = np.array([group, group + 1])
        found = [[draws.next(slot, group, slots) for slot in slots.tolist()] for _ in range(3)]
        assert all(one == other for one, other in found)  # the second slot takes what the first one drew
        assert {one for one, _ in found} == set(expected)


def test_slots_that_meet_scripted_members_alone_take_them_in_turns_of_their_own() -> None:
    draws, bots = _make(), ("random", "mcts-2", "roshambo:greenberg", "spiel:fixed", "roshambo:copybot")
    draws.homes[0].active = bots
    slots = np.arange(6)
    found = np.array([[draws.next(slot, 0, slots) for slot in slots.tolist()] for _ in bots])
    assert all(set(row) == set(bots) for row in found.T.tolist())
    assert len(set(found[0].tolist())) > 1
    draws.homes[0].active = (*bots, "main")
    assert len({draws.next(slot, 0, slots) for slot in slots.tolist()}) == 1


def test_a_checkpoint_brings_every_player_s_draws_back() -> None:
    draws = _make()
    draws.redraw(payoffs.Payoff(), members.initial_pool(SETTINGS), draws.homes[1:])
    draws.count(_won("main", 5))
    saved = json.loads(json.dumps(draws.to_json()))
    again = league_draws.Draws(SETTINGS, 1, members.initial_pool(SETTINGS), TABLE)
    again.restore(saved, 0, TABLE)
    assert [dataclasses.asdict(home) for home in again.homes] == [dataclasses.asdict(home) for home in draws.homes]
    assert [home.num_sets for home in again.homes] == [0, 1]
    assert saved.keys() == {"active", "num_sets", "homes"}


def test_a_league_of_one_learning_player_is_saved_as_before() -> None:
    settings = league_config.LeagueConfig(freeze_every=5, active=2)
    draws = league_draws.Draws(settings, 1, members.initial_pool(settings), np.zeros(2, int))
    draws.redraw(payoffs.Payoff(), members.initial_pool(settings))
    assert draws.to_json() == {"active": ["main", "main"], "num_sets": 0}
    again = league_draws.Draws(settings, 1, members.initial_pool(settings), np.zeros(2, int))
    again.restore(draws.to_json(), 7, np.zeros(2, int))
    assert (again.homes[0].num_matches, again.to_json()) == (7, draws.to_json())


def test_groups_that_change_their_home_begin_its_turns_and_the_others_go_on() -> None:
    settings = dataclasses.replace(SETTINGS, max_players=3)
    pool = members.initial_pool(settings)
    draws = league_draws.Draws(settings, 1, pool, TABLE)
    draws.redraw(payoffs.Payoff(), pool)
    slots = {group: np.array([group, group + 1]) for group in (0, 2, 4)}
    for group, found in slots.items():
        draws.next(group, group, found)
    pool, added = members.add(pool, "main_exploiter")
    pool = pool.retire("main_exploiter_0")
    main = draws.homes[0]
    draws.change(pool, np.repeat([0, 1, 1], 2), np.arange(2, 6))
    draws.redraw(payoffs.Payoff(), pool)
    assert draws.homes[0] is main and [home.name for home in draws.homes] == ["main", added.name]
    assert draws.homes[1].number == added.number == 2  # its keys are no other player's
    main.active, draws.homes[1].active = ("a",), ("b",)
    assert draws.next(1, 0, slots[0]) != "a"  # the second slot takes what the first one drew before
    assert [draws.next(group, group, slots[group]) for group in (2, 4)] == ["b", "b"]
    again = league_draws.Draws(settings, 1, members.initial_pool(settings), TABLE)
    again.restore(json.loads(json.dumps(draws.to_json())), 0, TABLE)
    assert [dataclasses.asdict(home) for home in again.homes] == [dataclasses.asdict(home) for home in draws.homes]


def test_a_group_whose_worker_cannot_play_against_an_opponent_takes_the_next_one() -> None:
    draws, slots = _make(), np.array([0, 1])
    draws.homes[0].active = ("a", "b", "c")
    met = [[draws.next(slot, 0, slots, lambda name: name != "b") for slot in (0, 1)] for _ in range(4)]
    assert {one for one, _ in met} == {"a", "c"} and all(one == other for one, other in met)
    assert draws.next(0, 0, slots, lambda name: False) == "main", "without another one it plays against itself"
    draws.homes[0].active = ("b",) * 3
    assert draws.next(1, 0, slots) == "main" and draws.next(0, 0, slots) == "b"
    draws.release(slots)  # another worker takes the slots
    assert [draws.next(slot, 0, slots, lambda name: name != "b") for slot in (0, 1)] == ["main", "main"]


def _pool() -> members.Pool:
    return members.initial_pool(league_config.LeagueConfig(main_exploiters=1, max_players=3))


def test_groups_take_the_first_players_in_turn_and_change_with_them() -> None:
    pool = _pool()
    found = league_draws.GroupHomes(8, 2, pool)
    assert found.table.tolist() == [0, 0, 1, 1, 0, 0, 1, 1] and found.of_groups == [0, 1, 0, 1]
    pool, _ = members.add(pool, "main")
    assert found.change(pool).tolist() == [6, 7] and found.of_groups == [0, 1, 0, 2]
    assert found.change(pool.retire("main_exploiter_0")).tolist() == [2, 3]  # to the player with fewer groups
    assert found.of_groups == [0, 2, 0, 2] and found.table.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert [np.flatnonzero(mine).tolist() for mine in found.mine()] == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_the_last_group_may_be_smaller() -> None:
    pool = _pool()
    found = league_draws.GroupHomes(5, 2, pool)
    pool, _ = members.add(pool, "main")
    assert found.change(pool).tolist() == [4] and found.table.tolist() == [0, 0, 1, 1, 2]


def test_a_checkpoint_brings_the_homes_back() -> None:
    pool, _ = members.add(_pool(), "main")
    pool = pool.retire("main_exploiter_0")
    found = league_draws.GroupHomes(8, 2, _pool())
    found.restore([2, 0, 0, 2], pool)
    assert found.table.tolist() == [1, 1, 0, 0, 0, 0, 1, 1] and found.of_groups == [2, 0, 0, 2]
    for damaged in ([0, 2], [0, 1, 0, 2], [0, "2", 0, 2]):
        with pytest.raises(ValueError, match="the homes of groups are"):
            found.restore(damaged, pool)  # type: ignore[arg-type]


def test_a_run_whose_groups_stay_saves_no_homes() -> None:
    found = league_draws.GroupHomes(8, 2, _pool())
    found.restore(None, _pool())
    assert found.of_groups == [0, 1, 0, 1]


PLACES = np.repeat([0, 1, 0, 1, 0, 1, -1], [2, 2, 2, 2, 2, 2, 1])
"""Six groups of two slots, which two places take in turn, and a slot in none."""


def test_groups_stay_in_their_place_as_players_come_and_go() -> None:
    pool = _pool()
    found = league_draws.GroupHomes(13, 2, pool, PLACES)
    assert found.of_groups == [0, 1, 0, 1, 0, 1, -1]
    pool, _ = members.add(pool, "main")
    found.where[2] = 0
    assert found.change(pool).tolist() == [4, 5] and found.of_groups == [0, 1, 2, 1, 0, 1, -1]
    pool = pool.retire("main_exploiter_0")
    del found.where[1]
    assert found.change(pool).tolist() == [2, 3, 6, 7, 10, 11]  # nobody is left in the second place
    assert found.of_groups == [0, -1, 2, -1, 0, -1, -1]
    assert [np.flatnonzero(mine).tolist() for mine in found.mine()] == [[0, 1, 8, 9], [4, 5]]
    again = league_draws.GroupHomes(13, 2, _pool(), PLACES)
    again.where = {0: 0, 2: 0}
    again.restore(found.of_groups, pool)
    assert again.of_groups == found.of_groups
    pool, _ = members.add(pool, "main_exploiter")
    found.where[3] = 1
    assert found.change(pool).tolist() == [2, 3, 6, 7, 10, 11] and found.of_groups == [0, 3, 2, 3, 0, 3, -1]


def test_where_players_are_dealt_over_other_devices_their_groups_begin_anew() -> None:
    pool = _pool()
    saved = league_draws.GroupHomes(8, 2, pool)
    assert saved.of_groups == [0, 1, 0, 1]
    found = league_draws.GroupHomes(8, 2, pool, np.repeat([0, 0, 1, 1], 2))
    found.restore(saved.of_groups, pool)
    assert found.of_groups == [0, 0, 1, 1]


def _dealt(num_devices: int, pool: members.Pool) -> league_draws.GroupHomes:
    """Returns the homes of a start on so many devices, as a checkpoint of other devices finds them."""
    chosen = {"league.max_players": 3, "worker.envs_per_group": 4, "replay.num_slots": 24, "batcher.max_batch": 24}
    config = configs.override(presets.get("league-tictactoe"), {**chosen, "replay.batch_size": 8})
    planned = setups.plan_places(config, num_devices)
    places = setups.places_table([one.layout for one in planned]) if len(planned) > 1 else None
    found = league_draws.GroupHomes(24, 4, members.initial_pool(config.league), places)
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
        assert (home == league_draws.NOBODY) == (place not in taken), found.of_groups
        assert home == league_draws.NOBODY or found.where[home] == place
    assert set(found.of_groups) - {league_draws.NOBODY} == numbers  # nobody is without environments
    if was == now:
        assert found.of_groups == saved.of_groups
