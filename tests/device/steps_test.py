"""Act and update over one device and several."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import device_world
import fake_agent
import jax
import numpy as np
import pytest

from seedzero.agents import base, muzero
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.device import acting, batches, meshes, setups, states, steps
from seedzero.replay import sources

SPEC = types.EnvSpec((2,), "float32", 3)
NUM_TRAIN, NUM_EVALUATE, LENGTH, CAPACITY = 8, 4, 12, 64
DEVICES = [1, 4]
PRIORITIZED = {"priority_alpha": 0.5}


def _agent(**changes: options.Value) -> base.Agent:
    values: dict[str, options.Value] = {
        **{f"replay.{name}": value for name, value in changes.items()},
        **device_world.MUZERO,
    }
    return muzero.make(configs.override(configs.Config(), values), SPEC, "cpu")


class _Programs(NamedTuple):
    """A setup, its first states and its device functions."""

    setup: setups.Setup
    train: base.TrainState
    actor: acting.ActorState
    act: Callable[..., Any]
    update: Callable[..., Any]


@functools.cache
def _programs(num_devices: int, is_prioritized: bool) -> _Programs:
    agent, sizes = _agent(**PRIORITIZED if is_prioritized else {}), (NUM_TRAIN + NUM_EVALUATE,)
    slots: dict[str, Any] = {"num_train": NUM_TRAIN, "num_evaluate": NUM_EVALUATE, "slot_length": LENGTH}
    setup = fake_agent.make_setup(agent, num_devices, **slots, batch_size=16, sizes=sizes, spec=SPEC)
    setup = setup._replace(capacity=CAPACITY)
    train, actor = states.init_train(setup, 0), states.init_actor(setup)
    return _Programs(setup, train, actor, acting.make_act(setup), steps.make_update(setup))


class _Host:
    """Device state and the two functions over some devices."""

    def __init__(self, num_devices: int, *, is_prioritized: bool = False) -> None:
        self.setup, train, actor, self._act, self._update = _programs(num_devices, is_prioritized)
        self.layout = self.setup.layout
        self.train, self.actor = states.copy(train), states.copy(actor)  # donated to the functions
        self.stored = 0

    def act(self, slots: list[int], value: list[float], first: bool, final: bool, version: int = 0) -> np.ndarray:
        """Shows `value` in `slots` and returns their actions."""
        where = np.array(slots, np.int32)
        shard, local = self.layout.place(where)
        num_rows = NUM_TRAIN + NUM_EVALUATE
        batch = batches.padding(SPEC, self.layout, num_rows)
        rows = shard * num_rows + np.arange(len(slots))
        batch.slot[rows] = batch.ring[rows] = local
        batch.observation[rows] = np.array(value, np.float32)[:, None]
        batch.reward[rows] = 0.0 if first else 1.0
        batch.first[rows] = first
        batch.terminated[rows] = final
        batch.action_mode[rows] = np.where(where < NUM_TRAIN, types.EXPLORE, types.GREEDY)
        counters = steps.counters(self.stored, version, 0)
        self.actor, acted = self._act(fake_agent.SEED, self.train.params, self.actor, batch, counters)
        return np.asarray(acted)[rows]

    def update(self) -> dict[str, float]:
        self.train, rings, metrics = self._update(fake_agent.SEED, self.train, self.actor.rings, np.int32(self.stored))
        self.actor = self.actor._replace(rings=rings)
        return {name: float(value) for name, value in metrics.items()}

    def fill(self, values: list[float]) -> None:
        """Every training slot plays one-step episodes that start at its value."""
        slots = list(range(NUM_TRAIN))
        for _ in range(3):
            self.act(slots, values, first=True, final=False)
            self.act(slots, [value + 1 for value in values], first=False, final=True)
            self.stored += NUM_TRAIN


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", DEVICES)
def test_acting_writes_each_row_into_the_ring_of_its_slot(num_devices: int) -> None:
    host = _Host(num_devices, is_prioritized=True)
    actions = host.act([6, 1, 3], [6.0, 1.0, 3.0], first=True, final=False, version=5)
    rings = host.actor.rings
    assert np.asarray(rings.cursor).tolist() == [0, 1, 0, 1, 0, 0, 1, 0]
    assert np.asarray(rings.observation[:, 0, 0]).tolist() == [0, 1, 0, 3, 0, 0, 6, 0]
    assert np.asarray(rings.stored["version"][:, 0]).tolist() == [0, 5, 0, 5, 0, 0, 5, 0]
    assert np.asarray(rings.stored["action"])[[6, 1, 3], 0].tolist() == actions.tolist()


@pytest.mark.parametrize("num_devices", DEVICES)
def test_evaluation_acts_without_being_stored(num_devices: int) -> None:
    host = _Host(num_devices, is_prioritized=True)
    actions = host.act([8, 11], [1.0, 2.0], first=True, final=False)
    assert ((actions >= 0) & (actions < SPEC.num_actions)).all()
    assert not np.asarray(host.actor.rings.cursor).any()


@pytest.mark.parametrize("is_prioritized", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_same_windows_give_the_same_update_on_any_number_of_devices(is_prioritized: bool) -> None:
    """All episodes are alike, so which windows are sampled makes no difference: only the averaging can."""
    results = []
    for num_devices in DEVICES:
        host = _Host(num_devices, is_prioritized=is_prioritized)
        host.fill([0.5] * NUM_TRAIN)
        # What the search found differs in its noise; the maths under test shall not.
        stored = host.actor.rings.stored
        same = {name: jax.numpy.zeros_like(stored[name]) for name in ("action", "value")}
        uniform = jax.numpy.full_like(stored["policy"], 1 / SPEC.num_actions)
        host.actor = host.actor._replace(rings=host.actor.rings._replace(stored={**stored, **same, "policy": uniform}))
        metrics = host.update()
        results.append((metrics["loss"], metrics["grad_norm"], host.train.params))
    for loss, grad_norm, params in results[1:]:
        assert loss == pytest.approx(results[0][0], rel=1e-5)
        assert grad_norm == pytest.approx(results[0][1], rel=1e-5)
        jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-5), params, results[0][2])


@pytest.mark.parametrize(
    ("num_devices", "is_prioritized"), [pytest.param(4, False, marks=pytest.mark.slow), (4, True)]
)
def test_devices_that_see_different_data_keep_the_same_parameters(num_devices: int, is_prioritized: bool) -> None:
    host = _Host(num_devices, is_prioritized=is_prioritized)
    host.fill([0.3 * slot for slot in range(NUM_TRAIN)])
    for _ in range(3):
        host.update()

    def check(leaf: Any) -> None:
        copies = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        assert len(copies) == num_devices
        for copy in copies[1:]:
            np.testing.assert_array_equal(copy, copies[0])

    jax.tree.map(check, host.train.params)


@pytest.mark.parametrize("num_devices", DEVICES)
def test_an_update_writes_the_priorities_of_its_windows_into_the_rings(num_devices: int) -> None:
    host = _Host(num_devices, is_prioritized=True)
    host.fill([0.5] * NUM_TRAIN)
    # Episodes of one step: its target is the reward, which is made to differ from slot to slot.
    rings = host.actor.rings
    expected = 1.0 + np.arange(NUM_TRAIN, dtype=np.float32)[:, None] + np.zeros(rings.weight.shape, np.float32)
    reward = jax.device_put(expected, meshes.sharded(host.setup.mesh))
    host.actor = host.actor._replace(rings=rings._replace(reward=reward))
    untrained = states.copy(host.train.params)
    new = np.asarray(rings.weight)
    assert set(new.reshape(-1).tolist()) == {0.0, 1.0}
    for _ in range(12):
        host.train = host.train._replace(params=states.copy(untrained))  # it expects nothing
        metrics = host.update()
    written = np.where(new > 0, np.sqrt(expected + 1e-3), 0)
    weight = np.asarray(host.actor.rings.weight)
    np.testing.assert_allclose(weight, written, rtol=1e-5)  # all were sampled, and nothing else became sampleable
    np.testing.assert_allclose(np.asarray(host.actor.rings.max_weight), [np.sqrt(8.001)] * num_devices, rtol=1e-5)
    assert metrics["priority_max"] == pytest.approx(8.001)
    assert 0 < metrics["priority_mean"] <= 8.0
    assert 0 < metrics["importance_min"] < metrics["importance_mean"] < num_devices
    # New steps, on whatever device, have the largest priority.
    host.fill([0.5] * NUM_TRAIN)
    weight = np.asarray(host.actor.rings.weight)
    assert ((weight > 0).sum(axis=1) == 6).all()
    np.testing.assert_allclose(np.where(new > 0, 0, weight).max(axis=1), np.sqrt(8.001), rtol=1e-5)


def test_updates_by_priority_are_the_same_bits_every_time() -> None:
    def train() -> Any:
        host = _Host(4, is_prioritized=True)
        for start in range(3):
            host.fill([start + 0.3 * slot for slot in range(NUM_TRAIN)])
            metrics = [host.update() for _ in range(3)]
        return jax.tree.map(np.asarray, (host.train, host.actor.rings, metrics))

    jax.tree.map(np.testing.assert_array_equal, train(), train())


def test_an_update_leaves_the_rings_where_they_are() -> None:
    host = _Host(1, is_prioritized=True)
    host.fill([0.5] * NUM_TRAIN)
    before = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(host.actor.rings)]
    host.update()
    assert [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(host.actor.rings)] == before


def test_an_update_counts_the_age_of_what_it_learns_from() -> None:
    host = _Host(1, is_prioritized=True)
    host.fill([0.0] * NUM_TRAIN)  # by version 0
    ages = [host.update()["replay_age"] for _ in range(3)]
    assert ages == [0.0, 1.0, 2.0]


# Acting of an agent whose parts are known --------------------------------------------------------------------------


def _acted(setup: setups.Setup, *calls: tuple[batches.Batch, np.ndarray], version: int = 0, seed: int = 0) -> Any:
    """Returns the acting state after these calls, and the actions of the last one in the order of its slots."""
    act, actor = acting.make_act(setup), states.init_actor(setup)
    params, actions = states.init_train(setup, 0).params, np.zeros(0)
    for number, (batch, rows) in enumerate(calls):
        actor, acted = act(np.int32(seed), params, actor, batch, steps.counters(0, version, number))
        actions = np.asarray(acted)[rows]
    return jax.tree.map(np.asarray, actor), actions


def _learned(setup: setups.Setup, *calls: tuple[batches.Batch, np.ndarray], stored: int, seed: int = 0) -> Any:
    """Returns the last actions of these calls, and the mean place of the windows of an update after so many steps."""
    actor, actions = _acted(setup, *calls, seed=seed)
    rings = jax.device_put(actor.rings, meshes.sharded(setup.mesh))
    train = states.init_train(setup, 0)
    _, _, metrics = steps.make_update(setup)(np.int32(seed), train, rings, np.int32(stored))
    return actions.tolist(), float(metrics["time_mean"])


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", DEVICES)
def test_the_agent_is_told_the_numbers_of_the_slots_of_the_whole_run(num_devices: int) -> None:
    setup = fake_agent.make_setup(fake_agent.make(), num_devices, num_train=8, num_evaluate=4, sizes=(12,))
    slots = [11, 0, 7, 3, 8, 4, 10]
    actor, actions = _acted(setup, fake_agent.batch(setup, slots))
    shard, local = setup.layout.place(np.array(slots))
    numbers = setup.layout.number(local, shard)
    assert actions.tolist() == numbers.tolist()  # the agent's answer is its number
    assert actor.rings.stored["slot"][[0, 3, 4, 7], 0].tolist() == numbers[[1, 3, 5, 2]].tolist()


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [1, 2])
def test_the_task_of_a_row_lies_beside_it_in_its_ring(num_devices: int) -> None:
    setup = fake_agent.make_setup(fake_agent.make(), num_devices)
    actor, _ = _acted(setup, *[fake_agent.batch(setup, [3, 0, 1], task=tasks) for tasks in ([7, 5, 0], [7, 6, 0])])
    assert actor.rings.stored["task"][:, :2].tolist() == [[5, 6], [0, 0], [0, 0], [7, 7]]


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [1, 2])
def test_memory_stays_with_its_environment(num_devices: int) -> None:
    stored = {"count": sources.Stored((), np.dtype(np.int32))}
    setup = fake_agent.make_setup(fake_agent.make(stored=stored), num_devices, num_evaluate=2)
    calls = [fake_agent.batch(setup, slots) for slots in ([0, 3, 4], [3, 4, 5], [2, 3])]
    actor, _ = _acted(setup, *calls)
    shard, local = setup.layout.place(np.arange(6))
    memory = actor.carried.memory.reshape(num_devices, -1)[shard, local]
    assert memory.tolist() == [1, 0, 1, 3, 2, 1]
    assert actor.rings.stored["count"][:, :3].tolist() == [[1, 0, 0], [0, 0, 0], [1, 0, 0], [1, 2, 3]]


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [1, 2])
def test_acting_keeps_every_nth_row_of_an_array(num_devices: int) -> None:
    stored = {"count": sources.Stored((), np.dtype(np.int32), every=4)}
    setup = fake_agent.make_setup(fake_agent.make(stored=stored), num_devices, slot_length=8)
    actor, _ = _acted(setup, *[fake_agent.batch(setup, [0, 2, 3])] * 13)
    # Rows 0, 4, 8 and 12 are the steps 1, 5, 9 and 13; the last two overwrote the others.
    assert actor.rings.stored["count"].tolist() == [[9, 13], [0, 0], [9, 13], [9, 13]]


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [1, 2])
def test_a_call_says_whose_rows_it_writes_where_rings_store_that(num_devices: int) -> None:
    def act_twice(stored: dict[str, sources.Stored]) -> Any:
        setup = fake_agent.make_setup(fake_agent.make(stored=stored), num_devices)
        act, actor, acted = acting.make_act(setup), states.init_actor(setup), []
        params = states.init_train(setup, 0).params
        for number, slots in enumerate(([0, 3], [0, 2], [0, 2, 3])):
            batch, _ = fake_agent.batch(setup, slots)
            counters = steps.counters(0, number, number, own=number != 1)
            actor, actions = act(fake_agent.SEED, params, actor, batch, counters)
            acted.append(actions)
        return jax.tree.map(np.asarray, (actor.rings, acted))

    rings, acted = act_twice({"own": sources.Stored((), np.dtype(bool))})
    own = rings.stored.pop("own")[:, :3].tolist()
    assert own == [[True, False, True], [False] * 3, [False, True, False], [True, True, False]]
    jax.tree.map(np.testing.assert_array_equal, (rings, acted), act_twice({}))


def test_without_such_rings_no_program_has_that_argument() -> None:
    setup = fake_agent.make_setup(fake_agent.make())
    batch, _ = fake_agent.batch(setup, [0, 1])
    params, actor = states.init_train(setup, 0).params, states.init_actor(setup)

    def lowered(counters: steps.Counters) -> str:
        text: str = acting.make_act(setup).lower(fake_agent.SEED, params, actor, batch, counters).as_text()
        return text

    three = steps.counters(0, 0, 0)
    assert lowered(three) == lowered(three._replace(own=None))


def test_priorities_from_acting_weigh_the_transitions_that_they_complete() -> None:
    prioritization = sources.Prioritization(alpha=0.5, beta=0.4, epsilon=0.01)
    for how, expected in ((prioritization, [[0.5, 3.0, 3.0, 0.0], [1.0, 0.1, 0.0, 0.0]]), (None, None)):
        setup = fake_agent.make_setup(fake_agent.make(fake_agent.ONE_ROW._replace(prioritization=how)))
        rewards: list[list[float]] = [[5.0, 7.0], [0.24, 0.99], [8.99, 0.0], [float("nan")]]
        calls = [fake_agent.batch(setup, [0, 1][: len(reward)], reward=reward) for reward in rewards]
        actor, _ = _acted(setup, *calls)
        weight = actor.rings.weight[:2, :4]
        # The last reward is not a number: that transition has the largest weight so far, which is 3.
        np.testing.assert_allclose(weight, expected or [[1, 1, 1, 0], [1, 1, 0, 0]], rtol=1e-6)


@pytest.mark.thorough
def test_importance_weights_have_the_least_share_that_is_configured() -> None:
    found = []
    for least in (0.0, 1.0):
        how = sources.Prioritization(alpha=1.0, beta=1.0, epsilon=0.01, least=least)
        made = fake_agent.make(fake_agent.ONE_ROW._replace(prioritization=how))
        setup = fake_agent.make_setup(made, batch_size=64)
        calls = [fake_agent.batch(setup, [0], reward=[reward]) for reward in (0.0, 1.0, 9.0, 1.0, 5.0)]
        found.append(_learned(setup, *calls, stored=4)[1])  # the same rows, with their weights
    assert found[0] < 0.8 * found[1]


def test_a_number_that_no_update_survives_does_not_draw_every_batch() -> None:
    how = sources.Prioritization(alpha=1.0, beta=0.0, epsilon=0.01)
    made = fake_agent.make(fake_agent.ONE_ROW._replace(prioritization=how))
    setup = fake_agent.make_setup(made, batch_size=2)
    rewards = (0.0, 1.0, 1e30, 1e30, *[1.0] * 7)  # their squares are infinite
    actor, _ = _acted(setup, *[fake_agent.batch(setup, [0], reward=[reward]) for reward in rewards])
    rings, train = jax.device_put(actor.rings, meshes.sharded(setup.mesh)), states.init_train(setup, 0)
    update, refused = steps.make_update(setup), []
    for _ in range(40):
        train, rings, metrics = update(fake_agent.SEED, train, rings, np.int32(10))
        refused.append(int(metrics["num_rejected"]))
    assert 1 in refused[:10]  # a priority drew it
    assert max(refused) <= 3 and refused.count(0) > 30


# Seeds -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crosses", [False, True])
def test_windows_that_cross_episodes_may_begin_in_the_last_row_of_one(crosses: bool) -> None:
    made = fake_agent.make(sources.Replay(length=3, observe=(0,), crosses_episodes=crosses))
    setup = fake_agent.make_setup(made)
    flags: list[dict[str, bool]] = [{"first": True}, {"terminated": True}, {"first": True}, {}]
    actor, _ = _acted(setup, *[fake_agent.batch(setup, [2], **flag) for flag in flags])
    assert actor.rings.weight[2, :4].tolist() == [1, crosses, 1, 0]


@pytest.mark.thorough
def test_another_seed_acts_and_samples_otherwise_and_the_same_repeats() -> None:
    def act(params: Any, memory: Any, inputs: base.Inputs, key: jax.Array) -> Any:
        memory, outputs = made.act(params, memory, inputs, key)
        return memory, outputs._replace(action=jax.random.randint(key, inputs.slot.shape, 0, 1_000_000))

    made = fake_agent.make()
    setup = fake_agent.make_setup(made._replace(act=act), batch_size=64)
    calls = [fake_agent.batch(setup, [0, 1, 2, 3])] * 12
    found, same, other = (_learned(setup, *calls, stored=48, seed=seed) for seed in (3, 3, 4))
    assert found == same
    assert found[0] != other[0] and found[1] != other[1]


# The windows of an update ------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [1, 2])
def test_an_update_gets_windows_of_the_agents_stride(num_devices: int) -> None:
    wanted = sources.Replay(length=1, observe=(0,), stride=6)
    setup = fake_agent.make_setup(fake_agent.make(wanted), num_devices, batch_size=64)
    _, mean = _learned(setup, *[fake_agent.batch(setup, [0, 1, 2, 3])] * 12, stored=48)
    # Windows begin at the places 0 and 6 alone, equally often: their mean is 3.
    assert mean == pytest.approx(3.0, abs=4 * 3 / 8) and mean * 64 % 6 == pytest.approx(0, abs=1e-3)


# Updates from a queue ----------------------------------------------------------------------------------------------


@functools.cache
def _queue_update(num_devices: int, *unrolls: tuple[int, int, float]) -> tuple[Mapping[str, float], ...]:
    """Returns the parameters and metrics of one update from (slot, time, weight), in the order of the batch."""
    queue = sources.Queue(length=2, batch_size=len(unrolls), max_lag=3, wait_seconds=0.0)
    setup = fake_agent.make_setup(fake_agent.make(queue), num_devices, batch_size=len(unrolls))
    random, slots = np.random.default_rng(0), [0, 1, 2, 3]
    act, actor = acting.make_act(setup), states.init_actor(setup)
    train = states.init_train(setup, 0)
    for number in range(7):  # episodes of five rows: unrolls cross their ends
        values = random.normal(size=(2, 4)).astype(np.float32)
        batch, _ = fake_agent.batch(
            setup, slots, observation=values[0][:, None], reward=values[1], terminated=number == 4, first=number == 0
        )
        actor, _ = act(fake_agent.SEED, train.params, actor, batch, steps.counters(0, number, number))
    slot, time, weight = zip(*unrolls, strict=True)
    feed = steps.Unrolls(
        np.array(slot, np.int32) % setup.layout.train_per_shard, np.array(time, np.int32), np.array(weight, np.float32)
    )
    train = train._replace(num_updates=jax.device_put(np.int32(10), meshes.replicated(setup.mesh)))
    train, _, metrics = steps.make_update(setup)(fake_agent.SEED, train, actor.rings, feed)
    params, metrics = jax.tree.map(float, (train.params, metrics))
    return params, metrics


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("num_devices", "padded"),
    [
        (1, [(0, 2, 1.0), (3, 4, 1.0), (2, 2, 1.0), (0, 0, 0.0)]),
        (1, [(0, 2, 1.0), (3, 4, 1.0), (2, 2, 1.0), (0, 0, 0.0), (1, 0, 0.0), (3, 4, 0.0)]),
        # Slots 0 and 1 are of the first device, 2 and 3 of the second.
        (2, [(0, 2, 1.0), (0, 0, 0.0), (2, 2, 1.0), (3, 4, 1.0)]),
        (2, [(0, 2, 1.0), (0, 0, 0.0), (0, 0, 0.0), (2, 2, 1.0), (3, 4, 1.0), (2, 0, 0.0)]),
    ],
)
def test_a_padded_batch_gives_the_update_of_its_unrolls_alone(
    num_devices: int, padded: list[tuple[int, int, float]]
) -> None:
    expected, alone = map(dict, _queue_update(1, (0, 2, 1.0), (3, 4, 1.0), (2, 2, 1.0)))
    params, metrics = map(dict, _queue_update(num_devices, *padded))
    assert abs(expected["weight"] - 1) > 1e-3 and abs(expected["bias"]) > 1e-3
    assert params == pytest.approx(expected, rel=1e-5)
    assert alone.pop("batch_padding") == 0
    assert metrics.pop("batch_padding") == pytest.approx(sum(weight == 0 for *_, weight in padded) / len(padded))
    assert metrics == pytest.approx(alone, rel=1e-5)
    # After 10 updates steps of versions 2 and 3, 4 and 5, 2 and 3 are 8, 7, 6, 5, 8, 7 behind; padding is left out.
    assert (metrics["policy_lag"], metrics["policy_lag_max"]) == (pytest.approx(41 / 6), 8.0)


def test_the_unrolls_of_a_batch_weigh_alike_wherever_they_lie() -> None:
    """As many on each device or not: the gradients' mean is that over all unrolls."""
    whole = [(0, 0, 1.0), (1, 2, 1.0), (2, 2, 1.0), (3, 4, 1.0)]
    one, two = _queue_update(1, *whole), _queue_update(2, *whole)
    for found, same in zip(one, two, strict=True):
        assert found == pytest.approx(same, rel=1e-5)


def test_counters_of_weeks_wrap_and_still_tell_calls_apart() -> None:
    many = steps.counters(2**31, 7, 2**31 + 5)
    assert (many.num_inserts, many.num_calls) == (-(2**31), 5 - 2**31)
    keys = [jax.random.fold_in(jax.random.key(0), steps.counters(0, 0, calls).num_calls) for calls in (5, 2**31 + 5)]
    assert jax.random.bits(keys[0]) != jax.random.bits(keys[1])
