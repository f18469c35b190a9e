"""Chance in MuZero's model (Stochastic MuZero, Antonoglou et al. 2022): codes of what was seen, and their losses.

The encoder sees an observation and the next one, by their representations, and names the outcome between them by one
of C codes. The prediction of codes teaches it nothing: else one code for all would be easiest. In the paper the losses
of all that follows teach it. But rewards and values tell outcomes apart only once codes do, and a code that says
nothing gets next to no gradient from them: of the six sides of a die one to four codes were left. So the encoder has a
loss of its own, `loss_outcome`: what was seen, the action and the code lead to what was seen next. It teaches the
dynamics, too. The choice of one code has no gradient; the code's goes to the encoder's preferences as it is (straight
through).

Shape letters: B batch, K unrolled steps, C codes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedzero.agents import base, muzero_memory, muzero_model
from seedzero.networks import muzero_net
from seedzero.ops import nstep
from seedzero.replay import windowing

COMMITMENT_WEIGHT = 0.003
"""Of the loss that keeps preferences near the codes that they choose. With 0.05 the first choice stays for ever."""


class Outcomes(NamedTuple):
    """What chance decided in K steps."""

    seen: jax.Array  # [B, K+1, ...] hidden states of the observations, into which no gradient goes
    code: jax.Array  # [B, K, C] 1 for the chosen code, else 0; its gradients go into the preferences
    preference: jax.Array  # [B, K, C] of the encoder
    noise: jax.Array  # [K, B, C] Gumbel's, for the draws of codes that nobody saw


class Term(NamedTuple):
    """A part of the loss."""

    metric: str
    weight: float
    errors: jax.Array  # [B, K]
    mask: jax.Array  # [B, K] bool, true: learned


def encode(
    parts: muzero_model.Parts, params: base.Params, windows: windowing.Windows, root: jax.Array, key: jax.Array
) -> Outcomes:
    """Returns the outcomes of a window's steps.

    Args:
      params: in the compute dtype.
      root: [B, ...] hidden states of the first observations.
      key: of the draws of codes behind an end.
    """
    chance, num_steps = _chance(parts), parts.config.muzero.unroll_steps
    fixed = jax.lax.stop_gradient((params, root))
    later = muzero_memory.represent(parts, fixed[0], windows, slice(1, 1 + num_steps))
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
    """Returns the hidden state behind step k, its reward logits, and the afterstate before its code.

    Args:
      params: in the compute dtype.
      hidden, action: [B, ...] before the step.
      taken: [B] bool, true: what followed was seen. Elsewhere the code is drawn as the model predicts it: as for
        actions, codes behind an end say nothing about it.
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

    An afterstate's value is that of the player who moved, the return after the action.

    Args:
      params: in the compute dtype.
      actions: [B, K] as stored.
      targets: in the unit of the environment.
      taken: [B, K] bool, as of `step`.
      unit: of the network, as of `muzero_model.unit`.
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
    """Returns the number of codes that would be as hard to guess if they were even: e to the entropy of all codes.

    code: [B, K, C]; mask: [B, K] bool, true: counted.
    """
    share = jnp.sum(jnp.where(mask[..., None], jax.lax.stop_gradient(code), 0.0), axis=(0, 1))
    share = share / jnp.maximum(jnp.sum(mask), 1)
    return jnp.exp(-jnp.sum(jnp.where(share > 0, share * jnp.log(jnp.maximum(share, 1e-9)), 0.0)))


def _chance(parts: muzero_model.Parts) -> muzero_net.ChanceFunctions:
    assert parts.network.chance is not None
    return parts.network.chance
