"""Counts the updates whose gradient is clipped."""

from __future__ import annotations

from collections.abc import Mapping

from seedzero.config import agent_settings, configs

GRAD_CLIPPED = "grad_clipped"
"""Name of the metric: the share of updates whose gradient norm exceeded `clip_norm`."""


def limit(config: configs.Config) -> float:
    """Returns the limit of the gradient's norm; 0 means no limit."""
    return float(agent_settings.value(config, "clip_norm") or 0.0)


def share(largest: float, update: Mapping[str, float]) -> dict[str, float]:
    """Returns the share of clipped gradients as a metric of an update; empty without a limit."""
    return {GRAD_CLIPPED: float(update["grad_norm"] > largest)} if largest else {}
