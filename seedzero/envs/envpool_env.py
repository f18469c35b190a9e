"""Runs EnvPool's environments: one call steps a whole group in C++, on EnvPool's own threads.

The package is large, so only this file imports it, and only for its environments. It resets at the next step, as
types.EnvStep does. This file corrects its deviations:
- DM Control rewards first observations;
- seeds are fixed when a pool is made, so each reset makes a new one;
- its messages about an unknown argument or game, or a missing system library, explain little;
- it imports JAX if that is installed, which workers do without;
- MuJoCo's pictures end the process if there is no OpenGL, so they are rejected;
- Atari and VizDoom stack frames, press FIRE and hold buttons by default; this family's settings decide instead.
Uncorrected: an episode that terminates in the very step of its time limit is reported as truncated.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import dataclasses
import importlib
import importlib.util
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from gymnasium import spaces

from seedzero.config import configs, machines, sections
from seedzero.core import errors, packages, types
from seedzero.envs import env_base, gym_env, gym_spaces, gym_wrappers, space_text

# Loads Qt 5 from PyPI's package PyQt5-Qt5: Procgen draws with Qt, but EnvPool looks only for the system's.
QT_PACKAGE = "PyQt5-Qt5"
_LIBRARIES = ("icudata", "icuuc", "icui18n", "Qt5Core", "Qt5Gui")
"""Each library needs the ones before it."""


def load_qt() -> None:
    """Loads an installed Qt package for libraries loaded later. Raises EnvironmentFailure if that fails."""
    spec = importlib.util.find_spec("PyQt5")
    folders = (spec.submodule_search_locations or []) if spec else []
    try:
        for library in _LIBRARIES:
            for folder in folders:
                for path in sorted(pathlib.Path(folder, "Qt5", "lib").glob(f"lib{library}.so.*")):
                    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise errors.EnvironmentFailure(
            f"the package {QT_PACKAGE} is installed here and does not load: {error}"
        ) from None


def check_qt(name: str) -> None:
    """Raises EnvironmentFailure if neither the package nor the system provides Qt for an environment."""
    if importlib.util.find_spec("PyQt5") is None and not ctypes.util.find_library("Qt5Core"):
        command = packages.install_command(QT_PACKAGE)
        raise errors.EnvironmentFailure(f"environment {name!r} needs Qt 5; on every machine with workers: {command}")


# Converts EnvPool's spaces to an `EnvSpec`: corrects their declarations, then reads them like Gymnasium's.
WRAPPERS = ("BoundAction", "FilterObservation")
"""Names in --env.wrappers that work with a pool, because they change declarations, not steps."""
TEXT = "mission"
"""MiniGrid's task in words, as bytes padded with zeros; left out unless a FilterObservation names it."""
LARGEST_CELL = 10
"""The largest number for an object, colour or state in MiniGrid's pictures."""


def read(
    name: str,
    observation: spaces.Space[Any],
    action: spaces.Space[Any],
    wrappers: Sequence[gym_wrappers.Wrapper],
) -> tuple[types.EnvSpec, gym_spaces.Coder, gym_spaces.Coder]:
    """Returns the spec of a pool's environments, the encoder of observations [E, ...], and the decoder of actions.

    Raises EnvironmentFailure for an unsupported space, or a wrapper that does not fit it.
    """
    shown, taken = _without_text(_repaired(observation), wrappers), _repaired(action)
    for wrapper in wrappers:
        with env_base.failures_of(f"--env.wrappers: {wrapper.name} cannot wrap environment {name!r}"):
            if wrapper.name == "BoundAction":
                taken = gym_wrappers.bounded(taken, **wrapper.arguments)
            elif wrapper.name == "FilterObservation":
                shown = _filtered(shown, **wrapper.arguments)
            else:
                raise errors.EnvironmentFailure(
                    f"--env.wrappers names {wrapper.name}, but EnvPool steps its environments in C++; only "
                    f"{' and '.join(WRAPPERS)} go with envpool:, others with gym:ID"
                )
    if isinstance(shown, spaces.Dict) and list(shown.spaces) == [TEXT]:
        raise errors.EnvironmentFailure(f"environment {name!r} shows only {TEXT}, a text; name an array beside it")
    return of_pool(name, shown, taken)


def of_pool(
    name: str, shown: spaces.Space[Any], taken: spaces.Space[Any]
) -> tuple[types.EnvSpec, gym_spaces.Coder, gym_spaces.Coder]:
    """Returns the same for corrected spaces of observations and actions."""
    spec, encode, decode = gym_spaces.read(name, channels_last(shown), taken)
    packed = (dataclasses.replace(array, text=array.name == TEXT) for array in spec.packed)
    text = space_text.write(space_text.Pair(shown, taken, channels_first=True))
    spec = dataclasses.replace(spec, packed=tuple(packed), spaces=text)
    return spec, lambda batch: encode(_moved(shown, batch)), decode


