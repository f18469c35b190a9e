"""Run directories with evaluations, for tests of commands that read several runs; nothing is trained."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from seedzero.config import configs, presets
from seedzero.core import types
from seedzero.monitoring import metrics_log
from seedzero.storage.checkpoints import manifest, run_dirs, saved_files


def make(
    path: pathlib.Path,
    returns: Sequence[float] = (-0.5, 0.0, 1.0),
    *,
    finished: str = "",
    frames_per_step: int = 1,
    preset: str = "catch",
    every: int = 1_000,
    **given: Any,
) -> pathlib.Path:
    """Returns the directory of a run with an evaluation every `every` steps; given: settings by SECTION__KEY."""
    named = {name.replace("__", "."): str(value) for name, value in given.items()}
    config = configs.override(presets.get(preset, named.get("run.agent", "ppo")), {"run.agent": "ppo", **named})
    with run_dirs.open_run_dir(path, config, preset=preset, given=named) as opened:
        run_dirs.write_spec(opened.path, types.EnvSpec((4,), "float32", 2, frames_per_step=frames_per_step))
        opened.write_status({"finished": finished or None, "alive": False})
    rows: list[dict[str, Any]] = []
    for number, value in enumerate(returns):
        place = {"update": 10 * number, "env_steps": every * number, "seconds": 2.0 * number}
        rows.append({**place, "episode_return": value - 0.1, "loss": 0.5})
        scores = {"mean_return": value, "std_return": 0.3, "episodes": 10}
        rows.append({**place, "kind": "evaluation", **{f"evaluation_{name}": x for name, x in scores.items()}})
    (path / metrics_log.METRICS_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def add_checkpoint(path: pathlib.Path, step: int) -> None:
    """Adds a checkpoint, whose only parameters are three times the step's number, to a run directory."""
    parts = {"params": {"params": np.full(3, step)}, "state": {"moments": np.zeros(1000)}}
    place = saved_files.step_directory(path / "checkpoints", step)
    place.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_directory(place, parts, manifest.Manifest(step, 0.0, step))
