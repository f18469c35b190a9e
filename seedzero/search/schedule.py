"""Schedules simulations: Sequential Halving's sweeps, and loops with growing tables. Plain integers, no JAX."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

SHORTEST_LOOP = 25
"""PUCT's loop over simulations is halved until its first part has at most this many.

A simulation touches every node of its tables, so small tables are fast, but each loop is compiled separately.
"""


class Round(NamedTuple):
    """Consecutive sweeps of equal width, numbered throughout a search: `begin`, ..., `end` - 1."""

    width: int
    begin: int
    end: int


def sweep_widths(num_considered: int, num_simulations: int, num_rounds: int = 0) -> tuple[int, ...]:
    """Returns how many root actions each sweep visits, once each (Karnin et al. 2013, Sequential Halving).

    Each of log2(m) phases has an equal share of the budget and at least one sweep; the last phase takes what remains.
    The last sweep may be shorter. num_rounds: the most phases; with 1 no action drops out, and 0 means no limit.
    """
    if num_considered <= 1:
        return (1,) * num_simulations
    num_phases = math.ceil(math.log2(num_considered))
    num_phases = min(num_phases, num_rounds) if num_rounds else num_phases
    widths: list[int] = []
    width, remaining, phase = num_considered, num_simulations, 1
    while remaining > 0:
        for _ in range(max(1, num_simulations // (num_phases * width))):
            widths.append(min(width, remaining))
            remaining -= widths[-1]
            if remaining == 0:
                break
        width = max(2, width // 2) if phase < num_phases else width
        phase += 1
    return tuple(widths)


def width_table(num_considered: int, num_simulations: int, num_rounds: int = 0) -> tuple[tuple[int, ...], ...]:
    """Returns the sweep widths for 0, 1, ..., `num_considered` actions, padded with zeros.

    A position may have fewer legal actions than `num_considered`. If it has none, one is still visited.
    """
    rows = [sweep_widths(max(1, m), num_simulations, num_rounds) for m in range(num_considered + 1)]
    longest = max(map(len, rows))
    return tuple((*row, *(0,) * (longest - len(row))) for row in rows)


def rounds(widths: Sequence[int]) -> tuple[Round, ...]:
    """Groups the sweeps by width."""
    found: list[Round] = []
    for width, group in itertools.groupby(widths):
        begin = found[-1].end if found else 0
        found.append(Round(width, begin, begin + len(tuple(group))))
    return tuple(found)


def loops(num_simulations: int) -> tuple[Round, ...]:
    """Returns PUCT's loops as rounds of width 1, each with as many simulations as all earlier loops together."""
    ends = [num_simulations]
    while ends[-1] > SHORTEST_LOOP:
        ends.append(math.ceil(ends[-1] / 2))
    return tuple(Round(1, begin, end) for begin, end in itertools.pairwise([0, *reversed(ends)]))
