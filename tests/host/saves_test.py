"""Saves of a run whose directory is no longer its own; saving and resuming: tests/e2e."""

import errno
import pathlib
import shutil
import types as python_types
from typing import Any, cast

import golden
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import learning
from seedzero.checkpoints import checkpoint, checkpoint_dir, migrations, player_files
from seedzero.checkpoints import files as saved_files
from seedzero.checkpoints import run_dir as run_dirs
from seedzero.config import config as configs
from seedzero.config import league as league_config
from seedzero.core import errors
from seedzero.device import state as states
from seedzero.host import saves as saving
from seedzero.loop import dispatcher as dispatchers
from seedzero.loop import phase


def test_nothing_is_saved_into_a_directory_that_was_deleted(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run"
    with run_dirs.open_run_dir(path, configs.Config(), preset="catch", given={}) as directory:
        saved = saving.Saves(directory.config, directory, cast(Any, None), pytest.fail, None)
        state = cast(Any, python_types.SimpleNamespace(host={"num_updates": 1}))
        shutil.rmtree(path)
        for save in (saved.save, saved.save_state, saved.save_best):
            with pytest.raises(errors.TrainingFailure, match=f"{path} "):
                save(state)
        with pytest.raises(errors.TrainingFailure, match=f"{path} "):
            saved.freeze(
                dispatchers.NewPlayer("main-0123456789ab", "main", 1, 9, states.PlayerSnapshot({"w": np.zeros(1)}))
            )
        saved.checkpointer.close()
    assert not path.exists()


@pytest.mark.parametrize(("common", "finished"), [(4, "4 updates of --max_updates=4"), (2, ""), (-1, "")])
def test_of_several_hosts_the_common_checkpoint_says_whether_a_run_is_finished(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, common: int, finished: str
) -> None:
    base = {"last_evaluation": None, "num_acts": 1, "ledger": {"stored": 9}, phase.IN_LAST: False}
    found = [python_types.SimpleNamespace(step=step, host={**base, "num_updates": step}) for step in (2, 4)]
    config = configs.override(configs.Config(), {"run.max_updates": 4})
    directory = cast(Any, python_types.SimpleNamespace(checkpoints=tmp_path, resumed=True))
    hosts = cast(Any, python_types.SimpleNamespace(step=common, link=None, index=0))
    saved = saving.Saves(config, directory, cast(Any, None), pytest.fail, None, hosts=hosts)
    monkeypatch.setattr(saved_files, "manifests", lambda path: found)
    monkeypatch.setattr(saved_files, "newest_verified", lambda path, scope: (found[-1], {}))
    assert saved.finished_before() == finished


@pytest.mark.parametrize(
    ("settings", "more", "counters", "finished"),
    [
        ({"run.stop_at_return": -5.0}, {}, {}, "evaluation returned -1, --stop_at_return=-5"),
        ({"run.stop_at_return": -5.0}, {phase.CUT_SHORT: True}, {}, ""),
        ({"run.max_updates": 4}, {}, {}, "4 updates of --max_updates=4"),
        ({"run.max_updates": 4}, {}, {phase.IN_LAST: False}, "4 updates of --max_updates=4"),
        ({"run.max_updates": 4}, {}, {phase.IN_LAST: True}, ""),
        ({"run.max_env_steps": 9, "replay.final_updates": 7}, {}, {}, ""),
        (
            {"run.max_env_steps": 9, "replay.final_updates": 7},
            {},
            {phase.LEFT_OUT: (3, 1_000)},
            "9 steps of --max_env_steps=9",
        ),
        (
            {"run.max_env_steps": 9, "replay.final_updates": 7, "replay.min_steps": 5},
            {},
            {phase.LEFT_OUT: (3, 1_000)},
            "",  # with fewer it may learn
        ),
    ],
)
def test_a_run_is_finished_by_a_budget_or_the_return_of_whole_episodes(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, float],
    more: dict[str, bool],
    counters: dict[str, bool],
    finished: str,
    said: golden.Said,
) -> None:
    evaluated = {"mean_return": -1.0, **more}
    host = {"last_evaluation": evaluated, "num_updates": 4, "num_acts": 1, "ledger": {"stored": 9}, **counters}
    found = [python_types.SimpleNamespace(step=4, host=host)]
    config = configs.override(configs.Config(), settings)
    directory = cast(Any, python_types.SimpleNamespace(checkpoints=tmp_path, resumed=True))
    saved = saving.Saves(config, directory, cast(Any, None), pytest.fail, None)
    monkeypatch.setattr(saved_files, "manifests", lambda path: found)
    monkeypatch.setattr(saved_files, "newest_verified", lambda path, scope: (found[-1], {}))
    assert saved.finished_before() == finished
    monkeypatch.setattr(saved_files, "newest_verified", lambda path, scope: (None, {4: "damaged"}))
    assert saved.finished_before() == ""
    monkeypatch.setattr(
        saved_files, "manifests", lambda path: [python_types.SimpleNamespace(step=5, host={"mine": 1})]
    )
    with pytest.raises(errors.CheckpointError, match="checkpoint 5 ") as raised:
        saved.finished_before()
    said(raised.value)
    monkeypatch.setattr(saved_files, "manifests", lambda path: found)
    unfinished = {**host, "num_updates": 3, "last_evaluation": None, "ledger": {"stored": 8}}
    earlier = python_types.SimpleNamespace(step=3, host=unfinished)
    monkeypatch.setattr(saved_files, "newest_verified", lambda path, scope: (earlier, {4: "damaged"}))
    assert saved.finished_before() == ""
    saved.checkpointer.close()


