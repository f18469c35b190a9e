"""PPO's loss, its minibatches and its acting, against numpy and numbers worked by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import actor_critic_cases as cases  # beside this file: see conftest.py
import agent_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import learning, ppo
from seedzero.config import configs, options
from seedzero.core import errors, types
from seedzero.replay import windowing


def _config(**changes: options.Value) -> configs.Config:
    return cases.make_config("ppo", **changes)


def _windows(spec: types.EnvSpec = cases.SPEC) -> windowing.Windows:
    return cases.make_windows("ppo", spec)


# The loss -----------------------------------------------------------------------------------------------------------


class _Numpy:
    """The loss in float64, step by step from the paper's sums (equations 7, 9, 11 and 12)."""

    def __init__(self, config: configs.Config, windows: windowing.Windows, spec: types.EnvSpec) -> None:
        self.config, self.discount, self.spec = config.ppo, config.reward.discount, spec
        self.windows = jax.tree.map(np.asarray, windows)
        self.stored = {name: np.asarray(x, np.float64) for name, x in windows.stored.items()}
        self.observation = np.asarray(agent_cases.shown(windows), np.float64)
        self.params = cases.Linear(*(np.asarray(x, np.float64) for x in cases.params(spec)))

    def is_step(self, b: int, t: int) -> bool:
        return not (self.windows.terminated[b, t] or self.windows.truncated[b, t])

    def advantage(self, b: int, t: int) -> float:
        """Returns the sum over l of (gamma lambda)^l delta_(t+l), up to the episode's end or the unroll's."""
        total, factor, value = 0.0, 1.0, self.stored["value"]
        for u in range(t, cases.LENGTH):
            if not self.is_step(b, u):
                break
            discount = 0.0 if self.windows.terminated[b, u + 1] else self.discount
            total += factor * (self.windows.reward[b, u + 1] + discount * value[b, u + 1] - value[b, u])
            factor *= discount * self.config.trace_decay
        return float(total)

    def log_prob_and_entropy(self, b: int, t: int) -> tuple[float, float]:
        policy, action = self.observation[b, t] @ self.params.w, self.stored["action"][b, t]
        if self.spec.is_continuous:
            log_std = self.params.log_std
            log_density = -0.5 * ((action - policy) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
            return float(np.sum(log_density)), float(np.sum(log_std + 0.5 * np.log(2 * np.pi * np.e)))
        log_pi = policy - np.log(np.sum(np.exp(policy)))
        return float(log_pi[int(action)]), float(-np.sum(np.exp(log_pi) * log_pi))

    def metrics(self) -> dict[str, float]:
        config, rows = self.config, []
        steps = [(b, t) for b in range(cases.BATCH) for t in range(cases.LENGTH) if self.is_step(b, t)]
        advantages = np.array([self.advantage(b, t) for b, t in steps])
        weights = advantages
        if config.normalize_advantages:
            weights = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        for (b, t), advantage, weight in zip(steps, advantages, weights, strict=True):
            log_prob, entropy = self.log_prob_and_entropy(b, t)
            log_ratio = log_prob - self.stored["log_prob"][b, t]
            ratio, limit = np.exp(log_ratio), config.clip_ratio
            gain = min(ratio * weight, np.clip(ratio, 1 - limit, 1 + limit) * weight)
            old, new = self.stored["value"][b, t], self.observation[b, t] @ self.params.v
            errors = [(new - old - advantage) ** 2]
            if config.clip_value:
                errors.append((np.clip(new - old, -config.clip_value, config.clip_value) - advantage) ** 2)
            rows.append((gain, 0.5 * max(errors), entropy, ratio - 1 - log_ratio, abs(ratio - 1) > limit, new))
        gain, error, entropy, kl, clipped, value = np.mean(rows, axis=0)
        return {
            "loss": -gain + config.value_loss_weight * error - config.entropy_weight * entropy,
            "loss_policy": -gain,
            "loss_value": error,
            "policy_entropy": entropy,
            "policy_kl": kl,
            "clip_fraction": clipped,
            "value_mean": value,
        }


@pytest.mark.thorough
@pytest.mark.parametrize("spec", [cases.SPEC, cases.VECTORS], ids=["numbers", "vectors"])
@pytest.mark.parametrize(
    "settings",
    [
        {"entropy_weight": 0.3, "value_loss_weight": 2.0, "trace_decay": 0.7, "clip_ratio": 0.1},
        {"normalize_advantages": True, "clip_value": 0.3, "discount": 1.0},
    ],
    ids=str,
)
def test_loss_and_metrics_are_what_numpy_computes(settings: dict[str, options.Value], spec: types.EnvSpec) -> None:
    config, windows = _config(**settings), _windows(spec)
    metrics = cases.metrics(config, windows, spec)
    for name, expected in _Numpy(config, windows, spec).metrics().items():
        np.testing.assert_allclose(metrics[name], expected, rtol=2e-4, atol=1e-5, err_msg=name)


def _one_step(ratio: float, advantage: float) -> windowing.Windows:
    """Returns one step at which action 0 of three equally likely ones was so much less likely when it was chosen."""
    windows = agent_cases.part(_windows(), slice(1), slice(2))
    windows = agent_cases.show(windows, np.zeros((1, 2, 2), np.float32))
    zeros, log_prob = np.zeros((1, 2), np.float32), np.full((1, 2), np.log(1 / 3 / ratio), np.float32)
    windows = agent_cases.store(windows, action=zeros.astype(np.int32), log_prob=log_prob, value=zeros)
    return windows._replace(reward=np.array([[9.0, advantage]], np.float32))


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "clipped"),
    [
        (1.1, 2.0, 2.2, 0.0),
        (1.5, 2.0, 2.4, 1.0),  # no more than 1 + 0.2 times
        (0.5, 2.0, 1.0, 1.0),  # what became worse counts in full
        (0.5, -2.0, -1.6, 1.0),
        (1.5, -2.0, -3.0, 1.0),
    ],
)
def test_gains_are_clipped_by_hand(ratio: float, advantage: float, gain: float, clipped: float) -> None:
    metrics = cases.metrics(_config(), _one_step(ratio, advantage))
    np.testing.assert_allclose(metrics["loss_policy"], -gain, rtol=1e-5)
    np.testing.assert_allclose(metrics["loss_value"], 0.5 * advantage**2, rtol=1e-5)
    assert metrics["clip_fraction"] == clipped
    np.testing.assert_allclose(metrics["policy_entropy"], np.log(3), rtol=1e-5)
    np.testing.assert_allclose(metrics["policy_kl"], ratio - 1 - np.log(ratio), rtol=1e-3)


