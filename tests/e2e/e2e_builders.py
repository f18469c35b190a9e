"""Builders of leagues in end-to-end tests, which decide at every call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from seedzero.league import builders, members, payoffs


def wild(
    pool: members.Pool, _: payoffs.Payoff, counts: Mapping[str, Any], arguments: Mapping[str, Any], key: int
) -> list[builders.Action]:
    """Freezes each learning player, resets two of three to any source, and retires all but the newest snapshots."""
    random, past = np.random.default_rng(key), pool.past()
    actions = [builders.Action("retire", name, reason="old") for name in past[:-4]]
    for name in pool.learning:
        actions.append(builders.Action("freeze", name, reason="always"))
        if random.random() < 0.67:
            sources = [members.INITIAL, *(other for other in (*pool.learning, *past[-4:]) if other != name)]
            actions.append(builders.Action("reset", name, sources[random.integers(len(sources))], "wild"))
    return actions


def coming(
    pool: members.Pool, payoff: payoffs.Payoff, counts: Mapping[str, Any], arguments: Mapping[str, Any], key: int
) -> list[builders.Action]:
    """Freezes main, adds players of any kind and source while there is room, and retires them after some updates."""
    random, past = np.random.default_rng(key), pool.past()
    actions = [builders.Action("freeze", "main"), *(builders.Action("retire", name) for name in past[:-4])]
    stay = [name for name in pool.learning if name == "main" or not counts[name].updates or random.random() < 0.5]
    actions += [builders.Action("retire", name, reason="its time") for name in pool.learning if name not in stay]
    sources = [members.INITIAL, *stay, *past[-4:]]
    for _ in range(pool.max_players - len(stay)):
        kind = members.LEARNING[random.integers(len(members.LEARNING))]
        actions.append(builders.Action("add", kind, sources[random.integers(len(sources))], "more"))
    return actions
