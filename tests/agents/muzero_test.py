"""MuZero's loss, targets, optimizer and acting, against numbers worked by hand on models small enough for that."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from seedzero import search
from seedzero.agents import base, muzero, muzero_loss, muzero_model, optimizers
from seedzero.config import config as config_lib
from seedzero.core import errors, types
from seedzero.networks import muzero as networks
from seedzero.ops import value_transforms
from seedzero.replay import rings

SPEC = types.EnvSpec((4,), "float32", 3)
SMALL: dict[str, config_lib.Value] = {
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "network.support_limit": 5.0,
    "search.num_simulations": 4,
    "muzero.unroll_steps": 2,
    "muzero.n_step": 2,
    "muzero.discount": 0.5,
    "optimizer.learning_rate": 0.1,
}
BATCH = 4


def _config(**changes: config_lib.Value) -> config_lib.Config:
    return config_lib.override(config_lib.Config(), {**SMALL, **{k.replace("__", "."): v for k, v in changes.items()}})


def _windows(config: config_lib.Config, num_observations: int = 1, seed: int = 0) -> rings.Windows:
    """Whole windows of random numbers, no episode ends."""
    random = np.random.default_rng(seed)
    num_positions = config.muzero.unroll_steps + config.muzero.n_step + 1
    shape = (BATCH, num_positions)
    return rings.Windows(
        observation=jnp.asarray(random.normal(size=(BATCH, num_observations, 4)), jnp.float32),
        reward=jnp.asarray(random.normal(size=shape), jnp.float32),
        terminated=jnp.zeros(shape, bool),
        truncated=jnp.zeros(shape, bool),
        extras={
            "action": jnp.asarray(random.integers(0, 3, shape), jnp.int32),
            "policy": jnp.asarray(random.dirichlet(np.ones(3), shape), jnp.float32),
            "value": jnp.asarray(random.normal(size=shape), jnp.float32),
        },
        valid=jnp.ones(shape, bool),
        weight=jnp.ones(BATCH),
        slot=jnp.zeros(BATCH, jnp.int32),
        time=jnp.zeros(BATCH, jnp.int32),
    )


@functools.cache
def _agent(config: config_lib.Config) -> tuple[base.Agent, Any]:
    """The agent and its jitted update (one device)."""
    agent = muzero.make(config, SPEC, "cpu")
    return agent, jax.jit(lambda state, windows, key: agent.update(state, windows, key, None))


def _init(config: config_lib.Config) -> base.TrainState:
    return jax.jit(_agent(config)[0].init)(jax.random.key(0))


def _update(config: config_lib.Config, state: base.TrainState, windows: rings.Windows) -> Any:
    return _agent(config)[1](state, windows, jax.random.key(1))


def _equal(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


# A model of two numbers: s_0 = p * observation, s_{k+1} = q * s_k, policy logits (s, 0). ----------------------------


def _hand_model_parts(config: config_lib.Config) -> muzero_model.Parts:
    num_bins = config.network.num_bins

    def predict(params: Any, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.concatenate([s, jnp.zeros_like(s)], axis=-1), jnp.zeros((s.shape[0], num_bins))

    network = networks.Network(
        init=lambda key: {},
        cast=lambda params: params,
        represent=lambda params, observation: params["p"] * observation,
        predict=predict,
        dynamics=lambda params, s, action: (params["q"] * s, jnp.zeros((s.shape[0], num_bins))),
    )
    spec = types.EnvSpec((1,), "float32", 2)
    optimizer, schedule = optimizers.make_optimizer(config.optimizer), optimizers.make_schedule(config.optimizer)
    return muzero_model.Parts(config, spec, network, optimizer, schedule)


def _hand_model_loss(config: config_lib.Config, windows: rings.Windows, params: Any) -> jax.Array:
    parts = _hand_model_parts(config)
    targets = muzero_loss.make_targets(parts, (), windows)
    actions = windows.extras["action"][:, : config.muzero.unroll_steps]
    return muzero_loss.loss_and_metrics(parts, params, windows, actions, targets)[0]


def _hand_model_windows(config: config_lib.Config) -> rings.Windows:
    windows = _windows(config)
    first_action = jnp.broadcast_to(jnp.array([1.0, 0.0]), (*windows.valid.shape, 2))
    extras = {**windows.extras, "policy": first_action, "action": jnp.zeros_like(windows.extras["action"])}
    return windows._replace(observation=jnp.full((BATCH, 1, 1), 2.0), extras=extras)


def _hand_model_config() -> config_lib.Config:
    return _config(muzero__value_loss_weight=0.0, muzero__reward_loss_weight=0.0)


def _cross_entropy(s: float) -> float:
    """Of logits (s, 0) to the first action, whose derivative is -1 / (1 + e^s)."""
    return float(np.log1p(np.exp(-s)))


@pytest.mark.parametrize("jit", [False, True])
def test_the_first_step_counts_whole_and_each_unrolled_one_by_1_over_k(jit: bool) -> None:
    config = _hand_model_config()
    loss = functools.partial(_hand_model_loss, config, _hand_model_windows(config))
    # p = 0.5, q = 2, observation 2: s = 1, 2, 4.
    expected = _cross_entropy(1.0) + (_cross_entropy(2.0) + _cross_entropy(4.0)) / 2
    np.testing.assert_allclose((jax.jit(loss) if jit else loss)({"p": 0.5, "q": 2.0}), expected, rtol=1e-6)


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_are_halved_into_the_state_at_each_unrolled_step(jit: bool) -> None:
    config = _hand_model_config()
    gradient = jax.grad(functools.partial(_hand_model_loss, config, _hand_model_windows(config)))
    result = (jax.jit(gradient) if jit else gradient)({"p": 0.5, "q": 2.0})
    g0, g1, g2 = (-1 / (1 + np.exp(s)) for s in (1.0, 2.0, 4.0))
    # s_1 = q s_0 and s_2 = q s_1; K = 2, so unrolled steps weigh 1/2; each passage into a state halves.
    d_s1 = g1 / 2 + 0.5 * 2.0 * g2 / 2
    d_q = d_s1 * 1.0 + (g2 / 2) * 2.0
    d_p = 2.0 * (g0 + 0.5 * 2.0 * d_s1)
    np.testing.assert_allclose([result["p"], result["q"]], [d_p, d_q], rtol=1e-5)


def test_the_loss_is_the_weighted_mean_over_windows() -> None:
    config = _hand_model_config()
    windows = _hand_model_windows(config)
    observation = jnp.array([1.0, 2.0, 3.0, 4.0])[:, None, None]
    params = {"p": 0.5, "q": 2.0}

    def loss(weight: list[float]) -> float:
        weighted = windows._replace(observation=observation, weight=jnp.array(weight))
        return float(_hand_model_loss(config, weighted, params))

    alone = [loss([float(i == j) for j in range(4)]) for i in range(4)]
    np.testing.assert_allclose(loss([1.0, 0.5, 2.0, 0.0]), alone[0] + 0.5 * alone[1] + 2.0 * alone[2], rtol=1e-6)


def test_policies_of_masked_positions_do_not_count() -> None:
    config = _hand_model_config()
    windows = _hand_model_windows(config)
    # Position 1 is terminal: only the policy of position 0 is trained.
    ended = windows._replace(
        valid=windows.valid.at[:, 2:].set(False), terminated=windows.terminated.at[:, 1].set(True)
    )
    loss = _hand_model_loss(config, ended, {"p": 0.5, "q": 2.0})
    np.testing.assert_allclose(loss, _cross_entropy(1.0), rtol=1e-6)


def _two_way_entropy(s: float) -> float:
    """Of logits (s, 0)."""
    p = 1 / (1 + np.exp(-s))
    return float(-p * np.log(p) - (1 - p) * np.log(1 - p))


def test_the_policy_s_entropy_is_taken_off_with_its_weight_where_the_policy_counts() -> None:
    plain = _hand_model_config()
    config = _config(muzero__value_loss_weight=0.0, muzero__reward_loss_weight=0.0, muzero__entropy_weight=0.3)
    windows, params = _hand_model_windows(config), {"p": 0.5, "q": 2.0}
    entropy = _two_way_entropy(1.0) + (_two_way_entropy(2.0) + _two_way_entropy(4.0)) / 2
    difference = _hand_model_loss(plain, windows, params) - _hand_model_loss(config, windows, params)
    np.testing.assert_allclose(difference, 0.3 * entropy, rtol=1e-5)
    ended = windows._replace(
        valid=windows.valid.at[:, 2:].set(False), terminated=windows.terminated.at[:, 1].set(True)
    )
    difference = _hand_model_loss(plain, ended, params) - _hand_model_loss(config, ended, params)
    np.testing.assert_allclose(difference, 0.3 * _two_way_entropy(1.0), rtol=1e-5)


def test_each_reward_is_trained_on_the_step_that_leads_to_its_position() -> None:
    """A dynamics function that says "the action's number" as reward is right when rewards repeat the action before."""
    config = _config(muzero__value_loss_weight=0.0, muzero__policy_loss_weight=0.0)
    windows = _windows(config)
    action = windows.extras["action"]
    reward = jnp.pad(action[:, :-1], ((0, 0), (1, 0)), constant_values=7).astype(jnp.float32)
    windows = windows._replace(reward=reward)

    def say_action(params: Any, s: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        return s, jnp.log(value_transforms.two_hot(action.astype(jnp.float32), 11, 5.0) + 1e-9)

    parts = _hand_model_parts(config)
    parts = parts._replace(network=parts.network._replace(dynamics=say_action))
    windows = windows._replace(observation=jnp.ones((BATCH, 1, 1)))
    targets = muzero_loss.make_targets(parts, (), windows)
    params = {"p": jnp.ones(()), "q": jnp.ones(())}
    two_actions = {**windows.extras, "policy": windows.extras["policy"][..., :2]}
    windows = windows._replace(extras=two_actions)
    _, metrics = muzero_loss.loss_and_metrics(parts, params, windows, action[:, :2], targets)
    encoded = value_transforms.two_hot(reward[:, 1:3], 11, 5.0)
    entropy = -jnp.sum(jnp.where(encoded > 0, encoded * jnp.log(encoded), 0.0), axis=-1)
    np.testing.assert_allclose(metrics["loss_reward"], jnp.mean(jnp.sum(entropy, axis=1) / 2), atol=1e-5)


# Bootstrapping from a target network: its value of a state is what the observation shows. ---------------------------


def _value_of_observation_parts(config: config_lib.Config) -> muzero_model.Parts:
    def predict(params: Any, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = jnp.log(value_transforms.two_hot(s[:, 0] + params["offset"], 11, 5.0) + 1e-12)
        return jnp.zeros((s.shape[0], 2)), logits

    parts = _hand_model_parts(config)
    return parts._replace(
        network=parts.network._replace(represent=lambda params, observation: observation, predict=predict)
    )


@pytest.mark.parametrize(
    ("last", "shown", "expected"),
    [
        # Rewards are 1, discount 1/2, n = 2: returns are 1.5 + v/4 where two steps are left, 1 + v/2 where one is.
        (4, [8.0, 12.0, 16.0], [1.5 + 8 / 4, 1.5 + 12 / 4, 1.5 + 16 / 4]),
        (3, [8.0, 12.0, 12.0], [1.5 + 8 / 4, 1.5 + 12 / 4, 1.0 + 12 / 2]),
        (1, [4.0, 4.0, 4.0], [1.0 + 4 / 2]),
    ],
)
def test_the_target_network_values_the_position_that_each_return_bootstraps_from(
    last: int, shown: list[float], expected: list[float]
) -> None:
    config = _config(muzero__target_network_updates=10)
    windows = _windows(config)
    observation = jnp.array([99.0, *shown])[None, :, None].repeat(BATCH, axis=0)
    positions = jnp.arange(5)
    windows = windows._replace(
        observation=observation,
        reward=jnp.ones_like(windows.reward),
        valid=jnp.broadcast_to(positions <= last, windows.valid.shape),
    )
    targets = muzero_loss.make_targets(_value_of_observation_parts(config), {"offset": 0.0}, windows)
    np.testing.assert_allclose(targets.value[0][: len(expected)], expected, rtol=1e-4)
    raised = muzero_loss.make_targets(_value_of_observation_parts(config), {"offset": 1.0}, windows)
    assert (np.asarray(raised.value[0])[: len(expected)] > np.array(expected)).all()


def test_only_a_target_network_needs_the_observations_it_looks_at() -> None:
    agent, _ = _agent(_config())
    assert agent.offsets == (0,)
    assert agent.future == 4
    with_target, _ = _agent(_config(muzero__target_network_updates=3))
    assert with_target.offsets == (0, 2, 3, 4)


def test_the_target_network_is_a_copy_every_so_many_updates() -> None:
    config = _config(muzero__target_network_updates=2)
    state = _init(config)
    initial = state.params
    assert _equal(state.target_params, initial)
    windows = _windows(config, num_observations=4)
    state, _, _ = _update(config, state, windows)
    assert _equal(state.target_params, initial)
    assert not _equal(state.params, initial)
    state, _, _ = _update(config, state, windows)
    assert _equal(state.target_params, state.params)


def test_without_a_target_network_the_state_holds_none() -> None:
    assert _init(_config()).target_params == ()


# Updates ------------------------------------------------------------------------------------------------------------


def test_an_update_reports_its_metrics_and_learns_the_batch() -> None:
    config = _config(optimizer__learning_rate=0.01)
    windows = _windows(config)
    state = _init(config)
    losses = []
    for _ in range(60):
        state, _, metrics = _update(config, state, windows)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.8 * losses[0]
    assert int(state.num_updates) == 60
    assert set(metrics) == {
        "loss",
        "loss_policy",
        "loss_value",
        "loss_reward",
        "grad_norm",
        "learning_rate",
        "value_mean",
        "value_target_mean",
        "policy_entropy",
        "num_rejected",
    }
    assert all(value.dtype == jnp.float32 and value.shape == () for value in metrics.values())


def test_an_update_that_is_not_finite_is_refused_and_counted_until_one_is_good() -> None:
    config = _config()
    good = _windows(config)
    bad = good._replace(reward=good.reward.at[0, 1].set(jnp.nan))
    state = before = _init(config)
    for refused in (1, 2):
        state, _, metrics = _update(config, state, bad)
        assert int(state.num_rejected) == int(metrics["num_rejected"]) == refused
        assert int(state.num_updates) == refused
        assert not np.isfinite(metrics["loss"])
    assert _equal((state.params, state.opt_state), (before.params, before.opt_state))
    state, _, _ = _update(config, state, good)
    assert int(state.num_rejected) == 0
    assert not _equal(state.params, before.params)


def test_a_windows_priority_is_how_far_its_target_is_from_the_searchs_value() -> None:
    config = _config(muzero__discount=0.5)
    windows = _windows(config)
    # n = 2 rewards of 1 and 0.5 * 2, and 0.25 times the value of position 2.
    reward = jnp.zeros_like(windows.reward).at[:, 1].set(1.0).at[:, 2].set(2.0)
    searched = jnp.arange(float(BATCH))
    value = jnp.full_like(windows.reward, 4.0).at[:, 0].set(searched)
    windows = windows._replace(reward=reward, extras={**windows.extras, "value": value})
    _, priority, _ = _update(config, _init(config), windows)
    np.testing.assert_allclose(priority, np.abs(np.arange(BATCH) - 3.0), atol=1e-6)


def test_actions_behind_an_episodes_end_are_random_and_earlier_ones_are_as_taken() -> None:
    config = _config()
    windows = _windows(config)
    # One window is whole; in the others the action of position 1 led nowhere.
    windows = windows._replace(valid=windows.valid.at[1:, 2:].set(False))
    parts = _hand_model_parts(config)._replace(spec=SPEC)
    drawn = np.stack([muzero_loss.unroll_actions(parts, windows, jax.random.key(i)) for i in range(40)])
    taken = np.asarray(windows.extras["action"])
    assert (drawn[:, :, 0] == taken[:, 0]).all()
    assert (drawn[:, 0, 1] == taken[0, 1]).all()
    assert all(set(drawn[:, i, 1]) == {0, 1, 2} for i in range(1, BATCH))


TWO_DEVICES = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
import functools, importlib.util, sys
import numpy as np
loader = importlib.util.spec_from_file_location("cases", sys.argv[1])
cases = importlib.util.module_from_spec(loader)
loader.loader.exec_module(cases)
P = jax.sharding.PartitionSpec
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("devices",))
config = cases._config()
agent, _ = cases._agent(config)
state, windows = cases._init(config), cases._windows(config)
whole, priority, metrics = cases._update(config, state, windows)
for check_vma in (False, True):
    update = lambda state, windows: agent.update(state, windows, jax.random.key(1), "devices")
    specs = dict(in_specs=(P(), P("devices")), out_specs=(P(), P("devices"), P()))
    mapped = jax.shard_map(update, mesh=mesh, check_vma=check_vma, **specs)
    sharded, sharded_priority, sharded_metrics = jax.jit(mapped)(state, windows)
    np.testing.assert_allclose(sharded_priority, priority, rtol=1e-5)
    for name, value in metrics.items():
        np.testing.assert_allclose(sharded_metrics[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    for a, b in zip(jax.tree.leaves(whole.params), jax.tree.leaves(sharded.params), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
"""


