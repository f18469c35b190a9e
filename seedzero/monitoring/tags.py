"""Names of metrics in TensorBoard and Weights & Biases, which have groups, unlike in metrics.jsonl and Prometheus."""

from __future__ import annotations

from seedzero.monitoring import link_lines, usage
from seedzero.monitoring.metrics import aggregator

_ROLLOUT = {"episode_return", "first_mover_return", "episode_length", "episodes"}
_TIME = {"update", "env_steps", "seconds", "weights_version", "batch_rows", "batch_fill", link_lines.HIDING}
_EVALUATION = "evaluation_"
MATCHES = "matches/"
"""Prefix of the number of a league's matches, by type."""


def tag(name: str) -> str:
    """Returns a metric's name with its group.

    eval/: evaluations; rollout/: training episodes; matches/: a league's; time/: counters, rates, acting batches;
    system/: processors and memory; train/: updates; info/: numbers that environments report.
    """
    if name.startswith(_EVALUATION):
        return f"eval/{name.removeprefix(_EVALUATION)}"
    if name.startswith((MATCHES, aggregator.INFO)):
        return name
    if (counter := name.partition("/")[0]) in _ROLLOUT:
        return f"rollout/{name}"
    if counter in _TIME or name.endswith(("_seconds", "_per_second")):
        return f"time/{name}"
    if name.endswith((usage.CPU, usage.MEMORY)):
        return f"system/{name}"
    return f"train/{name}"
