"""Gumbel MuZero's search (Danihelka et al. 2022): one network call for a whole sweep of Sequential Halving.

A sweep visits every remaining root action once, and visits behind one action change nothing behind another. So each
considered action has its own tree, whose root is the position with only that action open. The trees of a sweep are
rows of one batch [W * B]. Actions drop out at the start of a sweep, as in the paper; their trees stop growing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedzero.config import muzero_config
from seedzero.search import search_forest, selection, types

# Schedules simulations: Sequential Halving's sweeps, and loops with growing tables. Plain integers, no JAX.
SHORTEST_LOOP = 25
"""PUCT's loop over simulations is halved until its first part has at most this many.

A simulation touches every node of its tables, so small tables are fast, but each loop is compiled separately.
"""


class Round(NamedTuple):
    """Consecutive sweeps of equal width, numbered throughout a search: `begin`, ..., `end` - 1."""

    width: int
    begin: int
    end: int


def sweep_widths(num_considered: int, num_simulations: int, num_rounds: int = 0) -> tuple[int, ...]:
    """Returns how many root actions each sweep visits, once each (Karnin et al. 2013, Sequential Halving).

    Each of log2(m) phases has an equal share of the budget and at least one sweep; the last phase takes what remains.
    The last sweep may be shorter. num_rounds: the most phases; with 1 no action drops out, and 0 means no limit.
    """
    if num_considered <= 1:
        return (1,) * num_simulations
    num_phases = math.ceil(math.log2(num_considered))
    num_phases = min(num_phases, num_rounds) if num_rounds else num_phases
    widths: list[int] = []
    width, remaining, phase = num_considered, num_simulations, 1
    while remaining > 0:
        for _ in range(max(1, num_simulations // (num_phases * width))):
            widths.append(min(width, remaining))
            remaining -= widths[-1]
            if remaining == 0:
                break
        width = max(2, width // 2) if phase < num_phases else width
        phase += 1
    return tuple(widths)


def width_table(num_considered: int, num_simulations: int, num_rounds: int = 0) -> tuple[tuple[int, ...], ...]:
    """Returns the sweep widths for 0, 1, ..., `num_considered` actions, padded with zeros.

    A position may have fewer legal actions than `num_considered`. If it has none, one is still visited.
    """
    rows = [sweep_widths(max(1, m), num_simulations, num_rounds) for m in range(num_considered + 1)]
    longest = max(map(len, rows))
    return tuple((*row, *(0,) * (longest - len(row))) for row in rows)


def rounds(widths: Sequence[int]) -> tuple[Round, ...]:
    """Groups the sweeps by width."""
    found: list[Round] = []
    for width, group in itertools.groupby(widths):
        begin = found[-1].end if found else 0
        found.append(Round(width, begin, begin + len(tuple(group))))
    return tuple(found)


def loops(num_simulations: int) -> tuple[Round, ...]:
    """Returns PUCT's loops as rounds of width 1, each with as many simulations as all earlier loops together."""
    ends = [num_simulations]
    while ends[-1] > SHORTEST_LOOP:
        ends.append(math.ceil(ends[-1] / 2))
    return tuple(Round(1, begin, end) for begin, end in itertools.pairwise([0, *reversed(ends)]))


def search(
    key: jax.Array,
    root: types.Root,
    evaluate: types.Evaluate | types.Chance,
    *,
    config: muzero_config.SearchSection,
    score: search_forest.Score,
    explore: jax.Array,
    invalid_actions: jax.Array | None,
) -> tuple[types.SearchResult, list[search_forest.Forest]]:
    """Searches by Sequential Halving; returns the result and the trees.

    The policy target is softmax(logits + sigma(completed Q)) (equation 11). Rows without `explore` have no Gumbel
    noise.
    """
    logits = selection.masked(root.prior_logits, invalid_actions)
    _, gumbel_key = jax.random.split(key)
    noise = config.gumbel_scale * jax.random.gumbel(gumbel_key, logits.shape)
    position = _Position(
        config,
        evaluate,
        score,
        explore,
        logits=logits - jnp.max(logits, axis=-1, keepdims=True),
        prior=jax.nn.softmax(logits),
        value=root.value.astype(jnp.float32),
        gumbel=jnp.where(explore[:, None], noise, 0.0),
        valid_actions=None if invalid_actions is None else ~invalid_actions,
    )
    plan = _plan(position)
    race = _start(position, root, plan.rounds[0].width)
    finished: list[search_forest.Forest] = []
    for round_ in plan.rounds:
        race, dropped = _halve(position, race, round_.width)
        finished += dropped
        race = _run_round(position, race, round_, plan)
    forests = [*finished, race.forest]
    return _found(position, race, forests), forests


