"""PopArt's statistics and rescaling against numbers worked by hand and a numpy program in the paper's form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.ops import popart

_jitted = jax.jit(popart.update, static_argnames=("step_size", "axis_name"))
TWO = popart.Statistics(jnp.array([2.0, -10.0]), jnp.array([9.0, 0.25]))


def _update(statistics: popart.Statistics, target: Any, task: Any, counted: Any = True, **changes: Any) -> Any:
    target = jnp.asarray(target, jnp.float32)
    task, counted = (jnp.broadcast_to(jnp.asarray(x), target.shape) for x in (task, counted))
    return _jitted(statistics, target, task, counted, **{"step_size": 0.5, **changes})


def test_values_are_mean_plus_scale_times_what_the_network_says() -> None:
    said, task = jnp.array([[1.0, 2.0], [0.0, -1.0]]), jnp.array([[0, 1], [1, 0]])
    value = popart.unnormalize(TWO, said, task)
    assert value.tolist() == [[2 + 3 * 1.0, -10 + 0.5 * 2.0], [-10.0, 2 - 3 * 1.0]]
    assert popart.normalize(TWO, value, task).tolist() == said.tolist()


def test_at_first_values_are_what_the_network_says() -> None:
    said = jnp.array([3.0, -7.5])
    assert popart.unnormalize(popart.initial(2), said, jnp.array([0, 1])).tolist() == said.tolist()


def test_one_target_worked_by_hand() -> None:
    # mean 0 -> 0.5 * 4 = 2; mean square 1 -> 0.5 * 1 + 0.5 * 16 = 8.5, variance 8.5 - 4 = 4.5
    after = _update(popart.initial(1), [4.0], [0])
    assert after.mean.tolist() == [2.0]
    assert after.variance.tolist() == [4.5]


def test_two_targets_are_two_steps_towards_their_mean_worked_by_hand() -> None:
    # share 1 - 0.5^2 = 0.75; mean 0.75 * 5 = 3.75; mean square 0.25 * 1 + 0.75 * (4 + 64) / 2 = 25.75
    after = _update(popart.initial(1), [2.0, 8.0], [0, 0])
    np.testing.assert_allclose(after.mean, [3.75], rtol=1e-6)
    np.testing.assert_allclose(after.variance, [25.75 - 3.75**2], rtol=1e-6)


def test_a_task_without_targets_stays_and_what_does_not_count_moves_none() -> None:
    after = _update(TWO, [[4.0, np.inf], [5.0, np.nan]], [[1, 1], [1, 0]], [[True, False], [True, False]])
    assert (after.mean[0], after.variance[0]) == (2.0, 9.0)
    assert after.mean[1] == pytest.approx(-10 + 0.75 * 14.5)


def _numpy(mean: Any, square: Any, target: Any, task: Any, step_size: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and mean square in float64, one step after the other."""
    mean, square = np.array(mean, np.float64), np.array(square, np.float64)
    for place in np.unique(task):
        mine = np.asarray(target, np.float64)[np.asarray(task) == place]
        for _ in mine:
            mean[place] += step_size * (mine.mean() - mean[place])
            square[place] += step_size * (np.square(mine).mean() - square[place])
    return mean, square


@pytest.mark.parametrize("step_size", [3e-4, 0.1])
def test_many_batches_are_what_numpy_computes(step_size: float) -> None:
    random = np.random.default_rng(0)
    found, mean, square = popart.initial(3), np.zeros(3), np.ones(3)
    step = jax.jit(lambda *args: popart.update(*args, jnp.ones((8, 20), bool), step_size=step_size))
    for _ in range(30):
        task = np.repeat(random.integers(0, 3, 8), 20).reshape(8, 20).astype(np.int32)
        target = np.array([1.0, 100.0, 5000.0])[task] * (1 + random.normal(size=task.shape))
        found = step(found, jnp.asarray(target, jnp.float32), jnp.asarray(task))
        mean, square = _numpy(mean, square, target, task, step_size)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-4)
    np.testing.assert_allclose(found.scale, np.sqrt(square - mean**2), rtol=1e-4)


def test_the_scale_keeps_its_bounds() -> None:
    flat = popart.Statistics(jnp.zeros(2), jnp.array([0.0, 1e20]))
    np.testing.assert_allclose(flat.scale, [1e-4, 1e6], rtol=1e-6)


def test_a_small_variance_beside_a_large_mean_is_kept() -> None:
    found = popart.Statistics(jnp.array([10_000.0]), jnp.array([0.01]))
    after = _update(found, [10_000.1, 9_999.9], [0, 0], step_size=1e-3)
    np.testing.assert_allclose(after.variance, [0.01], rtol=1e-2)  # as mean squares 0.01 is below float32's step of 8


def test_the_change_keeps_every_value() -> None:
    after = _update(TWO, [50.0, -3.0, 7.0], [0, 1, 1])
    said, task = jnp.array([0.7, -1.2, 3.0]), jnp.array([0, 1, 0])
    factor, shift = popart.change(TWO, after)
    before = popart.unnormalize(TWO, said, task)
    np.testing.assert_allclose(popart.unnormalize(after, said * factor[task] + shift[task], task), before, rtol=1e-5)


def test_devices_share_their_targets() -> None:
    target, task = np.array([[1.0, 5.0], [9.0, 2.0]], np.float32), np.array([[0, 0], [0, 1]], np.int32)
    counted = np.array([[True, True], [True, False]])
    alone = _update(popart.initial(2), target.reshape(-1), task.reshape(-1), counted.reshape(-1))
    shared = jax.vmap(lambda *args: _update(popart.initial(2), *args, axis_name="d"), axis_name="d")
    for device in range(2):
        found = jax.tree.map(lambda x, device=device: x[device], shared(target, task, counted))
        np.testing.assert_allclose(found.mean, alone.mean, rtol=1e-6)
        np.testing.assert_allclose(found.variance, alone.variance, rtol=1e-6)
