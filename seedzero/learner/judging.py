"""Judges agents exactly for a league's builder, and says which command judges a run's agents."""

from __future__ import annotations

import functools
from collections.abc import Callable

from seedzero.agents import base
from seedzero.config import configs
from seedzero.device import setups
from seedzero.equilibria import game_tree, phantom, tabular


def judge(config: configs.Config, setup: setups.Setup) -> Callable[[base.Params], float]:
    """Returns the exact judge of parameters, made at the first call. Raises UsageError if a builder needs it."""
    make = functools.cache(lambda: tabular.judging(setup.agent, config.env.id))
    if config.league.builder == "biased":
        make()
    return lambda params: make()(params)


def flag(config: configs.Config) -> str | None:
    """Returns the flag that `seedzero league nash` needs for a run ("" for none), or None if it cannot work."""
    remembers = config.network.lstm_width > 0 or config.network.frame_stack > 1
    return game_tree.flag_of(config.env.id, known=() if remembers else phantom.NAMES)
