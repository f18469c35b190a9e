"""Shared steps of learning: returns of games in turn, padding, minibatches, gradients, and the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from seedzero.agents import base
from seedzero.config import configs, shared
from seedzero.core import types
from seedzero.networks import actor_critic, observations
from seedzero.replay import ring_store, sources, windowing


# Lets agents that learn from unrolls play games of two players in turn: a row is a position, its value the mover's.
#
# What one player gains the other loses, so a discount is negative if the turn passes. In a league other players move
# in some rows. Those are not steps of the learner: its returns run through them from one of its own turns to the next,
# and no value or policy is learned there.
#
# Shape letters: B batch, T steps.
def stored_turns(config: configs.Config, spec: types.EnvSpec) -> dict[str, sources.Stored]:
    """Returns the array that marks the learner's own rows, in games where others move too."""
    if spec.num_players == 1 or not config.league.on:
        return {}
    return {ring_store.OWN: sources.Stored((), np.dtype(bool))}


def turn_discounts(spec: types.EnvSpec, windows: windowing.Windows, discount: float) -> jax.Array:
    """Returns [B, T], the factors of the next row's value: negative if the other player moves there, 0 at an end."""
    following = discount * ~windows.terminated[:, 1:]
    if spec.num_players == 1:
        return following
    if not spec.moves_again:
        return -following
    mover = movers(spec, observations.flat(windows.observation)).reshape(windows.reward.shape)
    return jnp.where(mover[:, 1:] == mover[:, :-1], following, -following)


def movers(spec: types.EnvSpec, observation: Mapping[str, jax.Array]) -> jax.Array:
    """Returns the players to move [B] int8 in single frames {name: [B, *shape]}, where one may move again."""
    seen = observation[spec.arrays[0].name]  # the only one, but for those of acting alone
    return seen.reshape(seen.shape[0], -1)[:, -1].astype(jnp.int8)


class Returns(NamedTuple):
    """Rows as the learner's returns go through them."""

    value: jax.Array  # [B, T + 1]; in another player's row, the worth of the rows behind it
    is_step: jax.Array  # [B, T] bool, false: no return goes from here to the next row
    trace_decay: float | jax.Array  # lambda; 1 in the others' rows, which estimate nothing
    learned: jax.Array  # [B, T] bool, true: one of the learner's own steps


def turn_course(
    windows: windowing.Windows, value: jax.Array, reward: jax.Array, discount: jax.Array, *, trace_decay: float
) -> Returns:
    """Returns the course of windows.

    The values in other players' rows are theirs, or were never learned. Such a row is worth the reward on the way to
    the next row plus the value of that row. If it is the last of the window, or of an episode cut off by a limit, its
    value is unknown and no return goes there.

    Args:
      value: [B, T + 1], the learner's estimate for the mover.
      reward: [B, T], for step t received on the way to t + 1.
      discount: [B, T], as in `discounts`.
      trace_decay: lambda.
    """
    is_step = ~(windows.terminated | windows.truncated)[:, :-1]
    own = windows.stored.get(ring_store.OWN)
    if own is None:
        return Returns(value, is_step, trace_decay, is_step)
    has_end = own | windows.terminated

    def back(
        following: tuple[jax.Array, jax.Array], row: tuple[jax.Array, ...]
    ) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
        next_value, next_known = following
        value, reward, discount, own, has_end, is_step = row
        found = (jnp.where(own, value, reward + discount * next_value), has_end | (is_step & next_known))
        return found, found

    rows = (value[:, :-1], reward, discount, own[:, :-1], has_end[:, :-1], is_step)
    last = (value[:, -1], has_end[:, -1])
    _, (through, known) = jax.lax.scan(back, last, jax.tree.map(lambda x: x.T, rows), reverse=True)
    known = jnp.concatenate([known.T, has_end[:, -1:]], axis=1)
    is_step &= known[:, 1:]
    decay = jnp.where(own[:, :-1], trace_decay, 1.0)
    value = jnp.concatenate([through.T, value[:, -1:]], axis=1)
    return Returns(value, is_step, decay, is_step & own[:, :-1])


class TrainState(NamedTuple):
    params: base.Params  # newest parameters
    target_params: base.Params  # the target network's parameters; an empty tuple if there is none
    opt_state: Any  # the optimizer's state
    num_updates: jax.Array  # scalar int32, updates so far, including refused ones
    num_rejected: jax.Array  # scalar int32, updates refused in a row, because their loss or gradient was not finite


def init(params: base.Params, optimizer: optax.GradientTransformation, *, has_target: bool = False) -> TrainState:
    """Returns the state before the first update."""
    return TrainState(
        params=params,
        # A copy: donated buffers must not appear twice in one state.
        target_params=jax.tree.map(jnp.copy, params) if has_target else (),
        opt_state=optimizer.init(params),
        num_updates=jnp.zeros((), jnp.int32),
        num_rejected=jnp.zeros((), jnp.int32),
    )


