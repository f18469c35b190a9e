"""PQN (Gallici et al. 2024, "Simplifying deep temporal difference learning") as an agent outside seedzero.

    cd examples/pqn && seedzero train --preset=cartpole.preset     # or minatar.preset

Q-learning without a replay and without a target network: layer normalization keeps it stable. Every step is in one
update, which goes over its batch several times in minibatches (algorithm 1), towards lambda returns of the Q values
(equation 5). A step's action answers its observation; the action on an episode's last observation is none.

Shape letters: B unrolls, L steps of an unroll, A actions, N = B * L.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from seedzero.agents import base, exploration, learning
from seedzero.config import options, own_agents, shared
from seedzero.core import errors
from seedzero.networks import observations
from seedzero.ops import gae, nstep, q_learning, torso_ops
from seedzero.replay import sources, windowing

# Settings ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PQNConfig(options.AgentSection):
    """The section `pqn`: every field is a flag, --pqn.FIELD. Defaults are those of purejaxql's CartPole."""

    SUMMARY = "Q-learning from its newest steps, without replay and target network"
    SAMPLES = False  # it consumes a queue of unrolls

    discount: float = shared.discount(0.99)
    trace_decay: float = options.on_resume(0.95, "lambda of the returns", low=0, high=1)
    reward_scale: float = shared.reward_scale(0.1)
    clip_reward: float = shared.clip_reward(0.0)
    unroll_length: int = shared.unroll_length(64)
    batch_size: int = options.at_creation(32, "unrolls of one update: as many as there are environments", low=1)
    max_lag: int = shared.max_lag(1)
    wait_seconds: float = shared.wait_seconds(10.0)
    num_epochs: int = options.on_resume(4, "times that an update learns from each of its steps", low=1)
    num_minibatches: int = options.on_resume(16, "parts of an epoch, with an optimizer step each", low=1)
    epsilon: float = options.on_resume(1.0, "first probability of a random action", low=0, high=1)
    last_epsilon: float = options.on_resume(0.2, "probability of a random action in the end", low=0, high=1)
    epsilon_updates: int = options.on_resume(50, "updates from the first probability to the last", "updates", low=1)
    learning_rate: float = shared.learning_rate(1e-4)
    decay_updates: int = shared.decay_updates(0)
    clip_norm: float = shared.clip_norm(10.0)
    width: int = shared.width(128)
    num_layers: int = options.at_creation(2, "hidden layers", low=1, high=16)
    channels: int = options.at_creation(0, "of a 3x3 convolution of grids before these layers; 0: none", low=0)
    frame_stack: int = shared.frame_stack(1)

    def decay_end(self, config: Any) -> tuple[str, int]:
        return ("pqn.decay_updates", self.decay_updates) if self.decay_updates else ("", 0)

    def shared(self, config: Any) -> dict[str, int]:
        return {"pqn.batch_size": self.batch_size}


# Network -------------------------------------------------------------------------------------------------------------


class QNetwork(nn.Module):
    """Vectors [N, F], or grids [N, H, W, C] with `channels` -> Q values [N, A]: layers with layer normalization."""

    width: int
    num_layers: int
    num_actions: int
    channels: int = 0
    convolve: Any = None  # instead of `lax.conv_general_dilated`

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        if self.channels:
            layer = nn.Conv(self.channels, (3, 3), padding="VALID", conv_general_dilated=self.convolve)
            x = nn.relu(nn.LayerNorm()(layer(x)))
        x = x.reshape(x.shape[0], -1)
        for _ in range(self.num_layers):
            x = nn.relu(nn.LayerNorm()(nn.Dense(self.width, kernel_init=nn.initializers.he_normal())(x)))
        return nn.Dense(self.num_actions)(x)


# The agent -----------------------------------------------------------------------------------------------------------


class _Parts(NamedTuple):
    config: PQNConfig
    spec: Any
    network: QNetwork
    inputs: observations.InputFunctions
    optimizer: optax.GradientTransformation
    schedule: Any


class _Steps(NamedTuple):
    """The steps of an update or a minibatch."""

    observation: Mapping[str, jax.Array]  # {name: [N, *shape]}
    action: jax.Array  # [N] int32
    target: jax.Array  # [N]
    counted: jax.Array  # [N], 1: a step; 0: an episode's last observation, or padding


def make(config: Any, spec: Any, platform: str) -> base.Agent:
    """Returns the agent for environments of this spec; `config.pqn` is its section."""
    settings: PQNConfig = config.pqn
    if settings.channels and not (len(spec.arrays) == 1 and spec.arrays[0].is_grid):
        shown = ", ".join(f"{array.name} {list(array.shape)}" for array in spec.arrays)
        raise errors.UsageError(
            f"--pqn.channels={settings.channels} needs one grid as observation, but they are {shown}"
        )
    convolve = torso_ops.convolve if platform == "cpu" else None  # minibatches are a loop, slow for XLA's own there
    parts = _Parts(
        settings,
        spec,
        QNetwork(settings.width, settings.num_layers, spec.num_actions, settings.channels, convolve),
        observations.InputFunctions(
            "conv" if settings.channels else "mlp", spec, settings.frame_stack, normalizes=False
        ),
        optax.chain(learning.clipping(settings.clip_norm), optax.scale_by_radam()),
        learning.schedule(
            shared.OptimizerConfig("adam", settings.learning_rate, 0.0, decay_updates=settings.decay_updates)
        ),
    )
    return base.Agent(
        data=sources.Queue(settings.unroll_length, settings.batch_size, settings.max_lag, settings.wait_seconds),
        stack=settings.frame_stack,
        stored={
            "action": sources.Stored((), np.dtype(np.int32)),
            "value": sources.Stored((), np.dtype(np.float32)),
        },
        init=lambda key: _init(parts, key),
        acting=lambda state: state.params,
        initial_memory=lambda num_slots: (),
        act=lambda params, memory, inputs, key: _act(parts, params, inputs, key),
        update=lambda state, windows, key, axis_name: _update(parts, state, windows, key, axis_name),
        has_policy=False,
    )


