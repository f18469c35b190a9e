"""Act and update over 1, 2 and 4 devices."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from seedzero.agents import base, muzero
from seedzero.config import config
from seedzero.core import types
from seedzero.device import batch as batch_lib
from seedzero.device import steps

SPEC = types.EnvSpec((2,), "float32", 3)
NUM_TRAIN, NUM_EVALUATE, LENGTH, CAPACITY = 8, 4, 12, 64
DEVICES = [1, 2, 4]


def _agent(**changes: config.Value) -> base.Agent:
    values: dict[str, config.Value] = {
        **{f"replay.{name}": value for name, value in changes.items()},
        "network.width": 8,
        "network.head_width": 8,
        "network.num_bins": 11,
        "search.num_simulations": 2,
        "muzero.unroll_steps": 1,
        "muzero.n_step": 1,
    }
    return muzero.make(config.override(config.Config(), values), SPEC, "cpu")


class _Host:
    """Device state and the two functions over some devices."""

    def __init__(self, num_devices: int, **replay: config.Value) -> None:
        self.agent = _agent(**replay)
        self.mesh = steps.make_mesh(num_devices)
        self.layout = batch_lib.Layout(num_devices, NUM_TRAIN, NUM_EVALUATE)
        self.train = steps.init_train(self.agent, 0, self.mesh)
        self.actor = steps.init_actor(self.agent, SPEC, self.layout, LENGTH, self.mesh)
        self._act = steps.make_act(self.agent, self.mesh, seed=0)
        self._update = steps.make_update(self.agent, self.mesh, 0, batch_size=16, capacity=CAPACITY)
        self.stored = 0

    def act(self, slots: list[int], value: list[float], first: bool, final: bool, version: int = 0) -> np.ndarray:
        """Shows `value` in `slots` and returns their actions."""
        where = np.array(slots, np.int32)
        shard, local = self.layout.place(where)
        num_rows = NUM_TRAIN + NUM_EVALUATE
        batch = steps.example_batch(SPEC, self.layout, num_rows)
        rows = shard * num_rows + np.arange(len(slots))
        batch.slot[rows] = local
        batch.observation[rows] = np.array(value, np.float32)[:, None]
        batch.reward[rows] = 0.0 if first else 1.0
        batch.first[rows] = first
        batch.terminated[rows] = final
        batch.explore[rows] = where < NUM_TRAIN
        counters = steps.act_counters(self.stored, version, 0)
        self.actor, acted = self._act(self.train.params, self.actor, batch, counters)
        return np.asarray(acted.action)[rows]

    def update(self) -> dict[str, float]:
        self.train, rings, metrics = self._update(self.train, self.actor.rings, np.int32(self.stored))
        self.actor = self.actor._replace(rings=rings)
        return {name: float(value) for name, value in metrics.items()}

    def fill(self, values: list[float]) -> None:
        """Every training slot plays one-step episodes that start at its value."""
        slots = list(range(NUM_TRAIN))
        for _ in range(3):
            self.act(slots, values, first=True, final=False)
            self.act(slots, [value + 1 for value in values], first=False, final=True)
            self.stored += NUM_TRAIN


@pytest.mark.parametrize("num_devices", DEVICES)
def test_acting_writes_each_row_into_the_ring_of_its_slot(num_devices: int) -> None:
    host = _Host(num_devices)
    actions = host.act([6, 1, 3], [6.0, 1.0, 3.0], first=True, final=False, version=5)
    rings = host.actor.rings
    assert np.asarray(rings.cursor).tolist() == [0, 1, 0, 1, 0, 0, 1, 0]
    assert np.asarray(rings.observation[:, 0, 0]).tolist() == [0, 1, 0, 3, 0, 0, 6, 0]
    assert np.asarray(rings.extras["version"][:, 0]).tolist() == [0, 5, 0, 5, 0, 0, 5, 0]
    assert np.asarray(rings.extras["action"])[[6, 1, 3], 0].tolist() == actions.tolist()


@pytest.mark.parametrize("num_devices", DEVICES)
def test_evaluation_acts_without_being_stored(num_devices: int) -> None:
    host = _Host(num_devices)
    actions = host.act([8, 11], [1.0, 2.0], first=True, final=False)
    assert ((actions >= 0) & (actions < SPEC.num_actions)).all()
    assert not np.asarray(host.actor.rings.cursor).any()


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_the_same_windows_give_the_same_update_on_any_number_of_devices(alpha: float) -> None:
    """All episodes are alike, so which windows are sampled makes no difference: only the averaging can."""
    results = []
    for num_devices in DEVICES:
        host = _Host(num_devices, priority_alpha=alpha)
        host.fill([0.5] * NUM_TRAIN)
        # What the search found differs in its noise; the maths under test shall not.
        extras = host.actor.rings.extras
        same = {name: jax.numpy.zeros_like(extras[name]) for name in ("action", "value")}
        uniform = jax.numpy.full_like(extras["policy"], 1 / SPEC.num_actions)
        host.actor = host.actor._replace(rings=host.actor.rings._replace(extras={**extras, **same, "policy": uniform}))
        metrics = host.update()
        results.append((metrics["loss"], metrics["grad_norm"], host.train.params))
    for loss, grad_norm, params in results[1:]:
        assert loss == pytest.approx(results[0][0], rel=1e-5)
        assert grad_norm == pytest.approx(results[0][1], rel=1e-5)
        jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-5), params, results[0][2])


@pytest.mark.parametrize(("num_devices", "alpha"), [(2, 0.0), (4, 0.0), (4, 0.6)])
def test_devices_that_see_different_data_keep_the_same_parameters(num_devices: int, alpha: float) -> None:
    host = _Host(num_devices, priority_alpha=alpha)
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
    host = _Host(num_devices, priority_alpha=0.5, priority_beta=1.0, priority_epsilon=0.01)
    host.fill([0.5] * NUM_TRAIN)
    # Episodes of one step: its target is the reward. What the search expected is made to differ from slot to slot.
    rings = host.actor.rings
    expected = 1.0 + np.arange(NUM_TRAIN, dtype=np.float32)[:, None] + np.zeros(rings.weight.shape, np.float32)
    value = jax.device_put(expected, steps.sharded(host.mesh))
    host.actor = host.actor._replace(rings=rings._replace(extras={**rings.extras, "value": value}))
    new = np.asarray(rings.weight)
    assert set(new.reshape(-1).tolist()) == {0.0, 1.0}
    for _ in range(12):
        metrics = host.update()
    written = np.where(new > 0, np.sqrt(expected - 1 + 0.01), 0)
    weight = np.asarray(host.actor.rings.weight)
    np.testing.assert_allclose(weight, written, rtol=1e-5)  # all were sampled, and nothing else became sampleable
    np.testing.assert_allclose(np.asarray(host.actor.rings.max_weight), [np.sqrt(7.01)] * num_devices, rtol=1e-5)
    assert metrics["priority_max"] == pytest.approx(7.01)
    assert 0 < metrics["priority_mean"] <= 7.0
    assert 0 < metrics["importance_min"] < metrics["importance_mean"] < num_devices
    # New steps, on whatever device, have the largest priority.
    host.fill([0.5] * NUM_TRAIN)
    weight = np.asarray(host.actor.rings.weight)
    assert ((weight > 0).sum(axis=1) == 6).all()
    np.testing.assert_allclose(np.where(new > 0, 0, weight).max(axis=1), np.sqrt(7.01), rtol=1e-5)


def test_updates_by_priority_are_the_same_bits_every_time() -> None:
    def train() -> Any:
        host = _Host(2, priority_alpha=0.6, priority_beta_updates=4)
        for start in range(3):
            host.fill([start + 0.3 * slot for slot in range(NUM_TRAIN)])
            metrics = [host.update() for _ in range(3)]
        return jax.tree.map(np.asarray, (host.train, host.actor.rings, metrics))

    jax.tree.map(np.testing.assert_array_equal, train(), train())


def test_an_update_leaves_the_rings_where_they_are() -> None:
    host = _Host(1, priority_alpha=0.6)
    host.fill([0.5] * NUM_TRAIN)
    before = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(host.actor.rings)]
    host.update()
    assert [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(host.actor.rings)] == before


def test_an_update_counts_the_age_of_what_it_learns_from() -> None:
    host = _Host(1)
    host.fill([0.0] * NUM_TRAIN)  # by version 0
    ages = [host.update()["replay_age"] for _ in range(3)]
    assert ages == [0.0, 1.0, 2.0]


def test_stacked_metrics_are_the_metrics() -> None:
    host = _Host(1)
    host.fill([0.5] * NUM_TRAIN)
    update = steps.make_update(host.agent, host.mesh, 0, batch_size=16, capacity=CAPACITY)
    args = (steps.init_train(host.agent, 0, host.mesh), host.actor.rings, np.int32(host.stored))
    stacked, names = steps.stack_metrics(update, *args)
    expected = host.update()
    _, _, values = stacked(*args[:1], host.actor.rings, *args[2:])
    assert dict(zip(names, np.asarray(values).tolist(), strict=True)) == pytest.approx(expected, rel=1e-5, abs=1e-6)
