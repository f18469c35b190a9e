"""Rings under `shard_map`, with unequal numbers of steps on the devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.core import types
from seedzero.replay import rings

SHARDED, WHOLE = jax.sharding.PartitionSpec("devices"), jax.sharding.PartitionSpec()
BATCH = 512


def filled(mesh: jax.sharding.Mesh) -> rings.Rings:
    """Returns rings with two slots a device; device d has d + 1 steps in its second one, numbered from 100 d."""
    num_devices = mesh.devices.size
    spec = types.EnvSpec(observation_shape=(1,), observation_dtype="int32", num_actions=2)
    create = jax.jit(
        lambda: rings.create(spec, {}, 2 * num_devices, 16), out_shardings=jax.NamedSharding(mesh, SHARDED)
    )
    mapped = jax.shard_map(
        functools.partial(rings.write, stack=1), mesh=mesh, in_specs=(SHARDED, SHARDED, SHARDED, WHOLE),
        out_specs=SHARDED, check_vma=False,
    )
    write = jax.jit(mapped, donate_argnums=0)
    replay: rings.Rings = create()
    for t in range(num_devices + 1):
        # Two rows for each device; local slot 9 does not exist.
        slot = [local for device in range(num_devices) for local in (1 if t < device + 2 else 9, 9)]
        number = np.repeat(100 * np.arange(num_devices) + t, 2)
        row = rings.Row(
            observation=jnp.asarray(number[:, None], jnp.int32),
            reward=jnp.asarray(number, jnp.float32),
            terminated=jnp.zeros(2 * num_devices, bool),
            truncated=jnp.zeros(2 * num_devices, bool),
            first=jnp.full(2 * num_devices, t == 0),
            extras={},
        )
        replay = write(replay, jnp.array(slot), row, jnp.int32(0))
    return replay


def draw(replay: rings.Rings, key: jax.Array) -> rings.Windows:
    return rings.sample(
        replay, jax.random.fold_in(key, jax.lax.axis_index("devices")), BATCH, num_inserts=jnp.int32(0), capacity=100,
        future=1, offsets=(0,), stack=1, axis_name="devices",
    )


@pytest.mark.parametrize("num_devices", [2, 4])
def test_weights_correct_shards_with_unequal_steps(num_devices: int) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:num_devices]), ("devices",))
    replay = filled(mesh)
    sample = jax.jit(
        jax.shard_map(draw, mesh=mesh, in_specs=(SHARDED, WHOLE), out_specs=SHARDED, check_vma=False)
    )
    assert "all-gather" not in str(sample.lower(replay, jax.random.key(0)).compile().as_text())
    drawn = jax.tree.map(np.asarray, sample(replay, jax.random.key(0)))
    steps = {100 * device + t for device in range(num_devices) for t in range(device + 1)}
    assert set(drawn.observation[:, 0, 0].tolist()) == steps
    assert drawn.valid.all()
    # With 1, 2, ... steps on D devices, device d has (d + 1) D times its part of all.
    expected = np.arange(1, num_devices + 1) * num_devices / len(steps)
    np.testing.assert_allclose(drawn.weight, np.repeat(expected, BATCH), rtol=1e-6)
    truth = np.mean([float(step) for step in steps])
    assert np.mean(drawn.weight * drawn.reward[:, 0]) == pytest.approx(truth, rel=0.01)
    assert np.mean(drawn.reward[:, 0]) != pytest.approx(truth, rel=0.1)
