"""Small configurations, windows and models for the tests of MuZero."""

from __future__ import annotations

import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base, muzero, muzero_model
from seedzero.config import config as configs
from seedzero.config import options
from seedzero.core import types
from seedzero.networks import muzero as muzero_net
from seedzero.ops import value_transforms
from seedzero.replay import windows as windowing

SPEC = types.EnvSpec((4,), "float32", 3)
SMALL: dict[str, options.Value] = {
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "network.support_limit": 5.0,
    "search.num_simulations": 3,
    "muzero.unroll_steps": 2,
    "muzero.n_step": 2,
    "muzero.discount": 0.5,
    "optimizer.learning_rate": 0.1,
}
BATCH = 4


def make_config(**changes: options.Value) -> configs.Config:
    return configs.override(configs.Config(), {**SMALL, **{k.replace("__", "."): v for k, v in changes.items()}})


def make_windows(config: configs.Config, num_observations: int = 1, seed: int = 0) -> windowing.Windows:
    """Whole windows of random numbers, no episode ends."""
    random = np.random.default_rng(seed)
    num_positions = config.muzero.unroll_steps + config.muzero.n_step + 1
    shape = (BATCH, num_positions)
    observation = jnp.asarray(random.normal(size=(BATCH, num_observations, 4)), jnp.float32)
    return windowing.Windows(
        observation={types.OBSERVATION: observation},
        places=jnp.asarray(np.zeros((BATCH, num_observations, 1), np.int32)),
        reward=jnp.asarray(random.normal(size=shape), jnp.float32),
        terminated=jnp.asarray(np.zeros(shape, bool)),
        truncated=jnp.asarray(np.zeros(shape, bool)),
        first=jnp.asarray(np.zeros(shape, bool)),
        stored={
            "action": jnp.asarray(random.integers(0, 3, shape), jnp.int32),
            "policy": jnp.asarray(random.dirichlet(np.ones(3), shape), jnp.float32),
            "value": jnp.asarray(random.normal(size=shape), jnp.float32),
        },
        valid=jnp.asarray(np.ones(shape, bool)),
        weight=jnp.asarray(np.ones(BATCH, np.float32)),
        slot=jnp.asarray(np.zeros(BATCH, np.int32)),
        time=jnp.asarray(np.zeros(BATCH, np.int32)),
    )


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


# A model of two numbers: s_0 = p * observation, s_{k+1} = q * s_k, policy logits (s, 0). ----------------------------


def hand_model(config: configs.Config) -> muzero_model.Parts:
    num_bins = config.network.num_bins

    def predict(params: Any, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.concatenate([s, jnp.zeros_like(s)], axis=-1), jnp.zeros((s.shape[0], num_bins))

    network = muzero_net.Network(
        init=lambda key: {},
        cast=lambda params: params,
        represent=lambda params, observation: params["p"] * observation[types.OBSERVATION],
        predict=predict,
        dynamics=lambda params, s, action: (params["q"] * s, jnp.zeros((s.shape[0], num_bins))),
    )
    spec = types.EnvSpec((1,), "float32", 2)
    optimizer, schedule = muzero_model.make_optimizer(config.optimizer), muzero_model.make_schedule(config.optimizer)
    return muzero_model.Parts(config, spec, network, optimizer, schedule)


def hand_model_windows(config: configs.Config) -> windowing.Windows:
    """Every observation is 2, every action the first one, and so says every policy."""
    windows = make_windows(config)
    policy = jnp.asarray(np.broadcast_to(np.array([1.0, 0.0], np.float32), (*windows.valid.shape, 2)))
    action = jnp.asarray(np.zeros(windows.valid.shape, np.int32))
    windows = agent_cases.store(windows, policy=policy, action=action)
    return agent_cases.show(windows, np.full((BATCH, 1, 1), 2.0, np.float32))


def value_of_observation(config: configs.Config) -> muzero_model.Parts:
    """The hand model with states that are the observations, and those plus an offset as their values."""

    def predict(params: Any, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = jnp.log(value_transforms.two_hot(s[:, 0] + params["offset"], 11, 5.0) + 1e-12)
        return jnp.zeros((s.shape[0], 2)), logits

    parts = hand_model(config)
    return parts._replace(
        network=parts.network._replace(
            represent=lambda params, observation: observation[types.OBSERVATION],
            predict=predict,
        )
    )