def clipping(norm: float) -> optax.GradientTransformation:
    """Returns the limit of the gradients' global norm; 0 if there is none."""
    return optax.clip_by_global_norm(norm) if norm else optax.identity()


def optimizer(settings: shared.OptimizerConfig, *, is_centered: bool = False) -> optax.GradientTransformation:
    """Returns an optimizer without its learning rate. is_centered: whether RMSProp divides by a standard deviation."""
    if settings.kind == "adam":
        direction = optax.scale_by_adam(eps=settings.epsilon)
    elif is_centered:
        direction = _by_deviation(settings.rmsprop_decay, settings.epsilon)
    else:
        direction = optax.scale_by_rms(settings.rmsprop_decay, settings.epsilon)
    return optax.chain(clipping(settings.clip_norm), direction)


def schedule(settings: shared.OptimizerConfig) -> Callable[[jax.Array], Any]:
    """Returns a function from updates done to the learning rate, which is constant or falls linearly to 0."""
    if settings.decay_updates:
        return optax.linear_schedule(settings.learning_rate, 0.0, settings.decay_updates)  # type: ignore[no-any-return]
    return optax.constant_schedule(settings.learning_rate)  # type: ignore[no-any-return]


def _by_deviation(decay: float, epsilon: float) -> optax.GradientTransformation:
    """Returns Optax's centered RMSProp with variances clipped at 0.

    For equal gradients, the mean square minus the squared mean is a rounding error, and below -epsilon it has no root.
    """
    averages = optax.scale_by_stddev(decay, epsilon)

    def update(gradients: base.Params, state: Any, params: base.Params | None = None) -> tuple[base.Params, Any]:
        _, state = averages.update(gradients, state, params)

        def direction(gradient: jax.Array, mean: jax.Array, mean_square: jax.Array) -> jax.Array:
            return gradient * jax.lax.rsqrt(jnp.maximum(mean_square - jnp.square(mean), 0.0) + epsilon)

        return jax.tree.map(direction, gradients, state.mu, state.nu), state

    return optax.GradientTransformation(averages.init, update)


def clear_padding(windows: windowing.Windows) -> windowing.Windows:
    """Returns the windows with padding rows set to 0: padding may be NaN, and NaN times 0 is NaN."""

    def clear(x: jax.Array) -> jax.Array:
        return jnp.where(windows.counts.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.zeros_like(x))

    cleared: windowing.Windows = jax.tree.map(clear, windows)
    return cleared


def gradients(
    loss: Callable[[base.Params], tuple[jax.Array, tuple[base.Metrics, Any]]],
    params: base.Params,
    axis_name: str | None,
) -> tuple[base.Params, base.Metrics, Any]:
    """Returns a loss's gradients and metrics, averaged over the mapped axis if there is one, and its other results."""
    # Gradients of what differs between devices stay local; JAX would sum those of shared parameters.
    local = params if axis_name is None else jax.lax.pcast(params, axis_name, to="varying")
    (_, (metrics, others)), found = jax.value_and_grad(loss, has_aux=True)(local)
    if axis_name is not None:
        found, metrics = jax.lax.pmean((found, metrics), axis_name)
    return found, metrics, others


def apply_gradients(
    state: TrainState,
    gradients: base.Params,
    metrics: base.Metrics,
    *,
    optimizer: optax.GradientTransformation,
    schedule: Callable[[jax.Array], jax.Array],
    target_updates: int = 0,
    refused: base.Params | None = None,
) -> tuple[TrainState, base.Metrics]:
    """Returns the state after one optimizer step. Non-finite gradients leave parameters and optimizer unchanged.

    Args:
      metrics: must have "loss"; "grad_norm", "learning_rate" and "num_rejected" are added.
      optimizer: without its learning rate.
      schedule: from updates done to the learning rate.
      target_updates: interval in updates at which the target network is copied; 0 if there is none.
      refused: parameters after a refused update, if those of the state already include moments of its windows. None:
        the state's.
    """
    grad_norm = optax.tree.norm(gradients)
    learning_rate = schedule(state.num_updates)
    directions, opt_state = optimizer.update(gradients, state.opt_state, state.params)
    params = jax.tree.map(lambda p, d: p - learning_rate * d, state.params, directions)
    accepted = jnp.isfinite(metrics["loss"]) & jnp.isfinite(grad_norm)
    kept = state.params if refused is None else refused
    params, opt_state = where(accepted, (params, opt_state), (kept, state.opt_state))
    num_updates, target_params = state.num_updates + 1, state.target_params
    if target_updates:
        target_params = optax.periodic_update(params, target_params, num_updates, target_updates)
    num_rejected = jnp.where(accepted, 0, state.num_rejected + 1)
    more = {"grad_norm": grad_norm, "learning_rate": learning_rate, "num_rejected": num_rejected}
    new_state = TrainState(params, target_params, opt_state, num_updates, num_rejected)
    return new_state, {name: jnp.asarray(x, jnp.float32) for name, x in (metrics | more).items()}