# Minibatches --------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(("num_minibatches", "size"), [(1, 12), (3, 4), (5, 3), (12, 1)])
def test_an_epoch_goes_over_all_steps_in_an_order_of_its_own(num_minibatches: int, size: int) -> None:
    rows = np.asarray(learning.minibatches(jax.random.key(0), 12, num_minibatches, 3))
    assert rows.shape == (3 * num_minibatches, size)
    epochs = [epoch[epoch >= 0].tolist() for epoch in rows.reshape(3, -1)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("num_unrolls", "num_minibatches", "num_devices", "sizes"),
    [(8, 4, 4, [2, 2, 2, 2]), (12, 4, 2, [3, 3, 3, 3]), (12, 5, 2, [2, 2, 3, 2, 3]), (4, 4, 4, [1, 1, 1, 1])],
)
def test_devices_make_the_minibatches_of_one_device_from_all_unrolls(
    num_unrolls: int, num_minibatches: int, num_devices: int, sizes: list[int]
) -> None:
    keys, share = jax.random.split(jax.random.key(0), num_devices), num_unrolls // num_devices
    rows = np.asarray(
        jax.vmap(lambda key: learning.minibatches(key, share, num_minibatches, 2, "devices"), axis_name="devices")(
            keys
        )
    ).reshape(num_devices, 2, num_minibatches, -1)
    assert np.sum(rows >= 0, axis=(0, 3)).tolist() == [sizes, sizes]
    for of_device in rows.reshape(num_devices * 2, -1):
        assert sorted(of_device[of_device >= 0]) == list(range(share))


