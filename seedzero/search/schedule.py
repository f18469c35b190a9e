"""How a budget of simulations is spent: Sequential Halving's sweeps, and loops whose tables grow. Pure numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

SHORTEST_LOOP = 25
"""PUCT's loop over simulations is split while it is longer.

A simulation touches every node of its tables, so small tables are fast ones; but each loop is compiled on its own.
"""


class Round(NamedTuple):
    """Sweeps of one width. They are numbered through a search: `begin`, ..., `end` - 1."""

    width: int
    begin: int
    end: int


def sweep_widths(num_considered: int, num_simulations: int) -> tuple[int, ...]:
    """Returns how many root actions each sweep visits, once each (Karnin et al. 2013, Sequential Halving).

    Each of log2(m) phases has an equal share of the budget; a phase has at least one sweep and the last phase takes
    what is left. The last sweep may be cut short.
    """
    if num_considered <= 1:
        return (1,) * num_simulations
    num_phases = math.ceil(math.log2(num_considered))
    widths: list[int] = []
    width, remaining = num_considered, num_simulations
    while remaining > 0:
        for _ in range(max(1, num_simulations // (num_phases * width))):
            widths.append(min(width, remaining))
            remaining -= widths[-1]
            if remaining == 0:
                break
        width = max(2, width // 2)
    return tuple(widths)


def width_table(num_considered: int, num_simulations: int) -> tuple[tuple[int, ...], ...]:
    """Returns the sweep widths of every number of considered actions from 0 on, made equally long by zeros.

    A position may have fewer legal actions than are to be considered. Without any, one is visited all the same.
    """
    rows = [sweep_widths(max(1, m), num_simulations) for m in range(num_considered + 1)]
    longest = max(map(len, rows))
    return tuple((*row, *(0,) * (longest - len(row))) for row in rows)


def rounds(widths: Sequence[int]) -> tuple[Round, ...]:
    """Returns the sweeps, those of equal width together."""
    found: list[Round] = []
    for width, group in itertools.groupby(widths):
        begin = found[-1].end if found else 0
        found.append(Round(width, begin, begin + len(tuple(group))))
    return tuple(found)


def loops(num_simulations: int) -> tuple[Round, ...]:
    """Returns PUCT's loops as rounds of width 1: each does as many simulations as all before it."""
    ends = [num_simulations]
    while ends[-1] > SHORTEST_LOOP:
        ends.append(math.ceil(ends[-1] / 2))
    return tuple(Round(1, begin, end) for begin, end in itertools.pairwise([0, *reversed(ends)]))
