"""MuZero's loss, against numbers worked by hand on models small enough for that."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import pytest

from seedzero import search as mcts
from seedzero.agents import base, learning, muzero, muzero_loss, muzero_model, muzero_search
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.networks import muzero_net, observations
from seedzero.ops import value_transforms
from seedzero.replay import ring_store, windowing


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


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.thorough
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


NUM_CODES = 32
NUM_ROWS = 64
BOARD = types.EnvSpec((4,), "float32", 3, num_players=2, has_chance=True)
DIE = types.EnvSpec((6,), "float32", 3, 0.0, 1.0)


def make_config(**changes: options.Value) -> configs.Config:
    usual = dict(
        muzero__chance_codes=NUM_CODES, optimizer__learning_rate=0.003, network__width=32, network__head_width=32
    )
    return cases.make_config(**{**usual, **changes})


def throws(config: configs.Config, num_sides: int, reward_size: float, seed: int) -> windowing.Windows:
    """Throws of a die: each observation shows the side on top, whose number times a size is the next step's reward.

    Actions change nothing.
    """
    random = np.random.default_rng(seed)
    shape = (NUM_ROWS, config.muzero.unroll_steps + config.muzero.n_step + 1)
    side = random.integers(num_sides, size=shape)
    stored = {
        "action": random.integers(0, 3, shape).astype(np.int32),
        "policy": np.full((*shape, 3), 1 / 3, np.float32),
        "value": np.zeros(shape, np.float32),
    }
    shown = np.eye(6, dtype=np.float32)[side[:, : len(muzero_loss.offsets(config))]]
    reward = reward_size * np.roll(side, 1, axis=1).astype(np.float32)
    return agent_cases.windows(shown, reward=reward, stored=stored)


class Learned(NamedTuple):
    """A model of a die behind some updates."""

    parts: muzero_model.Parts
    params: base.Params
    loss_code: float
    codes_in_use: float

    def codes(self, num_sides: int) -> list[int]:
        """Returns the code of each side that follows the first one."""
        network, sides = self.parts.network, jnp.eye(6)[:num_sides]
        assert network.chance is not None
        hidden = network.represent(self.params, {types.OBSERVATION: sides})
        preference = network.chance.encode(self.params, jnp.broadcast_to(hidden[:1], hidden.shape), hidden)
        found: list[int] = jnp.argmax(preference, axis=-1).tolist()
        return found


def learn(config: configs.Config, num_sides: int, reward_size: float, *, looks: Sequence[int]) -> Iterator[Learned]:
    """Yields the model of a die behind these numbers of updates."""
    agent, parts = muzero.make(config, DIE, "cpu"), muzero_model.make_parts(config, DIE, "cpu")
    update = jax.jit(lambda state, windows, key: agent.update(state, windows, key, None))
    state = jax.jit(agent.init)(jax.random.key(0))
    # All outcomes begin with one code: whoever tells them apart has learned to.
    params, last = dict(state.params), state.params["encoder"]["Dense_1"]
    params["encoder"] = {**params["encoder"], "Dense_1": {**last, "kernel": jnp.zeros_like(last["kernel"])}}
    state = state._replace(params=params)
    for number in range(max(looks)):
        windows = throws(config, num_sides, reward_size, number)
        state, _, metrics = update(state, windows, jax.random.key(number))
        if number + 1 in looks:
            yield Learned(parts, state.params, float(metrics["loss_code"]), float(metrics["codes_in_use"]))


@pytest.mark.thorough
@pytest.mark.parametrize(("num_sides", "reward_size", "consistency_weight"), [(2, 0.0, 0.0), (6, 1.0, 2.0)])
def test_each_side_gets_a_code_and_codes_are_as_hard_to_predict_as_the_die(
    num_sides: int, reward_size: float, consistency_weight: float
) -> None:
    """All begin with one code, which is no surprise at all. The coin is seen, and never pays."""
    config = make_config(muzero__consistency_weight=consistency_weight)
    before, after = learn(config, num_sides, reward_size, looks=(1, 400))
    assert before.codes_in_use == pytest.approx(1.0)
    assert after.codes_in_use == pytest.approx(num_sides, rel=0.1)
    assert after.loss_code == pytest.approx(np.log(num_sides), abs=0.1)
    assert len(set(after.codes(num_sides))) == num_sides


@pytest.mark.thorough
def test_without_gradients_from_what_follows_all_sides_keep_one_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is what the test above must notice: codes that nothing drives are easy to predict, and say nothing."""
    encode = muzero_loss.encode_chance

    def without_gradients(*args: Any) -> muzero_loss.Outcomes:
        return jax.lax.stop_gradient(encode(*args))

    monkeypatch.setattr(muzero_loss, "encode_chance", without_gradients)
    (after,) = learn(make_config(muzero__consistency_weight=2.0), 6, 1.0, looks=(100,))
    assert after.codes_in_use == pytest.approx(1.0) and after.loss_code < 0.1


