"""Rejects what is not a Gymnasium environment: objects of other packages, vectors of environments, or nothing."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
from gymnasium import spaces, vector

from seedzero.core import errors

_FUNCTION = "--env=python:MODULE:FUNCTION"
_SHIMMY = "of the package shimmy"


def checked(name: str, made: Any) -> gymnasium.Env[Any, Any]:
    """Returns an object if it is a Gymnasium environment with Gymnasium's spaces.

    Raises EnvironmentFailure otherwise.
    """
    if not isinstance(made, gymnasium.Env):
        raise errors.EnvironmentFailure(f"environment {name!r} is {_described(made)}; {_way_out(made)}")
    for place in ("observation_space", "action_space"):
        found = getattr(made, place, None)
        if not isinstance(found, spaces.Space):
            came = f"no {place}" if found is None else f"the {place} {_described(found)}"
            raise errors.EnvironmentFailure(
                f"environment {name!r} has {came}; expected a space of gymnasium.spaces: set it in __init__"
            )
    return made


def registered_with_gym(env_id: str) -> str:
    """Ends a message about an id that a module registers with the package gym; "" if it does not."""
    registration = sys.modules.get("gym.envs.registration")
    registry = getattr(registration, "registry", {})
    if env_id not in getattr(registry, "env_specs", registry):  # the registry before gym 0.26
        return ""
    wrapper = f"{_gym_wrapper()}(env_id={env_id!r})"
    return f"with the old package gym; return shimmy.{wrapper} ({_SHIMMY}) in your own function: {_FUNCTION}"


def _described(made: Any) -> str:
    """Returns an object's class and package."""
    if made is None:
        return "None"
    if isinstance(made, type):
        return f"the class {made.__module__}.{made.__qualname__} itself"
    kind = type(made)
    if kind.__module__ == "builtins":
        return f"a {kind.__name__}"
    return f"{kind.__module__}.{kind.__qualname__}, of the package {_package(made)}"


def _package(made: Any) -> str:
    """Returns the known package of one of an object's classes, or else the package of its own class."""
    packages = [kind.__module__.partition(".")[0] for kind in type(made).__mro__]
    return next((package for package in packages if package in _WAYS), packages[0])


def _way_out(made: Any) -> str:
    if made is None:
        return "the function that makes it has no return: end it with `return env`"
    if isinstance(made, type):
        return f"return an environment of it: {made.__name__}()"
    if isinstance(made, vector.VectorEnv) or isinstance(getattr(made, "num_envs", None), int):
        return "return a single environment: seedzero makes as many as --worker.envs_per_group says, and steps them"
    if (package := _package(made)) == "gym":
        return f"return shimmy.{_gym_wrapper()}(env=env) ({_SHIMMY}), or make it a gymnasium.Env, gym's successor"
    return _WAYS.get(package) or (
        f"expected a gymnasium.Env: make it a subclass, or return one around it from your own function: {_FUNCTION}"
    )


def _gym_wrapper() -> str:
    version = str(getattr(sys.modules.get("gym"), "__version__", "0.26")).split(".")
    is_early = version[0] == "0" and int(version[1]) < 26
    return "GymV21CompatibilityV0" if is_early else "GymV26CompatibilityV0"


_WAYS = {
    "gym": "",  # depends on its version
    "dm_env": "return shimmy.DmControlCompatibilityV0(env) (of the package shimmy[dm-control])",
    "pettingzoo": "its environments have several agents: give --env=pettingzoo:MODULE:FUNCTION",
}
"""Package -> what to do about its environments."""
