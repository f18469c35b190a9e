"""The networks without a model, each of three heads: shapes, dtypes, torsos, an LSTM's past, untrained outputs."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import shared
from seedzero.core import errors, packing, types
from seedzero.networks import actor_critic
from seedzero.ops import statistics

VECTOR = types.EnvSpec((4,), "float32", 3)
CONTINUOUS = types.EnvSpec((4,), "float32", 0, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
GRID = types.EnvSpec((10, 5, 2), "uint8", 3, observation_low=0, observation_high=1)
PLAIN_GRID = types.EnvSpec((10, 5), "uint8", 3, observation_low=0, observation_high=1)
IMAGE = types.EnvSpec((32, 32, 1), "uint8", 3, observation_low=0, observation_high=255)
FRAME = types.EnvSpec((84, 84, 1), "uint8", 3, observation_low=0, observation_high=255)
IMAGE_AND_VECTOR = types.EnvSpec.of_arrays(
    (types.ArraySpec("image", (8, 8, 1), "uint8", 0, 255), types.ArraySpec("vector", (4,), "float32")), num_actions=3
)
B, T = 2, 5
HEADS: dict[str, Any] = {
    "vtrace": actor_critic.actor_critic,
    "dueling": actor_critic.dueling,
    "ppo": functools.partial(actor_critic.ppo, initial_std=0.5),
    "normalizing ppo": functools.partial(actor_critic.ppo, initial_std=0.5),
}


@functools.cache
def _make(
    head: str, spec: types.EnvSpec = VECTOR, platform: str = "cpu", **changes: Any
) -> actor_critic.RecurrentNetwork[Any]:
    layers = {"width": 16, "normalize_observations": head == "normalizing ppo", **changes}
    return HEADS[head](shared.NetworkConfig(**layers), spec, platform)


def _steps(spec: types.EnvSpec, frame_stack: int = 1) -> actor_critic.Steps:
    """Returns steps in the middle of an episode, with observations of 0 and 1."""
    random = np.random.default_rng(0)
    shapes = {array.name: (*array.shape[:-1], array.shape[-1] * frame_stack) for array in spec.arrays}
    return actor_critic.Steps(
        observation={
            array.name: jnp.asarray(random.integers(0, 2, (B, T, *shapes[array.name])), array.dtype)
            for array in spec.arrays
        },
        first=jnp.zeros((B, T), bool),
        reward=jnp.asarray(random.uniform(-1, 1, (B, T))),
        last_action=jnp.asarray(
            random.uniform(-1, 1, (B, T, 2)) if spec.is_continuous else random.integers(0, 3, (B, T))
        ),
    )


def _shapes(network: actor_critic.RecurrentNetwork[Any], steps: actor_critic.Steps) -> tuple[Any, Any]:
    """Returns the shapes of the parameters, and of what the network makes of the steps."""
    params = jax.eval_shape(network.init, jax.random.key(0))
    state = jax.eval_shape(lambda: network.initial_state(B))
    return params, jax.eval_shape(network.unroll, params, state, steps)


def _large(network: actor_critic.RecurrentNetwork[Any]) -> Any:
    """Returns parameters that say something: as initialized, the logits are almost 0."""
    params = jax.jit(network.init)(jax.random.key(0))
    return jax.tree.map(
        lambda x: np.asarray(x) + 0.3 * np.sin(1.0 + np.arange(x.size, dtype=np.float32)).reshape(x.shape), params
    )


def _policy(found: Any) -> Any:
    """Returns the policy or Q values [B, T, K] of an unroll's results."""
    return found[1].policy if isinstance(found[1], actor_critic.PpoPrediction) else found[1]


