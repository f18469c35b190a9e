"""Parts that MuZero's acting and learning share: network, memory, the units of its numbers, and the optimizer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from seedzero.agents import base, learning
from seedzero.config import configs, shared
from seedzero.core import types
from seedzero.networks import actor_critic, muzero_net, observations, recurrence
from seedzero.ops import nstep, statistics, value_transforms
from seedzero.replay import ring_store, sources, windowing

PREFIX_HORIZON = 5
"""How many rewards a sum has before it begins again, with --muzero.value_prefix (EfficientZero)."""
REWARD_SIZE = "reward_size"
"""Name of the parameter that holds the running size of rewards."""

_WEIGHT_DECAY = 1e-4
"""Weight decay of all kernels, decoupled as in AdamW."""


class Parts(NamedTuple):
    """Parts that this agent's functions share."""

    config: configs.Config
    spec: types.EnvSpec
    network: muzero_net.Network
    optimizer: optax.GradientTransformation
    schedule: Callable[[jax.Array], jax.Array]


def make_parts(config: configs.Config, spec: types.EnvSpec, platform: str) -> Parts:
    """Returns the parts. Raises ConfigError if the network and the observations have different shapes."""
    network = muzero_net.make(config.network, spec, platform, config.muzero)
    return Parts(config, spec, network, make_optimizer(config.optimizer), make_schedule(config.optimizer))


MOVER = "mover"
"""Name of a stored int8 array: the player to move, 0 or 1, where one may move several times in a row."""


def signed_discount(parts: Parts) -> float:
    """Returns the factor of a value one step earlier: the discount, negative if two players alternate.

    A value belongs to the player to move, who loses what the other one gains. If a player may move again, the sign
    depends on the step, and this is only the discount.
    """
    discount = parts.config.reward.discount
    return discount if parts.spec.num_players == 1 or parts.spec.moves_again else -discount


def init(parts: Parts, key: jax.Array) -> base.Params:
    """Returns the initial parameters: the network's, the observations' moments and the size of rewards."""
    params = dict(parts.network.init(key))
    if (moments := parts.network.no_moments()) is not None:
        params[observations.MOMENTS] = moments
    if parts.config.reward.normalize:
        params[REWARD_SIZE] = statistics.no_size()
    return params


def observe(parts: Parts, params: base.Params, windows: windowing.Windows, axis_name: str | None) -> base.Params:
    """Returns the parameters with the statistics of windows of any weight added, equal on all mapped devices."""
    params, counted = dict(params), windows.counts
    if (moments := params.get(observations.MOMENTS)) is not None:
        seen = windowing.observed(windows, 0)
        params[observations.MOMENTS] = parts.network.add_moments(moments, seen, counted, axis_name)
    if REWARD_SIZE in params:
        # The first reward of a window came before it and belongs to another window.
        rewards, valid = clip_rewards(parts, windows.reward)[:, 1:], windows.valid[:, 1:] & counted[:, None]
        params[REWARD_SIZE] = statistics.add_numbers(params[REWARD_SIZE], rewards, valid, axis_name)
    return params


def clip_rewards(parts: Parts, reward: jax.Array) -> jax.Array:
    """Returns the rewards [...] to learn from."""
    limit = parts.config.reward.clip
    return jnp.clip(reward, -limit, limit) if limit else reward


def targets(
    parts: Parts,
    windows: windowing.Windows,
    value: jax.Array,
    compute: Callable[[nstep.Experience], nstep.Targets],
) -> nstep.Targets:
    """Computes the movers' targets of windows; value: [B, J] to bootstrap from."""
    stored, rewards = windows.stored, clip_rewards(parts, windows.reward)
    own, mover = stored.get(ring_store.OWN), stored.get(MOVER)
    seen = nstep.Experience(rewards, value, windows.terminated, windows.truncated, windows.valid, own)
    return compute(seen) if mover is None else nstep.of_movers(compute(nstep.of_player(seen, mover)), mover)


def unit(params: base.Params) -> jax.Array | float:
    """Returns the usual size of a reward, a scalar, which is the unit of rewards and values in network and search."""
    if REWARD_SIZE not in params:
        return 1.0
    return jax.lax.stop_gradient(statistics.root_mean_square(params[REWARD_SIZE]))


def decode(parts: Parts, logits: jax.Array) -> jax.Array:
    """Returns the numbers [...] that logits [..., bins] stand for, in the network's unit."""
    network = parts.config.network
    assert logits.shape[-1] == network.num_bins
    return value_transforms.expectation(logits, network.support_limit, network.value_transform)


