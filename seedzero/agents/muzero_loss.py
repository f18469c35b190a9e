"""MuZero's targets and loss (Schrittwieser et al. 2020), with EfficientZero's additions, and chance in its model.

Shape letters: B batch, J positions of a window, K unrolled steps, A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]

from seedzero.agents import base, muzero_model
from seedzero.config import configs, muzero_config
from seedzero.core import types
from seedzero.networks import actor_critic, muzero_net
from seedzero.ops import action_distributions, nstep, q_learning, statistics
from seedzero.replay import ring_store, windowing

# Chance in MuZero's model (Stochastic MuZero, Antonoglou et al. 2022): codes of what was seen, and their losses.
#
# The encoder sees an observation and the next one, by their representations, and names the outcome between them by one
# of C codes. The prediction of codes teaches it nothing, because one code for everything would be easiest to predict.
# In the paper, the losses of everything that follows teach it. But rewards and values distinguish outcomes only once
# codes do, and a code that means nothing gets almost no gradient from them: for the six sides of a die, one to four
# codes remained. So the encoder has its own loss, `loss_outcome`: from the observation, the action and the code, the
# model must predict the next observation. It also teaches the dynamics. Choosing one code has no gradient, so the
# code's gradient goes unchanged to the encoder's preferences (straight through).
#
# Shape letters: B batch, K unrolled steps, C codes.
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


def encode_chance(
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


def chance_step(
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


def chance_terms(
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


# Unrolls MuZero's model along the actions of a window (Schrittwieser et al. 2020, appendix G).
HIDDEN_GRADIENT_SCALE = 0.5
"""Gradients into the hidden state are halved at each unrolled step (appendix G)."""


def unroll(
    parts: muzero_model.Parts,
    params: base.Params,
    hidden: jax.Array,
    actions: jax.Array,
    taken: jax.Array,
    key: jax.Array,
    outcomes: Outcomes | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Returns logits: policy [B, K+1, A], value [B, K+1, bins], reward [B, K, bins]; hidden states [B, K+1, ...].

    The afterstates [B, K, ...] come last; they are empty without chance.

    The gradient into the state is halved at the start of each unrolled step (appendix G), so that what reaches the
    dynamics does not grow with K. If the model predicts sums of rewards, the logits are those of the sums.

    Args:
      hidden: [B, ...] at the first position.
      actions: [B, K] or [B, K, D] as stored.
      taken: [B, K] bool, true: the action was taken; elsewhere the episode was over, and an action is drawn from the
        policy at the unrolled state.
      key: draws these actions.
      outcomes: what chance decided in each step; None if the model has no chance.
    """
    network, params = parts.network, parts.network.cast(params)
    fixed = jax.lax.stop_gradient(params)
    hiddens, rewards, afterstates = [hidden], [], []
    noise = _noise(parts, key, actions)
    for k in range(actions.shape[1]):
        policy_logits, _ = network.predict(fixed, jax.lax.stop_gradient(hidden))
        action = _absorbed(parts, policy_logits, noise[k])
        action = jnp.where(taken[:, k].reshape(-1, *[1] * (action.ndim - 1)), actions[:, k], action)
        hidden = nstep.scale_gradient(hidden, HIDDEN_GRADIENT_SCALE)
        if outcomes is not None:
            stepped = chance_step(parts, params, hidden, action, outcomes, taken[:, k], k)
            hidden, reward_logits, afterstate = stepped
            afterstates.append(afterstate)
        elif network.prefix is None:
            hidden, reward_logits = network.dynamics(params, hidden, action)
        else:
            if k % muzero_model.PREFIX_HORIZON == 0:
                carry = network.prefix.initial(len(actions))
            hidden, carry, reward_logits = network.prefix.step(params, hidden, action, carry)
        hiddens.append(hidden)
        rewards.append(reward_logits)
    # All states at once: a fraction of the operations of one state after the other.
    states = jnp.stack(hiddens, axis=1)
    predictions = network.predict(params, states.reshape(-1, *states.shape[2:]))
    policy_logits, value_logits = (logits.reshape(*states.shape[:2], -1) for logits in predictions)
    behind = jnp.stack(afterstates, axis=1) if afterstates else states[:, :0]
    return policy_logits, value_logits, jnp.stack(rewards, axis=1), states, behind


