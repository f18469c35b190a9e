"""Updates on devices of their own: what they learn is the same, and acting does not wait for it."""

from __future__ import annotations

import threading
from typing import Any

import fake_agent
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import base, muzero
from seedzero.config import config as configs
from seedzero.config import options
from seedzero.core import types
from seedzero.device import apart, memory, steps, tracing
from seedzero.device import batch as batches
from seedzero.device import mesh as meshes
from seedzero.device import programs as device_programs
from seedzero.device import setup as setups
from seedzero.device import state as states
from seedzero.device import strategy as strategies
from seedzero.replay import data as sources
from seedzero.replay import windows as windowing

SPEC = types.EnvSpec((2, 3, 1), "uint8", 3)
NUM_TRAIN, NUM_EVALUATE, LENGTH, ROWS, BATCH = 6, 6, 12, 8, 24
SETTINGS: dict[str, options.Value] = {
    "network.kind": "mlp",
    "network.frame_stack": 2,
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "search.num_simulations": 2,
    "muzero.unroll_steps": 2,
    "muzero.n_step": 1,
    "replay.priority_alpha": 0.6,
    "reanalyse.per_insert": 1.0,
    "reanalyse.batch_size": 6,
    "reanalyse.min_age": 0,
}
PRIORITIZED = fake_agent.ONE_ROW._replace(prioritization=sources.Prioritization(0.5, 0.4, 0.01))


def _split(num_acting: int, num_learning: int) -> dict[str, Any]:
    """Returns the meshes of a setup; 0 learning: those that act learn."""
    mesh, learners = meshes.split(meshes.make(num_acting + num_learning), num_learning and num_acting)
    return {"mesh": mesh, "learners": learners}


class _World:
    """All programs of a deterministic learner, and the states that they work on."""

    def __init__(self, num_acting: int, num_learning: int) -> None:
        config = configs.override(configs.Config(), SETTINGS)
        self.layout = batches.Layout(num_acting, NUM_TRAIN, NUM_EVALUATE)
        setup = setups.Setup(
            agent=muzero.make(config, SPEC, "cpu"),
            spec=SPEC,
            layout=self.layout,
            sizes=(ROWS,),
            slot_length=LENGTH,
            batch_size=BATCH,
            capacity=1_000,
            ahead=False,
            **_split(num_acting, num_learning),
        )
        self.setup = setup
        self.strategy, self.programs = _prepared(setup)
        self.train, self.actor = states.init_train(setup, 0), states.init_actor(setup)
        self.stored = self.num_calls = 0

    def act(self, slots: list[int], random: np.random.Generator) -> np.ndarray:
        """Shows random frames in some slots and returns their actions."""
        shard, local = self.layout.place(np.array(slots))
        batch = batches.padding(SPEC, self.layout, ROWS)
        rows = shard * ROWS + np.arange(len(slots))
        batch.slot[rows] = batch.ring[rows] = local
        batch.observation[rows] = random.integers(0, 256, (len(slots), *SPEC.observation_shape))
        batch.reward[rows] = random.random(len(slots))
        batch.first[rows] = self.num_calls == 0
        batch.explore[rows] = types.EXPLORE
        counters = steps.counters(self.stored, 0, self.num_calls)
        params = jax.device_put(self.train.params, meshes.replicated(self.setup.mesh))
        self.actor, acted = self.programs.act(len(batch.slot))(fake_agent.SEED, params, self.actor, batch, counters)
        self.num_calls += 1
        self.stored += sum(slot < NUM_TRAIN for slot in slots)
        return np.asarray(acted)[rows]

    def update(self) -> dict[str, float]:
        run, number = self.programs.update.result(), int(self.train.num_updates)
        feed, rings = np.int32(self.stored), self.actor.rings
        given = fake_agent.SEED, self.train, rings
        self.train, rings, values = self.strategy.run_update(run.functions, given, feed, number)
        self.actor = self.actor._replace(rings=rings)
        found = dict(zip(run.metric_names, np.asarray(values).tolist(), strict=True))
        found.pop("priority_max")  # with learners apart: before the update
        return found

    def refresh(self) -> dict[str, float]:
        params = jax.device_put(self.train.params, meshes.replicated(self.setup.mesh))
        run, counters = self.programs.refresh.result(), steps.counters(self.stored, 100, 3)
        given = fake_agent.SEED, params, self.actor.rings
        rings, values = self.strategy.run_refresh(run.functions, given, counters)
        self.actor = self.actor._replace(rings=rings)
        return dict(zip(run.metric_names, np.asarray(values).tolist(), strict=True))

    def live(self) -> list[Any]:
        """Acts, beyond the rings' ends, learns and refreshes in turn; returns what came of it."""
        random = np.random.default_rng(0)
        found: list[Any] = [self.act([2, 0, 5, 7] if t % 3 else [3, 1, 0, 2, 4, 9], random) for t in range(LENGTH)]
        for _ in range(LENGTH):
            found += [list(self.update().values()), list(self.refresh().values()), self.act([4, 1, 0], random)]
        return found


