"""Opponents of groups: active sets of several learning players, and turns through them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from seedzero.config import league_config
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
