"""Small configurations, windows and a linear model for the tests of V-trace."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base, learning, vtrace
from seedzero.config import config as configs
from seedzero.config import options
from seedzero.core import types
from seedzero.networks import actor_critic
from seedzero.replay import windows as windowing

SPEC = types.EnvSpec((2,), "float32", 3)
SMALL: dict[str, options.Value] = {
    "run.agent": "vtrace",
    "vtrace.discount": 0.9,
    "vtrace.unroll_length": 4,
    "vtrace.batch_size": 3,
    "vtrace.width": 8,
    "vtrace.clip_norm": 0.0,
}
BATCH, LENGTH = 3, 4


def make_config(**changes: options.Value) -> configs.Config:
    """Returns the small configuration with changes in the section vtrace."""
    values = {**SMALL, **{f"vtrace.{name}": value for name, value in changes.items()}}
    return configs.override(configs.Config(), values)


def make_windows(seed: int = 0) -> windowing.Windows:
    """Returns unrolls of random numbers: one within an episode, one over a terminal, one over a truncated end.

    Positions 2 and 1 are the last ones of the second and the third one's first episodes.
    """
    random = np.random.default_rng(seed)
    shape = (BATCH, LENGTH + 1)
    final = np.zeros(shape, bool)
    terminated, truncated, first = final.copy(), final.copy(), final.copy()
    terminated[1, 2], truncated[2, 1] = True, True
    first[1, 3], first[2, 2] = True, True
    return windowing.Windows(
        observation={types.OBSERVATION: jnp.asarray(random.normal(size=(*shape, 2)), jnp.float32)},
        places=jnp.asarray(np.zeros((*shape, 1), np.int32)),
        reward=jnp.asarray(np.where(first, 0.0, random.normal(size=shape)), jnp.float32),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated),
        first=jnp.asarray(first),
        stored={
            "action": jnp.asarray(random.integers(0, 3, shape), jnp.int32),
            "logits": jnp.asarray(random.normal(size=(*shape, 3)), jnp.float32),
        },
        valid=jnp.asarray(np.ones(shape, bool)),
        weight=jnp.asarray(np.array([1.0, 0.5, 1.5], np.float32)),
        slot=jnp.asarray(np.arange(BATCH, dtype=np.int32)),
        time=jnp.asarray(np.zeros(BATCH, np.int32)),
    )


def padded(windows: windowing.Windows, fill: Any) -> windowing.Windows:
    """Returns the windows with one more of weight 0, whose numbers are `fill`."""

    def pad(array: jax.Array) -> jax.Array:
        x = np.asarray(array)
        row = np.full_like(x[:1], fill) if np.issubdtype(x.dtype, np.floating) else x[:1]
        return jnp.asarray(np.concatenate([x, row]))

    grown: windowing.Windows = jax.tree.map(pad, windows)
    return grown._replace(weight=jnp.asarray(np.append(np.asarray(windows.weight), np.float32(0))))


# A linear policy and value: logits = observation @ w, value = observation @ v. ---------------------------------------


class Linear(NamedTuple):
    """Parameters, w [2, 3] and v [2]."""

    w: Any
    v: Any


PARAMS = Linear(np.array([[0.5, -0.3, 0.8], [-0.6, 0.4, 0.2]], np.float32), np.array([0.7, -0.4], np.float32))


def linear_parts(config: configs.Config, spec: types.EnvSpec = SPEC) -> vtrace._Parts:
    """Returns the parts of an agent with the linear model in place of its network."""

    def unroll(params: Linear, state: jax.Array, steps: actor_critic.Steps) -> tuple[jax.Array, jax.Array, jax.Array]:
        observation = steps.observation[types.OBSERVATION]
        return state, observation @ params.w, observation @ params.v

    network = actor_critic.RecurrentNetwork(
        lambda key: PARAMS, lambda num_rows: jnp.zeros((num_rows, 0)), unroll, unroll
    )
    descent = config.vtrace.descent
    return vtrace._Parts(config.vtrace, spec, network, learning.optimizer(descent), learning.schedule(descent))


def loss(config: configs.Config, windows: windowing.Windows, params: Any, spec: types.EnvSpec = SPEC) -> jax.Array:
    return vtrace._loss_and_metrics(linear_parts(config, spec), params, windows)[0]


def value_and_grad(
    config: configs.Config, windows: windowing.Windows, spec: types.EnvSpec = SPEC
) -> tuple[float, Linear]:
    """Returns loss and gradient at the linear model's parameters."""
    value, gradient = _value_and_grad(config, spec)(PARAMS, windows)
    return float(value), Linear(*map(np.asarray, gradient))


@functools.cache
def _value_and_grad(config: configs.Config, spec: types.EnvSpec) -> Any:
    return jax.jit(jax.value_and_grad(lambda params, windows: loss(config, windows, params, spec)))


def update(
    config: configs.Config, windows: windowing.Windows, *, num_updates: int = 0
) -> tuple[learning.TrainState, base.Metrics]:
    """Returns the state after an update of the linear model, and its metrics."""
    init, step = _init_and_update(config)
    state, priority, metrics = step(init(PARAMS)._replace(num_updates=np.int32(num_updates)), windows)
    assert priority is None
    return state, metrics


@functools.cache
def _init_and_update(config: configs.Config) -> tuple[Any, Any]:
    init = jax.jit(lambda params: learning.init(params, learning.optimizer(config.vtrace.descent)))
    return init, jax.jit(lambda state, windows: vtrace._update(linear_parts(config), state, windows, None))
