"""The families of environments for people: what each brings, an example, and the package that it needs."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from typing import NamedTuple

from seedzero.envs import envpool_env, qt


class Family(NamedTuple):
    """A row of `seedzero envs`.

    Attributes:
      form: of its ids.
      summary: what it brings.
      example: an id.
      module: that it imports; empty: nothing beyond a worker's own packages.
      distribution: the name under which that module is installed.
      install: the command for a machine without it.
    """

    form: str
    summary: str
    example: str
    module: str = ""
    distribution: str = ""
    install: str = ""

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
        "Box2D", "Box2D", "pip install 'gymnasium[box2d]'",
    ),
    Family(
        _GYM, "MuJoCo: HalfCheetah, Hopper, Ant, Humanoid and others", "gym:HalfCheetah-v5",
        "mujoco", "mujoco", "pip install 'gymnasium[mujoco]' 'mujoco<4'",
    ),
    Family(
        _GYM, "MinAtar: Atari's games on a grid of 10x10 (GPL)", "gym:MinAtar/Breakout-v1",
        "minatar", "MinAtar", "pip install 'MinAtar<2'",
    ),
    Family(
        _GYM, "MiniGrid and BabyAI: rooms, keys and doors", "gym:minigrid:MiniGrid-DoorKey-5x5-v0",
        "minigrid", "minigrid", "pip install 'minigrid<4'",
    ),
    Family(
        _GYM, "VizDoom: Doom's scenarios", "gym:vizdoom.gymnasium_wrapper:VizdoomBasic-v1",
        "vizdoom", "vizdoom", "pip install 'vizdoom<2' opencv-python-headless",
    ),
    Family(
        "python:MODULE:FUNCTION", "what a function of yours returns, a Gymnasium environment", "python:my_module:make"
    ),
    Family(
        "atari:GAME", "Atari games by ALE's vector environment", "atari:Pong",
        "ale_py", "ale-py", "pip install 'ale-py<0.13'",
    ),
    Family(
        "dmlab:LEVEL", "DeepMind Lab, dmlab:dmlab30 for all 30 levels; must be built", "dmlab:rooms_watermaze",
        "deepmind_lab", "deepmind_lab", "docs/dmlab.md says how it is built",
    ),
    Family("memory:TASK", "small tasks in which something must be remembered", "memory:tmaze-20"),
    Family(
        "spiel:GAME", "OpenSpiel's board games of perfect information", "spiel:tic_tac_toe",
        "pyspiel", "open_spiel", "pip install 'open_spiel<3'",
    ),
    Family(
        "envpool:ID", "EnvPool, in C++: MiniGrid, MuJoCo, DM Control, VizDoom, Atari and others",
        "envpool:MiniGrid-Empty-8x8-v0", envpool_env.PACKAGE, "envpool", envpool_env.INSTALL,
    ),
    Family(
        "envpool:ID", "Procgen's games by EnvPool, with Qt 5", "envpool:CoinrunEasy-v0",
        "PyQt5", "PyQt5-Qt5", f"{envpool_env.INSTALL} {qt.INSTALL.removeprefix('pip install ')}",
    ),
    Family(
        "football:SCENARIO", "Google Research Football by EnvPool", "football:academy_empty_goal",
        envpool_env.PACKAGE, "envpool", envpool_env.INSTALL,
    ),
    Family("remote", "every worker brings environments of its own, in any language", "remote"),
)  # fmt: skip
"""In the order that they are shown; a family with parts of its own packages has a row for each."""
