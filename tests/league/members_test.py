from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
import saved_league

from seedzero.config import league_config
from seedzero.league import members


def _pool() -> members.Pool:
    pool = members.Pool()
    for number, digits in enumerate(("0a", "1b", "2c")):
        pool, _ = pool.freeze("main", digits, version=10 * number, env_steps=100 * number)
    return pool.trained("main", version=40, env_steps=400)


def test_a_league_begins_with_one_learning_player() -> None:
    assert members.Pool() == members.Pool((members.Member("main", "main", learns=True),))
    assert members.Pool().frozen == ()


def test_a_snapshot_has_a_name_of_its_own_and_its_parent_s_counts() -> None:
    pool, member = _pool().freeze("main", "3d", version=40, env_steps=401)
    assert member == members.Member("main-3d", "frozen", learns=False, version=40, env_steps=401, parent="main")
    assert pool.frozen == ("main-0a", "main-1b", "main-2c", "main-3d") and pool.num_frozen == 4
    main = members.Member("main", "main", learns=True, version=40, env_steps=400)
    assert pool.of("main") == dataclasses.replace(main, frozen_version=40, frozen_env_steps=401)
    assert pool.of("main-3d") == member


def test_a_removed_player_leaves_the_number_of_snapshots() -> None:
    pool = _pool().without("main-1b")
    assert pool.frozen == ("main-0a", "main-2c") and pool.num_frozen == 3
    with pytest.raises(ValueError, match="main is main"):
        pool.without("main")
    with pytest.raises(ValueError, match="'main-1b'; there are main, main-0a, main-2c"):
        pool.of("main-1b")


def test_digits_of_deterministic_runs_follow_from_seed_and_number() -> None:
    found = [members.digits_of(seed, number) for seed in range(10) for number in range(100)]
    assert len(set(found)) == 1000 and {len(digits) for digits in found} == {12}
    assert members.digits_of(0, 0) == found[0]
    assert all(set(digits) <= set("0123456789abcdef") for digits in found)


