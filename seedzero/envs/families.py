"""The families of environments for people: what each brings, an example, and the package that it needs."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from typing import NamedTuple

from seedzero.core import packages
from seedzero.envs import envpool_env, qt


class Family(NamedTuple):
    """A row of `seedzero envs`.

    Attributes:
      form: of its ids.
      summary: what it brings.
      example: an id.
      module: that it imports; empty: nothing beyond a worker's own packages.
      distribution: the name under which that module is installed.
      packages: what a machine without it installs, as `packages.install_command` takes them.
      advice: in place of packages.
    """

    form: str
    summary: str
    example: str
    module: str = ""
    distribution: str = ""
    packages: tuple[str, ...] = ()
    advice: str = ""

    @property
    def install(self) -> str:
        """How a machine without the module gets it, "" where there is none."""
        return packages.install_command(*self.packages) if self.packages else self.advice

    @property
    def is_installed(self) -> bool:
        return not self.module or importlib.util.find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """The installed version, "" where it does not say."""
        try:
            return metadata.version(self.distribution) if self.distribution else ""
        except metadata.PackageNotFoundError:
            return ""


_GYM = "gym:ID"

FAMILIES = (
    Family("catch", "a ball falls through a grid of 10x5; learned in seconds", "catch"),
    Family(_GYM, "any Gymnasium environment, a module of your own by gym:MODULE:ID", "gym:CartPole-v1"),
    Family(
        _GYM, "Box2D: LunarLander, BipedalWalker, CarRacing", "gym:LunarLander-v3",
        "Box2D", "Box2D", ("gymnasium[box2d]",),
    ),
    Family(
        _GYM, "MuJoCo: HalfCheetah, Hopper, Ant, Humanoid and others", "gym:HalfCheetah-v5",
        "mujoco", "mujoco", ("gymnasium[mujoco]", "mujoco"),
    ),
    Family(
        _GYM, "MinAtar: Atari's games on a grid of 10x10 (GPL)", "gym:MinAtar/Breakout-v1",
        "minatar", "MinAtar", ("MinAtar",),
    ),
    Family(
        _GYM, "MiniGrid and BabyAI: rooms, keys and doors", "gym:minigrid:MiniGrid-DoorKey-5x5-v0",
        "minigrid", "minigrid", ("minigrid",),
    ),
    Family(
        _GYM, "VizDoom: Doom's scenarios", "gym:vizdoom.gymnasium_wrapper:VizdoomBasic-v1",
        "vizdoom", "vizdoom", ("vizdoom", "opencv-python-headless"),
    ),
    Family(
        "python:MODULE:FUNCTION", "what a function of yours returns, a Gymnasium environment", "python:my_module:make"
    ),
    Family(
        "atari:GAME", "Atari games by ALE's vector environment", "atari:Pong",
        "ale_py", "ale-py", ("ale-py",),
    ),
    Family(
        "dmlab:LEVEL", "DeepMind Lab, dmlab:dmlab30 for all 30 levels; must be built", "dmlab:rooms_watermaze",
        "deepmind_lab", "deepmind_lab", advice="docs/dmlab.md says how it is built",
    ),
    Family("memory:TASK", "small tasks in which something must be remembered", "memory:tmaze-20"),
    Family(
        "spiel:GAME", "OpenSpiel's board games of perfect information", "spiel:tic_tac_toe",
        "pyspiel", "open_spiel", ("open_spiel",),
    ),
    Family(
        "envpool:ID", "EnvPool, in C++: MiniGrid, MuJoCo, DM Control, VizDoom, Atari and others",
        "envpool:MiniGrid-Empty-8x8-v0", envpool_env.PACKAGE, "envpool", ("envpool",),
    ),
    Family(
        "envpool:ID", "Procgen's games by EnvPool, with Qt 5", "envpool:CoinrunEasy-v0",
        "PyQt5", qt.PACKAGE, ("envpool", qt.PACKAGE),
    ),
    Family(
        "football:SCENARIO", "Google Research Football by EnvPool", "football:academy_empty_goal",
        envpool_env.PACKAGE, "envpool", ("envpool",),
    ),
    Family("remote", "every worker brings environments of its own, in any language", "remote"),
)  # fmt: skip
"""In the order that they are shown; a family with parts of its own packages has a row for each."""
