"""MuZero (Schrittwieser et al. 2020) with Gumbel or PUCT search; continuous actions are sampled.

The targets and the loss are in `muzero_loss`.

Shape letters: B batch, J positions of a window, K unrolled steps, A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero import search as mcts
from seedzero.agents import base, exploration, learning, muzero_loss, muzero_model, muzero_search, sampled
from seedzero.config import configs, muzero_config
from seedzero.core import types
from seedzero.networks import observations
from seedzero.ops import augment, nstep, q_learning
from seedzero.replay import ring_store, sampling, sources, windowing


# Randomly changes the images that MuZero's loss sees.
def augment_windows(parts: muzero_model.Parts, windows: windowing.Windows, key: jax.Array) -> windowing.Windows:
    """Returns windows with randomly changed observations, for the loss; targets use the original observations."""
    config = parts.config.muzero
    if not config.shift_pixels and not config.intensity_scale:
        return windows
    observation = windowing.observed(windows, slice(muzero_loss.num_seen(config)))
    before = {} if windows.before is None else dict(windows.before.observation)
    # All images of an observation move by the same pixels: each is drawn with the same key.
    for array in parts.spec.arrays:
        if array.is_grid:
            observation[array.name] = _augment(parts, array, observation[array.name], key)
            if before:
                before[array.name] = _augment(parts, array, before[array.name], jax.random.fold_in(key, 1))
    windows = windows._replace(observation=observation)
    return windows if windows.before is None else windows._replace(before=windows.before._replace(observation=before))


def _augment(parts: muzero_model.Parts, array: types.ArraySpec, observation: jax.Array, key: jax.Array) -> jax.Array:
    """Returns randomly changed images [B, P, ...]."""
    config, (height, width) = parts.config.muzero, array.shape[:2]
    # Frames of a stack without channels are side by side.
    num_frames = parts.config.network.frame_stack if len(array.shape) == 2 else 1
    images = observation.reshape(observation.shape[0] * observation.shape[1], height, num_frames, width, -1)
    shift_key, intensity_key = jax.random.split(key)
    if config.shift_pixels:
        images = augment.random_shift(shift_key, images, config.shift_pixels, axes=(1, 3))
    if config.intensity_scale:
        images = augment.random_intensity(intensity_key, images, config.intensity_scale)
    return images.reshape(observation.shape)


_MIN_AGE = 10
"""Targets whose parameters are at most this many updates old are not searched again."""
_REPETITION_KEY = 2**20
"""Derives a key for the repetitions. The search splits the key of a call far fewer times than this."""


def make(config: configs.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
    """Returns the agent. It reads the sections search, explore, network, muzero, optimizer, replay and reanalyse."""
    parts = muzero_model.make_parts(config, spec, platform)

    return base.Agent(
        data=sources.Replay(
            length=config.muzero.n_step + config.muzero.unroll_steps + 1,
            observe=muzero_loss.offsets(config),
            prioritization=sampling.prioritization(config.replay),
            before=config.muzero.num_before,
        ),
        reads_reward=config.muzero.memory != "none",
        stack=config.network.frame_stack,
        stored=_stored(config, spec),
        init=lambda key: learning.init(
            muzero_model.init(parts, key), parts.optimizer, has_target=config.muzero.target_network_updates > 0
        ),
        acting=lambda state: state.params,
        initial_memory=functools.partial(_memory, config, spec, first_steps=0),
        first_memory=functools.partial(_memory, config, spec, first_steps=config.explore.first_steps),
        act=lambda params, memory, inputs, key: _act(parts, params, memory, inputs, key),
        update=lambda state, windows, key, axis_name: _update(parts, state, windows, key, axis_name),
        search=lambda params, memory, inputs, key, return_tree: muzero_search.look(
            parts, params, memory, inputs, key, return_tree=return_tree
        ),
        model=muzero_search.model_functions(parts),
        reanalyse=base.Reanalyse(
            per_insert=config.reanalyse.per_insert,
            batch_size=config.reanalyse.batch_size,
            min_age=_MIN_AGE,
            length=1,
            observe=(0,),
            compute=lambda params, windows, key: _reanalyse(parts, params, windows, key),
            before=config.muzero.num_before,
        )
        if config.reanalyse.per_insert
        else None,
    )


def _stored(config: configs.Config, spec: types.EnvSpec) -> dict[str, sources.Stored]:
    """Returns the arrays of a stored row; continuous actions are in -1 to 1."""
    number = np.dtype(np.float32)
    width = config.search.num_sampled if spec.is_continuous else spec.num_actions
    stored = {
        "action": sources.Stored(spec.action_shape, number if spec.is_continuous else np.dtype(np.int32)),
        "policy": sources.Stored((width,), number),
        "value": sources.Stored((), number),
    }
    if muzero_loss.stores_probability(config.muzero):
        stored[muzero_loss.PROBABILITY] = sources.Stored((), number)
    if spec.moves_again:
        stored[muzero_model.MOVER] = sources.Stored((), np.dtype(np.int8))
    if spec.is_continuous:
        stored["sampled"] = sources.Stored((width, *spec.action_shape), number)
    elif _keeps_legal(config, spec):
        stored["legal"] = sources.Stored((width,), np.dtype(bool))  # a stored policy is 0 for some legal actions, too
    if config.league.on:
        stored[ring_store.OWN] = sources.Stored((), np.dtype(bool))
    return {**stored, **muzero_model.stored(config, spec)}


def _keeps_legal(config: configs.Config, spec: types.EnvSpec) -> bool:
    """Returns whether rows store legal actions, for searches of stored positions and for a loss of probabilities."""
    muzero = config.muzero
    searches_again = config.reanalyse.per_insert or config.reanalyse.fresh_share
    of_policy = muzero.policy_gradient_weight or muzero.entropy_weight or muzero.off_policy_correction
    return spec.has_action_mask and bool(searches_again or of_policy)


# Acting ------------------------------------------------------------------------------------------------------------


def _act(
    parts: muzero_model.Parts, params: base.Params, memory: Any, inputs: base.Inputs, key: jax.Array
) -> tuple[Any, base.Outputs]:
    """Searches and chooses actions.

    `memory` is `MuZeroMemory`, or only the repetition of random actions, if there is any.
    """
    mask = inputs.action_mask if parts.spec.has_action_mask else None
    if parts.network.memory is not None:
        begun, state, hidden = muzero_model.see(parts, params, memory, inputs)
        found = muzero_search.find(parts, params, inputs.observation, mask, inputs.action_mode, key, hidden=hidden)
        memory, outputs = _take(parts, memory.repetition, inputs, found, mask, key)
        kept = {muzero_model.STATE: begun.state, muzero_model.LAST_ACTION: begun.action}
        memory = muzero_model.MuZeroMemory(state, outputs.stored["action"], memory)
        return memory, outputs._replace(stored={**outputs.stored, **kept})
    found = muzero_search.find(parts, params, inputs.observation, mask, inputs.action_mode, key)
    return _take(parts, memory, inputs, found, mask, key)


def _take(
    parts: muzero_model.Parts,
    repetition: Any,
    inputs: base.Inputs,
    found: muzero_search.RootSearch,
    mask: jax.Array | None,
    key: jax.Array,
) -> tuple[Any, base.Outputs]:
    """Returns the updated repetition of random actions, and the outputs of a search."""
    config, spec, weights = parts.config, parts.spec, found.result.draw_weights
    stored, taken, before = muzero_search.stored(parts, found), found.action, repetition
    valid = inputs.action_mask if spec.has_action_mask else jnp.ones_like(inputs.action_mask)
    circumstances: dict[str, Any] = {
        "valid_actions": None if spec.is_continuous else valid,
        "num_slots": config.replay.num_sharing or inputs.num_slots,
        "config": config.explore,
    }
    if repeats := _repeats(config.explore):
        fresh_key = jax.random.fold_in(key, _REPETITION_KEY)
        repetition, taken = exploration.apply(fresh_key, repetition, taken, inputs, **circumstances)
    if spec.is_continuous:
        return repetition, base.Outputs(sampled.to_environment(taken, spec), {"action": taken, **stored})
    if muzero_loss.stores_probability(config.muzero):
        stored[muzero_loss.PROBABILITY] = (
            exploration.probability(before, taken, weights, inputs, **circumstances)
            if repeats
            else q_learning.of_action(weights, taken)
        )
    if config.league.opponent_model:  # the others' moves are learned as they were drawn
        stored["policy"] = jnp.where(inputs.own, stored["policy"], weights)
    stored["action"] = taken
    if spec.moves_again:
        stored[muzero_model.MOVER] = learning.movers(spec, inputs.observation)
    if mask is not None and _keeps_legal(config, spec):
        stored["legal"] = mask
    return repetition, base.Outputs(taken, stored)


def _repeats(config: muzero_config.ExploreConfig) -> bool:
    return bool(config.epsilon or config.first_steps)


def _memory(config: configs.Config, spec: types.EnvSpec, num_slots: int, *, first_steps: int) -> Any:
    repetition = exploration.initial(num_slots, spec, first_steps) if _repeats(config.explore) else ()
    return muzero_model.initial_memory(config, spec, num_slots, repetition)


def _reanalyse(
    parts: muzero_model.Parts, params: base.Params, windows: windowing.Windows, key: jax.Array
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Searches replayed positions again (MuZero Reanalyse, 2021); returns their targets, and how much these change."""
    old = {name: values[:, 0] for name, values in windows.stored.items()}
    fresh = _search_again(parts, params, windows, slice(1), old.get("legal"), key)
    changes = {"reanalyse_value_change": jnp.abs(fresh["value"] - old["value"])}
    if not parts.spec.is_continuous:  # other continuous actions were sampled
        # The total variation distance, which goes from 0 to 1 even where a probability was 0.
        changes["reanalyse_policy_change"] = 0.5 * jnp.sum(jnp.abs(fresh["policy"] - old["policy"]), axis=-1)
    return fresh, changes


