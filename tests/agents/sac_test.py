"""SAC's targets, losses and acting, against numpy and numbers worked by hand, with a linear model."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from seedzero.agents import base, learning, sac
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.networks import sac_net
from seedzero.ops import action_distributions
from seedzero.replay import windowing

SPEC = types.EnvSpec((2,), "float32", 0, action_low=(-2.0,), action_high=(4.0,))
BATCH = 6


class _Critics(NamedTuple):
    """Values [2, N] = observation @ o [2, 2] + a [2] * action, of two critics."""

    o: Any
    a: Any


ACTOR = np.array([[0.4, -0.2], [-0.3, 0.1]], np.float32)
"""Mean and log of the standard deviation [N, 2] = observation @ this."""
CRITICS = _Critics(np.array([[0.7, -0.4], [0.5, 0.1]], np.float32), np.array([0.3, -0.6], np.float32))
TARGET = _Critics(CRITICS.o + np.float32(0.2), CRITICS.a - np.float32(0.1))


def _config(**changes: options.Value) -> configs.Config:
    values = {"run.agent": "sac", "reward.discount": 0.9, **agent_cases.named("sac", changes)}
    return configs.override(configs.Config(), values)


def _parts(config: configs.Config) -> sac._Parts:
    def value(critics: _Critics, observation: dict[str, jax.Array], action: jax.Array) -> jax.Array:
        return (observation[types.OBSERVATION] @ critics.o).T + critics.a[:, None] * action[:, 0]

    def act(actor: jax.Array, observation: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        found = observation[types.OBSERVATION] @ actor
        return found[:, :1], found[:, 1:]

    def first(params: Any) -> Any:
        return lambda key: jax.tree.map(jnp.asarray, params)

    network = sac_net.SacNetwork(first(ACTOR), first(CRITICS), act, value)
    return sac._Parts(config, SPEC, network, optax.scale_by_adam())


def _windows() -> windowing.Windows:
    """Returns steps of random numbers; those of rows 1 and 4 end in a terminal state, those of 2 are cut off."""
    random = np.random.default_rng(0)
    shape = (BATCH, 2)
    terminated, truncated = np.zeros(shape, bool), np.zeros(shape, bool)
    terminated[[1, 4], 1], truncated[2, 1] = True, True
    return agent_cases.windows(
        random.normal(size=(*shape, 2)),
        reward=random.normal(size=shape),
        terminated=terminated,
        truncated=truncated,
        stored={"action": random.uniform(-1, 1, (*shape, 1))},
        weight=np.array([1.0, 0.5, 1.5, 1.0, 0.5, 1.5]),
    )


def _params(temperature: float) -> sac.Params:
    return sac.Params(ACTOR, CRITICS, np.log(np.float32(temperature)))


@functools.cache
def _value_and_grad(config: configs.Config) -> Any:
    def loss(params: sac.Params, windows: windowing.Windows) -> Any:
        return sac._loss_and_metrics(_parts(config), params, TARGET, windows, jax.random.key(3))

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


@functools.cache
def _update(config: configs.Config) -> Any:
    parts = _parts(config)
    return jax.jit(lambda state, windows, key: sac._update(parts, state, windows, key, None))


def _state(config: configs.Config) -> learning.TrainState:
    return sac._init(_parts(config), jax.random.key(0))


# Learning -----------------------------------------------------------------------------------------------------------


def _samples() -> tuple[np.ndarray, np.ndarray]:
    """Returns the noise [2, B, 1] of the loss for the next and for the present observation."""
    keys = jax.random.split(jax.random.key(3))
    return tuple(np.asarray(jax.random.normal(key, (BATCH, 1)), np.float64) for key in keys)  # type: ignore[return-value]


def _drawn(observation: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns actions [B] and their log densities [B] by the change of variables."""
    found = observation @ ACTOR.astype(np.float64)
    x = found[:, 0] + np.exp(found[:, 1]) * noise[:, 0]
    log_density = -0.5 * noise[:, 0] ** 2 - found[:, 1] - 0.5 * np.log(2 * np.pi)
    return np.tanh(x), log_density - np.log(1 - np.tanh(x) ** 2)


