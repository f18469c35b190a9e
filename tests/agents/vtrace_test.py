"""V-trace's loss, its gradient and its updates, against numpy and numbers worked by hand."""

from __future__ import annotations

import actor_critic_cases as cases  # beside this file: see conftest.py
import agent_cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from seedzero.agents import learning, vtrace
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.networks import observations
from seedzero.replay import ring_store, windowing


def _config(**changes: options.Value) -> configs.Config:
    return cases.make_config("vtrace", **changes)


def _windows() -> windowing.Windows:
    """Returns the unrolls of `actor_critic_cases` with weights."""
    return cases.make_windows("vtrace")._replace(weight=jnp.array([1.0, 0.5, 1.5]))


def _loss_and_gradient(
    config: configs.Config,
    windows: windowing.Windows,
    spec: types.EnvSpec = cases.SPEC,
    params: cases.Linear | None = None,
) -> tuple[float, cases.Linear]:
    gradient, metrics = cases.gradient_and_metrics(config, windows, spec, params)
    return float(metrics["loss"]), gradient


# The loss -----------------------------------------------------------------------------------------------------------


class _Numpy(cases.VtraceNumpy):
    """The loss and its gradient in float64, step by step from the paper's sums (IMPALA, section 4.2)."""

    def __init__(self, config: configs.Config, windows: windowing.Windows) -> None:
        self.observation = np.asarray(agent_cases.shown(windows), np.float64)
        w, v, _ = (np.asarray(x, np.float64) for x in cases.params())
        super().__init__(config, windows, self.observation @ w, self.observation @ v)

    def loss_and_gradient(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Returns the loss, and its gradient into w [2, 3] and v [2]."""
        loss, into_w, into_v = 0.0, np.zeros((2, 3)), np.zeros(2)
        for b, t in self.steps():
            weight, x, log_pi = self.weight[b], self.observation[b, t], self.log_pi[b, t]
            pi, advantage, error = np.exp(log_pi), self.advantage(b, t), self.target(b, t) - self.value[b, t]
            entropy = -np.sum(pi * log_pi)
            loss -= weight * advantage * log_pi[self.action[b, t]]
            loss += weight * self.config.value_loss_weight * 0.5 * error**2
            loss -= weight * self.config.entropy_weight * entropy
            into_logits = advantage * (pi - np.eye(3)[self.action[b, t]])
            into_logits += self.config.entropy_weight * pi * (log_pi + entropy)
            into_w += weight * np.outer(x, into_logits)
            into_v -= weight * self.config.value_loss_weight * error * x
        scale = self.config.batch_size / len(self.weight)
        return scale * loss, scale * into_w, scale * into_v


SETTINGS: list[dict[str, options.Value]] = [
    {},
    {"entropy_weight": 0.0, "value_loss_weight": 0.0},
    {"entropy_weight": 0.3, "value_loss_weight": 2.0, "clip_rho": 0.8, "clip_c": 0.6, "trace_decay": 0.7},
    {"clip_rho": 100.0, "clip_c": 100.0, "discount": 1.0},
    {"reward__clip": 0.5, "trace_decay": 0.0, "batch_size": 12},
]


@pytest.mark.thorough
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_loss_and_gradient_are_what_numpy_computes(settings: dict[str, options.Value]) -> None:
    config, windows = _config(**settings), _windows()
    loss, gradient = _loss_and_gradient(config, windows)
    expected, into_w, into_v = _Numpy(config, windows).loss_and_gradient()
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    np.testing.assert_allclose(gradient.w, into_w, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(gradient.v, into_v, rtol=1e-3, atol=1e-5)


@pytest.mark.thorough
def test_the_loss_is_the_same_without_jit() -> None:
    config, windows = _config(**SETTINGS[2]), _windows()
    with jax.disable_jit():
        loss, _ = vtrace._loss_and_metrics(cases.linear_parts(config), cases.params(), windows)
    np.testing.assert_allclose(loss, _loss_and_gradient(config, windows)[0], rtol=1e-5)


def test_one_step_worked_by_hand() -> None:
    """Logits 0 and behaviour (log 2, 0, 0): pi = 1/3, mu = 1/2, so rho = 2/3. V = 1, V' = 2, r = 3, gamma = 0.9."""
    config = _config(unroll_length=1, batch_size=1, entropy_weight=0.0)
    windows = agent_cases.part(_windows(), slice(1), slice(2))
    windows = agent_cases.show(windows, jnp.array([[[1.0, 0.0], [2.0, 0.0]]]))
    behaviour = jnp.broadcast_to(jnp.log(jnp.array([2.0, 1.0, 1.0])), (1, 2, 3))
    windows = agent_cases.store(windows, action=jnp.zeros((1, 2), jnp.int32), logits=behaviour)
    windows = windows._replace(reward=jnp.array([[9.0, 3.0]]))
    params = cases.Linear(np.zeros((2, 3), np.float32), np.array([1.0, 0.0], np.float32), np.zeros(0, np.float32))
    gradient, metrics = cases.gradient_and_metrics(config, windows, at=params)
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


# Masks --------------------------------------------------------------------------------------------------------------


def _legal(windows: windowing.Windows) -> windowing.Windows:
    """Returns windows where the last action is illegal everywhere, and never taken."""
    legal = jnp.broadcast_to(jnp.array([True, True, False]), (*windows.reward.shape, 3))
    return agent_cases.store(windows, legal=legal, action=windows.stored["action"] % 2)


def test_illegal_actions_are_never_learned() -> None:
    config = _config(entropy_weight=0.2)
    windows = _legal(_windows())
    loss, gradient = _loss_and_gradient(config, windows, cases.MASKED)
    np.testing.assert_array_equal(gradient.w[:, 2], 0.0)
    assert np.all(gradient.w[:, :2] != 0)
    # Their logits, old and new, count for nothing.
    changed = agent_cases.store(windows, logits=windows.stored["logits"].at[..., 2].add(7.0))
    assert _loss_and_gradient(config, changed, cases.MASKED)[0] == loss
    other = cases.params()._replace(w=cases.params().w + np.array([0.0, 0.0, 9.0], np.float32))
    np.testing.assert_allclose(_loss_and_gradient(config, windows, cases.MASKED, other)[0], loss, rtol=1e-5)


def test_a_policy_over_legal_actions_is_that_of_an_environment_without_the_others() -> None:
    config, windows = _config(entropy_weight=0.2), _legal(_windows())
    loss, _ = _loss_and_gradient(config, windows, cases.MASKED)
    two = agent_cases.store(windows, logits=windows.stored["logits"][..., :2])
    spec = types.EnvSpec((2,), "float32", 2)
    params = cases.params()._replace(w=cases.params().w[:, :2])
    np.testing.assert_allclose(_loss_and_gradient(config, two, spec, params)[0], loss, rtol=1e-5)


def test_an_end_without_legal_actions_does_no_harm() -> None:
    config, windows = _config(), _legal(_windows())
    loss, gradient = _loss_and_gradient(config, windows, cases.MASKED)
    none = windows.stored["legal"].at[1, 2].set(False).at[2, 1].set(False)
    found, other = _loss_and_gradient(config, agent_cases.store(windows, legal=none), cases.MASKED)
    assert found == loss
    np.testing.assert_array_equal(other.w, gradient.w)


def test_moves_of_others_shorten_no_trace() -> None:
    """On the policy itself every weight is 1, so a smaller clip shortens traces as a smaller lambda does."""
    windows = _windows()
    logits = agent_cases.shown(windows) @ cases.params().w
    own = jnp.arange(windows.reward.shape[1])[None] % 2 == jnp.array([[0], [1], [0]])
    windows = agent_cases.store(windows, logits=logits, **{ring_store.OWN: own})
    clipped, decayed = (
        cases.gradient_and_metrics(_config(**changes), windows)[1]
        for changes in ({"clip_c": 0.5}, {"trace_decay": 0.5})
    )
    np.testing.assert_allclose(clipped["loss_value"], decayed["loss_value"], rtol=1e-5)
    np.testing.assert_allclose(clipped["value_target_mean"], decayed["value_target_mean"], rtol=1e-5)


# Updates ------------------------------------------------------------------------------------------------------------


def _step(config: configs.Config, *, num_updates: int = 0) -> tuple[cases.Linear, cases.Linear]:
    """Returns the gradient, and the change of the parameters by one update."""
    state = cases.first_state(config)._replace(num_updates=jnp.int32(num_updates))
    after, _ = cases.update(config, _windows(), state=state)
    changes = (np.asarray(new) - old for new, old in zip(after.params, cases.params(), strict=True))
    return _loss_and_gradient(config, _windows())[1], cases.Linear(*changes)


def test_rmsprop_divides_by_the_root_of_the_mean_square_and_epsilon() -> None:
    gradient, change = _step(_config(learning_rate=0.01, rmsprop_decay=0.9, optimizer__epsilon=0.5))
    for g, d in zip(gradient, change, strict=True):
        np.testing.assert_allclose(d, -0.01 * g / np.sqrt(0.1 * g**2 + 0.5), rtol=1e-3, atol=1e-6)


def test_the_learning_rate_falls_linearly_to_0_or_stays() -> None:
    falling = learning.schedule(_config(learning_rate=0.5, decay_updates=100).optimizer)
    rates = [float(falling(jnp.int32(n))) for n in (0, 25, 50, 100, 1000)]
    np.testing.assert_allclose(rates, [0.5, 0.375, 0.25, 0.0, 0.0], atol=1e-7)
    constant = learning.schedule(_config(learning_rate=0.5).optimizer)
    assert [float(constant(jnp.int32(n))) for n in (0, 10**6)] == [0.5, 0.5]


def test_updates_are_as_large_as_the_schedule_says() -> None:
    config = _config(learning_rate=0.01, decay_updates=100)
    begin, half, end = (_step(config, num_updates=number)[1] for number in (0, 50, 100))
    np.testing.assert_allclose(half.w, begin.w / 2, rtol=1e-3)
    assert not np.any(end.w)


def test_an_update_reports_its_metrics() -> None:
    _, metrics = cases.update(_config(), _windows())
    of_loss = {"loss", "loss_policy", "loss_value", "policy_entropy", "value_mean", "value_target_mean"}
    assert set(metrics) == of_loss | {"importance_mean", "grad_norm", "learning_rate", "num_rejected"}
    _, gradient = _loss_and_gradient(_config(), _windows())
    np.testing.assert_allclose(metrics["grad_norm"], optax.tree.norm(gradient), rtol=1e-5)


@pytest.mark.thorough
def test_the_moments_of_pixels_are_those_of_the_rows_that_count() -> None:
    spec = types.EnvSpec((6, 5, 1), "uint8", 3, observation_low=0, observation_high=255)
    config = _config(normalize_pixels=True)
    agent = vtrace.make(config, spec, "cpu")
    windows = _windows()._replace(weight=jnp.array([1.0, 0.0, 1.5]))
    images = np.random.default_rng(0).integers(0, 256, (*windows.reward.shape, 6, 5, 1)).astype(np.uint8)
    state = jax.jit(agent.init)(jax.random.key(0))
    assert float(state.params[observations.MOMENTS].weight) == 0
    update = jax.jit(lambda state, windows: agent.update(state, windows, jax.random.key(1), None))
    state, _, metrics = update(state, agent_cases.show(windows, images))
    assert float(metrics["num_rejected"]) == 0
    moments, seen = state.params[observations.MOMENTS], images[[0, 2], :-1].reshape(-1, 30) / 255.0
    assert float(moments.weight) == len(seen)
    np.testing.assert_allclose(moments.mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, seen.var(axis=0), rtol=1e-4)
