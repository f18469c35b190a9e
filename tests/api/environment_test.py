"""What an environment shows, asked before training."""

from __future__ import annotations

import pathlib

import pytest

from seedzero.api import environment
from seedzero.config import sections
from seedzero.core import errors, types

_MODULE = """
import os
import sys
import gymnasium
from gymnasium import spaces

class Talking(gymnasium.Env):
    observation_space, action_space = spaces.Box(-float("inf"), 1, (4,)), spaces.Box(-1, 1, (2,))
    def __init__(self):
        print("a banner")
        print("a warning", file=sys.stderr)

class Crashing(Talking):
    def __init__(self):
        os._exit(3)

for kind in (Talking, Crashing):
    gymnasium.register(f"{kind.__name__}-v0", entry_point=kind)
"""


@pytest.fixture
def _module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talking_envs.py").write_text(_MODULE)


@pytest.mark.usefixtures("_module")
def test_a_user_s_module_shows_its_spec_whatever_it_prints() -> None:
    found = environment.spec_of(sections.EnvConfig(id="gym:talking_envs:Talking-v0"))
    assert found == types.EnvSpec((4,), "float32", 0, observation_high=1, action_low=(-1, -1), action_high=(1, 1))


@pytest.mark.usefixtures("_module")
def test_one_that_ends_its_process_is_named() -> None:
    with pytest.raises(errors.ConfigError, match=r"talking_envs:Crashing-v0: its process ended with exit code 3"):
        environment.spec_of(sections.EnvConfig(id="gym:talking_envs:Crashing-v0"))


def test_environments_of_this_package_are_asked_here_and_remote_ones_not_at_all() -> None:
    assert environment.spec_of(sections.EnvConfig(id="remote")) is None
    found = environment.spec_of(sections.EnvConfig(id="catch"))
    assert found is not None and found.num_actions == 3
    with pytest.raises(errors.ConfigError, match=r"--env=gym:CartPole-v1: .*ClipAction\(\) cannot wrap"):
        environment.spec_of(sections.EnvConfig(id="gym:CartPole-v1", wrappers='["ClipAction"]'))
