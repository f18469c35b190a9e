"""Times several programs in short alternating slices, so that other load on the machine affects all equally."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

NUM_ROUNDS = 21
MIN_ROUNDS = 3
"""Number of rounds for programs that are too slow for NUM_ROUNDS."""

Program = Callable[[], Any]
"""Dispatches one call and returns arrays to wait for, which later calls must not donate."""

Slices = dict[str, list[float]]
"""Seconds that a call of each program takes, one number for each round."""

Row = dict[str, Any]


def carrying(function: Callable[[Any, int], tuple[Any, Any]], state: Any) -> Program:
    """Returns a program of (state, number of the call) -> (state, arrays to wait for) that donates its state."""
    calls = itertools.count()

    def call() -> Any:
        nonlocal state
        state, found = function(state, next(calls))
        return found

    return call


def interleave(programs: Mapping[str, Program], *, seconds: float) -> Slices:
    """Measures programs in turn for this many seconds in total, without compilation; slow programs take longer."""
    slice_seconds = seconds / (NUM_ROUNDS * len(programs))
    counts = {name: _count(program, slice_seconds) for name, program in programs.items()}
    slices: Slices = {name: [] for name in programs}
    begin = time.perf_counter()
    for index in range(NUM_ROUNDS):
        if index >= MIN_ROUNDS and time.perf_counter() - begin > seconds:
            break
        for name in list(programs)[:: 1 if index % 2 else -1]:
            slices[name].append(_seconds_a_call(programs[name], counts[name]))
    return slices


def _count(program: Program, slice_seconds: float) -> int:
    """Returns the number of calls in a slice, measured after compilation."""
    _seconds_a_call(program, 1)
    if _seconds_a_call(program, 1) > slice_seconds:
        return 1
    return max(1, round(slice_seconds / _seconds_a_call(program, 2)))


def _seconds_a_call(program: Program, count: int) -> float:
    """Runs `count` calls with two in flight, as the learner does."""
    begin = time.perf_counter()
    previous = program()
    for _ in range(count - 1):
        newest = program()
        jax.block_until_ready(previous)
        previous = newest
    jax.block_until_ready(previous)
    return (time.perf_counter() - begin) / count


def milliseconds(slices: Slices, name: str) -> float:
    """Returns the median of a program's slices."""
    return 1e3 * statistics.median(slices[name])


def ratio(slices: Slices, name: str, peer: str) -> float:
    """Returns a program's speed relative to its peer's, as the median over the rounds."""
    return statistics.median(theirs / ours for ours, theirs in zip(slices[name], slices[peer], strict=True))


def against(slices: Slices, name: str, *peers: str) -> Row:
    """Returns a row's figures: the peers' milliseconds, then the ratios to the peers."""
    times = {f"{peer}_milliseconds": milliseconds(slices, peer) for peer in peers}
    return times | {f"ratio_to_{peer}": ratio(slices, name, peer) for peer in peers}
