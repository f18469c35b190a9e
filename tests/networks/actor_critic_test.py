"""V-trace's networks: shapes, dtypes, an LSTM's state, and an untrained network's outputs."""

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

VECTOR = types.EnvSpec((4,), "float32", 3)
GRID = types.EnvSpec((10, 5, 1), "uint8", 3, observation_low=0, observation_high=1)
PLAIN_GRID = types.EnvSpec((10, 5), "uint8", 3, observation_low=0, observation_high=1)
IMAGE = types.EnvSpec((32, 32, 1), "uint8", 3, observation_low=0, observation_high=255)
IMAGE_AND_VECTOR = types.EnvSpec.of_arrays(
    (types.ArraySpec("image", (8, 8, 1), "uint8", 0, 255), types.ArraySpec("vector", (4,), "float32")), num_actions=3
)
B, T = 2, 5


@functools.cache
def _make(spec: types.EnvSpec, platform: str = "cpu", **changes: Any) -> actor_critic.RecurrentNetwork[Any]:
    layers = shared.Layers("vtrace", **{"torso": "auto", "width": 16, **changes})
    return actor_critic.actor_critic(layers, spec, platform)


def _steps(spec: types.EnvSpec, frame_stack: int = 1, seed: int = 0) -> actor_critic.Steps:
    random = np.random.default_rng(seed)
    shapes = {array.name: (*array.shape[:-1], array.shape[-1] * frame_stack) for array in spec.arrays}
    return actor_critic.Steps(
        observation={
            array.name: jnp.asarray(random.integers(0, 2, (B, T, *shapes[array.name])), array.dtype)
            for array in spec.arrays
        },
        first=jnp.zeros((B, T), bool),
        reward=jnp.asarray(random.uniform(-1, 1, (B, T)), jnp.float32),
        last_action=jnp.asarray(random.integers(0, spec.num_actions, (B, T)), jnp.int32),
    )


def _shapes(network: actor_critic.RecurrentNetwork[Any], steps: actor_critic.Steps) -> tuple[Any, Any]:
    """Returns the shapes of the parameters, and of what the network makes of the steps."""
    params = jax.eval_shape(network.init, jax.random.key(0))
    state = jax.eval_shape(lambda: network.initial_state(B))
    return params, jax.eval_shape(network.unroll, params, state, steps)


def _large(network: actor_critic.RecurrentNetwork[Any], lstm: bool = True) -> Any:
    """Returns parameters that say something: as initialized, the logits are almost 0."""
    params = jax.jit(network.init)(jax.random.key(0))
    return jax.tree.map(
        lambda x: np.asarray(x) + 0.3 * np.sin(1.0 + np.arange(x.size, dtype=np.float32)).reshape(x.shape), params
    )


@pytest.mark.parametrize("lstm_width", [0, 6])
@pytest.mark.parametrize("frame_stack", [1, 3])
@pytest.mark.parametrize(
    ("spec", "torso"),
    [
        (VECTOR, "auto"),
        (GRID, "auto"),
        (PLAIN_GRID, "conv"),
        (IMAGE, "auto"),
        (IMAGE, "shallow"),
        (GRID, "deep"),
        (GRID, "shallow"),
        (IMAGE, "mlp"),
    ],
)
def test_every_torso_gives_logits_and_a_value_for_each_step(
    spec: types.EnvSpec, torso: str, frame_stack: int, lstm_width: int
) -> None:
    network = _make(spec, torso=torso, frame_stack=frame_stack, lstm_width=lstm_width)
    _, (state, logits, value) = _shapes(network, _steps(spec, frame_stack))
    assert (state.shape, state.dtype) == ((B, 2 * lstm_width), jnp.float32)
    assert (logits.shape, logits.dtype) == ((B, T, 3), jnp.float32)
    assert (value.shape, value.dtype) == ((B, T), jnp.float32)
    assert jax.eval_shape(lambda: network.initial_state(B)) == state


@pytest.mark.parametrize(
    ("spec", "torso", "kernels"),
    [
        (VECTOR, "auto", [(4, 16), (16, 16)]),
        (GRID, "auto", [(3, 3, 1, 4), (3, 3, 4, 4), (10 * 5 * 4, 16)]),
        (IMAGE, "shallow", [(8, 8, 1, 16), (4, 4, 16, 32), (4 * 4 * 32, 16)]),
    ],
)
def test_torsos_have_their_layers(spec: types.EnvSpec, torso: str, kernels: list[tuple[int, ...]]) -> None:
    params, _ = _shapes(_make(spec, torso=torso), _steps(spec))
    found = [leaf.shape for leaf in jax.tree.leaves(params["_Torso_0"]) if len(leaf.shape) > 1]
    assert sorted(found) == sorted(kernels)