def test_two_devices_take_the_step_that_one_takes() -> None:
    result = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES, __file__], capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr[-2000:]


# The age of a step --------------------------------------------------------------------------------------------------


def _aged(windows: rings.Windows, versions: list[int]) -> rings.Windows:
    version = jnp.broadcast_to(jnp.array(versions, jnp.int32)[:, None], windows.valid.shape)
    return windows._replace(extras={**windows.extras, "version": version})


@pytest.mark.parametrize("bootstrap", ["stored", "target network"])
def test_old_windows_have_shorter_returns(bootstrap: str) -> None:
    every = 0 if bootstrap == "stored" else 7
    config = _config(muzero__n_step_decay_age=10, muzero__target_network_updates=every)
    # Observation and stored value of position k are both 5 k; the last window ends at position 1.
    numbers = jnp.broadcast_to(5.0 * jnp.arange(5.0), (BATCH, 5))
    windows = _windows(config)
    windows = windows._replace(
        observation=numbers[..., None].at[3, 2:].set(5.0),
        reward=jnp.ones_like(windows.reward),
        extras={**windows.extras, "value": numbers},
        valid=windows.valid.at[3, 2:].set(False),
    )
    parts = _value_of_observation_parts(config)
    make_targets = jax.jit(functools.partial(muzero_loss.make_targets, parts))
    targets = make_targets({"offset": 0.0}, _aged(windows, [50, 41, 40, 0]), jnp.int32(50))
    two, one = [1.5 + 10 / 4, 1.5 + 15 / 4, 1.5 + 20 / 4], [1.0 + 5 / 2, 1.0 + 10 / 2, 1.0 + 15 / 2]
    np.testing.assert_allclose(targets.value[:3], [two, two, one], rtol=1e-4)
    np.testing.assert_allclose(targets.value[3, 0], one[0], rtol=1e-4)


