"""MuZero's networks: sizes, shapes, dtypes, scaling of what comes in, and what an untrained network says."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import configs, muzero_config, shared
from seedzero.core import errors, types
from seedzero.networks import mlp, muzero_net, observations, resnet
from seedzero.ops import statistics, value_transforms

VECTOR = types.EnvSpec((4,), "float32", 3)
GRID = types.EnvSpec((10, 5, 1), "uint8", 3, observation_low=0, observation_high=1)
IMAGE = types.EnvSpec((32, 32, 1), "uint8", 3, observation_low=0, observation_high=255)
FRAME = types.EnvSpec((96, 96, 1), "uint8", 18, observation_low=0, observation_high=255)
every_kind = pytest.mark.parametrize("spec", [VECTOR, GRID, IMAGE], ids=["mlp", "conv", "resnet"])


def _config(**changes: Any) -> shared.NetworkConfig:
    return dataclasses.replace(shared.NetworkConfig(num_bins=21, width=16, head_width=16), **changes)


def _num_params(network: muzero_net.Network) -> int:
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))


def _observation(spec: types.EnvSpec, batch_size: int = 2) -> dict[str, jax.Array]:
    random = np.random.default_rng(0)
    return {
        array.name: jnp.asarray(1 + random.integers(0, 2, (batch_size, *array.shape)), array.dtype)
        for array in spec.arrays
    }


def _one(observation: Any) -> dict[str, Any]:
    """An observation of one array."""
    return {types.OBSERVATION: observation}


def test_convolutions_have_half_the_width_unless_told() -> None:
    def kernels(**changes: int) -> list[tuple[int, ...]]:
        network = muzero_net.make(_config(kind="conv", **changes), GRID, "cpu")
        shapes = jax.eval_shape(network.init, jax.random.key(0))
        return sorted(leaf.shape for leaf in jax.tree.leaves(shapes) if len(leaf.shape) == 4)

    assert kernels() == [(3, 3, 1, 8), (3, 3, 8, 8)]
    assert kernels(channels=5) == [(3, 3, 1, 5), (3, 3, 5, 5)]
    assert kernels(width=1) == [(3, 3, 1, 1), (3, 3, 1, 1)]


@pytest.mark.parametrize(
    ("stride", "kernel", "places"),
    [(1, (3, 3, 4, 8), 42 * 42), (2, (4, 4, 4, 8), 21 * 21), (4, (8, 8, 4, 8), 11 * 11)],
)
def test_the_first_convolution_shrinks_images(stride: int, kernel: tuple[int, ...], places: int) -> None:
    spec = dataclasses.replace(FRAME, observation_shape=(42, 42, 1))
    network = muzero_net.make(_config(kind="conv", first_stride=stride, frame_stack=4), spec, "cpu")
    found = jax.eval_shape(network.init, jax.random.key(0))["representation"]
    assert found["Conv_0"]["kernel"].shape == kernel
    assert found["Conv_1"]["kernel"].shape == (3, 3, 8, 8)
    assert found["Dense_0"]["kernel"].shape == (places * 8, 16)


def test_the_large_network_has_about_32_million_parameters() -> None:
    config = shared.NetworkConfig(frame_stack=4, resnet_size="large", head_width=256, num_bins=601)
    assert _num_params(muzero_net.make(config, FRAME, "gpu")) == pytest.approx(32e6, rel=0.02)


@pytest.mark.thorough
@pytest.mark.parametrize(("size", "channels", "millions"), [("small", 64, 0.59), ("middle", 128, 2.52)])
@pytest.mark.parametrize("frame_size", [84, 96])
def test_frames_become_6x6_hidden_states(size: str, channels: int, millions: float, frame_size: int) -> None:
    spec = dataclasses.replace(FRAME, observation_shape=(frame_size, frame_size, 1))
    network = muzero_net.make(shared.NetworkConfig(frame_stack=4, resnet_size=size), spec, "cpu")
    params = jax.eval_shape(network.init, jax.random.key(0))
    hidden = jax.eval_shape(
        network.represent, params, _one(jax.ShapeDtypeStruct((2, frame_size, frame_size, 4), jnp.uint8))
    )
    assert hidden.shape == (2, 6, 6, channels)
    assert _num_params(network) == pytest.approx(millions * 1e6, rel=0.02)


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(6, 6), (5, 2), (1, 1)], ids=str)
@pytest.mark.parametrize("is_continuous", [False, True])
def test_the_images_action_is_convolved_as_constant_planes_would_be(
    shape: tuple[int, int], is_continuous: bool
) -> None:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(4, *shape, 3)).astype(np.float32)
    numbers = rng.uniform(-1, 1, (4, 3)).astype(np.float32)
    action = numbers if is_continuous else np.array([0, 2, 1, 2], np.int32)
    convolution = resnet._ActionConv(num_actions=0 if is_continuous else 3, dtype=jnp.float32)
    params = jax.jit(convolution.init)(jax.random.key(0), hidden, action)
    values = numbers if is_continuous else np.eye(3, dtype=np.float32)[action]
    planes = np.broadcast_to(values[:, None, None], (4, *shape, 3))
    padded = np.pad(np.concatenate([hidden, planes], axis=-1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    kernel = np.asarray(params["params"]["kernel"])
    expected = np.zeros_like(hidden)
    for y, x, i, j in itertools.product(range(shape[0]), range(shape[1]), range(3), range(3)):
        expected[:, y, x] += padded[:, y + i, x + j] @ kernel[i, j]
    np.testing.assert_allclose(jax.jit(convolution.apply)(params, hidden, action), expected, atol=1e-5)


@pytest.mark.thorough
@every_kind
def test_an_untrained_network_is_uniform_and_expects_exactly_nothing(spec: types.EnvSpec) -> None:
    network = muzero_net.make(_config(), spec, "cpu")

    @jax.jit
    def predict() -> Any:
        params = network.init(jax.random.key(0))
        hidden = network.represent(params, _observation(spec))
        return hidden, network.predict(params, hidden), network.dynamics(params, hidden, jnp.array([0, 2]))

    hidden, (policy, value), (following, reward) = predict()
    np.testing.assert_array_equal(jax.nn.softmax(policy), np.full((2, 3), np.float32(1 / 3)))
    for logits in (value, reward):
        assert logits.shape == (2, 21)
        assert np.all(np.asarray(jax.jit(value_transforms.expectation)(logits, 30.0)) == 0.0)
    assert following.shape == hidden.shape


CONTINUOUS = {"num_actions": 0, "action_low": (-1.0, 0.0), "action_high": (1.0, 2.0)}


@every_kind
def test_continuous_actions_have_a_histogram_for_each_of_their_numbers(spec: types.EnvSpec) -> None:
    network = muzero_net.make(_config(), dataclasses.replace(spec, **CONTINUOUS), "cpu")
    params = jax.eval_shape(network.init, jax.random.key(0))
    hidden = jax.eval_shape(network.represent, params, jax.eval_shape(lambda: _observation(spec)))
    policy, value = jax.eval_shape(network.predict, params, hidden)
    assert (policy.shape, value.shape) == ((2, 2 * 15), (2, 21))
    following, reward = jax.eval_shape(network.dynamics, params, hidden, jax.ShapeDtypeStruct((2, 2), jnp.float32))
    assert (following.shape, reward.shape) == (hidden.shape, (2, 21))


def test_hidden_states_differ_by_continuous_actions() -> None:
    network = muzero_net.make(_config(), dataclasses.replace(VECTOR, **CONTINUOUS), "cpu")

    @jax.jit
    def following(action: jax.Array) -> jax.Array:
        params = network.init(jax.random.key(0))
        return network.dynamics(params, network.represent(params, _one(jnp.ones((3, 4)))), action)[0]

    one, other, third = following(jnp.array([[0.5, 0.5], [0.5, 0.4], [0.4, 0.5]]))
    assert not np.allclose(one, other, atol=1e-4) and not np.allclose(one, third, atol=1e-4)
    assert not np.allclose(other, third, atol=1e-4)


@pytest.mark.thorough
@every_kind
def test_hidden_states_differ_by_observation_and_action_and_keep_their_scale(spec: types.EnvSpec) -> None:
    network = muzero_net.make(_config(), spec, "cpu")

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


@pytest.mark.parametrize("is_continuous", [False, True])
def test_actions_scale_and_shift_the_hidden_units(is_continuous: bool) -> None:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(4, 6)).astype(np.float32)
    numbers = rng.uniform(-1, 1, (4, 3)).astype(np.float32)
    action = numbers if is_continuous else np.array([0, 2, 1, 2], np.int32)
    dynamics = mlp.Dynamics(num_actions=0 if is_continuous else 3, dtype=jnp.float32, gated=True)
    shapes = jax.eval_shape(dynamics.init, jax.random.key(0), hidden, action)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    layers = params["params"]
    given = numbers if is_continuous else np.eye(3, dtype=np.float32)[action]

    def dense(name: str, x: Any) -> Any:
        return x @ layers[name]["kernel"] + layers[name]["bias"]

    def normal(x: Any, epsilon: float) -> Any:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)

    units = normal(dense("Dense_0", hidden), 1e-6) * layers["LayerNorm_0"]["scale"] + layers["LayerNorm_0"]["bias"]
    units = np.maximum(dense("scale", given) * units + dense("shift", given), 0)
    expected = normal(hidden + dense("Dense_1", units), 1e-5)
    np.testing.assert_allclose(jax.jit(dynamics.apply)(params, hidden, action), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooled", [False, True])
def test_a_pooled_grid_shows_things_wherever_they_are(pooled: bool) -> None:
    network = muzero_net.make(_config(pooled=pooled), GRID, "cpu")
    grids = np.zeros((3, 10, 5, 1), np.uint8)
    grids[0, 2, 2], grids[1, 6, 1] = 1, 1  # nothing in the last one

    @jax.jit
    def represent() -> jax.Array:
        params = network.init(jax.random.key(0))
        places = params["representation"]["Dense_0"]
        params["representation"]["Dense_0"] = jax.tree.map(jnp.zeros_like, places)
        return network.represent(params, _one(grids))

    one, other, nothing = np.asarray(represent())
    np.testing.assert_allclose(one, other, atol=1e-5)
    assert np.allclose(one, nothing, atol=1e-3) != pooled


def test_networks_have_gates_and_pooling_only_if_told() -> None:
    params = jax.eval_shape(muzero_net.make(configs.Config().network, GRID, "cpu").init, jax.random.key(0))
    assert set(params["representation"]) == {"Conv_0", "Conv_1", "Dense_0"}
    assert set(params["transition"]) == {"Dense_0", "LayerNorm_0", "Dense_1"}
    assert params["transition"]["Dense_0"]["kernel"].shape == (64 + 3, 64)


def test_convolutions_over_vectors_are_refused_by_name() -> None:
    with pytest.raises(errors.ConfigError, match=r"network\.kind=resnet .* \[4\]; use --network\.kind=mlp"):
        muzero_net.make(_config(kind="resnet"), VECTOR, "cpu")


@pytest.mark.thorough
@pytest.mark.parametrize(("platform", "expected"), [("cpu", "float32"), ("gpu", "bfloat16")])
@every_kind
def test_parameters_and_logits_are_float32_whatever_is_computed_in(
    spec: types.EnvSpec, platform: str, expected: str
) -> None:
    network = muzero_net.make(_config(), spec, platform)
    params = jax.eval_shape(network.init, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    cast = jax.eval_shape(network.cast, params)
    exact = {jax.tree_util.keystr(path) for path, leaf in _leaves(cast) if leaf.dtype == jnp.float32}
    outputs = {f"['{head}_head']['Dense_1']" for head in ("policy", "value", "reward")}
    inputs = {"['representation']['Dense_0']"} if spec is VECTOR else set()
    if expected == "bfloat16":
        assert {name.rpartition("[")[0] for name in exact} == outputs | inputs
        assert {leaf.dtype for _, leaf in _leaves(cast)} == {jnp.dtype("float32"), jnp.dtype("bfloat16")}
    seen = _one(jax.ShapeDtypeStruct((2, *spec.observation_shape), jnp.uint8))
    hidden = jax.eval_shape(network.represent, cast, seen)
    following, reward = jax.eval_shape(network.dynamics, cast, hidden, jax.ShapeDtypeStruct((2,), jnp.int32))
    assert hidden.dtype == following.dtype == jnp.dtype(expected)
    for logits in (*jax.eval_shape(network.predict, cast, hidden), reward):
        assert logits.dtype == jnp.float32


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(tree)[0]


@pytest.mark.thorough
def test_bfloat16_tells_near_observations_and_their_values_apart() -> None:
    network, exact = (muzero_net.make(_config(compute_dtype=name), VECTOR, "cpu") for name in ("bfloat16", "float32"))
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    random = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), shapes)
    seen = (100.0 + 10.0 * random.normal(size=(64, 4))).astype(np.float32)
    add_features, predict = jax.jit(statistics.add_features), jax.jit(network.predict)
    params[observations.MOMENTS] = add_features(
        jax.jit(statistics.no_moments, static_argnums=0)(4), seen, np.ones(64, bool)
    )
    cast = jax.jit(network.cast)(params)
    near = jax.jit(network.represent)(cast, _one(np.array([[100.0, 99, 98, 97], [100.2, 99, 98, 97]], np.float32)))
    assert (np.asarray(near[0]) != np.asarray(near[1])).any()
    # The heads' last layer adds no rounding of its own: a value of 40 has a step of 0.25 in bfloat16.
    hidden = np.asarray(jax.jit(exact.represent)(params, _one(seen))).astype(jnp.bfloat16)
    logits = np.asarray(predict(cast, hidden)[1])
    rounded = predict(jax.tree.map(lambda leaf: np.asarray(leaf).astype(jnp.bfloat16), cast), hidden)[1]
    assert (logits != logits.astype(jnp.bfloat16)).any()
    assert (logits != np.asarray(rounded)).any()


@pytest.mark.thorough
@every_kind
def test_normalized_observations_do_not_depend_on_their_units(spec: types.EnvSpec) -> None:
    spec = dataclasses.replace(spec, observation_dtype="float32", observation_low=-np.inf, observation_high=np.inf)
    network = muzero_net.make(_config(), spec, "cpu")
    x = np.random.default_rng(0).normal(size=(8, *spec.observation_shape)).astype(np.float32)
    scales = np.array([1e4, 1e-3, 1.0, 5.0], np.float32)[: spec.observation_shape[-1]]
    params = jax.jit(network.init)(jax.random.key(1))

    @jax.jit
    def represent(x: jax.Array) -> jax.Array:
        moments = network.add_moments(network.no_moments(), _one(x), jnp.ones(len(x), bool), None)
        return network.represent({**params, observations.MOMENTS: moments}, _one(x))

    moments = network.no_moments()
    assert moments is not None and len(moments.mean) == spec.observation_shape[-1]
    np.testing.assert_allclose(represent(scales * x + 3 * scales), represent(x), atol=1e-3)


def test_a_scalar_observation_counts_as_a_vector_of_one() -> None:
    spec = types.EnvSpec((), "float32", 2)
    network = muzero_net.make(_config(frame_stack=3), spec, "cpu")
    params = jax.eval_shape(network.init, jax.random.key(0))
    hidden = jax.eval_shape(network.represent, params, _one(jax.ShapeDtypeStruct((2, 3), jnp.float32)))
    assert hidden.shape == (2, 16)


def test_normalize_gives_mean_0_and_variance_1_over_all_but_the_batch() -> None:
    x = jnp.array([[[1.0, 3.0], [5.0, 7.0]]])
    # Mean 4, variance (9 + 1 + 1 + 9) / 4 = 5.
    expected = np.array([[[-3.0, -1.0], [1.0, 3.0]]]) / np.sqrt(5.0)
    np.testing.assert_allclose(mlp.normalize(x), expected, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize(("spec", "size", "bottleneck"), [(VECTOR, 32, 16), (GRID, 32, 16), (IMAGE, 1024, 512)])
def test_projections_are_extra_parameters_by_kind(spec: types.EnvSpec, size: int, bottleneck: int) -> None:
    plain = muzero_net.make(_config(), spec, "cpu")
    network = muzero_net.make(_config(), spec, "cpu", muzero_config.MuZeroConfig(consistency_weight=1.0))
    assert plain.projection is None
    assert network.projection is not None
    params = jax.eval_shape(network.init, jax.random.key(0))
    assert set(params) - {"projector", "predictor"} == set(jax.eval_shape(plain.init, jax.random.key(0)))
    hidden = jax.eval_shape(network.represent, params, _observation(spec))
    projected = jax.eval_shape(network.projection.project, params, hidden)
    predicted = jax.eval_shape(network.projection.predict, params, projected)
    assert projected.shape == predicted.shape == (2, size)
    assert params["predictor"]["Dense_0"]["kernel"].shape == (size, bottleneck)


@pytest.mark.thorough
def test_a_projection_leaves_the_initial_values_of_the_rest() -> None:
    plain, projecting = (
        jax.jit(muzero_net.make(_config(), VECTOR, "cpu", muzero_config.MuZeroConfig(consistency_weight=weight)).init)(
            jax.random.key(0)
        )
        for weight in (0.0, 1.0)
    )
    assert "projector" not in plain
    for name, part in plain.items():
        jax.tree.map(np.testing.assert_array_equal, part, projecting[name])


def test_cosines_are_of_the_angle_alone() -> None:
    a, b = jnp.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]]), jnp.array([[30.0, 40.0], [-1.0, 1.0], [1.0, 1.0]])
    cosine = jax.jit(muzero_net.cosine_similarity)
    np.testing.assert_allclose(cosine(a, b), [1.0, -np.sqrt(0.5), 0.0], rtol=1e-6)
    assert np.isfinite(jax.grad(lambda a: cosine(a, b).sum())(a)).all()


@pytest.mark.thorough
@pytest.mark.parametrize(("spec", "units"), [(VECTOR, 16), (GRID, 16), (IMAGE, 512)], ids=["mlp", "conv", "resnet"])
def test_sums_of_rewards_take_the_place_of_rewards(spec: types.EnvSpec, units: int) -> None:
    muzero = muzero_config.MuZeroConfig(value_prefix=True)
    network = muzero_net.make(_config(compute_dtype="bfloat16"), spec, "cpu", muzero)
    plain = jax.eval_shape(muzero_net.make(_config(), spec, "cpu").init, jax.random.key(0))
    params = jax.eval_shape(network.init, jax.random.key(0))
    assert jax.tree.map(jnp.shape, params) | {"reward_head": 0} == jax.tree.map(jnp.shape, plain) | {"reward_head": 0}
    assert network.prefix is not None
    carry = jax.eval_shape(lambda: network.prefix.initial(2))
    params = jax.eval_shape(network.cast, params)
    hidden = jax.eval_shape(network.represent, params, _observation(spec))
    action = jax.ShapeDtypeStruct((2,), jnp.int32)
    next_hidden, next_carry, logits = jax.eval_shape(network.prefix.step, params, hidden, action, carry)
    # What goes in comes out: a search keeps it in tables of one dtype.
    assert next_hidden == hidden
    assert next_carry == carry == (jax.ShapeDtypeStruct((2, units), jnp.bfloat16),) * 2
    assert logits == jax.ShapeDtypeStruct((2, 21), jnp.float32)


def test_normalize_of_equal_large_numbers_is_finite() -> None:
    """The mean of their squares, rounded to 32 bits, may be less than the square of their mean."""
    numbers = 1000.1 + jnp.arange(64.0)[:, None]
    assert jnp.isfinite(mlp.normalize(jnp.broadcast_to(numbers, (64, 7)))).all()
