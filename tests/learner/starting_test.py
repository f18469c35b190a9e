"""The start of a learner, with its other parts imitated; `tests/e2e` has the rest."""

from __future__ import annotations

import dataclasses
import errno
import io
import pathlib
import sys

import parts_world
import pytest

from seedzero.core import errors, types
from seedzero.learner import entry, stages
from seedzero.storage.checkpoints import run_dirs

CATCH = parts_world.CATCH


@pytest.mark.parametrize(("spec", "order"), [(CATCH, ["build", "wait"]), (None, ["wait", "build"])])
def test_networks_are_built_while_workers_start_where_their_spec_is_known(
    make_parts: parts_world.Make, tmp_path: pathlib.Path, spec: types.EnvSpec | None, order: list[str]
) -> None:
    world = make_parts(spec=spec)
    world.news = world.joins
    entry.prepare(world.parts)
    assert world.calls == order
    assert run_dirs.read_spec(tmp_path) == CATCH
    assert world.progress.snapshot().num_updates == 25 and world.stage.now is stages.Stage.BUILT


def test_a_budget_that_is_spent_before_the_networks_are_built_is_named(make_parts: parts_world.Make) -> None:
    world = make_parts(spec=CATCH, run__max_seconds=60.0)
    built = world.stage.build

    def build_slowly(spec: types.EnvSpec) -> None:
        built(spec)
        world.now += 61.0

    world.stage.build = build_slowly  # type: ignore[method-assign]
    with pytest.raises(errors.TrainingFailure, match=r"--max_seconds=60 .*--max_updates"):
        entry.prepare(world.parts)
    assert world.calls == ["build"]


@pytest.mark.parametrize("spec", [CATCH, None])
def test_a_run_whose_worker_has_failed_says_that_and_keeps_no_spec(
    make_parts: parts_world.Make, tmp_path: pathlib.Path, spec: types.EnvSpec | None
) -> None:
    world = make_parts(spec=spec)
    world.ending.fail("the worker failed")
    with pytest.raises(errors.TrainingFailure, match="the worker failed"):
        entry.prepare(world.parts)
    assert run_dirs.read_spec(tmp_path) is None


@pytest.mark.parametrize(("resumed", "knows"), [(False, False), (True, False), (True, True)])
def test_a_resumed_run_is_built_before_workers_can_join_also_without_its_spec_file(
    make_parts: parts_world.Make, tmp_path: pathlib.Path, resumed: bool, knows: bool
) -> None:
    world = make_parts(resumed=resumed)
    if knows:
        run_dirs.write_spec(tmp_path, CATCH)
    entry.show_spec(dataclasses.replace(world.parts, expected=CATCH))
    assert world.reception.spec == CATCH
    assert world.calls == ["build"] * resumed
    assert (run_dirs.read_spec(tmp_path) == CATCH) == resumed


def test_an_address_that_is_taken_ends_compilations_too(make_parts: parts_world.Make) -> None:
    def refuse() -> str:
        raise errors.UsageError("in use")

    world = make_parts(spec=CATCH)
    world.build()
    world.address = refuse
    with pytest.raises(errors.UsageError, match="in use"):
        entry.listen(world.parts)
    assert world.calls == ["close"]


def test_training_goes_on_though_its_address_cannot_be_printed(
    make_parts: parts_world.Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    world = make_parts()
    monkeypatch.setattr(sys, "stdout", Full())
    entry.announce(world.parts, "unix:/nowhere")
    assert world.calls == ["unix:/nowhere"]


@pytest.mark.parametrize(("spec", "num_workers", "is_invited"), [(None, 0, True), (None, 1, False), (CATCH, 0, False)])
def test_workers_are_invited_where_they_alone_know_the_environments(
    make_parts: parts_world.Make, spec: types.EnvSpec | None, num_workers: int, is_invited: bool
) -> None:
    world = make_parts(spec=spec, worker__num=num_workers)
    entry.announce(world.parts, "unix:/nowhere")
    assert [text.endswith("unix:/nowhere") for text in world.said] == [True] * is_invited