@pytest.mark.thorough
@pytest.mark.parametrize(("frame_stack", "lstm_width", "platform"), [(1, 0, "cpu"), (3, 6, "gpu")])
@pytest.mark.parametrize(
    ("head", "spec", "torso"),
    [
        *(("vtrace", spec, "auto") for spec in (VECTOR, GRID, IMAGE)),
        *(("vtrace", spec, torso) for spec, torso in ((PLAIN_GRID, "conv"), (IMAGE, "shallow"), (GRID, "deep"))),
        *(("vtrace", spec, torso) for spec, torso in ((GRID, "shallow"), (IMAGE, "mlp"))),
        *(("dueling", spec, "auto") for spec in (VECTOR, GRID, FRAME)),
        *(("dueling", spec, torso) for spec, torso in ((FRAME, "deep"), (GRID, "mlp"))),
        *(("ppo", spec, "auto") for spec in (VECTOR, CONTINUOUS, GRID, IMAGE)),
    ],
)
def test_every_head_and_torso_gives_float32_outputs_of_each_step(
    head: str, spec: types.EnvSpec, torso: str, frame_stack: int, lstm_width: int, platform: str
) -> None:
    network = _make(head, spec, platform, kind=torso, frame_stack=frame_stack, lstm_width=lstm_width)
    params, (state, *found) = _shapes(network, _steps(spec, frame_stack))
    assert state.shape == (B, 2 * lstm_width)
    assert jax.eval_shape(lambda: network.initial_state(B)) == state
    num_dimensions = 2 if spec.is_continuous else 0
    shapes = [(B, T, spec.num_actions or num_dimensions), (B, T)][: 1 if head == "dueling" else 2]
    if head == "ppo":
        shapes.insert(1, (num_dimensions,))  # log_std
    assert [leaf.shape for leaf in jax.tree.leaves(found)] == shapes
    assert {leaf.dtype for leaf in jax.tree.leaves((params, state, found))} == {jnp.dtype("float32")}


@pytest.mark.parametrize(
    ("spec", "torso", "kernels"),
    [
        (VECTOR, "auto", [(4, 16), (16, 16)]),
        (GRID, "auto", [(3, 3, 2, 4), (3, 3, 4, 4), (10 * 5 * 4, 16)]),
        (IMAGE, "shallow", [(8, 8, 1, 16), (4, 4, 16, 32), (4 * 4 * 32, 16)]),
    ],
)
def test_torsos_have_their_layers(spec: types.EnvSpec, torso: str, kernels: list[tuple[int, ...]]) -> None:
    params, _ = _shapes(_make("vtrace", spec, kind=torso), _steps(spec))
    found = [leaf.shape for leaf in jax.tree.leaves(params["_Torso_0"]) if len(leaf.shape) > 1]
    assert sorted(found) == sorted(kernels)


@pytest.mark.parametrize(
    ("spec", "torso", "channels", "kernels"),
    [
        (IMAGE, "patches", 0, [(4, 4, 1, 32), (3, 3, 32, 32), (4 * 4 * 32, 16)]),
        (IMAGE, "patches", 6, [(4, 4, 1, 6), (3, 3, 6, 6), (4 * 4 * 6, 16)]),
        (GRID, "conv", 0, [(3, 3, 2, 2), (10 * 5 * 2, 16)]),
        (GRID, "conv", 6, [(3, 3, 2, 6), (10 * 5 * 6, 16)]),
    ],
)
def test_ppo_s_convolutions_have_the_channels_asked_for(
    spec: types.EnvSpec, torso: str, channels: int, kernels: list[tuple[int, ...]]
) -> None:
    params, _ = _shapes(_make("ppo", spec, kind=torso, channels=channels), _steps(spec))
    assert [params[name]["kernel"].shape for name in ("Conv_0", "Conv_1", "torso") if name in params] == kernels


def test_images_get_the_residual_network_of_the_paper() -> None:
    params, _ = _shapes(_make("vtrace", IMAGE), _steps(IMAGE))
    shapes = [leaf.shape for leaf in jax.tree.leaves(params["_Torso_0"])]
    convolutions = [shape for shape in shapes if len(shape) == 4]
    # Three sections of a convolution and two blocks of two.
    assert len(convolutions) == 15
    assert sorted({shape[-1] for shape in convolutions}) == [16, 32]
    assert (4 * 4 * 32, 16) in shapes  # 32 x 32 pixels are pooled three times