@pytest.mark.thorough
@pytest.mark.parametrize("temperature", [0.2, 1.5])
def test_losses_and_their_gradients_are_what_numpy_computes(temperature: float) -> None:
    windows, weight = _windows(), np.asarray(_windows().weight, np.float64)
    (loss, metrics), gradient = _value_and_grad(_config(reward__scale=0.5))(_params(temperature), windows)
    now, following = np.moveaxis(np.asarray(agent_cases.shown(windows), np.float64), 1, 0)
    (next_action, next_log_prob), (action, log_prob) = map(_drawn, (following, now), _samples())

    def values(critics: _Critics, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        return np.asarray((observation @ critics.o).T + critics.a[:, None] * action)

    goes_on = np.array([1, 0, 1, 1, 0, 1])  # a truncated episode is worth something beyond its end
    soft = values(TARGET, following, next_action).min(axis=0) - temperature * next_log_prob
    target = 0.5 * windows.reward[:, 1] + 0.9 * goes_on * soft
    stored = np.asarray(windows.stored["action"][:, 0, 0], np.float64)
    error = values(CRITICS, now, stored) - target
    worth = values(CRITICS, now, action).min(axis=0)
    expected = {
        "loss_value": np.mean(weight * 0.5 * np.sum(error**2, axis=0)),
        "loss_policy": np.mean(weight * (temperature * log_prob - worth)),
        "policy_entropy": -np.mean(weight * log_prob),
        "value_target_mean": np.mean(weight * target),
        "temperature": temperature,
    }
    for name, number in expected.items():
        np.testing.assert_allclose(metrics[name], number, rtol=1e-4, err_msg=name)
    temperature_loss = -np.log(temperature) * np.mean(weight * (log_prob - 1.0))
    np.testing.assert_allclose(loss, expected["loss_value"] + expected["loss_policy"] + temperature_loss, rtol=1e-4)
    # Only its own loss moves each: neither the actor's nor the target's reaches the critics.
    np.testing.assert_allclose(gradient.critics.a, np.mean(weight * error * stored, axis=1), rtol=1e-4)
    np.testing.assert_allclose(gradient.log_temperature, -np.mean(weight * (log_prob - 1.0)), rtol=1e-4)
    by_actor = jax.grad(lambda actor: _actor_loss(actor, now, weight, temperature))(jnp.asarray(ACTOR))
    np.testing.assert_allclose(gradient.actor, by_actor, rtol=1e-3, atol=1e-6)


def _actor_loss(actor: jax.Array, now: np.ndarray, weight: np.ndarray, temperature: float) -> jax.Array:
    """Returns equation 9 with the definition's log(1 - tanh^2)."""
    found, noise = jnp.asarray(now, jnp.float32) @ actor, jnp.asarray(_samples()[1], jnp.float32)[:, 0]
    x = found[:, 0] + jnp.exp(found[:, 1]) * noise
    log_prob = action_distributions.log_density(x[:, None], found[:, :1], found[:, 1:]) - jnp.log(1 - jnp.tanh(x) ** 2)
    worth = jnp.min((jnp.asarray(now, jnp.float32) @ CRITICS.o).T + CRITICS.a[:, None] * jnp.tanh(x), axis=0)
    return jnp.mean(weight * (temperature * log_prob - worth))


def test_target_critics_follow_slowly() -> None:
    config = _config(target_rate=0.25, learning_rate=0.1)
    state = _state(config)._replace(target_params=TARGET)
    after, priority, _ = _update(config)(state, _windows(), jax.random.key(0))
    assert priority is None
    np.testing.assert_allclose(after.target_params.o, 0.75 * TARGET.o + 0.25 * after.params.critics.o, rtol=1e-5)
    assert np.all(after.params.critics.o != CRITICS.o)


@pytest.mark.thorough
@pytest.mark.parametrize(("entropy_per_dimension", "rises"), [(5.0, True), (-5.0, False)])
def test_the_temperature_rises_where_the_entropy_is_too_low(entropy_per_dimension: float, rises: bool) -> None:
    config = _config(entropy_per_dimension=entropy_per_dimension)
    state = _state(config)
    after, _, _ = _update(config)(state, _windows(), jax.random.key(0))
    assert bool(after.params.log_temperature > state.params.log_temperature) == rises


@pytest.mark.thorough
@pytest.mark.parametrize("fill", [3.0, np.nan])
def test_padding_changes_nothing_whatever_is_in_it(fill: float) -> None:
    config, windows = _config(learning_rate=0.1), _windows()
    windows = windows._replace(weight=jnp.array([2.0, 2, 2, 0, 0, 0]))

    def pad(x: jax.Array) -> jax.Array:
        return x.at[3:].set(fill) if x.dtype == jnp.float32 else x

    filled = jax.tree.map(pad, windows)._replace(weight=windows.weight)
    states = [_update(config)(_state(config), each, jax.random.key(0))[0] for each in (windows, filled)]
    assert agent_cases.equal(states[0].params, states[1].params) and int(states[1].num_rejected) == 0


def test_a_few_updates_make_the_better_action_likelier() -> None:
    """Large actions pay: the reward of a single step is the action. The critics begin without an opinion."""
    config = _config(learning_rate=0.03, discount=0.0, initial_temperature=0.01)
    windows = _windows()
    reward = np.concatenate([np.zeros((BATCH, 1)), 10 * windows.stored["action"][:, 0]], axis=1).astype(np.float32)
    windows = agent_cases.show(windows, np.ones((BATCH, 2, 2), np.float32))._replace(reward=reward)
    state, means = _state(config), []
    state = state._replace(params=state.params._replace(critics=jax.tree.map(jnp.zeros_like, state.params.critics)))
    for seed in range(12):
        state, _, metrics = _update(config)(state, windows, jax.random.key(seed))
        means.append(float(np.sum(state.params.actor[:, 0])))
        assert metrics["num_rejected"] == 0
    assert means[-1] > means[0] and np.all(np.diff(means[6:]) > 0)


# Acting -------------------------------------------------------------------------------------------------------------


def _act(*, is_random: bool, samples: bool = False) -> base.Outputs:
    observation = np.tile(np.array([[1.0, -1.0]], np.float32), (4096, 1))
    noisy = types.SAMPLE if samples else types.EXPLORE
    inputs = agent_cases.inputs(observation, 0, action_mode=np.where(np.arange(4096) < 4000, noisy, types.GREEDY))
    params = sac.SacActing(jnp.asarray(ACTOR), jnp.int32(0 if is_random else 1))
    outputs: base.Outputs = jax.jit(lambda: sac._act(_parts(_config()), params, inputs, jax.random.key(0))[1])()
    return outputs


def test_actions_are_squashed_samples_and_greedy_ones_the_squashed_mean() -> None:
    outputs = _act(is_random=False)
    action = np.asarray(outputs.stored["action"][:, 0])
    mean, std = 0.7, np.exp(-0.3)
    np.testing.assert_allclose(np.arctanh(action[:4000]).mean(), mean, atol=0.05)
    np.testing.assert_allclose(np.arctanh(action[:4000]).std(), std, rtol=0.05)
    np.testing.assert_allclose(action[4000:], np.tanh(mean), rtol=1e-5)
    np.testing.assert_allclose(outputs.action[:, 0], 1 + 3 * action, atol=1e-5)  # -1 to 1 are -2 to 4


@pytest.mark.thorough
def test_actions_before_the_first_update_are_even_over_the_bounds() -> None:
    action = np.asarray(_act(is_random=True).action[:4000, 0])
    np.testing.assert_allclose(np.histogram(action, bins=4, range=(-2, 4))[0] / 4000, 0.25, atol=0.03)
    agent = sac.make(_config(width=8), SPEC, "cpu")
    state = jax.jit(agent.init)(jax.random.key(0))
    assert agent.acting(state).num_updates == 0


def test_samples_are_of_the_policy_before_the_first_update_too() -> None:
    explored = _act(is_random=False)
    for is_random in (True, False):
        np.testing.assert_array_equal(_act(is_random=is_random, samples=True).action, explored.action)


def test_the_replay_and_what_is_stored_are_as_needed() -> None:
    agent = sac.make(_config(frame_stack=2), SPEC, "cpu")
    assert (agent.data.length, agent.data.observe, agent.data.prioritization) == (2, (0, 1), None)
    assert set(agent.stored) == {"action"} and agent.stored["action"].shape == (1,)
    assert agent.stack == 2 and agent.reanalyse is None and agent.initial_memory(5) == ()
