"""How many updates clip their gradient."""

from __future__ import annotations

from collections.abc import Mapping

from seedzero.config import agent_settings, configs

GRAD_CLIPPED = "grad_clipped"
"""Metric: share of updates whose gradient had a norm beyond the limit, `clip_norm`."""


def limit(config: configs.Config) -> float:
    """Returns the largest norm of gradients; 0: no limit."""
    return float(agent_settings.value(config, "clip_norm") or 0.0)


def share(largest: float, update: Mapping[str, float]) -> dict[str, float]:
    """Returns the share of clipped gradients among the metrics of an update; nothing without a limit."""
    return {GRAD_CLIPPED: float(update["grad_norm"] > largest)} if largest else {}
