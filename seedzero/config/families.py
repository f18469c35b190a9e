"""The families of environments: a row has all facts about a family that are not in its file in `envs/`."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from importlib import metadata
from typing import NamedTuple

from seedzero.core import packages


class Offer(NamedTuple):
    """A row of `seedzero envs`: environments of a family that need the same package."""

    summary: str  # their description
    example: str  # an id
    module: str = ""  # imported by them; empty if a worker's own packages are enough
    distribution: str = ""  # the name under which that module is installed; empty if it is the same
    # to be installed where it is missing, as `packages.install_command` takes them; empty: the distribution
    packages: tuple[str, ...] = ()
    advice: str = ""  # instead of packages

    @property
    def needs(self) -> tuple[str, ...]:
        """The packages to install, none if there is advice."""
        return self.packages or (() if self.advice or not self.module else (self.distribution or self.module,))

    @property
    def state(self) -> str:
        """Whether the family is installed here, with its version or with what to do."""
        if not self.module:
            return "installed"
        if importlib.util.find_spec(self.module) is None:
            return f"not installed: {self.advice or packages.install_command(*self.needs)}"
        name = self.distribution or self.module
        try:
            return f"installed: {name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            return f"installed: {name}"


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of environments. The module is named but not imported, because the package may be missing."""

    form: str  # prefix of its ids
    offers: tuple[Offer, ...]  # rows of `seedzero envs`, at least one; the first has the most common example
    # MODULE:NAME in `envs/` that makes a group from a name, num_envs and `arguments`; empty if none are made here
    make: str = ""
    # MODULE:NAME that raises ConfigError or EnvironmentFailure for names that cannot exist; empty: no names
    check: str = ""
    arguments: tuple[str, ...] = ()  # of `envs/registry.py` `make`, passed on by their names
    frames_per_second: float = 30.0  # of a video, unless the environment says otherwise
    # by default the first whose environment has the same task, else the last; empty: by the observations
    presets: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()  # settings env.NAME that change nothing in other families
    takes: tuple[str, ...] = ()  # settings env.NAME that other families reject
    forms: str = ""  # of its ids in help, where there are several
    hint: str = ""  # behind the example of a wrong id

    @property
    def prefix(self) -> str:
        """The part of an id before the first colon."""
        return self.form.partition(":")[0]


_EMULATOR = (
    "frame_size", "frame_skip", "sticky_actions", "full_action_space", "noop_max", "life_loss"
)  # fmt: skip
_MASKS = ("action_mask",)
_OF_GYMNASIUM = ("kwargs", "wrappers", "max_episode_steps")
_WITH_INFOS = (*_OF_GYMNASIUM, "info_keys")

