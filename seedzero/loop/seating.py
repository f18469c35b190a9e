"""Seating: the player at home in a group of environments, and the movers of its rows.

The home's rings and books get the rows, and its pace allows the group's acting; a mover's parameters act on a row.
"""

from __future__ import annotations

import numpy as np

from seedzero.device import batch as batches


class Seating:
    """One player, at home everywhere, who moves every row. Used by the loop's thread."""

    def home(self, slots: np.ndarray) -> int:
        """Returns the number of the player at home in the group of these slots [E]."""
        return 0

    def movers(self, joined: batches.Joined) -> np.ndarray | None:
        """Returns [N] int the number of the player that moves each row of a home's messages; None: the home all."""
        return None
