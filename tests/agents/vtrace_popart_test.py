"""V-trace with PopArt: the loss against numpy, values kept by the rescaling, the statistics in state and devices."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import actor_critic_cases as cases  # beside this file: see conftest.py
import agent_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import base, vtrace
from seedzero.config import options, shared
from seedzero.core import types
from seedzero.device import meshes
from seedzero.networks import actor_critic
from seedzero.ops import popart
from seedzero.replay import windowing

TASKS = dataclasses.replace(cases.SPEC, tasks=("small", "large", "absent"))
TASK_OF = np.array([0, 1, 1])
SCALES = np.array([1.0, 100.0], np.float32)


def _windows() -> windowing.Windows:
    """Returns the unrolls of `actor_critic_cases`, of two tasks; the rewards of one are large."""
    windows = cases.make_windows("vtrace")._replace(weight=jnp.array([1.0, 0.5, 1.5]))
    task = np.repeat(TASK_OF[:, None], cases.LENGTH + 1, axis=1).astype(np.int32)
    return windows._replace(reward=windows.reward * SCALES[task], stored={**windows.stored, "task": jnp.asarray(task)})


@functools.cache
def _agent(**changes: options.Value) -> tuple[base.Agent, actor_critic.RecurrentNetwork[Any]]:
    config = cases.make_config("vtrace", popart=True, popart_step=0.05, **changes)
    agent = vtrace.make(config, TASKS, "cpu")
    network = actor_critic.actor_critic(shared.NetworkConfig(width=8), TASKS, "cpu", num_values=3)
    return agent, network


def _values(network: actor_critic.RecurrentNetwork[Any], state: Any, windows: windowing.Windows) -> np.ndarray:
    """Returns [B, L + 1] in the environments' units."""
    task, none = windows.stored["task"], jnp.zeros((cases.BATCH, 0))
    steps = actor_critic.Steps(windows.observation, windows.first, windows.reward, jnp.zeros_like(task), task)

    @jax.jit
    def values(state: Any, steps: actor_critic.Steps) -> jax.Array:
        _, _, said = network.unroll(state.params, none, steps)
        return popart.unnormalize(state.returns, said, steps.task)

    return np.asarray(values(state, steps))


def _started(agent: base.Agent) -> Any:
    """Returns a state whose statistics are not the first ones."""
    state = jax.jit(agent.init)(jax.random.key(0))
    return state._replace(returns=popart.Statistics(jnp.array([0.5, 20.0, 3.0]), jnp.array([4.0, 900.0, 1.0])))


@functools.cache
def _update(**changes: options.Value) -> Any:
    """Returns an agent's update of a state by windows."""
    agent, _ = _agent(**changes)
    return jax.jit(lambda *args: agent.update(*args, jax.random.key(0), None))


@functools.cache
def _updated(learning_rate: float) -> tuple[Any, Any, base.Metrics]:
    agent, _ = _agent(learning_rate=learning_rate)
    before = _started(agent)
    after, priority, metrics = _update(learning_rate=learning_rate)(before, _windows())
    assert priority is None
    return before, after, metrics