def test_a_target_network_sees_all_positions_that_old_steps_may_bootstrap_from() -> None:
    config = _config(muzero__n_step_decay_age=10, muzero__target_network_updates=7)
    assert muzero.make(config, SPEC, "cpu").offsets == (0, 1, 2, 3, 4)
    assert muzero.make(_config(muzero__n_step_decay_age=10), SPEC, "cpu").offsets == (0,)


@pytest.mark.parametrize(("start", "num_old"), [(50, 2), (51, 0)])
def test_old_windows_learn_the_searchs_value_once_the_model_is_trusted(start: int, num_old: int) -> None:
    config = _config(muzero__search_value_age=10, muzero__search_value_start=start)
    parts, params = _hand_model_parts(config), {"p": jnp.float32(0.5), "q": jnp.float32(2.0)}
    windows = _aged(_hand_model_windows(config), [50, 41, 40, 0])
    # Returns are 0.
    value = jnp.zeros_like(windows.reward).at[:, 0].set(8.0)
    windows = windows._replace(extras={**windows.extras, "value": value}, reward=jnp.zeros_like(windows.reward))
    state = base.TrainState(params, (), parts.optimizer.init(params), jnp.int32(50), jnp.int32(0))
    update = jax.jit(lambda state, key: muzero._update(parts, state, windows, key, None))
    _, priority, metrics = update(state, jax.random.key(0))
    np.testing.assert_allclose(metrics["value_target_mean"], 8.0 * num_old / BATCH, rtol=1e-6)
    # How far what was found is from the return: as without the switch.
    np.testing.assert_allclose(priority, np.full(BATCH, 8.0), rtol=1e-6)


