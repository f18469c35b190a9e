"""Programs that compile in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import fake_agent
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.core import errors
from seedzero.device import memory, steps
from seedzero.device import programs as device_programs
from seedzero.device import setup as setups
from seedzero.device import state as states
from seedzero.replay import data as sources
from seedzero.replay import windows as windowing


def _compute(params: base.Params, windows: windowing.Windows, key: jax.Array) -> Any:
    return {"target": windows.reward[:, 0] + 100}, {"change": windows.reward[:, 0]}


REFRESH = base.Refresh(per_insert=1.0, batch_size=64, min_age=0, length=1, observe=(0,), compute=_compute)


class _World:
    """Programs, and the states that they work on."""

    def __init__(self, setup: setups.Setup) -> None:
        self.setup = setup
        self.ready = threading.Semaphore(0)
        self.programs = device_programs.Programs(
            setup, states.abstract_train(setup), states.abstract_actor(setup), on_ready=self.ready.release
        )
        self.train, self.actor = states.init_train(setup), states.init_actor(setup)

    def act(self, size: int, slots: list[int], reward: float = 0.0) -> list[int]:
        batch, rows = fake_agent.batch(self.setup._replace(sizes=(size,)), slots, reward=reward)
        params = self.setup.agent.acting(self.train)
        self.actor, acted = self.programs.act(size)(params, self.actor, batch, steps.counters(0, 0, 0))
        return np.asarray(acted)[rows].tolist()  # type: ignore[no-any-return]

    def update(self, feed: steps.Feed) -> dict[str, float]:
        self.train, rings, values = self.programs.update(self.train, self.actor.rings, feed)
        self.actor = self.actor._replace(rings=rings)
        return dict(zip(self.programs.metric_names, np.asarray(values).tolist(), strict=True))


@pytest.fixture
def opened() -> Iterator[list[_World]]:
    """Worlds to close at the end."""
    worlds: list[_World] = []
    yield worlds
    for world in worlds:
        world.programs.close()


@pytest.mark.parametrize("num_devices", [1, 2])
def test_every_size_acts_and_the_update_learns(opened: list[_World], num_devices: int) -> None:
    setup = fake_agent.make_setup(fake_agent.make(), num_devices, num_evaluate=2, sizes=(4, 8))
    world = _World(setup)
    opened.append(world)
    # The agent's answer is the slot's number; slots of the devices take turns, so slot 1 is number 2 of two devices.
    assert world.act(8, [0, 3, 4, 1], reward=1.0) == [0, 3, 4, num_devices]
    assert world.act(4, [3, 5, 0], reward=2.0) == [3, 5, 0]
    assert np.asarray(world.actor.rings.cursor).tolist() == [2, 1, 0, 2]
    metrics = world.update(np.int32(2))
    assert {"loss", "replay_age", "grad_norm"} <= metrics.keys() and list(metrics) == sorted(metrics)
    assert metrics["loss"] == pytest.approx(1.0)  # the windows' reward is 1, their number 0
    assert world.programs.sizes == (4, 8) and world.programs.update_ready and world.programs.update_compiled
    assert not world.programs.refresh_ready
    for _ in range(3):  # two sizes and the update
        assert world.ready.acquire(timeout=60)
    assert world.programs.with_frames(world.actor.rings) is world.actor.rings


def test_programs_that_need_more_than_the_device_has_are_refused_where_they_are_asked_for(
    opened: list[_World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "limit_bytes", lambda device: 100)
    world = _World(fake_agent.make_setup(fake_agent.make(), num_evaluate=2, sizes=(4, 8)))
    opened.append(world)
    with pytest.raises(errors.CapacityError, match=r"act needs .*lower --batcher\.max_batch or --replay\.capacity"):
        world.act(8, [0])
    with pytest.raises(errors.CapacityError, match=r"update needs .*lower --replay\.batch_size or --replay\.capac"):
        world.update(np.int32(0))
    queue = sources.Queue(length=1, batch_size=4, max_lag=2, wait_seconds=0.0)
    queued = _World(fake_agent.make_setup(fake_agent.make(queue), 2))
    opened.append(queued)
    with pytest.raises(errors.CapacityError, match=r"act needs .*lower --batcher\.max_batch or --replay\.num_slots"):
        queued.act(8, [0])


def test_state_that_a_program_is_not_given_lies_beside_its_arguments() -> None:
    setup = fake_agent.make_setup(fake_agent.make())
    train, actor = states.abstract_train(setup), states.abstract_actor(setup)
    on_host = actor._replace(rings=actor.rings._replace(observation=None))
    params, carried = map(memory.device_bytes, (setup.agent.acting(train), actor.carried))
    # Two copies of the parameters: acting's, and that of a running evaluation.
    assert device_programs.Tracer(setup, train, actor).act(8).elsewhere == params + memory.device_bytes(train)
    assert device_programs.Tracer(setup, train, actor).update().elsewhere == 2 * params + carried
    assert device_programs.Tracer(setup, train, on_host).learn().elsewhere == 2 * params + carried


def test_the_seed_is_an_argument_of_the_programs_and_no_part_of_them() -> None:
    setup = fake_agent.make_setup(fake_agent.make(refresh=REFRESH), 2)
    train, actor = states.abstract_train(setup), states.abstract_actor(setup)
    tracers = [device_programs.Tracer(setup._replace(seed=seed), train, actor) for seed in (1, 2)]
    for one, other in zip(*([x.act(8), x.update(), x.refresh()] for x in tracers), strict=True):
        assert one.function.lower().as_text() == other.function.lower().as_text()

    def arguments() -> tuple[Any, ...]:
        rings = states.init_actor(setup).rings
        rows = np.arange(rings.reward.size, dtype=np.float32).reshape(rings.reward.shape)
        rings = rings._replace(weight=jnp.ones_like(rings.weight), reward=rings.reward + rows)
        return states.init_train(setup), rings, np.int32(0)

    losses = []
    for seed, tracer in zip((1, 2), tracers, strict=True):
        update = tracer.update()
        values = dict(zip(update.metric_names, np.asarray(update.seeded()(*arguments())[2]).tolist(), strict=True))
        _, _, expected = steps.make_update(setup._replace(seed=seed))(*arguments())
        assert values == pytest.approx(jax.tree.map(float, expected)) and list(values) == sorted(values)
        losses.append(values["loss"])
    assert losses[0] != losses[1]  # other windows are drawn


def test_a_program_with_metrics_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = fake_agent.make_setup(fake_agent.make(), 1)
    tracer = device_programs.Tracer(setup, states.abstract_train(setup), states.abstract_actor(setup))
    traced: list[setups.Setup] = []
    make_update = steps.make_update
    monkeypatch.setattr(steps, "make_update", lambda setup: traced.append(setup) or make_update(setup))
    assert tracer.update().metric_names
    assert len(traced) == 1


def test_an_update_from_a_queue_is_fed_unrolls(opened: list[_World]) -> None:
    queue = sources.Queue(length=1, batch_size=4, max_lag=2, wait_seconds=0.0)
    world = _World(fake_agent.make_setup(fake_agent.make(queue), 2))
    opened.append(world)
    for reward in (1.0, 2.0):
        world.act(8, [0, 1, 2, 3], reward=reward)
    local = np.array([0, 1, 0, 1], np.int32)
    metrics = world.update(steps.Unrolls(local, np.zeros(4, np.int32), np.array([2, 0, 2, 0], np.float32)))
    assert metrics["loss"] == pytest.approx((1.0 + 2.0) ** 2)
    assert metrics["batch_padding"] == 0.5


def test_targets_are_refreshed_where_the_agent_does_that(opened: list[_World]) -> None:
    world = _World(fake_agent.make_setup(fake_agent.make(refresh=REFRESH), 2))
    opened.append(world)
    for reward in (1.0, 2.0):
        world.act(8, [0, 1, 2, 3], reward=reward)
    rings, values = world.programs.refresh(world.train.params, world.actor.rings, steps.counters(4, 1, 0))
    assert world.programs.refresh_ready
    assert np.asarray(rings.stored["target"])[:, :2].tolist() == [[101, 0]] * 4
    metrics = dict(zip(world.programs.refresh_metric_names, np.asarray(values).tolist(), strict=True))
    assert metrics == pytest.approx({"change": 1.0, "refresh_age": 1.0, "refreshed_share": 4 / 64})


def test_programs_take_whatever_acting_needs(opened: list[_World]) -> None:
    agent = fake_agent.make(acting=lambda state: (state.params, state.num_updates), refresh=REFRESH)
    world = _World(fake_agent.make_setup(agent))
    opened.append(world)
    assert world.act(8, [2, 1]) == [2, 1]
    params = agent.acting(world.train)
    world.programs.refresh(params, world.actor.rings, steps.counters(0, 1, 0))


def test_smaller_batches_come_after_what_a_run_needs_to_begin(
    opened: list[_World], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[int]] = []
    compile_refresh = device_programs.Programs._compile_refresh

    def compiling(programs: device_programs.Programs, tracer: device_programs.Tracer) -> Any:
        assert programs.update_compiled
        found.append([size for size in programs.sizes if size != 8])
        return compile_refresh(programs, tracer)

    monkeypatch.setattr(device_programs.Programs, "_compile_refresh", compiling)
    world = _World(fake_agent.make_setup(fake_agent.make(refresh=REFRESH), sizes=(2, 4, 8)))
    opened.append(world)
    assert [world.programs.act(size) is not None for size in (2, 4, 8)] == [True] * 3
    assert world.programs.refresh_ready and found == [[]]


def test_what_can_not_be_compiled_is_told_where_it_is_asked_for(opened: list[_World]) -> None:
    def update(*_: Any) -> Any:
        raise ValueError("no such update")

    world = _World(fake_agent.make_setup(fake_agent.make()._replace(update=update)))
    opened.append(world)
    assert world.act(8, [0]) == [0]
    with pytest.raises(ValueError, match="no such update"):
        _ = world.programs.update
    assert world.programs.update_compiled


@pytest.mark.parametrize("is_queue", [False, True])
def test_an_example_feed_has_the_shape_of_every_feed(is_queue: bool) -> None:
    queue = sources.Queue(length=1, batch_size=4, max_lag=2, wait_seconds=0.0)
    setup = fake_agent.make_setup(fake_agent.make(queue if is_queue else fake_agent.ONE_ROW), 2)
    feed = steps.example_feed(setup)
    placed = jax.device_put(feed, steps.feed_sharding(setup))
    sizes = {shard.data.shape for leaf in jax.tree.leaves(placed) for shard in leaf.addressable_shards}
    assert sizes == ({(2,)} if is_queue else {()})
    dtypes = [np.asarray(leaf).dtype for leaf in jax.tree.leaves(feed)]
    assert dtypes == ([np.int32, np.int32, np.float32] if is_queue else [np.int32])
