"""Small configurations, windows and a linear model for the tests of PPO."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base, learning, ppo
from seedzero.config import config as configs
from seedzero.config import options, shared
from seedzero.core import types
from seedzero.networks import actor_critic
from seedzero.replay import windows as windowing

SPEC = types.EnvSpec((2,), "float32", 3)
MASKED = types.EnvSpec((2,), "float32", 3, has_action_mask=True)
VECTORS = types.EnvSpec((2,), "float32", 0, action_low=(-2.0, 0.0, -1.0), action_high=(2.0, 1.0, 1.0))
SMALL: dict[str, options.Value] = {
    "run.agent": "ppo",
    "ppo.discount": 0.9,
    "ppo.unroll_length": 4,
    "ppo.batch_size": 3,
    "ppo.num_epochs": 1,
    "ppo.num_minibatches": 1,
    "ppo.clip_norm": 0.0,
    "ppo.normalize_observations": False,
    "ppo.normalize_rewards": False,
    "ppo.normalize_advantages": False,
}
BATCH, LENGTH = 3, 4


def make_config(**changes: options.Value) -> configs.Config:
    """Returns the small configuration with changes in the section ppo."""
    return configs.override(configs.Config(), {**SMALL, **{f"ppo.{name}": x for name, x in changes.items()}})


def make_windows(spec: types.EnvSpec = SPEC, seed: int = 0) -> windowing.Windows:
    """Returns unrolls of random numbers: one within an episode, one over a terminal, one over a truncated end.

    Positions 2 and 1 are the last ones of the second and the third one's first episodes.
    """
    random = np.random.default_rng(seed)
    shape = (BATCH, LENGTH + 1)
    final = np.zeros(shape, bool)
    terminated, truncated, first = final.copy(), final.copy(), final.copy()
    terminated[1, 2], truncated[2, 1] = True, True
    first[1, 3], first[2, 2] = True, True
    numbers, vectors = random.integers(0, 3, shape).astype(np.int32), random.normal(size=(*shape, 3))
    windows = windowing.Windows(
        observation={types.OBSERVATION: random.normal(size=(*shape, 2)).astype(np.float32)},
        places=np.zeros((*shape, 1), np.int32),
        reward=np.where(first, 0.0, random.normal(size=shape)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        first=first,
        stored={
            "action": vectors.astype(np.float32) if spec.is_continuous else numbers,
            "log_prob": random.normal(-1.2, 0.2, size=shape).astype(np.float32),
            "value": random.normal(size=shape).astype(np.float32),
        },
        valid=np.ones(shape, bool),
        weight=np.ones(BATCH, np.float32),
        slot=np.arange(BATCH, dtype=np.int32),
        time=np.zeros(BATCH, np.int32),
    )
    return windows._replace(**{name: jnp.asarray(getattr(windows, name)) for name in ("reward", "weight")})


class Linear(NamedTuple):
    """Parameters of a linear model, w [2, 3], v [2] and log_std [3] or [0]."""

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


def linear_parts(config: configs.Config, spec: types.EnvSpec = SPEC) -> ppo._Parts:
    """Returns the parts of an agent with the linear model in place of its network."""

    def unroll(
        params: Linear, state: jax.Array, steps: actor_critic.Steps, moments: Any
    ) -> tuple[jax.Array, actor_critic.PpoPrediction]:
        seen = steps.observation[types.OBSERVATION]
        return state, actor_critic.PpoPrediction(seen @ params.w, params.log_std, seen @ params.v)

    network = actor_critic.RecurrentNetwork(
        lambda key: jax.tree.map(jnp.asarray, params(spec)), lambda num_rows: jnp.zeros((num_rows, 0)), unroll, unroll
    )
    adam = shared.Optimizer("adam", config.ppo.learning_rate, config.ppo.clip_norm, config.ppo.adam_epsilon)
    return ppo._Parts(config.ppo, spec, network, learning.optimizer(adam))


def update(
    config: configs.Config,
    windows: windowing.Windows,
    spec: types.EnvSpec = SPEC,
    state: ppo.PpoTrainState | None = None,
    seed: int = 0,
) -> tuple[ppo.PpoTrainState, base.Metrics]:
    """Returns the state after an update of the linear model, from its first state unless told, and the metrics."""
    init, function = _functions(config, spec)
    new_state, priority, metrics = function(state or init(), windows, jax.random.key(seed))
    assert priority is None
    return new_state, metrics


def first_state(config: configs.Config, spec: types.EnvSpec = SPEC) -> ppo.PpoTrainState:
    """Returns the state before the first update."""
    state: ppo.PpoTrainState = _functions(config, spec)[0]()
    return state


def metrics(config: configs.Config, windows: windowing.Windows, spec: types.EnvSpec = SPEC) -> base.Metrics:
    """Returns the loss and metrics of all steps as one minibatch, at the linear model's parameters."""
    found: base.Metrics = _metrics(config, spec)(windows)
    return found


@functools.cache
def _metrics(config: configs.Config, spec: types.EnvSpec) -> Any:
    parts = linear_parts(config, spec)

    def compute(windows: windowing.Windows) -> base.Metrics:
        returns = ppo._init(parts, jax.random.key(0)).returns
        batch = ppo._normalized(config.ppo, ppo._steps(parts, returns, windows), None)
        num_steps, clip_ratio = ppo._sum(batch.counted, None), ppo._rates(config.ppo, jnp.int32(0))[1]
        return ppo._loss_and_metrics(parts, params(spec), None, batch, num_steps, clip_ratio)[1]

    return jax.jit(compute)


@functools.cache
def _functions(config: configs.Config, spec: types.EnvSpec) -> tuple[Any, Any]:
    parts = linear_parts(config, spec)
    init = jax.jit(lambda: ppo._init(parts, jax.random.key(0)))
    return init, jax.jit(lambda state, windows, key: ppo._update(parts, state, windows, key, None))
