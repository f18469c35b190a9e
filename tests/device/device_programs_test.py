"""Programs that compile in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import device_world
import fake_agent
import jax
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.core import errors
from seedzero.device import steps, strategies, tracing
from seedzero.replay import sources, windowing


def _compute(params: base.Params, windows: windowing.Windows, key: jax.Array) -> Any:
    return {"target": windows.reward[:, 0] + 100}, {"change": windows.reward[:, 0]}


REANALYSE = base.Reanalyse(per_insert=1.0, batch_size=64, min_age=0, length=1, observe=(0,), compute=_compute)


@pytest.fixture
def opened() -> Iterator[list[device_world.World]]:
    """Worlds to close at the end."""
    worlds: list[device_world.World] = []
    yield worlds
    for world in worlds:
        world.close()


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [1, 2])
def test_every_size_acts_and_the_update_learns(opened: list[device_world.World], num_devices: int) -> None:
    setup = fake_agent.make_setup(fake_agent.make(), num_devices, num_evaluate=2, sizes=(4, 8))
    world = device_world.World(setup)
    opened.append(world)
    # The agent's answer is the slot's number; slots of the devices take turns, so slot 1 is number 2 of two devices.
    assert world.act([0, 3, 4, 1], reward=1.0) == [0, 3, 4, num_devices]
    assert world.act([3, 5, 0], size=4, reward=2.0) == [3, 5, 0]
    assert np.asarray(world.actor.rings.cursor).tolist() == [2, 1, 0, 2]
    metrics = world.update()
    assert {"loss", "replay_age", "grad_norm"} <= metrics.keys() and list(metrics) == sorted(metrics)
    assert metrics["loss"] == pytest.approx(1.0)  # the windows' reward is 1, their number 0
    assert world.programs.sizes == (4, 8) and world.programs.update.done()
    assert not world.programs.reanalyse.done()
    for _ in range(3):  # two sizes and the update
        assert world.ready.acquire(timeout=600)
    assert world.strategy.whole(world.actor.rings) is world.actor.rings


@pytest.mark.thorough
def test_programs_beyond_the_device_are_refused_at_the_request(
    opened: list[device_world.World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "limit_bytes", lambda device: 100)
    world = device_world.World(fake_agent.make_setup(fake_agent.make(), num_evaluate=2, sizes=(4, 8)))
    opened.append(world)
    with pytest.raises(errors.CapacityError, match=r"^act .*--batcher\.max_batch .*--replay\.capacity"):
        world.act([0])
    with pytest.raises(errors.CapacityError, match=r"^update .*--replay\.batch_size .*--replay\.capacity"):
        world.update(np.int32(0))
    queue = sources.Queue(length=1, batch_size=4, max_lag=2, wait_seconds=0.0)
    queued = device_world.World(fake_agent.make_setup(fake_agent.make(queue), 2))
    opened.append(queued)
    with pytest.raises(errors.CapacityError, match=r"^act .*--batcher\.max_batch .*--replay\.num_slots"):
        queued.act([0])


def test_an_update_from_a_queue_is_fed_unrolls(opened: list[device_world.World]) -> None:
    queue = sources.Queue(length=1, batch_size=4, max_lag=2, wait_seconds=0.0)
    world = device_world.World(fake_agent.make_setup(fake_agent.make(queue), 2))
    opened.append(world)
    for reward in (1.0, 2.0):
        world.act([0, 1, 2, 3], reward=reward)
    local = np.array([0, 1, 0, 1], np.int32)
    metrics = world.update(steps.Unrolls(local, np.zeros(4, np.int32), np.array([2, 0, 2, 0], np.float32)))
    assert metrics["loss"] == pytest.approx((1.0 + 2.0) ** 2)
    assert metrics["batch_padding"] == 0.5


@pytest.mark.thorough
def test_targets_are_refreshed_where_the_agent_does_that(opened: list[device_world.World]) -> None:
    world = device_world.World(fake_agent.make_setup(fake_agent.make(reanalyse=REANALYSE), 2))
    opened.append(world)
    for reward in (1.0, 2.0):
        world.act([0, 1, 2, 3], reward=reward)
    metrics = world.reanalyse(version=1)
    assert world.programs.reanalyse.done()
    assert np.asarray(world.actor.rings.stored["target"])[:, :2].tolist() == [[101, 0]] * 4
    assert metrics == pytest.approx({"change": 1.0, "refresh_age": 1.0, "refreshed_share": 4 / 64})


@pytest.mark.thorough
def test_programs_take_whatever_acting_needs(opened: list[device_world.World]) -> None:
    agent = fake_agent.make(acting=lambda state: (state.params, state.num_updates), reanalyse=REANALYSE)
    world = device_world.World(fake_agent.make_setup(agent))
    opened.append(world)
    assert world.act([2, 1]) == [2, 1]
    world.reanalyse(version=1)


@pytest.mark.thorough
def test_smaller_batches_come_after_what_a_run_needs_to_begin(
    opened: list[device_world.World], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[int]] = []
    trace_reanalyse, is_made = strategies.Strategy.trace_reanalyse, threading.Event()

    def tracing_refresh(strategy: strategies.Strategy, tracer: tracing.ProgramTracer) -> Any:
        assert is_made.wait(600)
        programs = world.programs
        assert programs.update.done()
        found.append([size for size in programs.sizes if size != 8])
        return trace_reanalyse(strategy, tracer)

    monkeypatch.setattr(strategies.Strategy, "trace_reanalyse", tracing_refresh)
    world = device_world.World(fake_agent.make_setup(fake_agent.make(reanalyse=REANALYSE), sizes=(2, 4, 8)))
    is_made.set()
    opened.append(world)
    assert [world.act([1], size=size) for size in (2, 4, 8)] == [[1]] * 3
    assert world.programs.reanalyse.done() and found == [[]]


def test_what_can_not_be_compiled_is_told_where_it_is_asked_for(opened: list[device_world.World]) -> None:
    def update(*_: Any) -> Any:
        raise ValueError("no such update")

    world = device_world.World(fake_agent.make_setup(fake_agent.make()._replace(update=update)))
    opened.append(world)
    assert world.act([0]) == [0]
    with pytest.raises(ValueError, match="no such update"):
        _ = world.programs.update.result()
    assert world.programs.update.done()


@pytest.mark.parametrize("is_queue", [False, True])
def test_an_example_feed_has_the_shape_of_every_feed(is_queue: bool) -> None:
    queue = sources.Queue(length=1, batch_size=4, max_lag=2, wait_seconds=0.0)
    setup = fake_agent.make_setup(fake_agent.make(queue if is_queue else fake_agent.ONE_ROW), 2)
    feed = steps.example_feed(setup)
    placed = jax.device_put(feed, jax.sharding.NamedSharding(setup.mesh, steps.feed_specs(setup)))
    sizes = {shard.data.shape for leaf in jax.tree.leaves(placed) for shard in leaf.addressable_shards}
    assert sizes == ({(2,)} if is_queue else {()})
    dtypes = [np.asarray(leaf).dtype for leaf in jax.tree.leaves(feed)]
    assert dtypes == ([np.int32, np.int32, np.float32] if is_queue else [np.int32])