def test_a_torso_that_does_not_fit_is_refused_by_the_settings_name() -> None:
    with pytest.raises(errors.ConfigError, match=r"network\.kind=nature .*\[4\].*--network\.kind=mlp"):
        _make("dueling", kind="nature")


@pytest.mark.thorough
@pytest.mark.parametrize("lstm_width", [0, 6])
@pytest.mark.parametrize("spec", [VECTOR, GRID, IMAGE], ids=["mlp", "conv", "deep"])
def test_activations_are_bfloat16_on_accelerators_unless_told(spec: types.EnvSpec, lstm_width: int) -> None:
    steps = _steps(spec)
    params, _ = _shapes(_make("vtrace", spec, lstm_width=lstm_width), steps)

    def computes_in_bfloat16(platform: str, **changes: str) -> bool:
        network = _make("vtrace", spec, platform, lstm_width=lstm_width, **changes)
        return "bf16" in str(jax.make_jaxpr(network.unroll)(params, jnp.zeros((B, 2 * lstm_width)), steps))

    assert computes_in_bfloat16("gpu") and not computes_in_bfloat16("cpu")
    assert not computes_in_bfloat16("gpu", compute_dtype="float32")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("head", "spec", "lstm_width"),
    [("vtrace", VECTOR, 0), ("vtrace", IMAGE_AND_VECTOR, 0), ("ppo", VECTOR, 0), ("ppo", VECTOR, 6)],
    ids=["vtrace", "vtrace, beside images", "ppo", "ppo, LSTM"],
)
def test_bfloat16_tells_near_vectors_apart(head: str, spec: types.EnvSpec, lstm_width: int) -> None:
    network = _make(head, spec, lstm_width=lstm_width, width=64, compute_dtype="bfloat16")
    same = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), _steps(spec))
    seen = np.full((B, T, 4), 1.0, np.float32)
    seen[1, :, 0] += 0.002
    steps = same._replace(observation={**same.observation, spec.arrays[-1].name: jnp.asarray(seen)})
    params = jax.jit(network.init)(jax.random.key(0))
    policy = _policy(jax.jit(network.unroll)(params, network.initial_state(B), steps))
    assert np.any(policy[0] != policy[1])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spec", "lstm_width"), [(VECTOR, 0), (VECTOR, 32), (GRID, 32), (IMAGE, 0)], ids=["mlp", "lstm", "conv", "deep"]
)
def test_an_untrained_policy_is_nearly_uniform_and_values_differ(spec: types.EnvSpec, lstm_width: int) -> None:
    network, steps = _make("vtrace", spec, lstm_width=lstm_width, width=64), _steps(spec)

    @jax.jit
    def outputs() -> Any:
        return network.unroll(network.init(jax.random.key(0)), network.initial_state(B), steps)

    _, logits, value = outputs()
    assert 0 < np.abs(logits).max() < 0.1
    assert np.std(value) > 0 and np.abs(value).max() < 10


def test_heads_are_initialized_to_their_scales() -> None:
    params = jax.jit(_make("vtrace").init)(jax.random.key(0))
    policy, value = params["Dense_0"]["kernel"], params["Dense_1"]["kernel"]
    # Orthogonal: columns of a common length.
    np.testing.assert_allclose(policy.T @ policy, 0.01**2 * np.eye(3), atol=1e-8)
    np.testing.assert_allclose(value.T @ value, [[1.0]], rtol=1e-5)


