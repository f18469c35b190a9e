"""The newest rows of a slot's ring with the numbers that the agent stored, read while a page watches.

The program is one of its own, compiled on a thread when the first page asks; acting and learning continue meanwhile,
and their programs stay as they are. The rings of evaluating environments do not exist, so these have no such numbers.
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
"""Stored arrays that a page shows, where an agent has them."""
MAX_ROWS = 512
"""Newest rows of one look."""
MAX_WIDTH = 128
"""Numbers of a row; wider arrays are left out."""
_CANNOT = "the stored numbers of watched environments cannot be read"
_log = logging.getLogger(__name__)


class NewestRows(NamedTuple):
    """A look under way at the newest rows of a ring: reward, whether it is first, action, stored numbers."""

    newest: Any  # jax.Array [K, W]; its types lack is_ready
    num_written: Any  # jax.Array, rows of the ring that were ever written
    has_action: bool  # the action is a number, and there

    @property
    def is_ready(self) -> bool:
        """Whether the rows are there."""
        return all(array.is_ready() for array in (self.newest, self.num_written))

    def rows(self) -> tuple[np.ndarray, bool]:
        """Returns the rows that were ever written [K, W], the last one the newest, and `has_action`."""
        newest = np.asarray(self.newest)
        return newest[len(newest) - min(len(newest), int(self.num_written)) :], self.has_action


class NewestReader:
    """The program that looks at the rings of a run."""

    def __init__(self, rings: ring_store.Rings) -> None:
        width = {name: int(np.prod(array.shape[2:])) for name, array in rings.stored.items()}
        length = rings.reward.shape[1]
        self.columns: Sequence[tuple[str, int]] = [
            (name, width[name])
            for name in NAMES
            if width.get(name, MAX_WIDTH) < MAX_WIDTH and rings.stored[name].shape[1] == length
        ]
        """Names and widths of the stored numbers, in their order."""
        action = rings.stored.get(ring_store.ACTION)
        self._has_action = action is not None and action.shape == (*rings.reward.shape,) and action.dtype == np.int32
        if not rings.reward.is_fully_addressable:  # of several hosts, which would have to look together
            self.columns = []
        self._num_rows = min(MAX_ROWS, length)
        self._program: Any = None
        if self.columns:
            shapes = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), self._arguments(rings)
            )
            # Not a daemon: Python would end it in the middle of XLA's code.
            threading.Thread(target=self._compile, args=(shapes,), name="peek").start()

    @property
    def is_ready(self) -> bool:
        """Whether it is compiled."""
        return self._program is not None

    def look(self, rings: ring_store.Rings, slot: int) -> NewestRows | None:
        """Loop's thread: begins a look at a slot. None: the rings are others."""
        try:
            newest, num_written = self._program(*self._arguments(rings), np.int32(slot))
        except (TypeError, ValueError) as error:  # of the arguments; training continues
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
        except Exception as error:  # a page without these numbers is better than a run that ends
            _log.warning(_CANNOT, exc_info=error)