def test_images_get_the_residual_network_of_the_paper() -> None:
    params, _ = _shapes(_make(IMAGE), _steps(IMAGE))
    shapes = [leaf.shape for leaf in jax.tree.leaves(params["_Torso_0"]) if len(leaf.shape) == 4]
    # Three sections of a convolution and two blocks of two.
    assert len(shapes) == 15
    assert sorted({shape[-1] for shape in shapes}) == [16, 32]
    # 32 x 32 pixels are pooled three times.
    assert (4 * 4 * 32, 16) in [leaf.shape for leaf in jax.tree.leaves(params["_Torso_0"])]


@pytest.mark.parametrize("lstm_width", [0, 6])
@pytest.mark.parametrize("spec", [VECTOR, GRID, IMAGE], ids=["mlp", "conv", "deep"])
def test_activations_are_bfloat16_on_accelerators_and_all_else_float32(spec: types.EnvSpec, lstm_width: int) -> None:
    network, steps = _make(spec, "gpu", lstm_width=lstm_width), _steps(spec)
    params, outputs = _shapes(network, steps)
    assert {leaf.dtype for leaf in jax.tree.leaves((params, outputs))} == {jnp.dtype("float32")}

    def dtypes(network: actor_critic.RecurrentNetwork[Any]) -> set[Any]:
        state = jnp.zeros((B, 2 * lstm_width))
        jaxpr = jax.make_jaxpr(network.unroll)(params_of(network), state, steps)
        found = {str(var.aval.dtype) for eqn in jaxpr.eqns for var in eqn.outvars if hasattr(var.aval, "dtype")}
        return found & {"bfloat16"}

    def params_of(network: actor_critic.RecurrentNetwork[Any]) -> Any:
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), params)

    assert dtypes(network) == {"bfloat16"}
    assert dtypes(_make(spec, "gpu", lstm_width=lstm_width, compute_dtype="float32")) == set()
    assert dtypes(_make(spec, "cpu", lstm_width=lstm_width)) == set()


@pytest.mark.parametrize("spec", [VECTOR, IMAGE_AND_VECTOR], ids=["vector", "beside-images"])
def test_bfloat16_tells_near_vectors_apart(spec: types.EnvSpec) -> None:
    network, steps = _make(spec, width=64, compute_dtype="bfloat16"), _steps(spec)
    name = spec.arrays[-1].name
    seen = np.full((B, T, 4), 100.0, np.float32)
    seen[1, :, 0] += 0.2
    same = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), steps)._replace(first=steps.first)
    steps = same._replace(observation={**same.observation, name: jnp.asarray(seen)})
    params = jax.jit(network.init)(jax.random.key(0))
    _, logits, _ = jax.jit(network.unroll)(params, network.initial_state(B), steps)
    assert np.any(logits[0] != logits[1])


@pytest.mark.parametrize(
    ("spec", "lstm_width"), [(VECTOR, 0), (VECTOR, 32), (GRID, 32), (IMAGE, 0)], ids=["mlp", "lstm", "conv", "deep"]
)
def test_an_untrained_policy_is_nearly_uniform_and_values_differ(spec: types.EnvSpec, lstm_width: int) -> None:
    network, steps = _make(spec, lstm_width=lstm_width, width=64), _steps(spec)

    @jax.jit
    def outputs() -> Any:
        return network.unroll(network.init(jax.random.key(0)), network.initial_state(B), steps)

    _, logits, value = outputs()
    assert np.abs(logits).max() < 0.1
    assert np.abs(logits).max() > 0
    assert np.std(value) > 0
    assert np.abs(value).max() < 10


def test_heads_are_initialized_to_their_scales() -> None:
    params = jax.jit(_make(VECTOR, width=16).init)(jax.random.key(0))
    policy, value = params["Dense_0"]["kernel"], params["Dense_1"]["kernel"]
    # Orthogonal: columns of a common length.
    np.testing.assert_allclose(policy.T @ policy, 0.01**2 * np.eye(3), atol=1e-8)
    np.testing.assert_allclose(value.T @ value, [[1.0]], rtol=1e-5)


