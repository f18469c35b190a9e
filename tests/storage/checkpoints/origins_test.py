"""The text of --init_from=RUN[:PLAYER]."""

from __future__ import annotations

import pathlib

import pytest

from seedzero.config import configs
from seedzero.storage.checkpoints import origins


@pytest.mark.parametrize(
    ("text", "place", "player"),
    [
        ("/runs/one", "/runs/one", ""),
        ("/runs/one:main", "/runs/one", "main"),
        ("/runs/one:main-0123456789ab", "/runs/one", "main-0123456789ab"),
        ("/runs/12:30", "/runs/12:30", ""),
        ("gs://bucket/one", "gs://bucket/one", ""),
        ("gs://bucket/one:wolf", "gs://bucket/one", "wolf"),
    ],
)
def test_a_player_follows_the_run(text: str, place: str, player: str) -> None:
    found = origins.parse(text)
    assert found == (place, player)
    assert found.text == text and origins.parse(found.text) == found


def test_a_path_becomes_absolute_and_a_directory_keeps_its_colon(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one:two").mkdir()
    assert origins.parse("one:three") == (str(tmp_path / "one"), "three")
    assert origins.parse("one:two") == (str(tmp_path / "one:two"), "")


def test_settings_that_explain_other_shapes_are_those_of_network_and_agent() -> None:
    here = configs.of_agent("ppo")
    there = configs.override(here, {"network.width": 32, "ppo.squash": True, "run.seed": 4, "optimizer.clip_norm": 9})
    assert origins.differing(there, here) == [
        "--network.width=32 there, 64 here",
        "--ppo.squash=true there, false here",
    ]
