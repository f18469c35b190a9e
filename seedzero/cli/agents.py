"""`seedzero agents`: the algorithms, what they play, and where to choose each."""

from __future__ import annotations

import textwrap

from seedzero.cli import output, parse
from seedzero.config import config as configs
from seedzero.config import options, presets

_INDENT = " " * 4


def run(arguments: parse.Arguments) -> int:
    """Prints every agent; returns the exit code."""
    default, *_ = configs.agent_names()
    for name in configs.agent_names():
        settings: options.AgentSection = getattr(configs.Config(), name)
        output.show(f"{name}{' (the default)' if name == default else ''}: {settings.SUMMARY}")
        output.show(f"{_INDENT}plays {_plays(settings)}; learns from {_data(settings)}")
        tuned = ", ".join(preset for preset in presets.PRESETS if preset in presets.PARTS[name])
        output.show(
            textwrap.fill(f"tuned for {tuned}", parse.WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
        )
    output.show(
        "\nseedzero train --agent=NAME ...; seedzero config --preset=PRESET --agent=NAME lists an agent's settings"
    )
    return 0


def _plays(settings: options.AgentSection) -> str:
    kinds = (("discrete", settings.PLAYS_DISCRETE), ("continuous", settings.PLAYS_CONTINUOUS))
    actions = " or ".join(kind for kind, is_played in kinds if is_played)
    games = ", games of one or two players" if settings.MAX_PLAYERS > 1 else ""
    return f"{actions} actions{games}"


def _data(settings: options.AgentSection) -> str:
    return "a replay" if settings.SAMPLES else "its newest steps alone"


COMMAND = parse.Command(
    summary="Lists the agents: what each plays, what it learns from, and where to choose it.",
    usage="",
    flags=(),
    run=run,
)