def test_metrics_that_cannot_be_written_refuse_the_resume_by_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, said: golden.Said
) -> None:
    def fail(size_bytes: int, env_steps: int) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    directory = cast(Any, python_types.SimpleNamespace(checkpoints=tmp_path, path=tmp_path, resumed=True))
    log = cast(Any, python_types.SimpleNamespace(truncate=fail))
    saved = saving.Saves(configs.Config(), directory, log, pytest.fail, None)
    saved.checkpointer.close()
    monkeypatch.setattr(checkpoint, "restore", lambda *args, **options: None)
    monkeypatch.setattr(states, "parts", lambda agent, train: {})
    with pytest.raises(errors.ResumeError, match="Permission denied") as raised:
        saved.restore(cast(Any, None), cast(Any, None), cast(Any, None))
    said(raised.value)


def test_a_save_that_was_abandoned_is_made_again(tmp_path: pathlib.Path) -> None:
    directory = cast(Any, python_types.SimpleNamespace(checkpoints=tmp_path, resumed=False, check_ours=lambda: None))
    log = cast(Any, python_types.SimpleNamespace(size_bytes=int))
    saved = saving.Saves(configs.Config(), directory, log, pytest.fail, None)
    saved.durable_update = 0
    saved.checkpointer.close()
    made: list[int] = []
    waits = iter([False, True])
    saved.checkpointer = cast(
        Any,
        python_types.SimpleNamespace(
            save=lambda step, parts, host, *others: made.append(host["num_acts"]), abandon_save=lambda: next(waits)
        ),
    )
    host = {"num_updates": 0, "num_acts": 5_000, "evaluation_index": 0, "last_evaluation": None}
    host = migrations.counters(host, 1.0)
    state = dispatchers.CheckpointState({}, None, host)
    saved.save(state)
    saved.save(state)  # nothing is new
    assert made == [5_000]
    saved.abandon()  # none waits
    saved.save(state)
    assert made == [5_000]
    saved.abandon()
    saved.save(state)
    assert made == [5_000, 5_000]
    host[phase.IN_LAST] = True  # a resume must know, though nothing else has changed
    for _ in range(2):
        saved.save(state)
    assert made == [5_000, 5_000, 5_000]
    for _ in range(2):
        saved.save(state._replace(frozen=("main-0123456789ab",)))
    assert made == [5_000] * 4


def test_a_host_with_nothing_to_save_tells_the_others_that_it_has_the_checkpoint(tmp_path: pathlib.Path) -> None:
    directory = cast(Any, python_types.SimpleNamespace(checkpoints=tmp_path, resumed=False, check_ours=lambda: None))
    log = cast(Any, python_types.SimpleNamespace(size_bytes=int))
    told: list[Any] = []
    hosts = cast(Any, python_types.SimpleNamespace(link=None, index=0))
    saved = saving.Saves(configs.Config(), directory, log, pytest.fail, None, hosts=hosts)
    saved.checkpointer.close()
    saved.checkpointer = cast(Any, python_types.SimpleNamespace(save=lambda *parts: None, confirm=told.append))
    host = {"num_updates": 9, "num_acts": 5_000, "evaluation_index": 0, "last_evaluation": None}
    state = dispatchers.CheckpointState({}, None, migrations.counters(host, 1.0))
    saved.save(state)
    assert not told  # the checkpointer tells, once it is written
    saved.durable_update = 9
    saved.save(state)
    assert told == [9]


