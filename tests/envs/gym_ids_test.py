"""Ids of Gymnasium that every process knows, and those of one program."""

from __future__ import annotations

import functools

import gymnasium
import pytest

from seedzero.core import errors
from seedzero.envs import gym_env, gym_ids


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)


def _make() -> None:
    pass


def test_ids_of_gymnasium_and_its_families_are_everywhere() -> None:
    gym_env.register("MinAtar/Breakout-v1")
    for known in ("CartPole-v1", "CartPole", "ALE/Pong-v5", "MinAtar/Breakout-v1"):
        assert gym_ids.registered(known) and not gym_ids.foreign(known)
    for unknown in ("Nothing-v0", "Nothing", "a b", "x/y/z"):
        assert gym_ids.registered(unknown) == gym_ids.foreign(unknown) == ""


@pytest.mark.parametrize(
    ("entry", "name"),
    [("a.b:Make", "a.b:Make"), (_make, f"{__name__}:_make"), (functools.partial(_make), "functools:partial")],
)
def test_an_entry_has_a_module_and_a_name(entry: object, name: str) -> None:
    gymnasium.register("Mine-v1", entry_point=entry)  # type: ignore[arg-type]
    assert gym_ids.registered("Mine-v1") == gym_ids.registered("Mine") == gym_ids.foreign("Mine") == name
    gym_ids.check_same("Mine", name)
    with pytest.raises(errors.EnvironmentFailure, match=r"gym:elsewhere[.]envs:Mine, .*python:elsewhere[.]envs:NAME"):
        gym_ids.check_same("Mine", "elsewhere.envs:Mine")


def test_what_only_a_script_has_is_to_go_into_a_module() -> None:
    with pytest.raises(errors.EnvironmentFailure, match="gym:my_module:Mine-v0"):
        gym_ids.check_same("Mine-v0", "__main__:Mine")


def test_the_game_behind_an_id_of_ale_is_known() -> None:
    for name in ("ALE/MsPacman-v5", "ALE/MsPacman", "MsPacmanNoFrameskip-v4", "MsPacman-v4"):
        assert gym_ids.game(name) == "ms_pacman"
    gymnasium.register("Ram-v0", entry_point="ale_py.env:AtariEnv", kwargs={"game": "pong", "obs_type": "ram"})
    assert gym_ids.game("Ram-v0") == gym_ids.game("CartPole-v1") == gym_ids.game("Nothing-v0") == ""