def _noise(parts: muzero_model.Parts, key: jax.Array, actions: jax.Array) -> jax.Array:
    """Returns the random numbers of `_absorbed` for each of K steps, for actions [B, K] or [B, K, D]."""
    num_rows, num_steps = actions.shape[:2]
    if not parts.spec.is_continuous:
        return jax.random.gumbel(key, (num_steps, num_rows, parts.spec.num_actions))
    return jax.random.uniform(key, (num_steps, num_rows, 1, len(parts.spec.action_low)))


def _absorbed(parts: muzero_model.Parts, policy_logits: jax.Array, noise: jax.Array) -> jax.Array:
    """Returns actions [B] or [B, D] to unroll behind an end, drawn from policies [B, A] or [B, D * bins].

    MuZero draws them evenly (appendix G). But if a state and action may or may not end the episode, the model's next
    state stands for both, and an action that only occurs behind the end would seem to cause it: actions that the
    policy never takes would be worth 0. Drawn from the policy, they say nothing about the end.

    noise: Gumbel noise [B, A], or uniform noise [B, 1, D].
    """
    if not parts.spec.is_continuous:
        return jnp.argmax(policy_logits + noise, axis=-1).astype(jnp.int32)
    num_bins = parts.config.network.action_bins
    return action_distributions.sample(policy_logits, noise, num_bins=num_bins, uniform_share=0.0).actions[:, 0]


PROBABILITY = "probability"
"""Name of the stored probability with which the acting policy took the action."""
_POLICY_WEIGHT = _REWARD_WEIGHT = 1.0
"""The weights of these losses, relative to muzero.value_loss_weight."""


def offsets(config: configs.Config) -> tuple[int, ...]:
    """Returns the positions of a window whose observations are needed, ascending.

    Those of loss and searches come first.
    """
    num_searched = 1 + config.muzero.unroll_steps if config.reanalyse.fresh_share else 1
    num_first = max(num_searched, num_seen(config.muzero))
    needed = {*range(num_first), *_bootstrap_offsets(config)}
    # A memory has seen all positions up to the last.
    return tuple(sorted(needed) if config.muzero.memory == "none" else range(max(needed) + 1))


def bootstraps(config: configs.Config) -> bool:
    """Returns whether returns bootstrap from a network: the target network, or the newest one with fresh searches."""
    return config.muzero.target_network_updates > 0 or config.reanalyse.fresh_share > 0


def stores_probability(config: muzero_config.MuZeroConfig) -> bool:
    """Returns whether policies are compared with the probability that the acting one gave to the stored action."""
    return config.off_policy_correction or config.policy_gradient_weight > 0


def _bootstrap_offsets(config: configs.Config) -> range:
    """Returns the positions that the network values."""
    if not bootstraps(config):
        return range(0)
    n_step, first = config.muzero.n_step, config.muzero.n_step
    if config.muzero.off_policy_correction or config.muzero.memory != "none":
        first = 0  # with a memory, a repeated last observation would be seen once more
    elif config.league.on:
        first = 1
    return range(first, n_step + config.muzero.unroll_steps + 1)


def consistency_steps(config: muzero_config.MuZeroConfig) -> int:
    """Returns how many unrolled states are compared with later observations."""
    if not config.consistency_weight:
        return 0
    return config.consistency_steps or config.unroll_steps


def num_seen(config: muzero_config.MuZeroConfig) -> int:
    """Returns the observations of a window that the loss uses."""
    return 1 + (config.unroll_steps if config.chance_codes else consistency_steps(config))


def make_targets(parts: muzero_model.Parts, recent_params: base.Params, windows: windowing.Windows) -> nstep.Targets:
    """Returns the targets of the sampled position and the K positions after it.

    `recent_params` are those of the target network, or the newest if windows are searched again; otherwise they are
    not read.
    """
    config = parts.config.muzero
    value, log_ratio = windows.stored["value"], jnp.zeros(())
    if bootstraps(parts.config):
        value, log_ratio = _network_opinions(parts, recent_params, windows)
    usual: dict[str, Any] = dict(discount=muzero_model.signed_discount(parts), num_positions=config.unroll_steps + 1)
    if config.off_policy_correction:
        compute = functools.partial(nstep.corrected_targets, log_ratio=log_ratio, **usual)
    else:
        learns_others = parts.config.league.opponent_model
        compute = functools.partial(nstep.n_step_targets, n=config.n_step, learns_others=learns_others, **usual)
    return muzero_model.targets(parts, windows, value, compute)


