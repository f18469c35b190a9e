"""Small configurations, unrolls and a linear model for the tests of PPO and V-trace."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base, learning, ppo, vtrace
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.networks import actor_critic
from seedzero.replay import windowing

SPEC = types.EnvSpec((2,), "float32", 3)
MASKED = types.EnvSpec((2,), "float32", 3, has_action_mask=True)
VECTORS = types.EnvSpec((2,), "float32", 0, action_low=(-2.0, 0.0, -1.0), action_high=(2.0, 1.0, 1.0))
BATCH, LENGTH = 3, 4
_BOTH: dict[str, options.Value] = {
    "discount": 0.9,
    "unroll_length": LENGTH,
    "batch_size": BATCH,
    "width": 8,
    "clip_norm": 0.0,
}
_PPO: dict[str, options.Value] = {
    "num_epochs": 1,
    "num_minibatches": 1,
    "network__normalize_observations": False,
    "reward__normalize": False,
    "normalize_advantages": False,
}


def make_config(agent: str, **changes: options.Value) -> configs.Config:
    """Returns the small configuration of ppo or vtrace with changes in its section."""
    settings = {**_BOTH, **(_PPO if agent == "ppo" else {}), **changes}
    return configs.override(configs.Config(), {"run.agent": agent, **agent_cases.named(agent, settings)})


def make_windows(agent: str, spec: types.EnvSpec = SPEC) -> windowing.Windows:
    """Returns unrolls of random numbers: one within an episode, one over a terminal, one over a truncated end.

    Positions 2 and 1 are the last ones of the second and the third one's first episodes.
    """
    random = np.random.default_rng(0)
    shape = (BATCH, LENGTH + 1)
    terminated, truncated, first = (np.zeros(shape, bool) for _ in range(3))
    terminated[1, 2], truncated[2, 1] = True, True
    first[1, 3], first[2, 2] = True, True
    vectors, numbers = random.normal(size=(*shape, 3)), random.integers(0, 3, shape)
    stored = {
        "vtrace": {"logits": random.normal(size=(*shape, 3))},
        "ppo": {"log_prob": random.normal(-1.2, 0.2, shape), "value": random.normal(size=shape)},
    }
    return agent_cases.windows(
        random.normal(size=(*shape, 2)),
        reward=np.where(first, 0.0, random.normal(size=shape)),
        terminated=terminated,
        truncated=truncated,
        first=first,
        stored={"action": vectors if spec.is_continuous else numbers, **stored[agent]},
    )


class Linear(NamedTuple):
    """A model: policy = observation @ w, value = observation @ v. Shapes w [2, 3], v [2], log_std [3] or [0]."""

    w: Any
    v: Any
    log_std: Any


def params(spec: types.EnvSpec = SPEC) -> Linear:
    """Returns the linear model's parameters."""
    return Linear(
        np.array([[0.5, -0.3, 0.8], [-0.6, 0.4, 0.2]], np.float32),
        np.array([0.7, -0.4], np.float32),
        np.array([-0.5, 0.2, 0.0] if spec.is_continuous else [], np.float32),
    )


def linear_parts(config: configs.Config, spec: types.EnvSpec = SPEC) -> Any:
    """Returns the parts of an agent with the linear model in place of its network."""
    is_ppo = config.run.agent == "ppo"

    def unroll(params: Linear, state: jax.Array, steps: actor_critic.Steps, moments: Any = None) -> tuple[Any, ...]:
        seen = steps.observation[types.OBSERVATION]
        policy, value = seen @ params.w, seen @ params.v
        return (state, actor_critic.PpoPrediction(policy, params.log_std, value)) if is_ppo else (state, policy, value)

    network: Any = actor_critic.RecurrentNetwork(
        lambda key: jax.tree.map(jnp.asarray, params(spec)), lambda num_rows: jnp.zeros((num_rows, 0)), unroll, unroll
    )
    if is_ppo:
        return ppo._Parts(config, spec, network, learning.optimizer(config.optimizer))
    optimizer, schedule = learning.optimizer(config.optimizer), learning.schedule(config.optimizer)
    return vtrace._Parts(config, spec, network, optimizer, schedule)


def first_state(config: configs.Config, spec: types.EnvSpec = SPEC) -> Any:
    """Returns the state of the linear model before the first update."""
    return _functions(config, spec).init()


def update(
    config: configs.Config,
    windows: windowing.Windows,
    spec: types.EnvSpec = SPEC,
    state: Any = None,
    seed: int = 0,
) -> tuple[Any, base.Metrics]:
    """Returns the state after an update of the linear model, from its first state unless told, and the metrics."""
    state = first_state(config, spec) if state is None else state
    state, priority, metrics = _functions(config, spec).update(state, windows, jax.random.key(seed))
    assert priority is None
    return state, metrics


def metrics(config: configs.Config, windows: windowing.Windows, spec: types.EnvSpec = SPEC) -> base.Metrics:
    """Returns the loss and metrics of all steps at the linear model's parameters: of PPO as one minibatch."""
    found: base.Metrics = _functions(config, spec).loss(params(spec), windows)[1]
    return found