# Consistency --------------------------------------------------------------------------------------------------------


def _consistency(
    parts: muzero_model.Parts, params: Any, hidden: jax.Array, windows: rings.Windows
) -> tuple[jax.Array, base.Metrics]:
    """Of projections that are the hidden states themselves; predictions are those with the second number scaled."""
    how = networks.Projection(
        project=lambda params, hidden: hidden * params["project"],
        predict=lambda params, x: x * jnp.array([1.0, 2.0]),
    )
    network = parts.network._replace(represent=lambda params, observation: observation * params["represent"])
    return muzero_loss._consistency(parts._replace(network=network), how, params, hidden, windows)


def _consistency_case(config: config_lib.Config) -> tuple[Any, jax.Array, rings.Windows]:
    random = np.random.default_rng(1)
    params = {"project": jnp.array([0.5, -2.0]), "represent": jnp.array([3.0, 1.0])}
    hidden = jnp.asarray(random.normal(size=(BATCH, 3, 2)), jnp.float32)
    windows = _windows(config)._replace(
        observation=jnp.asarray(random.normal(size=(BATCH, 3, 2)), jnp.float32), weight=jnp.array([1.0, 2.0, 0.5, 3.0])
    )
    # The second window has nothing but its first position, the third one more; that is a terminal one.
    valid = windows.valid.at[1, 1:].set(False).at[2, 2:].set(False)
    return params, hidden, windows._replace(valid=valid, terminated=windows.terminated.at[2, 1].set(True))


@pytest.mark.parametrize("num_steps", [0, 1])
def test_the_consistency_loss_is_what_numpy_computes(num_steps: int) -> None:
    config = _config(muzero__consistency_weight=2.0, muzero__consistency_steps=num_steps)
    params, hidden, windows = _consistency_case(config)
    loss, metrics = jax.jit(functools.partial(_consistency, _hand_model_parts(config)))(params, hidden, windows)
    expected = 0.0
    for b in range(BATCH):
        for k in range(1, 1 + (num_steps or 2)):
            if windows.valid[b, k]:
                x = np.array(hidden[b, k]) * [0.5, -2.0] * [1.0, 2.0]
                y = np.array(windows.observation[b, k]) * [3.0, 1.0] * [0.5, -2.0]
                cosine = x @ y / np.sqrt((x @ x) * (y @ y))
                expected -= float(windows.weight[b]) * cosine / 2 / BATCH
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert metrics["loss_consistency"] == loss
    assert 0.0 < metrics["projection_spread"] < 1.0


def test_no_gradient_of_the_consistency_goes_into_what_was_seen_later() -> None:
    config = _config(muzero__consistency_weight=2.0)
    params, hidden, windows = _consistency_case(config)
    parts = _hand_model_parts(config)
    gradient, into_hidden = jax.jit(jax.grad(lambda *args: _consistency(parts, *args, windows)[0], argnums=(0, 1)))(
        params, hidden
    )
    assert (gradient["represent"] == 0).all()
    assert (gradient["project"] != 0).all()
    assert (into_hidden[0, 1:] != 0).all()
    assert (into_hidden[:, 0] == 0).all()  # the first state has seen its observation
    assert (into_hidden[1] == 0).all()
    assert (into_hidden[2, 2] == 0).all()


def test_projections_of_one_direction_have_no_spread() -> None:
    config = _config(muzero__consistency_weight=2.0)
    params, hidden, windows = _consistency_case(config)
    same = windows._replace(observation=jnp.ones_like(windows.observation))
    _, metrics = _consistency(_hand_model_parts(config), params, hidden, same)
    np.testing.assert_allclose(metrics["projection_spread"], 0.0, atol=1e-6)


def test_consistency_is_learned_and_part_of_the_loss() -> None:
    config = _config(muzero__consistency_weight=2.0, optimizer__learning_rate=0.01)
    windows, state = _windows(config, num_observations=3), _init(config)
    assert {"projector", "predictor"} < set(state.params)
    seen = []
    for _ in range(30):
        state, _, metrics = _update(config, state, windows)
        parts = metrics["loss_policy"] + 0.25 * metrics["loss_value"] + metrics["loss_reward"]
        np.testing.assert_allclose(metrics["loss"], parts + 2.0 * metrics["loss_consistency"], rtol=1e-5)
        seen.append(float(metrics["loss_consistency"]))
    assert seen[-1] < seen[0] - 0.3
    assert {"projector", "predictor"}.isdisjoint(_init(_config()).params)