class _Position(NamedTuple):
    """The root position and the search's arguments, which never change. Illegal actions have the lowest logit."""

    config: muzero_config.SearchSection
    evaluate: types.Evaluate | types.Chance
    score: search_forest.Score
    explore: jax.Array
    logits: jax.Array  # [B, A], the largest one 0
    prior: jax.Array  # [B, A] probabilities
    value: jax.Array  # [B] of the value network
    gumbel: jax.Array  # [B, A] noise
    valid_actions: jax.Array | None  # [B, A] bool, true: legal; None: all are legal


class _Plan(NamedTuple):
    rounds: tuple[Round, ...]  # sweeps of equal width
    # [B, sweeps] int32, how many actions each position visits in each sweep, at most the round's width; None: that
    # width
    widths: jax.Array | None
    num_sweeps: jax.Array | None  # scalar int32, sweeps until every position has spent its budget; None: all sweeps


class _Race(NamedTuple):
    """The actions still considered, W for each position, and the statistics of all actions."""

    actions: jax.Array  # [B, W] int32, distinct
    active: jax.Array  # [B, W] bool, true: still considered. False only if positions differ in their legal actions
    forest: search_forest.Forest  # W * B trees; the first trees of all positions come first
    visits: jax.Array  # [B, A] of root actions, up to the newest sweep
    q_values: jax.Array  # [B, A] of root actions; 0 if unvisited


def _plan(position: _Position) -> _Plan:
    """Returns the sweeps; a position with few legal actions has its own schedule."""
    num_simulations, num_rounds = position.config.num_simulations, position.config.rounds
    most = min(position.config.num_considered, position.logits.shape[-1])
    if position.valid_actions is None:
        return _Plan(rounds(sweep_widths(most, num_simulations, num_rounds)), None, None)
    table = width_table(most, num_simulations, num_rounds)
    num_considered = jnp.minimum(most, jnp.sum(position.valid_actions, axis=-1))
    widths = jnp.asarray(table, jnp.int32)[num_considered]
    num_sweeps = jnp.max(jnp.sum(widths > 0, axis=-1))
    return _Plan(rounds([max(sweep) for sweep in zip(*table, strict=True)]), widths, num_sweeps)


def _start(position: _Position, root: types.Root, width: int) -> _Race:
    """Returns the first race, of the best actions by noise and prior, each with a tree of one node."""
    _, actions = jax.lax.top_k(_masked(position, position.gumbel + position.logits), width)
    roots = root._replace(prior_logits=jnp.tile(position.logits, (width, 1)), value=jnp.tile(root.value, width))
    no_visits = jnp.zeros(position.logits.shape)
    return _Race(
        actions=actions.astype(jnp.int32),
        active=jnp.ones(actions.shape, bool),
        forest=search_forest.plant(roots, _rules(position, actions)),
        visits=no_visits,
        q_values=no_visits,
    )


def _halve(position: _Position, race: _Race, width: int) -> tuple[_Race, list[search_forest.Forest]]:
    """Returns the race of the best `width` actions, and the trees of those that dropped out."""
    if width == race.actions.shape[1]:
        return race, []
    order = _best_first(_race_scores(position, race))
    return (
        race._replace(
            actions=search_forest.along(race.actions, order[:, :width]),
            active=search_forest.along(race.active.astype(jnp.int32), order[:, :width]) > 0,
            forest=search_forest.take(race.forest, order[:, :width].T),
        ),
        [search_forest.take(race.forest, order[:, width:].T)],
    )


