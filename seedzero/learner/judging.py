"""Judges agents exactly for a league's builder."""

from __future__ import annotations

import functools
from collections.abc import Callable

from seedzero.agents import base
from seedzero.config import configs
from seedzero.device import setups
from seedzero.equilibria import tabular


def judge(config: configs.Config, setup: setups.Setup) -> Callable[[base.Params], float]:
    """Returns the exact judge of parameters, made at the first call. Raises UsageError if a builder needs it."""
    make = functools.cache(lambda: tabular.judging(setup.agent, config.env.id))
    if config.league.builder == "biased":
        make()
    return lambda params: make()(params)
