from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import golden
import pytest

from seedzero.league import players as members


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
    assert pool.of("main") == members.Member("main", "main", learns=True, version=40, env_steps=400)
    assert pool.of("main-3d") == member


def test_a_removed_player_leaves_the_number_of_snapshots() -> None:
    pool = _pool().without("main-1b")
    assert pool.frozen == ("main-0a", "main-2c") and pool.num_frozen == 3
    with pytest.raises(ValueError, match="main is main"):
        pool.without("main")
    with pytest.raises(ValueError, match="'main-1b'; there are main, main-0a, main-2c"):
        pool.of("main-1b")


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="'main-1b', 'main-1b'"):
        members.Pool(_pool().members[:3]).freeze("main", "1b", version=0, env_steps=0)


@pytest.mark.parametrize("digits", ["../x", "0G", ""])
def test_a_name_is_one_of_a_folder(digits: str) -> None:
    with pytest.raises(ValueError, match="name is 'main-"):
        members.Pool().freeze("main", digits, version=0, env_steps=0)


def test_digits_of_deterministic_runs_follow_from_seed_and_number() -> None:
    found = [members.digits_of(seed, number) for seed in range(10) for number in range(100)]
    assert len(set(found)) == 1000 and {len(digits) for digits in found} == {12}
    assert members.digits_of(0, 0) == found[0]
    assert all(set(digits) <= set("0123456789abcdef") for digits in found)


def test_a_checkpoint_brings_the_pool_back() -> None:
    assert members.Pool.from_json(json.loads(json.dumps(_pool().to_json()))) == _pool()


def _damaged(*path: Any, value: Any) -> Any:
    values = copy.deepcopy(_pool().to_json())
    inner = values
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return values


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
        (_damaged("members", 1, "learns", value=True), "learns is True"),
        (_damaged("members", 1, "version", value=-1), "version is -1"),
        (_damaged("members", 1, "env_steps", value=1.5), "1.5"),
        (_damaged("members", 1, "parent", value=""), "parent is ''"),
        (_damaged("num_frozen", value=2), "num_frozen is 2"),
        (_damaged("num_frozen", value=True), "num_frozen is True"),
    ],
)
def test_a_damaged_pool_is_refused(values: Any, named: str, said: golden.Said) -> None:
    with pytest.raises(ValueError, match=named) as raised:
        members.Pool.from_json(values)
    said(raised.value, named)


def test_the_kind_says_whether_a_player_learns() -> None:
    pool = _pool()
    assert [member.learns for member in pool.members] == [True, False, False, False]
    assert dataclasses.asdict(pool.members[0]) == pool.members[0].to_json()
