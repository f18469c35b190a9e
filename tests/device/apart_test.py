"""Updates on devices of their own: what they learn is the same, and acting does not wait for it."""

from __future__ import annotations

import math
import threading
from typing import Any

import device_world
import fake_agent
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import base, muzero
from seedzero.config import configs
from seedzero.core import types
from seedzero.device import apart, meshes, setups, states, steps, tracing
from seedzero.replay import sources, windowing

NUM_TRAIN, NUM_EVALUATE, LENGTH = 6, 6, 12
PRIORITIZED = fake_agent.ONE_ROW._replace(prioritization=sources.Prioritization(0.5, 0.4, 0.01))


def _split(num_acting: int, num_learning: int) -> dict[str, Any]:
    """Returns the meshes of a setup; 0 learning: those that act learn."""
    mesh, learners = meshes.split(meshes.make(num_acting + num_learning), num_learning and num_acting)
    return {"mesh": mesh, "learners": learners}


def _live(num_acting: int, num_learning: int) -> tuple[device_world.World, list[Any]]:
    """Acts, beyond the rings' ends, learns and reanalyses in turn; returns what came of it, without clocks."""
    config = configs.override(configs.Config(), {**device_world.EVERYTHING, "reanalyse.batch_size": 6})
    agent = fake_agent.refreshing_after(muzero.make(config, device_world.IMAGES, "cpu"), 0)
    slots: dict[str, Any] = {"num_train": NUM_TRAIN, "num_evaluate": NUM_EVALUATE, "slot_length": LENGTH}
    setup = fake_agent.make_setup(agent, num_acting, **slots, batch_size=24, spec=device_world.IMAGES, ahead=False)
    setup = setup._replace(**_split(num_acting, num_learning))
    world, random = device_world.World(setup), np.random.default_rng(0)
    found: list[Any] = [world.show([2, 0, 5, 7] if t % 3 else [3, 1, 0, 2, 4, 9], random) for t in range(LENGTH)]
    for _ in range(LENGTH):
        learned = world.update()
        learned.pop("priority_max")  # with learners apart: before the update
        found += [list(learned.values()), list(world.reanalyse().values()), world.show([4, 1, 0], random)]
    return world, found


@pytest.mark.slow
def test_as_many_devices_apart_learn_the_same_bits() -> None:
    (together, one), (split, other) = _live(2, 0), _live(2, 2)
    assert one == other
    jax.tree.map(np.testing.assert_array_equal, together.actor.rings, split.actor.rings)
    jax.tree.map(np.testing.assert_array_equal, together.train, split.train)
    assert len(np.unique(np.asarray(split.actor.rings.weight))) > 3  # priorities came back
    where = {leaf.sharding.device_set == set(jax.devices()[2:4]) for leaf in jax.tree.leaves(split.train)}
    assert where == {True}


def _fake_setup(agent: base.Agent, num_acting: int = 1, num_learning: int = 1, **changes: Any) -> setups.Setup:
    setup = fake_agent.make_setup(agent, num_acting, num_train=NUM_TRAIN, batch_size=12)
    return setup._replace(**_split(num_acting, num_learning), **changes)


@pytest.mark.thorough
@pytest.mark.parametrize(("num_acting", "num_learning"), [(1, 3), (3, 1)])
def test_more_or_fewer_devices_learn_the_same_from_the_same_windows(num_acting: int, num_learning: int) -> None:
    found = []
    for learners in (0, num_learning):
        setup = _fake_setup(fake_agent.make(PRIORITIZED), num_acting, learners, ahead=False)
        world = device_world.World(setup)
        for number in range(6):
            world.act(range(6), observation=np.arange(6.0)[:, None], reward=float(number))
        for _ in range(3):
            metrics = world.update(np.int32(30))
        metrics.pop("priority_max")
        found.append(jax.tree.map(np.asarray, (world.train.params, world.actor.rings, metrics)))
    assert found[0][0]["weight"] != 1.0
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), *found)


@pytest.mark.thorough
def test_acting_goes_on_while_an_update_learns() -> None:
    may_learn, agent = threading.Event(), fake_agent.make(PRIORITIZED)

    def wait(number: Any) -> Any:
        assert may_learn.wait(60)
        return number

    def slow(state: Any, windows: windowing.Windows, key: jax.Array, axis_name: str | None) -> Any:
        reward = jax.pure_callback(wait, jax.ShapeDtypeStruct(windows.reward.shape, jnp.float32), windows.reward)
        return agent.update(state, windows._replace(reward=reward), key, axis_name)

    world = device_world.World(_fake_setup(agent._replace(update=slow), 1, 2))
    for reward in (0.0, 3.0, 5.0):
        world.act(range(6), reward=reward)
    before = np.asarray(world.actor.rings.weight)
    values, more = world.learn(np.int32(12)), world.learn(np.int32(12))
    assert world.act(range(6), reward=7.0) == list(range(6))
    assert not values.is_ready() and not world.train.params["weight"].is_ready()
    written = np.asarray(world.actor.rings.weight)
    np.testing.assert_array_equal(np.where(before > 0, before, written), written)  # no priorities yet
    may_learn.set()
    jax.block_until_ready(more)
    world.learn(np.int32(18))
    assert (np.asarray(world.actor.rings.weight) != written).any()


