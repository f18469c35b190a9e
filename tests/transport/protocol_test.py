"""The protocol under faults: promises that hold at every moment, and that everybody is answered in the end.

A seed chooses the events, and replays them alone. Planted defects show that the promises are looked at.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import wire_world

from seedzero.learner.loop import inboxes, rosters, step_accounting
from seedzero.transport import client, messages, sessions, streams

Event = Callable[..., None]
EVENTS: list[tuple[Event, dict[str, Sequence[Any]]]] = []
"""All events, with the values of their arguments."""
INDEX, FEW, MANY, EITHER = range(31), range(4), range(1, 5), (False, True)
SECONDS = (0.1, 1.0, 4.0, 9.0, 16.0, 61.0)


def event(**values: Sequence[Any]) -> Callable[[Event], Event]:
    """Makes a method one of EVENTS."""

    def decorate(method: Event) -> Event:
        EVENTS.append((method, values))
        return method

    return decorate


class Protocol:
    """Events between three workers and a learner, in any order."""

    def __init__(self) -> None:
        self._entered = contextlib.ExitStack()
        self.world = self._entered.enter_context(wire_world.virtual_time())

    def _wire(self, index: int) -> wire_world.Wire | None:
        return self.world.wires[index % len(self.world.wires)] if self.world.wires else None

    def _worker(self, index: int) -> wire_world.Process:
        return self.world.workers[index % wire_world.NUM_WORKERS]

    @event(index=INDEX)
    def connect(self, index: int) -> None:
        self.world.connect(self._worker(index))

    @event(index=INDEX, number=MANY)
    def read_up(self, index: int, number: int) -> None:
        for _ in range(number):
            if (wire := self._wire(index)) and wire.reads_up and wire.up:
                self.world.read_up(wire)

    @event(index=INDEX, number=MANY)
    def read_down(self, index: int, number: int) -> None:
        for _ in range(number):
            wire = self._wire(index)
            if wire and self.world.can_read_down(wire):
                self.world.read_down(wire)

    @event(index=INDEX)
    def work(self, index: int) -> None:
        worker = self._worker(index)
        if worker.is_dead:
            self.world.kill(index % wire_world.NUM_WORKERS)
        while worker.is_awake and worker.events:
            worker.work()

    @event(takes=EITHER, place=INDEX)
    def act(self, takes: bool, place: int) -> None:
        if takes:
            self.world.loop.take()
        if self.world.loop.acting:
            self.world.answer(place % len(self.world.loop.acting))

    @event(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    @event(turns=FEW)
    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.world._turn()

    @event(index=INDEX)
    def kill(self, index: int) -> None:
        self.world.kill(index % wire_world.NUM_WORKERS)

    @event(index=INDEX, seconds=SECONDS)
    def freeze(self, index: int, seconds: float) -> None:
        self.world.freeze(self._worker(index), seconds)

    @event(seconds=SECONDS)
    def stand_still(self, seconds: float) -> None:
        self.world.stand_still(seconds)

    @event(index=INDEX, lost=FEW, sides=(1, 2, 3))
    def cut(self, index: int, lost: int, sides: int) -> None:
        if wire := self._wire(index):
            self.world.cut(wire, lost, tells_worker=bool(sides & 1), tells_learner=bool(sides & 2))

    @event(index=INDEX, swaps=EITHER)
    def garble(self, index: int, swaps: bool) -> None:
        if wire := self._wire(index):
            (self.world.swap if swaps else self.world.repeat)(wire)

    def teardown(self) -> None:
        with self._entered:
            self.world.settle()


def _chaos(seed: int) -> None:
    """Plays random events."""
    chance, machine = random.Random(seed), Protocol()
    try:
        for _ in range(80):
            method, values = chance.choice(EVENTS)
            method(machine, **{name: chance.choice(options) for name, options in values.items()})
            machine.world.check()
    except wire_world.BrokenPromise:
        machine._entered.close()
        raise
    machine.teardown()


@pytest.mark.thorough
def test_no_step_is_lost_doubled_or_spliced_and_all_workers_are_answered() -> None:
    for seed in range(300):
        try:
            _chaos(seed)
        except wire_world.BrokenPromise as broken:
            broken.add_note(f"_chaos({seed}) replays it")
            raise


Plant = Callable[[pytest.MonkeyPatch], None]


def _replace(owner: Any, name: str, change: Callable[[Any], Callable[..., Any]]) -> Plant:
    return lambda patch: patch.setattr(owner, name, change(getattr(owner, name)))


def _nothing(original: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: None


DEFECTS: dict[str, Plant] = {
    "a step that is being answered counts again": _replace(
        sessions.Group,
        "look_up",
        lambda original: (
            lambda self, group, sequence: (
                sessions.Repeat.NEW
                if self.pending and sequence == self.next_sequence - 1
                else original(self, group, sequence)
            )
        ),
    ),
    "a step that was answered counts again": _replace(
        sessions.Group,
        "look_up",
        lambda original: (
            lambda self, group, sequence: (
                sessions.Repeat.NEW if sequence == self.next_sequence - 1 else original(self, group, sequence)
            )
        ),
    ),
    "the answer to a repeated step is not sent again": _replace(
        sessions.Group,
        "look_up",
        lambda original: (
            lambda self, group, sequence: (
                sessions.Repeat.PENDING if sequence == self.next_sequence - 1 else original(self, group, sequence)
            )
        ),
    ),
    "steps without an answer are not sent on a new connection": _replace(
        client.WorkerSide,
        "_on_start",
        lambda original: lambda self, stream, fields: setattr(stream, "phase", stream.phase.after("start")),
    ),
    "leases never end": _replace(streams.LearnerSide, "expire", _nothing),
    "slots of a session that ended stay taken": _replace(
        rosters.Roster, "remove", lambda original: lambda self, session_id: self._sessions.pop(session_id, None)
    ),
    "slots are given out twice": _replace(
        rosters, "_emptiest_first", lambda original: lambda layout, free, number: list(range(number))
    ),
    "messages of a session that ended stay in the inbox": _replace(inboxes.Inbox, "drop_session", _nothing),
    "pending steps of lost workers are forgotten": _replace(
        step_accounting.Ledger,
        "discard",
        lambda original: lambda self, slots, reason: self._pending.__setitem__(slots, False),
    ),
    "a worker goes on with its environments in a new session": _replace(
        wire_world.Process, "work", lambda original: lambda self: (original(self), setattr(self, "num_resets", 1))
    ),
    "a worker keeps its session after a Restart": _replace(
        client.WorkerSide,
        "_on_restart",
        lambda original: lambda self, reason, stream=None: self.deliver(messages.Restart(reason)),
    ),
    "a session's end does not reach the learner": _replace(
        streams.LearnerSide,
        "_end_and_restart",
        lambda original: lambda self, session, reason, why: self.restart(session.assignment.session_id, why),
    ),
    "a step gets another number on a new connection": _replace(
        client.WorkerSide,
        "attach",
        lambda original: (
            lambda self, stream: (
                self._session
                and self._session.unanswered.update({0: (99, self._session.unanswered.get(0, (0, None))[1])}),
                original(self, stream),
            )
        ),
    ),
}
"""Defects by name, as they could be written."""


@pytest.mark.thorough
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _chaos(0)
    DEFECTS[defect](monkeypatch)
    with pytest.raises(wire_world.BrokenPromise):
        for seed in range(200):
            _chaos(seed)
