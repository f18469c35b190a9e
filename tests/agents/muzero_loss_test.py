"""MuZero's loss, against numbers worked by hand on models small enough for that."""

from __future__ import annotations

import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import pytest

from seedzero.agents import base, learning, muzero, muzero_loss, muzero_model
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.networks import muzero_net, observations
from seedzero.ops import value_transforms
from seedzero.replay import windowing


@functools.cache
def _jitted_loss(config: configs.Config, *, gradient: bool = False) -> Any:
    """Returns the jitted function of parameters and windows to the hand model's policy loss, or to its gradient."""
    parts = cases.hand_model(config)

    def loss(params: Any, windows: windowing.Windows) -> jax.Array:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(muzero_loss, "_REWARD_WEIGHT", 0.0)
            return cases.loss_and_metrics(parts, params, windows)[0]

    return jax.jit(jax.grad(loss) if gradient else loss)


def _hand_model_loss(config: configs.Config, windows: windowing.Windows, params: Any) -> np.ndarray:
    return np.asarray(_jitted_loss(config)(params, windows))


def _hand_model_config(**changes: options.Value) -> configs.Config:
    return cases.make_config(muzero__value_loss_weight=0.0, **changes)


def _ended(windows: windowing.Windows) -> windowing.Windows:
    """Returns the windows with position 1 terminal: only the policy of position 0 is trained."""
    return windows._replace(valid=windows.valid.at[:, 2:].set(False), terminated=windows.terminated.at[:, 1].set(True))


def _cross_entropy(s: float) -> float:
    """Of logits (s, 0) to the first action, whose derivative is -1 / (1 + e^s)."""
    return float(np.log1p(np.exp(-s)))


def test_the_first_step_counts_whole_and_each_unrolled_one_by_1_over_k() -> None:
    config = _hand_model_config()
    # p = 0.5, q = 2, observation 2: s = 1, 2, 4.
    expected = _cross_entropy(1.0) + (_cross_entropy(2.0) + _cross_entropy(4.0)) / 2
    found = _hand_model_loss(config, cases.hand_model_windows(config), {"p": 0.5, "q": 2.0})
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_gradients_are_halved_into_the_state_at_each_unrolled_step() -> None:
    config = _hand_model_config()
    result = _jitted_loss(config, gradient=True)({"p": 0.5, "q": 2.0}, cases.hand_model_windows(config))
    g0, g1, g2 = (-1 / (1 + np.exp(s)) for s in (1.0, 2.0, 4.0))
    # s_1 = q s_0 and s_2 = q s_1; K = 2, so unrolled steps weigh 1/2; each passage into a state halves.
    d_s1 = g1 / 2 + 0.5 * 2.0 * g2 / 2
    d_q = d_s1 * 1.0 + (g2 / 2) * 2.0
    d_p = 2.0 * (g0 + 0.5 * 2.0 * d_s1)
    np.testing.assert_allclose([result["p"], result["q"]], [d_p, d_q], rtol=1e-5)


def test_the_loss_is_the_weighted_mean_over_windows() -> None:
    config = _hand_model_config()
    windows = cases.hand_model_windows(config)
    observation = np.array([1.0, 2.0, 3.0, 4.0], np.float32)[:, None, None]
    params = {"p": 0.5, "q": 2.0}

    def loss(weight: list[float]) -> float:
        weighted = agent_cases.show(windows, observation)._replace(weight=jnp.asarray(np.array(weight, np.float32)))
        return float(_hand_model_loss(config, weighted, params))

    alone = [loss([float(i == j) for j in range(4)]) for i in range(4)]
    np.testing.assert_allclose(loss([1.0, 0.5, 2.0, 0.0]), alone[0] + 0.5 * alone[1] + 2.0 * alone[2], rtol=1e-6)