def test_steps_are_independent_without_an_lstm() -> None:
    network, steps = _make("vtrace"), _steps(VECTOR)
    params, unroll = _large(network), jax.jit(network.unroll)
    other = steps._replace(
        observation={types.OBSERVATION: steps.observation[types.OBSERVATION].at[:, 2].add(1.0)},
        reward=steps.reward + 1,
        last_action=2 - steps.last_action,
    )
    _, logits, value = unroll(params, network.initial_state(B), steps)
    _, changed, changed_value = unroll(params, network.initial_state(B), other)
    differs = np.any(logits != changed, axis=(0, 2))
    np.testing.assert_array_equal(differs, [False, False, True, False, False])
    np.testing.assert_array_equal(np.any(value != changed_value, axis=0), differs)


# The LSTM -----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
def test_an_unroll_is_its_steps_one_by_one(compute_dtype: str) -> None:
    network, steps = _make("vtrace", lstm_width=6, compute_dtype=compute_dtype), _steps(VECTOR)
    steps = steps._replace(first=steps.first.at[0, 2].set(True))
    params, unroll = _large(network), jax.jit(network.unroll)
    state = jnp.asarray(np.random.default_rng(1).normal(size=(B, 12)))
    end, logits, value = unroll(params, state, steps)
    for t in range(T):
        state, one_logits, one_value = unroll(params, state, jax.tree.map(lambda x, t=t: x[:, t : t + 1], steps))
        np.testing.assert_allclose(one_logits[:, 0], logits[:, t], atol=1e-5)
        np.testing.assert_allclose(one_value[:, 0], value[:, t], atol=1e-5)
    np.testing.assert_allclose(state, end, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("head", "spec"), [("vtrace", VECTOR), ("dueling", VECTOR), ("ppo", VECTOR), ("ppo", CONTINUOUS)]
)
def test_an_lstm_sees_the_last_action_and_reward_and_begins_anew_with_an_episode(
    head: str, spec: types.EnvSpec
) -> None:
    network, steps = _make(head, spec, lstm_width=6), _steps(spec)
    params, state = _large(network), jnp.asarray(np.random.default_rng(0).normal(size=(B, 12)))
    unroll = jax.jit(network.unroll)

    def changed(first: jax.Array, **changes: jax.Array) -> list[list[bool]]:
        """Returns [B, T], true: another policy."""
        usual = steps._replace(first=first)
        one, other = (unroll(params, state, x) for x in (usual, usual._replace(**changes)))
        return np.any(_policy(one) != _policy(other), axis=-1).tolist()  # type: ignore[no-any-return]

    none, later = [False] * T, [False, False, True, True, True]
    reward, action = steps.reward.at[0, 2].set(0.5), steps.last_action.at[1, 1].set(-steps.last_action[1, 1] + 1)
    assert changed(steps.first, reward=reward) == [later, none]
    assert changed(steps.first, last_action=action) == [none, [False, True, True, True, True]]
    # With an episode that begins at the third step, nothing before it counts, nor what led to it.
    first = steps.first.at[0, 2].set(True)
    assert changed(first, reward=reward, last_action=steps.last_action.at[0, 2].set(0)) == [none, none]
    steps = steps._replace(first=first)
    cut = jax.tree.map(lambda x: x[:, 2:], steps)
    whole, anew = unroll(params, state, steps), unroll(params, network.initial_state(B), cut)
    np.testing.assert_allclose(whole[0][0], anew[0][0], atol=1e-6)
    np.testing.assert_allclose(_policy(whole)[0, 2:], _policy(anew)[0], atol=1e-6)
    # The other row goes on.
    assert np.all(np.abs(_policy(whole)[1, 2:] - _policy(anew)[1]).max(axis=-1) > 1e-4)


@pytest.mark.thorough
def test_gradients_do_not_cross_an_episodes_beginning() -> None:
    network, steps = _make("vtrace", lstm_width=6), _steps(VECTOR)
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


def test_an_lstm_sees_rewards_clipped_to_1() -> None:
    network, steps = _make("vtrace", lstm_width=6), _steps(VECTOR)
    params, unroll, sign = _large(network), jax.jit(network.unroll), jnp.sign(steps.reward)
    one, hundred = (unroll(params, network.initial_state(B), steps._replace(reward=sign * x))[1] for x in (1.0, 100.0))
    np.testing.assert_array_equal(one, hundred)