AGENT = cast(Any, python_types.SimpleNamespace(acting=lambda train: train.params, samples=True))
TRAIN = learning.TrainState({"w": jnp.arange(3.0)}, (), {"mu": jnp.zeros(3)}, jnp.int32(4), jnp.int32(0))


def _part_of_host(index: int | None, directory: Any) -> None:
    """Writes a host's part of checkpoint 4; None: as hosts alone do, and all did in earlier versions."""
    log = cast(Any, python_types.SimpleNamespace(size_bytes=int))
    hosts = None if index is None else cast(Any, python_types.SimpleNamespace(link=None, index=index))
    saved = saving.Saves(configs.Config(), directory, log, pytest.fail, None, hosts=hosts)
    saved.checkpointer._peers = None  # no other host is there
    host = {"num_updates": 4, "num_acts": 9, "evaluation_index": 0, "last_evaluation": None, "best_return": None}
    counters = migrations.counters({**host, "ledger": {"stored": 9}}, 1.0)
    saved.save(dispatchers.CheckpointState({league_config.MAIN: states.parts(AGENT, TRAIN)}, None, counters))
    saved.checkpointer.close()


def _resumed(index: int, directory: Any, step: int = 4, *, has_part: bool = True) -> Any:
    log = cast(Any, python_types.SimpleNamespace(truncate=lambda size, stored: None))
    hosts = cast(Any, python_types.SimpleNamespace(link=None, index=index, has_part=has_part, step=step))
    saved = saving.Saves(configs.Config(), directory, log, lambda text: None, None, hosts=hosts)
    found = saved.restore(AGENT, TRAIN, None)
    saved.checkpointer.close()
    return found


@pytest.fixture
def host_dir(tmp_path: pathlib.Path) -> Any:
    """Stands for a host's directory."""
    return python_types.SimpleNamespace(path=tmp_path, checkpoints=tmp_path, resumed=True, check_ours=lambda: None)


def test_parts_of_an_earlier_version_have_parameters_and_resume(host_dir: Any) -> None:
    _part_of_host(None, host_dir)
    trains, restored = _resumed(1, host_dir)
    assert trains == {} and restored.step == 4  # host 0 has them, too
    saving.check_same(AGENT, {league_config.MAIN: TRAIN}, restored, host_dir)


@pytest.mark.parametrize("index", [0, 1])
def test_hosts_resume_only_with_the_parameters_that_they_had(host_dir: Any, index: int, said: golden.Said) -> None:
    _part_of_host(index, host_dir)
    assert _resumed(index, host_dir, has_part=False) is None and _resumed(index, host_dir, 2) is None
    trains, restored = _resumed(index, host_dir)
    assert (restored.step, list(trains)) == (4, [league_config.MAIN] if index == 0 else [])
    saving.check_same(AGENT, {league_config.MAIN: TRAIN}, restored, host_dir)
    saving.check_same(AGENT, {league_config.MAIN: TRAIN}, None, host_dir)
    for other in (
        TRAIN._replace(params={"w": TRAIN.params["w"].at[0].set(-0.0)}),  # equal but for a bit
        TRAIN._replace(opt_state={"mu": jnp.full(3, 1e-45)}),
    ):
        with pytest.raises(errors.ResumeError) as raised:
            saving.check_same(AGENT, {league_config.MAIN: other}, restored, host_dir)
        saving.check_same(AGENT, {league_config.MAIN: other}, restored._replace(state_sha256=""), host_dir)  # earlier
    said(raised.value)


def test_a_frozen_player_is_saved_with_the_next_checkpoint(tmp_path: pathlib.Path) -> None:
    directory = cast(Any, python_types.SimpleNamespace(checkpoints=tmp_path, resumed=False, check_ours=lambda: None))
    log, name = cast(Any, python_types.SimpleNamespace(size_bytes=int)), "main-0123456789ab"
    saved = saving.Saves(configs.Config(), directory, log, pytest.fail, None)
    host = {"num_updates": 1, "num_acts": 1, "evaluation_index": 0, "last_evaluation": None}
    parts = {league_config.MAIN: {"params": {"w": np.zeros(1)}}}
    state = dispatchers.CheckpointState(parts, None, migrations.counters(host, 1.0), (name,))
    assert saved.freeze(dispatchers.NewPlayer(name, "main", 1, 9, states.PlayerSnapshot({"w": np.ones(1)})))
    saved.save(state)
    saved.checkpointer.close()
    (found,) = saved_files.manifests(tmp_path)
    assert list(found.frozen) == [name] and saved.durable_update == 1
    assert player_files.read(tmp_path, name, {"w": np.ones(1, np.float32)}).step == 1