def _updated_by_two_devices(config: configs.Config, windows: windowing.Windows) -> tuple[ppo.PpoTrainState, Any]:
    """Returns the state after an update over two devices, from the first one, and metrics."""
    parts, state = cases.linear_parts(config), cases.first_state(config)
    mapped = jax.shard_map(
        lambda windows: ppo._update(parts, state, windows, jax.random.key(0), "devices")[::2],
        mesh=jax.sharding.Mesh(np.array(jax.devices()[:2]), ("devices",)),
        in_specs=jax.P("devices"),
        out_specs=jax.P(),
        check_vma=False,
    )
    found: tuple[ppo.PpoTrainState, Any] = jax.jit(mapped)(windows)
    return found


@pytest.mark.thorough
def test_a_minibatch_that_has_no_unroll_of_a_device_is_that_of_the_others() -> None:
    """Two devices of one unroll each, two minibatches: each step of the optimizer learns from one unroll."""
    settings: dict[str, Any] = {"normalize_advantages": True, "learning_rate": 0.02, "lstm_width": 8}
    alone, windows = _config(**settings), agent_cases.part(_windows(), slice(2))
    windows = agent_cases.store(windows, state=np.zeros((2, 5, 0), np.float32), last_action=windows.stored["action"])
    expected = None
    for i in (1, 0):  # device 0 begins its only part in the second minibatch
        expected, _ = cases.update(alone, agent_cases.part(windows, slice(i, i + 1)), state=expected)
    found, _ = _updated_by_two_devices(_config(num_minibatches=2, **settings), windows)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), found.params, expected.params)


@pytest.mark.thorough
def test_devices_normalize_the_advantages_of_a_minibatch_together() -> None:
    config, windows = _config(normalize_advantages=True, learning_rate=0.02), agent_cases.part(_windows(), slice(2))
    windows = windows._replace(reward=windows.reward * np.array([[30.0], [1.0]], np.float32))
    expected, metrics = cases.update(config, windows)
    found, of_devices = _updated_by_two_devices(config, windows)
    for name, value in metrics.items():
        np.testing.assert_allclose(of_devices[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), found.params, expected.params)


@pytest.mark.thorough
def test_a_few_updates_raise_the_likelihood_of_the_advantaged_action() -> None:
    """Action 1 is worth 1, the others nothing; values are 0. An observation stays the same."""
    config = _config(num_epochs=4, num_minibatches=3, learning_rate=0.02, trace_decay=0.0, discount=0.0)
    windows, state = _windows(), cases.first_state(config)
    windows = agent_cases.show(windows, np.ones_like(agent_cases.shown(windows)))
    likely = []
    for seed in range(5):
        logits = agent_cases.shown(windows) @ np.asarray(state.params.w)
        log_pi = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
        action = windows.stored["action"]
        likely.append(np.mean(np.exp(log_pi[..., 1])))
        log_prob = np.take_along_axis(log_pi, action[..., None], axis=-1)[..., 0].astype(np.float32)
        reward = np.zeros_like(log_prob)
        reward[:, 1:] = action[:, :-1] == 1
        now = agent_cases.store(windows, log_prob=log_prob, value=np.zeros_like(log_prob))._replace(reward=reward)
        state, metrics = cases.update(config, now, state=state, seed=seed)
        assert metrics["num_rejected"] == 0
    assert np.all(np.diff(likely) > 0) and likely[-1] > likely[0] + 0.05


def test_the_learning_rate_and_if_configured_the_clip_fall_linearly_to_0() -> None:
    falling = _config(learning_rate=0.5, clip_ratio=0.2, decay_updates=100, decay_clip=True)
    rates = np.array([ppo._rates(falling, jnp.int32(n)) for n in (0, 25, 100, 1000)])
    np.testing.assert_allclose(rates, [[0.5, 0.2], [0.375, 0.15], [0, 0], [0, 0]], atol=1e-7)
    half = _config(learning_rate=0.5, clip_ratio=0.2, decay_updates=100)
    np.testing.assert_allclose(ppo._rates(half, jnp.int32(50)), [0.25, 0.2])
    np.testing.assert_allclose(ppo._rates(_config(learning_rate=0.5), jnp.int32(50)), [0.5, 0.2])


