"""Evaluates an agent's policy as a table: its probabilities in every information state of a game, for both seats.

For an agent with an LSTM the memory is rebuilt: an information state is preceded by the seat's own earlier ones, and
with perfect recall these, and the actions there, are the same in every history.

Shape letters: R information states of both seats, seat 0's first; B rows of a compiled call, S sequences of a seat.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from seedzero.acting.actors import acting_program
from seedzero.acting.equilibria import game_tree
from seedzero.agents import base
from seedzero.core import errors, types
from seedzero.device import acting, batches
from seedzero.envs import seats, spiel

_BATCH_SIZE = 512
"""Most rows in a compiled call."""

Ask = Callable[[base.Params], tuple[np.ndarray, np.ndarray]]
"""Maps parameters to policies [S] for each seat, as in `game_tree`."""


def asking(agent: base.Agent, game: seats.SeatGame, tree: game_tree.GameTree) -> Ask:
    """Returns a function that evaluates the probabilities with which an agent draws its actions, without noise."""
    program, rows = acting_program.ActingProgram(agent, game.spec), _Rows(tree, game)
    blank, size = acting.initial(agent, game.spec, len(rows.first)), min(_BATCH_SIZE, len(rows.first))
    assert agent.policy is not None and game.spec.has_action_mask

    def look(
        params: base.Params, memory: acting.Carried, seen: batches.Batch, slots: np.ndarray, written: np.ndarray
    ) -> tuple[acting.Carried, np.ndarray]:
        """Looks at rows [N], N >= 1; returns the memory behind them and the policies [N, A]."""
        found = list[np.ndarray]()
        for begin in range(0, len(slots), size):
            part = np.minimum(np.arange(begin, begin + size), len(slots) - 1)  # the last row is repeated as padding
            places = {"slots": slots[part].astype(np.int32), "written": written[part].astype(np.int32)}
            memory, looked = program(params, memory, seen.those(part), 0, 0, findings=acting_program.NUMBERS, **places)
            found.append(np.asarray(looked["policy"]))
        return memory, np.concatenate(found)[: len(slots)]

    def ask(params: base.Params) -> tuple[np.ndarray, np.ndarray]:
        memory, found = blank, np.zeros((len(rows.first), game.spec.num_actions))
        remembers = bool(jax.tree.leaves(memory))  # otherwise all rows can be evaluated in any order
        chosen = np.flatnonzero(rows.first) if remembers else np.arange(len(found))
        while len(chosen):
            nowhere = np.full(len(chosen), acting_program.NOWHERE)
            found[chosen] = look(params, memory, rows.seen(chosen), chosen, nowhere)[1]
            chosen = np.flatnonzero(np.isin(rows.parent, chosen)) if remembers else chosen[:0]
            if len(chosen):
                # The mask allows only the action of this history, because memory may contain it.
                before = rows.parent[chosen]
                memory, _ = look(params, memory, rows.seen(before, only=rows.action[chosen]), before, chosen)
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
        return game_tree.nash_conv(tree, (game_tree.to_plans(*one), game_tree.to_plans(*other)))

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
        step = types.EnvStep.first(self._frame[rows])
        step = step._replace(reward=self._reward[rows], action_mask=mask, task=self._task[rows])
        return acting_program.seen(self._spec, step, self.first[rows])._replace(num_updates=None)

    def policies(self, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns each seat's policy from probabilities [R, A], after removing their rounding errors."""
        exact = np.asarray(probabilities, np.float64)
        exact = (exact / exact.sum(axis=1, keepdims=True))[self._rows, self._actions]
        one, other = np.split(exact, [self._tree.seats[0].num_sequences - 1])
        return np.concatenate([[1.0], one]), np.concatenate([[1.0], other])
