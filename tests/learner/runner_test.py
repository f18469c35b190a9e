"""The state on the device goes through its programs, and checkpoints bring its counters back."""

from __future__ import annotations

from typing import Any

import jax
import loop_world
import numpy as np
import pytest

from seedzero.checkpoints import trees
from seedzero.device import apart, steps
from seedzero.device import batch as batches
from seedzero.device import state as states
from seedzero.learner import runner as runners


def _make(device: loop_world.Device, programs: Any = None) -> runners.Runner:
    train, actor = map(trees.copy, (device.train, device.actor))  # the runner donates what it is given
    return runners.Runner(device.setup, programs or device.programs, train, actor)


def _batch() -> batches.Batch:
    session = loop_world.make_session([0, 1], [2, 3])
    waiting = [loop_world.message(session, group, 1.0, first=True) for group in (0, 1)]
    batch, _ = batches.assemble(waiting, loop_world.SPEC, loop_world.LAYOUT, loop_world.SIZES)
    return batch


def _numbers(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def test_acting_keeps_the_parameters_of_the_last_publication(device: loop_world.Device) -> None:
    runner = _make(device)
    first = _numbers(runner.params)
    runner.act(_batch(), runner.params, 0, 0)
    runner.update(np.int32(0))
    assert (runner.num_updates, runner.version) == (1, 0)
    assert np.array_equal(_numbers(runner.params), first)
    runner.publish()
    assert runner.version == 1
    assert np.array_equal(_numbers(runner.params), _numbers(runner.copy_params()))
    published = runner.params
    runner.update(np.int32(0))  # donates what the copies were made from
    assert np.isfinite(_numbers(published)).all()


@pytest.fixture(scope="module")
def device_apart() -> loop_world.Device:
    """A device that acts, and one that learns."""
    return loop_world.make_device(loop_world.MUZERO, num_learning=1)


def test_parameters_act_once_they_are_on_the_devices_that_do(
    device_apart: loop_world.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[int] = []
    published: list[Any] = []
    monkeypatch.setattr(apart, "is_there", lambda params: any(params is published[index] for index in there))
    runner = _make(device_apart)
    copy_params = runner.copy_params

    def publish() -> None:
        runner.update(np.int32(0))
        runner.publish()

    def copied() -> Any:
        published.append(copy_params())
        return published[-1]

    monkeypatch.setattr(runner, "copy_params", copied)
    for _ in range(3):
        publish()
    runner.receive()
    assert (runner.num_updates, runner.version) == (3, 0)
    there.append(0)
    runner.receive()
    assert runner.version == 1 and runner.params is published[0]
    there.append(2)  # the second gave way to it: only two are on their way
    runner.receive()
    assert runner.version == 3 and runner.params is published[2]
    assert {leaf.sharding.device_set == {jax.devices()[0]} for leaf in jax.tree.leaves(runner.params)} == {True}
    assert {leaf.sharding.device_set == {jax.devices()[1]} for leaf in jax.tree.leaves(runner._train)} == {True}
    runner.restore({"num_updates": 9, "num_acts": 4})
    assert runner.version == 9 and runner.params is published[3]  # a run that resumes waits for them


def test_targets_are_refreshed_with_the_parameters_that_act(device_apart: loop_world.Device) -> None:
    seen: list[Any] = []

    def refresh(params: Any, rings: Any, counters: steps.Counters) -> Any:
        seen.append((params, int(counters.version)))
        return rings, np.zeros(3)

    runner = _make(device_apart, loop_world.Broken(device_apart.programs, refresh=refresh))
    runner.update(np.int32(0))
    runner.refresh(7)
    assert seen == [(runner.params, 0)]


def test_every_call_says_how_many_were_before_it(refreshing: loop_world.Device) -> None:
    seen: list[tuple[int, ...]] = []

    def act(params: Any, actor: Any, batch: Any, counters: steps.Counters) -> Any:
        seen.append(tuple(map(int, counters)))
        return actor, np.zeros(4)

    def refresh(params: Any, rings: Any, counters: steps.Counters) -> Any:
        seen.append(tuple(map(int, counters)))
        return rings, np.zeros(3)

    programs = loop_world.Broken(refreshing.programs, act=lambda size: act, refresh=refresh)
    runner = _make(refreshing, programs)
    runner.update(np.int32(0))
    for num_inserts in (5, 6):
        runner.act(_batch(), runner.params, 0, num_inserts)
    runner.refresh(7)
    runner.refresh(7)
    assert seen == [(5, 0, 0), (6, 0, 1), (7, 1, 0), (7, 1, 1)]
    assert (runner.num_updates, runner.num_refreshes) == (1, 2)


def test_a_batch_of_one_shard_asks_for_the_program_of_its_size(device: loop_world.Device) -> None:
    runner = _make(device)
    actions = np.asarray(runner.act(_batch(), runner.params, 0, 0))
    assert actions.shape == (4,) and set(actions.tolist()) <= {0, 1, 2}
    assert runner.state()[1].cursor.tolist() == [1, 1, 1, 1]  # type: ignore[union-attr]


def test_a_checkpoint_holds_the_replay_with_its_frames(device: loop_world.Device) -> None:
    frames = np.ones(3)
    programs = loop_world.Broken(device.programs, with_frames=lambda rings: rings._replace(observation=frames))
    parts, rings = _make(device, programs).state()
    assert rings is not None and rings.observation is frames
    assert parts.keys() == states.parts(device.setup.agent, device.train).keys()


def test_a_queues_rings_hold_nothing_to_keep(queued: loop_world.Device) -> None:
    assert _make(queued).state()[1] is None


@pytest.mark.parametrize("missing", [False, True])
def test_counters_come_back_and_acting_takes_the_newest_parameters(
    refreshing: loop_world.Device, missing: bool
) -> None:
    runner = _make(refreshing)
    runner.act(_batch(), runner.params, 0, 0)
    runner.act(_batch(), runner.params, 0, 0)
    runner.update(np.int32(4))
    runner.refresh(4)
    saved = runner.to_json()
    assert saved == {"num_updates": 1, "num_acts": 2, "num_reanalyses": 1}
    again = _make(refreshing)
    again.restore({name: saved[name] for name in ("num_updates", "num_acts")} if missing else saved)
    assert again.to_json() == {**saved, "num_reanalyses": 0 if missing else 1}
    assert again.version == 1
