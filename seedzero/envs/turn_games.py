"""The interface of games whose players take turns, as functions of single states: OpenSpiel's and Pgx's.

Shape letters: E positions, A actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from seedzero.core import types

State = Any
"""A pyspiel.State, or a `pgx_games.State` with the same methods; functions here do not change it."""


class TurnGame(Protocol):
    """The rules of a game; `spec` describes its environments. Generators draw chance."""

    name: str
    spec: types.EnvSpec
    num_players: int
    num_actions: int
    has_chance: bool
    first_mover: int  # 0 or 1; where chance decides who begins, 0 stands for the first side

    def initial(self, generator: np.random.Generator | None = None) -> State:
        """Returns the state before the first move, after chance."""

    def mover(self, state: State) -> int:
        """Returns the player to move, 0 or 1; in a terminal state the one whose turn it would be."""

    def observe(self, state: State) -> np.ndarray:
        """Returns the observation of the player to move, of the spec's dtype."""

    def legal_mask(self, state: State) -> np.ndarray:
        """Returns [A] bool, true: legal; all true in a terminal state, which ignores every action."""

    def apply(self, state: State, action: int, generator: np.random.Generator | None = None) -> State:
        """Returns the state after a legal move, and after chance. Raises EnvironmentFailure if the move is illegal."""

    def is_terminal(self, state: State) -> bool:
        """Returns whether the game is over."""

    def returns(self, state: State) -> tuple[float, ...]:
        """Returns each player's sum of rewards since the first move."""


def shown(game: TurnGame, states: Sequence[State]) -> types.EnvStep:
    """Returns what the players to move see of states [E], as first observations with masks."""
    masks = np.stack([game.legal_mask(state) for state in states])
    return types.EnvStep.first(np.stack([game.observe(state) for state in states]))._replace(action_mask=masks)


class Positions:
    """E games of one kind that continue from given states, as the rows of an environment.

    A step's reward is the acting player's, as in self-play. A row whose game is over is not shown again.

    Attributes:
      game: the rules.
      states: [E], for players that may look at them.
      is_over: [E] bool.
    """

    states: list[State]
    is_over: np.ndarray

    def __init__(self, game: TurnGame, states: Sequence[State], generator: np.random.Generator | None = None) -> None:
        """states: not terminal. generator: draws the outcomes of chance."""
        self.spec, self.num_envs = game.spec, len(states)
        self.game, self._begun, self._generator = game, states, generator
        self.reset(())

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        """Returns to the given states; chance does not depend on seeds."""
        self.states, self.is_over = list(self._begun), np.zeros(self.num_envs, bool)
        self._step = shown(self.game, self.states)
        return self._step

    def step(self, actions: np.ndarray) -> types.EnvStep:
        game, rows = self.game, np.flatnonzero(~self.is_over)
        reward = np.zeros(self.num_envs, np.float32)
        for row in rows.tolist():
            before, mover = self.states[row], game.mover(self.states[row])
            self.states[row] = after = game.apply(before, int(actions[row]), self._generator)
            reward[row] = game.returns(after)[mover] - game.returns(before)[mover]
            self.is_over[row] = game.is_terminal(after)
        seen = shown(game, [self.states[row] for row in rows])
        observation, mask = self._step.observation.copy(), np.ones((self.num_envs, game.num_actions), bool)
        observation[rows], mask[rows] = seen.observation, seen.action_mask
        is_shown = np.isin(np.arange(self.num_envs), rows)
        never = np.zeros(self.num_envs, bool)
        self._step = types.EnvStep(observation, reward, self.is_over & is_shown, never, mask, shown=is_shown)
        return self._step

    def render(self) -> np.ndarray:
        raise NotImplementedError("positions are played, and never drawn")

    def close(self) -> None:
        pass
