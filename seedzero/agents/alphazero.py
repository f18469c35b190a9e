"""AlphaZero (Silver et al. 2018) with Gumbel or PUCT search: the game's own rules take the place of a learned model.

A worker shows a game's state beside what its player sees. The search steps states by the rules, in the program of the
acting call; terminal nodes have no value, and illegal moves no probability. Rows keep what was seen, the search's
policy and the moves, and no states: targets are those policies and the games' results.

Shape letters: B batch, A actions.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero import search as mcts
from seedzero.agents import base, learning, muzero_model, muzero_search
from seedzero.config import configs, options
from seedzero.core import errors, types
from seedzero.envs import pgx_rules
from seedzero.networks import actor_critic
from seedzero.ops import nstep, statistics
from seedzero.replay import ring_store, sampling, sources, windowing
from seedzero.search import outcomes

_OF_MODELS = ("transition", "reward_head")
"""Parts of MuZero's network that rules replace."""

_OF_RESULTS: dict[str, options.Value] = {"reward.clip": 0.0, "reward.normalize": False}
"""Settings of MuZero's parts; a game's result is a number of its own."""


class _Parts(NamedTuple):
    rules: pgx_rules.GameRules
    has_results: bool  # three value logits: loss, draw and win
    model: muzero_model.Parts  # network, units and optimizer, of what is stored
    symmetries: tuple[pgx_rules.Symmetry, ...]


