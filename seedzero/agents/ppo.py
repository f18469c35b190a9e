"""PPO (Schulman et al. 2017) is an actor-critic that learns several times from each batch of its newest steps.

Every step is in one update, which goes over all of its steps several times in minibatches; clipping keeps the policy
near the one that acted. A row's action answers its observation; the action on an episode's last observation is
ignored, and the next row begins another episode. With an LSTM, minibatches consist of whole unrolls that start from
the states that acting stored. See Huang et al. 2022, "The 37 implementation details of proximal policy optimization".

Shape letters: B batch, L steps of an unroll, A actions, D numbers of a continuous action; N parts of T steps each, of
which minibatches are made: B unrolls of L with an LSTM, else B * L of one step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from seedzero.agents import base, bonus, learning, sampled
from seedzero.config import configs, ppo_config
from seedzero.core import packing, types
from seedzero.networks import actor_critic, observations
from seedzero.ops import action_distributions, gae, nstep, q_learning, statistics
from seedzero.replay import sources, windowing

_LARGEST_REWARD = 10.0
"""Bound of rewards after division by the deviation of returns (Huang et al. 2022, detail 7 for continuous actions)."""

_FEW = 1e-8
"""Numbers of steps are means over devices, which are below 1 if there are more devices than steps."""


class PpoActing(NamedTuple):
    """Acting state: parameters, and the moments of observations (None: they are not normalized)."""

    params: base.Params
    moments: Any


class PpoTrainState(NamedTuple):
    """Learning state of PPO: the fields of `learning.TrainState`, and moments as in `PpoActing`.

    returns: moments of discounted returns; an empty tuple if rewards are not normalized. central: moments of all that
    the value sees, if it sees more than acting; otherwise, or if nothing is normalized, an empty tuple.
    """

    params: base.Params
    opt_state: Any
    num_updates: jax.Array
    num_rejected: jax.Array
    moments: Any
    returns: Any
    bonus: Any = ()  # state of a bonus on rewards; an empty tuple if there is none
    central: Any = ()


class PpoMemory(NamedTuple):
    """The memory of an environment; an empty tuple stands for a missing part."""

    past: Any = ()  # `actor_critic.Past`, with an LSTM
    returns: Any = ()  # [S] discounted return of the episode so far, if rewards are normalized
    mover: Any = ()  # [S] int8, the last row's mover, whose return it is then, where one may move again


class _Steps(NamedTuple):
    """The steps of an update or minibatch, split into parts."""

    state: jax.Array  # [N, 2 * units], the LSTM's state before each part
    seen: actor_critic.Steps  # by the network, [N, T]
    action: jax.Array  # [N, T] int32, or [N, T, D] before bounds
    log_prob: jax.Array  # [N, T], the action's log probability when it was chosen
    value: jax.Array  # [N, T], the value when the action was chosen
    legal: jax.Array | None  # [N, T, A] bool; None where the spec has no mask
    advantage: jax.Array  # [N, T]
    target: jax.Array  # [N, T] of the value
    counted: jax.Array  # [N, T], 1: a step; 0: an episode's last observation, or padding


class _Parts(NamedTuple):
    config: configs.Config
    spec: types.EnvSpec
    network: actor_critic.RecurrentNetwork[tuple[jax.Array, actor_critic.PpoPrediction]]
    optimizer: optax.GradientTransformation
    bonus: bonus.Bonus | None = None
    central: actor_critic.CentralValue | None = None  # replaces the network's value, which then learns nothing


def make(config: configs.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
    settings, seen = config.ppo, spec
    spec = packing.without_training_only(seen)
    network = actor_critic.ppo(config.network, spec, platform, initial_std=settings.initial_std)
    central = actor_critic.make_central_value(config.network, seen, platform) if seen != spec else None
    optimizer, extra = learning.optimizer(config.optimizer), bonus.load(settings.bonus, spec)
    parts = _Parts(config, spec, network, optimizer, extra, central)
    has_lstm, normalizes = config.network.lstm_width > 0, config.reward.normalize
    return base.Agent(
        data=sources.Queue(settings.unroll_length, settings.batch_size, settings.max_lag, settings.wait_seconds),
        stack=config.network.frame_stack,
        stored=_stored(parts),
        init=lambda key: _init(parts, key),
        acting=lambda state: PpoActing(actor_critic.without_central_value(state.params), state.moments),
        initial_memory=lambda num_slots: PpoMemory(
            actor_critic.no_past(network, spec, num_slots) if has_lstm else (),
            jnp.zeros(num_slots) if normalizes else (),
            jnp.zeros(num_slots, jnp.int8) if normalizes and spec.moves_again else (),
        ),
        act=lambda params, memory, inputs, key: _act(parts, params, memory, inputs, key),
        update=lambda state, windows, key, axis_name: _update(parts, state, windows, key, axis_name),
        policy=None if spec.is_continuous else lambda params, memory, inputs: _policy(parts, params, memory, inputs),
        scales=(*(("returns",) if normalizes else ()), *(("central",) if central and central.no_moments() else ())),
        reads_reward=has_lstm,
    )


def _stored(parts: _Parts) -> dict[str, sources.Stored]:
    config, spec, number = parts.config, parts.spec, np.dtype(np.float32)
    action = sources.Stored(spec.action_shape, number if spec.is_continuous else np.dtype(np.int32))
    stored = {"action": action, "log_prob": sources.Stored((), number)}
    if parts.central is None:
        stored["value"] = sources.Stored((), number)
    if spec.has_action_mask:
        stored["legal"] = sources.Stored((spec.num_actions,), np.dtype(bool))
    if config.reward.normalize:
        stored["return"] = sources.Stored((), number)
    if lstm_width := config.network.lstm_width:
        stored |= {"state": sources.Stored((2 * lstm_width,), number), "last_action": action}
    return stored | learning.stored_turns(config, spec)


def _init(parts: _Parts, key: jax.Array) -> PpoTrainState:
    params, central = parts.network.init(key), parts.central
    params = params if central is None else params | central.init(jax.random.fold_in(key, 2))
    return PpoTrainState(
        params=params,
        opt_state=parts.optimizer.init(params),
        num_updates=jnp.zeros((), jnp.int32),
        num_rejected=jnp.zeros((), jnp.int32),
        moments=parts.network.no_moments(),
        returns=statistics.no_moments(1) if parts.config.reward.normalize else (),
        bonus=() if parts.bonus is None else parts.bonus.init(jax.random.fold_in(key, 1)),
        central=() if central is None else central.no_moments(),
    )


# Acting ------------------------------------------------------------------------------------------------------------


def _act(
    parts: _Parts, params: PpoActing, memory: PpoMemory, inputs: base.Inputs, key: jax.Array
) -> tuple[PpoMemory, base.Outputs]:
    rewards, has_lstm, spec = parts.config.reward, parts.config.network.lstm_width > 0, parts.spec
    past, state, predicted = _look(parts, params, memory, inputs)
    returns, mover = memory.returns, memory.mover
    legal = inputs.action_mask if spec.has_action_mask else None
    action = _choose(parts, predicted, legal, inputs.draws, key)
    log_prob, _ = _log_prob_and_entropy(parts, predicted, action, legal)
    stored = {"action": action, "log_prob": log_prob}
    if parts.central is None:
        stored["value"] = predicted.value
    if legal is not None:
        stored["legal"] = legal
    if rewards.normalize:
        reward = nstep.scaled_reward(inputs.reward, rewards.scale, rewards.clip)
        alternates = spec.num_players == 2 and not spec.moves_again
        discount = -rewards.discount if alternates else rewards.discount  # the last reward was the other's
        returns = discount * jnp.where(inputs.first, 0.0, returns) + reward
        stored["return"] = returns
        if spec.moves_again:
            mover = learning.movers(spec, inputs.observation)
            returns = jnp.where(mover == memory.mover, returns, -returns)
    if spec.is_continuous:
        action = jnp.tanh(action) if parts.config.ppo.squash else jnp.clip(action, -1.0, 1.0)
    if has_lstm:
        stored |= {"state": past.state, "last_action": past.action}
    memory = PpoMemory(actor_critic.Past(state, action) if has_lstm else (), returns, mover)
    return memory, base.Outputs(sampled.to_environment(action, spec) if spec.is_continuous else action, stored)


def _policy(parts: _Parts, params: PpoActing, memory: PpoMemory, inputs: base.Inputs) -> jax.Array:
    _, _, predicted = _look(parts, params, memory, inputs)
    return jax.nn.softmax(actor_critic.masked(predicted.policy, inputs.action_mask))


def _look(
    parts: _Parts, params: PpoActing, memory: PpoMemory, inputs: base.Inputs
) -> tuple[actor_critic.Past, jax.Array, actor_critic.PpoPrediction]:
    """Returns the past before the step, the LSTM's next state, and each row's prediction."""
    past = memory.past or actor_critic.no_past(parts.network, parts.spec, inputs.first.shape[0])
    steps = actor_critic.Steps.single(inputs.observation, inputs.first, inputs.reward, past.action)
    state, predicted = parts.network.unroll(params.params, past.state, steps, params.moments)
    return past, state, predicted._replace(policy=predicted.policy[:, 0], value=predicted.value[:, 0])


def _choose(
    parts: _Parts, predicted: actor_critic.PpoPrediction, legal: jax.Array | None, draws: jax.Array, key: jax.Array
) -> jax.Array:
    """Returns actions [B] int32, or [B, D] before bounds: sampled where `draws` [B] is true, else the likeliest."""
    if parts.spec.is_continuous:
        noise = jnp.exp(predicted.log_std) * jax.random.normal(key, predicted.policy.shape)
        return predicted.policy + jnp.where(draws[:, None], noise, 0.0)
    logits = actor_critic.masked(predicted.policy, legal)
    action = jnp.where(draws, jax.random.categorical(key, logits), jnp.argmax(logits, axis=-1))
    return action.astype(jnp.int32)


def _log_prob_and_entropy(
    parts: _Parts, predicted: actor_critic.PpoPrediction, action: jax.Array, legal: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Returns the log probability [...] of actions, and the policy's entropy [...].

    Continuous actions are taken before the bounds, because the compared policies clip or squash them in the same way.
    """
    if parts.spec.is_continuous:
        entropy = jnp.broadcast_to(action_distributions.gaussian_entropy(predicted.log_std), action.shape[:-1])
        return action_distributions.log_density(action, predicted.policy, predicted.log_std), entropy
    log_pi = jax.nn.log_softmax(actor_critic.masked(predicted.policy, legal))
    return q_learning.of_action(log_pi, action), -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)


