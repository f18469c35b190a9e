"""What is no Gymnasium environment, by class and package and with the way out."""

from __future__ import annotations

import sys
import types
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces

from seedzero.config import sections
from seedzero.core import errors
from seedzero.envs import gym_env, gym_kinds


def _of(package: str, **attributes: Any) -> Any:
    """Returns an object of a user's class, whose base is of a package."""
    base = type("Env", (), {"__module__": f"{package}.core", **attributes})
    return type("Mine", (base,), {"__module__": "my_module"})()


OTHERS: dict[str, tuple[Any, str]] = {
    "old gym": (
        _of("gym", observation_space=spaces.Discrete(2)),
        "is my_module.Mine, of the package gym; .*shimmy.GymV26",
    ),
    "pettingzoo": (
        _of("pettingzoo"),
        "is my_module.Mine, of the package pettingzoo; .*--env=pettingzoo:MODULE:FUNCTION",
    ),
    "dm_env": (_of("dm_env"), "is my_module.Mine, of the package dm_env; .*shimmy.DmControl"),
    "vector": (
        gymnasium.make_vec("CartPole-v1", 2),
        r"is gymnasium\..*VectorEnv, of the package gymnasium; .*envs_per_group",
    ),
    "a vector of others": (_of("stable_baselines3", num_envs=2), "is .*package my_module; .*single environment"),
    "unknown": (_of("simulators"), "is my_module.Mine, of the package my_module; .*gymnasium.Env"),
    "no return": (None, "is None; .*`return env`"),
    "a class": (gymnasium.Env, r"is the class gymnasium\.core\.Env itself; .*Env\(\)"),
    "a tuple": ((1, 2), "is a tuple; .*gymnasium.Env"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_no_gymnasium_environment_is_named(other: str) -> None:
    made, message = OTHERS[other]
    with pytest.raises(errors.EnvironmentFailure, match=f"'make' {message}"):
        gym_env.GymVectorEnv("make", [lambda: made])


@pytest.mark.parametrize("given", [{}, {"max_episode_steps": 5}, {"wrappers": '["FlattenObservation"]'}], ids=str)
def test_a_user_s_function_is_told_before_wrappers_fail(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("of_a_user")
    module.make = lambda: None
    monkeypatch.setitem(sys.modules, "of_a_user", module)
    with pytest.raises(errors.EnvironmentFailure, match=r"'python:of_a_user:make' is None"):
        gym_env.from_user_code("of_a_user:make", sections.EnvConfig(**given), 1)


@pytest.mark.parametrize("place", ["observation_space", "action_space"])
@pytest.mark.parametrize("space", [None, _of("gym")], ids=["none", "old"])
def test_a_space_that_is_not_gymnasium_s_is_named(place: str, space: Any) -> None:
    env = gymnasium.make("CartPole-v1").unwrapped
    setattr(env, place, space)
    with pytest.raises(errors.EnvironmentFailure, match=rf"has (no {place}|the {place} my_module.Mine, .*); "):
        gym_kinds.checked("mine", env)


@pytest.mark.parametrize(("version", "wrapper"), [("0.21.0", "GymV21"), ("0.26.2", "GymV26")])
def test_an_id_of_the_old_gym_is_told(version: str, wrapper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"Old-v0": object()}
    registry: Any = types.SimpleNamespace(env_specs=known) if wrapper == "GymV21" else known
    for name, attributes in (("gym", {"__version__": version}), ("gym.envs.registration", {"registry": registry})):
        module = types.ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "of_a_user", types.ModuleType("of_a_user"))
    with pytest.raises(errors.EnvironmentFailure, match=rf"'Old-v0' with the old .*shimmy\.{wrapper}"):
        gym_env.make("of_a_user:Old-v0", sections.EnvConfig(), 1)
    with pytest.raises(errors.EnvironmentFailure, match="registers no 'Other-v0' with Gymnasium"):
        gym_env.make("of_a_user:Other-v0", sections.EnvConfig(), 1)
