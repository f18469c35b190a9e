"""What one does with a run: arguments that no checkpoint is read for, and the names in results."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import seedzero
from seedzero.acting.actors import agent_choice
from seedzero.acting.tables import scoring
from seedzero.api import runs
from seedzero.core import errors, types
from seedzero.storage.bucket import run_copy
from seedzero.storage.checkpoints import run_dirs


@pytest.mark.parametrize("seed", [-1, 2**31, 1.5])
def test_a_seed_that_no_device_holds_is_refused(seed: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.UsageError, match=rf"seed={seed}: .* 0 to 2147483647"):
        seedzero.evaluate(tmp_path, seed=seed)
    with pytest.raises(errors.UsageError, match=rf"seed={seed}: "):
        seedzero.load(tmp_path, seed=seed)


def test_a_step_may_be_a_number_of_numpy() -> None:
    assert [runs.checked_step(step) for step in (None, "best", np.int64(60), 7)] == [None, "best", 60, 7]
    for step in (-1, 1.0, "first", np.int64(-1)):
        with pytest.raises(errors.UsageError, match=rf"step={re.escape(repr(step))}: .*'best' .*'last'"):
            runs.checked_step(step)


@pytest.mark.parametrize("place", [3, b"run", "a\0b", None])
def test_a_path_of_another_type_is_named(place: Any, tmp_path: pathlib.Path) -> None:
    for call in (seedzero.load, seedzero.evaluate, functools.partial(seedzero.export, out="out"), seedzero.train):
        if place is not None or call is not seedzero.train:
            with pytest.raises(errors.UsageError, match=rf"^run_dir={re.escape(repr(place))}: expected a text"):
                call(run_dir=place)
    with pytest.raises(errors.UsageError, match=rf"^out={re.escape(repr(place))}: "):
        seedzero.export(tmp_path, place)


@pytest.mark.parametrize("number", [0, 2.5, "4"])
def test_a_number_of_episodes_is_whole(number: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.UsageError, match=rf"^episodes={number!r}: expected a whole number of at least 1"):
        seedzero.evaluate(tmp_path, number)


@pytest.mark.parametrize("policy", ["best", "", "explore"])
def test_another_kind_of_acting_is_refused_before_the_run_is_read(policy: Any) -> None:
    for call in (seedzero.load, seedzero.evaluate, functools.partial(seedzero.export, out="out")):
        with pytest.raises(errors.UsageError, match=f"^--policy={policy}: .*greedy.*sample"):
            call("missing", policy=policy)


def test_an_opponent_in_a_bucket_keeps_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    @contextlib.contextmanager
    def copied(place: str, fetch: object) -> Iterator[pathlib.Path]:
        yield tmp_path if "://" in place else pathlib.Path(place)

    def played(choice: agent_choice.AgentChoice, episodes: int, opponent: str, progress: None) -> dict[str, Any]:
        assert (opponent, choice.policy) == (str(tmp_path), "sample")
        numbers = dict.fromkeys(("mean_return", "std_return", "min_return", "max_return", "mean_length"), 0.0)
        return {"step": 7, "chosen": "last", "episodes": episodes, "opponent": opponent, **numbers}

    monkeypatch.setattr(run_copy, "local", copied)
    monkeypatch.setattr(scoring, "evaluate", played)
    assert (
        seedzero.evaluate("runs/one", 4, opponent="gs://bucket/other", policy="sample").opponent == "gs://bucket/other"
    )


@pytest.mark.parametrize(
    ("tasks", "played", "told"),
    [
        (("a", "b", "c"), ("a", "b"), "2 of the 3 tasks, .* 3 episodes "),
        (("a", "b", "c"), ("a", "b", "c"), "^$"),
        ((), (), "^$"),
    ],
)
def test_tasks_without_an_episode_are_told(
    tasks: tuple[str, ...],
    played: tuple[str, ...],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = types.EnvSpec((4,), "float32", 2, tasks=tasks)
    monkeypatch.setattr(run_dirs, "read_spec", lambda path: spec)
    numbers = dict.fromkeys(("mean_return", "std_return", "min_return", "max_return", "mean_length"), 0.0)
    returns = {"task_returns": dict.fromkeys(played, 1.0)} if played else {}
    monkeypatch.setattr(
        scoring, "evaluate", lambda *_: {"step": 7, "chosen": "last", "episodes": 2, **numbers, **returns}
    )
    seedzero.evaluate(tmp_path, 2)
    assert re.search(told, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("onnx", ["cpu"], None), "--format=onnx: expected stablehlo"),
        (("stablehlo", ["cpu", "gpu"], None), "--platforms=cpu,gpu: .* cpu, cuda, rocm, tpu"),
        (("stablehlo", [], None), "--platforms=: .* cpu, cuda, rocm, tpu"),
        (("stablehlo", ["cpu"], 0), "--batch_size=0: .* 1"),
    ],
)
def test_what_cannot_be_exported_is_named(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(errors.UsageError, match=message):
        runs.check_export(*arguments)
