"""Saves of a run whose directory is no longer its own; saving and resuming: tests/e2e."""

import errno
import pathlib
import shutil
import types as python_types
from collections.abc import Callable
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import learning
from seedzero.config import configs, league_config, options
from seedzero.core import errors
from seedzero.device import states
from seedzero.learner import saving
from seedzero.learner.loop import dispatchers, evaluators, phase
from seedzero.monitoring.metrics import counts, episodes
from seedzero.storage.checkpoints import checkpoint, checkpoint_dir, player_files, run_dirs, saved_files

_Named = python_types.SimpleNamespace
COUNTERS = {
    "num_updates": 4,
    "num_reanalyses": 0,
    "num_acts": 9,
    "evaluation_index": 0,
    "last_evaluation": None,
    "best_return": None,
    "highest_return": None,
    "in_last_evaluation": False,
    "left_out": (0, 0),
    "pace": {"since": (0, 0), "samples_per_insert": configs.Config().replay.samples_per_insert},
}


def _saves(
    path: pathlib.Path,
    report: Callable[[str], None] = pytest.fail,
    *,
    hosts: dict[str, Any] | None = None,
    truncate: Callable[[int, int], None] = lambda size, steps: None,
    **settings: options.Value,
) -> saving.Saves:
    """Returns the saves of a resumed run with its checkpoints in a directory, and none of its other parts."""
    config = configs.override(configs.Config(), {name.replace("__", "."): value for name, value in settings.items()})
    directory: Any = _Named(path=path, checkpoints=path, resumed=True, check_ours=lambda: None)
    log: Any = _Named(size_bytes=int, truncate=truncate)
    several: Any = None if hosts is None else _Named(**{"link": None, **hosts})
    return saving.Saves(config, directory, log, report, None, hosts=several)


def _state(parts: Any = None, *, frozen: tuple[str, ...] = (), **changes: Any) -> dispatchers.CheckpointState:
    """Returns a checkpoint's content, with changed counters."""
    return dispatchers.CheckpointState(parts or {}, None, {**COUNTERS, **changes}, frozen)


