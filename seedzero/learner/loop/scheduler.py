"""Chooses the next call on the devices: a pure function from one snapshot of facts to one decision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from seedzero.learner.loop import rate_limiting


class Facts(NamedTuple):
    """The facts for a decision, all from one moment (`facts.gather`)."""

    now: float  # in seconds
    players: tuple[rate_limiting.Progress, ...]
    rates: tuple[rate_limiting.RateState, ...]  # of each player
    only_evaluates: bool = False  # a run's last evaluation, or one for which training waits
    lock_step: bool = False  # a deterministic run
    is_idle: bool = True  # the devices have nothing to do
    deadlines: tuple[float, ...] = ()  # times at which the decision may change without news


class Call(NamedTuple):
    """A call on the devices; several players may act together."""

    kind: rate_limiting.Work
    players: tuple[int, ...]  # the players' numbers, in order


class Wait(NamedTuple):
    """There is nothing to do before the next news or a certain time."""

    until: float = math.inf  # in seconds
    held: tuple[str, ...] = ()  # metrics that count these seconds


def decide(facts: Facts) -> Call | Wait:
    """Returns the next call: that of the player with the largest debt. Any player may choose evaluation."""
    players = list(zip(facts.rates, facts.players, strict=True))
    works = [_choose(facts, rate, progress) for rate, progress in players]
    debts = [rate.debt(progress) for rate, progress in players]
    if call := fairest(works, debts, lock_step=facts.lock_step):
        return call
    until = min((time for time in facts.deadlines if time > facts.now), default=math.inf)
    return Wait(until, _held(facts) if facts.is_idle else ())


def _choose(facts: Facts, rate: rate_limiting.RateState, progress: rate_limiting.Progress) -> rate_limiting.Work:
    if facts.only_evaluates:
        return rate_limiting.Work.EVALUATE if progress.can_evaluate else rate_limiting.Work.WAIT
    return rate.choose(progress, facts.now)


def fairest(works: Sequence[rate_limiting.Work], debts: Sequence[float], *, lock_step: bool) -> Call | None:
    """Returns the call of the player with the largest debt, the first of equals; None if all wait.

    Players whose own bands let them act now act together. In lock step they act only if all do: the others go first,
    and if one waits, all wait.
    """
    working = [number for number, work in enumerate(works) if work is not rate_limiting.Work.WAIT]
    if lock_step and not all(work is rate_limiting.Work.ACT for work in works):
        working = [number for number in working if works[number] is not rate_limiting.Work.ACT]
    if not working:
        return None
    first = max(working, key=lambda number: debts[number])
    if works[first] is not rate_limiting.Work.ACT:
        return Call(works[first], (first,))
    return Call(rate_limiting.Work.ACT, tuple(number for number in working if works[number] is rate_limiting.Work.ACT))


def _held(facts: Facts) -> tuple[str, ...]:
    """Returns the metrics that count seconds when the devices idle, including ready work that the pace holds back."""
    acting = not facts.only_evaluates and any(progress.can_act for progress in facts.players)
    updating = not facts.only_evaluates and any(progress.can_update for progress in facts.players)
    held = {"device_idle_seconds": True, "acting_held_seconds": acting, "updating_held_seconds": updating}
    return tuple(name for name, is_held in held.items() if is_held)