@pytest.mark.parametrize(
    ("changes", "offsets"),
    [
        ({"consistency_weight": 1.0}, (0, 1, 2)),
        ({"consistency_steps": 2}, (0,)),
        ({"consistency_weight": 1.0, "consistency_steps": 1}, (0, 1)),
        ({"consistency_weight": 1.0, "target_network_updates": 5}, (0, 1, 2, 3, 4)),
        (
            {"consistency_weight": 1.0, "consistency_steps": 1, "target_network_updates": 5, "n_step": 3},
            (0, 1, 3, 4, 5),
        ),
    ],
)
def test_each_observation_that_consistency_and_bootstraps_need_comes_once(
    changes: dict[str, config_lib.Value], offsets: tuple[int, ...]
) -> None:
    config = config_lib.override(_config(), {f"muzero.{name}": value for name, value in changes.items()})
    assert muzero.make(config, SPEC, "cpu").offsets == offsets


def test_consistency_does_not_move_what_the_target_network_looks_at() -> None:
    config = _config(muzero__target_network_updates=10, muzero__n_step=3)
    windows = _windows(config)._replace(observation=jnp.tile(jnp.arange(4.0)[None, :, None], (BATCH, 1, 1)))
    # Positions 0 | 3, 4, 5 become 0, 1 | 3, 4, 5.
    more = windows._replace(observation=jnp.insert(windows.observation, 1, 99.0, axis=1))
    consistency = {"muzero.consistency_weight": 1.0, "muzero.consistency_steps": 1}

    def values(config: config_lib.Config, windows: rings.Windows) -> jax.Array:
        make_targets = functools.partial(muzero_loss.make_targets, _value_of_observation_parts(config))
        return jax.jit(make_targets)({"offset": 0.0}, windows).value

    np.testing.assert_array_equal(values(config_lib.override(config, consistency), more), values(config, windows))


def test_more_steps_of_consistency_than_are_unrolled_are_refused_by_name() -> None:
    with pytest.raises(errors.ConfigError, match=r"consistency_steps=3 is more than the muzero.unroll_steps=2 there"):
        muzero.make(_config(muzero__consistency_weight=1.0, muzero__consistency_steps=3), SPEC, "cpu")


# Value prefix -------------------------------------------------------------------------------------------------------


