"""The return of random actions, from a check of an environment to the diagnosis of its runs."""

from __future__ import annotations

import pathlib

import pytest

from seedzero.config import sections
from seedzero.monitoring import random_play

ENV = sections.EnvConfig(id="gym:CartPole-v1")


@pytest.fixture(autouse=True)
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_the_mean_is_known_for_the_same_settings_alone() -> None:
    assert random_play.recall(ENV) is None
    random_play.remember(ENV, [20.0, 24.0, 22.0])
    assert random_play.recall(ENV) == 22.0
    assert random_play.recall(sections.EnvConfig(id="gym:CartPole-v1", max_episode_steps=9)) is None
    small = sections.EnvConfig(id="gym:CartPole-v1", frame_size=42)  # as a CPU makes the frames of a preset
    assert random_play.recall(small) == 22.0
    random_play.remember(ENV, [99.0, 99.0])  # of too few episodes
    assert random_play.recall(ENV) == 22.0
    random_play.remember(ENV, [10.0, 10.0, 10.0])
    assert random_play.recall(ENV) == 10.0


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"mean_return": null}', "\0"])
def test_a_damaged_file_is_none(cache: pathlib.Path, content: str) -> None:
    random_play.remember(ENV, [1.0] * 3)
    (file,) = cache.rglob("*.json")
    file.write_text(content)
    assert random_play.recall(ENV) is None


def test_nothing_depends_on_the_directory(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "seedzero").write_text("a file in its place")
    random_play.remember(ENV, [1.0] * 3)
    assert random_play.recall(ENV) is None
    monkeypatch.setattr(random_play.plain_files, "cache_directory", lambda: None)
    random_play.remember(ENV, [1.0] * 3)
    assert random_play.recall(ENV) is None
