"""Measures how well MuZero's model tells actions apart, by the losses of a run with the actions of other steps.

    python experiments/shuffled_actions.py RUN_DIR [--updates=100]

A copy of the run goes on for so many updates. Each of them also computes the losses of its windows twice without
learning from them: with their own actions, and with those of another window of the batch. A model that knows what an
action does is surprised by the other window's actions, so its losses are larger; the ratio of a model that ignores
actions is 1.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import seedzero
from seedzero.agents import muzero_loss
from seedzero.core import errors
from seedzero.monitoring import metrics_log
from seedzero.storage.checkpoints import run_dirs

LOSSES = ("loss_reward", "loss_value", "loss_policy")
_OWN, _OTHER = "own_actions", "other_actions"


def with_other_actions(learned: Callable[..., tuple[Any, Any, Any]]) -> Callable[..., tuple[Any, Any, Any]]:
    """Returns MuZero's loss with more metrics: the losses with the windows' own actions, and with other windows'."""

    def loss_and_metrics(
        parts: Any, params: Any, windows: Any, targets: Any, key: jax.Array, axis_name: str | None = None
    ) -> tuple[Any, Any, Any]:
        loss, metrics, predicted = learned(parts, params, windows, targets, key, axis_name)
        fixed = jax.lax.stop_gradient(params)
        for name, distance in ((_OWN, 0), (_OTHER, 1)):
            action = jnp.roll(windows.stored["action"], distance, axis=0)
            other = windows._replace(stored={**windows.stored, "action": action})
            _, found, _ = learned(parts, fixed, other, targets, key, axis_name)
            metrics |= {f"{loss_name}_{name}": found[loss_name] for loss_name in LOSSES}
        return loss, metrics, predicted

    return loss_and_metrics


def ratios(rows: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Returns the mean of each loss with own actions, and what other actions make of it, as a ratio.

    Raises:
      UsageError: no row has these losses.
    """
    rows = [row for row in rows if f"{LOSSES[0]}_{_OWN}" in row]
    if not rows:
        raise errors.UsageError("no row of metrics has losses with other actions; give more --updates")
    found = {}
    for name in LOSSES:
        own, other = (sum(row[f"{name}_{actions}"] for row in rows) / len(rows) for actions in (_OWN, _OTHER))
        found[name] = (own, other / own if own else math.nan)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=pathlib.Path)
    parser.add_argument("--updates", type=int, default=100)
    arguments = parser.parse_args()
    try:
        config = run_dirs.read_saved(arguments.run_dir).config
        if config.run.agent != "muzero":
            raise errors.UsageError(f"a run of {config.run.agent}; expected one of muzero")
        muzero_loss.loss_and_metrics = with_other_actions(muzero_loss.loss_and_metrics)
        with tempfile.TemporaryDirectory() as scratch:
            copy = shutil.copytree(arguments.run_dir, pathlib.Path(scratch, "run"), ignore=_sockets)
            before = list(metrics_log.read(copy))
            first = max((int(row.get("update", 0)) for row in before), default=0)
            # A run ends at the first of its limits: only the new one holds.
            limits: dict[str, Any] = {"max_env_steps": 0, "max_seconds": 0, "stop_at_return": math.inf}
            seedzero.train(run_dir=copy, max_updates=first + arguments.updates, **limits)
            found = ratios(list(metrics_log.read(copy))[len(before) :])
    except errors.Error as error:
        raise SystemExit(f"shuffled_actions.py: error: {error}") from None
    for name, (own, ratio) in found.items():
        print(f"{name}: {own:.4f}, with other actions {ratio:.3f} times as much")


def _sockets(directory: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if pathlib.Path(directory, name).is_socket()]


if __name__ == "__main__":
    main()
