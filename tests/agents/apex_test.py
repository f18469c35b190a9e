"""Ape-X DQN: its targets, priorities and losses worked by hand on a linear model, its exploration and its masks.

The linear model: Q(s, a) = s[a] w[a], with w = 1, 2, 4 online and 1, 1, 1 in the target network.
"""

from __future__ import annotations

import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from seedzero.agents import apex, learning
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.networks import actor_critic
from seedzero.ops import q_learning
from seedzero.replay import windowing

SPEC = types.EnvSpec((3,), "float32", 3)
MASKED = types.EnvSpec((3,), "float32", 3, has_action_mask=True)
ONLINE, TARGET = np.array([1.0, 2.0, 4.0], np.float32), np.ones(3, np.float32)
SMALL: dict[str, options.Value] = {"run.agent": "apex", "reward.discount": 0.5, "apex.n_step": 2, "network.width": 8}


def _config(**changes: options.Value) -> configs.Config:
    return configs.override(configs.Config(), {**SMALL, **agent_cases.named("apex", changes)})


def _parts(config: configs.Config, spec: types.EnvSpec = SPEC) -> apex._Parts:
    """Returns the parts of an agent with the linear model in place of its network."""

    def unroll(params: jax.Array, state: jax.Array, steps: actor_critic.Steps) -> tuple[jax.Array, jax.Array]:
        return state, steps.observation[types.OBSERVATION] * params

    network = actor_critic.RecurrentNetwork(
        lambda key: jnp.asarray(ONLINE), lambda num_rows: jnp.zeros((num_rows, 0)), unroll, unroll
    )
    scale = q_learning.scale(rescale=config.apex.rescale_values)
    return apex._Parts(
        config.apex, config.reward, spec, network, optax.identity(), config.optimizer.learning_rate, scale, 0
    )


def _windows(**changes: Any) -> windowing.Windows:
    """Returns three windows of three positions: whole, terminated at the second one, truncated there."""
    final = np.zeros((3, 3), bool)
    terminated, truncated, valid = final.copy(), final.copy(), ~final
    terminated[1, 1], truncated[2, 1], valid[1:, 2] = True, True, False
    last = np.array([[6.0, 5.0, 1.0]] * 3)  # online 6, 10, 4: action 1, worth 5 to the target network
    usual = agent_cases.windows(
        np.stack([np.ones((3, 3)), last], axis=1),
        reward=np.array([[99.0, 10.0, 20.0]] * 3),
        terminated=terminated,
        truncated=truncated,
        stored={"action": np.array([[0, 9, 9], [1, 9, 9], [2, 9, 9]])},
        valid=valid,
    )
    return usual._replace(**changes)


@functools.cache
def _update(config: configs.Config, spec: types.EnvSpec = SPEC) -> Any:
    parts = _parts(config, spec)

    def update(windows: windowing.Windows) -> Any:
        state = learning.init(jnp.asarray(ONLINE), parts.optimizer, has_target=True)
        return apex._update(parts, state._replace(target_params=jnp.asarray(TARGET)), windows, None)

    return jax.jit(update)


# Learning -----------------------------------------------------------------------------------------------------------


def test_targets_are_double_q_values_behind_n_rewards_until_an_end() -> None:
    _, priority, metrics = _update(_config())(_windows())
    # Targets: 10 + 20/2 + 5/4 = 21.25; 10; 10 + 5/2 = 12.5. Predictions: 1, 2, 4.
    np.testing.assert_allclose(priority, [20.25, 8.0, 8.5], rtol=1e-6)
    np.testing.assert_allclose(metrics["loss"], 0.5 * (20.25**2 + 8**2 + 8.5**2) / 3, rtol=1e-6)
    np.testing.assert_allclose(metrics["q_target_mean"], (21.25 + 10 + 12.5) / 3, rtol=1e-6)


def test_the_mean_of_predictions_is_that_of_the_actions_that_were_taken() -> None:
    taken = np.array([[2, 9, 9], [1, 9, 9], [2, 9, 9]])
    _, _, metrics = _update(_config())(agent_cases.store(_windows(), action=taken))
    np.testing.assert_allclose(metrics["q_mean"], (4 + 2 + 4) / 3, rtol=1e-6)


def test_a_step_goes_along_the_weighted_errors_of_the_actions_that_were_taken() -> None:
    state, _, metrics = _update(_config(optimizer__learning_rate=0.1))(
        _windows(weight=np.array([0.5, 1.0, 0.0], np.float32))
    )
    gradient = np.array([-0.5 * 20.25, -8.0, 0.0]) / 3
    np.testing.assert_allclose(state.params, ONLINE - 0.1 * gradient, rtol=1e-6)
    np.testing.assert_allclose(metrics["grad_norm"], np.linalg.norm(gradient), rtol=1e-6)
    assert (state.target_params == TARGET).all()


def test_the_target_network_follows_every_so_many_updates() -> None:
    state, _, _ = _update(_config(target_updates=1))(_windows())
    np.testing.assert_array_equal(state.target_params, state.params)


def test_values_are_learned_on_a_squashed_scale_if_told() -> None:
    _, priority, _ = _update(_config(rescale_values=True))(_windows())
    squash, expand = q_learning.scale(rescale=True)
    value = float(expand(np.float32(5.0)))
    expected = [float(squash(np.float32(x))) for x in (20 + value / 4, 10.0, 10 + value / 2)]
    np.testing.assert_allclose(priority, np.abs(np.array(expected) - [1.0, 2.0, 4.0]), rtol=1e-5)


