"""PPO's networks: shapes, dtypes, what policy and value share, an untrained network's outputs, and the LSTM."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import shared
from seedzero.core import types
from seedzero.networks import actor_critic
from seedzero.ops import statistics

VECTOR = types.EnvSpec((4,), "float32", 3)
CONTINUOUS = types.EnvSpec((4,), "float32", 0, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
GRID = types.EnvSpec((10, 5, 2), "uint8", 3, observation_low=0, observation_high=1)
IMAGE = types.EnvSpec((40, 40, 1), "uint8", 3, observation_low=0, observation_high=255)


@functools.cache
def _make(
    spec: types.EnvSpec, platform: str = "cpu", *, normalizes: bool = True, **changes: Any
) -> actor_critic.RecurrentNetwork[Any]:
    layers = shared.Layers("ppo", **{"torso": "auto", "width": 16, **changes})
    return actor_critic.ppo(layers, spec, platform, initial_std=0.5, normalizes=normalizes)


def _steps(observation: Any, spec: types.EnvSpec, **changes: Any) -> actor_critic.Steps:
    """Returns steps [B, T] in the middle of an episode, for observations [B, T, ...] of one array."""
    shape = observation.shape[:2]
    action_shape, dtype = ((2,), np.float32) if spec.is_continuous else ((), np.int32)
    usual = actor_critic.Steps(
        {types.OBSERVATION: observation},
        np.zeros(shape, bool),
        np.zeros(shape, np.float32),
        np.zeros((*shape, *action_shape), dtype),
    )
    return usual._replace(**changes)


@pytest.mark.parametrize("lstm_width", [0, 6])
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("frame_stack", [1, 3])
@pytest.mark.parametrize("spec", [VECTOR, CONTINUOUS, GRID, IMAGE], ids=["vector", "continuous", "grid", "image"])
def test_every_network_gives_a_policy_and_a_value(
    spec: types.EnvSpec, frame_stack: int, platform: str, lstm_width: int
) -> None:
    network = _make(spec, platform, frame_stack=frame_stack, lstm_width=lstm_width)
    shape = (6, 5, *spec.observation_shape[:-1], spec.observation_shape[-1] * frame_stack)
    steps = _steps(np.zeros(shape, spec.observation_dtype), spec)
    params = jax.eval_shape(network.init, jax.random.key(0))
    state, found = jax.eval_shape(network.unroll, params, network.initial_state(6), steps, network.no_moments())
    num_outputs = spec.num_actions or 2
    assert (found.policy.shape, found.policy.dtype) == ((6, 5, num_outputs), jnp.float32)
    assert (found.value.shape, found.value.dtype) == ((6, 5), jnp.float32)
    assert (state.shape, state.dtype) == ((6, 2 * lstm_width), jnp.float32)
    assert found.log_std.shape == ((2,) if spec.is_continuous else (0,))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    num_normalized = len(moments.mean) if (moments := network.no_moments()) else 0
    assert num_normalized == (4 * frame_stack if spec in (VECTOR, CONTINUOUS) else 0)


def test_an_untrained_policy_is_nearly_even_and_as_wide_as_configured() -> None:
    network = _make(CONTINUOUS)
    params = jax.jit(network.init)(jax.random.key(0))
    observation = np.random.default_rng(0).normal(size=(6, 1, 4)).astype(np.float32)
    unroll, state = jax.jit(network.unroll), network.initial_state(6)
    _, found = unroll(params, state, _steps(observation, CONTINUOUS), network.no_moments())
    np.testing.assert_allclose(found.log_std, np.log([0.5, 0.5]), rtol=1e-6)
    assert np.all(np.abs(found.policy) < 0.1)
    # Moments change what is seen, and nothing else: observations 10 times as large look the same.
    ten = statistics.Moments(jnp.ones(()), jnp.zeros(4), jnp.full(4, 100.0))
    _, again = unroll(params, state, _steps(10 * observation, CONTINUOUS), ten)
    np.testing.assert_allclose(again.value, found.value, rtol=1e-4)


@pytest.mark.parametrize(
    ("spec", "lstm_width", "of_values"),
    [(VECTOR, 0, {"value", "value_0", "value_1"}), (VECTOR, 6, {"value"}), (GRID, 0, {"value"})],
)
def test_policy_and_value_share_a_torso_for_pictures_and_with_an_lstm_alone(
    spec: types.EnvSpec, lstm_width: int, of_values: set[str]
) -> None:
    network = _make(spec, normalizes=False, lstm_width=lstm_width)
    drawn = np.random.default_rng(0).integers(0, 2, (6, 1, *spec.observation_shape)).astype(spec.observation_dtype)
    params, steps, state = jax.jit(network.init)(jax.random.key(0)), _steps(drawn, spec), network.initial_state(6)
    gradient = jax.jit(jax.grad(lambda params: jnp.sum(network.unroll(params, state, steps)[1].policy)))(params)
    silent = {name for name, leaves in gradient.items() if not any(np.any(leaf) for leaf in jax.tree.leaves(leaves))}
    assert silent == of_values


@pytest.mark.parametrize("spec", [VECTOR, CONTINUOUS], ids=["numbers", "vectors"])
def test_an_lstm_sees_the_last_action_and_reward_and_begins_anew_with_an_episode(spec: types.EnvSpec) -> None:
    network = _make(spec, normalizes=False, lstm_width=6)
    params = jax.jit(network.init)(jax.random.key(0))
    unroll = jax.jit(lambda state, steps: network.unroll(params, state, steps)[1].value)
    random = np.random.default_rng(0)
    steps = _steps(random.normal(size=(2, 4, 4)).astype(np.float32), spec)
    state = random.normal(size=(2, 12)).astype(np.float32)
    usual = unroll(state, steps)

    def changed(**changes: Any) -> list[list[bool]]:
        """Returns [B, T], true: another value."""
        return (np.asarray(unroll(state, steps._replace(**changes)) != usual)).tolist()

    reward, action = steps.reward.copy(), steps.last_action.copy()
    reward[0, 2], action[1, 1] = 0.5, 1
    assert changed(reward=reward) == [[False, False, True, True], [False] * 4]
    assert changed(last_action=action) == [[False] * 4, [False, True, True, True]]
    # With an episode that begins at the third step, nothing before it counts.
    first = steps.first.copy()
    first[:, 2] = True
    anew = unroll(state, steps._replace(first=first))
    cut = jax.tree.map(lambda x: x[:, 2:], steps._replace(first=first))
    np.testing.assert_allclose(anew[:, 2:], unroll(-state, cut), rtol=1e-5)
    action[:, 2] = 1
    np.testing.assert_array_equal(unroll(state, steps._replace(first=first, last_action=action))[0], anew[0])


@pytest.mark.parametrize("spec", [VECTOR, GRID, IMAGE], ids=["vector", "grid", "image"])
def test_a_loop_computes_the_same_as_acting(spec: types.EnvSpec) -> None:
    network = _make(spec)
    low, high = (-1, 1) if spec is VECTOR else (0, 2)
    seen = np.random.default_rng(0).integers(low, high, (3, 2, *spec.observation_shape)).astype(spec.observation_dtype)
    params = jax.jit(network.init)(jax.random.key(0))
    arguments = (params, network.initial_state(3), _steps(seen, spec), network.no_moments())
    acted, learned = (jax.jit(unroll)(*arguments)[1] for unroll in (network.unroll, network.unroll_in_loop))
    np.testing.assert_allclose(learned.value, acted.value, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(learned.policy, acted.policy, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("lstm_width", [0, 6])
def test_bfloat16_tells_near_observations_apart(lstm_width: int) -> None:
    network = _make(VECTOR, normalizes=False, lstm_width=lstm_width, width=64, compute_dtype="bfloat16")
    params = jax.jit(network.init)(jax.random.key(0))
    seen = np.array([[[1.0, 0.9, 0.8, 0.7]], [[1.002, 0.9, 0.8, 0.7]]], np.float32)
    steps, state = _steps(seen, VECTOR), network.initial_state(2)
    _, found = jax.jit(network.unroll)(params, state, steps)
    assert np.any(found.policy[0] != found.policy[1])