def mix_search_values(
    parts: muzero_model.Parts, windows: windowing.Windows, targets: nstep.Targets, num_updates: jax.Array
) -> nstep.Targets:
    """Replaces the values of old windows by their stored ones, once the model is reliable; returns the targets.

    EfficientZero V2's mixed value target (Wang et al. 2024, equation 16), which counts a step's age in steps stored
    since; here it is in updates. Priorities and the policy gradient keep the n-step returns.
    """
    config = parts.config.muzero
    if not config.search_value_age:
        return targets
    age = num_updates - windows.stored[ring_store.VERSION][:, 0]  # of the acting network, in updates
    is_old = (age >= config.search_value_age) & (num_updates >= config.search_value_start)
    # Terminated positions and positions after the end have no search value and keep their return.
    searched, num_positions = windows.valid & ~windows.terminated, config.unroll_steps + 1
    value = windows.stored["value"][:, :num_positions]
    return targets._replace(value=jnp.where(is_old[:, None] & searched[:, :num_positions], value, targets.value))


def _network_opinions(
    parts: muzero_model.Parts, params: base.Params, windows: windowing.Windows
) -> tuple[jax.Array, jax.Array]:
    """Returns values [B, J], correct at the positions that returns bootstrap from, and logs of policy ratios [B, J].

    A ratio is the network's probability of the stored action divided by the acting policy's. All are 1 unless returns
    are corrected.

    The window's last observations are those at n, .., n + K, or at its last position if that comes earlier. A return
    bootstraps from position min(k + n, last), which is the k-th of these observations. Positions before n can only be
    the last one, which every observation shows then. If old steps or games against others bootstrap earlier, n is 1
    here.
    """
    offsets = _bootstrap_offsets(parts.config)
    batch_shape = (len(windows.weight), len(offsets))
    cast = parts.network.cast(params)
    hidden = muzero_model.represent(parts, cast, windows, slice(-len(offsets), None))
    policy_logits, logits = parts.network.predict(cast, hidden.reshape(-1, *hidden.shape[2:]))
    _, logits = muzero_model.on_and_value_logits(parts, logits)  # what was seen continues, or is known to have ended
    values = muzero_model.unit(params) * muzero_model.decode(parts, logits).reshape(batch_shape)
    positions = jnp.arange(windows.reward.shape[1])
    values = values[:, jnp.clip(positions - offsets.start, 0, len(offsets) - 1)]
    if not parts.config.muzero.off_policy_correction:
        return values, jnp.zeros_like(values)
    policy_logits = actor_critic.masked(policy_logits.reshape(*batch_shape, -1), windows.stored.get("legal"))
    log_policy = jax.nn.log_softmax(policy_logits)
    taken = jnp.take_along_axis(log_policy, windows.stored["action"][..., None], axis=-1)[..., 0]
    return values, taken - jnp.log(jnp.maximum(windows.stored[PROBABILITY], 1e-8))