def _run_round(position: _Position, race: _Race, round_: Round, plan: _Plan) -> _Race:
    rules = _rules(position, race.actions)
    race = race._replace(forest=search_forest.enlarge(race.forest, round_.end - round_.begin, apart=True))

    def sweep(index: jax.Array, race: _Race) -> _Race:
        # Sweep i is simulation i + 1 of each tree, which makes node i + 1: node 0 is the root.
        if plan.widths is None:
            return race._replace(forest=search_forest.simulate(race.forest, index + 1, rules))
        is_among_best = _ranks(_race_scores(position, race)) < plan.widths[:, index][:, None]
        race = race._replace(active=race.active & is_among_best)
        forest = search_forest.simulate(race.forest, index + 1, rules, race.active.T.reshape(-1))
        return _update_statistics(race._replace(forest=forest))

    end = round_.end if plan.num_sweeps is None else jnp.minimum(round_.end, plan.num_sweeps)
    return _update_statistics(jax.lax.fori_loop(round_.begin, end, sweep, race))


def _best_first(scores: jax.Array) -> jax.Array:
    """Returns the indices [B, W] of scores in descending order, stable."""
    slots = jnp.arange(scores.shape[-1])
    has_rank = _ranks(scores)[:, None, :] == slots[:, None]
    return jnp.sum(jnp.where(has_rank, slots, 0), axis=-1)


def _ranks(scores: jax.Array) -> jax.Array:
    """Returns the rank of each score, [B, W]. Comparing so few is faster to run and to compile than sorting them."""
    slots = jnp.arange(scores.shape[-1])
    mine, theirs = scores[:, :, None], scores[:, None, :]
    return jnp.sum((theirs > mine) | ((theirs == mine) & (slots < slots[:, None])), axis=-1)


def _update_statistics(race: _Race) -> _Race:
    """Copies each tree's root edge into the position's statistics and returns the race."""

    def put(table: jax.Array, edges: jax.Array) -> jax.Array:
        # One root action is open in each tree, so the sum over all is that action's edge.
        of_trees = jnp.sum(edges[:, 0], axis=0).reshape(race.actions.shape[::-1]).T
        return search_forest.put(table, race.actions, of_trees)

    return race._replace(
        visits=put(race.visits, race.forest.visits), q_values=put(race.q_values, race.forest.q_values)
    )


def _rules(position: _Position, actions: jax.Array) -> search_forest.Rules:
    """Returns the rules of trees [W * B] that have one root action each."""
    return search_forest.Rules(
        evaluate=position.evaluate,
        score=position.score,
        root_actions=actions.T.reshape(-1) == jnp.arange(position.logits.shape[-1])[:, None],
        max_depth=position.config.max_depth or None,
    )


def _race_scores(position: _Position, race: _Race) -> jax.Array:
    """Returns scores [B, W] of the race's actions; -inf for those that dropped out."""
    scores = search_forest.along(_scores(position, race), race.actions)
    return jnp.where(race.active, scores, -jnp.inf)


def _scores(position: _Position, race: _Race) -> jax.Array:
    """Returns gumbel + logits + sigma(completed Q) of root actions [B, A] (algorithm 2); -inf for illegal actions."""
    return _masked(position, position.gumbel + position.logits + _bonus(position, race))


def _bonus(position: _Position, race: _Race) -> jax.Array:
    edges = position.prior.T, position.value, race.visits.T, race.q_values.T
    return selection.value_bonus(*edges, config=position.config).T


def _masked(position: _Position, scores: jax.Array) -> jax.Array:
    return scores if position.valid_actions is None else jnp.where(position.valid_actions, scores, -jnp.inf)


def _found(position: _Position, race: _Race, forests: list[search_forest.Forest]) -> types.SearchResult:
    """Returns the result; its action is the best among the most visited."""
    is_most_visited = race.visits == jnp.max(race.visits, axis=-1, keepdims=True)
    scores = jnp.where(is_most_visited, _scores(position, race), -jnp.inf)
    logits = _bonus(position, race) + position.logits
    returns = jnp.sum(race.visits * race.q_values, axis=-1)
    action = jnp.argmax(scores, axis=-1).astype(jnp.int32)
    max_depth, mean_depth = search_forest.depth_statistics(forests, action.shape[0])
    return types.SearchResult(
        action=action,
        action_weights=jax.nn.softmax(logits),
        draw_weights=selection.draw_weights(logits, position.config.gumbel_scale, action, position.explore),
        root_value=(position.value + returns) / (1.0 + jnp.sum(race.visits, axis=-1)),
        visit_counts=race.visits.astype(jnp.int32),
        q_values=race.q_values,
        max_depth=max_depth,
        mean_depth=mean_depth,
    )
