from __future__ import annotations

import dataclasses

from seedzero.config import league_config
from seedzero.league import members


def _pool() -> members.Pool:
    """Returns main with two snapshots, one of them retired, and an exploiter with a snapshot before each reset."""
    pool = members.initial_pool(league_config.LeagueConfig(main_exploiters=1))
    pool, old = pool.freeze("main", "0a", version=10, env_steps=1_000, reason="every 1,000 steps")
    for number, digits in enumerate(("0b", "0c"), 1):
        counts = dict(version=20 * number, env_steps=2_000 * number)
        pool, _ = pool.freeze("main_exploiter_0", digits, **counts, reason="wins 0.80 or more against 1 player")
        source = "initial" if number == 1 else old.name
        pool = pool.reset("main_exploiter_0", source=source, **counts, reason=f"reason {number}")
    pool, _ = pool.freeze("main", "0d", version=60, env_steps=6_000)
    pool = pool.trained("main_exploiter_0", version=70, env_steps=7_000)
    return pool.trained("main", version=70, env_steps=7_000).retire("main-0a")


def test_each_learning_player_has_its_snapshots_and_resets_in_their_order() -> None:
    main, exploiter = members.lineage_tree(_pool())
    assert (main["name"], main["version"], main["kind"]) == ("main", 70, "main")
    assert [(event["player"], event["retired"]) for event in main["events"]] == [("main-0a", True), ("main-0d", False)]
    assert main["events"][0] == {
        "event": "freeze",
        "player": "main-0a",
        "version": 10,
        "env_steps": 1_000,
        "reason": "every 1,000 steps",
        "retired": True,
    }
    kinds = [(event["event"], event["version"]) for event in exploiter["events"]]
    assert kinds == [("freeze", 20), ("reset", 20), ("freeze", 40), ("reset", 40)]
    assert [event["source"] for event in exploiter["events"][1::2]] == ["initial", "main-0a"]
    assert [event["reason"] for event in exploiter["events"][1::2]] == ["", "reason 2"]


def test_added_players_begin_and_retired_ones_end_their_lines() -> None:
    pool = dataclasses.replace(_pool(), max_players=3)
    pool, _ = members.add(pool, "main", source="main-0d", reason="continues from there")
    pool, _ = pool.freeze("main_exploiter_0", "0e", version=80, env_steps=8_000, reason="beaten")
    pool = pool.retire("main_exploiter_0", "beaten")
    _, exploiter, added = members.lineage_tree(pool)
    kinds = [event["event"] for event in exploiter["events"]]
    assert kinds == ["freeze", "reset", "freeze", "reset", "freeze", "retire"]
    assert exploiter["events"][-1] == {"event": "retire", "version": 80, "env_steps": 8_000, "reason": "beaten"}
    assert [(event["event"], event["source"]) for event in added["events"]] == [("add", "main-0d")]
    assert members.lineage_text(pool).splitlines() == [
        "main (main): update 70, 7,000 steps",
        "├─ main-0a: update 10, 1,000 steps; every 1,000 steps; retired",
        "└─ main-0d: update 60, 6,000 steps",
        "main_exploiter_0 (main_exploiter): update 80, 8,000 steps",
        "├─ main_exploiter_0-0b: update 20, 2,000 steps; wins 0.80 or more against 1 player",
        "├─ reset 1 to initial: update 20, 2,000 steps",
        "├─ main_exploiter_0-0c: update 40, 4,000 steps; wins 0.80 or more against 1 player",
        "├─ reset 2 to main-0a: update 40, 4,000 steps",
        "├─ main_exploiter_0-0e: update 80, 8,000 steps; beaten",
        "└─ retired: update 80, 8,000 steps; beaten",
        "main_1 (main): update 0, 0 steps",
        "└─ added as main-0d: update 0, 0 steps; continues from there",
    ]


def test_the_tree_is_text_for_a_terminal() -> None:
    *_, last = lines = members.lineage_text(_pool()).splitlines()
    assert len(lines) == 8 and last == "└─ reset 2 to main-0a: update 40, 4,000 steps; reason 2"
    assert members.lineage_text(members.Pool()) == "main (main): update 0, 0 steps"