def test_nothing_is_saved_into_a_directory_that_was_deleted(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run"
    with run_dirs.open_run_dir(path, configs.Config(), preset="catch", given={}) as directory:
        saved = saving.Saves(directory.config, directory, cast(Any, None), pytest.fail, None)
        state = cast(Any, _Named(counters={"num_updates": 1}))
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


def test_the_best_checkpoint_has_the_steps_of_its_parameters(tmp_path: pathlib.Path) -> None:
    saved = _saves(tmp_path)
    running: Any = _Named(update=3, env_steps=40, params={"main": {"w": np.zeros(1)}})
    scores = episodes.Scores(2, 1.0, 0.0, 1.0, 1.0, 5.0)
    saved.save_best(evaluators.Ended(running, scores, None, is_best=True, is_record=False, cut_short=False)).result()
    counters = saved_files.find(tmp_path, "best", "params")[1].counters
    assert (counters["update"], counters["env_steps"], counters["mean_return"]) == (3, 40, 1.0)
    saved.checkpointer.close()


@pytest.mark.parametrize(("common", "finished"), [(4, "4 updates of --max_updates=4"), (2, ""), (-1, "")])
def test_of_several_hosts_the_common_checkpoint_says_whether_a_run_is_finished(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, common: int, finished: str
) -> None:
    base = {**COUNTERS, "ledger": {"stored": 9}}
    found = [_Named(step=step, counters={**base, "num_updates": step}) for step in (2, 4)]
    others: dict[int, str] = {}
    link = _Named(gather=lambda subject, found: {0: found, **others})
    several: dict[str, Any] = {"step": common, "index": 0, "link": link, "parts": (0, 1, 2), "max_env_steps": 0}
    saved = _saves(tmp_path, hosts=several, run__max_updates=4)
    monkeypatch.setattr(saved_files, "manifests", lambda path: found)
    monkeypatch.setattr(saved_files, "newest_verified", lambda path, scope: (found[-1], {}))
    assert saved.finished_before() == finished
    others[1] = "4 updates"
    assert saved.finished_before() == finished
    others[3] = ""  # it has no part yet
    assert saved.finished_before() == finished
    others[2] = ""  # it was stopped in the run's last evaluation
    assert saved.finished_before() == ""


@pytest.mark.parametrize(
    ("agent", "num_steps", "num_gone", "finished"),
    [
        ("ppo", (9, 11), 0, "20 steps of --max_env_steps=20"),
        ("ppo", (9, 10), 0, ""),
        ("ppo", (9, 10), 1, "20 steps of --max_env_steps=20"),
        ("muzero", (9, 11), 0, "9 steps of --max_env_steps=9 (the share of one of 2 hosts)"),
        ("muzero", (9, 0), 0, ""),  # the other host begins now
    ],
)
def test_a_run_of_several_hosts_is_finished_by_the_steps_of_all(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    agent: str,
    num_steps: tuple[int, ...],
    num_gone: int,
    finished: str,
) -> None:
    base = {**COUNTERS, "ledger": {"stored": 9}}
    found = [_Named(step=4, counters=base)]
    link = _Named(gather=lambda subject, found: {0: found})
    several: dict[str, Any] = {"step": 4, "index": 0, "link": link, "parts": (0, 1)}
    several |= {"num_steps": num_steps, "num_gone": num_gone, "max_env_steps": 20}
    shared = {"ppo": 0, "muzero": 9}[agent]  # as in `together.budgeted`
    at = {"cluster__num_hosts": 2, "cluster__index": 0, "cluster__coordinator": "host-0:7000"}
    saved = _saves(tmp_path, hosts=several, run__agent=agent, run__max_env_steps=shared, **at)
    monkeypatch.setattr(saved_files, "manifests", lambda path: found)
    monkeypatch.setattr(saved_files, "newest_verified", lambda path, scope: (found[-1], {}))
    assert saved.finished_before() == finished
    saved.checkpointer.close()


@pytest.mark.parametrize(
    ("settings", "more", "counters", "finished"),
    [
        ({"run.stop_at_return": -5.0}, {}, {}, "evaluation returned -1, --stop_at_return=-5"),
        ({"run.stop_at_return": -5.0}, {counts.CUT_SHORT: True}, {}, ""),
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
) -> None:
    evaluated = {"mean_return": -1.0, **more}
    counters = {**COUNTERS, "last_evaluation": evaluated, "ledger": {"stored": 9}, **counters}
    found = [_Named(step=4, counters=counters)]
    saved = _saves(tmp_path, **settings)
    monkeypatch.setattr(saved_files, "manifests", lambda path: found)
    monkeypatch.setattr(saved_files, "newest_verified", lambda path, scope: (found[-1], {}))
    assert saved.finished_before() == finished
    monkeypatch.setattr(saved_files, "newest_verified", lambda path, scope: (None, {4: "damaged"}))
    assert saved.finished_before() == ""
    monkeypatch.setattr(saved_files, "manifests", lambda path: [_Named(step=5, counters={"mine": 1})])
    with pytest.raises(errors.CheckpointError, match=r"checkpoint 5 .*'in_last_evaluation'.*--run_dir"):
        saved.finished_before()
    monkeypatch.setattr(saved_files, "manifests", lambda path: found)
    unfinished = {**counters, "num_updates": 3, "last_evaluation": None, "ledger": {"stored": 8}}
    earlier = _Named(step=3, counters=unfinished)
    monkeypatch.setattr(saved_files, "newest_verified", lambda path, scope: (earlier, {4: "damaged"}))
    assert saved.finished_before() == ""
    saved.checkpointer.close()


def test_metrics_that_cannot_be_written_refuse_the_resume_by_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(size_bytes: int, env_steps: int) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    saved = _saves(tmp_path, truncate=fail)
    saved.checkpointer.close()
    monkeypatch.setattr(checkpoint, "restore", lambda *args, **options: None)
    monkeypatch.setattr(states, "parts", lambda agent, train: {})
    with pytest.raises(errors.ResumeError, match=r"Permission denied.*--run_dir"):
        saved.restore(cast(Any, None), lambda counters: {}, cast(Any, None))


def test_a_save_that_was_abandoned_is_made_again(tmp_path: pathlib.Path) -> None:
    saved = _saves(tmp_path)
    saved.durable_update = 4
    saved.checkpointer.close()
    made: list[int] = []
    waits = iter([False, True])
    saved.checkpointer = cast(
        Any,
        _Named(
            save=lambda step, parts, counters, *others: made.append(counters["num_acts"]),
            abandon_save=lambda: next(waits),
        ),
    )
    state = _state(num_acts=5_000)
    saved.save(state)
    saved.save(state)  # nothing is new
    assert made == [5_000]
    saved.abandon()  # none waits
    saved.save(state)
    assert made == [5_000]
    saved.abandon()
    saved.save(state)
    assert made == [5_000, 5_000]
    state.counters[phase.IN_LAST] = True  # a resume must know, though nothing else has changed
    for _ in range(2):
        saved.save(state)
    assert made == [5_000, 5_000, 5_000]
    for _ in range(2):
        saved.save(state._replace(frozen=("main-0123456789ab",)))
    assert made == [5_000] * 4


def test_a_host_with_nothing_to_save_tells_the_others_that_it_has_the_checkpoint(tmp_path: pathlib.Path) -> None:
    told: list[Any] = []
    saved = _saves(tmp_path, hosts={"index": 0})
    saved.checkpointer.close()
    saved.checkpointer = cast(Any, _Named(save=lambda *parts: None, confirm=told.append))
    saved.save(_state())
    assert not told  # the checkpointer tells, once it is written
    saved.durable_update = 4
    saved.save(_state())
    assert told == [4]


AGENT = cast(Any, _Named(acting=lambda train: train.params, samples=True))
TRAIN = learning.TrainState({"w": jnp.arange(3.0)}, (), {"mu": jnp.zeros(3)}, jnp.int32(4), jnp.int32(0))


def _part_of_host(index: int | None, path: pathlib.Path) -> None:
    """Writes a host's part of checkpoint 4; None: as hosts alone do, and all did in earlier versions."""
    saved = _saves(path, hosts=None if index is None else {"index": index})
    saved.checkpointer._peers = None  # no other host is there
    saved.save(_state({league_config.MAIN: states.parts(AGENT, TRAIN)}, ledger={"stored": 9}))
    saved.checkpointer.close()


def _resumed(index: int, path: pathlib.Path, step: int = 4, *, has_part: bool = True) -> Any:
    saved = _saves(path, lambda text: None, hosts={"index": index, "has_part": has_part, "step": step})
    found = saved.restore(AGENT, lambda counters: {"main": TRAIN}, None)
    saved.checkpointer.close()
    return found


def test_parts_of_an_earlier_version_have_parameters_and_resume(tmp_path: pathlib.Path) -> None:
    directory = _saves(tmp_path).directory
    _part_of_host(None, tmp_path)
    trains, restored = _resumed(1, tmp_path)
    assert trains == {} and restored.step == 4  # host 0 has them, too
    saving.check_same(AGENT, {league_config.MAIN: TRAIN}, restored, directory)


@pytest.mark.parametrize("index", [0, 1])
def test_hosts_resume_only_with_the_parameters_that_they_had(tmp_path: pathlib.Path, index: int) -> None:
    directory = _saves(tmp_path).directory
    _part_of_host(index, tmp_path)
    assert _resumed(index, tmp_path, has_part=False) is None and _resumed(index, tmp_path, 2) is None
    trains, restored = _resumed(index, tmp_path)
    assert (restored.step, list(trains)) == (4, [league_config.MAIN] if index == 0 else [])
    saving.check_same(AGENT, {league_config.MAIN: TRAIN}, restored, directory)
    saving.check_same(AGENT, {league_config.MAIN: TRAIN}, None, directory)
    for other in (
        TRAIN._replace(params={"w": TRAIN.params["w"].at[0].set(-0.0)}),  # equal but for a bit
        TRAIN._replace(opt_state={"mu": jnp.full(3, 1e-45)}),
    ):
        with pytest.raises(errors.ResumeError, match=r"^checkpoint 4 in .*other parameters than host 0: .*every host"):
            saving.check_same(AGENT, {league_config.MAIN: other}, restored, directory)
        saving.check_same(AGENT, {league_config.MAIN: other}, restored._replace(state_sha256=""), directory)  # earlier


def test_a_setting_whose_change_needs_other_arrays_is_named(tmp_path: pathlib.Path) -> None:
    saved = _saves(tmp_path)
    saved.save(_state({league_config.MAIN: states.parts(AGENT, TRAIN)}, ledger={"stored": 9}))
    saved.checkpointer.close()
    earlier = {"preset": "", "given": {}, "config": configs.flatten(configs.Config())}
    wider = TRAIN._replace(params={"w": jnp.arange(4.0)})
    for settings, message in (
        (
            {"muzero.entropy_weight": 0.1},
            r"this resume changes .*\(--muzero\.entropy_weight=0 there, 0\.1 here\): .*array 'params/w'",
        ),
        ({}, "^the checkpoint's array 'params/w'"),
    ):
        saved = _saves(tmp_path, **{name.replace(".", "__"): value for name, value in settings.items()})
        saved.directory.earlier = earlier  # type: ignore[misc]
        with pytest.raises(errors.ResumeError, match=message):
            saved.restore(AGENT, lambda counters: {"main": wider}, None)
        saved.checkpointer.close()


def test_a_frozen_player_is_saved_with_the_next_checkpoint(tmp_path: pathlib.Path) -> None:
    saved, name = _saves(tmp_path), "main-0123456789ab"
    state = _state({league_config.MAIN: {"params": {"w": np.zeros(1)}}}, frozen=(name,), num_updates=1)
    assert saved.freeze(dispatchers.NewPlayer(name, "main", 1, 9, states.PlayerSnapshot({"w": np.ones(1)})))
    saved.save(state)
    saved.checkpointer.close()
    (found,) = saved_files.manifests(tmp_path)
    assert list(found.frozen) == [name] and saved.durable_update == 1
    assert player_files.read(tmp_path, name, {"w": np.ones(1, np.float32)}).step == 1


def test_old_checkpoints_that_stay_are_told_and_are_no_failed_save(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    saved = _saves(tmp_path, told.append)

    def fail(path: pathlib.Path) -> None:
        raise errors.CheckpointError("a manifest cannot be read")

    monkeypatch.setattr(saved_files, "manifests", fail)
    saved.checkpointer.save(7, {"params": {}}, {}, None)
    saved.checkpointer.close()
    (text,) = told
    assert str(tmp_path) in text and "a manifest cannot be read" in text
    assert saved.durable_update == 7
    saved.check()


def test_a_last_state_that_could_not_be_saved_is_an_error(tmp_path: pathlib.Path) -> None:
    saved = _saves(tmp_path, lambda text: None)
    for update, newest in ((None, "there is no checkpoint"), (20, "of update 20")):
        saved._not_saved("the disk is full")
        saved.durable_update = update
        with pytest.raises(errors.CheckpointError, match=newest):
            saved.check()
    saved.checkpointer.close()


@pytest.mark.parametrize(
    ("info", "known", "expected"),
    [
        ({"mean_return": 9.0}, 3.0, 9.0),
        ({"mean_return": 9.0}, None, 9.0),
        ({"mean_return": 1.0}, 3.0, 1.0),  # a better one could not be written
        ({"mean_return": 9.0, "task_returns": {"random": 9.0}}, 0.5, 9.0),
        ({"mean_return": 9.0, "task_returns": dict.fromkeys(episodes.DMLAB_SCORES, 9.0)}, 0.5, 0.5),  # a capped mean
        (None, 3.0, 3.0),
    ],
)
def test_a_resumed_run_must_exceed_the_best_that_is_saved(
    tmp_path: pathlib.Path, info: dict[str, Any] | None, known: float | None, expected: float
) -> None:
    writer = checkpoint_dir.CheckpointDir(tmp_path, configs.Config().checkpoint, lambda: 0.0)
    if info is not None:
        writer.write_best(5, {"params": {"params": {"w": np.zeros(1)}}}, info)
    assert saving.best_return_of(tmp_path, {"best_return": known}) == expected


@pytest.mark.parametrize(("deterministic", "expected"), [(False, 9.0), (True, 3.0)])
def test_a_resume_knows_the_best_but_repeats_evaluations_in_deterministic_mode(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, deterministic: bool, expected: float
) -> None:
    cut_at: list[int] = []
    ledger = {"stored": 9, "discarded": {"unfinished_unroll": 2}}
    counters = {**COUNTERS, "ledger": ledger, "best_return": 3.0, "metrics_bytes": 0}
    found = checkpoint.Restored(4, {}, counters, None, (), checkpoint.Newest())
    saved = _saves(
        tmp_path,
        lambda text: None,
        truncate=lambda size, steps: cut_at.append(steps),
        run__deterministic=deterministic,
    )
    writer = checkpoint_dir.CheckpointDir(tmp_path, saved.config.checkpoint, lambda: 0.0)
    writer.write_best(5, {"params": {"params": {"w": np.zeros(1)}}}, {"mean_return": 9.0})
    monkeypatch.setattr(checkpoint, "restore", lambda *args, **options: found)
    monkeypatch.setattr(states, "from_parts", lambda agent, train, parts: train)
    agent = cast(Any, _Named(samples=False))
    monkeypatch.setattr(states, "parts", lambda agent, train: {})
    restored = saved.restore(agent, lambda counters: {"main": cast(Any, None)}, cast(Any, None))
    saved.checkpointer.close()
    assert restored is not None and restored[1].counters["best_return"] == expected
    assert cut_at == [11]  # points up to here stay in TensorBoard


def test_the_end_waits_for_a_save_aloud_and_hides_no_earlier_failure(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    with run_dirs.open_run_dir(tmp_path, configs.Config(), preset="catch", given={}) as directory:
        saved = saving.Saves(directory.config, directory, cast(Any, None), told.append, None)
        saved.close()
        assert not told

    def lose() -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(saved, "checkpointer", _Named(busy=True, close=lose))
    saved.close()  # the failure that ended training is the one to be raised
    waiting, lost = told
    assert "waiting for the checkpoint" in waiting and lost.endswith(" lost: RuntimeError: the device is gone")