# Learning ----------------------------------------------------------------------------------------------------------


def _update(
    parts: _Parts, state: PpoTrainState, windows: windowing.Windows, key: jax.Array, axis_name: str | None
) -> tuple[PpoTrainState, None, base.Metrics]:
    windows = learning.clear_padding(windows)
    moments, returns, central = _count(parts, state, windows, axis_name)
    counted, extra = state.bonus, None
    if parts.bonus is not None:
        counted, extra = parts.bonus.add(counted, windows, axis_name)
    value = parts.central and parts.central.values(state.params, state.central, windows.observation)
    batch = _steps(parts, returns, windows, extra, value)
    rate, clip_ratio = _rates(parts.config, state.num_updates)

    def minibatch(rows: jax.Array) -> tuple[_Steps, jax.Array]:
        found = jax.tree.map(lambda x: x[rows], batch)
        found = _normalized(parts.config.ppo, found._replace(counted=found.counted * (rows >= 0)[:, None]), axis_name)
        return found, _sum(found.counted, axis_name)

    def loss(params: base.Params, minibatch: _Steps, num_steps: jax.Array) -> tuple[jax.Array, base.Metrics]:
        return _loss_and_metrics(parts, params, state.moments, minibatch, num_steps, clip_ratio, state.central)

    num_minibatches, num_epochs = parts.config.ppo.num_minibatches, parts.config.ppo.num_epochs
    learned, accepted, metrics = learning.learn_in_minibatches(
        state,
        learning.minibatches(key, len(batch.counted), num_minibatches, num_epochs, axis_name),
        minibatch,
        loss,
        optimizer=parts.optimizer,
        learning_rate=rate,
        axis_name=axis_name,
    )
    # A refusal covers moments and bonus, which have seen the update's rewards and observations, too.
    before = (state.moments, state.returns, state.bonus, state.central)
    moments, returns, counted, central = learning.where(accepted, (moments, returns, counted, central), before)
    if extra is not None:
        is_step = windows.counts[:, None] & ~(windows.terminated | windows.truncated)[:, :-1]
        num_steps = jnp.maximum(_sum(is_step, axis_name), _FEW)
        metrics |= {"bonus_mean": _sum(is_step * extra, axis_name) / num_steps}
    return learned._replace(moments=moments, returns=returns, bonus=counted, central=central), None, metrics