def test_rewards_of_the_search_sum_up_to_what_is_trained() -> None:
    config = _config(muzero__value_prefix=True, muzero__value_prefix_horizon=2, muzero__unroll_steps=3)
    parts = muzero_model.make_parts(config, SPEC, "cpu")
    random = np.random.default_rng(0)
    observation = jnp.asarray(random.normal(size=(BATCH, 4)), jnp.float32)
    actions = jnp.asarray(random.integers(0, 3, (BATCH, 3)), jnp.int32)

    # As initialized, the heads would say 0.
    shapes = jax.eval_shape(parts.network.init, jax.random.key(0))
    params = jax.tree.map(lambda x: np.sin(1.0 + np.arange(x.size, dtype=np.float32)).reshape(x.shape) / 2, shapes)

    @jax.jit
    def both(observation: jax.Array, actions: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        logits = muzero_loss.unroll(parts, params, observation, actions)[2]
        embedding, rewards = muzero._root(parts, params, observation).embedding, []
        first = embedding
        for k in range(3):
            prediction, embedding = muzero._recurrent_fn(parts)(params, actions[:, k], embedding)
            rewards.append(prediction.reward)
            if k == 1:
                # The third step begins anew: it is as if the search began here.
                anew = first._replace(hidden=embedding.hidden)
        again = muzero._recurrent_fn(parts)(params, actions[:, 2], anew)[0].reward
        return value_transforms.expectation(logits, 5.0), jnp.stack(rewards, axis=1), again

    prefixes, rewards, again = both(observation, actions)
    assert np.abs(rewards).min() > 1e-4
    expected = np.stack([rewards[:, 0], rewards[:, 0] + rewards[:, 1], rewards[:, 2]], axis=1)
    np.testing.assert_allclose(prefixes, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(again, rewards[:, 2], rtol=1e-5)


def test_sums_of_rewards_are_trained_on_the_step_that_completes_them() -> None:
    """A model that says the sum of all actions since the sum began is right when rewards repeat the action before."""
    config = _config(
        muzero__value_prefix=True, muzero__value_prefix_horizon=2, muzero__unroll_steps=5, network__num_bins=101
    )
    windows = _windows(config)
    action = windows.extras["action"]
    windows = windows._replace(
        reward=jnp.pad(action[:, :-1], ((0, 0), (1, 0)), constant_values=7).astype(jnp.float32),
        observation=jnp.ones((BATCH, 1, 1)),
        extras={**windows.extras, "policy": windows.extras["policy"][..., :2]},
    )

    def encode(x: jax.Array) -> jax.Array:
        return value_transforms.two_hot(x, 101, 5.0)

    def step(params: Any, s: jax.Array, action: jax.Array, carry: Any) -> tuple[jax.Array, Any, jax.Array]:
        total = carry[0] + action
        return s, (total,), jnp.log(encode(total) + 1e-9)

    parts = _hand_model_parts(config)
    prefix = networks.Prefix(initial=lambda batch_size: (jnp.zeros(batch_size),), step=step)
    parts = parts._replace(network=parts.network._replace(prefix=prefix))

    @jax.jit
    def reward_loss(windows: rings.Windows) -> jax.Array:
        targets = muzero_loss.make_targets(parts, (), windows)
        return muzero_loss.loss_and_metrics(parts, {"p": 1.0}, windows, action[:, :5], targets)[1]["loss_reward"]

    a = np.asarray(action, np.float32)
    sums = encode(jnp.asarray(np.stack([a[:, 0], a[:, 0] + a[:, 1], a[:, 2], a[:, 2] + a[:, 3], a[:, 4]], axis=1)))
    entropy = -np.sum(np.where(sums > 0, sums * np.log(np.maximum(sums, 1e-30)), 0.0), axis=-1)
    np.testing.assert_allclose(reward_loss(windows), np.mean(entropy.sum(axis=1) / 5), atol=1e-5)
    assert reward_loss(windows._replace(reward=windows.reward + 1.0)) > 1.0


@pytest.mark.parametrize("policy", ["gumbel", "puct"])
def test_a_search_over_sums_of_rewards_finds_the_action_that_is_rewarded(policy: str) -> None:
    config = _config(search__policy=policy, search__num_simulations=24, muzero__discount=1.0)
    config = config_lib.override(config, {"muzero.value_prefix": True, "muzero.value_prefix_horizon": 2})

    def certain(x: jax.Array) -> jax.Array:
        return jnp.log(value_transforms.two_hot(x, 11, 5.0) + 1e-9)

    def step(params: Any, s: jax.Array, action: jax.Array, carry: Any) -> tuple[jax.Array, Any, jax.Array]:
        total = carry[0] + 0.5 * (action == 1)[:, None]
        return s, (total,), certain(total[:, 0])

    network = _hand_model_parts(config).network._replace(
        represent=lambda params, observation: observation,
        predict=lambda params, s: (jnp.zeros((len(s), 2)), certain(jnp.zeros(len(s)))),
        prefix=networks.Prefix(initial=lambda batch_size: (jnp.zeros((batch_size, 1)),), step=step),
    )
    parts = _hand_model_parts(config)._replace(network=network)
    inputs = _inputs(np.zeros((2, 1), np.float32), explore=jnp.zeros(2, bool), action_mask=jnp.ones((2, 2), bool))
    outputs = jax.jit(lambda key: muzero._act(parts, {}, muzero.Memory((), ()), inputs, key)[1])(jax.random.key(0))
    np.testing.assert_array_equal(outputs.action, [1, 1])
    assert (outputs.extras["policy"][:, 1] > 0.6).all()
    # Each step brings 1/2 at most; no path is longer than the simulations.
    assert ((outputs.extras["value"] > 0.4) & (outputs.extras["value"] < 12.0)).all()


# Augmentation -------------------------------------------------------------------------------------------------------

GRID_2D = types.EnvSpec((4, 5), "float32", 3)
GRID_3D = types.EnvSpec((4, 5, 2), "uint8", 3)


def _image_windows(
    config: config_lib.Config, spec: types.EnvSpec, num_observations: int = 1, num_windows: int = BATCH
) -> rings.Windows:
    shape = networks.stack_shape(spec.observation_shape, config.network.frame_stack)
    random = np.random.default_rng(0).integers(1, 256, (num_windows, num_observations, *shape))
    return _windows(config)._replace(observation=jnp.asarray(random, spec.observation_dtype))


def _augmented(config: config_lib.Config, spec: types.EnvSpec, windows: rings.Windows) -> rings.Windows:
    parts = _hand_model_parts(config)._replace(spec=spec)
    return jax.jit(functools.partial(muzero_loss.augment_windows, parts))(windows, jax.random.key(0))


@pytest.mark.parametrize("spec", [GRID_2D, GRID_3D], ids=["without channels", "with channels"])
def test_all_frames_of_an_observation_move_together(spec: types.EnvSpec) -> None:
    config = _config(muzero__shift_pixels=1, network__frame_stack=3)
    windows = _image_windows(config, spec, num_windows=20)
    augmented = _augmented(config, spec, windows)
    assert augmented.observation.dtype == spec.observation_dtype
    moves = set()
    pairs = zip(np.asarray(windows.observation)[:, 0], np.asarray(augmented.observation)[:, 0], strict=True)
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
    config = _config(muzero__shift_pixels=3, muzero__consistency_weight=1.0, muzero__consistency_steps=1)
    windows = _image_windows(config, GRID_3D, num_observations=4)
    after = np.asarray(_augmented(config, GRID_3D, windows).observation)
    assert after.shape[1] == 2
    before = np.asarray(windows.observation)[:, :2]
    assert (after != before).any(axis=(0, 2, 3, 4)).all()


def test_intensity_scales_each_observation_by_its_own_factor() -> None:
    config = _config(muzero__intensity_scale=0.1)
    windows = _image_windows(config, GRID_3D)
    factor = np.asarray(_augmented(config, GRID_3D, windows).observation) / np.asarray(windows.observation)
    np.testing.assert_allclose(factor, np.broadcast_to(factor[..., :1, :1, :1], factor.shape), rtol=1e-5)
    assert len(np.unique(np.round(factor[:, 0, 0, 0, 0], 4))) > 1


def test_augmentation_changes_the_loss_and_not_the_targets() -> None:
    def update(**changes: config_lib.Value) -> tuple[Any, base.Metrics]:
        config = _config(muzero__target_network_updates=2, **changes)
        parts, params = _hand_model_parts(config), {"p": jnp.float32(0.01), "q": jnp.float32(0.5)}
        # The value is the brightness.
        network = parts.network._replace(
            represent=lambda params, x: params["p"] * x.reshape(len(x), -1).mean(axis=1, keepdims=True, dtype=float),
            predict=lambda params, s: (jnp.zeros((len(s), 3)), s * jnp.arange(11.0)),
        )
        parts = parts._replace(spec=GRID_3D, network=network)
        windows = _image_windows(config, GRID_3D, num_observations=4)
        opt_state, zero = parts.optimizer.init(params), jnp.int32(0)
        state = base.TrainState(params, params, opt_state, zero, zero)
        return jax.jit(lambda key: muzero._update(parts, state, windows, key, None)[1:])(jax.random.key(1))

    priority, plain = update()
    augmented_priority, augmented = update(muzero__shift_pixels=2, muzero__intensity_scale=0.2)
    np.testing.assert_array_equal(priority, augmented_priority)
    assert plain["value_target_mean"] == augmented["value_target_mean"] != 0
    assert plain["loss"] != augmented["loss"]
    assert plain["value_mean"] != augmented["value_mean"]


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        ((4,), {"muzero.shift_pixels": 2}, r"shift_pixels=2 and .* observations are \[4\]; set both to 0"),
        ((4,), {"muzero.intensity_scale": 0.1}, r"intensity_scale=0.1 change images .* observations are \[4\]"),
        ((9, 4, 1), {"muzero.shift_pixels": 4}, "shift_pixels=4 moves images of 4 pixels out of sight"),
    ],
)
def test_augmentation_that_cannot_be_is_refused_by_name(
    shape: tuple[int, ...], changes: dict[str, config_lib.Value], message: str
) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        muzero.make(config_lib.override(_config(), changes), types.EnvSpec(shape, "float32", 3), "cpu")