def make(config: configs.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
    """Returns the agent; of the configuration it reads search, network, alphazero, optimizer, reward and replay.

    Raises:
      ConfigError: the environment has no rules to search by.
    """
    rules = _rules(config, spec)
    own = config.alphazero
    if own.win_draw_loss:
        _check_results(config, rules)
    config = configs.override(config, _OF_RESULTS | ({"network.num_bins": 3} if own.win_draw_loss else {}))
    found = pgx_rules.symmetries(rules.name) if own.symmetries else ()
    parts = _Parts(rules, own.win_draw_loss, muzero_model.make_parts(config, spec.kept, platform), found)
    stored = {
        "action": sources.Stored((), np.dtype(np.int32)),
        "policy": sources.Stored((spec.num_actions,), np.dtype(np.float32)),
        "value": sources.Stored((), np.dtype(np.float32)),
        **learning.stored_turns(config, spec),
        **({muzero_model.MOVER: sources.Stored((), np.dtype(np.int8))} if rules.moves_again else {}),
    }
    return base.Agent(
        data=sources.Replay(
            length=own.n_step + 1, observe=(0,), prioritization=sampling.prioritization(config.replay)
        ),
        stack=1,
        stored=stored,
        init=functools.partial(_init, parts),
        acting=lambda state: state.params,
        initial_memory=lambda num_slots: (),
        act=functools.partial(_act, parts),
        update=functools.partial(_update, parts),
        search=functools.partial(_look, parts),
    )


def _rules(config: configs.Config, spec: types.EnvSpec) -> pgx_rules.GameRules:
    """Returns the game's rules. Raises ConfigError for environments without rules."""
    try:
        rules = pgx_rules.game(config.env.id.partition(":")[2])
    except errors.EnvironmentFailure as error:
        raise errors.ConfigError(f"--env={config.env.id}: {error}") from None
    if rules.state_name not in {array.name for array in spec.packed}:
        raise errors.ConfigError(
            f"the environments show no state with the layout of this machine's rules ({rules.state_name}); install "
            "the same version of pgx, or of your module, here and on every worker, and leave --env.game_state out"
        )
    return rules


def _check_results(config: configs.Config, rules: pgx_rules.GameRules) -> None:
    """Raises ConfigError for games with other results than -1, 0 and 1."""
    if rules.num_players == 1 or (found := pgx_rules.other_result(rules)) is not None:
        kind = "a game of one player" if rules.num_players == 1 else f"a game with results as {found:g}"
        raise errors.ConfigError(
            f"--alphazero.win_draw_loss=true is for games won, drawn or lost by 1, 0 and -1, and "
            f"--env={config.env.id} is {kind}; leave it out, and give --network.support_limit the largest result"
        )


def _init(parts: _Parts, key: jax.Array) -> learning.TrainState:
    params = muzero_model.init(parts.model, key)
    params = {name: value for name, value in params.items() if name not in _OF_MODELS}
    return learning.init(params, parts.model.optimizer)


# Acting ------------------------------------------------------------------------------------------------------------


def _act(
    parts: _Parts, params: base.Params, memory: Any, inputs: base.Inputs, key: jax.Array
) -> tuple[Any, base.Outputs]:
    found = _find(parts, params, inputs, key, return_tree=False)
    stored = {"action": found.action, **muzero_search.stored(parts.model, found)}
    if parts.rules.moves_again:
        stored[muzero_model.MOVER] = learning.movers(parts.model.spec, inputs.observation)
    return memory, base.Outputs(found.action, stored)


def _find(
    parts: _Parts, params: base.Params, inputs: base.Inputs, key: jax.Array, *, return_tree: bool
) -> muzero_search.RootSearch:
    """Searches by the rules and returns what it found."""
    rules, params = parts.rules, parts.model.network.cast(params)
    states = rules.decode(inputs.observation[rules.state_name], inputs.action_mask)
    logits, value = _predict(parts, params, inputs.observation[types.OBSERVATION])
    keys = outcomes.root_keys(key, logits.shape[0]) if rules.has_chance else None
    root = mcts.Root(logits, value, _embedding(rules, states, keys))
    result = mcts.search(
        params,
        key,
        root,
        recurrent_fn(parts),
        config=parts.model.config.search,
        invalid_actions=~inputs.action_mask,
        explore=inputs.action_mode == types.EXPLORE,
        return_tree=return_tree,
    )
    return muzero_search.drawn(result, root, 1.0, inputs.action_mode, key)


def _embedding(
    rules: pgx_rules.GameRules, states: pgx_rules.State, keys: jax.Array | None = None
) -> tuple[jax.Array, ...]:
    """Returns the arrays [B, ...] of states for a search; with chance also the keys for it, and an action, or 0."""
    arrays = rules.without_shown(states)
    return arrays if keys is None else (*arrays, keys, jnp.zeros(keys.shape[0], jnp.int32))


def recurrent_fn(parts: _Parts) -> mcts.RecurrentFn | mcts.ChanceFn:
    """Returns the rules, with the network's opinion of the states that they lead to, in the engine's form.

    With chance an afterstate is the state before, and the action: a code stands for a key that the step then takes.
    """
    rules, discount = parts.rules, parts.model.config.reward.discount
    num_outcomes = outcomes.num_outcomes(parts.model.config.search.num_simulations)

    def step(
        params: base.Params,
        action: jax.Array,
        parent: Any,
        keys: jax.Array | None = None,
        behind: jax.Array | None = None,
    ) -> tuple[mcts.Prediction, Any]:
        before = rules.with_nothing_shown(parent)
        after, reward = rules.step(before, action, keys)
        logits, value = _predict(parts, params, rules.show(after))
        logits = actor_critic.masked(logits, after.legal_action_mask)
        is_own = after.current_player == before.current_player
        turn = jnp.where(is_own, discount, -discount)  # the value in the other player's turn is that player's
        if rules.is_users:
            turn = jnp.where(before.truncated, 1.0, turn)  # behind a game that was cut off lies the same position
        ended = after.terminated
        prediction = mcts.Prediction(reward, jnp.where(ended, 0.0, turn), logits, jnp.where(ended, 0.0, value))
        return prediction, _embedding(rules, after, behind)

    def decide(params: base.Params, action: jax.Array, parent: Any) -> tuple[mcts.Afterstate, Any]:
        logits = jnp.zeros((action.shape[0], num_outcomes))
        if rules.has_chance_between_turns:
            before = rules.with_nothing_shown(parent[:-2])
            after, _ = rules.step(before, action, jax.random.wrap_key_data(parent[-2]))
            is_drawn = (after.current_player != before.current_player) & ~pgx_rules.is_over(after)
            logits = logits.at[:, 1:].set(jnp.where(is_drawn, 0.0, -jnp.inf)[:, None])  # else all outcomes are one
        return mcts.Afterstate(logits, None), (*parent[:-1], action)  # the network knows decisions alone

    def resolve(params: base.Params, code: jax.Array, parent: Any) -> tuple[mcts.Prediction, Any]:
        return step(params, parent[-1], parent[:-2], *outcomes.outcome_keys(parent[-2], code))

    return mcts.ChanceFn(decide, resolve, num_outcomes) if rules.has_chance else step


def _predict(parts: _Parts, params: base.Params, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the network's policy logits [B, A] and values [B] for boards [B, ...]."""
    network = parts.model.network
    logits, value_logits = network.predict(params, network.represent(params, {types.OBSERVATION: seen}))
    return logits, _decode(parts, value_logits)


def _decode(parts: _Parts, logits: jax.Array) -> jax.Array:
    """Returns the values [...] of logits [..., bins]."""
    if not parts.has_results:
        return muzero_model.decode(parts.model, logits)
    chances = jax.nn.softmax(logits)
    return chances[..., 2] - chances[..., 0]


def _encode(parts: _Parts, value: jax.Array) -> jax.Array:
    """Returns probabilities [..., bins] with these values; of results, 0.25 is a win by 0.25 and a draw by 0.75."""
    if not parts.has_results:
        return muzero_model.encode(parts.model, value)
    value = jnp.clip(value, -1.0, 1.0)
    return jnp.stack([jnp.maximum(-value, 0.0), 1.0 - jnp.abs(value), jnp.maximum(value, 0.0)], axis=-1)


def _exceeds(parts: _Parts, value: jax.Array) -> jax.Array:
    """Returns whether values [...] are larger than the logits can show, [...] bool."""
    return jnp.abs(value) > 1.0 if parts.has_results else muzero_model.exceeds(parts.model, value)


def _look(
    parts: _Parts, params: base.Params, memory: Any, inputs: base.Inputs, key: jax.Array, return_tree: bool
) -> base.Searched:
    """Returns what a search found, for people."""
    found = _find(parts, params, inputs, key, return_tree=return_tree)
    return muzero_search.searched(parts.model, found)


# Learning ----------------------------------------------------------------------------------------------------------


def _update(
    parts: _Parts, state: learning.TrainState, windows: windowing.Windows, key: jax.Array, axis_name: str | None
) -> tuple[learning.TrainState, jax.Array | None, base.Metrics]:
    model, own = parts.model, parts.model.config.alphazero
    before = state.params
    state = state._replace(params=muzero_model.observe(model, before, windows, axis_name))
    targets = _targets(parts, windows)
    seen, policy = _turned(parts, windows, key)
    mean = functools.partial(statistics.mean_where, mask=targets.policy_mask[:, 0])  # without others' moves

    def loss(params: base.Params) -> tuple[jax.Array, tuple[base.Metrics, jax.Array]]:
        cast = model.network.cast(params)
        hidden = model.network.represent(cast, {types.OBSERVATION: seen})
        logits, value_logits = model.network.predict(cast, hidden)
        errors_of = {
            "loss_policy": (-jnp.sum(policy * jax.nn.log_softmax(logits), axis=-1), targets.policy_mask[:, 0]),
            "loss_value": (
                -jnp.sum(_encode(parts, targets.value[:, 0]) * jax.nn.log_softmax(value_logits), axis=-1),
                targets.value_mask[:, 0],
            ),
        }
        terms = {name: jnp.mean(windows.weight * jnp.where(m, e, 0.0)) for name, (e, m) in errors_of.items()}
        value = _decode(parts, value_logits)
        total = terms["loss_policy"] + own.value_loss_weight * terms["loss_value"]
        metrics = {
            "loss": total,
            **terms,
            "value_mean": mean(value),
            "value_target_mean": mean(targets.value[:, 0]),
            types.TARGETS_CLIPPED: mean(_exceeds(parts, targets.value[:, 0])),
            "policy_entropy": mean(-jnp.sum(jax.nn.softmax(logits) * jax.nn.log_softmax(logits), axis=-1)),
        }
        if parts.has_results:
            chances = jax.nn.softmax(value_logits)
            metrics |= {f"{name}_probability": mean(chances[:, i]) for i, name in enumerate(("loss", "draw", "win"))}
        return total, (metrics, value)

    gradients, metrics, value = learning.gradients(loss, state.params, axis_name)
    state, metrics = learning.apply_gradients(
        state, gradients, metrics, optimizer=model.optimizer, schedule=model.schedule, refused=before
    )
    error = jnp.where(targets.value_mask[:, 0], jnp.abs(value - targets.value[:, 0]), jnp.nan)
    if ring_store.OWN in windows.stored:
        error = jnp.where(windows.stored[ring_store.OWN][:, 0], error, 0.0)  # nothing is learned from others' moves
    return state, error, metrics


def _targets(parts: _Parts, windows: windowing.Windows) -> nstep.Targets:
    """Returns the results of games, or a search's value `n_step` moves later, at the first position of windows."""
    n_step, discount = parts.model.config.alphazero.n_step, muzero_model.signed_discount(parts.model)
    compute = functools.partial(nstep.n_step_targets, discount=discount, n=n_step, num_positions=1)
    return muzero_model.targets(parts.model, windows, windows.stored["value"], compute)


def _turned(parts: _Parts, windows: windowing.Windows, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the first boards [B, ...] of windows and their policies [B, A], each changed by a random symmetry."""
    seen, policy = windowing.observed(windows, 0)[types.OBSERVATION], windows.stored["policy"][:, 0]
    if not parts.symmetries:
        return seen, policy
    chosen = jax.random.randint(key, (len(seen),), 0, len(parts.symmetries))
    boards = jnp.stack([symmetry.board(seen) for symmetry in parts.symmetries])
    policies = jnp.stack([policy[:, symmetry.actions] for symmetry in parts.symmetries])
    rows = jnp.arange(len(seen))
    return boards[chosen, rows], policies[chosen, rows]
