"""Plays a game in an environment's rows: positions, actions, turns, and how to take moves back.

The environment's own rules decide. To take moves back, the game is restarted and its other moves are repeated, because
equal seeds and actions give equal steps, chance included.

Shape letters: R rows (1 if both sides of an alternating game share it; otherwise each row is a seat).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seedzero.acting.actors import actor
from seedzero.acting.tables import table
from seedzero.core import types


class Course(table.Table):
    """One game at a time.

    Attributes:
      steps: positions as the environment shows them, [R] rows each; one more than actions.
      actions: [R] int, or [R, D], each.
    """

    steps: list[types.EnvStep]
    actions: list[np.ndarray]

    def begin(self, seeds: Sequence[int]) -> None:
        """Starts another game; seeds: [R]."""
        super().begin(seeds)
        self._seeds, self.steps, self.actions = seeds, [self.step], []

    def take(self, actions: np.ndarray) -> None:
        """Steps with the actions of all rows; those of rows without a turn are ignored."""
        super().take(actions)
        self.steps.append(self.step)
        self.actions.append(actions)

    def go_on(self) -> None:
        """Begins the environment's next game, after one that has ended; `go_back` cannot follow."""
        spec = self.env.spec
        ignored = np.zeros((self.env.num_envs, *spec.action_shape), np.float32 if spec.is_continuous else np.int32)
        super().take(ignored)
        self.steps, self.actions = [self.step], []

    def go_back(self, number: int) -> None:
        """Returns to an earlier position, by its number."""
        taken = self.actions[:number]
        self.begin(self._seeds)
        for actions in taken:
            self.take(actions)

    @property
    def has_rows(self) -> bool:
        """Whether each row is a seat."""
        return self.env.num_envs > 1

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
        moving: list[int] = np.flatnonzero(actor.shown(step) & ~step.final).tolist()
        return moving

    def seen(self, seat: int) -> list[int]:
        """Returns the numbers of the positions that show a seat's row."""
        return [number for number, step in enumerate(self.steps) if actor.shown(step)[self.row(seat)]]

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
        movers = self.env.spec.movers(self.steps[number].observation)
        return number % 2 if movers is None else int(movers[0])