@pytest.mark.slow
def test_as_many_devices_apart_learn_the_same_bits() -> None:
    together, split = _World(2, 0), _World(2, 2)
    jax.tree.map(np.testing.assert_array_equal, together.live(), split.live())
    jax.tree.map(np.testing.assert_array_equal, together.actor.rings, split.actor.rings)
    jax.tree.map(np.testing.assert_array_equal, together.train, split.train)
    assert len(np.unique(np.asarray(split.actor.rings.weight))) > 3  # priorities came back
    where = {leaf.sharding.device_set == set(jax.devices()[2:4]) for leaf in jax.tree.leaves(split.train)}
    assert where == {True}


def _fake_setup(agent: base.Agent, num_acting: int = 1, num_learning: int = 1, **changes: Any) -> setups.Setup:
    setup = fake_agent.make_setup(agent, num_acting, num_train=6, batch_size=12)
    return setup._replace(**_split(num_acting, num_learning), **changes)


def _prepared(setup: setups.Setup) -> tuple[strategies.Strategy, device_programs.Programs]:
    train, actor = states.abstract_train(setup), states.abstract_actor(setup)
    return device_programs.prepare(setup, train, actor, on_ready=lambda: None)


class _Device:
    """A strategy and its programs."""

    def __init__(self, setup: setups.Setup) -> None:
        self.strategy, self.programs = _prepared(setup)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return self.programs.update.result().metric_names

    def update(self, train: Any, rings: Any, feed: Any, number: int) -> Any:
        run, given = self.programs.update.result().functions, (fake_agent.SEED, train, rings)
        return self.strategy.run_update(run, given, feed, number)


def _act(compiled: _Device, setup: setups.Setup, actor: Any, **arrays: Any) -> tuple[Any, Any]:
    """Acts in all slots."""
    batch, rows = fake_agent.batch(setup, list(range(6)), **arrays)
    params = jax.device_put(setup.agent.acting(states.init_train(setup, 0)), meshes.replicated(setup.mesh))
    actor, acted = compiled.programs.act(len(batch.slot))(
        fake_agent.SEED, params, actor, batch, steps.counters(0, 0, 0)
    )
    return actor, np.asarray(acted)[rows].tolist()


@pytest.mark.parametrize(("num_acting", "num_learning"), [(1, 3), (3, 1)])
def test_more_or_fewer_devices_learn_the_same_from_the_same_windows(num_acting: int, num_learning: int) -> None:
    found = []
    for learners in (0, num_learning):
        setup = _fake_setup(fake_agent.make(PRIORITIZED), num_acting, learners, ahead=False)
        compiled, train, actor = _Device(setup), states.init_train(setup, 0), states.init_actor(setup)
        for number in range(6):
            actor, _ = _act(compiled, setup, actor, observation=np.arange(6.0)[:, None], reward=float(number))
        for number in range(3):
            train, rings, values = compiled.update(train, actor.rings, np.int32(30), number)
            actor = actor._replace(rings=rings)
        metrics = dict(zip(compiled.metric_names, np.asarray(values).tolist(), strict=True))
        metrics.pop("priority_max")
        found.append(jax.tree.map(np.asarray, (train.params, rings, metrics)))
    assert found[0][0]["weight"] != 1.0
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), *found)


def test_acting_goes_on_while_an_update_learns() -> None:
    may_learn, agent = threading.Event(), fake_agent.make(PRIORITIZED)

    def wait(number: Any) -> Any:
        assert may_learn.wait(60)
        return number

    def slow(state: Any, windows: windowing.Windows, key: jax.Array, axis_name: str | None) -> Any:
        reward = jax.pure_callback(wait, jax.ShapeDtypeStruct(windows.reward.shape, jnp.float32), windows.reward)
        return agent.update(state, windows._replace(reward=reward), key, axis_name)

    setup = _fake_setup(agent._replace(update=slow), 1, 2)
    compiled, train, actor = _Device(setup), states.init_train(setup, 0), states.init_actor(setup)
    for reward in (0.0, 3.0, 5.0):
        actor, _ = _act(compiled, setup, actor, reward=reward)
    before = np.asarray(actor.rings.weight)
    train, rings, values = compiled.update(train, actor.rings, np.int32(12), 0)
    train, rings, more = compiled.update(train, rings, np.int32(12), 1)
    actor, acted = _act(compiled, setup, actor._replace(rings=rings), reward=7.0)
    assert acted == list(range(6)) and not values.is_ready() and not train.params["weight"].is_ready()
    written = np.asarray(actor.rings.weight)
    np.testing.assert_array_equal(np.where(before > 0, before, written), written)  # no priorities yet
    may_learn.set()
    jax.block_until_ready(more)
    _, rings, _ = compiled.update(train, actor.rings, np.int32(18), 2)
    assert (np.asarray(rings.weight) != written).any()