def _search_again(
    parts: muzero_model.Parts,
    params: base.Params,
    windows: windowing.Windows,
    positions: slice,
    legal: jax.Array | None,
    key: jax.Array,
) -> dict[str, jax.Array]:
    """Searches P stored positions of B windows and returns their fresh targets by name, [B * P, ...].

    Nobody acts on them, so there is nothing to explore. PUCT's Dirichlet noise is switched off, because it would only
    blur the shares of visits that are learned. Gumbel's noise samples the considered actions from the prior (Danihelka
    et al. 2022, algorithm 2); without it, every search would consider the same likeliest actions, and the others would
    never get a value. So it stays, but no larger than in the paper, because a scale above 1 is there to explore.
    Continuous actions are sampled again for the same reason, with both kinds of search.
    """
    config = parts.config.search
    quiet = {"gumbel_scale": min(config.gumbel_scale, 1.0), "dirichlet_fraction": 0.0}
    config = mcts.SearchConfig(**{**dataclasses.asdict(config), **quiet})
    observation, hidden = observations.flat(windowing.observed(windows, positions)), None
    if parts.network.memory is not None:
        hidden = muzero_model.represent(parts, parts.network.cast(params), windows, positions)
        hidden = hidden.reshape(-1, *hidden.shape[2:])
    num_rows = len(jax.tree.leaves(observation)[0])
    parts = parts._replace(config=dataclasses.replace(parts.config, search=config))
    looked = observation, legal, jnp.full(num_rows, types.EXPLORE), key
    return muzero_search.stored(parts, muzero_search.find(parts, params, *looked, hidden=hidden))