# Optimizer ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 0, {0: 1.0, 10: 1.0, 1000: 1.0}),
        ("constant", 4, {0: 0.25, 1: 0.5, 3: 1.0, 4: 1.0}),
        ("cosine", 4, {0: 0.25, 4: 1.0, 54: 0.55, 104: 0.1, 500: 0.1}),
        ("exponential", 0, {0: 1.0, 100: 0.1, 200: 0.01}),
    ],
)
def test_the_learning_rate_follows_its_schedule(schedule: str, warmup: int, expected: dict[int, float]) -> None:
    config = config_lib.OptimizerConfig(
        learning_rate=2.0, schedule=schedule, warmup_updates=warmup, decay_updates=100, decay_rate=0.1
    )
    rate = jax.jit(optimizers.make_schedule(config))
    for num_updates, share in expected.items():
        np.testing.assert_allclose(rate(num_updates), 2.0 * share, rtol=1e-5)


def test_the_optimizer_is_adamw_that_decays_kernels_only() -> None:
    config = config_lib.OptimizerConfig(learning_rate=0.1, weight_decay=0.5, clip_norm=0.0)
    params = {"kernel": jnp.array([[1.0, -2.0]]), "bias": jnp.array([3.0, 4.0])}
    gradients = {"kernel": jnp.array([[0.3, 0.1]]), "bias": jnp.array([-0.2, 0.4])}
    optimizer = optimizers.make_optimizer(config)
    directions, _ = optimizer.update(gradients, optimizer.init(params), params)
    # Adam's first direction is the gradient's sign.
    np.testing.assert_allclose(directions["kernel"], [[1.0 + 0.5 * 1.0, 1.0 - 0.5 * 2.0]], atol=1e-5)
    np.testing.assert_allclose(directions["bias"], [-1.0, 1.0], atol=1e-5)


def test_gradients_are_clipped_to_the_global_norm() -> None:
    def moments(clip_norm: float) -> Any:
        optimizer = optimizers.make_optimizer(config_lib.OptimizerConfig(clip_norm=clip_norm))
        params = {"w": jnp.zeros(2)}
        _, state = optimizer.update({"w": jnp.array([30.0, 40.0])}, optimizer.init(params), params)
        return optax.tree_utils.tree_get(state, "mu")["w"]

    # Adam's first moment is a tenth of the gradient; its norm 50 is cut to 5.
    np.testing.assert_allclose(moments(5.0), [0.3, 0.4], rtol=1e-5)
    np.testing.assert_allclose(moments(0.0), [3.0, 4.0], rtol=1e-5)


# Acting -------------------------------------------------------------------------------------------------------------


def _inputs(observation: np.ndarray, **changes: Any) -> base.ActInputs:
    size = len(observation)
    inputs = base.ActInputs(
        observation=jnp.asarray(observation),
        first=jnp.zeros(size, bool),
        action_mask=jnp.ones((size, 3), bool),
        explore=jnp.ones(size, bool),
    )
    return inputs._replace(**changes)


