"""Observations as networks take them: shapes of stacks, dtypes, scales."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import shared
from seedzero.core import types
from seedzero.networks import actor_critic, muzero_net, observations
from seedzero.ops import statistics


@pytest.mark.parametrize(
    ("shape", "frame_stack", "expected"),
    [((), 1, (1,)), ((), 3, (3,)), ((4,), 2, (8,)), ((10, 5), 2, (10, 10)), ((10, 5, 3), 4, (10, 5, 12))],
)
def test_frames_of_a_stack_are_joined_on_the_last_axis(
    shape: tuple[int, ...], frame_stack: int, expected: tuple[int, ...]
) -> None:
    assert observations.stack_shape(shape, frame_stack) == expected


@pytest.mark.parametrize(
    ("platform", "name", "expected"),
    [
        ("cpu", "auto", "float32"),
        ("gpu", "auto", "bfloat16"),
        ("tpu", "auto", "bfloat16"),
        ("gpu", "float32", "float32"),
        ("cpu", "bfloat16", "bfloat16"),
    ],
)
def test_accelerators_compute_in_bfloat16_unless_told(platform: str, name: str, expected: str) -> None:
    assert jnp.dtype(observations.compute_dtype(name, platform)) == jnp.dtype(expected)


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
    array = types.ArraySpec("x", (2,), dtype, low, high)
    prepared = observations.preparation("mlp", array, 1)(jnp.asarray([[0, value]], dtype))
    assert prepared.dtype == jnp.float32
    np.testing.assert_allclose(prepared, [[0.0, scaled]], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "shape", "dtype", "low", "high", "expected"),
    [
        ("mlp", (4,), "float32", -np.inf, np.inf, 12),
        ("mlp", (), "float32", -np.inf, np.inf, 3),
        ("mlp", (4,), "float32", -1.2, 0.6, 12),
        ("mlp", (4,), "int32", -(2.0**31), 2.0**31 - 1, 12),
        ("mlp", (128,), "uint8", 0, 255, 384),
        ("mlp", (16,), "float32", 0, 1, 0),
        ("mlp", (4,), "float32", -1, 1, 0),
        ("conv", (10, 10, 4), "uint8", 0, 1, 0),
        ("conv", (10, 10, 4), "int32", 0, 10, 0),
        ("conv", (10, 10, 4), "int32", 0, 5000, 12),
        ("conv", (10, 10), "float32", 0, 50, 3),
        ("resnet", (96, 96, 1), "uint8", 0, 255, 0),
        ("resnet", (64, 64, 3), "float32", 0, 255, 9),
    ],
)
def test_features_are_normalized_where_bounds_do_not_tell_their_scale(
    kind: str, shape: tuple[int, ...], dtype: str, low: float, high: float, expected: int
) -> None:
    array = types.ArraySpec("x", shape, dtype, low, high)
    assert observations.num_normalized(kind, array, 3) == expected


def test_stacked_frames_of_a_grid_without_channels_become_its_channels() -> None:
    array = types.ArraySpec("x", (4, 5), "float32")
    frames = jnp.arange(3 * 4 * 5, dtype=jnp.float32).reshape(3, 1, 4, 5)
    side_by_side = jnp.concatenate(list(frames), axis=-1)
    prepared = observations.preparation("conv", array, 3)(side_by_side)
    np.testing.assert_array_equal(prepared, jnp.stack(list(frames), axis=-1))
    flat = observations.preparation("mlp", array, 3)(side_by_side)
    np.testing.assert_array_equal(flat, side_by_side)


def test_grids_with_channels_keep_their_axes() -> None:
    array = types.ArraySpec("x", (4, 5, 2), "float32")
    stacked = jnp.arange(4 * 5 * 4, dtype=jnp.float32).reshape(1, 4, 5, 4)
    np.testing.assert_array_equal(observations.preparation("conv", array, 2)(stacked), stacked)


CAMERA = types.ArraySpec("camera", (6, 5, 3), "uint8", 0, 255)
DEPTH = types.ArraySpec("depth", (6, 5), "float32")
SPEED = types.ArraySpec("speed", (2,), "float32")
GOAL = types.ArraySpec("goal", (4,), "uint8", 0, 1)
SPEC = types.EnvSpec.of_arrays([GOAL, CAMERA, SPEED, DEPTH], num_actions=3)
LARGE = types.EnvSpec.of_arrays([types.ArraySpec("camera", (32, 32, 3), "uint8", 0, 255), SPEED], num_actions=3)
VECTORS = types.EnvSpec.of_arrays([GOAL, SPEED], num_actions=3)


def _show(spec: types.EnvSpec, seed: int = 0, size: int = 4) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        array.name: random.integers(0, 2, (size, *array.shape)).astype(array.dtype)
        if array.dtype == "uint8"
        else random.normal(3.0, 2.0, (size, *array.shape)).astype(np.float32)
        for array in spec.arrays
    }


def test_images_are_joined_on_their_channels_and_vectors_to_one() -> None:
    seen = _show(SPEC)
    features = observations.InputFunctions("conv", SPEC, 1, normalizes=False).features(None, seen)
    expected = np.concatenate([seen["camera"] / np.float32(255), seen["depth"][..., None]], axis=-1)
    np.testing.assert_allclose(features.main, expected, rtol=1e-6)
    np.testing.assert_array_equal(features.vector, np.concatenate([seen["goal"], seen["speed"]], axis=-1))


@pytest.mark.parametrize("spec", [SPEC, VECTORS], ids=["images", "vectors"])
def test_an_mlp_takes_all_as_one_vector(spec: types.EnvSpec) -> None:
    features = observations.InputFunctions("mlp", spec, 1, normalizes=False).features(None, _show(spec))
    size = sum(int(np.prod(array.shape)) for array in spec.arrays)
    assert features.vector is None and features.main.shape == (4, size)


def test_each_array_has_moments_of_its_own_where_its_bounds_do_not_tell_its_scale() -> None:
    made, seen = observations.InputFunctions("conv", SPEC, 1, normalizes=True), _show(SPEC)
    assert {name: moments.mean.shape for name, moments in made.no_moments().items()} == {"speed": (2,), "depth": (1,)}
    add = jax.jit(functools.partial(made.add_moments, axis_name=None))
    moments = add(made.no_moments(), seen, np.array([True, True, True, False]))
    np.testing.assert_allclose(moments["speed"].mean, seen["speed"][:3].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments["depth"].mean, [seen["depth"][:3].mean()], rtol=1e-5)
    features = jax.jit(made.features)(moments, seen)
    np.testing.assert_allclose(
        features.vector[:, 4:], statistics.normalize(moments["speed"], seen["speed"]), rtol=1e-6
    )
    np.testing.assert_array_equal(features.vector[:, :4], seen["goal"])


def test_each_pixel_has_moments_of_its_own_where_asked() -> None:
    made = observations.InputFunctions("conv", SPEC, 1, normalizes=False, pixels=True)
    seen = _show(SPEC)
    seen["camera"] = np.random.default_rng(1).integers(0, 256, seen["camera"].shape).astype(np.uint8)
    seen["camera"][:, 0, 0, 0] = 87  # background
    counted = np.array([True, True, True, False])
    moments = made.add_moments(made.no_moments(), seen, jnp.asarray(counted), None)
    assert set(moments) == {"camera"} and moments["camera"].mean.shape == (6 * 5 * 3,)
    pixels = seen["camera"] / 255.0
    mean, variance = pixels[counted].mean(axis=0), pixels[counted].var(axis=0)
    expected = np.clip((pixels - mean) / np.sqrt(variance + 0.02**2), -10, 10)
    features = made.features(moments, seen)
    np.testing.assert_allclose(features.main[..., :3], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(features.main[:, 0, 0, 0], 0.0, atol=1e-5)
    np.testing.assert_array_equal(features.main[..., 3], seen["depth"])
    assert observations.InputFunctions("mlp", SPEC, 1, normalizes=False, pixels=True).no_moments() is None


def test_stacked_frames_stay_with_their_array() -> None:
    seen = {name: np.concatenate([x, x + 1], axis=-1) for name, x in _show(SPEC).items()}
    features = observations.InputFunctions("conv", SPEC, 2, normalizes=False).features(None, seen)
    assert features.main.shape == (4, 6, 5, 2 * 3 + 2)
    np.testing.assert_array_equal(features.main[..., 7], seen["depth"][:, :, 5:])
    np.testing.assert_array_equal(features.vector[:, 8:], seen["speed"])


def _muzero(spec: types.EnvSpec, **changes: Any) -> muzero_net.Network:
    return muzero_net.make(shared.NetworkConfig(num_bins=11, width=16, head_width=16, **changes), spec, "cpu")


@pytest.mark.thorough
@pytest.mark.parametrize("spec", [SPEC, LARGE, VECTORS], ids=["conv", "resnet", "mlp"])
def test_muzeros_hidden_state_depends_on_every_array(spec: types.EnvSpec) -> None:
    network, seen = _muzero(spec), _show(spec)

    @jax.jit
    def represent(seen: Any) -> jax.Array:
        return network.represent(network.init(jax.random.key(0)), seen)

    before = represent(seen)
    for array in spec.arrays:
        changed = {**seen, array.name: seen[array.name] + np.asarray(1, array.dtype)}
        assert np.abs(np.asarray(represent(changed) - before)).max() > 1e-4, array.name


def test_vectors_beside_images_keep_float32_in_bfloat16_networks() -> None:
    network = _muzero(SPEC, compute_dtype="bfloat16")
    cast = jax.eval_shape(lambda: network.cast(network.init(jax.random.key(0))))
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(cast["representation"]["vector"])}
    assert dtypes == {jnp.dtype("float32")}
    assert cast["representation"]["Conv_0"]["kernel"].dtype == jnp.bfloat16


@pytest.mark.thorough
@pytest.mark.parametrize("torso", ["conv", "deep", "mlp"])
def test_an_actor_critics_logits_depend_on_every_array(torso: str) -> None:
    network = actor_critic.actor_critic(shared.NetworkConfig(torso, width=8), SPEC, "cpu")

    @jax.jit
    def value(seen: Any) -> jax.Array:
        flags = jnp.zeros((4, 1), bool)
        steps = actor_critic.Steps({name: x[:, None] for name, x in seen.items()}, flags, flags * 1.0, flags * 1)
        return network.unroll(network.init(jax.random.key(0)), network.initial_state(4), steps)[2]

    seen = _show(SPEC)
    before = value(seen)
    for array in SPEC.arrays:
        changed = {**seen, array.name: seen[array.name] + np.asarray(1, array.dtype)}
        assert np.abs(np.asarray(value(changed) - before)).max() > 1e-5, array.name


@pytest.mark.thorough
@pytest.mark.parametrize("make", [actor_critic.actor_critic, actor_critic.dueling])
def test_networks_see_pixels_normalized_by_the_moments_among_their_parameters(make: Any) -> None:
    plain, normalizing = (
        make(shared.NetworkConfig("conv", width=8, normalize_pixels=on), SPEC, "cpu") for on in (False, True)
    )
    seen, flags = _show(SPEC), jnp.zeros((4, 1), bool)

    def look(network: Any, params: Any, camera: Any) -> Any:
        shown = {name: x[:, None] for name, x in (seen | {"camera": camera}).items()}
        steps = actor_critic.Steps(shown, flags, flags * 1.0, flags * 1)
        return jax.jit(network.unroll)(params, network.initial_state(4), steps)[1]

    params = jax.jit(normalizing.init)(jax.random.key(0))
    moments = params[observations.MOMENTS]["camera"]
    # deviation + 0.02 of the range: twice the size around a mean of 1/255
    moments = moments._replace(mean=moments.mean + 1 / 255, variance=moments.variance * (0.25 - 0.02**2))
    found = look(normalizing, {**params, observations.MOMENTS: {"camera": moments}}, seen["camera"])
    expected = look(plain, params, 2.0 * (seen["camera"].astype(np.float32) - 1))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