@pytest.mark.thorough
def test_the_prediction_of_codes_teaches_the_encoder_nothing() -> None:
    """The commitment does, and so do rewards; neither reaches what was seen later."""
    config = make_config()
    parts = muzero_model.make_parts(config, DIE, "cpu")
    params = jax.jit(functools.partial(muzero_model.init, parts))(jax.random.key(0))
    windows = throws(config, 6, 1.0, 0)
    targets, taken = muzero_loss.make_targets(parts, params, windows), windows.valid[:, 1:3]
    root = parts.network.represent(params, windowing.observed(windows, 0))

    @jax.jit
    def gradients(params: base.Params) -> dict[str, base.Params]:
        def of_term(number: int) -> base.Params:
            def find(params: base.Params) -> jax.Array:
                outcomes = muzero_loss.encode_chance(parts, params, windows, root, jax.random.key(0))
                action = windows.stored["action"][:, 0]
                after = [
                    muzero_loss.chance_step(parts, params, root, action, outcomes, taken[:, 0], k)[2] for k in (0, 1)
                ]
                actions = windows.stored["action"][:, :2]
                terms = muzero_loss.chance_terms(
                    parts, params, jnp.stack(after, 1), outcomes, actions, targets, taken, 1.0
                )
                return jnp.sum(terms[number].errors)

            return jax.grad(find)(params)

        return {name: of_term(number) for number, name in enumerate(("outcome", "code", "commitment", "value"))}

    found = gradients(params)

    def size(term: str, module: str) -> float:
        return sum(float(jnp.sum(jnp.abs(leaf))) for leaf in jax.tree.leaves(found[term][module]))

    assert size("code", "encoder") == size("value", "encoder") == 0
    assert size("commitment", "encoder") > 0 and size("outcome", "encoder") > 0 and size("outcome", "outcome") > 0
    assert size("code", "code_head") > 0 and size("value", "afterstate_head") > 0
    assert all(size(term, "representation") == 0 for term in found)