@pytest.mark.parametrize(("num_more", "num_kept"), [(6, 5), (9, 2), (12, 0)])
def test_priorities_that_come_late_reach_no_other_rows(
    num_more: int, num_kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rings of 12 rows. Acting gives a row's weight by the next row's number, an update by its own."""
    are_there = False
    monkeypatch.setattr(apart, "is_there", lambda tree: are_there)
    setup = _fake_setup(fake_agent.make(PRIORITIZED), 2, 1)
    compiled, train, actor = _Device(setup), states.init_train(setup, 0), states.init_actor(setup)
    for number in range(6):
        actor, _ = _act(compiled, setup, actor, reward=float(number))
    train, rings, _ = compiled.update(train, actor.rings, np.int32(30), 0)
    actor = actor._replace(rings=rings)
    for number in range(6, 6 + num_more):
        actor, _ = _act(compiled, setup, actor, reward=float(number))
    are_there = True
    _, rings, _ = compiled.update(train, actor.rings, np.int32(30), 1)
    last = 5 + num_more
    number = np.array([last - (last - place) % 12 for place in range(12)])  # of the row at each place
    own, acted = np.sqrt(number + 0.01), np.where(number == last, 0, np.sqrt(number + 1.01))
    weight = np.asarray(rings.weight)
    is_new = (number >= 5) | (number < 0)
    np.testing.assert_allclose(
        weight[:, is_new], np.tile(np.where(number < 0, 0, acted), (6, 1))[:, is_new], rtol=1e-5
    )
    is_own = np.isclose(weight, own) & (weight > 0)
    assert is_own[:, ~is_new].any() == (num_kept > 0) and np.count_nonzero(~is_new) == num_kept


def test_a_queue_is_learned_from_apart() -> None:
    queue = sources.Queue(length=2, batch_size=12, max_lag=2, wait_seconds=0.0)
    found = []
    for num_learning in (0, 2):
        setup = _fake_setup(fake_agent.make(queue), 2, num_learning)
        compiled, train, actor = _Device(setup), states.init_train(setup, 0), states.init_actor(setup)
        for number in range(6):
            actor, _ = _act(compiled, setup, actor, observation=np.full((6, 1), number), reward=float(number))
        slot, time = np.tile(np.repeat(np.arange(3), 2), 2), np.tile([0, 2], 6)
        feed = steps.Unrolls(slot.astype(np.int32), time.astype(np.int32), np.ones(12, np.float32))
        train, _, values = compiled.update(train, actor.rings, feed, 0)
        found.append((jax.tree.map(np.asarray, train.params), np.asarray(values), compiled.metric_names))
    assert found[0][2] == found[1][2] and "policy_lag" in found[0][2]
    np.testing.assert_array_equal(found[0][1], found[1][1])
    jax.tree.map(np.testing.assert_array_equal, found[0][0], found[1][0])


def test_each_group_of_devices_has_memory_of_its_own() -> None:
    setup = _fake_setup(fake_agent.make(PRIORITIZED), 2, 2)
    train, actor = states.abstract_train(setup), states.abstract_actor(setup)
    strategy = apart.Apart(setup)
    tracer = tracing.ProgramTracer(setup, train, actor, strategy.held)
    traces = strategy.trace_update(tracer)
    assert list(traces) == ["draw", "learn", "write_back"]
    drawn, _ = tracer.results(apart.make_draw, (actor.rings,), (tracer.scalar, tracer.feed))
    params, batch = 8, memory.device_bytes(drawn)
    # Two numbers; as many rows of a batch on each device.
    assert traces["learn"]().elsewhere == 2 * params + batch  # on their way: no rings, no copies that act
    # Besides the parameters that act: those of an evaluation, those on their way, and windows on theirs.
    assert tracer.act(8).elsewhere == 3 * params + batch
