"""The values of every preset and agent are those that the file resolved.json keeps.

There, row "" has what all agents share, and an agent's rows what differs from it. A preset's row has values, those on
a CPU over them, and those for other environments.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

from seedzero.config import configs, options, presets

KEPT: dict[str, dict[str, Any]] = json.loads((pathlib.Path(__file__).parent / "resolved.json").read_text())
BOARDS = {"tictactoe", "connect_four", "spiel", "league-tictactoe", "league-connect-four"}
"""Presets of games, for which PPO and V-trace have no row."""
Values = Mapping[str, options.Value]


def _differences(kept: Values, now: Values) -> dict[str, tuple[options.Value, options.Value | None]]:
    return {
        name: (value, now.get(name))
        for name, value in kept.items()
        if (type(value), value) != (type(now.get(name)), now.get(name))
    }


@pytest.mark.parametrize("agent", sorted(KEPT.keys() - {""}))
def test_every_preset_has_the_values_that_are_kept(agent: str) -> None:
    plain = {**KEPT[""][""], **KEPT[agent][""]}
    assert not _differences(plain, configs.flatten(configs.of_agent(agent)))
    for preset in KEPT[""].keys() - {""} - (BOARDS if agent in ("ppo", "vtrace") else set()):
        (values, on_cpu), own = KEPT[""][preset], [*KEPT[agent].get(preset, []), {}, {}, {}]
        kept = {**plain, **values, **own[0]}
        now = presets.get(preset, agent)
        assert not _differences(kept, configs.flatten(now)), preset
        now_on_cpu = configs.override(now, presets.cpu_values(preset, agent, explicit=frozenset()))
        assert not _differences({**kept, **on_cpu, **own[1]}, configs.flatten(now_on_cpu)), preset
        assert not _differences(own[2], presets.part(preset, agent).elsewhere), preset
