"""Updates on devices of their own: acting and the rings are on the others, and neither waits for the other.

An update is three calls: the acting devices draw windows with their frames, these are copied once, the others learn;
where rows have priorities, the new ones come back and are written into the rings. A device does its calls in the order
of their dispatch, so what needs an update's results is dispatched to acting devices only once these are there.
Rows that acting has overwritten meanwhile keep the priorities of their successors.

As with the Sebulba architecture of Podracer (Hessel et al. 2021, section 3.2) and SEED RL (Espeholt et al. 2020).
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import numpy as np

from seedzero.agents import base
from seedzero.device import steps, transfer
from seedzero.replay import priorities
from seedzero.replay import rings as ring_store

MOST_UPDATES = 2
"""Updates on their way: one that learns, and one whose windows are there when it ends."""

MOST_COPIES = 2
"""Copies of the parameters on their way to acting."""

Learned: TypeAlias = tuple[base.TrainState, transfer.Pieces, jax.Array]
"""A train state, priorities, and metrics as one array."""


class UpdateApart:
    """Updates of devices apart, called by one thread.

    Args:
      draw: from `steps.make_draw_apart`.
      learn: from `steps.make_learn_apart`, with its metrics as one array.
      write_back: from `steps.make_write_back`; None: there are no priorities.
      acting: the devices that act.
      learners: those that learn.
      ahead: false: priorities are in the rings before the next call; every run does the same.
    """

    def __init__(
        self,
        draw: Callable[..., tuple[transfer.Pieces, priorities.Places]],
        learn: Callable[..., Learned],
        write_back: Callable[..., ring_store.Rings] | None,
        *,
        acting: jax.sharding.Mesh,
        learners: jax.sharding.Mesh,
        ahead: bool,
    ) -> None:
        self._draw = draw
        self._learn = learn
        self._write_back = write_back
        self._acting = acting
        self._learners = learners
        self._ahead = ahead
        self._learning: collections.deque[tuple[priorities.Places, transfer.Pieces]] = collections.deque()

    def __call__(
        self, train: base.TrainState, rings: ring_store.Rings, feed: steps.Feed, num_updates: int
    ) -> tuple[base.TrainState, ring_store.Rings, jax.Array]:
        """Returns the states after an update, and its metrics.

        num_updates: before this one, as the train state says; acting devices would have to wait for that.
        """
        rings = self._prioritized(rings)
        pieces, places = self._draw(np.int32(num_updates), rings, feed)
        train, priority, values = self._learn(train, transfer.move(pieces, self._learners))
        if self._write_back is not None:
            self._learning.append((places, priority))
        return train, rings if self._ahead else self._prioritized(rings), values

    def _prioritized(self, rings: ring_store.Rings) -> ring_store.Rings:
        """Returns the rings with the priorities that are there."""
        while self._learning and (not self._ahead or is_there(self._learning[0][1])):
            places, priority = self._learning.popleft()
            assert self._write_back is not None
            rings = self._write_back(rings, places, transfer.move(priority, self._acting))
        return rings


def is_there(tree: Any) -> bool:
    """Returns whether arrays are computed, so that what takes them need not wait."""
    return all(leaf.is_ready() for leaf in jax.tree.leaves(tree))
