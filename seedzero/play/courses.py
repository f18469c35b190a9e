"""Plays a game in an environment's rows: positions, actions, turns, and how to take moves back.

The environment's own rules decide. To take moves back, the game is restarted and its other moves are repeated, because
equal seeds and actions give equal steps, chance included.

Shape letters: R rows (1 if both sides of an alternating game share it; otherwise each row is a seat).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seedzero.core import types


class Course:
    """One game at a time.

    Attributes:
      steps: positions as the environment shows them, [R] rows each; one more than actions.
      actions: [R] int each.
    """

    def __init__(self, env: Any) -> None:
        """env: holds one game, and was made for training, so that only the caller moves."""
        self._env = env
        self._seeds: Sequence[int] = ()
        self.has_rows = env.num_envs > 1
        self.steps: list[types.EnvStep] = []
        self.actions: list[np.ndarray] = []

    def begin(self, seeds: Sequence[int]) -> None:
        """Starts another game; seeds: [R]."""
        self._seeds = seeds
        self.steps, self.actions = [self._env.reset(seeds)], []

    def step(self, actions: np.ndarray) -> None:
        """Steps with the actions of all rows; those of rows without a turn are ignored."""
        self.steps.append(self._env.step(actions))
        self.actions.append(actions)

    def go_back(self, number: int) -> None:
        """Returns to an earlier position, by its number."""
        self._env.reset(self._seeds)
        for actions in self.actions[:number]:
            self._env.step(actions)
        del self.steps[number + 1 :], self.actions[number:]

    def row(self, seat: int) -> int:
        """Returns the row of a seat."""
        return seat if self.has_rows else 0

    def viewer(self, seat: int, number: int) -> int:
        """Returns the seat whose observation is in the row of a seat."""
        return seat if self.has_rows else self._mover(number)

    def movers(self, number: int) -> list[int]:
        """Returns the seats that move in a position; none if the game is over."""
        step = self.steps[number]
        if not self.has_rows:
            return [] if step.final[0] else [self._mover(number)]
        moving: list[int] = np.flatnonzero(shown(step) & ~step.final).tolist()
        return moving

    def first(self, number: int) -> np.ndarray:
        """Returns [R] bool, true: no earlier position of the game showed the row."""
        before = [shown(step) for step in self.steps[:number]]
        return ~np.any(before, axis=0) if before else np.ones(self._env.num_envs, bool)

    def seen(self, seat: int) -> list[int]:
        """Returns the numbers of the positions that show a seat's row."""
        return [number for number, step in enumerate(self.steps) if shown(step)[self.row(seat)]]

    def is_over(self, seat: int) -> bool:
        """Returns whether a seat makes no more moves."""
        last = len(self.steps) - 1
        is_out = any(self.steps[number].final[self.row(seat)] for number in self.seen(seat))
        return is_out or not self.movers(last)

    def total(self, seat: int) -> float:
        """Returns the sum of a seat's rewards so far. In an alternating game they are the other side's losses."""
        if self.has_rows:
            return float(sum(step.reward[seat] for step in self.steps))
        signs = [1 if self._mover(number) == seat else -1 for number in range(len(self.actions))]
        return float(sum(sign * step.reward[0] for sign, step in zip(signs, self.steps[1:], strict=True)))

    def _mover(self, number: int) -> int:
        """Returns the side to move in a position of an alternating game."""
        movers = self._env.spec.movers(self.steps[number].observation)
        return number % 2 if movers is None else int(movers[0])


def shown(step: types.EnvStep) -> np.ndarray:
    """Returns which rows have a new observation, [R] bool."""
    return np.ones(len(step.reward), bool) if step.shown is None else step.shown
