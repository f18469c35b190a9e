from __future__ import annotations

import pytest

from seedzero.config import league_config, options


@pytest.mark.parametrize(
    ("values", "asked", "off"),
    [
        ({}, "", "--league.freeze_every=0"),
        ({"freeze_every": 500}, "--league.freeze_every=500", "--league.freeze_every=0"),
        ({"main_exploiters": 1}, "", "--league.freeze_every=0"),
        ({"builder": "self_play"}, "--league.builder=self_play", "--league.freeze_every=0 --league.builder=past"),
        (
            {"builder": "my_rules:build", "freeze_every": 500},
            "--league.builder=my_rules:build",
            "--league.freeze_every=0 --league.builder=past",
        ),
    ],
)
def test_snapshots_by_steps_or_a_builder_make_a_league(values: dict[str, options.Value], asked: str, off: str) -> None:
    settings = league_config.LeagueConfig(**values)  # type: ignore[arg-type]
    assert (settings.on, settings.asked, settings.off) == (bool(asked), asked, off)
