"""Gives seats their homes: agents of an environment have their own policies, and a group's rows belong to several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from seedzero.device import batches
from seedzero.loop import seatings


class SeatHomes(seatings.Seating):
    """Each seat of all games is at home with one player, which makes its moves.

    A group's slots are whole games, one after the other, so a slot's seat follows from its number. A message waits
    until all of its homes may act, and its reply waits for all of their calls.
    """

    by_seat = True

    def __init__(self, of_seats: Sequence[int]) -> None:
        """of_seats: [S] the number of the player at home in each seat of a game."""
        self._of_seats = np.array(of_seats)

    def table(self, num_slots: int) -> np.ndarray:
        """Returns the number of the player at home in each training slot [num_slots]."""
        return self._homes(np.arange(num_slots))

    def rows(self, slots: np.ndarray) -> Mapping[int, np.ndarray]:
        homes = self._homes(slots)
        return {home: slots[homes == home] for home in np.unique(homes).tolist()}

    def parties(self, messages: Sequence[batches.Message]) -> list[tuple[tuple[int, ...], list[batches.Message]]]:
        homes = {home for message in messages for home in self.rows(message.slots)}
        return [(tuple(sorted(homes)), list(messages))] if messages else []

    def deal(self, joined: batches.Batch, home: int) -> Sequence[seatings.Hand]:
        return (seatings.Hand(self._homes(joined.slot) == home),)

    def evaluating(self, joined: batches.Batch, measured: np.ndarray) -> Sequence[tuple[int, seatings.Hand]]:
        homes: np.ndarray = self._of_seats[joined.task]  # evaluating slots have higher numbers than the others
        return [(home, seatings.Hand(homes == home)) for home in np.unique(homes).tolist()]

    def _homes(self, slots: np.ndarray) -> np.ndarray:
        homes: np.ndarray = self._of_seats[slots % len(self._of_seats)]
        return homes
