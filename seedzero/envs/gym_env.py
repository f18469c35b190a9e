"""Plays Gymnasium environments; `gym_spaces` lists the supported observations and actions."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import inspect
import logging
import math
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ale_py  # noqa: F401  # registers Gymnasium's ALE/GAME
import gymnasium
import numpy as np
from gymnasium import spaces, vector
from gymnasium.envs import registration

from seedzero.config import families, sections
from seedzero.core import errors, infos, packages, types, user_code
from seedzero.envs import env_base, gym_ids, gym_protocol, gym_spaces, gym_wrappers

# Plays MinAtar's games as Gymnasium environments, such as gym:MinAtar/Breakout-v1.
MAX_STEPS = 27_000
"""Steps before truncation, as many as in Atari's 108,000 frames, because a good player's game never ends."""

_PLOTTING = ("matplotlib", "seaborn")


def register(env_id: str) -> bool:
    """Returns whether an id is MinAtar's, and registers MinAtar's games if so, because its package does not."""
    if env_id.partition("/")[0].lower() != "minatar":
        return False
    if not any(spec.namespace == "MinAtar" for spec in gymnasium.registry.values()):
        with _without_plotting():
            package = importlib.import_module("minatar.gym")
        package.register_envs()
    return True


@contextlib.contextmanager
def _without_plotting() -> Iterator[None]:
    """Prevents the import of matplotlib and seaborn, which take seconds and 90 MiB, and silences the complaints."""
    silence = logging.NullHandler()
    logging.root.addHandler(silence)  # without a handler, a warning would configure logging
    logging.root.addFilter(drop := lambda record: False)
    try:
        with env_base.imports_without(*_PLOTTING):
            yield
    finally:
        logging.root.removeFilter(drop)
        logging.root.removeHandler(silence)


class Corrected(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Corrects MinAtar 1.0's deviations from Gymnasium.

    - Its seeds have 32 bits.
    - A reset with a seed keeps the last action, which sticky actions may repeat in the new episode.
    - Its pictures need seaborn and have one float pixel per cell.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            seed %= 2**32
            self.get_wrapper_attr("game").last_action = 0
        return super().reset(seed=seed, options=options)

    def render(self) -> Any:
        return env_base.paint(self.get_wrapper_attr("game").state())


# Rejects what is not a Gymnasium environment: objects of other packages, vectors of environments, or nothing.
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


_BRINGERS = {
    **{offer.module: offer.needs for offer in families.of("gym").offers if offer.module},
    "box2d": ("gymnasium[box2d]",),
    "pygame": ("gymnasium[classic-control]",),
}
"""Missing module -> the packages that bring it, as `packages.install_command` takes it."""


def _action_names(env: gymnasium.Env[Any, Any], num_actions: int) -> tuple[str, ...]:
    """Returns the names that an environment gives its actions, as Atari's do, unless a wrapper has other actions."""
    found: tuple[str, ...] = ()
    with contextlib.suppress(Exception):  # foreign code, for a reader's convenience alone
        if env.action_space == env.unwrapped.action_space:
            found = tuple(map(str, env.unwrapped.get_action_meanings()))  # type: ignore[attr-defined]
    are_names = all(name.isprintable() and 0 < len(name) <= 256 for name in found)
    return found if are_names and len(set(found)) == len(found) == num_actions <= types.MAX_ACTION_NAMES else ()