def loss_and_metrics(
    parts: muzero_model.Parts,
    params: base.Params,
    windows: windowing.Windows,
    targets: nstep.Targets,
    key: jax.Array,
    axis_name: str | None = None,
) -> tuple[jax.Array, base.Metrics, jax.Array]:
    """Returns the mean loss, metrics, and predicted values (equation 1, with the scaling of appendix G).

    `key` draws the actions behind ends of episodes. Advantages are in units of their size on all devices of the axis.
    The values are [B, 1], or [B, K+1] in games against others, where metrics of the first position skip the others'
    rows.
    """
    config = parts.config.muzero
    num_steps = config.unroll_steps
    cast = parts.network.cast(params)
    root = muzero_model.represent(parts, cast, windows, slice(1))[:, 0]
    actions, taken = windows.stored["action"][:, :num_steps], windows.valid[:, 1 : num_steps + 1]
    outcomes = None
    if parts.network.chance is not None:
        outcomes = encode_chance(parts, cast, windows, root, jax.random.fold_in(key, 1))
    unrolled = unroll(parts, params, root, actions, taken, key, outcomes)
    policy_logits, value_logits, reward_logits, hidden, afterstates = unrolled
    legal = jax.tree.map(lambda x: x[:, : num_steps + 1], windows.stored.get("legal"))
    policy_errors, entropy = _policy_errors(parts, policy_logits, windows), _entropy(parts, policy_logits, legal)
    unit = muzero_model.unit(params)
    goes_on, of_value = muzero_model.on_and_value_logits(parts, value_logits)
    turn, reward_logits = muzero_model.turn_and_reward_logits(parts, reward_logits)
    value_mask, rewards = targets.value_mask, targets.reward
    if goes_on is not None:
        is_on, is_known = nstep.going_on(windows.terminated, windows.valid, num_positions=num_steps + 1)
        value_mask &= is_on  # the value if the episode continues; an end has none
    if parts.network.prefix is not None:
        rewards = nstep.value_prefixes(rewards, muzero_model.PREFIX_HORIZON)
    value_errors = _cross_entropy(of_value, muzero_model.encode(parts, targets.value / unit))
    reward_errors = _cross_entropy(reward_logits, muzero_model.encode(parts, rewards / unit))
    mean, more = functools.partial(_step_mean, weight=windows.weight), base.Metrics()

    def mean_of_steps(errors: jax.Array, mask: jax.Array) -> jax.Array:
        return mean(*(jnp.pad(x, ((0, 0), (1, 0))) for x in (errors, mask)))

    terms = [  # metric, weight, mean error
        ("loss_policy", _POLICY_WEIGHT, mean(policy_errors, targets.policy_mask)),
        ("loss_value", config.value_loss_weight, mean(value_errors, value_mask)),
        ("loss_reward", _REWARD_WEIGHT, mean_of_steps(reward_errors, targets.reward_mask)),
    ]
    if config.entropy_weight:
        terms.append(("", -config.entropy_weight, mean(entropy, targets.policy_mask)))
    if config.policy_gradient_weight:
        errors, more["advantage_size"] = _policy_gradient_errors(policy_logits, windows, targets, axis_name)
        terms.append(("loss_policy_gradient", config.policy_gradient_weight, mean(errors, targets.policy_mask)))
    if goes_on is not None:
        end_errors = optax.sigmoid_binary_cross_entropy(goes_on, is_on.astype(goes_on.dtype))
        terms.append(("loss_end", 1.0, mean(end_errors, is_known)))
    if turn is not None:
        mover = windows.stored[muzero_model.MOVER]
        goes, is_known = nstep.turns(mover, windows.terminated, windows.valid, num_positions=num_steps + 1)
        turn_errors = optax.sigmoid_binary_cross_entropy(turn, goes.astype(turn.dtype))
        terms.append(("loss_turn", 1.0, mean_of_steps(turn_errors, is_known)))
    if outcomes is not None:
        of_chance = chance_terms(parts, cast, afterstates, outcomes, actions, targets, taken, unit)
        terms += [(term.metric, term.weight, mean_of_steps(term.errors, term.mask)) for term in of_chance]
        more["codes_in_use"] = codes_in_use(outcomes.code, taken)
    if parts.network.projection is not None:
        seen = None if outcomes is None else outcomes.seen
        consistency, more["projection_spread"] = _consistency(
            parts, parts.network.projection, params, hidden, windows, seen
        )
        terms.append(("loss_consistency", config.consistency_weight, consistency))
    loss = functools.reduce(operator.add, [weight * error for _, weight, error in terms])
    predicted = unit * muzero_model.decode_value(parts, value_logits[:, 0])
    meets_others = ring_store.OWN in windows.stored
    first = functools.partial(statistics.mean_where, mask=targets.policy_mask[:, 0]) if meets_others else jnp.mean
    metrics = {
        "loss": loss,
        **{metric: error for metric, _, error in terms if metric},
        "value_mean": first(predicted),
        "value_target_mean": first(targets.value[:, 0]),
        "policy_entropy": first(entropy[:, 0]),
        types.TARGETS_CLIPPED: statistics.mean_where(
            jnp.concatenate([muzero_model.exceeds(parts, x / unit) for x in (targets.value, rewards)], axis=1),
            jnp.concatenate([value_mask, targets.reward_mask], axis=1),
        ),
        **more,
    }
    return loss, metrics, unit * muzero_model.decode_value(parts, value_logits) if meets_others else predicted[:, None]


def _policy_errors(parts: muzero_model.Parts, logits: jax.Array, windows: windowing.Windows) -> jax.Array:
    """Returns [B, K+1] for logits [B, K+1, A] or [B, K+1, D * bins]."""
    num_positions, num_bins = logits.shape[1], parts.config.network.action_bins
    policy = windows.stored["policy"][:, :num_positions]
    if not parts.spec.is_continuous:
        return _cross_entropy(logits, policy)
    actions = windows.stored["sampled"][:, :num_positions]
    target = action_distributions.target(actions, policy, num_bins=num_bins)
    return action_distributions.cross_entropy(logits, target, num_bins=num_bins)


