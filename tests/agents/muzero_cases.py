"""Small configurations, windows and models for the tests of MuZero."""

from __future__ import annotations

import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base, muzero, muzero_loss, muzero_model
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.networks import muzero_net
from seedzero.ops import value_transforms
from seedzero.replay import windowing

SPEC = types.EnvSpec((4,), "float32", 3)
SMALL: dict[str, options.Value] = {
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "network.support_limit": 5.0,
    "search.num_simulations": 3,
    "muzero.unroll_steps": 2,
    "muzero.n_step": 2,
    "reward.discount": 0.5,
    "optimizer.learning_rate": 0.1,
}
BATCH = 4


def make_config(**changes: options.Value) -> configs.Config:
    return configs.override(configs.Config(), {**SMALL, **{k.replace("__", "."): v for k, v in changes.items()}})


def make_windows(config: configs.Config, num_observations: int = 1) -> windowing.Windows:
    """Whole windows of random numbers, no episode ends."""
    random = np.random.default_rng(0)
    shape = (BATCH, config.muzero.unroll_steps + config.muzero.n_step + 1)
    observation, reward = random.normal(size=(BATCH, num_observations, 4)), random.normal(size=shape)
    stored = {
        "action": random.integers(0, 3, shape),
        "policy": random.dirichlet(np.ones(3), shape),
        "value": random.normal(size=shape),
    }
    return agent_cases.windows(observation, reward=reward, stored=stored)


def aged(windows: windowing.Windows, versions: list[int]) -> windowing.Windows:
    """Returns the windows with the version of the parameters that acted in each of them."""
    version = np.broadcast_to(np.array(versions, np.int32)[:, None], windows.valid.shape)
    return agent_cases.store(windows, version=jnp.asarray(version))


@functools.cache
def agent(config: configs.Config) -> tuple[base.Agent, Any]:
    """The agent and its jitted update (one device)."""
    made = muzero.make(config, SPEC, "cpu")
    return made, jax.jit(lambda state, windows, key: made.update(state, windows, key, None))


@functools.cache
def init(config: configs.Config) -> base.TrainState:
    return jax.jit(agent(config)[0].init)(jax.random.key(0))


@functools.cache
def act(config: configs.Config) -> Any:
    """The agent's jitted acting."""
    return jax.jit(agent(config)[0].act)


def update(config: configs.Config, state: base.TrainState, windows: windowing.Windows) -> Any:
    return agent(config)[1](state, windows, jax.random.key(1))


def certain(x: jax.Array, num_bins: int = 11, limit: float = 5.0) -> jax.Array:
    """Returns the logits [..., bins] that stand for numbers [...]."""
    return jnp.log(value_transforms.two_hot(x, num_bins, limit) + 1e-9)


def model(config: configs.Config, spec: types.EnvSpec, **functions: Any) -> muzero_model.Parts:
    """Returns parts with a network of these functions; a state is its observation, and stays as it is, unless told."""
    usual: dict[str, Any] = {
        "init": lambda key: {},
        "cast": lambda params: params,
        "represent": lambda params, observation: observation[types.OBSERVATION],
        "dynamics": lambda params, s, action: (s, jnp.zeros((len(s), config.network.num_bins))),
    }
    optimizer, schedule = muzero_model.make_optimizer(config.optimizer), muzero_model.make_schedule(config.optimizer)
    return muzero_model.Parts(config, spec, muzero_net.Network(**{**usual, **functions}), optimizer, schedule)


def with_functions(parts: muzero_model.Parts, **functions: Any) -> muzero_model.Parts:
    """Returns the parts with some functions of the network replaced."""
    return parts._replace(network=parts.network._replace(**functions))


def loss_and_metrics(
    parts: muzero_model.Parts, params: Any, windows: windowing.Windows
) -> tuple[jax.Array, base.Metrics, jax.Array]:
    """Returns loss, metrics and predicted values of windows whose returns bootstrap from stored values."""
    targets = muzero_loss.make_targets(parts, params, windows)
    return muzero_loss.loss_and_metrics(parts, params, windows, targets, jax.random.key(0))


def hand_model(config: configs.Config) -> muzero_model.Parts:
    """A model of two numbers: s_0 = p * observation, s_{k+1} = q * s_k, policy logits (s, 0)."""
    num_bins = config.network.num_bins

    def predict(params: Any, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.concatenate([s, jnp.zeros_like(s)], axis=-1), jnp.zeros((len(s), num_bins))

    return model(
        config,
        types.EnvSpec((1,), "float32", 2),
        represent=lambda params, observation: params["p"] * observation[types.OBSERVATION],
        predict=predict,
        dynamics=lambda params, s, action: (params["q"] * s, jnp.zeros((len(s), num_bins))),
    )


def hand_model_windows(config: configs.Config) -> windowing.Windows:
    """Every observation is 2, every action the first one, and so says every policy."""
    windows = make_windows(config)
    policy = jnp.broadcast_to(jnp.array([1.0, 0.0]), (*windows.valid.shape, 2))
    windows = agent_cases.store(windows, policy=policy, action=jnp.zeros_like(windows.stored["action"]))
    return agent_cases.show(windows, np.full((BATCH, 1, 1), 2.0, np.float32))


def value_of_observation(config: configs.Config) -> muzero_model.Parts:
    """The hand model with states that are the observations, and those plus an offset as their values."""
    return model(
        config,
        types.EnvSpec((1,), "float32", 2),
        predict=lambda params, s: (jnp.zeros((len(s), 2)), certain(s[:, 0] + params["offset"])),
    )
