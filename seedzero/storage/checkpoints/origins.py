"""Parses `--init_from=RUN[:PLAYER]`, which names the run whose parameters a new run starts from."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from seedzero.config import configs, options
from seedzero.core import errors

SETTING = "run.init_from"
_PLAYER = re.compile(r"[A-Za-z][A-Za-z0-9_]*(-[0-9a-f]+)?")
"""Name of a learning player, a policy, or a frozen player."""


class Origin(NamedTuple):
    """A run and one of its players, whose parameters another run starts from."""

    place: str  # a run directory, or gs://BUCKET/PATH
    player: str = ""  # "" for the first one that learns

    @property
    def text(self) -> str:
        """The origin as written in the setting."""
        return f"{self.place}:{self.player}" if self.player else self.place


def parse(text: str) -> Origin:
    """Parses the setting's text; a directory's path becomes absolute."""
    place, colon, player = text.rpartition(":")
    if not (colon and place and _PLAYER.fullmatch(player)) or os.path.isdir(text):
        place, player = text, ""
    return Origin(place if "://" in place else os.path.abspath(place), player)


def check_agent(origin: Origin, there: configs.Config, here: configs.Config) -> None:
    """Raises ConfigError if the origin's parameters are those of another agent."""
    if there.run.agent != here.run.agent:
        raise errors.ConfigError(
            f"--init_from={origin.text}: that run was trained with --agent={there.run.agent}, and this one has "
            f"--agent={here.run.agent}; give --agent={there.run.agent}, or leave --init_from out"
        )


def differing(there: configs.Config, here: configs.Config) -> list[str]:
    """Describes the settings of agent and network that differ there, because they may explain different shapes."""
    before, now = configs.flatten(there), configs.flatten(here)
    names = [
        name for name in now if name.partition(".")[0] in ("network", here.section) and configs.is_read(name, here)
    ]
    return [
        f"{configs.flag(name)}={options.shown(before[name])} there, {options.shown(now[name])} here"
        for name in names
        if before.get(name, now[name]) != now[name]
    ]
