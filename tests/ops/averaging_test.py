from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.ops import averaging


@pytest.mark.parametrize("mean", [averaging.mean, averaging.joined_mean])
def test_every_array_becomes_its_mean_over_the_devices(mean: object) -> None:
    random = np.random.RandomState(0)
    shapes = {"matrix": (4, 3, 2), "vector": (4, 5), "scalar": (4,), "empty": (4, 0)}
    tree = {name: random.randn(*shape).astype(np.float32) for name, shape in shapes.items()}
    tree["half"] = random.randn(4, 2).astype(np.float16)
    found = jax.jit(jax.vmap(functools.partial(mean, axis_name="i"), axis_name="i"))(tree)  # type: ignore[arg-type]
    for name, array in tree.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        expected = np.broadcast_to(array.astype(np.float64).mean(0), array.shape)
        np.testing.assert_allclose(found[name], expected, rtol=1e-3 if name == "half" else 1e-6, atol=1e-3)


def test_nothing_has_no_mean() -> None:
    found = jax.vmap(lambda x: (averaging.joined_mean({}, "i"), x), axis_name="i")(jnp.zeros(2))
    assert found[0] == {}
