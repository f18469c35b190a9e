"""Meshes of the local devices, and functions over them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.core import errors
from seedzero.device import meshes


@pytest.mark.parametrize(("asked", "found"), [(1, 1), (3, 3), (0, 4)])
def test_a_mesh_has_the_first_devices_and_all_for_0(asked: int, found: int) -> None:
    assert meshes.make(asked).devices.tolist() == jax.local_devices()[:found]


def test_more_devices_than_there_are_is_an_error_with_the_number() -> None:
    with pytest.raises(errors.ConfigError, match=r"=5: .* 4 cpu .*--training\.num_devices=4"):
        meshes.make(5)


def test_some_devices_act_and_the_others_learn() -> None:
    whole = meshes.make(4)
    assert meshes.split(whole, 0) == (whole, None)
    acting, learning = meshes.split(whole, 1)
    assert learning is not None
    assert [*acting.devices, *learning.devices] == jax.local_devices() and acting.devices.size == 1
    with pytest.raises(errors.ConfigError, match=r"--training\.acting_devices=4 .* 4 "):
        meshes.split(whole, 4)


def test_each_device_works_on_its_own_part() -> None:
    mesh = meshes.make(4)
    summed = meshes.over_devices(
        lambda x, y: (x.sum(keepdims=True), jax.lax.psum(x.sum(), meshes.AXIS) + y),
        mesh,
        in_specs=(meshes.SHARDED, meshes.REPLICATED),
        out_specs=(meshes.SHARDED, meshes.REPLICATED),
    )
    part, whole = summed(jnp.arange(8.0), jnp.float32(100))
    np.testing.assert_array_equal(part, [1, 5, 9, 13])
    assert float(whole) == 128
    assert part.sharding == meshes.sharded(mesh) and whole.sharding == meshes.replicated(mesh)


def test_arguments_are_donated_where_that_is_said() -> None:
    mesh = meshes.make(2)
    sharded = meshes.SHARDED
    add = meshes.over_devices(lambda x, y: x + y, mesh, (sharded, sharded), sharded, donate=(1,))
    kept, given = (jax.device_put(jnp.arange(4.0), meshes.sharded(mesh)) for _ in range(2))
    before = [shard.data.unsafe_buffer_pointer() for shard in given.addressable_shards]
    added = add(kept, given)
    assert given.is_deleted() and not kept.is_deleted()
    assert [shard.data.unsafe_buffer_pointer() for shard in added.addressable_shards] == before


def test_placed_shapes_carry_the_sharding() -> None:
    sharding = meshes.sharded(meshes.make(2))
    found = meshes.placed({"x": np.zeros((4, 3), np.int8)}, sharding)
    assert found == {"x": jax.ShapeDtypeStruct((4, 3), np.int8, sharding=sharding)}


def test_a_cpu_compiles_quickly_unless_the_user_sets_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = meshes.make(1)
    assert meshes.compiler_options(mesh) == {}  # these tests are compiled at a lower level
    monkeypatch.setattr(meshes, "CPU_OPTIONS", {"xla_backend_optimization_level": 1})
    options = meshes.compiler_options(mesh)
    assert options == {"xla_backend_optimization_level": 1}
    assert jax.jit(lambda x: x + 1, compiler_options=options)(jnp.float32(1)) == 2  # XLA knows the option
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=3")
    assert meshes.compiler_options(mesh) == {}