def gradient_and_metrics(
    config: configs.Config, windows: windowing.Windows, spec: types.EnvSpec = SPEC, at: Linear | None = None
) -> tuple[Linear, base.Metrics]:
    """Returns the loss's gradient and metrics at some parameters, the linear model's unless told."""
    gradient, metrics = _functions(config, spec).gradient(params(spec) if at is None else at, windows)
    return Linear(*map(np.asarray, gradient)), metrics


class _Functions(NamedTuple):
    """An agent's functions on the linear model, jitted."""

    init: Any  # () -> state
    update: Any  # (state, windows, key) -> state, priority, metrics
    loss: Any  # (params, windows) -> loss, metrics
    gradient: Any  # (params, windows) -> gradient, metrics


@functools.cache
def _functions(config: configs.Config, spec: types.EnvSpec) -> _Functions:
    parts, is_ppo = linear_parts(config, spec), config.run.agent == "ppo"

    def of_vtrace(params: Linear, windows: windowing.Windows) -> tuple[jax.Array, base.Metrics]:
        loss, (metrics, _) = vtrace._loss_and_metrics(parts, params, windows)
        return loss, metrics

    def of_ppo(params: Linear, windows: windowing.Windows) -> tuple[jax.Array, base.Metrics]:
        returns = ppo._init(parts, jax.random.key(0)).returns
        batch = ppo._normalized(config.ppo, ppo._steps(parts, returns, windows), None)
        num_steps, clip_ratio = ppo._sum(batch.counted, None), ppo._rates(config, jnp.int32(0))[1]
        return ppo._loss_and_metrics(parts, params, None, batch, num_steps, clip_ratio)

    def update(state: Any, windows: windowing.Windows, key: jax.Array) -> Any:
        return ppo._update(parts, state, windows, key, None) if is_ppo else vtrace._update(parts, state, windows, None)

    init, loss = ppo._init if is_ppo else vtrace._init, of_ppo if is_ppo else of_vtrace
    gradient = jax.grad(loss, has_aux=True)
    return _Functions(*map(jax.jit, (lambda: init(parts, jax.random.key(0)), update, loss, gradient)))


# V-trace in numpy ---------------------------------------------------------------------------------------------------


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True))


class VtraceNumpy:
    """V-trace's targets in float64, step by step from the paper's sums (IMPALA, equation 1, section 4.2).

    v_s = V_s + sum over t >= s of gamma^(t-s) (c_s ... c_(t-1)) delta_t, up to the episode's end or the unroll's.
    Logits [B, L + 1, A] and values [B, L + 1] are those of the policy that learns.
    """

    def __init__(self, config: configs.Config, windows: windowing.Windows, logits: np.ndarray, value: np.ndarray):
        self.config, self.rewards = config.vtrace, config.reward
        self.log_pi, self.value = log_softmax(np.asarray(logits, np.float64)), np.asarray(value, np.float64)
        self.action, self.weight = np.asarray(windows.stored["action"]), np.asarray(windows.weight, np.float64)
        self._windows = jax.tree.map(np.asarray, windows)
        self._behaviour = log_softmax(np.asarray(windows.stored["logits"], np.float64))
        reward, limit = np.asarray(windows.reward, np.float64), self.rewards.clip
        self._reward = np.clip(reward, -limit, limit) if limit else reward

    def steps(self) -> list[tuple[int, int]]:
        """Returns rows and positions of the steps."""
        return [(b, t) for b, t in np.ndindex(len(self.weight), LENGTH) if self._is_step(b, t)]

    def _ratio(self, b: int, t: int) -> float:
        action = self.action[b, t]
        return float(np.exp(self.log_pi[b, t, action] - self._behaviour[b, t, action]))

    def _is_step(self, b: int, t: int) -> bool:
        return not (self._windows.terminated[b, t] or self._windows.truncated[b, t])

    def _discount(self, b: int, t: int) -> float:
        return 0.0 if self._windows.terminated[b, t + 1] else self.rewards.discount

    def _difference(self, b: int, t: int, following: float) -> float:
        """Returns rho (r + gamma following - V)."""
        rho = min(self.config.clip_rho, self._ratio(b, t))
        return float(rho * (self._reward[b, t + 1] + self._discount(b, t) * following - self.value[b, t]))

    def target(self, b: int, s: int) -> float:
        """Returns v_s; that of an episode's last observation or of the unroll's is its value."""
        total, factor = self.value[b, s], 1.0
        for t in range(s, LENGTH):
            if not self._is_step(b, t):
                break
            total += factor * self._difference(b, t, self.value[b, t + 1])
            factor *= self._discount(b, t) * self.config.trace_decay * min(self.config.clip_c, self._ratio(b, t))
        return float(total)

    def advantage(self, b: int, t: int) -> float:
        """Returns rho (r + gamma q - V), where q is v_(t+1), mixed with the value by lambda."""
        decay = self.config.trace_decay if t + 1 < LENGTH else 1.0
        return self._difference(b, t, decay * self.target(b, t + 1) + (1 - decay) * self.value[b, t + 1])