class GymVectorEnv:
    """E copies of a Gymnasium environment, stepped one after another."""

    def __init__(
        self,
        name: str,
        makers: Sequence[Callable[[], gymnasium.Env[Any, Any]]],
        *,
        render: bool = False,
        masks: bool = True,
        info_keys: Sequence[str] = (),
    ) -> None:
        """Makes each environment by calling its function. If masks are in infos, the spec is complete after a reset.

        name: for errors. render: whether they were asked for pictures. masks: whether action masks are used.
        info_keys: as in `gym_protocol.read_infos`.

        Raises EnvironmentFailure for an unknown id, a missing package, an unsupported space, or the environment's
        exception.
        """
        self._name, self._info_keys = name, info_keys
        how = " with render_mode='rgb_array'" if render else ""
        self.num_envs = len(makers)
        unmade = env_base.failures_of(f"environment {name!r} cannot be made{how}, fix this first")
        with unmade, quiet(), env_base.closed_on_error() as envs:
            for make in makers:
                envs.append(checked(name, make()))
            self.originals = [env.unwrapped for env in envs]
            env_base.check_distinct(name, self.originals)
            self.observation_space = envs[0].observation_space
            own = self.observation_space, envs[0].action_space
            self.spec, self._encode, self._decode = gym_spaces.read(name, *own, masks=masks)
            self.spec = dataclasses.replace(self.spec, action_names=_action_names(envs[0], self.spec.num_actions))
            self._sizes = gym_spaces.action_sizes(own[1]) if masks else []
            self._first, self._make = envs[0], makers[0]
            self.statistics = gym_wrappers.keeping_statistics(envs[0])
            for env in envs[1:]:
                self._check_alike(env.observation_space, env.action_space)
            plain: list[Any] = [
                functools.partial(gym_protocol.Checked, name, env, self._sizes, info_keys) for env in envs
            ]
            self._envs = vector.SyncVectorEnv(plain, autoreset_mode=vector.AutoresetMode.NEXT_STEP, copy=False)
            self._checked: list[Any] = self._envs.envs

    @classmethod
    def from_factory(
        cls, make: Callable[[], gymnasium.Env[Any, Any]], num_envs: int, *, info_keys: Sequence[str] = ()
    ) -> GymVectorEnv:
        """Returns E environments made by the caller's function; errors are as above."""
        name = getattr(make, "__name__", "the worker's own environment")
        return cls(name, [make] * num_envs, info_keys=info_keys)

    def try_out(
        self, num_steps: int = 1, *, max_seconds: float = math.inf, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Resets and steps the first environment, up to a time limit, as in `gym_protocol.check`.

        A reset must follow.
        """
        with quiet():
            end = clock() + max_seconds
            of_actions: dict[str, Any] = {"sizes": self._sizes, "decode": self._decode, "info_keys": self._info_keys}
            goes_on = lambda: clock() < end  # noqa: E731
            found = gym_protocol.check(self._name, self._first, num_steps, goes_on=goes_on, **of_actions)
        self.spec = dataclasses.replace(self.spec, has_action_mask=found)

    @property
    def mask_place(self) -> str:
        """Where the environments show masks, in words."""
        return str(self._checked[0].mask_place)

    def check_another(self) -> None:
        """Makes one more environment and raises EnvironmentFailure if its spaces differ."""
        another: Any = None
        # Foreign code, but one environment may suffice; a group that needs another one reports the error.
        with quiet(), contextlib.suppress(Exception):
            another = self._make()
        if another is None:
            return
        env_base.check_distinct(self._name, [*self.originals, getattr(another, "unwrapped", another)])
        with quiet(), contextlib.suppress(Exception), contextlib.closing(another):
            found = another.observation_space, another.action_space
        self._check_alike(*found)

    def _check_alike(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        """Raises EnvironmentFailure if the spaces are not those of the first environment."""
        own = {"observation": self._first.observation_space, "action": self._first.action_space}
        for name, came in (("observation", observation), ("action", action)):
            if came != own[name]:
                raise errors.EnvironmentFailure(
                    f"environment {self._name!r} has another {name} space each time it is made, such as {own[name]} "
                    f"and {came}; expected equal ones, because all environments share one network: pad to the largest"
                )

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        env_base.check_seeds(seeds, self.num_envs)
        with env_base.failures_of(f"environment {self._name!r} raised in reset"), quiet():
            observation, _ = self._envs.reset(seed=[int(seed) for seed in seeds])
        self.spec = dataclasses.replace(self.spec, has_action_mask=self._checked[0].mask is not None)
        return types.EnvStep.first(self._encode(observation))._replace(action_mask=self._masks())

    def step(self, actions: np.ndarray) -> types.EnvStep:
        env_base.check_actions(actions, self.num_envs, self.spec)
        with env_base.failures_of(f"environment {self._name!r} raised in step"):
            observation, reward, terminated, truncated, _ = self._envs.step(self._decode(actions))
        shown = self._encode(observation), reward.astype(np.float32), terminated, truncated
        info = gym_protocol.join_infos(self._name, [env.info for env in self._checked])
        return types.EnvStep(*shown, action_mask=self._masks(), info=info)

    def _masks(self) -> np.ndarray | None:
        """Returns the masks [E, A] of the last observations, or None."""
        masks = [env.mask for env in self._checked]
        if masks[0] is None and all(mask is None for mask in masks):
            return None
        if missing := [index for index, mask in enumerate(masks) if mask is None]:
            raise errors.EnvironmentFailure(
                f"environment {self._name!r} showed {self.mask_place} in its first reset, but not each time it is "
                f"made, such as in environment {missing[0]}; expected it always, or never"
            )
        return np.stack(masks)

    @property
    def frames_per_second(self) -> float | None:
        return declared_speed(self._first)

    def render(self) -> np.ndarray:
        return rendered(self._name, self._first)

    def release(self) -> gymnasium.Env[Any, Any]:
        """Returns the first environment, in its wrappers, which is the caller's from now on."""
        self._envs.closed = True
        first: gymnasium.Env[Any, Any] = self._first
        return first

    def close(self) -> None:
        if not self._envs.closed:
            self._envs.closed = True  # Gymnasium's own way ends at the first environment that raises
            env_base.close_all(self._envs.envs)


class _WithoutOptions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """For a reset without the argument that Gymnasium's groups and wrappers always pass."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed)


def drawing() -> dict[str, str]:
    """Returns the argument for pictures, which are drawn without a display too, unless the user chose a way."""
    # Otherwise SDL looks for a display and complains on stderr, and MuJoCo's OpenGL fails without one.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("MUJOCO_GL", "egl")
    return {"render_mode": "rgb_array"}


def rendered(name: str, env: Any) -> np.ndarray:
    """Returns a picture of environment `name`, of Gymnasium or PettingZoo, [H, W, 3] uint8."""
    with env_base.failures_of(f"environment {name!r} raised in render"), quiet():
        picture = env.render()
    try:
        return env_base.converted(picture)
    except ValueError as error:
        modes = ", ".join(map(str, env.metadata.get("render_modes", []))) or "none"
        raise errors.EnvironmentFailure(
            f"environment {name!r} renders {error}; videos need the render mode rgb_array, and its metadata lists "
            f"{modes}"
        ) from None


def declared_speed(env: Any) -> float | None:
    """Returns the speed that an environment declares for its pictures, if any."""
    declared = env.metadata.get("render_fps")
    return float(declared) if isinstance(declared, int | float) and declared > 0 else None


def make(env_id: str, settings: sections.EnvConfig, num_envs: int, *, render: bool = False) -> GymVectorEnv:
    """Makes E environments in the settings' wrappers. Errors are those of GymVectorEnv.

    env_id: as in gymnasium.make; "module:ID" imports the module first, also from the current directory.
    """
    wrappers = gym_wrappers.parse(settings.wrappers)
    # Not render_mode=None: a user's environment may lack that argument.
    options = {**arguments(settings), **(drawing() if render else {})}

    def make_one() -> gymnasium.Env[Any, Any]:
        if ":" in env_id:
            user_code.add_current_directory()
        with _explained(env_id, gymnasium.error.UnregisteredEnv):
            is_minatar = register(env_id)
            limit = {"max_episode_steps": MAX_STEPS} if is_minatar else {}
            env: Any = gymnasium.make(env_id, disable_env_checker=True, **{**limit, **options})
        return gym_wrappers.apply(Corrected(env) if is_minatar else env, wrappers)

    more: dict[str, Any] = {"masks": settings.action_mask, "info_keys": infos.keys(settings.info_keys)}
    return GymVectorEnv(env_id, [make_one] * num_envs, render=render, **more)


def from_user_code(name: str, settings: sections.EnvConfig, num_envs: int, *, render: bool = False) -> GymVectorEnv:
    """Returns E environments made by a user's function, MODULE:FUNCTION. Errors are those of GymVectorEnv.

    The function is called with the settings' kwargs, and with render_mode="rgb_array" if pictures are needed.
    """
    with env_base.failures_of(f"environment 'python:{name}' cannot be made, fix this first"):
        try:
            make_one = user_code.load(name)
        except errors.ConfigError as error:
            reason = str(error).removeprefix(f"{name!r}: ")
            raise errors.EnvironmentFailure(f"environment 'python:{name}': {reason}") from None
    return from_function(f"python:{name}", make_one, settings, num_envs, render=render)


def from_function(
    env_id: str, make_one: Callable[..., Any], settings: sections.EnvConfig, num_envs: int, *, render: bool = False
) -> GymVectorEnv:
    """Returns E environments made by a function that is called as that of `from_user_code`, with its errors."""
    given = {**arguments(dataclasses.replace(settings, max_episode_steps=0)), **(drawing() if render else {})}
    wrappers = gym_wrappers.parse(settings.wrappers)

    def make_limited() -> gymnasium.Env[Any, Any]:
        try:
            env = checked(env_id, make_one(**given))
        except TypeError as error:
            if render or (error.__traceback__ and error.__traceback__.tb_next):  # raised by the function itself
                raise
            raise errors.EnvironmentFailure(
                f"environment {env_id!r} cannot be made with --env.kwargs={settings.kwargs or '{}'}: {error}; "
                """give all of its arguments that have no default, as in --env.kwargs='{"name": value}'"""
            ) from None
        known = inspect.signature(env.reset).parameters
        if "options" not in known and not any(each.kind is each.VAR_KEYWORD for each in known.values()):
            env = _WithoutOptions(env)
        limit = settings.max_episode_steps
        return gym_wrappers.apply(gymnasium.wrappers.TimeLimit(env, limit) if limit else env, wrappers)

    more: dict[str, Any] = {"masks": settings.action_mask, "info_keys": infos.keys(settings.info_keys)}
    return GymVectorEnv(env_id, [make_limited] * num_envs, render=render, **more)


def check_id(env_id: str) -> None:
    """Raises EnvironmentFailure if Gymnasium does not know the id.

    A module's own ids are only checked for their form.
    """
    module, separator, name = env_id.rpartition(":")
    if separator:
        if not (module and name):
            form = "expected gym:MODULE:ID, as in gym:my_module:MyEnv-v0"
            raise errors.EnvironmentFailure(f"gym:{env_id} is not complete; {form}")
        if module == "__main__":
            raise errors.EnvironmentFailure(f"gym:{env_id}: {user_code.not_a_script(name)}")
        return
    with _explained(env_id, gymnasium.error.Error), quiet():
        register(env_id)
        namespace, name, version = registration.parse_env_id(env_id)
        if version is not None or registration.find_highest_version(namespace, name) is None:
            gymnasium.spec(env_id)


def arguments(settings: sections.EnvConfig) -> dict[str, Any]:
    """Returns the arguments of gymnasium.make besides the id.

    Raises EnvironmentFailure unless kwargs are a JSON object.
    """
    given = env_base.arguments(settings.kwargs, "arguments", '{"continuous": true}')
    return {**given, **({"max_episode_steps": settings.max_episode_steps} if settings.max_episode_steps else {})}


def reward_threshold(env_id: str, settings: sections.EnvConfig) -> float | None:
    """Returns a registered id's threshold, a module's own once imported; None: none, or settings may change it."""
    if arguments(settings) or gym_wrappers.change_rewards(gym_wrappers.parse(settings.wrappers)):
        return None
    found = gym_ids.find(env_id.rpartition(":")[2])
    threshold = found.reward_threshold if found else None
    return float(threshold) if threshold is not None and math.isfinite(threshold) else None


def find(name: str) -> str:
    """Returns the id, such as gym:CartPole-v1, of a name without its family or version, or ""."""
    if name.lower().startswith("minatar/"):  # registered only when one of them is made
        return f"gym:{name}"
    wanted = name.lower()
    found = [known for known in gymnasium.registry if wanted in (known.lower(), known.rpartition("-v")[0].lower())]
    return f"gym:{found[-1]}" if found else ""


@contextlib.contextmanager
def _explained(env_id: str, unknown: type[gymnasium.error.Error]) -> Iterator[None]:
    """Turns Gymnasium's errors about an id (`unknown`: for an unknown id) into EnvironmentFailure with advice."""
    try:
        yield
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        raise errors.EnvironmentFailure(_missing(env_id, str(error))) from error
    except unknown as error:
        module, _, name = env_id.rpartition(":")
        if module in sys.modules:
            raise errors.EnvironmentFailure(_unregistered(module, name)) from error
        meant = find(re.sub(r"-v\d+$", "", env_id))
        if meant.removeprefix("gym:") in gymnasium.registry:
            from seedzero.envs import atari

            game = atari.find(gym_ids.game(meant.removeprefix("gym:")))
            better = f"{game} (Atari's usual preprocessing) or " if game else ""
            hint = f"did you mean {better}{meant}?"
            raise errors.EnvironmentFailure(f"Gymnasium does not know {env_id!r}; {hint}") from error
        raise errors.EnvironmentFailure(
            f"Gymnasium does not know {env_id!r} ({error}); for your own write python:MODULE:CLASS, or gym:MODULE:ID "
            "if MODULE registers ID"
        ) from error


def _unregistered(module: str, name: str) -> str:
    """Returns an error for an imported module that did not register an id, with the ids that it did register."""
    package = module.partition(".")[0]
    entries = {id: str(getattr(of.entry_point, "__module__", of.entry_point)) for id, of in gymnasium.registry.items()}
    known = [id for id, entry in entries.items() if re.split("[.:]", entry)[0] == package]
    if old := registered_with_gym(name):
        return f"module {module!r} registers {name!r} {old}"
    said = f"module {module!r} was imported and registers no {name!r} with Gymnasium"
    if callable(getattr(sys.modules[module], name, None)):
        return f"{said}, but it has a function or class of this name; did you mean python:{module}:{name}?"
    if near := difflib.get_close_matches(name, known, n=3, cutoff=0.5):
        return f"{said}; did you mean {' or '.join(f'gym:{module}:{each}' for each in near)}?"
    if known:
        return f"{said}; it registers {', '.join(known[:5])}{', ...' if len(known) > 5 else ''}"
    if hasattr(sys.modules[module], "__path__") and importlib.util.find_spec(f"{module}.envs") is not None:
        return f"{said}, nor another; packages often do in their module envs: try gym:{module}.envs:{name}"
    return (
        f"{said}, nor another; name the module of the package that does, or give your own function that returns a "
        "Gymnasium environment: --env=python:MODULE:FUNCTION"
    )


def _missing(env_id: str, reason: str) -> str:
    module = env_id.rpartition(":")[0]
    is_users = module and module.partition(".")[0] not in _BRINGERS
    if is_users and f"No module named '{module}'" in reason:
        return f"environment {env_id!r}: {user_code.no_module(module)}"
    for package, bringers in _BRINGERS.items():
        if package in reason:
            command = packages.install_command(*bringers)
            return f"environment {env_id!r} needs {package}, which is not installed here: {command}"
    return f"environment {env_id!r} needs a missing package: {reason} (install it on every machine with workers)"


def quiet() -> warnings.catch_warnings[None]:
    """Silences Gymnasium's warnings about old versions, metadata and bounds' precision, which users cannot act on."""
    return warnings.catch_warnings(action="ignore")