_USUALLY_GOES_ON = 4.0
"""Added to the logit that the episode continues: 0.98 if the head knows nothing."""


def on_and_value_logits(parts: Parts, logits: jax.Array) -> tuple[jax.Array | None, jax.Array]:
    """Returns the logits [...] that the episode continues (None without predicted ends) and the value's logits.

    logits: those of the value head, [..., bins] or [..., bins + 1].
    """
    if not parts.config.muzero.predict_ends:
        return None, logits
    return logits[..., -1] + _USUALLY_GOES_ON, logits[..., :-1]


def turn_and_reward_logits(parts: Parts, logits: jax.Array) -> tuple[jax.Array | None, jax.Array]:
    """Returns the logits [...] that the other player moves next (None if players alternate) and the reward's.

    logits: those of the reward head, [..., bins] or [..., bins + 1].
    """
    return (logits[..., -1], logits[..., :-1]) if parts.spec.moves_again else (None, logits)


def decode_reward(parts: Parts, logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the rewards [...] that the reward head's logits stand for, and the factors of the values behind them."""
    turn, logits = turn_and_reward_logits(parts, logits)
    reward, discount = decode(parts, logits), signed_discount(parts)
    if turn is None:
        return reward, jnp.full_like(reward, discount)
    return reward, jnp.where(turn > 0, -discount, discount)


def decode_value(parts: Parts, logits: jax.Array) -> jax.Array:
    """Returns the values [...] that the value head's logits stand for; an ended episode is worth 0."""
    goes_on, logits = on_and_value_logits(parts, logits)
    value = decode(parts, logits)
    return value if goes_on is None else jax.nn.sigmoid(goes_on) * value


def encode(parts: Parts, x: jax.Array) -> jax.Array:
    """Returns the probabilities [..., bins] that stand for the numbers [...] in the network's unit."""
    network = parts.config.network
    return value_transforms.two_hot(x, network.num_bins, network.support_limit, network.value_transform)


def exceeds(parts: Parts, x: jax.Array) -> jax.Array:
    """Returns whether numbers [...] in the network's unit are larger than it can show, [...] bool."""
    network = parts.config.network
    return value_transforms.exceeds(x, network.support_limit, network.value_transform)


def make_optimizer(config: shared.OptimizerConfig) -> optax.GradientTransformation:
    """Returns AdamW without its learning rate: it clips, takes Adam's direction, and decays all kernels."""
    clip = learning.clipping(config.clip_norm)
    kernels = functools.partial(jax.tree.map, lambda leaf: leaf.ndim > 1)
    decay = optax.add_decayed_weights(_WEIGHT_DECAY, mask=kernels)
    return optax.chain(clip, optax.scale_by_adam(), decay)


def make_schedule(config: shared.OptimizerConfig) -> Callable[[jax.Array], jax.Array]:
    """Returns a function from the number of updates done to the learning rate, both scalars."""
    peak, warmup, decay_updates = config.learning_rate, config.warmup_updates, config.decay_updates
    schedules: dict[str, Callable[[], Callable[[jax.Array], jax.Array]]] = {
        "constant": lambda: optax.constant_schedule(peak),
        "cosine": lambda: optax.cosine_decay_schedule(peak, decay_updates, alpha=config.decay_rate),
        "exponential": lambda: optax.exponential_decay(peak, decay_updates, config.decay_rate),
        "linear": lambda: optax.linear_schedule(peak, peak * config.decay_rate, decay_updates),
    }
    after = schedules[config.schedule if decay_updates else "constant"]()
    if not warmup:
        return after
    rising = optax.linear_schedule(peak / warmup, peak, warmup - 1)
    joined: Callable[[jax.Array], jax.Array] = optax.join_schedules([rising, after], [warmup])
    return joined


STATE, LAST_ACTION = "state", "last_action"
"""Names of the stored arrays."""


# MuZero's memory is a recurrent core behind the representation; acting carries it, training burns it in.
#
# Acting's state is stored in every few rows, as in R2D2 (Kapturowski et al. 2019, section 3). A window includes the
# rows before it. The core sees them again with newer parameters, from the last stored state that is at least
# `muzero.burn_in` rows back. If the episode began later than that, the state is acting's own, except for the
# parameters.
#
# R2D2 learns all steps after a burn-in, so no gradient goes through the burn-in itself. Here one position of a window
# is unrolled, so gradients do go through; otherwise the core would never learn what to remember for it.
#
# Shape letters: B batch, S slots, Q rows before a window, N numbers of a state.
class MuZeroMemory(NamedTuple):
    """The memory of an environment."""

    state: jax.Array  # [S, N], the core's state
    action: jax.Array  # [S] int32, or [S, D] in -1 to 1, the last one
    repetition: Any  # of random actions; an empty tuple if there is none


def stored(config: configs.Config, spec: types.EnvSpec) -> dict[str, sources.Stored]:
    """Returns the arrays that are stored for windows to begin with; none without a memory."""
    muzero = config.muzero
    if muzero.memory == "none":
        return {}
    number = np.dtype(np.float32)
    width = recurrence.state_width(muzero.memory, muzero.memory_width)
    return {
        STATE: sources.Stored((width,), number, every=muzero.STATE_EVERY),
        LAST_ACTION: sources.Stored(
            spec.action_shape, number if spec.is_continuous else np.dtype(np.int32), every=muzero.STATE_EVERY
        ),
    }


def initial_memory(config: configs.Config, spec: types.EnvSpec, num_slots: int, repetition: Any) -> Any:
    """Returns the memory before the first step; without a core, only the repetition of random actions."""
    if config.muzero.memory == "none":
        return repetition
    width = recurrence.state_width(config.muzero.memory, config.muzero.memory_width)
    dtype = jnp.float32 if spec.is_continuous else jnp.int32
    return MuZeroMemory(jnp.zeros((num_slots, width)), jnp.zeros((num_slots, *spec.action_shape), dtype), repetition)


def see(
    parts: Parts, params: base.Params, memory: MuZeroMemory, inputs: base.Inputs
) -> tuple[MuZeroMemory, jax.Array, jax.Array]:
    """Returns the memory to store before a step, the core's state [B, N] after it, and hidden states [B, ...]."""
    network = parts.network.memory
    assert network is not None
    # The state that an episode begins with is stored: rows of a resumed run are those of one that continued.
    state, action = (
        jnp.where(inputs.first.reshape(-1, *[1] * (x.ndim - 1)), 0, x) for x in (memory.state, memory.action)
    )
    memory = memory._replace(state=state, action=action)
    steps = actor_critic.Steps.single(inputs.observation, inputs.first, inputs.reward, action)
    state, hidden = network.unroll(parts.network.cast(params), memory.state, steps)
    return memory, state, hidden[:, 0]


def represent(parts: Parts, params: base.Params, windows: windowing.Windows, positions: slice) -> jax.Array:
    """Returns the hidden states [B, P, ...] at some of the windows' observed positions.

    Args:
      params: in the compute dtype.
      windows: with the rows before them if there is a memory. Then the observations are those of the first positions,
        without a gap.
      positions: the P positions.
    """
    if parts.network.memory is None:
        seen = windowing.observed(windows, positions)
        hidden = parts.network.represent(params, observations.flat(seen))
        return hidden.reshape(*next(iter(seen.values())).shape[:2], *hidden.shape[1:])
    before, every = windows.before, parts.config.muzero.STATE_EVERY
    assert before is not None
    num_before = before.first.shape[1]
    num_seen = range(next(iter(windows.observation.values())).shape[1])[positions][-1] + 1

    def joined(earlier: jax.Array, later: jax.Array) -> jax.Array:
        return jnp.concatenate([earlier, later[:, :num_seen]], axis=1)

    observation = {name: joined(x, windows.observation[name]) for name, x in before.observation.items()}
    action = joined(before.stored["action"], windows.stored["action"])
    # Of the rows of `every` at the beginning, only that of the stored state has a number that is a multiple of
    # `every`.
    begin = (num_before - windows.time) % every
    begins = jnp.arange(num_before + num_seen) == begin[:, None]
    last_action = jnp.concatenate([jnp.zeros_like(action[:, :1]), action[:, :-1]], axis=1)
    given = before.stored[LAST_ACTION][:, :1]
    last_action = jnp.where(begins.reshape(*begins.shape, *[1] * (action.ndim - 2)), given, last_action)
    steps = actor_critic.Steps(
        observation, joined(before.first, windows.first), joined(before.reward, windows.reward), last_action
    )
    _, hidden = parts.network.memory.unroll(params, before.stored[STATE][:, 0], steps, begins)
    return hidden[:, num_before:][:, positions]