def test_rewards_are_scaled_and_clipped() -> None:
    _, priority, _ = _update(_config(reward__scale=0.05, reward__clip=0.8))(_windows())
    # 0.5 + 0.8/2 + 5/4, 0.5, 0.5 + 5/2 less 1, 2, 4
    np.testing.assert_allclose(priority, [1.15, 1.5, 1.0], rtol=1e-5)


def test_the_best_action_behind_a_return_is_a_legal_one() -> None:
    legal = np.ones((3, 3, 3), bool)
    legal[0, 2], legal[2, 1] = [True, False, True], [False, False, True]  # where the windows end
    windows = agent_cases.store(_windows(), legal=legal)
    _, priority, _ = _update(_config(), MASKED)(windows)
    # 20 + 6/4 - 1, and 10 + 1/2 - 4
    np.testing.assert_allclose(priority, [20.5, 8.0, 6.5], rtol=1e-6)


# Acting -------------------------------------------------------------------------------------------------------------


@functools.cache
def _act(config: configs.Config, spec: types.EnvSpec = SPEC) -> Any:
    parts = _parts(config, spec)
    return jax.jit(lambda memory, inputs, key: apex._act(parts, ONLINE, memory, inputs, key))


def _inputs(size: int, **changes: Any) -> Any:
    """Returns rows whose Q values are 3, 4, 4 x 0.5."""
    return agent_cases.inputs(np.array([[3.0, 2.0, 0.5]] * size, np.float32), **changes)


def test_every_environment_explores_with_its_own_epsilon_and_evaluation_is_greedy() -> None:
    explore = np.arange(3) < 2
    inputs = _inputs(3, action_mode=explore, slot=np.array([0, 3, 0]))._replace(num_slots=5)
    keys = jax.random.split(jax.random.key(0), 4000)
    act = jax.jit(jax.vmap(lambda key: _act(_config(epsilon=0.6))(np.zeros(3), inputs, key)))
    actions = np.asarray(act(keys)[1].action)
    shares = np.mean(actions != 1, axis=0)
    # 0.6, and 0.6 ^ (1 + 7 3/4); two of three random actions are others than the best
    np.testing.assert_allclose(shares, [0.4, 0.04 * 2 / 3, 0.0], atol=0.025)
    assert set(actions[:, 0].tolist()) == {0, 1, 2}


@pytest.mark.thorough
def test_slots_that_nobody_may_take_have_no_share_in_the_epsilons() -> None:
    config = configs.override(_config(epsilon=0.5), {"replay.num_slots": 100, "replay.num_envs": 2})
    agent, inputs = apex.make(config, SPEC, "cpu"), _inputs(4000, slot=np.ones(4000, np.int32))
    inputs = inputs._replace(num_slots=100)
    params = jax.jit(agent.init)(jax.random.key(0)).params
    act = jax.jit(lambda key: agent.act(params, np.zeros(4000, np.float32), inputs, key)[1].action)
    actions = np.asarray(act(jax.random.key(1)))
    # 0.5 ^ 8 in place of 0.5 ^ (1 + 7 / 99)
    assert np.sort(np.bincount(actions, minlength=3))[-1] > 3900


def test_only_legal_actions_are_best_and_random() -> None:
    mask = np.array([[True, False, True], [False, False, True]])
    inputs = _inputs(2, action_mask=mask, slot=np.zeros(2, np.int32))
    act = _act(_config(epsilon=1.0), MASKED)
    actions = np.stack([act(np.zeros(2), inputs, jax.random.key(seed))[1].action for seed in range(20)])
    assert set(actions[:, 0].tolist()) == {0, 2} and set(actions[:, 1].tolist()) == {2}
    greedy = inputs._replace(action_mode=np.full(2, types.GREEDY))
    _, outputs = act(np.zeros(2), greedy, jax.random.key(0))
    assert outputs.action.tolist() == [0, 2]
    np.testing.assert_array_equal(outputs.stored["legal"], mask)


def test_a_completed_step_has_the_priority_of_its_error_over_one_step() -> None:
    inputs = _inputs(
        3,
        reward=np.array([10.0, 10.0, -1.0], np.float32),
        terminated=np.array([False, True, False]),
        action_mode=np.zeros(3, bool),
    )
    memory, outputs = _act(_config())(np.array([1.0, 2.0, 4.0], np.float32), inputs, jax.random.key(0))
    # 10 + 4/2 - 1; 10 - 2; |-1 + 4/2 - 4|
    np.testing.assert_allclose(outputs.priority, [11.0, 8.0, 3.0], rtol=1e-6)
    np.testing.assert_allclose(memory, [4.0, 4.0, 4.0])  # of the action taken here


def test_the_agent_is_as_configured() -> None:
    config = configs.override(_config(network__frame_stack=3, n_step=4), {"replay.priority_alpha": 0.6})
    agent = apex.make(config, MASKED, "cpu")
    assert (agent.data.length, agent.data.observe, agent.stack) == (5, (0, 4), 3)
    assert agent.data.prioritization is not None and agent.data.prioritization.alpha == pytest.approx(0.6)
    assert set(agent.stored) == {"action", "legal"} and agent.reanalyse is None
    assert set(apex.make(_config(), SPEC, "cpu").stored) == {"action"}
    assert agent.initial_memory(5).shape == (5,)