# Learning ----------------------------------------------------------------------------------------------------------


def _update(
    parts: muzero_model.Parts,
    state: learning.TrainState,
    windows: windowing.Windows,
    key: jax.Array,
    axis_name: str | None,
) -> tuple[learning.TrainState, jax.Array, base.Metrics]:
    search_key, augment_key, unroll_key = jax.random.split(key, 3)
    before = state.params
    state = state._replace(params=muzero_model.observe(parts, before, windows, axis_name))
    recent = state.target_params if parts.config.muzero.target_network_updates else state.params
    windows = _freshen(parts, recent, windows, search_key)
    targets = muzero_loss.make_targets(parts, recent, windows)
    fitted = muzero_loss.mix_search_values(parts, windows, targets, state.num_updates)
    windows = augment_windows(parts, windows, augment_key)

    def loss(params: base.Params) -> tuple[jax.Array, tuple[base.Metrics, jax.Array]]:
        value, metrics, predicted = muzero_loss.loss_and_metrics(parts, params, windows, fitted, unroll_key, axis_name)
        return value, (metrics, predicted)

    gradients, metrics, predicted = learning.gradients(loss, state.params, axis_name)
    state, metrics = learning.apply_gradients(
        state,
        gradients,
        metrics,
        optimizer=parts.optimizer,
        schedule=parts.schedule,
        target_updates=parts.config.muzero.target_network_updates,
        refused=before,
    )
    return state, _priority(windows, targets, predicted), metrics


def _priority(windows: windowing.Windows, targets: nstep.Targets, predicted: jax.Array) -> jax.Array:
    """Returns the windows' priorities: the errors [B] of predicted values, [B, 1] or [B, K+1].

    They are those of the first position, or in games against others of the first own position with a trained value. A
    window without one only teaches the model and gets the mean priority of the others; NaN if no window has one. As in
    EfficientZero, it is the network's own error, which shrinks as it learns. A stored search's error would not.
    """
    num_positions = predicted.shape[1]
    error = jnp.abs(predicted - targets.value[:, :num_positions])
    if ring_store.OWN not in windows.stored:
        return error[:, 0]
    own = (windows.stored[ring_store.OWN] & windows.valid)[:, :num_positions]
    found = nstep.at_first(error, own & targets.value_mask)
    mean = jnp.nanmean(jnp.where(windows.weight > 0, found, jnp.nan))
    return jnp.where(jnp.isnan(found), mean, found)


def _freshen(
    parts: muzero_model.Parts, params: base.Params, windows: windowing.Windows, key: jax.Array
) -> windowing.Windows:
    """Returns windows in which the first rows have fresh policies and values at all positions of the loss.

    EfficientZero V2 (Wang et al. 2024) and ReZero (Xuan et al. 2024) search each sampled position like this before
    they learn it. Positions at and after an episode's end are searched as well, but nothing is learned from them.
    """
    num_windows = math.ceil(parts.config.reanalyse.fresh_share * len(windows.weight))
    if not num_windows:
        return windows
    num_positions = 1 + parts.config.muzero.unroll_steps

    def rows(x: jax.Array) -> jax.Array:
        return x[:num_windows, :num_positions].reshape(-1, *x.shape[2:])

    legal = windows.stored.get("legal")
    searched = jax.tree.map(lambda x: x[:num_windows], windows)
    fresh = _search_again(parts, params, searched, slice(num_positions), None if legal is None else rows(legal), key)
    stored = dict(windows.stored)
    for name, found in fresh.items():
        found = found.reshape(num_windows, num_positions, *found.shape[1:])
        stored[name] = stored[name].at[:num_windows, :num_positions].set(found)
    return windows._replace(stored=stored)