def test_steps_are_independent_without_an_lstm() -> None:
    network, steps = _make(VECTOR), _steps(VECTOR)
    params = _large(network)
    other = steps._replace(
        observation={types.OBSERVATION: steps.observation[types.OBSERVATION].at[:, 2].add(1.0)},
        reward=steps.reward + 1,
        last_action=2 - steps.last_action,
    )
    unroll = jax.jit(network.unroll)
    _, logits, value = unroll(params, network.initial_state(B), steps)
    _, changed, changed_value = unroll(params, network.initial_state(B), other)
    differs = np.any(logits != changed, axis=(0, 2))
    np.testing.assert_array_equal(differs, [False, False, True, False, False])
    np.testing.assert_array_equal(np.any(value != changed_value, axis=0), differs)


# The LSTM -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
def test_an_unroll_is_its_steps_one_by_one(compute_dtype: str) -> None:
    network, steps = _make(VECTOR, lstm_width=6, compute_dtype=compute_dtype), _steps(VECTOR)
    steps = steps._replace(first=steps.first.at[0, 2].set(True))
    params, unroll = _large(network), jax.jit(network.unroll)
    state = jnp.asarray(np.random.default_rng(1).normal(size=(B, 12)), jnp.float32)
    end, logits, value = unroll(params, state, steps)
    for t in range(T):
        state, one_logits, one_value = unroll(params, state, jax.tree.map(lambda x, t=t: x[:, t : t + 1], steps))
        np.testing.assert_allclose(one_logits[:, 0], logits[:, t], atol=1e-5)
        np.testing.assert_allclose(one_value[:, 0], value[:, t], atol=1e-5)
    np.testing.assert_allclose(state, end, atol=1e-5)


def test_an_episode_begins_from_state_0_and_hides_the_one_before() -> None:
    network, steps = _make(VECTOR, lstm_width=6), _steps(VECTOR)
    params, unroll = _large(network), jax.jit(network.unroll)
    steps = steps._replace(first=steps.first.at[0, 2].set(True))
    state = jnp.ones((B, 12))
    end, logits, value = unroll(params, state, steps)
    fresh = jax.tree.map(lambda x: x[:, 2:], steps)
    fresh_end, fresh_logits, fresh_value = unroll(params, network.initial_state(B), fresh)
    np.testing.assert_allclose(end[0], fresh_end[0], atol=1e-6)
    np.testing.assert_allclose(logits[0, 2:], fresh_logits[0], atol=1e-6)
    np.testing.assert_allclose(value[0, 2:], fresh_value[0], atol=1e-6)
    # The other row goes on.
    assert np.all(np.abs(logits[1, 2:] - fresh_logits[1]).max(axis=-1) > 1e-4)


def test_gradients_do_not_cross_an_episodes_beginning() -> None:
    network, steps = _make(VECTOR, lstm_width=6), _steps(VECTOR)
    params = _large(network)
    steps = steps._replace(first=steps.first.at[0, 2].set(True))

    @jax.jit
    @jax.grad
    def gradient(observation: jax.Array) -> jax.Array:
        shown = steps._replace(observation={types.OBSERVATION: observation})
        _, _, value = network.unroll(params, network.initial_state(B), shown)
        return jnp.sum(value[:, 4])

    into = np.any(gradient(steps.observation[types.OBSERVATION]) != 0, axis=-1)
    np.testing.assert_array_equal(into, [[False, False, True, True, True], [True] * T])


@pytest.mark.parametrize("name", ["reward", "last_action"])
def test_before_an_episode_there_is_no_action_and_no_reward(name: str) -> None:
    network, steps = _make(VECTOR, lstm_width=6), _steps(VECTOR)
    params, unroll = _large(network), jax.jit(network.unroll)
    steps = steps._replace(first=steps.first.at[:, 0].set(True))
    all_logits = [
        unroll(params, network.initial_state(B), steps._replace(**{name: getattr(steps, name).at[:, 0].set(given)}))[1]
        for given in range(3)
    ]
    for logits in all_logits[1:]:
        np.testing.assert_array_equal(logits, all_logits[0])


def test_an_lstm_sees_rewards_clipped_to_1() -> None:
    network, steps = _make(VECTOR, lstm_width=6), _steps(VECTOR)
    params, unroll = _large(network), jax.jit(network.unroll)
    sign = jnp.sign(steps.reward)
    one, hundred = (unroll(params, network.initial_state(B), steps._replace(reward=sign * x))[1] for x in (1.0, 100.0))
    np.testing.assert_array_equal(one, hundred)