def _policy_gradient_errors(
    logits: jax.Array, windows: windowing.Windows, targets: nstep.Targets, axis_name: str | None
) -> tuple[jax.Array, jax.Array]:
    """Returns errors [B, K+1] for logits [B, K+1, A], and the size of advantages, their root mean square.

    An advantage is the return after the stored action minus the value stored with it, in units of the size over all
    devices. The ratio of the policy to the acting one, which knows only legal actions, is applied once and capped at 1
    (Muesli, Hessel et al. 2021, section 4.5, combines policy gradients with improved policies in this way, with a
    running size).
    """
    stored = {name: x[:, : logits.shape[1]] for name, x in windows.stored.items()}
    seen = targets.policy_mask & targets.value_mask & (windows.weight[:, None] > 0)
    advantage = jnp.where(seen, targets.q_estimate - stored["value"], 0.0)
    size = statistics.batch_root_mean_square(advantage, seen, axis_name)
    log_policy = jax.nn.log_softmax(actor_critic.masked(logits, stored.get("legal")))
    log_taken = q_learning.of_action(log_policy, stored["action"])
    acting = jnp.maximum(stored[PROBABILITY], 1e-8)
    ratio = jnp.minimum(jax.lax.stop_gradient(jnp.exp(log_taken)) / acting, 1.0)
    return -ratio * advantage / jnp.maximum(size, 1e-8) * log_taken, size


def _entropy(parts: muzero_model.Parts, logits: jax.Array, legal: jax.Array | None) -> jax.Array:
    """Returns [B, K+1] for logits [B, K+1, A] or [B, K+1, D * bins], in nats; legal [B, K+1, A] bool; None: all."""
    if parts.spec.is_continuous:
        return action_distributions.entropy(logits, num_bins=parts.config.network.action_bins)
    log_policy = jax.nn.log_softmax(actor_critic.masked(logits, legal))
    return -jnp.sum(jnp.exp(log_policy) * log_policy, axis=-1)


def _consistency(
    parts: muzero_model.Parts,
    projector: muzero_net.Projection,
    params: base.Params,
    hidden: jax.Array,
    windows: windowing.Windows,
    seen: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns the consistency loss and the spread of projections (EfficientZero, Ye et al. 2021, equation 3).

    The loss is minus the cosine similarity of the prediction from the k-th unrolled state [B, K+1, ...] and the
    projection of what was seen there, which receives no gradient. The last observation of an episode counts, but
    nothing after it. The spread is about 1 if projections of different observations have nothing in common, and 0 if
    all are the same, when nothing is learned.

    seen: [B, K+1, ...] hidden states of what was seen; None: they are represented here.
    """
    num_steps = consistency_steps(parts.config.muzero)
    params = parts.network.cast(params)
    batch_shape = (len(windows.weight), num_steps)
    fixed = jax.lax.stop_gradient(params)
    later = slice(1, 1 + num_steps)
    seen = muzero_model.represent(parts, fixed, windows, later) if seen is None else seen[:, later]
    target = projector.project(fixed, seen.reshape(-1, *seen.shape[2:]))
    imagined = hidden[:, 1 : 1 + num_steps]
    predicted = projector.predict(params, projector.project(params, imagined.reshape(-1, *imagined.shape[2:])))
    similarity = muzero_net.cosine_similarity(predicted, target).reshape(batch_shape)
    reached = windows.valid[:, 1 : 1 + num_steps]
    summed = jnp.sum(jnp.where(reached, -similarity, 0.0), axis=1)
    loss = jnp.mean(windows.weight * summed) / parts.config.muzero.unroll_steps
    center = jnp.mean(muzero_net.normalize(target), axis=0)
    return loss, 1.0 - jnp.sum(jnp.square(center))


def _cross_entropy(logits: jax.Array, target_probs: jax.Array) -> jax.Array:
    """Returns [...] for logits and probabilities [..., N]."""
    return -jnp.sum(target_probs * jax.nn.log_softmax(logits), axis=-1)


def _step_mean(errors: jax.Array, mask: jax.Array, weight: jax.Array) -> jax.Array:
    """Returns the mean over B of errors [B, K+1] summed over steps: the first whole, each unrolled one by 1 / K."""
    num_unrolled = errors.shape[1] - 1
    steps = jnp.where(mask, errors, 0.0)
    return jnp.mean(weight * (steps[:, 0] + jnp.sum(steps[:, 1:], axis=1) / num_unrolled))
