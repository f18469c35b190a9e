"""Rings under `shard_map`, with unequal numbers of steps on the devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.core import types
from seedzero.replay import ring_store, sampling, sources, windowing

SHARDED, WHOLE = jax.sharding.PartitionSpec("devices"), jax.sharding.PartitionSpec()
BATCH = 512


def filled(mesh: jax.sharding.Mesh, prioritized: bool = False) -> ring_store.Rings:
    """Returns rings with two slots a device; device d has d + 1 steps in its second one, numbered from 100 d."""
    num_devices = mesh.devices.size
    spec = types.EnvSpec(observation_shape=(1,), observation_dtype="int32", num_actions=2)
    create = jax.jit(
        lambda: ring_store.create(spec, {}, 2 * num_devices, 16, num_shards=num_devices, prioritized=prioritized),
        out_shardings=jax.NamedSharding(mesh, SHARDED),
    )
    mapped = jax.shard_map(
        functools.partial(ring_store.write, stack=1),
        mesh=mesh,
        in_specs=(SHARDED, SHARDED, SHARDED, WHOLE),
        out_specs=SHARDED,
        check_vma=False,
    )
    write = jax.jit(mapped, donate_argnums=0)
    replay: ring_store.Rings = create()
    for t in range(num_devices + 1):
        # Two rows for each device; local slot 9 does not exist.
        slot = [local for device in range(num_devices) for local in (1 if t < device + 2 else 9, 9)]
        number = np.repeat(100 * np.arange(num_devices) + t, 2)
        row = ring_store.Row(
            observation=jnp.asarray(number[:, None], jnp.int32),
            reward=jnp.asarray(number, jnp.float32),
            terminated=jnp.zeros(2 * num_devices, bool),
            truncated=jnp.zeros(2 * num_devices, bool),
            first=jnp.full(2 * num_devices, t == 0),
            stored={},
        )
        replay = write(replay, jnp.array(slot), row, jnp.int32(0))
    return replay


def draw(replay: ring_store.Rings, key: jax.Array, beta: float | None = None) -> windowing.Windows:
    drawn = sampling.sample(
        replay,
        jax.random.fold_in(key, jax.lax.axis_index("devices")),
        BATCH,
        sources.Replay(length=2, observe=(0,)),
        stack=1,
        num_inserts=jnp.int32(0),
        capacity=100,
        beta=beta,
        axis_name="devices",
    )
    return windowing.read(replay, drawn)


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [2, 4])
def test_weights_correct_shards_with_unequal_steps(num_devices: int) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:num_devices]), ("devices",))
    replay = filled(mesh)
    sample = jax.jit(jax.shard_map(draw, mesh=mesh, in_specs=(SHARDED, WHOLE), out_specs=SHARDED, check_vma=False))
    assert "all-gather" not in str(sample.lower(replay, jax.random.key(0)).compile().as_text())
    drawn = jax.tree.map(np.asarray, sample(replay, jax.random.key(0)))
    steps = {100 * device + t for device in range(num_devices) for t in range(device + 1)}
    assert set(drawn.observation[types.OBSERVATION][:, 0, 0].tolist()) == steps
    assert drawn.valid.all()
    # With 1, 2, ... steps on D devices, device d has (d + 1) D times its part of all.
    expected = np.arange(1, num_devices + 1) * num_devices / len(steps)
    np.testing.assert_allclose(drawn.weight, np.repeat(expected, BATCH), rtol=1e-6)
    truth = np.mean([float(step) for step in steps])
    assert np.mean(drawn.weight * drawn.reward[:, 0]) == pytest.approx(truth, rel=0.01)
    assert np.mean(drawn.reward[:, 0]) != pytest.approx(truth, rel=0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [2, 4])
def test_importance_weights_correct_priorities_and_unequal_shards_together(num_devices: int) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:num_devices]), ("devices",))
    replay = filled(mesh, prioritized=True)
    # Priorities that differ within a shard and between shards, by step number.
    number = np.asarray(replay.observation)[..., 0]
    weight = np.where(np.asarray(replay.weight) > 0, 1.0 + number % 100 + number // 50, 0.0).astype(np.float32)
    replay = replay._replace(weight=jax.device_put(weight, jax.NamedSharding(mesh, SHARDED)))
    sample = jax.jit(
        jax.shard_map(
            functools.partial(draw, beta=1.0), mesh=mesh, in_specs=(SHARDED, WHOLE), out_specs=SHARDED, check_vma=False
        )
    )
    drawn = jax.tree.map(np.asarray, sample(replay, jax.random.key(0)))
    shard = np.repeat(np.arange(num_devices), BATCH)
    drawn_weight = weight.reshape(num_devices, 2, 16)[shard, drawn.slot, drawn.time]
    totals, num_steps = weight.reshape(num_devices, -1).sum(axis=1), int((weight > 0).sum())
    # A window of all shards' is of shard d with 1 / D, then row i with weight_i / total_d: P. Unbiased is 1 / (N P).
    unbiased = num_devices * totals[shard] / drawn_weight / num_steps
    # The same factor takes the largest importance weight on all shards together to 1.
    largest = weight.sum() / drawn_weight.min() / num_steps
    np.testing.assert_allclose(drawn.weight, unbiased / largest, rtol=1e-5)
    truth = number[weight > 0].mean()
    assert np.mean(drawn.weight * largest * drawn.reward[:, 0]) == pytest.approx(truth, rel=0.05)
    assert np.mean(drawn.reward[:, 0]) != pytest.approx(truth, rel=0.1)


def test_all_shards_give_new_rows_the_largest_priority_that_any_has_seen() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("devices",))
    replay = filled(mesh, prioritized=True)
    prioritization = sources.Prioritization(alpha=1.0, beta=0.4, epsilon=1e-6)

    def prioritize(replay: ring_store.Rings, priority: jax.Array) -> ring_store.Rings:
        return sampling.prioritize(replay, jnp.array([1]), jnp.array([0]), priority, prioritization, "devices")

    mapped = jax.shard_map(prioritize, mesh=mesh, in_specs=(SHARDED, SHARDED), out_specs=SHARDED, check_vma=False)
    after = jax.jit(mapped)(replay, jnp.array([0.5, 3.0, 0.25, 2.0]))
    np.testing.assert_allclose(after.max_weight, [3.0] * 4, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(after.weight)[1::2, 0], [0.5, 3.0, 0.25, 2.0], rtol=1e-5)
