"""Chance in MuZero's model (Stochastic MuZero, Antonoglou et al. 2022): codes of what was seen, and their losses.

The encoder sees an observation and the next one, by their representations, and names the outcome between them by one
of C codes. The prediction of codes teaches it nothing, because one code for everything would be easiest to predict. In
the paper, the losses of everything that follows teach it. But rewards and values distinguish outcomes only once codes
do, and a code that means nothing gets almost no gradient from them: for the six sides of a die, one to four codes
remained. So the encoder has its own loss, `loss_outcome`: from the observation, the action and the code, the model
must predict the next observation. It also teaches the dynamics. Choosing one code has no gradient, so the code's
gradient goes unchanged to the encoder's preferences (straight through).

Shape letters: B batch, K unrolled steps, C codes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedzero.agents import base, muzero_model
from seedzero.networks import muzero_net
from seedzero.ops import nstep
from seedzero.replay import windowing

COMMITMENT_WEIGHT = 0.003
"""Weight of the loss that keeps preferences close to the codes they choose. With 0.05 the first choice never changes.
"""


class Outcomes(NamedTuple):
    """What chance decided in K steps."""

    seen: jax.Array  # [B, K+1, ...] hidden states of the observations, which receive no gradient
    code: jax.Array  # [B, K, C] 1 for the chosen code, else 0; its gradients go into the preferences
    preference: jax.Array  # [B, K, C] of the encoder
    noise: jax.Array  # [K, B, C] Gumbel noise, for drawing codes that nobody saw


class Term(NamedTuple):
    """A part of the loss."""

    metric: str
    weight: float
    errors: jax.Array  # [B, K]
    mask: jax.Array  # [B, K] bool, true: learned


def encode(
    parts: muzero_model.Parts, params: base.Params, windows: windowing.Windows, root: jax.Array, key: jax.Array
) -> Outcomes:
    """Returns what chance decided in a window's steps.

    Args:
      params: in the compute dtype.
      root: [B, ...] hidden states of the first observations.
      key: draws the codes behind an end.
    """
    chance, num_steps = _chance(parts), parts.config.muzero.unroll_steps
    fixed = jax.lax.stop_gradient((params, root))
    later = muzero_model.represent(parts, fixed[0], windows, slice(1, 1 + num_steps))
    seen = jax.lax.stop_gradient(jnp.concatenate([fixed[1][:, None], later], axis=1))
    before, after = (x.reshape(-1, *x.shape[2:]) for x in (seen[:, :-1], seen[:, 1:]))
    preference = chance.encode(params, before, after).reshape(*later.shape[:2], -1)
    chosen = jax.nn.one_hot(jnp.argmax(preference, axis=-1), chance.num_codes)
    code = chosen + preference - jax.lax.stop_gradient(preference)
    return Outcomes(seen, code, preference, jax.random.gumbel(key, (num_steps, len(root), chance.num_codes)))


def step(
    parts: muzero_model.Parts,
    params: base.Params,
    hidden: jax.Array,
    action: jax.Array,
    outcomes: Outcomes,
    taken: jax.Array,
    k: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the hidden state after step k, its reward logits, and the afterstate before its code.

    Args:
      params: in the compute dtype.
      hidden, action: [B, ...], from before the step.
      taken: [B] bool, true: what followed was seen. Elsewhere the code is drawn as the model predicts it, so that
        codes behind an end say nothing about the end, as with actions.
    """
    chance = _chance(parts)
    afterstate = chance.decide(params, hidden, action)
    logits, _ = chance.predict(*jax.lax.stop_gradient((params, afterstate)))
    drawn = jax.nn.one_hot(jnp.argmax(logits + outcomes.noise[k], axis=-1), chance.num_codes)
    code = jnp.where(taken[:, None], jax.lax.stop_gradient(outcomes.code[:, k]), drawn)
    return *chance.resolve(params, afterstate, code), afterstate


def terms(
    parts: muzero_model.Parts,
    params: base.Params,
    afterstates: jax.Array,
    outcomes: Outcomes,
    actions: jax.Array,
    targets: nstep.Targets,
    taken: jax.Array,
    unit: jax.Array | float,
) -> list[Term]:
    """Returns the losses of afterstates [B, K, ...] and of the encoder.

    An afterstate's value is the return after the action, for the player who moved.

    Args:
      params: in the compute dtype.
      actions: [B, K] as stored.
      targets: in the environment's unit.
      taken: [B, K] bool, as in `step`.
      unit: the network's, as in `muzero_model.unit`.
    """
    chance, num_steps = _chance(parts), taken.shape[1]

    def flat(x: jax.Array) -> jax.Array:
        return x.reshape(-1, *x.shape[2:])

    seen = chance.decide(params, flat(outcomes.seen[:, :-1]), flat(actions))
    followed, _ = chance.resolve(params, seen, flat(outcomes.code))
    distance = jnp.square(followed.astype(jnp.float32) - flat(outcomes.seen[:, 1:])).reshape(*taken.shape, -1)
    predicted = chance.predict(params, flat(afterstates))
    log_code, log_value = (jax.nn.log_softmax(x).reshape(*taken.shape, -1) for x in predicted)
    code = jax.lax.stop_gradient(outcomes.code)
    value = muzero_model.encode(parts, targets.q_estimate[:, :num_steps] / unit)
    has_value = taken & targets.value_mask[:, :num_steps]
    return [
        Term("loss_outcome", 1.0, jnp.mean(distance, axis=-1), taken),
        Term("loss_code", 1.0, -jnp.sum(code * log_code, axis=-1), taken),
        Term("loss_commitment", COMMITMENT_WEIGHT, jnp.sum(jnp.square(outcomes.preference - code), axis=-1), taken),
        Term(
            "loss_afterstate_value",
            parts.config.muzero.value_loss_weight,
            -jnp.sum(value * log_value, axis=-1),
            has_value,
        ),
    ]


def codes_in_use(code: jax.Array, mask: jax.Array) -> jax.Array:
    """Returns how many equally likely codes would be as hard to guess: e to the entropy of all codes.

    code: [B, K, C]; mask: [B, K] bool, true: counted.
    """
    share = jnp.sum(jnp.where(mask[..., None], jax.lax.stop_gradient(code), 0.0), axis=(0, 1))
    share = share / jnp.maximum(jnp.sum(mask), 1)
    return jnp.exp(-jnp.sum(jnp.where(share > 0, share * jnp.log(jnp.maximum(share, 1e-9)), 0.0)))


def _chance(parts: muzero_model.Parts) -> muzero_net.ChanceFunctions:
    assert parts.network.chance is not None
    return parts.network.chance