FAMILIES = (
    Family(
        "catch", (Offer("a ball falls through a grid of 10x5; learned in seconds", "catch"),),
        make="catch:Catch", frames_per_second=5.0, presets=("catch",),
    ),
    Family(
        "gym:ID",
        (
            Offer("any Gymnasium environment, a module of your own by gym:MODULE:ID", "gym:CartPole-v1"),
            Offer(
                "Box2D: LunarLander, BipedalWalker, CarRacing", "gym:LunarLander-v3",
                "Box2D", packages=("gymnasium[box2d]",),
            ),
            Offer(
                "MuJoCo: HalfCheetah, Hopper, Ant, Humanoid and others", "gym:HalfCheetah-v5",
                "mujoco", packages=("gymnasium[mujoco]", "mujoco"),
            ),
            Offer("MinAtar: Atari's games on a grid of 10x10 (GPL)", "gym:MinAtar/Breakout-v1", "minatar", "MinAtar"),
            Offer("MiniGrid and BabyAI: rooms, keys and doors", "gym:minigrid:MiniGrid-DoorKey-5x5-v0", "minigrid"),
            Offer(
                "VizDoom: Doom's scenarios", "gym:vizdoom.gymnasium_wrapper:VizdoomBasic-v1",
                "vizdoom", packages=("vizdoom", "opencv-python-headless"),
            ),
        ),
        make="gym_env:make", check="gym_env:check_id", arguments=("settings", "render"),
        reads=_MASKS, takes=_WITH_INFOS, forms="gym:ID | gym:module:ID",
    ),
    Family(
        "python:MODULE:FUNCTION",
        (Offer("what your own function returns, a Gymnasium environment", "python:my_module:make"),),
        make="gym_env:from_user_code", check="gym_env:user_code.check", arguments=("settings", "render"),
        reads=_MASKS, takes=_WITH_INFOS, forms="python:module:function",
    ),
    Family(
        "atari:GAME", (Offer("Atari games by ALE's vector environment", "atari:Pong", "ale_py", "ale-py"),),
        make="atari:Atari", check="atari:rom_name", arguments=("settings", "threads", "render"),
        frames_per_second=15.0, presets=("atari",), reads=_EMULATOR, takes=("max_episode_steps",),
    ),
    Family(
        "dmlab:LEVEL",
        (Offer(
            "DeepMind Lab, dmlab:dmlab30 for all 30 levels; must be built", "dmlab:rooms_watermaze",
            "deepmind_lab", advice="docs/families.md says how it is built",
        ),),
        make="dmlab:DMLab", check="dmlab:levels", arguments=("settings", "role", "indices"),
        frames_per_second=15.0, presets=("dmlab",), reads=("frame_skip",),
        takes=("kwargs", "level_cache", "level_seeds"), hint=", or dmlab:dmlab30 for all 30",
    ),
    Family(
        "spiel:GAME",
        (
            Offer(
                "OpenSpiel's board games of perfect information, one of your own by spiel:MODULE:GAME",
                "spiel:tic_tac_toe", "pyspiel", "open_spiel",
            ),
            Offer(
                "OpenSpiel's games with hidden information, chance or simultaneous moves; a row is a seat",
                "spiel:kuhn_poker", "pyspiel", "open_spiel",
            ),
        ),
        make="spiel_seats:make", check="spiel_seats:check", arguments=("settings", "role", "render"),
        frames_per_second=1.0, presets=("tictactoe", "connect_four", "chance", "seats", "spiel"),
        reads=("random_opening", "opponents", "by_turns"), forms="spiel:GAME | spiel:module:GAME",
    ),
    Family(
        "memory:TASK", (Offer("small tasks in which something must be remembered", "memory:tmaze-20"),),
        make="memory:make", check="memory:check_id", arguments=("render",),
        frames_per_second=5.0, presets=("memory-cartpole", "memory-tmaze", "memory-repeat"),
    ),
    Family(
        "popgym:ID", (Offer(
            "POPGym: cards, codes, bandits and poles to remember", "popgym:RepeatPreviousEasy-v0", "popgym",
        ),),
        make="popgym_env:make", check="popgym_env:check_id", arguments=("settings", "render"),
        reads=_MASKS, takes=_WITH_INFOS,
    ),
    Family(
        "pgx:GAME",
        (Offer(
            "Pgx's games of perfect information, whose rules --agent=alphazero searches; one of your own by "
            "pgx:MODULE:OBJECT", "pgx:connect_four", "pgx",
        ),),
        make="pgx_maker:make", check="pgx_ids:check", arguments=("settings", "role"),
        frames_per_second=1.0, presets=("hex", "othello", "go9", "pgx"),
        reads=("random_opening", "opponents"), takes=("game_state",), forms="pgx:GAME | pgx:module:OBJECT",
    ),
    Family(
        "envpool:ID",
        (
            Offer(
                "EnvPool, in C++: MiniGrid, MuJoCo, DM Control, VizDoom, Atari and others",
                "envpool:MiniGrid-Empty-8x8-v0", "envpool",
            ),
            Offer(
                "Procgen's games by EnvPool, with Qt 5", "envpool:CoinrunEasy-v0",
                "PyQt5", "PyQt5-Qt5", ("envpool", "PyQt5-Qt5"),
            ),
        ),
        make="envpool_env:EnvPool", check="envpool_env:check_id", arguments=("settings", "threads", "render"),
        reads=_EMULATOR, takes=_OF_GYMNASIUM,
    ),
    Family(
        "football:SCENARIO",
        (
            Offer("Google Research Football by EnvPool", "football:academy_empty_goal", "envpool"),
            Offer(
                "the same from both sides, with --env.kwargs='{\"left\": 4, \"right\": 4}'; must be built",
                "football:5_vs_5", "gfootball", advice="docs/families.md says how it is built",
            ),
        ),
        make="football:make", check="football:check_id", arguments=("settings", "threads"),
        frames_per_second=10.0, presets=("football",), takes=(*_OF_GYMNASIUM, "checkpoint_rewards"),
    ),
    Family(
        "pettingzoo:MODULE",
        (
            Offer(
                "PettingZoo's environments of several agents; a row is an agent", "pettingzoo:mpe2.simple_spread_v3",
                "mpe2", packages=("pettingzoo", "mpe2"),
            ),
            Offer(
                "one of your own for several agents, parallel or in turn", "pettingzoo:my_module:make", "pettingzoo"
            ),
        ),
        make="pettingzoo_env:make", check="pettingzoo_env:check_id", arguments=("settings", "render"),
        reads=_MASKS, takes=("kwargs", "joint_observation"), forms="pettingzoo:module | pettingzoo:module:function",
    ),
    Family(
        "openenv:URL",
        (Offer("OpenEnv: a server steps them, by WebSocket", "openenv:http://host:8000", "websockets"),),
        make="openenv:make", check="openenv:check_id", arguments=("settings",), reads=_MASKS, takes=_WITH_INFOS,
    ),
    Family("remote", (Offer("every worker brings environments of its own, in any language", "remote"),)),
)  # fmt: skip
"""In the order of help and messages."""

LISTED = (*FAMILIES[:5], *reversed(FAMILIES[5:7]), *FAMILIES[7:])
"""In the order of `seedzero envs`."""
FORMS = " | ".join(family.forms or family.form for family in FAMILIES)
_MOST_FIRST = sorted(FAMILIES, key=lambda family: -len(family.reads))
READERS: Mapping[str, tuple[str, ...]] = {
    f"env.{name}": tuple(other.prefix for other in _MOST_FIRST if name in other.reads)
    for family in FAMILIES
    for name in family.reads
}
"""Setting, env.NAME -> prefixes of the families that read it, the readers of most settings first."""

_BY_PREFIX = {family.prefix: family for family in FAMILIES}
_NONE = Family("", ())


def of(env_id: str) -> Family:
    """Returns the family of an id by its prefix; for an unknown prefix, an empty family without offers."""
    return _BY_PREFIX.get(env_id.partition(":")[0], _NONE)


def taking(setting: str) -> list[Family]:
    """Returns the families with a setting env.NAME that others reject."""
    return [family for family in FAMILIES if setting in family.takes]


def is_read(setting: str, env_id: str) -> bool:
    """Returns whether an environment reads a setting SECTION.KEY, that is, unless only other families do."""
    section, _, key = setting.partition(".")
    takers = [family.prefix for family in taking(key)] if section == "env" else []
    readers, family = [*READERS.get(setting, ()), *takers], of(env_id)
    return not readers or family is _NONE or family.prefix in readers


def taking_text(setting: str) -> str:
    """Returns the prefixes of the families with a setting env.NAME that others reject."""
    return ", ".join(family.prefix for family in taking(setting))