def _init(parts: _Parts, key: jax.Array) -> learning.TrainState:
    one = observations.zeros(parts.spec, parts.config.frame_stack, 1)
    return learning.init(parts.network.init(key, _main(parts, one))["params"], parts.optimizer)


def _main(parts: _Parts, observation: Mapping[str, jax.Array]) -> jax.Array:
    """Returns observations {name: [N, *shape]} as the network takes them."""
    return parts.inputs.features(None, observation).main


def _q(parts: _Parts, params: base.Params, observation: Mapping[str, jax.Array]) -> jax.Array:
    """Returns Q values [N, A] of observations {name: [N, *shape]}."""
    return jnp.asarray(parts.network.apply({"params": params}, _main(parts, observation)))


# Acting --------------------------------------------------------------------------------------------------------------


def _act(parts: _Parts, params: base.Params, inputs: base.Inputs, key: jax.Array) -> tuple[tuple[()], base.Outputs]:
    """Acts: at random with a probability that falls from update to update; greedily in evaluations."""
    q = _q(parts, params, inputs.observation)
    greedy = q_learning.best_action(q, inputs.action_mask)
    epsilon = jnp.where(inputs.explores, _epsilon(parts.config, inputs.num_updates), 0.0)
    action = exploration.epsilon_greedy(key, greedy, epsilon, inputs.action_mask)
    # The largest legal Q value bootstraps the returns; the parameters that act are those of the newest update.
    stored = {"action": action, "value": q_learning.of_action(q, greedy)}
    return (), base.Outputs(action, stored, metrics={"epsilon": epsilon})


def _epsilon(config: PQNConfig, num_updates: jax.Array | int) -> jax.Array:
    """Returns the probability of a random action after so many updates."""
    share = jnp.minimum(num_updates / config.epsilon_updates, 1.0)
    return config.epsilon + share * (config.last_epsilon - config.epsilon)


# Learning ------------------------------------------------------------------------------------------------------------


def _update(
    parts: _Parts, state: learning.TrainState, windows: windowing.Windows, key: jax.Array, axis_name: str | None
) -> tuple[learning.TrainState, None, base.Metrics]:
    """Learns from a batch of unrolls; numbers that are not finite leave parameters and optimizer as they were."""
    config, steps = parts.config, _steps(parts, learning.clear_padding(windows))

    def minibatch(rows: jax.Array) -> tuple[_Steps, jax.Array]:
        batch = jax.tree.map(lambda x: x[rows], steps)
        batch = batch._replace(counted=batch.counted * (rows >= 0))
        total = jnp.sum(batch.counted)
        return batch, total if axis_name is None else jax.lax.pmean(total, axis_name)

    def loss(params: base.Params, batch: _Steps, num_steps: jax.Array) -> tuple[jax.Array, base.Metrics]:
        chosen = q_learning.of_action(_q(parts, params, batch.observation), batch.action)

        def mean(x: jax.Array) -> jax.Array:
            return jnp.sum(batch.counted * x) / jnp.maximum(num_steps, 1e-8)

        value = mean(0.5 * jnp.square(chosen - batch.target))
        return value, {"loss": value, "q_mean": mean(chosen), "q_target_mean": mean(batch.target)}

    rows = learning.minibatches(key, len(steps.counted), config.num_minibatches, config.num_epochs, axis_name)
    rate = parts.schedule(state.num_updates)
    state, _, metrics = learning.learn_in_minibatches(
        state, rows, minibatch, loss, optimizer=parts.optimizer, learning_rate=rate, axis_name=axis_name
    )
    return state, None, metrics


def _steps(parts: _Parts, windows: windowing.Windows) -> _Steps:
    """Returns the steps of windows [B, L + 1, ...] with their lambda returns.

    With V the largest Q value, the return of a step is G = r + discount ((1 - lambda) V' + lambda G'): a generalized
    advantage (Schulman et al. 2016) plus V.
    """
    config, value = parts.config, windows.stored["value"]
    reward = nstep.scaled_reward(windows.reward[:, 1:], config.reward_scale, config.clip_reward)
    is_step = ~(windows.terminated | windows.truncated)[:, :-1]
    discount = config.discount * ~windows.terminated[:, 1:]
    advantage = gae.advantages(value, reward, discount, is_step, trace_decay=config.trace_decay)
    counted = is_step & (windows.weight[:, None] > 0)
    rows = (
        windowing.observed(windows, slice(-1)),
        windows.stored["action"][:, :-1],
        advantage + value[:, :-1],
        counted,
    )
    steps = _Steps(*jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows))
    return steps._replace(counted=steps.counted.astype(jnp.float32))


AGENT = own_agents.OwnAgent(name="pqn", settings=PQNConfig, make=make)