def test_more_minibatches_than_steps_are_refused() -> None:
    with pytest.raises(
        errors.ConfigError, match=r"ppo\.num_minibatches .*13; .* 12.*ppo\.batch_size.*ppo\.unroll_length"
    ):
        _config(num_minibatches=13)


# Statistics ---------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_rewards_are_divided_by_the_standard_deviation_of_earlier_returns() -> None:
    config = _config(reward__normalize=True)
    windows = _windows()
    returns = np.zeros((3, 5), np.float32)
    returns[:, ::2] = 4.0  # 0 and 4, but for the last column, which begins the next unroll: standard deviation 2
    windows = agent_cases.store(windows, **{"return": returns})
    after, first = cases.update(config, windows)
    np.testing.assert_allclose(after.returns.variance, [4.0], rtol=1e-5)
    halved = cases.metrics(_config(), windows._replace(reward=windows.reward / 2))
    np.testing.assert_allclose(first["value_target_mean"], halved["value_target_mean"], rtol=1e-4)


def test_the_first_reward_after_a_batch_without_any_is_of_a_usual_size() -> None:
    config, windows = _config(reward__normalize=True), _windows()
    none = agent_cases.store(windows._replace(reward=0 * windows.reward), **{"return": np.zeros((3, 5), np.float32)})
    state, _ = cases.update(config, none)
    assert np.asarray(state.returns.variance).tolist() == [0.0]
    returns, reward = np.zeros((2, 3, 5), np.float32)
    returns[0, 1] = reward[0, 1] = 1.0
    some = agent_cases.store(windows._replace(reward=reward), **{"return": returns})
    _, metrics = cases.update(config, some, state=cases.first_state(config)._replace(returns=state.returns))
    deviation = np.sqrt(1 / 24 - 1 / 24**2)  # of 12 rows without a reward and 12 with one
    scaled = cases.metrics(_config(), some._replace(reward=reward / deviation))
    np.testing.assert_allclose(metrics["value_target_mean"], scaled["value_target_mean"], rtol=1e-4)


def test_acting_carries_the_discounted_return_of_each_episode() -> None:
    parts = cases.linear_parts(_config(reward__normalize=True, reward__scale=0.5))
    inputs = agent_cases.inputs(np.ones((2, 2), np.float32), first=np.array([False, True]))
    inputs = inputs._replace(reward=np.array([2.0, 0.0], np.float32))
    act = jax.jit(lambda memory: ppo._act(parts, ppo.PpoActing(cases.params(), ()), memory, inputs, jax.random.key(0)))
    memory, outputs = act(ppo.PpoMemory(returns=np.array([10.0, 10.0], np.float32)))
    np.testing.assert_allclose(memory.returns, [0.9 * 10 + 0.5 * 2, 0.0])
    np.testing.assert_array_equal(outputs.stored["return"], memory.returns)


@pytest.mark.parametrize(("moves_again", "last"), [(True, 4.0 - 0.9 * 2.9), (False, 4.0 - 0.9 * (2.0 - 0.9))])
def test_a_return_changes_its_sign_only_when_the_turn_passes(moves_again: bool, last: float) -> None:
    spec = dataclasses.replace(cases.SPEC, num_players=2, moves_again=moves_again)
    config = _config(reward__normalize=True)
    parts, memory = cases.linear_parts(config, spec), ppo.make(config, spec, "cpu").initial_memory(1)
    act = jax.jit(lambda *given: ppo._act(parts, ppo.PpoActing(cases.params(), ()), *given, jax.random.key(0)))
    for number, (mover, reward) in enumerate([(0, 0.0), (0, 1.0), (1, 2.0), (1, 4.0)]):  # of the mover before
        inputs = agent_cases.inputs(np.array([[1.0, mover]], np.float32), first=np.array([number == 0]))
        memory, outputs = act(memory, inputs._replace(reward=np.array([reward], np.float32)))
    np.testing.assert_allclose(outputs.stored["return"], [last], rtol=1e-6)