class _Numpy(cases.VtraceNumpy):
    """Losses and statistics in float64, step by step (Espeholt et al. 2018; Hessel et al. 2018)."""

    def __init__(self, before: Any, network: actor_critic.RecurrentNetwork[Any], windows: windowing.Windows) -> None:
        task = windows.stored["task"]
        steps = actor_critic.Steps(windows.observation, windows.first, windows.reward, jnp.zeros_like(task))
        logits = jax.jit(network.unroll)(before.params, jnp.zeros((cases.BATCH, 0)), steps)[1]
        super().__init__(cases.make_config("vtrace"), windows, logits, _values(network, before, windows))
        self.mean = np.asarray(before.returns.mean, np.float64)
        self.square = np.asarray(before.returns.variance, np.float64) + self.mean**2
        self.scale = np.sqrt(self.square - self.mean**2)

    def losses(self) -> tuple[float, float]:
        """Returns the sums of the policy's and the value's loss."""
        policy, value = 0.0, 0.0
        for b, t in self.steps():
            weight, scale = self.weight[b], self.scale[TASK_OF[b]]
            policy -= weight * self.advantage(b, t) / scale * self.log_pi[b, t, self.action[b, t]]
            value += weight * 0.5 * ((self.target(b, t) - self.value[b, t]) / scale) ** 2
        return policy, value

    def statistics(self, step_size: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns mean and scale of each task after the targets, K steps towards the mean of K targets."""
        mean, square = self.mean.copy(), self.square.copy()
        for task in np.unique(TASK_OF):
            mine = [self.target(b, t) for b, t in self.steps() if TASK_OF[b] == task]
            for _ in mine:
                mean[task] += step_size * (np.mean(mine) - mean[task])
                square[task] += step_size * (np.mean(np.square(mine)) - square[task])
        return mean, np.sqrt(square - mean**2)


@pytest.mark.thorough
def test_losses_and_statistics_are_what_numpy_computes() -> None:
    before, after, metrics = _updated(0.0)
    expected = _Numpy(before, _agent(learning_rate=0.0)[1], _windows())
    policy, value = expected.losses()
    num_steps = sum(expected.weight[b] for b, _ in expected.steps())
    np.testing.assert_allclose(metrics["loss_policy"] * num_steps, policy, rtol=1e-4)
    np.testing.assert_allclose(metrics["loss_value"] * num_steps, value, rtol=1e-4)
    mean, scale = expected.statistics(0.05)
    np.testing.assert_allclose(after.returns.mean, mean, rtol=1e-4)
    np.testing.assert_allclose(after.returns.scale, scale, rtol=1e-4)
    assert metrics["return_scale_min"] == min(after.returns.scale)
    assert metrics["return_scale_max"] == max(after.returns.scale)


def test_new_statistics_change_no_value() -> None:
    before, after, _ = _updated(0.0)
    _, network = _agent(learning_rate=0.0)
    moved = np.asarray(after.returns.mean) != np.asarray(before.returns.mean)
    assert moved.tolist() == [True, True, False]  # the third task was not played
    assert not np.array_equal(before.params["Dense_1"]["kernel"], after.params["Dense_1"]["kernel"])
    expected = _values(network, before, _windows())
    np.testing.assert_allclose(_values(network, after, _windows()), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.thorough
def test_values_of_other_tasks_stay_whatever_one_learns() -> None:
    before, after, _ = _updated(0.1)
    kernels = [np.asarray(state.params["Dense_1"]["kernel"]) for state in (before, after)]
    assert np.array_equal(kernels[0][:, 2], kernels[1][:, 2])
    assert not np.array_equal(kernels[0][:, 0], kernels[1][:, 0])


def test_what_the_policy_learns_does_not_depend_on_the_rewards_unit() -> None:
    """The same environment in another unit: statistics and rewards scale, the gradient stays."""
    agent, _ = _agent(learning_rate=0.0)
    state, windows, factor = _started(agent), _windows(), 1000.0
    returns = popart.Statistics(state.returns.mean * factor, state.returns.variance * factor**2)
    windows = windows._replace(reward=windows.reward * factor)
    _, _, metrics = _update(learning_rate=0.0)(state._replace(returns=returns), windows)
    np.testing.assert_allclose(metrics["loss_policy"], _updated(0.0)[2]["loss_policy"], rtol=1e-4)
    np.testing.assert_allclose(metrics["grad_norm"], _updated(0.0)[2]["grad_norm"], rtol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [1, 2])
def test_devices_that_see_different_tasks_keep_the_same_statistics(num_devices: int) -> None:
    agent, _ = _agent()
    windows = jax.tree.map(lambda x: jnp.concatenate([x[:2], x[1:]]), _windows())  # tasks 0 and 1, then 1 and 1
    update = meshes.over_devices(
        lambda state, windows: agent.update(state, windows, jax.random.key(0), meshes.AXIS)[0],
        meshes.make(num_devices),
        (meshes.REPLICATED, meshes.SHARDED),
        meshes.REPLICATED,
    )
    alone, _, _ = _update()(_started(agent), windows)
    shared = update(_started(agent), windows)
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(shared), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_padding_counts_in_no_statistics() -> None:
    agent, _ = _agent(learning_rate=0.0)
    windows = _windows()
    alone, _, _ = _update(learning_rate=0.0)(_started(agent), windows)
    padded, _, _ = _update(learning_rate=0.0)(_started(agent), agent_cases.padded(windows, np.nan))
    np.testing.assert_allclose(padded.returns.mean, alone.returns.mean, rtol=1e-6)


def test_acting_stores_the_task_and_needs_no_statistics() -> None:
    agent, _ = _agent()
    state = jax.jit(agent.init)(jax.random.key(0))
    assert agent.acting(state) is state.params
    inputs = agent_cases.inputs({types.OBSERVATION: np.zeros((2, 2), np.float32)}, 3)
    inputs = inputs._replace(task=jnp.array([2, 0]))
    _, outputs = agent.act(state.params, (), inputs, jax.random.key(0))
    assert outputs.stored["task"].tolist() == [2, 0] and "task" in agent.stored


def test_without_it_nothing_is_stored_and_the_state_is_as_before() -> None:
    agent = vtrace.make(cases.make_config("vtrace"), TASKS, "cpu")
    assert "task" not in agent.stored and not hasattr(jax.eval_shape(agent.init, jax.random.key(0)), "returns")