# Q values -----------------------------------------------------------------------------------------------------------


def test_the_mean_of_the_values_is_the_value_stream() -> None:
    network, steps = _make("dueling"), _steps(VECTOR)
    params, unroll = jax.jit(network.init)(jax.random.key(0)), jax.jit(network.unroll)
    _, before = unroll(params, network.initial_state(B), steps)
    assert np.ptp(before, axis=-1).max() > 0.1
    for size, change in ((1, 2.0), (3, 0.0)):  # of the value's bias, and of the advantages'
        [head] = [name for name in params if name.startswith("Dense") and params[name]["kernel"].shape == (16, size)]
        shifted = {**params[head], "bias": params[head]["bias"] + 2.0}
        _, after = unroll({**params, head: shifted}, network.initial_state(B), steps)
        np.testing.assert_allclose(after, before + change, atol=1e-5)


# PPO's two networks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spec", "frame_stack", "size"), [(VECTOR, 3, 12), (CONTINUOUS, 1, 4), (GRID, 1, 0)])
def test_ppo_normalizes_observations_of_unknown_scale(spec: types.EnvSpec, frame_stack: int, size: int) -> None:
    moments = _make("normalizing ppo", spec, frame_stack=frame_stack).no_moments()
    assert (len(moments.mean) if moments else 0) == size


def test_an_untrained_policy_of_vectors_is_nearly_even_and_as_wide_as_configured() -> None:
    network, steps = _make("normalizing ppo", CONTINUOUS), _steps(CONTINUOUS)
    params, unroll = jax.jit(network.init)(jax.random.key(0)), jax.jit(network.unroll)
    _, found = unroll(params, network.initial_state(B), steps, network.no_moments())
    np.testing.assert_allclose(found.log_std, np.log([0.5, 0.5]), rtol=1e-6)
    assert np.all(np.abs(found.policy) < 0.1)
    # Moments change what is seen, and nothing else: observations 10 times as large look the same.
    ten = statistics.Moments(jnp.ones(()), jnp.zeros(4), jnp.full(4, 100.0))
    larger = steps._replace(observation={types.OBSERVATION: 10 * steps.observation[types.OBSERVATION]})
    _, again = unroll(params, network.initial_state(B), larger, ten)
    np.testing.assert_allclose(again.value, found.value, rtol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spec", "lstm_width", "of_values"),
    [(VECTOR, 0, {"value", "value_0", "value_1"}), (VECTOR, 6, {"value"}), (GRID, 0, {"value"})],
)
def test_policy_and_value_share_a_torso_for_pictures_and_with_an_lstm_alone(
    spec: types.EnvSpec, lstm_width: int, of_values: set[str]
) -> None:
    network, steps = _make("ppo", spec, lstm_width=lstm_width), _steps(spec)
    params, state = jax.jit(network.init)(jax.random.key(0)), network.initial_state(B)
    gradient = jax.jit(jax.grad(lambda params: jnp.sum(network.unroll(params, state, steps)[1].policy)))(params)
    silent = {name for name, leaves in gradient.items() if not any(np.any(leaf) for leaf in jax.tree.leaves(leaves))}
    assert silent == of_values


