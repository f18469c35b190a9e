"""What data an agent learns from: the arrays of each stored row, and sampled windows or a queue of unrolls."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np


class Stored(NamedTuple):
    """An array that acting stores with each observation."""

    shape: tuple[int, ...]  # of one row
    dtype: np.dtype[Any]  # likewise
    # only rows whose number is a multiple of this are kept, for example recurrent states that begin an unroll
    every: int = 1


class Prioritization(NamedTuple):
    """Proportional prioritization (Schaul et al. 2016, sections 3.3 and 3.4)."""

    alpha: float  # a row is drawn in proportion to priority ^ alpha; more than 0
    beta: float  # the loss of a row drawn with probability P has a factor P ^ -beta; 1 removes the bias
    epsilon: float  # added to every priority, so that none is 0
    least: float = 0.0  # factors of the loss are at least this share of the largest (EfficientZero V2: 0.1)


class Replay(NamedTuple):
    """Windows are sampled, and a step may be used any number of times."""

    length: int  # J, positions of a window
    observe: tuple[int, ...]  # positions of a window whose observations are needed, ascending, beginning with 0
    stride: int = 1  # windows begin at rows whose number is a multiple of this
    following: int = 1  # rows that must follow the first row of a window
    crosses_episodes: bool = False  # whether a window continues into the next episode; it never crosses a cut
    prioritization: Prioritization | None = None  # None: sampling is uniform
    before: int = 0  # Q, rows before a window that it includes (`Windows.before`), for example for a recurrent state


class Queue(NamedTuple):
    """Unrolls are consumed: every step at most once, in the order of acting, across episodes, never across a cut."""

    length: int  # L, steps of an unroll; its window has L + 1 positions, the last one also begins the next unroll
    batch_size: int  # unrolls of one update over all devices
    max_lag: int  # complete unrolls of a slot that may wait; acting holds the slot until one is consumed
    wait_seconds: float  # how long a batch waits to be full; then it is padded with weight 0


Data: TypeAlias = Replay | Queue


def num_positions(data: Data) -> int:
    """Returns J, the positions of a window."""
    return data.length if isinstance(data, Replay) else data.length + 1


def observed_positions(data: Data) -> tuple[int, ...]:
    """Returns the positions of a window whose observations are needed."""
    return data.observe if isinstance(data, Replay) else tuple(range(data.length + 1))


def crosses_episodes(data: Data) -> bool:
    """Returns whether a window continues into the next episode, as unrolls do."""
    return isinstance(data, Queue) or data.crosses_episodes


def num_before(data: Data) -> int:
    """Returns Q, the rows before a window that it includes."""
    return data.before if isinstance(data, Replay) else 0
