"""V-trace actor-critic (IMPALA, Espeholt et al. 2018), feed-forward or with an LSTM.

Every step is learned from at most once, in unrolls of L steps that cross episodes. A row's action answers its
observation; the action on an episode's last observation is ignored, and the next row begins another episode.

Shape letters: B batch, L steps of an unroll, A actions.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from seedzero.agents import base, learning
from seedzero.config import configs
from seedzero.core import types
from seedzero.networks import actor_critic
from seedzero.ops import nstep, popart, q_learning, vtrace
from seedzero.replay import sources, windowing


class PopArtState(NamedTuple):
    """Learning state with PopArt: the fields of `learning.TrainState`, and statistics of returns for each task."""

    params: base.Params
    target_params: base.Params
    opt_state: Any
    num_updates: jax.Array
    num_rejected: jax.Array
    returns: popart.Statistics


class _Parts(NamedTuple):
    config: configs.Config
    spec: types.EnvSpec
    network: actor_critic.RecurrentNetwork[tuple[jax.Array, jax.Array, jax.Array]]
    optimizer: optax.GradientTransformation
    schedule: Any


def make(config: configs.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
    settings = config.vtrace
    num_values = spec.num_tasks if settings.popart else 1
    network = actor_critic.actor_critic(config.network, spec, platform, num_values=num_values)
    optimizer, has_lstm = config.optimizer, config.network.lstm_width > 0
    if optimizer.kind == "adam":  # the setting belongs to RMSProp
        optimizer = dataclasses.replace(optimizer, epsilon=1e-8)
    parts = _Parts(config, spec, network, learning.optimizer(optimizer), learning.schedule(optimizer))
    return base.Agent(
        data=sources.Queue(settings.unroll_length, settings.batch_size, settings.max_lag, settings.wait_seconds),
        stack=config.network.frame_stack,
        stored=_stored(config, spec),
        init=lambda key: _init(parts, key),
        acting=lambda state: state.params,
        initial_memory=lambda num_slots: actor_critic.no_past(network, spec, num_slots) if has_lstm else (),
        act=lambda params, memory, inputs, key: _act(parts, params, memory, inputs, key),
        update=lambda state, windows, key, axis_name: _update(parts, state, windows, axis_name),
        policy=lambda params, memory, inputs: _policy(parts, params, memory, inputs),
        scales=("returns",) if settings.popart else (),
        reads_reward=has_lstm,
    )


def _stored(config: configs.Config, spec: types.EnvSpec) -> dict[str, sources.Stored]:
    number, whole = np.dtype(np.float32), np.dtype(np.int32)
    stored = {"action": sources.Stored((), whole), "logits": sources.Stored((spec.num_actions,), number)}
    if spec.has_action_mask:
        stored["legal"] = sources.Stored((spec.num_actions,), np.dtype(bool))
    if config.vtrace.popart:
        stored["task"] = sources.Stored((), whole)
    if lstm_width := config.network.lstm_width:
        stored["state"] = sources.Stored((2 * lstm_width,), number)
        stored["last_action"] = sources.Stored((), whole)
    return stored | learning.stored_turns(config, spec)


def _init(parts: _Parts, key: jax.Array) -> learning.TrainState | PopArtState:
    state = learning.init(parts.network.init(key), parts.optimizer)
    return PopArtState(*state, popart.initial(parts.spec.num_tasks)) if parts.config.vtrace.popart else state


# Acting ------------------------------------------------------------------------------------------------------------


def _act(
    parts: _Parts, params: base.Params, memory: Any, inputs: base.Inputs, key: jax.Array
) -> tuple[Any, base.Outputs]:
    past, next_state, logits = _look(parts, params, memory, inputs)
    stored = {"logits": logits}
    if parts.spec.has_action_mask:
        stored["legal"] = inputs.action_mask
        logits = actor_critic.masked(logits, inputs.action_mask)
    action = jnp.where(inputs.draws, jax.random.categorical(key, logits), jnp.argmax(logits, axis=-1))
    action = action.astype(jnp.int32)
    stored["action"] = action
    if parts.config.vtrace.popart:
        stored["task"] = inputs.task
    if not parts.config.network.lstm_width:
        return (), base.Outputs(action, stored)
    stored |= {"state": past.state, "last_action": past.action}
    return actor_critic.Past(next_state, action), base.Outputs(action, stored)


def _policy(parts: _Parts, params: base.Params, memory: Any, inputs: base.Inputs) -> jax.Array:
    _, _, logits = _look(parts, params, memory, inputs)
    return jax.nn.softmax(actor_critic.masked(logits, inputs.action_mask))


def _look(
    parts: _Parts, params: base.Params, memory: Any, inputs: base.Inputs
) -> tuple[actor_critic.Past, jax.Array, jax.Array]:
    """Returns the past before the step, the LSTM's next state, and logits [B, A]."""
    past = memory or actor_critic.no_past(parts.network, parts.spec, inputs.first.shape[0])
    steps = actor_critic.Steps.single(inputs.observation, inputs.first, inputs.reward, past.action)
    next_state, logits, _ = parts.network.unroll(params, past.state, steps)
    return past, next_state, logits[:, 0]


# Learning ----------------------------------------------------------------------------------------------------------