_damaged = functools.partial(saved_league.damaged, _pool().to_json())


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (None, "None"),
        ({"members": []}, "num_frozen"),
        (_damaged("members", value={}), "expected a list"),
        (_damaged("members", value=[]), "expected a whole number|learns"),
        (_damaged("members", 1, value={"name": "x"}), "env_steps"),
        (_damaged("members", 1, "name", value="../x"), "'../x'"),
        (_damaged("members", 1, "name", value="main-1b"), "each once"),
        (_damaged("members", 1, "kind", value="thawed"), "'thawed'"),
        (_damaged("members", 1, "learns", value=True), "True, version"),
        (_damaged("members", 1, "version", value=-1), "version is -1"),
        (_damaged("members", 1, "env_steps", value=1.5), "1.5"),
        (_damaged("members", 1, "parent", value=""), "parent is ''"),
        (_damaged("members", 1, "line", value="frozen"), "line is 'frozen'"),
        (_damaged("members", 0, "line", value="main_exploiter"), "line is 'main_exploiter'"),
        (_damaged("members", 0, "retired", value=True), "learns is True"),
        (_damaged("members", 1, "retired", value=1), "retired is 1"),
        (_damaged("members", 0, "number", value=1), "numbers are .1"),
        (_damaged("members", 1, "number", value=1), "number is 1"),
        (_damaged("members", 1, "origin", value="initial"), "origin is 'initial'"),
        (_damaged("members", 1, "frozen_env_steps", value=9), "frozen_env_steps is 9"),
        (_damaged("members", 0, "resets", value=-1), "resets is -1"),
        (_damaged("members", 0, "reset_env_steps", value=9), "reset_env_steps is 9"),
        (_damaged("members", 0, "source", value="initial"), "source is 'initial'"),
        (_damaged("num_frozen", value=2), "num_frozen is 2"),
        (_damaged("num_frozen", value=True), "num_frozen is True"),
    ],
)
def test_a_damaged_pool_is_refused(values: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        members.Pool.from_json(values)


def _league() -> members.Pool:
    settings = league_config.LeagueConfig(main_players=2, main_exploiters=1, league_exploiters=2)
    return members.initial_pool(settings)


def test_the_settings_say_how_many_players_learn() -> None:
    assert members.initial_pool(league_config.LeagueConfig()) == members.Pool()
    assert [(member.name, member.kind, member.line) for member in _league().members] == [
        ("main", "main", "main"),
        ("main_1", "main", "main"),
        ("main_exploiter_0", "main_exploiter", "main_exploiter"),
        ("league_exploiter_0", "league_exploiter", "league_exploiter"),
        ("league_exploiter_1", "league_exploiter", "league_exploiter"),
    ]
    assert _league().learning == tuple(member.name for member in _league().members)
    assert _league().learning_of("main", "league_exploiter")[2:] == ("league_exploiter_0", "league_exploiter_1")


def test_a_reset_counts_and_the_player_s_own_counts_go_on() -> None:
    pool = _league().trained("main_exploiter_0", version=30, env_steps=300)
    pool, first = pool.freeze("main_exploiter_0", "0a", version=30, env_steps=300, reason="beats main")
    pool = pool.reset("main_exploiter_0", source="initial", version=31, env_steps=310, reason="beats main")
    player = pool.of("main_exploiter_0")
    assert (player.version, player.env_steps, player.resets, player.source) == (31, 310, 1, "initial")
    assert (player.reset_version, player.reset_env_steps, player.reason) == (31, 310, "beats main")
    pool, second = pool.freeze("main_exploiter_0", "0b", version=60, env_steps=600)
    assert (first.resets, second.resets, second.reset_version, second.line) == (0, 1, 31, "main_exploiter")
    assert (first.reason, second.reason, second.parent) == ("beats main", "", "main_exploiter_0")
    pool = pool.reset("main_exploiter_0", source=first.name, version=70, env_steps=700)
    assert (pool.of("main_exploiter_0").resets, pool.of("main_exploiter_0").source) == (2, first.name)
    assert members.Pool.from_json(json.loads(json.dumps(pool.to_json()))) == pool


def test_counts_since_are_those_of_the_later_of_snapshot_and_reset() -> None:
    pool = _league()
    assert pool.since("main_1") == (0, 0)
    pool, _ = pool.freeze("main_exploiter_0", "0a", version=30, env_steps=300)
    assert pool.since("main_exploiter_0") == (30, 300) and pool.since("main") == (0, 0)
    pool = pool.reset("main_exploiter_0", source="main", version=31, env_steps=310)
    assert pool.since("main_exploiter_0") == (31, 310)
    pool, member = pool.freeze("main_exploiter_0", "0b", version=32, env_steps=320)
    assert pool.since("main_exploiter_0") == (32, 320)
    assert pool.without(member.name).since("main_exploiter_0") == (32, 320)  # a refused one is not asked for again


def test_a_retired_player_stays_and_leaves_matchmaking() -> None:
    pool = _pool().retire("main-1b")
    assert pool.frozen == _pool().frozen and pool.past() == pool.past(parent="main") == ("main-0a", "main-2c")
    assert pool.past(parent="main_1") == () and pool.of("main-1b").retired
    assert members.Pool.from_json(json.loads(json.dumps(pool.to_json()))) == pool


def _with_room() -> members.Pool:
    settings = league_config.LeagueConfig(main_exploiters=1, max_players=4)
    return members.initial_pool(settings)


def test_an_added_player_has_the_next_name_and_number_of_all_so_far() -> None:
    pool, first = members.add(_with_room(), "main_exploiter", source="main", reason="stuck")
    assert (first.name, first.number, first.origin, first.reason) == ("main_exploiter_1", 2, "main", "stuck")
    assert (first.learns, first.version, first.line) == (True, 0, "main_exploiter") and pool.has_room
    pool, second = members.add(pool.retire("main_exploiter_1"), "main_exploiter")  # no name or number is used again
    pool, third = members.add(pool, "main")
    assert [(one.name, one.number, one.origin) for one in (second, third)] == [
        ("main_exploiter_2", 3, "initial"),
        ("main_1", 4, "initial"),
    ]
    assert pool.learning == ("main", "main_exploiter_0", "main_exploiter_2", "main_1") and not pool.has_room
    read = members.Pool.from_json(json.loads(json.dumps(pool.to_json())))
    assert read == pool and not read.has_room


def test_a_learning_player_that_retires_is_a_frozen_player_from_then_on() -> None:
    pool, _ = _with_room().freeze("main", "0a", version=1, env_steps=10)
    pool = pool.meet("main_exploiter_0", "main-0a")
    pool, last = pool.freeze("main_exploiter_0", "0b", version=7, env_steps=70, reason="beaten")
    pool = pool.retire("main_exploiter_0", "beaten")
    assert last == members.Member(
        "main_exploiter_0-0b",
        "frozen",
        learns=False,
        version=7,
        env_steps=70,
        parent="main_exploiter_0",
        line="main_exploiter",
        reason="beaten",
    )
    ended = pool.of("main_exploiter_0")
    assert (ended.learns, ended.retired, ended.version, ended.env_steps, ended.rival) == (False, True, 7, 70, "")
    assert pool.learning == ("main",) and pool.past() == ("main-0a", last.name) and pool.num_frozen == 2
    assert pool.learning_of("main_exploiter") == ()
    read = members.Pool.from_json(json.loads(json.dumps(pool.to_json())))
    assert read == dataclasses.replace(pool, max_players=1)


def test_a_player_meets_a_rival_alone_and_its_snapshots_do_not() -> None:
    pool = _pool().meet("main", "main-1b")
    assert pool.of("main").rival == "main-1b" and pool.meet("main", "").of("main").rival == ""
    assert pool.freeze("main", "7f", version=99, env_steps=990)[1].rival == ""
    assert members.Pool.from_json(json.loads(json.dumps(pool.to_json()))) == pool


SCRIPTED = league_config.LeagueConfig(freeze_every=1, members="random,mcts-50,spiel:uniform_random(seed=1),a.b:bot")


def test_scripted_members_begin_with_the_league_and_are_no_snapshots() -> None:
    pool = members.initial_pool(SCRIPTED)
    assert pool.learning == ("main",) and pool.frozen == pool.past() == ()
    assert members.scripted(pool) == ("random", "mcts-50", "spiel:uniform_random(seed=1)", "a.b:bot")
    frozen, _ = pool.freeze("main", "0a", version=1, env_steps=1)
    assert members.fixed(frozen) == ("main-0a", *members.scripted(pool)) and frozen.past() == ("main-0a",)
    assert members.Pool.from_json(json.loads(json.dumps(frozen.to_json()))) == frozen
    assert [members.is_frozen(name) for name in ("main-0a", *members.scripted(pool))] == [True, *[False] * 4]
    alone = league_config.LeagueConfig(members="random")
    assert members.scripted(members.initial_pool(alone)) == (), "there is no league"


def test_a_scripted_member_retires_and_may_be_an_only_opponent() -> None:
    pool = members.initial_pool(SCRIPTED).meet("main", "mcts-50")
    assert pool.of("main").rival == "mcts-50"
    retired = pool.retire("mcts-50")
    assert members.scripted(retired) == ("random", "spiel:uniform_random(seed=1)", "a.b:bot")
    assert members.Pool.from_json(retired.to_json()) == retired


def _retired() -> members.Pool:
    """Returns a league with room, whose exploiter has retired."""
    pool, _ = _with_room().freeze("main_exploiter_0", "0b", version=7, env_steps=70)
    return pool.retire("main_exploiter_0")


def _two() -> members.Pool:
    """Returns a league whose newest snapshot is main-1b."""
    return _pool().without("main-2c")


def _full() -> members.Pool:
    return members.initial_pool(league_config.LeagueConfig(main_exploiters=1))


def _scripted() -> members.Pool:
    return members.initial_pool(SCRIPTED)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda: _two().freeze("main", "1b", version=0, env_steps=0), "'main-1b', 'main-1b'"),
        (lambda: _pool().freeze("main", "../x", version=0, env_steps=0), "name is 'main-"),
        (lambda: _pool().freeze("main", "0G", version=0, env_steps=0), "name is 'main-"),
        (lambda: _pool().freeze("main", "", version=0, env_steps=0), "name is 'main-"),
        (lambda: _pool().freeze("main-0a", "3d", version=1, env_steps=1), "main-0a is frozen"),
        (lambda: _pool().retire("main"), "main is evaluated"),
        (lambda: _pool().reset("main-0a", source="initial", version=1, env_steps=1), "main-0a is frozen"),
        (lambda: _pool().reset("main", source="main", version=1, env_steps=1), "its own"),
        (lambda: _pool().reset("main", source="main-9", version=1, env_steps=1), "'main-9'"),
        (lambda: _pool().meet("main", "main_1"), "main_1 is not a frozen or scripted player"),
        (lambda: _pool().meet("main-0a", "main-1b"), "main-0a is frozen"),
        (lambda: members.add(_full(), "main"), "--league.max_players=2"),
        (lambda: members.add(_retired(), "main_1"), "'main_1' is not a kind"),
        (lambda: members.add(_retired(), "frozen"), "'frozen' is not a kind"),
        (lambda: members.add(_retired(), "main", source="main-77"), "'main-77'"),
        (lambda: members.add(_retired(), "main", source="main_exploiter_0"), "main_exploiter_0-0b"),
        (lambda: _retired().reset("main", source="main_exploiter_0", version=0, env_steps=0), "main_exploiter_0-0b"),
        (lambda: _retired().retire("main_exploiter_0"), "main_exploiter_0 is retired"),
        (lambda: _retired().retire("main"), "player main is evaluated"),
        (lambda: _scripted().freeze("random", "0a", version=1, env_steps=1), "random is scripted"),
        (lambda: _scripted().reset("main", source="random", version=1, env_steps=1), "random is .* no parameters"),
        (lambda: _scripted().retire("mcts-50").meet("main", "mcts-50"), "mcts-50"),
    ],
)
def test_changes_that_a_player_s_kind_forbids_are_refused(change: Callable[[], object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        change()