def _steps(parts: _Parts, returns: Any, windows: windowing.Windows, extra: Any = None, value: Any = None) -> _Steps:
    """Splits the windows' steps into parts, with advantages and targets from the values seen when acting.

    returns: moments of discounted returns that include these windows; otherwise the first reward ever seen would be
    divided by a deviation of 0. extra: bonus [B, L] on rewards, or None. value: central, [B, L + 1].
    """
    config, rewards, stored, reward = parts.config.ppo, parts.config.reward, windows.stored, windows.reward[:, 1:]
    if extra is not None and config.bonus_place == "before":
        reward = reward + extra
    reward = nstep.scaled_reward(reward, rewards.scale, rewards.clip)
    if rewards.normalize:
        reward = reward * jax.lax.rsqrt(returns.variance[0] + 1e-8)
        reward = jnp.clip(reward, -_LARGEST_REWARD, _LARGEST_REWARD)
    if extra is not None and config.bonus_place == "after":
        reward = reward + extra
    discount = learning.turn_discounts(parts.spec, windows, rewards.discount)
    value = stored["value"] if value is None else value
    course = learning.turn_course(windows, value, reward, discount, trace_decay=config.trace_decay)
    value = course.value
    advantage = gae.advantages(value, reward, discount, course.is_step, trace_decay=course.trace_decay)

    last_action = stored.get("last_action", jnp.zeros_like(stored["action"]))
    seen = actor_critic.Steps(windows.observation, windows.first, windows.reward, last_action)
    rows = (seen, stored["action"], stored["log_prob"], value, stored.get("legal"))
    rows = jax.tree.map(lambda x: x[:, :-1], rows)
    counted = course.learned & windows.counts[:, None]
    of_unrolls = (*rows, advantage, advantage + value[:, :-1], counted.astype(jnp.float32))
    if parts.config.network.lstm_width:
        return _Steps(stored["state"][:, 0], *of_unrolls)
    state = parts.network.initial_state(advantage.size)
    return _Steps(state, *jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[2:]), of_unrolls))


