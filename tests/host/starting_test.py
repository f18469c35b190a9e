"""The start of a learner, with its other parts imitated; `tests/e2e` has the rest."""

from __future__ import annotations

import dataclasses
import errno
import io
import pathlib
import sys
import types as python_types
from typing import Any, cast

import golden
import parts_world
import pytest

from seedzero.checkpoints import spec_file
from seedzero.core import errors, types
from seedzero.evaluation import evaluation
from seedzero.host import stage as stages
from seedzero.host import starting
from seedzero.loop import evaluator as evaluators

CATCH = parts_world.CATCH


@pytest.mark.parametrize(("spec", "order"), [(CATCH, ["build", "wait"]), (None, ["wait", "build"])])
def test_networks_are_built_while_workers_start_where_their_spec_is_known(
    make_parts: parts_world.Make, tmp_path: pathlib.Path, spec: types.EnvSpec | None, order: list[str]
) -> None:
    world = make_parts(spec=spec)
    world.news = world.joins
    starting.prepare(world.parts, "unix:/nowhere")
    assert world.calls == order
    assert spec_file.read(tmp_path) == CATCH
    assert world.progress.snapshot().num_updates == 25 and world.parts.stage.now is stages.Stage.BUILT


@pytest.mark.parametrize("spec", [CATCH, None])
def test_a_run_whose_worker_has_failed_says_that_and_keeps_no_spec(
    make_parts: parts_world.Make, tmp_path: pathlib.Path, spec: types.EnvSpec | None
) -> None:
    world = make_parts(spec=spec)
    world.ending.fail("the worker failed")
    with pytest.raises(errors.TrainingFailure, match="the worker failed"):
        starting.prepare(world.parts, "unix:/nowhere")
    assert spec_file.read(tmp_path) is None


@pytest.mark.parametrize(("resumed", "knows"), [(False, False), (True, False), (True, True)])
def test_a_resumed_run_is_built_before_workers_can_join_also_without_its_spec_file(
    make_parts: parts_world.Make, tmp_path: pathlib.Path, resumed: bool, knows: bool
) -> None:
    world = make_parts(resumed=resumed)
    if knows:
        spec_file.write(tmp_path, CATCH)
    starting.show_spec(dataclasses.replace(world.parts, expected=CATCH))
    assert world.reception.spec == CATCH
    assert world.calls == ["build"] * resumed
    assert (spec_file.read(tmp_path) == CATCH) == resumed


def test_an_address_that_is_taken_ends_compilations_too(make_parts: parts_world.Make) -> None:
    def refuse() -> str:
        raise errors.UsageError("in use")

    world = make_parts(spec=CATCH)
    world.build()
    world.address = refuse
    with pytest.raises(errors.UsageError, match="in use"):
        starting.listen(world.parts)
    assert world.calls == ["close"]


def test_training_goes_on_though_its_address_cannot_be_printed(
    make_parts: parts_world.Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    world = make_parts()
    monkeypatch.setattr(sys, "stdout", Full())
    starting.announce(world.parts, "unix:/nowhere")
    assert world.calls == ["unix:/nowhere"]


def _ended(result: evaluation.Scores, **options: bool) -> evaluators.Ended:
    running = cast(Any, python_types.SimpleNamespace(update=3, env_steps=40))
    return evaluators.Ended(running, result, None, **options)


def test_a_row_of_an_evaluation_has_the_steps_of_its_parameters(make_parts: parts_world.Make) -> None:
    world = make_parts()
    result = evaluation.Scores(2, 1.0, 0.0, 1.0, 1.0, 5.0)
    ended = _ended(result, is_best=False, is_record=False, cut_short=False)
    starting.evaluated(world.parts, ended._replace(best_score=2.5))
    (row,) = world.rows
    assert row["evaluation_best_score"] == 2.5
    assert (row["update"], row["env_steps"], row["kind"], row["evaluation_mean_return"]) == (3, 40, "evaluation", 1.0)
    assert world.calls == []


@pytest.mark.parametrize(
    ("is_record", "unfinished"),
    [(False, 0), (True, 0), (False, 15)],
)
def test_an_evaluation_says_whether_it_beats_all_before_or_was_cut(
    make_parts: parts_world.Make, is_record: bool, unfinished: int, said: golden.Said
) -> None:
    world = make_parts()
    result = evaluation.Scores(5, 1.0, 0.0, 1.0, 1.0, 5.0, unfinished=unfinished)
    best = not unfinished  # higher than all but the baseline, which alone is no record
    ended = _ended(result, is_best=best, is_record=is_record, cut_short=bool(unfinished))
    starting.evaluated(world.parts, ended)
    (message,) = world.said
    assert message.startswith("evaluation at update 3: ") and (" 15 " in message) == bool(unfinished)
    said(message, (is_record, unfinished))
    assert world.calls == ["save best"] * best
