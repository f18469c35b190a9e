"""Saves of a run whose directory is no longer its own; saving and resuming: tests/e2e."""

import pathlib
import shutil
import types as python_types
from typing import Any, cast

import pytest

from seedzero.checkpoints import run_dir
from seedzero.config import config as config_lib
from seedzero.core import errors
from seedzero.learner import saves


def test_nothing_is_saved_into_a_directory_that_was_deleted(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run"
    with run_dir.open_run_dir(path, config_lib.Config(), preset="catch", given={}) as directory:
        view = cast(Any, python_types.SimpleNamespace(durable_update=None))
        saved = saves.Saves(directory.config, directory, view, pytest.fail, None)
        state = cast(Any, python_types.SimpleNamespace(host={"num_updates": 1}))
        shutil.rmtree(path)
        for save in (saved.save, saved.save_state, saved.save_best):
            with pytest.raises(errors.TrainingFailure, match="was deleted or replaced"):
                save(state)
        saved.checkpointer.close()
    assert not path.exists()
