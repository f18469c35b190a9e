"""Earlier versions' values beside those of this one; the values in use: the tests of their readers."""

from __future__ import annotations

from seedzero.checkpoints import migrations


def test_counters_of_an_earlier_version_are_filled_in_and_those_of_this_one_stay() -> None:
    earlier = {"num_updates": 7, "best_return": 3.0}
    filled = migrations.counters(earlier, 4.0)
    assert filled == {
        **earlier,
        "num_reanalyses": 0,
        "waiting_steps": 0,
        "num_assigned": 0,
        "highest_return": None,
        "in_last_evaluation": False,
        "left_out": (0, 0),
        "pace": {"since": (0, 0), "samples_per_insert": 4.0},
    }
    now = {name: "saved" for name in filled}
    assert migrations.counters(now, 4.0) == now


def test_a_manifest_without_frozen_players_needs_none() -> None:
    assert migrations.manifest({"step": 7}) == {"step": 7, "frozen": {}}
    now = {"step": 7, "frozen": {"main-0123456789ab": {}}}
    assert migrations.manifest(now) == now


def test_a_learner_with_one_address_is_local_there() -> None:
    earlier = {"address": "127.0.0.1:5000", "pid": 7}
    assert migrations.learner(earlier) == {**earlier, "local": "127.0.0.1:5000"}
    now = {**earlier, "local": "unix:/x"}
    assert migrations.learner(now) == now