def add_moments(
    network: actor_critic.RecurrentNetwork[Any],
    state: TrainState,
    windows: windowing.Windows,
    axis_name: str | None,
) -> TrainState:
    """Returns the state after an update. Moments among its parameters include the windows unless it was refused."""
    if network.no_moments() is None:
        return state
    before = state.params[observations.MOMENTS]
    shape = next(iter(windows.observation.values())).shape[:2]
    counted = jnp.broadcast_to(windows.counts[:, None], shape).reshape(-1)
    after = network.add_moments(before, observations.flat(windows.observation), counted, axis_name)
    params = {**state.params, observations.MOMENTS: where(state.num_rejected == 0, after, before)}
    return state._replace(params=params)


def learn_in_minibatches(
    state: Any,
    rows: jax.Array,
    minibatch: Callable[[jax.Array], tuple[Any, jax.Array]],
    loss: Callable[[base.Params, Any, jax.Array], tuple[jax.Array, base.Metrics]],
    *,
    optimizer: optax.GradientTransformation,
    learning_rate: jax.Array,
    axis_name: str | None,
) -> tuple[Any, jax.Array, base.Metrics]:
    """Steps the optimizer for each minibatch; returns the state, whether all were accepted, and mean metrics.

    Minibatches without steps have no part in the means. If any loss or gradient is not finite, all are refused:
    parameters and optimizer are those from before the first.

    Args:
      state: a NamedTuple with `params`, `opt_state`, `num_updates` and `num_rejected`; its other fields do not change.
      rows: [minibatches, M], the parts of each, with -1 for none, as `minibatches` returns them.
      minibatch: rows [M] -> the minibatch, and its number of steps: a mean over devices; 0 skips the minibatch.
      loss: (parameters, minibatch, number of steps) -> loss, and metrics, which have "loss".
      optimizer: without its learning rate.
    """

    def learn(
        carry: tuple[base.Params, Any], rows: jax.Array
    ) -> tuple[tuple[base.Params, Any], tuple[base.Metrics, jax.Array]]:
        params, opt_state = carry
        batch, num_steps = minibatch(rows)

        def alone(params: base.Params) -> tuple[jax.Array, tuple[base.Metrics, None]]:
            value, metrics = loss(params, batch, num_steps)
            return value, (metrics, None)

        found, metrics, _ = gradients(alone, params, axis_name)
        directions, new_opt_state = optimizer.update(found, opt_state, params)
        new_params = jax.tree.map(lambda p, d: p - learning_rate * d, params, directions)
        carry = where(num_steps > 0, (new_params, new_opt_state), (params, opt_state))
        return carry, ({**metrics, "grad_norm": optax.tree.norm(found)}, num_steps > 0)

    before = (state.params, state.opt_state)
    after, (metrics, learned) = jax.lax.scan(learn, before, rows)
    accepted = jnp.all(jnp.isfinite(metrics["loss"]) & jnp.isfinite(metrics["grad_norm"]))
    params, opt_state = where(accepted, after, before)
    num_rejected = jnp.where(accepted, 0, state.num_rejected + 1)
    num_learned = jnp.maximum(jnp.sum(learned), 1)
    metrics = {name: jnp.sum(jnp.where(learned, x, 0.0)) / num_learned for name, x in metrics.items()}
    metrics |= {"learning_rate": learning_rate, "num_rejected": num_rejected}
    counts = {"num_updates": state.num_updates + 1, "num_rejected": num_rejected}
    new_state = state._replace(params=params, opt_state=opt_state, **counts)
    return new_state, accepted, {name: jnp.asarray(x, jnp.float32) for name, x in metrics.items()}


def minibatches(
    key: jax.Array, num_parts: int, num_minibatches: int, num_epochs: int, axis_name: str | None = None
) -> jax.Array:
    """Returns a device's parts in each minibatch, [epochs * minibatches, M] int32, in a different order each epoch.

    -1 is not a part. Every part is in one minibatch of an epoch. Over all devices, minibatches differ by at most one
    part: of D devices, number d begins minibatch m of n at its part floor(m * num_parts / n + d / D), and by Hermite's
    identity the sum over d is floor(m * num_parts * D / n).
    """
    count = num_minibatches
    size = -(-num_parts // count)
    device, num_devices = (
        (0, 1) if axis_name is None else (jax.lax.axis_index(axis_name), jax.lax.axis_size(axis_name))
    )
    whole, rest = np.divmod(np.arange(count + 1) * num_parts, count)
    begins = whole + (rest * num_devices + device * count >= count * num_devices)
    place = begins[:-1, None] + np.arange(size)
    orders = jax.vmap(lambda key: jax.random.permutation(key, num_parts))(jax.random.split(key, num_epochs))
    rows = jnp.where(place < begins[1:, None], orders[:, jnp.minimum(place, num_parts - 1)], -1)
    return rows.reshape(num_epochs * count, size)


def where(condition: jax.Array, new: Any, old: Any) -> Any:
    """Returns the tree `new` if the scalar condition is true, else `old`."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