def test_old_checkpoints_that_stay_are_told_and_are_no_failed_save(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, told = configs.Config(), list[str]()
    directory = cast(Any, python_types.SimpleNamespace(checkpoints=tmp_path, resumed=False))
    saved = saving.Saves(config, directory, cast(Any, None), told.append, None)

    def fail(path: pathlib.Path) -> None:
        raise errors.CheckpointError("a manifest cannot be read")

    monkeypatch.setattr(saved_files, "manifests", fail)
    saved.checkpointer.save(7, {"params": {}}, {}, None)
    saved.checkpointer.close()
    (text,) = told
    assert str(tmp_path) in text and "a manifest cannot be read" in text
    assert saved.durable_update == 7
    saved.check()


@pytest.mark.parametrize(
    ("info", "known", "expected"),
    [
        ({"mean_return": 9.0}, 3.0, 9.0),
        ({"mean_return": 9.0}, None, 9.0),
        ({"mean_return": 1.0}, 3.0, 3.0),
        ({"mean_return": 9.0, "task_returns": {"a": 9.0}}, 0.5, 0.5),
        (None, 3.0, 3.0),
    ],
)
def test_a_best_that_is_newer_than_the_checkpoint_must_be_exceeded(
    tmp_path: pathlib.Path, info: dict[str, Any] | None, known: float | None, expected: float
) -> None:
    writer = checkpoint_dir.CheckpointDir(tmp_path, configs.Config().checkpoint, lambda: 0.0)
    if info is not None:
        writer.write_best(5, {"w": np.zeros(1)}, info)
    assert saving.best_return_of(tmp_path, {"best_return": known}) == expected


@pytest.mark.parametrize(("deterministic", "expected"), [(False, 9.0), (True, 3.0)])
def test_a_resume_knows_the_best_but_repeats_evaluations_in_deterministic_mode(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, deterministic: bool, expected: float
) -> None:
    config = configs.override(configs.Config(), {"run.deterministic": deterministic})
    directory = cast(Any, python_types.SimpleNamespace(checkpoints=tmp_path, resumed=True))
    cut_at: list[int] = []
    log = cast(Any, python_types.SimpleNamespace(truncate=lambda size, steps: cut_at.append(steps)))
    counters = {"num_updates": 4, "num_acts": 1, "evaluation_index": 1, "last_evaluation": None, "metrics_bytes": 0}
    host = {**counters, "ledger": {"stored": 9, "discarded": {"unfinished_unroll": 2}}, "best_return": 3.0}
    found = checkpoint.Restored(4, {}, host, None, (), checkpoint.Newest())
    saved = saving.Saves(config, directory, log, lambda text: None, None)
    writer = checkpoint_dir.CheckpointDir(tmp_path, config.checkpoint, lambda: 0.0)
    writer.write_best(5, {"w": np.zeros(1)}, {"mean_return": 9.0})
    monkeypatch.setattr(checkpoint, "restore", lambda *args, **options: found)
    monkeypatch.setattr(states, "from_parts", lambda agent, train, parts: train)
    agent = cast(Any, python_types.SimpleNamespace(samples=False))
    monkeypatch.setattr(states, "parts", lambda agent, train: {})
    restored = saved.restore(agent, cast(Any, None), cast(Any, None))
    saved.checkpointer.close()
    assert restored is not None and restored[1].host["best_return"] == expected
    assert cut_at == [11]  # points up to here stay in TensorBoard


def test_the_end_waits_for_a_save_aloud_and_hides_no_earlier_failure(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, said: golden.Said
) -> None:
    told: list[str] = []
    with run_dirs.open_run_dir(tmp_path, configs.Config(), preset="catch", given={}) as directory:
        saved = saving.Saves(directory.config, directory, cast(Any, None), told.append, None)
        saved.close()
        assert not told

    def lose() -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(saved, "checkpointer", python_types.SimpleNamespace(busy=True, close=lose))
    saved.close()  # the failure that ended training is the one to be raised
    said("\n".join(told))