def test_the_loss_is_the_weighted_sum_of_its_terms_and_each_has_its_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = {"policy": 0.5, "value": 0.25, "reward": 2.0, "policy_gradient": 0.7, "consistency": 3.0}
    monkeypatch.setattr(muzero_loss, "_POLICY_WEIGHT", weights["policy"])
    monkeypatch.setattr(muzero_loss, "_REWARD_WEIGHT", weights["reward"])
    config = cases.make_config(
        muzero__predict_ends=True,
        muzero__entropy_weight=0.3,
        muzero__value_loss_weight=weights["value"],
        muzero__policy_gradient_weight=weights["policy_gradient"],
        muzero__consistency_weight=weights["consistency"],
    )
    parts = cases.hand_model(config)

    def predict(params: Any, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.concatenate([s, jnp.zeros_like(s)], axis=-1), jnp.zeros((len(s), 12))  # the last: going on

    same = muzero_net.Projection(project=lambda params, hidden: hidden, predict=lambda params, x: x)
    parts = cases.with_functions(parts, predict=predict, projection=same)
    windows = cases.hand_model_windows(config)
    windows = agent_cases.store(windows, **{muzero_loss.PROBABILITY: np.full(windows.valid.shape, 0.5, np.float32)})
    windows = agent_cases.show(windows, np.full((cases.BATCH, 3, 1), 2.0, np.float32))

    find = jax.jit(functools.partial(cases.loss_and_metrics, parts))
    loss, metrics, _ = find({"p": 0.5, "q": 2.0}, windows)
    assert set(metrics) == {
        "loss",
        *(f"loss_{name}" for name in (*weights, "end")),
        *("policy_entropy", "value_mean", "value_target_mean", "targets_clipped"),
        *("advantage_size", "projection_spread"),
    }
    entropy = _two_way_entropy(1.0) + (_two_way_entropy(2.0) + _two_way_entropy(4.0)) / 2
    expected = sum(weight * float(metrics[f"loss_{name}"]) for name, weight in weights.items())
    np.testing.assert_allclose(loss, expected + float(metrics["loss_end"]) - 0.3 * entropy, rtol=1e-5)
    assert loss == metrics["loss"] and all(float(metrics[f"loss_{name}"]) for name in (*weights, "end"))


def test_policies_of_masked_positions_do_not_count() -> None:
    config = _hand_model_config()
    loss = _hand_model_loss(config, _ended(cases.hand_model_windows(config)), {"p": 0.5, "q": 2.0})
    np.testing.assert_allclose(loss, _cross_entropy(1.0), rtol=1e-6)


def _two_way_entropy(s: float) -> float:
    """Of logits (s, 0)."""
    p = 1 / (1 + np.exp(-s))
    return float(-p * np.log(p) - (1 - p) * np.log(1 - p))


def test_the_policy_s_entropy_is_taken_off_with_its_weight_where_the_policy_counts() -> None:
    plain, config = _hand_model_config(), _hand_model_config(muzero__entropy_weight=0.3)
    windows, params = cases.hand_model_windows(config), {"p": 0.5, "q": 2.0}
    entropy = _two_way_entropy(1.0) + (_two_way_entropy(2.0) + _two_way_entropy(4.0)) / 2
    difference = _hand_model_loss(plain, windows, params) - _hand_model_loss(config, windows, params)
    np.testing.assert_allclose(difference, 0.3 * entropy, rtol=1e-5)
    legal = np.ones((*windows.valid.shape, 2), bool)
    legal[:, 1:, 1] = False  # from position 1 on there is no choice
    for alone in (_ended(windows), agent_cases.store(windows, legal=jnp.asarray(legal))):
        difference = _hand_model_loss(plain, alone, params) - _hand_model_loss(config, alone, params)
        np.testing.assert_allclose(difference, 0.3 * _two_way_entropy(1.0), rtol=1e-5)


def test_each_reward_is_trained_on_the_step_that_leads_to_its_position() -> None:
    """A dynamics function that says "the action's number" as reward is right when rewards repeat the action before."""
    config = cases.make_config(muzero__value_loss_weight=0.0)
    windows = cases.make_windows(config)
    action = np.asarray(windows.stored["action"])
    reward = np.pad(action[:, :-1], ((0, 0), (1, 0)), constant_values=7).astype(np.float32)
    windows = windows._replace(reward=jnp.asarray(reward))

    def say_action(params: Any, s: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        return s, cases.certain(action.astype(jnp.float32))

    parts = cases.with_functions(cases.hand_model(config), dynamics=say_action)
    windows = agent_cases.show(windows, np.ones((cases.BATCH, 1, 1), np.float32))
    windows = agent_cases.store(windows, policy=np.asarray(windows.stored["policy"])[..., :2])
    find = jax.jit(functools.partial(cases.loss_and_metrics, parts))
    found = find({"p": 1.0, "q": 1.0}, windows)[1]["loss_reward"]
    encoded = np.asarray(jax.jit(lambda x: value_transforms.two_hot(x, 11, 5.0))(reward[:, 1:3]))
    entropy = -np.sum(np.where(encoded > 0, encoded * np.log(np.maximum(encoded, 1e-30)), 0.0), axis=-1)
    np.testing.assert_allclose(found, np.mean(entropy.sum(axis=1) / 2), atol=1e-5)


def test_actions_behind_an_end_are_the_policys_earlier_ones_as_taken() -> None:
    """States are the last action, of three; the policy never takes that one again."""
    parts = cases.model(
        cases.make_config(),
        cases.SPEC,
        predict=lambda params, s: (jnp.where(s == jnp.arange(3.0), -1e9, 0.0), jnp.zeros((len(s), 11))),
        dynamics=lambda params, s, action: (action[:, None].astype(jnp.float32), jnp.zeros((len(s), 11))),
    )
    # One window is whole; in the others the action of position 1 led nowhere.
    taken = jnp.array([[True, True], [True, False], [True, False], [True, False]])
    actions = jnp.array([[0, 0], [0, 0], [1, 1], [2, 2]])
    unroll = jax.jit(functools.partial(muzero_loss.unroll, parts, {}, jnp.zeros((4, 1)), actions, taken))
    states = np.stack([np.asarray(unroll(jax.random.key(i))[3])[..., 0] for i in range(40)])
    assert (states[:, :, 1] == [0, 0, 1, 2]).all()
    assert (states[:, 0, 2] == 0).all()
    assert [set(states[:, i, 2]) for i in (1, 2, 3)] == [{1, 2}, {0, 2}, {0, 1}]


def test_an_end_by_chance_is_not_blamed_on_the_actions_behind_it() -> None:
    """Half of all first steps end the episode, by chance; who is still there takes action 0, and gets 1 for any."""
    config = cases.make_config(
        muzero__unroll_steps=2, muzero__n_step=1, reward__discount=1.0, optimizer__learning_rate=0.01
    )
    windows = cases.make_windows(config)
    alive = jnp.array([[True], [True], [False], [False]])
    windows = windows._replace(
        reward=jnp.array([0.0, 0.0, 1.0, 0.0]) * alive,
        valid=jnp.concatenate([jnp.ones((4, 2), bool), jnp.broadcast_to(alive, (4, 2))], axis=1),
        terminated=jnp.concatenate([jnp.zeros((4, 1), bool), ~alive, jnp.zeros((4, 1), bool), alive], axis=1),
    )
    zeros = jnp.zeros((4, 4), jnp.int32)
    policy = jnp.broadcast_to(jnp.array([0.98, 0.01, 0.01]), (4, 4, 3))
    windows = agent_cases.store(windows, action=zeros, policy=policy, value=jnp.zeros((4, 4)))
    windows = agent_cases.show(windows, jnp.ones((4, 1, 4)))
    state = cases.init(config)
    # The policy is known from the start; while it is even, so are the actions behind ends.
    head = state.params["policy_head"]
    learned = {**head, "Dense_1": {**head["Dense_1"], "bias": jnp.log(policy[0, 0])}}
    state = state._replace(params={**state.params, "policy_head": learned})
    for index in range(200):
        state, _, _ = cases.agent(config)[1](state, windows, jax.random.key(index))
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")

    @jax.jit
    def rewards(params: Any) -> jax.Array:
        hidden = parts.network.represent(params, {types.OBSERVATION: jnp.ones((1, 4))})
        actions, taken = jnp.array([[0, 0]]), jnp.ones((1, 2), bool)
        logits = muzero_loss.unroll(parts, params, hidden, actions, taken, jax.random.key(0))[2]
        return muzero_model.unit(params) * muzero_model.decode(parts, logits[:, 1])

    found = np.asarray(rewards(state.params))
    assert found == pytest.approx(0.5, abs=0.1)  # drawn evenly, the others would bear two thirds of the ends: 0.67


def test_sums_of_rewards_are_trained_on_the_step_that_completes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that says the sum of all actions since the sum began is right when rewards repeat the action before."""
    monkeypatch.setattr(muzero_model, "PREFIX_HORIZON", 2)
    config = cases.make_config(muzero__value_prefix=True, muzero__unroll_steps=5, network__num_bins=101)
    windows = cases.make_windows(config)
    action = windows.stored["action"]
    windows = agent_cases.store(windows, policy=windows.stored["policy"][..., :2])
    windows = agent_cases.show(windows, jnp.ones((cases.BATCH, 1, 1)))
    windows = windows._replace(reward=jnp.pad(action[:, :-1], ((0, 0), (1, 0)), constant_values=7).astype(jnp.float32))

    def encode(x: jax.Array) -> jax.Array:
        return value_transforms.two_hot(x, 101, 5.0)

    def step(params: Any, s: jax.Array, action: jax.Array, carry: Any) -> tuple[jax.Array, Any, jax.Array]:
        total = carry[0] + action
        return s, (total,), jnp.log(encode(total) + 1e-9)

    prefix = muzero_net.Prefix(initial=lambda batch_size: (jnp.zeros(batch_size),), step=step)
    parts = cases.with_functions(cases.hand_model(config), prefix=prefix)
    find = jax.jit(functools.partial(cases.loss_and_metrics, parts, {"p": 1.0}))
    a = np.asarray(action, np.float32)
    sums = encode(jnp.asarray(np.stack([a[:, 0], a[:, 0] + a[:, 1], a[:, 2], a[:, 2] + a[:, 3], a[:, 4]], axis=1)))
    entropy = -np.sum(np.where(sums > 0, sums * np.log(np.maximum(sums, 1e-30)), 0.0), axis=-1)
    np.testing.assert_allclose(find(windows)[1]["loss_reward"], np.mean(entropy.sum(axis=1) / 5), atol=1e-5)
    assert find(windows._replace(reward=windows.reward + 1.0))[1]["loss_reward"] > 1.0


# Augmentation --------------------------------------------------------------------------------------------------------


GRID_2D = types.EnvSpec((4, 5), "float32", 3)
GRID_3D = types.EnvSpec((4, 5, 2), "uint8", 3)


def _mean(x: jax.Array) -> jax.Array:
    """Returns the means [B, 1] of images [B, ...]."""
    return x.reshape(len(x), -1).mean(axis=1, keepdims=True, dtype=float)


def _image_windows(
    config: configs.Config, spec: types.EnvSpec, num_observations: int = 1, num_windows: int = cases.BATCH
) -> windowing.Windows:
    shape = observations.stack_shape(spec.observation_shape, config.network.frame_stack)
    random = np.random.default_rng(0).integers(1, 256, (num_windows, num_observations, *shape))
    return agent_cases.show(cases.make_windows(config), jnp.asarray(random, spec.observation_dtype))


def _augmented(config: configs.Config, spec: types.EnvSpec, windows: windowing.Windows) -> np.ndarray:
    """Returns the observations of the augmented windows."""
    parts = cases.hand_model(config)._replace(spec=spec)
    augmented = jax.jit(functools.partial(muzero.augment_windows, parts))(windows, jax.random.key(0))
    return np.asarray(agent_cases.shown(augmented))


@pytest.mark.parametrize("spec", [GRID_2D, GRID_3D], ids=["without channels", "with channels"])
def test_all_frames_of_an_observation_move_together(spec: types.EnvSpec) -> None:
    config = cases.make_config(muzero__shift_pixels=1, network__frame_stack=3)
    windows = _image_windows(config, spec, num_windows=20)
    augmented = _augmented(config, spec, windows)
    assert augmented.dtype == spec.observation_dtype
    moves = set()
    pairs = zip(np.asarray(agent_cases.shown(windows))[:, 0], augmented[:, 0], strict=True)
    for before, after in pairs:
        # Stacks of frames without channels are [H, 3 W].
        planes = [np.split(x, 3, axis=1) if x.ndim == 2 else list(np.moveaxis(x, 2, 0)) for x in (before, after)]
        padded = [np.pad(plane, 1, mode="edge") for plane in planes[0]]
        candidates = [
            (i, j)
            for i in range(3)
            for j in range(3)
            if all(np.array_equal(p[i : i + 4, j : j + 5], q) for p, q in zip(padded, planes[1], strict=True))
        ]
        assert len(candidates) == 1
        moves.add(candidates[0])
    assert len(moves) > 4


def test_what_the_consistency_loss_looks_at_is_augmented_too() -> None:
    config = cases.make_config(muzero__shift_pixels=3, muzero__consistency_weight=1.0, muzero__consistency_steps=1)
    windows = _image_windows(config, GRID_3D, num_observations=4)
    after = _augmented(config, GRID_3D, windows)
    assert after.shape[1] == 2
    before = np.asarray(agent_cases.shown(windows))[:, :2]
    assert (after != before).any(axis=(0, 2, 3, 4)).all()


def test_intensity_scales_each_observation_by_its_own_factor() -> None:
    config = cases.make_config(muzero__intensity_scale=0.1)
    windows = _image_windows(config, GRID_3D)
    factor = _augmented(config, GRID_3D, windows) / np.asarray(agent_cases.shown(windows))
    np.testing.assert_allclose(factor, np.broadcast_to(factor[..., :1, :1, :1], factor.shape), rtol=1e-5)
    assert len(np.unique(np.round(factor[:, 0, 0, 0, 0], 4))) > 1


@pytest.mark.parametrize("num_steps", [1, 3])
def test_unrolled_states_and_predictions_are_those_of_one_step_after_the_other(num_steps: int) -> None:
    config = cases.make_config(muzero__unroll_steps=num_steps)
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")
    network, params = parts.network, _random_params(parts)
    windows = cases.make_windows(config)
    observation, actions = windowing.observed(windows, 0), windows.stored["action"][:, :num_steps]
    first, taken = network.represent(params, observation), jnp.ones(actions.shape, bool)
    found = muzero_loss.unroll(parts, params, first, actions, taken, jax.random.key(0))
    hidden, expected = network.represent(params, observation), []
    for k in range(num_steps + 1):
        policy, value = network.predict(params, hidden)
        hidden, reward = network.dynamics(params, hidden, actions[:, min(k, num_steps - 1)])
        expected.append((policy, value, reward))
    policy, value, reward = (np.stack(x, axis=1) for x in zip(*expected, strict=True))
    for came, right in zip(found, (policy, value, reward[:, :num_steps]), strict=False):
        assert came.shape == right.shape and np.std(right) > 0
        np.testing.assert_allclose(came, right, rtol=1e-4, atol=1e-5)


def test_actions_behind_an_end_are_drawn_from_the_policy_for_each_row_and_step() -> None:
    config, num_rows = cases.make_config(muzero__unroll_steps=2), 4_000
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")
    network, params = parts.network, _random_params(parts)
    observation = {types.OBSERVATION: jnp.broadcast_to(jnp.arange(4.0), (num_rows, 4))}
    never = jnp.zeros((num_rows, 2), bool)

    @jax.jit
    def steps(params: Any, key: jax.Array) -> Any:
        first = network.represent(params, observation)
        hidden = muzero_loss.unroll(parts, params, first, never.astype(jnp.int32), never, key)[3]
        every = [network.dynamics(params, hidden[:, 0], jnp.full(num_rows, action))[0] for action in range(3)]
        return hidden, jnp.stack(every), jax.nn.softmax(network.predict(params, hidden[:, 0])[0])

    hidden, every, policy = map(np.asarray, steps(params, jax.random.key(3)))
    first = np.argmin(np.square(every - hidden[:, 1]).sum(axis=-1), axis=0)
    assert 0.1 < policy[0].min() < 0.25
    np.testing.assert_allclose(np.bincount(first, minlength=3) / num_rows, policy[0], atol=0.03)
    # The second step has draws of its own: after one first action, different states follow.
    assert all(len(np.unique(hidden[first == action, 2].round(4), axis=0)) == 3 for action in range(3))
    again = np.asarray(steps(params, jax.random.key(4))[0])
    assert (again[:, 1] != hidden[:, 1]).any()


def _random_params(parts: muzero_model.Parts) -> Any:
    """Fresh networks predict nearly the same everywhere: these do not."""
    leaves, structure = jax.tree.flatten(jax.jit(parts.network.init)(jax.random.key(1)))
    random = np.random.default_rng(0)
    return jax.tree.unflatten(structure, [x + 0.3 * random.normal(size=x.shape).astype(x.dtype) for x in leaves])


def test_augmentation_changes_the_loss_and_not_the_targets() -> None:
    def update(**changes: options.Value) -> base.Metrics:
        config = cases.make_config(muzero__target_network_updates=2, **changes)
        params = {"p": jnp.float32(0.01), "q": jnp.float32(0.5)}
        parts = cases.model(
            config,
            GRID_3D,
            represent=lambda params, x: params["p"] * _mean(x[types.OBSERVATION]),  # the value is the brightness
            predict=lambda params, s: (jnp.zeros((len(s), 3)), s * jnp.arange(11.0)),
        )
        windows = _image_windows(config, GRID_3D, num_observations=4)
        opt_state, zero = parts.optimizer.init(params), jnp.int32(0)
        state = learning.TrainState(params, params, opt_state, zero, zero)
        return jax.jit(lambda key: muzero._update(parts, state, windows, key, None)[2])(jax.random.key(1))

    plain = update()
    augmented = update(muzero__shift_pixels=2, muzero__intensity_scale=0.2)
    assert plain["value_target_mean"] == augmented["value_target_mean"] != 0
    assert plain["loss"] != augmented["loss"]
    assert plain["value_mean"] != augmented["value_mean"]


def test_the_policy_gradient_follows_returns_less_stored_values() -> None:
    plain, config = _hand_model_config(), _hand_model_config(muzero__policy_gradient_weight=0.3)
    windows, params = cases.hand_model_windows(config), {"p": 0.5, "q": 2.0}
    # Returns of two steps with a discount of 0.5: from 8 at position 3 on, 1 + 0.5 * 0 + 0.25 * 8 = 3 at position 1.
    reward, value, chance = (
        jnp.broadcast_to(jnp.array(x), windows.valid.shape)
        for x in ([0.0, 0, 1, 0, 0], [0.5, 1, 2, 8, 4], [0.9, 0.5, 1, 1, 1])
    )
    windows = agent_cases.store(windows._replace(reward=reward), value=value, **{muzero_loss.PROBABILITY: chance})
    returns = np.array([0.5 * 1 + 0.25 * 2, 1 + 0.25 * 8, 0.25 * 4])
    advantage = returns - np.array([0.5, 1, 2])
    advantage /= np.sqrt(np.mean(advantage**2))
    policy = 1 / (1 + np.exp(-np.array([1.0, 2.0, 4.0])))  # p = 0.5, q = 2, observation 2: s = 1, 2, 4
    ratio = np.minimum(policy / np.array([0.9, 0.5, 1]), 1.0)
    expected = -ratio * advantage * np.log(policy)
    difference = _hand_model_loss(config, windows, params) - _hand_model_loss(plain, windows, params)
    np.testing.assert_allclose(difference, 0.3 * (expected[0] + expected[1:].sum() / 2), rtol=1e-5)
    # Of the policy alone is there a gradient; s rises by 2 with p at each step, as gradients into states are halved.
    slope = -ratio * advantage * (1 - policy) * 2
    gradients = [_jitted_loss(c, gradient=True)(params, windows)["p"] for c in (config, plain)]
    np.testing.assert_allclose(gradients[0] - gradients[1], 0.3 * (slope[0] + slope[1:].sum() / 2), rtol=1e-4)
    # A window without weight has no part in the size either.
    strange = agent_cases.store(windows, value=value.at[0].set(100.0))
    strange = strange._replace(weight=windows.weight.at[0].set(0.0))
    difference = _hand_model_loss(config, strange, params) - _hand_model_loss(plain, strange, params)
    share = 1 - 1 / cases.BATCH
    np.testing.assert_allclose(difference, 0.3 * share * (expected[0] + expected[1:].sum() / 2), rtol=1e-5)
