"""Evaluates an agent's policy as a table: its probabilities in every information state of a game, for both seats.

For an agent with an LSTM the memory is rebuilt: an information state is preceded by the seat's own earlier ones, and
with perfect recall these, and the actions there, are the same in every history.

Shape letters: R information states of both seats, seat 0's first; B rows of a compiled call, S sequences of a seat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from seedzero.agents import base
from seedzero.core import errors
from seedzero.device import acting, batches
from seedzero.envs import seats, spiel
from seedzero.equilibria import game_tree, nash
from seedzero.evaluation import greedy

_BATCH_SIZE = 512
"""Most rows in a compiled call."""

Ask = Callable[[base.Params], tuple[np.ndarray, np.ndarray]]
"""Maps parameters to policies [S] for each seat, as in `nash`."""


def asking(agent: base.Agent, game: seats.SeatGame, tree: game_tree.GameTree) -> Ask:
    """Returns a function that evaluates the probabilities with which an agent draws its actions, without noise."""
    policy, spec, rows = agent.policy, game.spec, _Rows(tree, game)
    size = min(_BATCH_SIZE, len(rows.first))
    assert policy is not None and spec.has_action_mask

    @jax.jit
    def probabilities(params: base.Params, carried: acting.Carried, seen: batches.Batch) -> jax.Array:
        _, inputs = acting.look(agent, spec, len(seen.slot), carried, seen)
        return policy(params, carried.memory, inputs)

    @jax.jit
    def step(params: base.Params, carried: acting.Carried, seen: batches.Batch) -> acting.Carried:
        return acting.act(agent, spec, len(seen.slot), params, carried, seen, jax.random.key(0))[0]

    def ask(params: base.Params) -> tuple[np.ndarray, np.ndarray]:
        carried = jax.tree.map(np.array, acting.initial(agent, spec, len(rows.first)))
        found = np.zeros((len(rows.first), spec.num_actions))
        if not jax.tree.leaves(carried):  # nothing is remembered, so all rows can be evaluated in any order
            return rows.policies(_in_batches(probabilities, size, params, carried, rows.seen(np.arange(len(found)))))
        chosen = np.flatnonzero(rows.first)
        while len(chosen):
            found[chosen] = _in_batches(probabilities, size, params, _at(carried, chosen), rows.seen(chosen))
            chosen = np.flatnonzero(np.isin(rows.parent, chosen))
            if len(chosen):
                # The mask allows only the action of this history, because memory may contain it.
                seen = rows.seen(rows.parent[chosen], only=rows.action[chosen])
                after = _in_batches(step, size, params, _at(carried, rows.parent[chosen]), seen)
                for kept, new in zip(jax.tree.leaves(carried), jax.tree.leaves(after), strict=True):
                    kept[chosen] = new
        return rows.policies(found)

    return ask


def judging(agent: base.Agent, env_id: str) -> Callable[[base.Params], float]:
    """Returns a function from parameters to their NashConv in a run's game.

    Raises UsageError for a game whose NashConv cannot be computed, and for an agent without a policy.
    """
    game = game_tree.game_of(env_id, "this run")
    if agent.policy is None:
        raise errors.UsageError("this run's agent has no policy of probabilities; give --agent=ppo or --agent=vtrace")
    tree = game_tree.build(spiel.load(game.name))
    ask = asking(agent, game, tree)

    def judge(params: base.Params) -> float:
        one, other = zip(tree.seats, ask(params), strict=True)
        return nash.nash_conv(tree, (nash.to_plans(*one), nash.to_plans(*other)))

    return judge


class _Rows:
    """The information states as rows of observations."""

    def __init__(self, tree: game_tree.GameTree, game: seats.SeatGame) -> None:
        self._tree, self._spec = tree, game.spec
        one, other = tree.seats
        self._task = np.repeat(np.arange(game_tree.NUM_SEATS, dtype=np.int32), [len(one.names), len(other.names)])
        states = zip((*one.states, *other.states), self._task.tolist(), strict=True)
        self._frame = np.stack([game.observe(state, seat) for state, seat in states])
        self._mask = np.zeros((len(self._frame), game.spec.num_actions), bool)
        self._reward = np.concatenate([one.rewards, other.rewards])
        self._rows: list[int] = []  # row of each sequence except 0, seat 0's first
        actions: list[int] = []
        for row, legal in enumerate((*one.actions, *other.actions)):
            self._mask[row, list(legal)] = True
            self._rows += [row] * len(legal)
            actions += legal
        self._actions = np.array(actions)
        # Indices in these lists of the sequences that lead to the rows; meaningless at a seat's first turn.
        leading = np.concatenate([one.parents - 1, other.parents - 1 + one.num_sequences - 1])
        self.first = np.concatenate([one.parents, other.parents]) == 0  # [R] bool, true at the seat's first turn
        self.parent = np.where(self.first, -1, np.array(self._rows)[leading])  # [R] the row before, or -1
        self.action = self._actions[leading]  # [R] the action at the row before

    def seen(self, rows: np.ndarray, *, only: np.ndarray | None = None) -> batches.Batch:
        """Returns observations of rows [N]. only: [N] the one action that each mask allows; None: all legal ones."""
        mask = self._mask[rows] if only is None else np.arange(self._spec.num_actions) == only[:, np.newaxis]
        shown = (self._frame[rows], self._reward[rows], self.first[rows], mask)
        return greedy.seen(self._spec, *shown, task=self._task[rows])

    def policies(self, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns each seat's policy from probabilities [R, A], after removing their rounding errors."""
        exact = np.asarray(probabilities, np.float64)
        exact = (exact / exact.sum(axis=1, keepdims=True))[self._rows, self._actions]
        one, other = np.split(exact, [self._tree.seats[0].num_sequences - 1])
        return np.concatenate([[1.0], one]), np.concatenate([[1.0], other])


def _at(arrays: Any, rows: np.ndarray) -> Any:
    return jax.tree.map(lambda x: x[rows], arrays)


def _in_batches(
    function: Callable[..., Any], size: int, params: base.Params, carried: Any, seen: batches.Batch
) -> Any:
    """Applies a function to all rows [N, ...], N >= 1, in batches of `size`, and returns numpy arrays."""
    parts, num_rows = [], len(seen.slot)
    for begin in range(0, num_rows, size):
        rows = np.minimum(np.arange(begin, begin + size), num_rows - 1)  # the last row is repeated as padding
        batch = _at((carried, seen._replace(slot=seen.slot % size)), rows)
        parts.append(jax.tree.map(np.asarray, function(params, *batch)))
    return jax.tree.map(lambda *x: np.concatenate(x)[:num_rows], *parts)