@pytest.mark.thorough
def test_what_acts_has_the_moments_that_updates_have_counted() -> None:
    agent = ppo.make(_config(network__normalize_observations=True), cases.SPEC, "cpu")
    state = jax.jit(agent.init)(jax.random.key(0))
    windows = agent_cases.show(_windows(), 5.0 + 2.0 * agent_cases.shown(_windows()))
    after, _, _ = jax.jit(lambda state, windows: agent.update(state, windows, jax.random.key(0), None))(state, windows)
    seen = agent_cases.shown(windows)[:, :-1].reshape(-1, 2)
    np.testing.assert_allclose(agent.acting(after).moments.mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(agent.acting(after).moments.variance, seen.var(axis=0), rtol=1e-4)
    assert not np.any(agent.acting(state).moments.mean)


# Acting -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("squash", [False, True])
def test_vectors_are_normal_and_within_the_bounds(squash: bool) -> None:
    parts, params = cases.linear_parts(_config(squash=squash), cases.VECTORS), cases.params(cases.VECTORS)
    observation = np.tile(np.array([[1.0, -1.0]], np.float32), (4096, 1))
    inputs = agent_cases.inputs(observation, 0, action_mode=np.arange(4096) < 4000)
    act = jax.jit(lambda key: ppo._act(parts, ppo.PpoActing(params, None), ppo.PpoMemory(), inputs, key)[1])
    outputs = act(jax.random.key(0))
    mean, raw = np.array([1.1, -0.7, 0.6]), np.asarray(outputs.stored["action"])
    np.testing.assert_allclose(raw[:4000].mean(axis=0), mean, atol=0.1)
    np.testing.assert_allclose(raw[:4000].std(axis=0), np.exp(params.log_std), rtol=0.1)
    np.testing.assert_allclose(raw[4000:], np.tile(mean, (96, 1)), rtol=1e-5)
    unit = np.tanh(raw) if squash else np.clip(raw, -1, 1)
    low, high = cases.VECTORS.action_bounds
    np.testing.assert_allclose(outputs.action, low + (unit + 1) / 2 * (high - low), atol=1e-5)


def test_illegal_actions_are_never_learned() -> None:
    windows = _windows()
    legal = np.broadcast_to(np.array([True, True, False]), (3, 5, 3))
    windows = agent_cases.store(windows, legal=legal, action=windows.stored["action"] % 2)
    after, metrics = cases.update(_config(), windows, cases.MASKED)
    change = np.asarray(after.params.w) - cases.params().w
    assert not np.any(change[:, 2]) and np.all(change[:, :2] != 0)
    assert metrics["policy_entropy"] < np.log(2) + 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize(("platform", "num_convolutions"), [("cpu", 0), ("gpu", 2)])
def test_the_loop_of_an_update_holds_no_convolution_on_a_cpu(platform: str, num_convolutions: int) -> None:
    spec = types.EnvSpec((6, 5, 1), "uint8", 3, observation_low=0, observation_high=1)
    agent = ppo.make(_config(num_epochs=3, num_minibatches=2, width=8), spec, platform)
    seen = np.zeros((cases.BATCH, cases.LENGTH + 1, 6, 5, 1), np.uint8)
    windows = _windows()._replace(observation={types.OBSERVATION: seen})
    state = jax.eval_shape(agent.init, jax.random.key(0))
    program = jax.make_jaxpr(lambda *given: agent.update(*given, None))(state, windows, jax.random.key(0))
    [loop] = [x for x in program.jaxpr.eqns if x.primitive.name == "scan" and x.params["length"] == 6]
    assert str(loop.params["jaxpr"]).count("conv_general_dilated[") == num_convolutions  # and its kernel's gradient