@pytest.mark.thorough
@pytest.mark.parametrize("spec", [VECTOR, GRID, IMAGE], ids=["vector", "grid", "image"])
def test_a_loop_computes_the_same_as_acting(spec: types.EnvSpec) -> None:
    network = _make("ppo", spec)
    arguments = jax.jit(network.init)(jax.random.key(0)), network.initial_state(B), _steps(spec)
    acted, learned = (jax.jit(unroll)(*arguments)[1] for unroll in (network.unroll, network.unroll_in_loop))
    np.testing.assert_allclose(learned.value, acted.value, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(learned.policy, acted.policy, rtol=1e-4, atol=1e-6)


SPEC = types.EnvSpec.of_arrays(
    [types.ArraySpec("numbers", (3,), "float32"), types.ArraySpec("task", (40,), "uint8", 0, 255, text=True)],
    num_actions=2,
)


@jax.jit
def _encoded(given: jax.Array) -> Any:
    model = actor_critic.Encoder(jnp.float32)
    return model.apply(model.init(jax.random.key(0), given), given)


def _encode(*texts: str) -> np.ndarray:
    return np.asarray(_encoded(packing.encode_texts(texts, 40)))


@pytest.mark.thorough
def test_other_words_and_another_order_are_other_features() -> None:
    found = _encode("red door", "blue door", "door red", "red door")
    assert found.shape == (4, actor_critic.LSTM_WIDTH)
    assert np.array_equal(found[0], found[3])
    assert not np.allclose(found[0], found[1]) and not np.allclose(found[0], found[2])


@pytest.mark.thorough
def test_the_last_word_ends_a_text_whatever_stands_beside_it_in_a_batch() -> None:
    alone, beside = _encode("red door"), _encode("red door", "a much longer text of words")
    np.testing.assert_allclose(beside[0], alone[0], rtol=1e-4, atol=1e-6)
    assert not _encode("").any()


def _network(**changes: Any) -> actor_critic.RecurrentNetwork[Any]:
    layers = shared.NetworkConfig(**{"kind": "auto", "width": 8, **changes})
    return actor_critic.actor_critic(layers, SPEC, "cpu")


@functools.cache
def _unroll(network: actor_critic.RecurrentNetwork[Any]) -> Any:
    def unroll(steps: actor_critic.Steps) -> Any:
        params, memory = network.init(jax.random.key(1)), network.initial_state(len(steps.reward))
        return network.unroll(params, memory, steps)[1]

    return jax.jit(unroll)


def _logits(network: actor_critic.RecurrentNetwork[Any], stack: int, *texts: str) -> np.ndarray:
    """Returns [B, 2]; with a stack, the texts are the frames of one environment, oldest first."""
    encoded = packing.encode_texts(texts, 40)
    shown = encoded.reshape(-1, 1, 40 * stack)
    num_rows = len(shown)
    observation = {"numbers": np.ones((num_rows, 1, 3 * stack), np.float32), "task": shown}
    none = np.zeros((num_rows, 1), np.float32)
    steps: Any = actor_critic.Steps(observation, none > 0, none, none.astype(np.int32))  # numpy's arrays

    return np.asarray(_unroll(network)(steps)[:, 0])


@pytest.mark.thorough
def test_policy_and_value_depend_on_the_text() -> None:
    found = _logits(_network(lstm_width=6), 1, "go left", "go right", "go left")
    assert np.array_equal(found[0], found[2]) and not np.array_equal(found[0], found[1])


@pytest.mark.thorough
def test_of_stacked_texts_the_newest_is_read() -> None:
    network = _network(frame_stack=2)
    assert np.array_equal(_logits(network, 2, "old", "go left"), _logits(network, 2, "older", "go left"))
    assert not np.array_equal(_logits(network, 2, "old", "go left"), _logits(network, 2, "old", "go right"))


def test_texts_alone_are_no_observation() -> None:
    alone = types.EnvSpec.of_arrays(SPEC.packed[1:], num_actions=2)
    with pytest.raises(errors.ConfigError, match="only text; show an array of numbers"):
        shared.choose_kind("network.kind", "auto", alone)


@pytest.mark.parametrize(("shape", "dtype"), [((4, 5), "uint8"), ((4,), "int32")])
def test_text_is_one_axis_of_bytes(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(
        errors.SpecMismatch, match=rf"'task': .*{re.escape(str(shape))} and dtype {dtype}; .*one axis of uint8"
    ):
        types.ArraySpec("task", shape, dtype, text=True)