def _update(
    parts: _Parts, state: Any, windows: windowing.Windows, axis_name: str | None
) -> tuple[Any, None, base.Metrics]:
    windows = learning.clear_padding(windows)
    returns = state.returns if parts.config.vtrace.popart else None

    def loss(params: base.Params) -> tuple[jax.Array, tuple[base.Metrics, tuple[jax.Array, jax.Array]]]:
        return _loss_and_metrics(parts, params, windows, returns)

    gradients, metrics, (target, learned_steps) = learning.gradients(loss, state.params, axis_name)
    # Sums over the steps of all devices, which may have different numbers of steps.
    num_steps = jnp.maximum(metrics.pop("num_steps"), 1.0)
    metrics = {name: x if name == "loss" else x / num_steps for name, x in metrics.items()}
    learned = learning.TrainState(*state[: len(learning.TrainState._fields)])
    learned, metrics = learning.apply_gradients(
        learned, gradients, metrics, optimizer=parts.optimizer, schedule=parts.schedule
    )
    # an unroll's last row is the next one's first
    rows = windows._replace(observation=windowing.observed(windows, slice(-1)))
    learned = learning.add_moments(parts.network, learned, rows, axis_name)
    if returns is None:
        return learned, None, metrics
    counted = learned_steps & windows.counts[:, None]
    task = windows.stored["task"][:, :-1]
    step_size = parts.config.vtrace.popart_step
    after = popart.update(returns, target, task, counted, step_size=step_size, axis_name=axis_name)
    # A refused update changes nothing.
    after = learning.where(learned.num_rejected == 0, after, returns)
    params = actor_critic.rescale(learned.params, *popart.change(returns, after))
    scales = {"return_scale_min": jnp.min(after.scale), "return_scale_max": jnp.max(after.scale)}
    return PopArtState(*learned._replace(params=params), after), None, metrics | scales


def _loss_and_metrics(
    parts: _Parts, params: base.Params, windows: windowing.Windows, returns: popart.Statistics | None = None
) -> tuple[jax.Array, tuple[base.Metrics, tuple[jax.Array, jax.Array]]]:
    """Returns the loss, metrics, and the values' targets [B, L] with a mask of the learned ones.

    Loss and metrics are sums as in the paper (section 4.2), and sums over the batches of all hosts once their mean
    over all devices is taken.

    With statistics of returns, the network's values are normalized, and so are the errors and advantages it learns
    from (Hessel et al. 2018, section "Multi-task PopArt").
    """
    config, rewards, stored = parts.config.vtrace, parts.config.reward, windows.stored
    logits, said = _unroll(parts, params, windows)
    value = said if returns is None else popart.unnormalize(returns, said, stored["task"])
    legal = stored["legal"] if parts.spec.has_action_mask else None
    logits, behaviour = (actor_critic.masked(x, legal) for x in (logits, stored["logits"]))
    log_pi, log_mu = jax.nn.log_softmax(logits[:, :-1]), jax.nn.log_softmax(behaviour[:, :-1])
    action = stored["action"][:, :-1]
    log_chosen = q_learning.of_action(log_pi, action)
    log_rho = log_chosen - q_learning.of_action(log_mu, action)
    reward = nstep.scaled_reward(windows.reward[:, 1:], rewards.scale, rewards.clip)
    discount = learning.turn_discounts(parts.spec, windows, rewards.discount)
    course = learning.turn_course(
        windows, jax.lax.stop_gradient(value), reward, discount, trace_decay=config.trace_decay
    )
    targets = vtrace.targets(
        course.value,
        reward,
        discount,
        jax.lax.stop_gradient(jnp.where(course.learned, log_rho, 0.0)),
        course.is_step,
        clip_rho=config.clip_rho,
        clip_c=jnp.where(course.learned, config.clip_c, 1.0),  # traces go whole through the moves of others
        trace_decay=course.trace_decay,
    )
    entropy = -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)

    def total(x: jax.Array) -> jax.Array:
        summed = jnp.sum(jnp.where(course.learned, x, 0.0), axis=1)
        return parts.config.cluster.num_hosts * config.batch_size * jnp.mean(windows.weight * summed)

    wanted, advantage = targets.value, targets.advantage
    if returns is not None:
        task = stored["task"][:, :-1]
        wanted, advantage = popart.normalize(returns, wanted, task), advantage / returns.scale[task]
    policy = -total(log_chosen * advantage)
    errors = total(0.5 * jnp.square(wanted - said[:, :-1]))
    entropies = total(entropy)
    loss = policy + config.value_loss_weight * errors - config.entropy_weight * entropies
    metrics = {
        "loss": loss,
        "loss_policy": policy,
        "loss_value": errors,
        "policy_entropy": entropies,
        "value_mean": total(value[:, :-1]),
        "value_target_mean": total(targets.value),
        "importance_mean": total(jnp.exp(log_rho)),
        "num_steps": total(jnp.ones_like(entropy)),
    }
    return loss, (metrics, (targets.value, course.learned))


def _unroll(parts: _Parts, params: base.Params, windows: windowing.Windows) -> tuple[jax.Array, jax.Array]:
    """Returns logits [B, L + 1, A] and values [B, L + 1]."""
    first, stored = windows.first, windows.stored
    has_lstm = parts.config.network.lstm_width > 0
    state = stored["state"][:, 0] if has_lstm else parts.network.initial_state(first.shape[0])
    last_action = stored.get("last_action", jnp.zeros_like(stored["action"]))
    steps = actor_critic.Steps(windows.observation, first, windows.reward, last_action, stored.get("task"))
    _, logits, value = parts.network.unroll(params, state, steps)
    return logits, value