@pytest.mark.thorough
@pytest.mark.parametrize(("num_more", "num_kept"), [(6, 5), (9, 2), (12, 0)])
def test_priorities_that_come_late_reach_no_other_rows(
    num_more: int, num_kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rings of 12 rows. Acting gives a row's weight by the next row's number, an update by its own."""
    are_there = False
    monkeypatch.setattr(apart, "is_there", lambda tree: are_there)
    world = device_world.World(_fake_setup(fake_agent.make(PRIORITIZED), 2, 1))
    for number in range(6 + num_more):
        if number == 6:
            world.learn(np.int32(30))
        world.act(range(6), reward=float(number))
    are_there = True
    world.learn(np.int32(30))
    last = 5 + num_more
    number = np.array([last - (last - place) % 12 for place in range(12)])  # of the row at each place
    own, acted = np.sqrt(number + 0.01), np.where(number == last, 0, np.sqrt(number + 1.01))
    weight = np.asarray(world.actor.rings.weight)
    is_new = (number >= 5) | (number < 0)
    np.testing.assert_allclose(
        weight[:, is_new], np.tile(np.where(number < 0, 0, acted), (6, 1))[:, is_new], rtol=1e-5
    )
    is_own = np.isclose(weight, own) & (weight > 0)
    assert is_own[:, ~is_new].any() == (num_kept > 0) and np.count_nonzero(~is_new) == num_kept


@pytest.mark.thorough
def test_a_queue_is_learned_from_apart() -> None:
    queue = sources.Queue(length=2, batch_size=12, max_lag=2, wait_seconds=0.0)
    found = []
    for num_learning in (0, 2):
        world = device_world.World(_fake_setup(fake_agent.make(queue), 2, num_learning))
        for number in range(6):
            world.act(range(6), observation=np.full((6, 1), number), reward=float(number))
        slot, time = np.tile(np.repeat(np.arange(3), 2), 2), np.tile([0, 2], 6)
        feed = steps.Unrolls(slot.astype(np.int32), time.astype(np.int32), np.ones(12, np.float32))
        metrics = world.update(feed)
        found.append((metrics, jax.tree.map(np.asarray, world.train.params)))
    assert "policy_lag" in metrics and found[0] == found[1]


def test_arrays_for_acting_alone_are_not_sent_to_the_learning_devices() -> None:
    arrays = (
        types.ArraySpec(types.OBSERVATION, (1,), "float32"),
        types.ArraySpec("state", (3,), "uint8", acting_only=True),
    )
    spec = types.EnvSpec.of_arrays(arrays, num_actions=100)
    setup = _fake_setup(fake_agent.make(PRIORITIZED), spec=spec)
    number = jax.ShapeDtypeStruct((), np.int32)
    rings = states.abstract_actor(setup).rings
    ((windows, _),), _ = jax.eval_shape(apart.make_draw(setup), tracing.SEED, rings, number, number)
    assert {name: x.shape for name, x in windows.observation.items()} == {types.OBSERVATION: (12, 1, 1)}


def test_each_group_of_devices_has_memory_of_its_own() -> None:
    setup = _fake_setup(fake_agent.make(PRIORITIZED), 2, 2)
    train, actor = states.abstract_train(setup), states.abstract_actor(setup)
    strategy = apart.Apart(setup)
    tracer = tracing.ProgramTracer(setup, train, actor, strategy.held)
    traces = strategy.trace_update(tracer)
    assert list(traces) == ["draw", "learn", "write_back"]
    drawn, _ = tracer.results(apart.make_draw, (actor.rings,), (tracer.scalar, tracer.feed))
    params, batch = 8, tracing.device_bytes(drawn)
    # Two numbers; as many rows of a batch on each device.
    assert traces["learn"]().elsewhere == 2 * params + batch  # on their way: no rings, no copies that act
    # Besides the parameters that act: those of an evaluation, those on their way, and windows on theirs.
    assert tracer.act(8).elsewhere == 3 * params + batch


def _meshes(num_here: int, num_there: int) -> tuple[jax.sharding.Mesh, jax.sharding.Mesh]:
    devices = np.array(jax.devices())
    return tuple(  # type: ignore[return-value]
        jax.sharding.Mesh(part, (meshes.AXIS,))
        for part in (devices[:num_here], devices[num_here : num_here + num_there])
    )


@pytest.mark.parametrize(
    ("num_here", "num_there", "num_pieces"), [(1, 1, (1, 1)), (2, 2, (1, 1)), (1, 3, (3, 1)), (3, 1, (1, 3))]
)
def test_rows_come_in_their_order_to_the_devices_of_the_other_mesh(
    num_here: int, num_there: int, num_pieces: tuple[int, int]
) -> None:
    here, there = _meshes(num_here, num_there)
    assert (apart.num_pieces(here, there), apart.num_pieces(there, here)) == num_pieces
    rows = 2 * math.lcm(num_here, num_there)
    tree = {"frames": np.arange(rows * 6).reshape(rows, 2, 3), "number": np.arange(rows)}
    sharded = meshes.SHARDED
    cut = meshes.over_devices(lambda x: apart.cut(x, num_pieces[0]), here, sharded, sharded)
    moved = apart.move(cut(jax.device_put(tree, meshes.sharded(here))), there)
    assert len(moved) == num_pieces[1]
    joined = meshes.over_devices(apart.join, there, sharded, sharded)(moved)
    jax.tree.map(np.testing.assert_array_equal, joined, tree)
    assert joined["number"].sharding.device_set == set(there.devices.flat)


@pytest.mark.parametrize(("num_here", "num_there"), [(2, 2), (1, 3), (3, 1)])
def test_shapes_are_those_of_what_is_moved(num_here: int, num_there: int) -> None:
    here, there = _meshes(num_here, num_there)
    pieces = tuple(
        jax.device_put(np.zeros((num_here, 2)), meshes.sharded(here)) for _ in range(apart.num_pieces(here, there))
    )
    expected = meshes.placed(apart.move(pieces, there), meshes.sharded(there))
    assert apart.shapes(pieces, there) == expected
