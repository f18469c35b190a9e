"""MuZero's networks: sizes, shapes, dtypes, scaling of what comes in, and what an untrained network says."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.core import config as config_lib
from seedzero.core import errors, types
from seedzero.networks import mlp, muzero
from seedzero.ops import value_transforms

VECTOR = types.EnvSpec((4,), "float32", 3)
GRID = types.EnvSpec((10, 5, 1), "uint8", 3, observation_low=0, observation_high=1)
IMAGE = types.EnvSpec((32, 32, 1), "uint8", 3, observation_low=0, observation_high=255)
FRAME = types.EnvSpec((96, 96, 1), "uint8", 18, observation_low=0, observation_high=255)


def _config(**changes: Any) -> config_lib.NetworkConfig:
    return dataclasses.replace(config_lib.NetworkConfig(num_bins=21, width=16, head_width=16), **changes)


def _num_params(network: muzero.Network) -> int:
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))


def _observation(spec: types.EnvSpec, batch_size: int = 2) -> jax.Array:
    values = 1 + np.random.default_rng(0).integers(0, 2, (batch_size, *spec.observation_shape))
    return jnp.asarray(values, spec.observation_dtype)


def test_the_large_network_has_about_32_million_parameters() -> None:
    config = config_lib.NetworkConfig(frame_stack=4, resnet_size="large", head_width=256, num_bins=601)
    assert _num_params(muzero.make(config, FRAME, "gpu")) == pytest.approx(32e6, rel=0.02)


@pytest.mark.parametrize(("size", "channels", "millions"), [("small", 64, 0.59), ("middle", 128, 2.52)])
@pytest.mark.parametrize("frame_size", [84, 96])
def test_frames_become_6x6_hidden_states(size: str, channels: int, millions: float, frame_size: int) -> None:
    spec = dataclasses.replace(FRAME, observation_shape=(frame_size, frame_size, 1))
    network = muzero.make(config_lib.NetworkConfig(frame_stack=4, resnet_size=size), spec, "cpu")
    params = jax.eval_shape(network.init, jax.random.key(0))
    hidden = jax.eval_shape(network.represent, params, jax.ShapeDtypeStruct((2, frame_size, frame_size, 4), jnp.uint8))
    assert hidden.shape == (2, 6, 6, channels)
    assert _num_params(network) == pytest.approx(millions * 1e6, rel=0.02)


@pytest.mark.parametrize("spec", [VECTOR, GRID, IMAGE], ids=["mlp", "conv", "resnet"])
def test_an_untrained_network_is_uniform_and_expects_exactly_nothing(spec: types.EnvSpec) -> None:
    network = muzero.make(_config(), spec, "cpu")

    @jax.jit
    def predict() -> Any:
        params = network.init(jax.random.key(0))
        hidden = network.represent(params, _observation(spec))
        return hidden, network.predict(params, hidden), network.dynamics(params, hidden, jnp.array([0, 2]))

    hidden, (policy, value), (following, reward) = predict()
    np.testing.assert_array_equal(jax.nn.softmax(policy), np.full((2, 3), np.float32(1 / 3)))
    for logits in (value, reward):
        assert logits.shape == (2, 21)
        assert np.all(np.asarray(value_transforms.expectation(logits, 30.0)) == 0.0)
    assert following.shape == hidden.shape


@pytest.mark.parametrize("spec", [VECTOR, GRID, IMAGE], ids=["mlp", "conv", "resnet"])
def test_hidden_states_differ_by_observation_and_action_and_keep_their_scale(spec: types.EnvSpec) -> None:
    network = muzero.make(_config(), spec, "cpu")

    @jax.jit
    def states_of_both() -> Any:
        params = network.init(jax.random.key(0))
        hidden = network.represent(params, _observation(spec))
        return hidden, network.dynamics(params, hidden[:1].repeat(2, axis=0), jnp.array([0, 2]))[0]

    hidden, following = states_of_both()
    for states in (hidden, following):
        flat = np.asarray(states).reshape(2, -1)
        assert np.abs(flat[0] - flat[1]).max() > 1e-3
        np.testing.assert_allclose(flat.mean(axis=1), 0.0, atol=1e-5)
        np.testing.assert_allclose(flat.std(axis=1), 1.0, atol=1e-3)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((), "mlp"),
        ((8,), "mlp"),
        ((10, 5), "conv"),
        ((10, 10, 4), "conv"),
        ((31, 96, 1), "conv"),
        ((84, 84, 1), "resnet"),
        ((64, 64, 3), "resnet"),
        ((2, 3, 4, 5), "mlp"),
    ],
)
def test_the_kind_follows_from_the_observations_shape(shape: tuple[int, ...], kind: str) -> None:
    assert muzero.choose_kind(config_lib.NetworkConfig(), shape) == kind


def test_convolutions_over_vectors_are_refused_by_name() -> None:
    with pytest.raises(errors.ConfigError, match=r"network\.kind=resnet .* \[4\]; use network\.kind=mlp"):
        muzero.make(_config(kind="resnet"), VECTOR, "cpu")


@pytest.mark.parametrize(
    ("platform", "compute_dtype", "expected"),
    [
        ("cpu", "auto", "float32"),
        ("gpu", "auto", "bfloat16"),
        ("tpu", "auto", "bfloat16"),
        ("gpu", "float32", "float32"),
        ("cpu", "bfloat16", "bfloat16"),
    ],
)
def test_parameters_and_logits_are_float32_whatever_is_computed_in(
    platform: str, compute_dtype: str, expected: str
) -> None:
    network = muzero.make(_config(compute_dtype=compute_dtype), VECTOR, platform)
    params = jax.eval_shape(network.init, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    cast = jax.eval_shape(network.cast, params)
    assert {leaf.dtype for leaf in jax.tree.leaves(cast)} == {jnp.dtype(expected)}
    hidden = jax.eval_shape(network.represent, cast, jax.ShapeDtypeStruct((2, 4), jnp.float32))
    following, reward = jax.eval_shape(network.dynamics, cast, hidden, jax.ShapeDtypeStruct((2,), jnp.int32))
    assert hidden.dtype == following.dtype == jnp.dtype(expected)
    for logits in (*jax.eval_shape(network.predict, cast, hidden), reward):
        assert logits.dtype == jnp.float32


@pytest.mark.parametrize(
    ("low", "high", "dtype", "value", "scaled"),
    [
        (0, 255, "uint8", 51, 0.2),
        (0, 4, "uint8", 1, 0.25),
        (-np.inf, np.inf, "uint8", 51, 0.2),
        (-10, 5, "int32", -5, -0.5),
        (-np.inf, np.inf, "int32", 7, 7.0),
        (0, 10, "float32", 5, 5.0),
    ],
)
def test_integers_are_scaled_by_their_range(low: float, high: float, dtype: str, value: int, scaled: float) -> None:
    spec = types.EnvSpec((4,), dtype, 3, observation_low=low, observation_high=high)
    network, plain = muzero.make(_config(), spec, "cpu"), muzero.make(_config(), VECTOR, "cpu")
    params = network.init(jax.random.key(0))
    pattern = np.array([[0, 0, 1, 1]])
    hidden = network.represent(params, jnp.asarray(pattern * value, dtype))
    expected = plain.represent(params, jnp.asarray(pattern * scaled, jnp.float32))
    np.testing.assert_allclose(hidden, expected, rtol=1e-5, atol=1e-6)


def test_stacked_frames_of_a_grid_without_channels_become_its_channels() -> None:
    flat = types.EnvSpec((10, 5), "uint8", 3, observation_high=1)
    config = _config(frame_stack=2)
    with_channels, without = muzero.make(config, GRID, "cpu"), muzero.make(config, flat, "cpu")
    params = with_channels.init(jax.random.key(0))
    frames = jnp.asarray(np.random.default_rng(0).integers(0, 2, (2, 1, 10, 5)), jnp.uint8)
    last_axis = jnp.concatenate([frames[0], frames[1]], axis=-1)
    expected = with_channels.represent(params, jnp.stack([frames[0], frames[1]], axis=-1))
    np.testing.assert_array_equal(without.represent(params, last_axis), expected)
    assert muzero.stack_shape((10, 5), 2) == (10, 10)


def test_a_scalar_observation_counts_as_a_vector_of_one() -> None:
    spec = types.EnvSpec((), "float32", 2)
    network = muzero.make(_config(frame_stack=3), spec, "cpu")
    assert muzero.stack_shape((), 3) == (3,)
    hidden = network.represent(network.init(jax.random.key(0)), jnp.ones((2, 3)))
    assert hidden.shape == (2, 16)


def test_normalize_gives_mean_0_and_variance_1_over_all_but_the_batch() -> None:
    x = jnp.array([[[1.0, 3.0], [5.0, 7.0]]])
    # Mean 4, variance (9 + 1 + 1 + 9) / 4 = 5.
    expected = np.array([[[-3.0, -1.0], [1.0, 3.0]]]) / np.sqrt(5.0)
    np.testing.assert_allclose(mlp.normalize(x), expected, rtol=1e-5)
