"""Reads the newest rows of a slot's ring with the numbers that the agent stored, while somebody watches the page.

This is a separate program, compiled on a thread when a page first asks for it. Acting and learning continue in the
meantime, and their programs do not change. Evaluating environments have no rings, and so no such numbers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.replay import ring_store

NAMES = ("value", "policy", "logits", "log_prob")
"""Stored arrays that the page shows, if the agent has them."""
MAX_ROWS = 512
"""Most rows that are read at once."""
MAX_WIDTH = 128
"""Most numbers in a row; wider arrays are not shown."""
_CANNOT = "the stored numbers of watched environments cannot be read"
_log = logging.getLogger(__name__)


class NewestRows(NamedTuple):
    """Rows of a ring that are being read: reward, whether it is an episode's first, action, and stored numbers."""

    newest: Any  # jax.Array [K, W]; typed as Any, because its types lack is_ready
    num_written: Any  # jax.Array, how many rows of the ring were ever written
    has_action: bool  # whether rows have an action, and it is discrete

    @property
    def is_ready(self) -> bool:
        """Whether the rows have been computed."""
        return all(array.is_ready() for array in (self.newest, self.num_written))

    def rows(self) -> tuple[np.ndarray, bool]:
        """Returns the rows that were ever written, [K, W], the newest one last, and `has_action`."""
        newest = np.asarray(self.newest)
        return newest[len(newest) - min(len(newest), int(self.num_written)) :], self.has_action


class NewestReader:
    """Compiles and runs the program that reads rows of a run's rings."""

    def __init__(self, rings: ring_store.Rings) -> None:
        width = {name: int(np.prod(array.shape[2:])) for name, array in rings.stored.items()}
        length = rings.reward.shape[1]
        self.columns: Sequence[tuple[str, int]] = [
            (name, width[name])
            for name in NAMES
            if width.get(name, MAX_WIDTH + 1) <= MAX_WIDTH and rings.stored[name].shape[1] == length
        ]
        """Names and widths of the stored numbers, in the order of columns."""
        action = rings.stored.get(ring_store.ACTION)
        self._has_action = action is not None and action.shape == (*rings.reward.shape,) and action.dtype == np.int32
        if not rings.reward.is_fully_addressable:  # rings of several hosts, which would have to read them together
            self.columns = []
        self._num_rows = min(MAX_ROWS, length)
        self._program: Any = None
        if self.columns:
            shapes = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), self._arguments(rings)
            )
            # not a daemon thread, because Python would end it in the middle of XLA's code
            threading.Thread(target=self._compile, args=(shapes,), name="peek").start()

    @property
    def is_ready(self) -> bool:
        """Whether the program is compiled."""
        return self._program is not None

    def look(self, rings: ring_store.Rings, slot: int) -> NewestRows | None:
        """Loop's thread: begins to read a slot's rows. Returns None if the rings have changed their form."""
        try:
            newest, num_written = self._program(*self._arguments(rings), np.int32(slot))
        except (TypeError, ValueError) as error:  # the arguments do not fit; training continues
            self._program = None
            _log.warning(_CANNOT, exc_info=error)
            return None
        return NewestRows(newest, num_written, self._has_action)

    def _arguments(self, rings: ring_store.Rings) -> tuple[Any, ...]:
        names = [ring_store.ACTION] * self._has_action + [name for name, _ in self.columns]
        return rings.reward, rings.first, rings.cursor, [rings.stored[name] for name in names]

    def _compile(self, shapes: tuple[Any, ...]) -> None:
        num_rows = self._num_rows

        def run(
            reward: jax.Array, first: jax.Array, cursor: jax.Array, stored: list[jax.Array], slot: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            end = cursor[slot]
            time = (end - num_rows + jnp.arange(num_rows)) % reward.shape[1]
            parts = [array[slot][time].reshape(num_rows, -1).astype(jnp.float32) for array in (reward, first, *stored)]
            return jnp.concatenate(parts, axis=1), end

        try:
            self._program = jax.jit(run).lower(*shapes, jax.ShapeDtypeStruct((), np.int32)).compile()
        except Exception as error:  # a page without these numbers is better than an aborted run
            _log.warning(_CANNOT, exc_info=error)