def test_acting_leaves_in_replay_what_the_agent_declares() -> None:
    agent, _ = _agent(_config())
    params = _init(_config()).params
    observation = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    _, outputs = jax.jit(agent.act)(params, agent.initial_memory(8), _inputs(observation), jax.random.key(0))
    assert outputs.action.dtype == jnp.int32
    assert set(outputs.extras) == set(agent.extras)
    for name, (shape, dtype) in agent.extras.items():
        assert outputs.extras[name].shape == (8, *shape)
        assert outputs.extras[name].dtype == dtype
    np.testing.assert_array_equal(outputs.extras["action"], outputs.action)
    np.testing.assert_allclose(np.asarray(outputs.extras["policy"]).sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("jit", [False, True])
def test_the_value_to_store_is_the_mean_of_the_search_or_that_of_the_policy(jit: bool) -> None:
    root = search.Root(jnp.log(jnp.array([[0.5, 0.25, 0.25]])), jnp.array([4.0]), ())
    found = search.Result(
        action=jnp.array([0]),
        action_weights=jnp.array([[0.7, 0.1, 0.2]]),
        root_value=jnp.array([5.0]),
        visit_counts=jnp.array([[2, 1, 0]]),
        q_values=jnp.array([[10.0, 1.0, 0.0]]),
        max_depth=jnp.array([1]),
        mean_depth=jnp.array([1.0]),
    )

    def stored(which: str) -> float:
        parts = _hand_model_parts(_config(muzero__stored_value=which))
        value = functools.partial(muzero.search_value, parts)
        return float((jax.jit(value) if jit else value)(root, found)[0])

    # Visited actions average (10 / 2 + 1 / 4) / (3 / 4) = 7 by the prior; the mixed value is (4 + 3 * 7) / (1 + 3).
    np.testing.assert_allclose(stored("policy"), 0.7 * 10 + 0.1 * 1 + 0.2 * 6.25, rtol=1e-6)
    assert stored("root") == 5.0


def test_what_is_stored_as_value_changes_nothing_else() -> None:
    mean, policy = _choice(2, "gumbel").extras, _choice(2, "gumbel", muzero__stored_value="policy").extras
    assert (mean["value"] != policy["value"]).any()
    for name in ("action", "policy"):
        np.testing.assert_array_equal(mean[name], policy[name])


@pytest.mark.parametrize("policy", ["gumbel", "puct"])
def test_training_rows_explore_evaluation_rows_do_not_and_illegal_actions_are_left_out(policy: str) -> None:
    config = _config(search__policy=policy)
    agent = muzero.make(config, dataclasses.replace(SPEC, has_action_mask=True), "cpu")
    act, params = jax.jit(agent.act), _init(config).params
    observation = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    mask = np.ones((32, 3), bool)
    mask[:, 1] = False
    inputs = _inputs(observation, explore=jnp.arange(32) < 16, action_mask=jnp.asarray(mask))
    actions = np.stack([act(params, agent.initial_memory(32), inputs, jax.random.key(i))[1].action for i in range(5)])
    assert (actions[:, 16:] == actions[0, 16:]).all()
    assert (actions[:, :16] != actions[0, :16]).any()
    assert 1 not in actions


def test_the_stack_holds_the_newest_frames_and_begins_with_copies_of_the_first() -> None:
    spec = types.EnvSpec((2, 2, 1), "uint8", 3, observation_high=9)
    config = _config(network__frame_stack=3)
    seen: list[np.ndarray] = []
    agent = muzero.make(config, spec, "cpu")
    network = networks.make(config.network, spec, "cpu")
    parts = muzero_model.Parts(config, spec, network, optax.identity(), lambda step: step)
    past = agent.initial_memory(1).frames
    for number, first in [(1, True), (2, False), (3, False), (4, False), (7, True), (8, False)]:
        frame = jnp.full((1, 2, 2, 1), number, jnp.uint8)
        past, stacked = muzero.push_frame(parts, past, frame, jnp.array([first]))
        seen.append(np.asarray(stacked)[0, 0, 0])
    assert [list(stack) for stack in seen] == [[1, 1, 1], [1, 1, 2], [1, 2, 3], [2, 3, 4], [7, 7, 7], [7, 7, 8]]
    assert past.shape == agent.initial_memory(1).frames.shape
    assert past.dtype == jnp.uint8


def test_without_a_stack_environments_carry_nothing() -> None:
    assert _agent(_config())[0].initial_memory(5) == ((), ())


# Two players --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jit", [False, True])
def test_between_two_players_targets_change_their_sign_with_the_mover(jit: bool) -> None:
    parts = _hand_model_parts(_config())
    parts = parts._replace(spec=dataclasses.replace(parts.spec, num_players=2))
    windows = _windows(_config())._replace(reward=jnp.tile(jnp.array([9.0, 1.0, 2.0, 4.0, 8.0]), (BATCH, 1)))
    values = jnp.tile(jnp.array([10.0, 20.0, 30.0, 40.0, 50.0]), (BATCH, 1))
    windows = windows._replace(extras={**windows.extras, "value": values})
    make_targets = functools.partial(muzero_loss.make_targets, parts, ())
    targets = (jax.jit(make_targets) if jit else make_targets)(windows)
    # Discount 1/2, n = 2: 1 - 2/2 + 30/4, 2 - 4/2 + 40/4, 4 - 8/2 + 50/4
    np.testing.assert_allclose(targets.value[0], [7.5, 10.0, 12.5])


def test_values_of_the_target_network_change_their_sign_likewise() -> None:
    config = _config(muzero__target_network_updates=5)
    network = networks.make(config.network, SPEC, "cpu")
    parts = muzero_model.Parts(config, SPEC, network, optax.identity(), lambda step: step)
    windows = _windows(config, num_observations=4)
    # As initialized, the heads say 0.
    params = jax.tree.map(lambda x: x + 0.5 * jnp.arange(x.size).reshape(x.shape) / x.size, _init(config).params)
    alone = muzero_loss.make_targets(parts, params, windows._replace(reward=jnp.zeros_like(windows.reward)))
    parts = parts._replace(spec=dataclasses.replace(SPEC, num_players=2))

    def of_two_players(n: int) -> np.ndarray:
        changed = parts._replace(config=_config(muzero__target_network_updates=5, muzero__n_step=n))
        part = windows._replace(reward=jnp.zeros_like(windows.reward)[:, : n + 3])
        flags = {name: getattr(part, name)[:, : n + 3] for name in ("terminated", "truncated", "valid")}
        part = part._replace(**flags)
        return np.asarray(muzero_loss.make_targets(changed, params, part).value)

    assert np.abs(alone.value).min() > 0.01
    np.testing.assert_allclose(of_two_players(2), alone.value, rtol=1e-6)  # two steps ahead the same one moves
    np.testing.assert_allclose(of_two_players(1), -2 * alone.value, rtol=1e-6)  # and (-1/2)^1 in place of (1/2)^2


def _choice(num_players: int, policy: str, **changes: config_lib.Value) -> base.ActOutputs:
    """Searches where action 1 brings 0.5 and the end, action 0 nothing; but whoever moves after it gets 1.

    The model knows the rules, and nothing of values and policies.
    """
    config = _config(muzero__discount=1.0, search__policy=policy, search__num_simulations=32, **changes)
    spec = types.EnvSpec((1,), "float32", 2, num_players=num_players)
    start, chance, end = 0.0, 1.0, 2.0

    def certain(x: jax.Array) -> jax.Array:
        return jnp.log(value_transforms.two_hot(x, config.network.num_bins, config.network.support_limit) + 1e-9)

    def dynamics(params: Any, state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        is_start, is_chance = state[:, 0] == start, state[:, 0] == chance
        reward = jnp.where(is_start & (action == 1), 0.5, jnp.where(is_chance, 1.0, 0.0))
        return jnp.where(is_start & (action == 0), chance, end)[:, None], certain(reward)

    network = networks.Network(
        init=lambda key: {},
        cast=lambda params: params,
        represent=lambda params, observation: observation,
        predict=lambda params, state: (jnp.zeros((state.shape[0], 2)), certain(jnp.zeros(state.shape[0]))),
        dynamics=dynamics,
    )
    parts = muzero_model.Parts(config, spec, network, optax.identity(), lambda step: step)
    inputs = base.ActInputs(
        observation=jnp.array([[start]]),
        first=jnp.zeros(1, bool),
        action_mask=jnp.ones((1, 2), bool),
        explore=jnp.zeros(1, bool),
    )
    act = jax.jit(lambda inputs, key: muzero._act(parts, {}, muzero.Memory((), ()), inputs, key)[1])
    return act(inputs, jax.random.key(0))


@pytest.mark.parametrize("policy", ["gumbel", "puct"])
def test_the_search_counts_what_the_other_player_wins_as_lost(policy: str) -> None:
    alone, two = _choice(1, policy), _choice(2, policy)
    assert (int(alone.action[0]), int(two.action[0])) == (0, 1)
    assert alone.extras["policy"][0, 0] > 0.5 > two.extras["policy"][0, 0]


def test_policies_of_illegal_moves_are_0() -> None:
    agent = muzero.make(_config(), dataclasses.replace(SPEC, num_players=2, has_action_mask=True), "cpu")
    observation = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    mask = jnp.tile(jnp.array([[True, False, True], [False, False, True]]), (3, 1))
    inputs = _inputs(observation, action_mask=mask)
    _, outputs = jax.jit(agent.act)(_init(_config()).params, muzero.Memory((), ()), inputs, jax.random.key(0))
    assert (np.asarray(outputs.extras["policy"])[~np.asarray(mask)] == 0).all()


@pytest.mark.parametrize(
    ("num_players", "frame_stack", "message"),
    [(3, 1, "1 or 2 players; this one has 3"), (2, 4, "network.frame_stack=4 in a game of two players")],
)
def test_games_that_cannot_be_learned_are_refused_by_name(num_players: int, frame_stack: int, message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        muzero.make(
            _config(network__frame_stack=frame_stack), dataclasses.replace(SPEC, num_players=num_players), "cpu"
        )