class _Hand:
    """A model of numbers: an action makes a state s an afterstate s + action, code c makes that s + action + 10 c."""

    def __init__(self, config: configs.Config, spec: types.EnvSpec = cases.SPEC) -> None:
        def resolve(params: Any, afterstate: jax.Array, code: jax.Array) -> tuple[jax.Array, jax.Array]:
            number = code if code.ndim == 1 else code @ jnp.arange(float(NUM_CODES))
            rewards = cases.certain(jnp.full(len(code), 2.0))
            if spec.moves_again:
                rewards = jnp.concatenate([rewards, number[:, None] - 0.5], axis=1)
            return afterstate + 10.0 * number[:, None], rewards

        chance = muzero_net.ChanceFunctions(
            NUM_CODES,
            decide=lambda params, s, action: s + action[:, None],
            predict=lambda params, s: (s * jnp.arange(1.0, 1 + NUM_CODES), cases.certain(s[:, 0])),
            resolve=resolve,
            encode=lambda params, before, after: params["preference"] + jnp.zeros((len(before), 1)),
        )

        def predict(params: Any, s: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jnp.zeros((len(s), 3)), cases.certain(s[:, 0] / 10)

        self.parts = cases.model(config, spec, predict=predict, chance=chance)
        self.params = {"preference": jnp.zeros(NUM_CODES).at[3].set(2.0).at[5].set(1.0)}


@pytest.mark.thorough
def test_the_losses_are_what_numpy_computes() -> None:
    hand, config = _Hand(make_config()), make_config()
    windows = cases.make_windows(config, 3)
    windows = windows._replace(valid=windows.valid.at[1, 2:].set(False))
    afterstates = np.random.default_rng(0).normal(size=(cases.BATCH, 2, 1)).astype(np.float32)
    targets = muzero_loss.make_targets(hand.parts, hand.params, windows)
    root = jnp.zeros((cases.BATCH, 4))
    outcomes = muzero_loss.encode_chance(hand.parts, hand.params, windows, root, jax.random.key(0))
    taken = windows.valid[:, 1:3]
    actions = windows.stored["action"][:, :2]

    def terms(afterstates: Any) -> list[muzero_loss.Term]:
        return muzero_loss.chance_terms(
            hand.parts, hand.params, jnp.asarray(afterstates), outcomes, actions, targets, taken, 2.0
        )

    outcome, code, commitment, value = terms(afterstates)
    seen = np.concatenate([root[:, None], agent_cases.shown(windows)[:, 1:]], axis=1)
    error = seen[:, :2] + np.asarray(actions)[..., None] + 30.0 - seen[:, 1:]  # 10 times code 3
    np.testing.assert_allclose(outcome.errors, np.mean(error**2, axis=-1), rtol=1e-5)
    logits = afterstates * np.arange(1, 1 + NUM_CODES)
    np.testing.assert_allclose(code.errors, np.log(np.exp(logits).sum(-1)) - logits[..., 3], rtol=1e-5)
    np.testing.assert_allclose(commitment.errors, (2 - 1) ** 2 + 1**2, rtol=1e-6)  # of codes 3 and 5
    # At its own value an error is the entropy of the bins that stand for it, elsewhere more.
    right = terms(targets.q_estimate[:, :2, None] / 2.0)[-1]
    assert (np.asarray(value.errors) > np.asarray(right.errors)).all() and float(right.errors.max()) < np.log(2) + 1e-3
    assert not value.mask[1, 1] and not code.mask[1, 1] and value.mask.sum() == 2 * cases.BATCH - 1
    assert value.weight == config.muzero.value_loss_weight and commitment.weight == muzero_loss.COMMITMENT_WEIGHT


@pytest.mark.thorough
def test_codes_are_the_encoder_s_and_behind_an_end_drawn_as_predicted() -> None:
    config, num_rows = make_config(), 4_000
    hand = _Hand(config)
    predicted = jnp.log(jnp.arange(1.0, 1 + NUM_CODES) / sum(range(1, 1 + NUM_CODES)))
    chance = hand.parts.network.chance
    assert chance is not None
    parts = cases.with_functions(hand.parts, chance=chance._replace(predict=lambda params, s: (predicted + 0 * s, s)))
    windows = agent_cases.windows(np.zeros((num_rows, 3, 1)), stored={"action": np.zeros((num_rows, 5), np.int32)})
    root, actions = jnp.zeros((num_rows, 1)), jnp.ones((num_rows, 2), jnp.int32)
    taken = jnp.broadcast_to(jnp.array([True, False]), (num_rows, 2))
    outcomes = muzero_loss.encode_chance(parts, hand.params, windows, root, jax.random.key(3))
    found = muzero_loss.unroll(parts, hand.params, root, actions, taken, jax.random.key(0), outcomes)
    states, afterstates = np.asarray(found[3])[..., 0], np.asarray(found[4])[..., 0]
    assert (afterstates[:, 0] == 1).all() and (states[:, 1] == 31).all()  # of code 3
    drawn = np.round((states[:, 2] - afterstates[:, 1]) / 10).astype(int)
    np.testing.assert_allclose(np.bincount(drawn) / num_rows, np.exp(predicted), atol=0.03)


@pytest.mark.thorough
def test_codes_and_actions_behind_an_end_are_drawn_from_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    noises: list[np.ndarray] = []

    def keeping(function: Any, noise_of: Any) -> Any:
        def run(*arguments: Any) -> Any:
            found = function(*arguments)
            noises.append(np.asarray(noise_of(found)))
            return found

        return run

    monkeypatch.setattr(
        muzero_loss, "encode_chance", keeping(muzero_loss.encode_chance, lambda outcomes: outcomes.noise)
    )
    monkeypatch.setattr(muzero_loss, "_noise", keeping(muzero_loss._noise, lambda noise: noise))
    config = make_config(muzero__chance_codes=3)  # as many as actions
    parts = muzero_model.make_parts(config, DIE, "cpu")
    params = jax.jit(functools.partial(muzero_model.init, parts))(jax.random.key(0))
    cases.loss_and_metrics(parts, params, throws(config, 6, 1.0, 0))
    of_codes, of_actions = noises
    assert of_codes.shape == of_actions.shape and not (of_codes == of_actions).any()


def test_codes_in_use_are_the_perplexity_of_all() -> None:
    code = jax.nn.one_hot(jnp.array([[0, 0], [1, 2], [1, 3]]), NUM_CODES)
    every, first = np.ones((3, 2), bool), np.array([[True, True], [False, False], [False, False]])
    share = np.array([2, 2, 1, 1]) / 6
    np.testing.assert_allclose(muzero_loss.codes_in_use(code, every), np.exp(-share @ np.log(share)), rtol=1e-5)
    np.testing.assert_allclose(muzero_loss.codes_in_use(code, first), 1.0, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spec", "signs"),
    [
        (types.EnvSpec((4,), "float32", 3), (1, 1)),
        (BOARD, (-1, -1)),
        (dataclasses.replace(BOARD, moves_again=True), (1, -1)),
    ],
    ids=["one player", "two in turn", "who may move again"],
)
def test_the_search_goes_through_afterstates_and_the_sign_is_that_of_the_code(
    spec: types.EnvSpec, signs: tuple[int, int]
) -> None:
    parts = _Hand(make_config(), spec).parts
    model = muzero_search.recurrent_fn(parts)
    assert isinstance(model, mcts.ChanceFn) and model.num_codes == NUM_CODES
    found, afterstate = model.decide({}, jnp.array([1, 2]), jnp.ones((2, 1)))
    np.testing.assert_allclose(afterstate, [[2], [3]])
    np.testing.assert_allclose(found.value, [2, 3], rtol=1e-3)  # of the player who moved
    prediction, states = model.resolve({}, jnp.array([0, 1]), afterstate)
    np.testing.assert_allclose(states, [[2], [13]])
    np.testing.assert_allclose(prediction.value, [0.2, 1.3], rtol=1e-2)
    np.testing.assert_allclose(prediction.discount, 0.5 * np.array(signs))


EVERYTHING: dict[str, options.Value] = {
    "network.frame_stack": 2,
    "muzero.consistency_weight": 1.0,
    "muzero.consistency_steps": 1,
    "muzero.predict_ends": True,
    "muzero.policy_gradient_weight": 0.5,
    "muzero.target_network_updates": 5,
    "muzero.off_policy_correction": True,
    "reanalyse.fresh_share": 0.5,
    "reanalyse.per_insert": 1.0,
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changes", "spec"),
    [
        (EVERYTHING, cases.SPEC),
        ({"search.policy": "puct"}, BOARD),
        ({"muzero.n_step": 3, "reanalyse.fresh_share": 1.0}, dataclasses.replace(BOARD, moves_again=True)),
        ({"league.freeze_every": 10, "league.opponent_model": True}, BOARD),
        ({"network.kind": "resnet", "network.resnet_size": "small"}, types.EnvSpec((32, 32, 1), "uint8", 3)),
    ],
    ids=["everything", "a board", "a board where one may move again", "a league", "images"],
)
def test_chance_is_learned_beside_other_targets_and_models(
    changes: dict[str, options.Value], spec: types.EnvSpec
) -> None:
    config = configs.override(make_config(), changes)
    agent = muzero.make(config, spec, "cpu")
    num_observations = len(muzero_loss.offsets(config))
    windows = cases.make_windows(config, num_observations)
    random, shape = np.random.default_rng(1), windows.valid.shape
    size = (cases.BATCH, num_observations, *spec.observation_shape[:-1], spec.observation_shape[-1] * agent.stack)
    windows = agent_cases.show(windows, random.integers(0, 2, size).astype(spec.observation_dtype))
    mover = random.integers(0, 2, shape).astype(np.int8)
    more = {"probability": np.full(shape, 0.5, np.float32), "mover": mover, ring_store.OWN: random.random(shape) < 0.7}
    windows = agent_cases.store(windows, **{name: x for name, x in more.items() if name in agent.stored})
    windows = windows._replace(valid=windows.valid.at[1, 2:].set(False))
    state = jax.jit(agent.init)(jax.random.key(0))
    update = jax.jit(lambda state, windows, key: agent.update(state, windows, key, None))
    after, _, metrics = update(state, windows, jax.random.key(1))
    assert all(np.isfinite(float(x)) for x in metrics.values())
    assert float(metrics["loss_code"]) == pytest.approx(np.log(NUM_CODES) * 7 / 8, rel=1e-4)  # of 8 steps 7 were seen
    assert int(after.num_updates) == 1 and float(metrics["loss_afterstate_value"]) > 0


def test_without_codes_nothing_of_them_is_made() -> None:
    config = make_config(muzero__chance_codes=0)
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")
    params = jax.eval_shape(parts.network.init, jax.random.key(0))
    assert not {"outcome", "code_head", "afterstate_head", "encoder"} & set(params) and parts.network.chance is None
    assert not isinstance(muzero_search.recurrent_fn(parts), mcts.ChanceFn)
    assert muzero_loss.offsets(config) == (0,) and muzero_loss.offsets(make_config()) == (0, 1, 2)