def _repaired(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Returns the space with infinite bounds where they were the smallest and largest float."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _repaired(part) for key, part in space.spaces.items()})
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return space
    extremes = np.finfo(space.dtype)
    # numeric_limits<double>::min() is the smallest positive number, but was meant as the lowest one.
    low = np.where(np.isin(space.low, (extremes.tiny, extremes.min)), -np.inf, space.low)
    high = np.where(space.high == extremes.max, np.inf, space.high)
    return spaces.Box(low, high, dtype=space.dtype.type)


def _without_text(space: spaces.Space[Any], wrappers: Sequence[gym_wrappers.Wrapper]) -> spaces.Space[Any]:
    """Returns MiniGrid's observations with the true range of cells, and without text unless it is requested."""
    if not isinstance(space, spaces.Dict) or TEXT not in space.spaces:
        return space
    parts = dict(space.spaces)
    if isinstance(image := parts.get("image"), spaces.Box):
        parts["image"] = spaces.Box(0, LARGEST_CELL, image.shape, np.uint8)
    if not any(TEXT in wrapper.arguments.get("filter_keys", ()) for wrapper in wrappers):
        del parts[TEXT]
    return spaces.Dict(parts)


def _filtered(space: spaces.Space[Any], filter_keys: Sequence[str]) -> spaces.Space[Any]:
    parts: Mapping[str, spaces.Space[Any]] = space.spaces if isinstance(space, spaces.Dict) else {}
    if missing := [key for key in filter_keys if key not in parts]:
        raise ValueError(f"there is no {', '.join(missing)}; the arrays are {', '.join(parts) or 'not named'}")
    return spaces.Dict({key: parts[key] for key in filter_keys})


def _is_channels_first(space: spaces.Space[Any]) -> TypeGuard[spaces.Box]:
    """Returns whether a space is an image [C, H, W]."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) != 3:
        return False
    channels, *sides = space.shape
    return min(sides) >= types.SMALLEST_IMAGE and channels < min(sides)


def channels_last(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Returns the space with images [H, W, C] instead of [C, H, W]."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: channels_last(part) for key, part in space.spaces.items()})
    return gym_wrappers.channels_last(space) if _is_channels_first(space) else space


def _moved(space: spaces.Space[Any], batch: Any) -> Any:
    """Returns those arrays of a batch that the space has, with images as [E, H, W, C]."""
    if isinstance(space, spaces.Dict):
        return {key: _moved(part, batch[key]) for key, part in space.spaces.items()}
    return np.moveaxis(batch, 1, -1) if _is_channels_first(space) else batch


PACKAGE = "envpool"
OWN_ARGUMENTS = ("num_envs", "batch_size", "num_threads", "seed", "env_seed", "gym_reset_return_info", "base_path")
"""Arguments that --env.kwargs must not contain."""

_MUJOCO, _PROCGEN = "envpool.mujoco", "envpool.procgen"


class EnvPool:
    """A pool of E copies of one environment. info: EnvPool's other arrays from the newest step, [E, ...] each."""

    def __init__(
        self, name: str, num_envs: int, settings: sections.EnvConfig, *, threads: int = 0, render: bool = False
    ) -> None:
        """Reads the environments' spaces; reset() makes the pool.

        name: EnvPool's id, such as MiniGrid-Empty-8x8-v0.
        threads: of the pool; 0 means one per core of this process, but no more than environments.

        Raises EnvironmentFailure if EnvPool is missing, does not know the id or an argument, or a space is not
        supported.
        """
        self.num_envs, self._name = num_envs, name
        self._library = load()
        check_id(name)
        part = self._library.registration.registry.specs[name][0]
        if part.startswith(_PROCGEN):
            check_qt(name)
        if render and part.startswith(_MUJOCO):
            raise errors.EnvironmentFailure(
                f"EnvPool draws no pictures of {name!r} without a display; train and play the environment of the same "
                "name as gym:ID instead"
            )
        wrappers = gym_wrappers.parse(settings.wrappers)
        self._arguments, declared = _arguments(self._library, name, settings)
        if declared.config.max_num_players > 1:
            raise errors.EnvironmentFailure(
                f"environment {name!r} has {declared.config.max_num_players} players, and EnvPool steps them "
                "together; one is supported: games of two players in turn are spiel:GAME"
            )
        with env_base.failures_of(f"environment {name!r} cannot be made"), gym_env.quiet():
            spaces = declared.observation_space, declared.action_space
            self.spec, self._encode, self._decode = read(name, *spaces, wrappers)
        if "stack_num" in declared.config._fields:  # for Atari and VizDoom
            self.spec = dataclasses.replace(self.spec, frames_per_step=declared.config.frame_skip)
        self._arguments |= {
            "num_envs": num_envs,
            "num_threads": min(threads or machines.num_cores(), num_envs),
            **({"render_mode": "rgb_array"} if render else {}),
        }
        self.info: Mapping[str, Any] = {}
        self._pool: Any = None
        self._final = np.zeros(num_envs, bool)

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        env_base.check_seeds(seeds, self.num_envs)
        self._pool = None  # its threads must end before the next ones begin
        failures = env_base.failures_of(f"environment {self._name!r} raised in reset")
        with failures, gym_env.quiet(), env_base.imports_without("jax"):
            seed = [int(value) % 2**31 for value in seeds]
            self._pool = self._library.make_gymnasium(self._name, seed=seed, **self._arguments)
            observation, self.info = self._pool.reset()
        self._final = np.zeros(self.num_envs, bool)
        return types.EnvStep.first(self._encode(observation))

    def step(self, actions: np.ndarray) -> types.EnvStep:
        env_base.check_actions(actions, self.num_envs, self.spec)
        with env_base.failures_of(f"environment {self._name!r} raised in step"):
            observation, reward, terminated, truncated, self.info = self._pool.step(self._decode(actions))
        reward = np.where(self._final, 0, reward).astype(np.float32)
        self._final = terminated | truncated
        return types.EnvStep(self._encode(observation), reward, terminated, truncated)

    def render(self) -> np.ndarray:
        with env_base.failures_of(f"environment {self._name!r} has no picture"):
            return env_base.converted(self._pool.render()[0])

    def close(self) -> None:
        self._pool = None  # drops the last reference, which ends its threads


def load() -> Any:
    """Returns the package.

    Raises EnvironmentFailure if it, or a package that it needs, is missing, or Qt does not load.
    """
    load_qt()  # EnvPool looks for it only once, when it is imported
    try:
        with env_base.imports_without("jax"):
            return importlib.import_module(PACKAGE)
    except ImportError as error:
        missing = getattr(error, "name", None) or str(error)
        raise errors.EnvironmentFailure(
            f"environments of EnvPool need the package {missing}, which is not installed here; on every machine with "
            f"workers: {packages.install_command('envpool')}"
        ) from None


def check_id(name: str) -> None:
    """Raises EnvironmentFailure, with the nearest ids, if an installed EnvPool does not know the id."""
    if importlib.util.find_spec(PACKAGE) is not None and name not in (known := load().list_all_envs()):
        raise env_base.no_such("EnvPool has no environment", name, known, f"it has {len(known)}")


def _arguments(library: Any, name: str, settings: sections.EnvConfig) -> tuple[dict[str, Any], Any]:
    """Returns EnvPool's arguments without the id, and its description of the environment."""
    given = gym_env.arguments(settings)
    if own := [key for key in given if key in OWN_ARGUMENTS]:
        raise errors.EnvironmentFailure(
            f"--env.kwargs has {', '.join(own)}, which seedzero sets itself; the numbers of environments and threads "
            "are worker.envs_per_group and worker.threads"
        )
    with env_base.failures_of(f"environment {name!r} cannot be made"), env_base.imports_without("jax"):
        known = library.make_spec(name).config._asdict()
        for key in given:
            if key not in known:
                nearest = configs.nearest(key, known)
                hint = f"did you mean {nearest}?" if nearest else f"it has {', '.join(sorted(known))}"
                raise errors.EnvironmentFailure(f"environment {name!r} has no argument {key!r}; {hint}")
        settings = dataclasses.replace(settings, frame_skip=given.get("frame_skip", settings.frame_skip))
        arguments = {**_defaults(known, settings), **given}
        return arguments, library.make_spec(name, **arguments)


def _defaults(known: Mapping[str, Any], settings: sections.EnvConfig) -> dict[str, Any]:
    """Returns this family's defaults for an environment's arguments."""
    arguments: dict[str, Any] = {"stack_num": 1} if "stack_num" in known else {}  # the learner stacks frames
    if "use_combined_action" in known:  # makes every combination of buttons an action in VizDoom
        arguments |= dict(use_combined_action=True, frame_skip=settings.frame_skip)
    if "repeat_action_probability" in known:  # same as for atari:GAME
        arguments |= dict(
            img_height=settings.frame_size,
            img_width=settings.frame_size,
            frame_skip=settings.frame_skip,
            repeat_action_probability=settings.sticky_actions,
            full_action_space=settings.full_action_space,
            noop_max=max(settings.noop_max, 1),
            episodic_life=settings.life_loss,
            use_fire_reset=False,
            max_episode_steps=-(-settings.max_episode_frames // settings.frame_skip),
        )
    return arguments
