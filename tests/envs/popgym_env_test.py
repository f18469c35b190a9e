"""POPGym's ids: which there are, and what is said where the package is missing; a stand-in registers one."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from seedzero.config import families, sections
from seedzero.core import errors, types
from seedzero.envs import popgym_env, registry

HAS_POPGYM = importlib.util.find_spec(popgym_env.PACKAGE) is not None
_STANDIN = """
import gymnasium

if "popgym-RepeatPreviousEasy-v0" not in gymnasium.registry:
    gymnasium.register("popgym-RepeatPreviousEasy-v0", "gymnasium.envs.classic_control:CartPoleEnv")
    gymnasium.register("popgym-CountRecallHard-v0", "gymnasium.envs.classic_control:CartPoleEnv")
"""


@pytest.fixture
def popgym(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package, or a stand-in with two ids."""
    before = set(gymnasium.registry)
    if not HAS_POPGYM:
        (tmp_path / "popgym.py").write_text(_STANDIN)
        monkeypatch.syspath_prepend(tmp_path)
    yield
    if not HAS_POPGYM:
        sys.modules.pop("popgym", None)
        for added in set(gymnasium.registry) - before:
            del gymnasium.registry[added]


@pytest.mark.usefixtures("popgym")
def test_an_id_is_gymnasium_s_of_the_package() -> None:
    registry.check_id("popgym:RepeatPreviousEasy-v0")
    made = registry.make("popgym:RepeatPreviousEasy-v0", sections.EnvConfig(max_episode_steps=5), 2)
    step = made.reset([1, 2])
    assert step.observation.shape[0] == 2 and step.observation.dtype == np.float32
    for _ in range(5):
        assert not step.final.any()
        step = made.step(np.zeros(2, np.int32))
    assert step.truncated.all()
    made.close()


@pytest.mark.usefixtures("popgym")
def test_an_unknown_id_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        errors.ConfigError, match=r"'popgym:RepeatPreviousEsy-v0'.*'RepeatPreviousEsy-v0'.*RepeatPreviousEasy-v0"
    ):
        registry.check_id("popgym:RepeatPreviousEsy-v0")


def test_without_the_package_its_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def missing(name: str, *more: Any) -> Any:
        return None if name == "popgym" else found(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", missing)
    registry.check_id("popgym:Whatever-v0")  # the workers' machines may have it
    with pytest.raises(errors.EnvironmentFailure, match=r"need the package popgym, .*pip install .*popgym"):
        registry.make("popgym:RepeatPreviousEasy-v0", sections.EnvConfig(), 1, role=types.Role.TRAIN)
    assert "popgym" in families.of("popgym:X").offers[0].state
