"""V-trace's loss, its gradient and its acting, against numpy and numbers worked by hand."""

from __future__ import annotations

import dataclasses

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import vtrace_cases as cases

from seedzero.agents import vtrace
from seedzero.config import config as configs
from seedzero.config import options
from seedzero.core import types
from seedzero.networks import inputs as network_inputs
from seedzero.replay import windows as windowing

MASKED = dataclasses.replace(cases.SPEC, has_action_mask=True)


# The loss -----------------------------------------------------------------------------------------------------------


class _Numpy:
    """The loss and its gradient in float64, step by step from the paper's sums (IMPALA, equation 1, section 4.2).

    v_s = V_s + sum over t >= s of gamma^(t-s) (c_s ... c_(t-1)) delta_t, up to the episode's end or the unroll's.
    """

    def __init__(self, config: configs.Config, windows: windowing.Windows) -> None:
        self.config = config.vtrace
        self.observation = np.asarray(agent_cases.shown(windows), np.float64)
        self.reward = np.asarray(windows.reward, np.float64)
        self.terminated, self.truncated = np.asarray(windows.terminated), np.asarray(windows.truncated)
        self.action = np.asarray(windows.stored["action"])
        self.behaviour = _log_softmax(np.asarray(windows.stored["logits"], np.float64))
        w, v = (np.asarray(x, np.float64) for x in cases.PARAMS)
        self.log_pi, self.value = _log_softmax(self.observation @ w), self.observation @ v
        self.weight = np.asarray(windows.weight, np.float64)

    def _ratio(self, b: int, t: int) -> float:
        action = self.action[b, t]
        return float(np.exp(self.log_pi[b, t, action] - self.behaviour[b, t, action]))

    def _is_step(self, b: int, t: int) -> bool:
        return not (self.terminated[b, t] or self.truncated[b, t])

    def _discount(self, b: int, t: int) -> float:
        return 0.0 if self.terminated[b, t + 1] else self.config.discount

    def _delta(self, b: int, t: int) -> float:
        reward, limit = self.reward[b, t + 1], self.config.clip_reward
        reward = np.clip(reward, -limit, limit) if limit else reward
        rho = min(self.config.clip_rho, self._ratio(b, t))
        return rho * (reward + self._discount(b, t) * self.value[b, t + 1] - self.value[b, t])

    def target(self, b: int, s: int) -> float:
        """Returns v_s; that of an episode's last observation or of the unroll's is its value."""
        total, factor = self.value[b, s], 1.0
        for t in range(s, cases.LENGTH):
            if not self._is_step(b, t):
                break
            total += factor * self._delta(b, t)
            trace = self.config.trace_decay * min(self.config.clip_c, self._ratio(b, t))
            factor *= self._discount(b, t) * trace
        return float(total)

    def advantage(self, b: int, t: int) -> float:
        """Returns rho (r + gamma q - V), where q is v_(t+1), mixed with the value by lambda."""
        reward, limit = self.reward[b, t + 1], self.config.clip_reward
        reward = np.clip(reward, -limit, limit) if limit else reward
        decay = self.config.trace_decay if t + 1 < cases.LENGTH else 1.0
        following = decay * self.target(b, t + 1) + (1 - decay) * self.value[b, t + 1]
        rho = min(self.config.clip_rho, self._ratio(b, t))
        return float(rho * (reward + self._discount(b, t) * following - self.value[b, t]))

    def loss_and_gradient(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Returns the loss, and its gradient into w [2, 3] and v [2]."""
        loss, into_w, into_v = 0.0, np.zeros((2, 3)), np.zeros(2)
        scale = self.config.batch_size / len(self.weight)
        for b in range(len(self.weight)):
            for t in range(cases.LENGTH):
                if not self._is_step(b, t):
                    continue
                weight, x, log_pi = scale * self.weight[b], self.observation[b, t], self.log_pi[b, t]
                pi, advantage, error = np.exp(log_pi), self.advantage(b, t), self.target(b, t) - self.value[b, t]
                entropy = -np.sum(pi * log_pi)
                loss -= weight * advantage * log_pi[self.action[b, t]]
                loss += weight * self.config.value_loss_weight * 0.5 * error**2
                loss -= weight * self.config.entropy_weight * entropy
                into_logits = advantage * (pi - np.eye(3)[self.action[b, t]])
                into_logits += self.config.entropy_weight * pi * (log_pi + entropy)
                into_w += weight * np.outer(x, into_logits)
                into_v -= weight * self.config.value_loss_weight * error * x
        return loss, into_w, into_v


def _log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True))


SETTINGS: list[dict[str, options.Value]] = [
    {},
    {"entropy_weight": 0.0, "value_loss_weight": 0.0},
    {"entropy_weight": 0.3, "value_loss_weight": 2.0, "clip_rho": 0.8, "clip_c": 0.6, "trace_decay": 0.7},
    {"clip_rho": 100.0, "clip_c": 100.0, "discount": 1.0},
    {"clip_reward": 0.5, "trace_decay": 0.0, "batch_size": 12},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_loss_and_gradient_are_what_numpy_computes(settings: dict[str, options.Value]) -> None:
    config, windows = cases.make_config(**settings), cases.make_windows()
    loss, gradient = cases.value_and_grad(config, windows)
    expected, into_w, into_v = _Numpy(config, windows).loss_and_gradient()
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    np.testing.assert_allclose(gradient.w, into_w, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(gradient.v, into_v, rtol=1e-3, atol=1e-5)


def test_the_loss_is_the_same_without_jit() -> None:
    config, windows = cases.make_config(**SETTINGS[2]), cases.make_windows()
    with jax.disable_jit():
        loss = cases.loss(config, windows, cases.PARAMS)
    np.testing.assert_allclose(loss, cases.value_and_grad(config, windows)[0], rtol=1e-5)


def test_one_step_worked_by_hand() -> None:
    """Logits 0 and behaviour (log 2, 0, 0): pi = 1/3, mu = 1/2, so rho = 2/3. V = 1, V' = 2, r = 3, gamma = 0.9."""
    config = cases.make_config(unroll_length=1, batch_size=1, entropy_weight=0.0)
    windows = jax.tree.map(lambda x: x[:1, :2] if x.ndim > 1 else x[:1], cases.make_windows())
    windows = agent_cases.show(windows, jnp.array([[[1.0, 0.0], [2.0, 0.0]]]))
    behaviour = jnp.broadcast_to(jnp.log(jnp.array([2.0, 1.0, 1.0])), (1, 2, 3))
    windows = agent_cases.store(windows, action=jnp.zeros((1, 2), jnp.int32), logits=behaviour)
    windows = windows._replace(reward=jnp.array([[9.0, 3.0]]))
    params = cases.Linear(jnp.zeros((2, 3)), jnp.array([1.0, 0.0]))
    parts = cases.linear_parts(config)
    gradient, (metrics, _) = jax.jit(jax.grad(lambda p: vtrace._loss_and_metrics(parts, p, windows), has_aux=True))(
        params
    )
    advantage = 2 / 3 * (3 + 0.9 * 2 - 1)
    np.testing.assert_allclose(metrics["loss_policy"], advantage * np.log(3), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss_value"], 0.5 * advantage**2, rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], advantage * np.log(3) + 0.25 * advantage**2, rtol=1e-5)
    np.testing.assert_allclose(metrics["value_mean"], 1.0, rtol=1e-5)
    np.testing.assert_allclose(metrics["value_target_mean"], 1 + advantage, rtol=1e-5)
    np.testing.assert_allclose(metrics["importance_mean"], 2 / 3, rtol=1e-5)
    np.testing.assert_allclose(metrics["policy_entropy"], np.log(3), rtol=1e-5)
    np.testing.assert_allclose(gradient.w[0], advantage * (np.full(3, 1 / 3) - [1, 0, 0]), rtol=1e-5)
    np.testing.assert_allclose(gradient.v, [-0.5 * advantage, 0.0], rtol=1e-5)


def test_what_follows_an_episodes_last_observation_is_no_step() -> None:
    """Neither the action there, nor its policy, nor the reward of the first row behind it counts."""
    config, windows = cases.make_config(), cases.make_windows()
    loss, gradient = cases.value_and_grad(config, windows)
    last = (jnp.array([1, 2]), jnp.array([2, 1]))
    behind = (last[0], last[1] + 1)
    changed = agent_cases.store(
        windows,
        action=(windows.stored["action"] + jnp.zeros_like(windows.stored["action"]).at[last].set(1)) % 3,
        logits=windows.stored["logits"].at[last].add(jnp.array([3.0, -3.0, 0.0])),
    )
    changed = changed._replace(reward=windows.reward.at[behind].set(100.0))
    other_loss, other_gradient = cases.value_and_grad(config, changed)
    assert other_loss == loss
    np.testing.assert_array_equal(other_gradient.w, gradient.w)


def test_values_count_beyond_truncations_and_not_beyond_terminal_ends() -> None:
    config, windows = cases.make_config(), cases.make_windows()
    loss, gradient = cases.value_and_grad(config, windows)

    def moved(b: int, t: int) -> tuple[float, cases.Linear]:
        return cases.value_and_grad(config, agent_cases.show(windows, agent_cases.shown(windows).at[b, t].add(1.0)))

    terminal_loss, terminal_gradient = moved(1, 2)
    assert terminal_loss == loss
    np.testing.assert_array_equal(terminal_gradient.v, gradient.v)
    assert moved(2, 1)[0] != loss


def test_the_loss_is_a_sum_over_the_steps_of_a_batch() -> None:
    """Twice the unrolls of one update, each as before: twice the loss (IMPALA, section 4.2)."""
    windows = cases.make_windows()
    twice = jax.tree.map(lambda x: jnp.concatenate([x, x]), windows)
    loss, gradient = cases.value_and_grad(cases.make_config(batch_size=3), windows)
    double_loss, double_gradient = cases.value_and_grad(cases.make_config(batch_size=6), twice)
    np.testing.assert_allclose(double_loss, 2 * loss, rtol=1e-5)
    np.testing.assert_allclose(double_gradient.w, 2 * gradient.w, rtol=1e-4)


@pytest.mark.parametrize("fill", [3.0, np.inf, np.nan])
def test_padding_changes_nothing_whatever_is_in_it(fill: float) -> None:
    config, windows = cases.make_config(), cases.make_windows()
    # The means of weights stay 1, as a queue gives them.
    windows = windows._replace(weight=jnp.ones(3))
    more = cases.padded(windows, fill)
    more = more._replace(weight=more.weight * 4 / 3)
    expected, metrics = cases.update(config, windows)
    found, padded_metrics = cases.update(config, more)
    assert int(found.num_rejected) == 0
    for name, value in metrics.items():
        np.testing.assert_allclose(padded_metrics[name], value, rtol=1e-5, err_msg=name)
    for one, other in zip(found.params, expected.params, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_batch_of_padding_alone_moves_nothing() -> None:
    after, metrics = cases.update(cases.make_config(), cases.make_windows()._replace(weight=jnp.zeros(3)))
    assert agent_cases.equal(after.params, cases.PARAMS)
    assert metrics["loss"] == metrics["grad_norm"] == metrics["num_rejected"] == 0


@pytest.mark.parametrize(("limit", "as_if"), [(1.0, 1.0), (0.25, 0.25), (0.0, 5.0)])
def test_rewards_are_clipped_to_the_limit_if_there_is_one(limit: float, as_if: float) -> None:
    windows = cases.make_windows()
    sign = jnp.sign(windows.reward)
    clipped, _ = cases.value_and_grad(cases.make_config(clip_reward=limit), windows._replace(reward=5.0 * sign))
    plain, _ = cases.value_and_grad(cases.make_config(), windows._replace(reward=as_if * sign))
    np.testing.assert_allclose(clipped, plain, rtol=1e-6)


# Masks --------------------------------------------------------------------------------------------------------------


def _legal(windows: windowing.Windows) -> windowing.Windows:
    """Returns windows where the last action is illegal everywhere, and never taken."""
    legal = jnp.broadcast_to(jnp.array([True, True, False]), (*windows.reward.shape, 3))
    return agent_cases.store(windows, legal=legal, action=windows.stored["action"] % 2)


def test_illegal_actions_are_never_learned() -> None:
    config = cases.make_config(entropy_weight=0.2)
    windows = _legal(cases.make_windows())
    loss, gradient = cases.value_and_grad(config, windows, MASKED)
    np.testing.assert_array_equal(gradient.w[:, 2], 0.0)
    assert np.all(gradient.w[:, :2] != 0)
    # Their logits, old and new, count for nothing.
    changed = agent_cases.store(windows, logits=windows.stored["logits"].at[..., 2].add(7.0))
    assert cases.value_and_grad(config, changed, MASKED)[0] == loss
    other = cases.PARAMS._replace(w=cases.PARAMS.w + np.array([0.0, 0.0, 9.0], np.float32))
    np.testing.assert_allclose(cases.loss(config, windows, other, MASKED), loss, rtol=1e-5)


def test_a_policy_over_legal_actions_is_that_of_an_environment_without_the_others() -> None:
    config, windows = cases.make_config(entropy_weight=0.2), _legal(cases.make_windows())
    loss, _ = cases.value_and_grad(config, windows, MASKED)
    two = agent_cases.store(windows, logits=windows.stored["logits"][..., :2])
    spec = types.EnvSpec((2,), "float32", 2)
    params = cases.PARAMS._replace(w=cases.PARAMS.w[:, :2])
    np.testing.assert_allclose(cases.loss(config, two, params, spec), loss, rtol=1e-5)


def test_a_single_legal_action_has_no_entropy_and_no_gradient() -> None:
    windows = cases.make_windows()
    legal = jnp.broadcast_to(jnp.array([False, True, False]), (*windows.reward.shape, 3))
    windows = agent_cases.store(windows, legal=legal, action=jnp.ones_like(windows.stored["action"]))
    _, gradient = cases.value_and_grad(cases.make_config(entropy_weight=0.5), windows, MASKED)
    np.testing.assert_array_equal(gradient.w, 0.0)
    assert np.all(gradient.v != 0)


def test_an_end_without_legal_actions_does_no_harm() -> None:
    config, windows = cases.make_config(), _legal(cases.make_windows())
    loss, gradient = cases.value_and_grad(config, windows, MASKED)
    none = windows.stored["legal"].at[1, 2].set(False).at[2, 1].set(False)
    found, other = cases.value_and_grad(config, agent_cases.store(windows, legal=none), MASKED)
    assert found == loss
    np.testing.assert_array_equal(other.w, gradient.w)


def test_illegal_actions_are_never_chosen() -> None:
    parts = cases.linear_parts(cases.make_config(), MASKED)
    # The illegal one has by far the largest logit.
    params = cases.PARAMS._replace(w=np.array([[0.0, 0.0, 50.0], [0.0, 0.0, 50.0]], np.float32))
    mask = jnp.tile(jnp.array([[True, True, False], [False, True, False]]), (32, 1))
    inputs = agent_cases.inputs(jnp.ones((64, 2)), action_mask=mask, explore=jnp.arange(64) < 32)
    act = jax.jit(lambda key: vtrace._act(parts, params, (), inputs, key)[1])
    actions = np.stack([act(jax.random.key(seed)).action for seed in range(10)])
    assert (actions[:, 1::2] == 1).all()
    assert set(actions[:, :32:2].reshape(-1).tolist()) == {0, 1}
    np.testing.assert_array_equal(act(jax.random.key(0)).stored["legal"], mask)


# Acting -------------------------------------------------------------------------------------------------------------


def test_training_samples_from_the_policy_and_evaluation_takes_the_likeliest_action() -> None:
    parts = cases.linear_parts(cases.make_config())
    observation = jnp.broadcast_to(jnp.array([1.0, -1.0]), (4096, 2))
    inputs = agent_cases.inputs(observation, explore=jnp.arange(4096) < 4000)
    _, outputs = vtrace._act(parts, cases.PARAMS, (), inputs, jax.random.key(0))
    logits = np.array([1.1, -0.7, 0.6])
    np.testing.assert_allclose(outputs.stored["logits"][0], logits, rtol=1e-5)
    shares = np.bincount(outputs.action[:4000], minlength=3) / 4000
    np.testing.assert_allclose(shares, np.exp(_log_softmax(logits)), atol=0.03)
    assert (outputs.action[4000:] == 0).all()
    np.testing.assert_array_equal(outputs.stored["action"], outputs.action)


def test_feed_forward_agents_remember_and_store_nothing_of_an_lstm() -> None:
    agent = vtrace.make(cases.make_config(), cases.SPEC, "cpu")
    assert agent.initial_memory(5) == ()
    assert set(agent.stored) == {"action", "logits"}
    recurrent = vtrace.make(cases.make_config(lstm_width=6), MASKED, "cpu")
    assert set(recurrent.stored) == {"action", "logits", "legal", "state", "last_action"}
    assert recurrent.stored["state"].shape == (12,)
    memory = recurrent.initial_memory(5)
    assert (memory.state.shape, memory.action.shape) == ((5, 12), (5,))
    assert not np.any(memory.state)


def test_the_queue_is_as_configured() -> None:
    config = cases.make_config(unroll_length=7, batch_size=6, max_lag=3, wait_seconds=2.5, frame_stack=2)
    agent = vtrace.make(config, cases.SPEC, "cpu")
    assert (agent.data.length, agent.data.batch_size, agent.data.max_lag, agent.data.wait_seconds) == (7, 6, 3, 2.5)
    assert agent.stack == 2
    assert agent.refresh is None


def test_an_update_reports_its_metrics() -> None:
    _, metrics = cases.update(cases.make_config(), cases.make_windows())
    assert set(metrics) == {
        "loss",
        "loss_policy",
        "loss_value",
        "policy_entropy",
        "value_mean",
        "value_target_mean",
        "importance_mean",
        "grad_norm",
        "learning_rate",
        "num_rejected",
    }
    _, gradient = cases.value_and_grad(cases.make_config(), cases.make_windows())
    np.testing.assert_allclose(metrics["grad_norm"], optax.tree.norm(gradient), rtol=1e-5)


def test_the_moments_of_pixels_are_those_of_the_rows_that_count() -> None:
    spec = types.EnvSpec((6, 5, 1), "uint8", 3, observation_low=0, observation_high=255)
    config = cases.make_config(normalize_pixels=True)
    agent = vtrace.make(config, spec, "cpu")
    windows = cases.make_windows()._replace(weight=jnp.array([1.0, 0.0, 1.5]))
    images = np.random.default_rng(0).integers(0, 256, (*windows.reward.shape, 6, 5, 1)).astype(np.uint8)
    state = jax.jit(agent.init)(jax.random.key(0))
    assert float(state.params[network_inputs.MOMENTS].weight) == 0
    update = jax.jit(lambda state, windows: agent.update(state, windows, jax.random.key(1), None))
    state, _, metrics = update(state, agent_cases.show(windows, images))
    assert float(metrics["num_rejected"]) == 0
    moments, seen = state.params[network_inputs.MOMENTS], images[[0, 2]].reshape(-1, 30) / 255.0
    assert float(moments.weight) == len(seen)
    np.testing.assert_allclose(moments.mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, seen.var(axis=0), rtol=1e-4)
