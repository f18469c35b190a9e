"""Records for the tests of the page."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import numpy as np

from seedzero.acting.tables import records
from seedzero.core import types

SPEC = types.EnvSpec((4, 4, 1), "uint8", 3, observation_low=0, observation_high=255, has_action_mask=True)


def arrays(num_steps: int = 5) -> dict[str, np.ndarray]:
    """Returns the arrays of an episode: step t shows t, takes action t modulo 3, and has reward t."""
    steps = np.arange(num_steps)
    return {
        "observation": np.full((num_steps + 1, 4, 4, 1), np.arange(num_steps + 1)[:, None, None, None], np.uint8),
        "reward": steps.astype(np.float32),
        "terminated": steps == num_steps - 1,
        "truncated": np.zeros(num_steps, bool),
        "action": (steps % 3).astype(np.int32),
        "action_mask": np.tile([True, True, False], (num_steps, 1)),
        "policy": np.tile(np.float32([0.25, 0.75, 0]), (num_steps, 1)),
        "prior": np.tile(np.float32([0.5, 0.25, 0.25]), (num_steps, 1)),
        "visits": np.tile(np.int32([2, 3, 0]), (num_steps, 1)),
        "q_value": np.tile(np.float32([0.5, 1, 0]), (num_steps, 1)),
        "completed_q": np.tile(np.float32([0.5, 1, 0.75]), (num_steps, 1)),
        "value": steps.astype(np.float32) / 2,
        "network_value": np.full(num_steps, np.nan, np.float32),
    }


def write(run_dir: pathlib.Path, name: str = "episode-000000.npz", num_steps: int = 5, **header: Any) -> pathlib.Path:
    """Writes a record of a run; header: facts."""
    path = run_dir / "records" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"env": "catch", "agent": "muzero", "step": 7, "return": 10.0, "actions": ["left", "stay", "right"]}
    records.write(path, {"spec": dataclasses.asdict(SPEC), **facts, **header}, arrays(num_steps))
    return path
