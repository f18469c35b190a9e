"""Saves of a run whose directory is no longer its own; saving and resuming: tests/e2e."""

import pathlib
import shutil
import types as python_types
from typing import Any, cast

import pytest

from seedzero.checkpoints import files, run_dir
from seedzero.config import config as config_lib
from seedzero.core import errors
from seedzero.learner import evaluator, saves


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


@pytest.mark.parametrize(
    ("more", "finished"), [({}, "evaluation returned -1, --stop_at_return=-5"), ({evaluator.CUT_SHORT: True}, "")]
)
def test_a_run_is_finished_by_the_return_of_whole_episodes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, bool], finished: str
) -> None:
    host = {"last_evaluation": {"mean_return": -1.0, **more}, "num_updates": 4, "num_acts": 1, "ledger": {"stored": 9}}
    found = [python_types.SimpleNamespace(step=4, host=host)]
    config = config_lib.override(config_lib.Config(), {"run.stop_at_return": -5.0})
    directory = cast(Any, python_types.SimpleNamespace(checkpoints=tmp_path, resumed=True))
    saved = saves.Saves(config, directory, cast(Any, None), pytest.fail, None)
    monkeypatch.setattr(files, "manifests", lambda path: found)
    assert saved.finished_before() == finished
    saved.checkpointer.close()


def test_old_checkpoints_that_stay_are_told_and_are_no_failed_save(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, told = config_lib.Config(), list[str]()
    view = cast(Any, python_types.SimpleNamespace(durable_update=None))
    directory = cast(Any, python_types.SimpleNamespace(checkpoints=tmp_path, resumed=False))
    saved = saves.Saves(config, directory, view, told.append, None)

    def fail(path: pathlib.Path) -> None:
        raise errors.CheckpointError("a manifest cannot be read")

    monkeypatch.setattr(files, "manifests", fail)
    saved.checkpointer.save(7, {"params": {}}, {}, None)
    saved.checkpointer.close()
    assert told == [f"old checkpoints in {tmp_path} could not be deleted: a manifest cannot be read"]
    assert view.durable_update == 7
    saved.check()
