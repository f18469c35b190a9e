"""A worker with a game of three seats of its own: `python seat_worker.py --server=HOST:PORT`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from seedzero.core import types
from seedzero.envs import seats
from seedzero.worker import worker

NUM_SEATS, NUM_ACTIONS = 3, 3
_NAMES = tuple(f"seat {number + 1}" for number in range(NUM_SEATS))
State: TypeAlias = tuple[np.ndarray, tuple[int, ...]]


class Name:
    """Each seat in turn sees a number, and wins a point if it names that; the last one is asked three times.

    A state is the drawn numbers, and the actions so far.
    """

    name = "name"
    num_seats = NUM_SEATS
    spec = types.EnvSpec(
        (NUM_ACTIONS,), "float32", NUM_ACTIONS, 0.0, 1.0, has_action_mask=True, tasks=_NAMES, seats=_NAMES
    )

    def initial(self, generator: np.random.Generator) -> State:
        return generator.integers(NUM_ACTIONS, size=NUM_SEATS + 2), ()

    def movers(self, state: State) -> tuple[int, ...]:
        return (_mover(len(state[1])),) if len(state[1]) < len(state[0]) else ()

    def is_out(self, state: State, seat: int) -> bool:
        return seat < NUM_SEATS - 1 and len(state[1]) > seat

    def observe(self, state: State, seat: int) -> np.ndarray:
        drawn, actions = state
        return np.eye(NUM_ACTIONS, dtype=np.float32)[drawn[min(len(actions), len(drawn) - 1)]]

    def legal_mask(self, state: State, seat: int) -> np.ndarray:
        return np.ones(NUM_ACTIONS, bool)

    def apply(self, state: State, actions: Mapping[int, int], generator: np.random.Generator) -> State:
        drawn, before = state
        return drawn, (*before, *actions.values())

    def returns(self, state: State) -> Sequence[float]:
        found = [0.0] * NUM_SEATS
        for number, (drawn, action) in enumerate(zip(state[0], state[1], strict=False)):
            found[_mover(number)] += float(drawn == action)
        return found


def _mover(number: int) -> int:
    return min(number, NUM_SEATS - 1)


def make_group(num_envs: int) -> seats.SeatGames:
    return seats.SeatGames(Name(), num_envs)


if __name__ == "__main__":
    sys.exit(worker.main(env_factory=make_group))
