from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.ops import averaging


def _mean(tree: Any) -> Any:
    return jax.lax.pmean(tree, "i")


def _chain(tree: Any) -> Any:
    """Two sums that may travel together with an extreme, and two that wait for them."""
    total = jax.lax.psum(tree["vector"], "i")
    mean, largest = jax.lax.pmean(tree["scalar"], "i"), jax.lax.pmax(tree["matrix"], "i")
    least = jax.lax.pmin(largest * jax.lax.axis_index("i") + mean, "i")
    return total, mean, largest, least, jax.lax.psum(total * tree["vector"], "i")


def _loop(tree: Any) -> Any:
    """Each step sums two arrays, and the next one needs one of them."""

    def step(carry: Any, x: Any) -> Any:
        total = jax.lax.psum(carry * x, "i")
        return total / 7.0, jax.lax.psum(jnp.sin(carry), "i")

    return jax.lax.scan(step, tree["scalar"], tree["vector"])


def _tree() -> dict[str, np.ndarray]:
    random = np.random.RandomState(0)
    shapes = {"matrix": (4, 3, 2), "vector": (4, 5), "scalar": (4,), "empty": (4, 0)}
    return {name: random.randn(*shape).astype(np.float32) for name, shape in shapes.items()}


def _sums(traced: Any) -> list[str]:
    """Returns the names of the sums, extremes and exchanges in a traced function, and in its loops."""
    names = (*averaging._ACROSS, "ppermute")
    found = [equation.primitive.name for equation in traced.eqns if equation.primitive.name in names]
    inner = [equation.params["jaxpr"].jaxpr for equation in traced.eqns if equation.primitive.name == "scan"]
    return [*found, *(name for each in inner for name in _sums(each))]


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [2, 4])
@pytest.mark.parametrize("function", [_mean, _chain, _loop])
def test_joined_sums_have_the_same_bits(function: Callable[[Any], Any], num_devices: int) -> None:
    given = {name: x[:num_devices] for name, x in _tree().items()}
    expected = jax.jit(jax.vmap(function, axis_name="i"))(given)
    found = jax.jit(jax.vmap(averaging.joined(function, "i"), axis_name="i"))(given)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("num_devices", "message"), [(1, "psum"), (2, "ppermute"), (3, "psum")])
@pytest.mark.parametrize(("function", "number"), [(_mean, 1), (_chain, 2), (_loop, 1)])
def test_sums_that_wait_for_nothing_are_one_message(
    function: Callable[[Any], Any], number: int, num_devices: int, message: str
) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:num_devices]), ("i",))
    specs = jax.sharding.PartitionSpec()
    given = {name: x[0] for name, x in _tree().items()}

    def counted(function: Callable[[Any], Any]) -> list[str]:
        inner: list[str] = []

        def traced(_: Any) -> Any:
            inner.extend(_sums(jax.make_jaxpr(function)(given).jaxpr))
            return jnp.zeros(1)

        jax.make_jaxpr(jax.shard_map(traced, mesh=mesh, in_specs=specs, out_specs=specs, check_vma=False))(jnp.ones(1))
        return inner

    assert len(counted(function)) > number
    assert counted(averaging.joined(function, "i")) == [message] * number


def test_both_of_two_devices_have_the_same_bits() -> None:
    given = jnp.array([[0.0, -0.0, 0.1], [-0.0, 0.0, 1e8]], jnp.float32)

    def function(x: jax.Array) -> Any:
        return jax.lax.pmax(x, "i"), jax.lax.pmin(x, "i"), jax.lax.psum(x, "i")

    found = jax.jit(jax.vmap(averaging.joined(function, "i"), axis_name="i"))(given)
    assert all(np.asarray(x[0]).tobytes() == np.asarray(x[1]).tobytes() for x in found)
    np.testing.assert_array_equal(found[2][0], np.float32([0.0, 0.0, 1e8]))


def test_every_array_becomes_its_mean_over_the_devices() -> None:
    tree = {**_tree(), "half": np.random.RandomState(1).randn(4, 2).astype(np.float16)}
    found = jax.jit(jax.vmap(averaging.joined(_mean, "i"), axis_name="i"))(tree)
    for name, array in tree.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        expected = np.broadcast_to(array.astype(np.float64).mean(0), array.shape)
        np.testing.assert_allclose(found[name], expected, rtol=1e-3 if name == "half" else 1e-6, atol=1e-3)


def test_nothing_has_no_mean() -> None:
    found = jax.vmap(lambda x: (averaging.joined(_mean, "i")({}), x), axis_name="i")(jnp.zeros(2))
    assert found[0] == {}
