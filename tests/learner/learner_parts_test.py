"""The parts of a learner: none is made before its needs."""

from __future__ import annotations

import pathlib
import types as python_types
from typing import cast

import pytest

from seedzero.checkpoints import run_dirs
from seedzero.config import configs
from seedzero.learner import learner_parts, stages
from seedzero.monitoring import background


@pytest.mark.parametrize("max_seconds", [0.0, 60.0])
def test_parts_are_made_for_a_run_directory_and_nothing_runs_yet(tmp_path: pathlib.Path, max_seconds: float) -> None:
    given = {"env.id": "catch", "training.num_devices": 1, "worker.envs_per_group": 4, "replay.num_slots": 8}
    config = configs.override(configs.Config(), {**given, "worker.num": 1, "run.max_seconds": max_seconds})
    screen = cast(background.Screen, python_types.SimpleNamespace(message=pytest.fail))
    with run_dirs.open_run_dir(tmp_path, config, preset="catch", given={}) as directory:
        parts = learner_parts.make(directory, screen, f"unix:{tmp_path}/learner.sock")
        status = parts.reception.status()
        parts.saves.checkpointer.close()
    assert status["workers"] == 0 and "worker" in status["stalled"]
    assert parts.stage.now is stages.Stage.PREPARED and not parts.server.has_started and parts.expected is None
    assert (parts.seconds_left() <= 60.0) == bool(max_seconds)