def _rates(config: configs.Config, num_updates: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the learning rate and the ratio's clipping range of an update."""
    share = jnp.ones(())
    if config.optimizer.decay_updates:
        share = jnp.maximum(0.0, 1.0 - num_updates / config.optimizer.decay_updates)
    clip_ratio = config.ppo.clip_ratio * (share if config.ppo.decay_clip else jnp.ones(()))
    return config.optimizer.learning_rate * share, clip_ratio


def _normalized(config: ppo_config.PPOConfig, batch: _Steps, axis_name: str | None) -> _Steps:
    """Returns a minibatch; if configured, its advantages have mean 0 and variance 1 over all devices."""
    if not config.normalize_advantages:
        return batch
    num_steps = jnp.maximum(_sum(batch.counted, axis_name), _FEW)
    mean = _sum(batch.counted * batch.advantage, axis_name) / num_steps
    variance = _sum(batch.counted * jnp.square(batch.advantage - mean), axis_name) / num_steps
    return batch._replace(advantage=(batch.advantage - mean) / (jnp.sqrt(variance) + 1e-8))


def _loss_and_metrics(
    parts: _Parts,
    params: base.Params,
    moments: Any,
    batch: _Steps,
    num_steps: jax.Array,
    clip_ratio: jax.Array,
    of_central: Any = (),
) -> tuple[jax.Array, base.Metrics]:
    """Returns the loss and metrics of a minibatch (Schulman et al. 2017, equations 7 and 9).

    num_steps: mean number of steps over devices, so that the mean of the results over devices is a mean over steps.
    of_central: moments of all that a central value sees.
    """
    config = parts.config.ppo
    _, predicted = parts.network.unroll_in_loop(params, batch.state, batch.seen, moments)
    if parts.central is not None:
        predicted = predicted._replace(value=parts.central.values(params, of_central, batch.seen.observation))
    log_prob, entropy = _log_prob_and_entropy(parts, predicted, batch.action, batch.legal)
    log_ratio = jnp.where(batch.counted > 0, log_prob - batch.log_prob, 0.0)
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - clip_ratio, 1.0 + clip_ratio)
    gain = jnp.minimum(ratio * batch.advantage, clipped * batch.advantage)
    error = jnp.square(predicted.value - batch.target)
    if config.clip_value:
        near = batch.value + jnp.clip(predicted.value - batch.value, -config.clip_value, config.clip_value)
        error = jnp.maximum(error, jnp.square(near - batch.target))

    def mean(x: jax.Array) -> jax.Array:
        return jnp.sum(batch.counted * x) / jnp.maximum(num_steps, _FEW)

    policy, value, spread = -mean(gain), mean(0.5 * error), mean(entropy)
    loss = policy + config.value_loss_weight * value - config.entropy_weight * spread
    return loss, {
        "loss": loss,
        "loss_policy": policy,
        "loss_value": value,
        "policy_entropy": spread,
        "policy_kl": mean(ratio - 1.0 - log_ratio),
        "clip_fraction": mean(jnp.abs(ratio - 1.0) > clip_ratio),
        "value_mean": mean(predicted.value),
        "value_target_mean": mean(batch.target),
    }


def _count(
    parts: _Parts, state: PpoTrainState, windows: windowing.Windows, axis_name: str | None
) -> tuple[Any, Any, Any]:
    """Returns the moments of observations, returns and what a central value sees, including the windows' rows."""
    shape = (windows.reward.shape[0], windows.reward.shape[1] - 1)
    counted = jnp.broadcast_to(windows.counts[:, None], shape).reshape(-1)
    moments, returns, central = state.moments, state.returns, state.central
    observation = observations.flat(windowing.observed(windows, slice(-1)))
    if moments is not None:
        moments = parts.network.add_moments(moments, observation, counted, axis_name)
    if parts.central is not None:
        central = parts.central.add_moments(central, observation, counted, axis_name)
    if parts.config.reward.normalize:
        found = windows.stored["return"][:, :-1].reshape(-1, 1)
        returns = statistics.add_features(returns, found, counted, axis_name)
    return moments, returns, central


def _sum(x: jax.Array, axis_name: str | None) -> jax.Array:
    """Returns the sum of x, averaged over the devices."""
    total = jnp.sum(x)
    return total if axis_name is None else jax.lax.pmean(total, axis_name)
