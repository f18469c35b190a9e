"""Workers and a learner on a virtual clock, with an unreliable network between them; for `protocol_test.py`.

    Process -- connection.WorkerSide -- Wire -- streams.Streams -- reception.Reception -- roster, inbox -- Loop, ledger

Both sides are the program's own. Stand-ins are sockets (`Wire`), worker threads (`Process`), devices (`Loop`).
A wire is a TCP connection: it keeps the order, and when it breaks, either side may not have read the newest messages
and may learn of it late. Nothing here waits for real time.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import types as python_types
import zlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
from grpc import aio

from seedzero.config import configs, sections
from seedzero.core import errors, types
from seedzero.device import batches
from seedzero.learner import learner_parts
from seedzero.learner.loop import rosters, step_accounting
from seedzero.transport import client, codec, compression, grpc_status, messages, sessions, streams

SPEC = types.EnvSpec((3,), "float32", 4)
NUM_GROUPS, SIZE = 2, 2
NUM_WORKERS = 3
EPISODE = 5
"""Observations of an episode."""
LAYOUT = batches.Layout(num_shards=1, num_train=NUM_WORKERS * NUM_GROUPS * SIZE, num_evaluate=0)
SETTINGS = sections.TransportConfig(step_seconds=60.0)
PING_SECONDS = 2 * SETTINGS.beat_seconds


class BrokenPromise(AssertionError):
    """The protocol did something that it promises never to do."""


def promised(holds: object, text: str) -> None:
    """Raises BrokenPromise unless a promise holds."""
    if not holds:
        raise BrokenPromise(text)


def action_for(session_id: str, group: int, sequence: int) -> int:
    """Returns the only right answer to a step."""
    return zlib.crc32(f"{session_id} {group} {sequence}".encode()) % SPEC.num_actions


class Wire:
    """A connection. up: written by the worker, unread by the learner; what the learner wrote waits in its stream."""

    def __init__(self, worker: Process, stream: streams.Stream) -> None:
        self.worker, self.stream = worker, stream
        self.phase = sessions.NEW  # as the worker sees it: this is its `WorkerStream` too
        self.packer, stream.unpacker = compression.Packer(), compression.Unpacker()
        self.packer.is_on = True
        self.up: collections.deque[bytes | None] = collections.deque()
        self.heartbeat_seconds = float("inf")
        self.beat: Callable[[], bytes] = lambda: codec.HEARTBEAT
        self.next_beat = float("inf")
        self.reads_down = self.reads_up = True
        self.pinged_at = float("inf")  # time at which pings tell both sides that the connection is broken

    @property
    def is_broken(self) -> bool:
        return self.pinged_at < float("inf")

    def put(self, data: bytes | None) -> None:
        """The worker writes."""
        if not self.is_broken:
            self.up.append(data)

    def beat_every(self, seconds: float, beat: Callable[[], bytes]) -> None:
        """The worker's heartbeats begin."""
        self.beat = beat
        self.heartbeat_seconds, self.next_beat = seconds, self.worker.world.now + seconds


class Process:
    """A worker's process: its program, and its side of the protocol. It asks as `client.Client` does."""

    def __init__(self, world: World, name: str, number: int) -> None:
        self.world, self.name, self.number = world, name, number
        self.events: collections.deque[client.Event] = collections.deque()
        at = python_types.SimpleNamespace(present=python_types.SimpleNamespace(address="here"))
        hello = messages.Hello(name, "", (types.Role.TRAIN,), ("catch",), NUM_GROUPS * SIZE)
        self.side = client.WorkerSide(cast(Any, at), hello, self.events.append, SETTINGS.lease_seconds)
        self.wire: Wire | None = None
        self.frozen_until = self.connects_at = world.now
        self.num_resets = 0
        self.session_id = ""
        self.sequence: dict[int, int] = {}
        self.num_answers = 0
        self.is_dead = self.is_garbled = False
        self.side.join()

    @property
    def is_awake(self) -> bool:
        return not self.is_dead and self.world.now >= self.frozen_until

    def work(self) -> None:
        """Handles the next event, as the worker's thread does."""
        event = self.events.popleft()
        match event:
            case types.Assignment():
                self.num_resets += 1
                self.session_id, self.sequence = event.session_id, dict.fromkeys(range(event.num_groups), 0)
                self.side.start(self.session_id, SPEC)
                for group in self.sequence:
                    self._show(group)
            case messages.Actions():
                promised(self.session_id, f"{self.name} got actions without a session")
                wanted = action_for(self.session_id, event.group, self.sequence[event.group])
                promised((event.actions == wanted).all(), f"{self.name} got the answer to another step")
                self.sequence[event.group] += 1
                self.num_answers += 1
                self._show(event.group)
            case messages.Restart():
                self.session_id = ""
                self.side.join()
            case messages.End():
                raise BrokenPromise("a learner that goes on said End")
            case _:
                promised(self.is_garbled, f"{self.name} was refused: {event}")
                self.is_dead = True  # its supervisor starts another process

    def _show(self, group: int) -> None:
        """Sends the newest observation: the process, its reset, the group, and the number since the reset."""
        number = self.sequence[group]
        place = number % EPISODE
        step = types.EnvStep(
            observation=np.tile(
                np.array([self.number * 1000 + self.num_resets, group, number], np.float32), (SIZE, 1)
            ),
            reward=np.full(SIZE, float(place > 0), np.float32),
            terminated=np.full(SIZE, place == EPISODE - 1),
            truncated=np.zeros(SIZE, bool),
        )
        self.side.submit(self.session_id, group, number, step)


@dataclasses.dataclass
class Loop:
    """The device loop: takes messages, books them, and answers later. `seen`: of each session and group."""

    reception: learner_parts.Reception
    accounting: step_accounting.Ledger = dataclasses.field(
        default_factory=lambda: step_accounting.Ledger(LAYOUT.num_train)
    )
    acting: list[messages.StepRequest] = dataclasses.field(default_factory=list)
    seen: dict[tuple[str, int], tuple[float, int]] = dataclasses.field(default_factory=dict)

    def take(self) -> None:
        """One turn: notes sessions that ended, and takes waiting messages."""
        for slots, reason in self.reception.inbox.take_ended():
            self.accounting.discard(slots, reason)
        taken = self.reception.inbox.take(types.Role.TRAIN, LAYOUT, LAYOUT.num_train, lambda slots: {0: slots})
        for request, slots, *_ in taken:
            self._check(request)
            self.accounting.record(slots, request.first, request.step.final)
            self.acting.append(request)

    def _check(self, request: messages.StepRequest) -> None:
        """Each step of a living session comes once, in order, from the same reset."""
        promised(self.reception.roster.get(request.session_id), f"a step of {request.session_id} came after its end")
        reset, group, number = request.step.observation[0].tolist()
        place = (request.session_id, request.group)
        before, count = self.seen.get(place, (reset, 0))
        promised(before == reset, f"session {request.session_id} holds steps of the resets {before} and {reset}")
        promised(
            group == request.group and number == count == request.sequence, f"{place}: step {number} is not {count}"
        )
        self.seen[place] = reset, count + 1


class World:
    """A learner, workers, wires and a clock. Methods are what may happen next; `settle` lets all come to rest."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._num_processes = 0
        config = configs.override(
            configs.Config(), {"env.id": "catch", "worker.envs_per_group": SIZE, "worker.num_groups": NUM_GROUPS}
        )
        shown = python_types.SimpleNamespace(progress=python_types.SimpleNamespace(show=lambda spec: None))
        self.roster = rosters.Roster(config, LAYOUT, LAYOUT.num_train)
        self.reception = learner_parts.Reception(
            config,
            self.roster,
            cast(Any, shown),
            lambda line: None,
            lambda: None,
            lambda name: None,
            lambda spec: None,
        )
        self.reception.show(SPEC)
        self.side = streams.LearnerSide(self.reception, SETTINGS, lambda: self.now)
        self.streams = streams.Streams(self.side)
        self.loop = Loop(self.reception)
        self.wires: list[Wire] = []
        self.workers = [self._process(f"worker-{index}") for index in range(NUM_WORKERS)]

    def _process(self, name: str) -> Process:
        self._num_processes += 1
        return Process(self, name, self._num_processes)

    # --- the usual

    def connect(self, worker: Process) -> None:
        """A worker without a connection opens one."""
        if worker.is_awake and worker.wire is None and worker.side.wanted.is_set() and self.now >= worker.connects_at:
            worker.wire = wire = Wire(worker, self.streams.begin(cast(Any, None)))
            self.wires.append(wire)
            worker.side.attach(cast(Any, wire))

    def read_up(self, wire: Wire) -> None:
        """The learner reads a message of a worker; what fails ends the stream, as `Streams._reading_ended` does."""
        data = wire.up.popleft()
        try:
            goes_on, failure = self.streams.receive(wire.stream, data), None
        except errors.Error as error:
            goes_on, failure = False, grpc_status.failure_of(error)
        if not goes_on:
            self._end_reading(wire, failure)

    def _end_reading(self, wire: Wire, failure: grpc_status.Failure | None = None) -> None:
        wire.reads_up = False
        wire.up.clear()
        wire.stream.close(failure)
        if failure and wire.stream.session:
            self.side.end(wire.stream.session, messages.FAILED + failure.details)
        self.streams._forget(wire.stream)
        self._drop(wire)

    def can_read_down(self, wire: Wire) -> bool:
        """Returns whether a message of the learner can reach a worker."""
        is_open = wire.reads_down and not wire.is_broken
        return is_open and wire.worker.is_awake and bool(wire.stream._outbox.waiting)

    def read_down(self, wire: Wire) -> None:
        """A worker reads a message of the learner, or the stream's end."""
        worker, data = wire.worker, wire.stream._outbox.waiting.popleft()
        if data is None:
            self._lose_down(wire)
            kind = grpc_status.error_of(cast(Any, _Ended(wire.stream.failure))) if wire.stream.failure else None
            if kind is not None:
                worker.events.append(kind)
            return
        try:
            worker.side.receive(cast(Any, wire), codec.decode_learner(data))
        except errors.Error as error:
            self._lose_down(wire)
            worker.events.append(error)

    def _lose_down(self, wire: Wire) -> None:
        """The worker's side of a connection is over."""
        wire.reads_down = False
        if wire.worker.wire is wire:
            wire.worker.wire = None
            wire.worker.side.detach()
            wire.worker.connects_at = self.now + 0.1
        self._drop(wire)

    def _drop(self, wire: Wire) -> None:
        if not wire.reads_up and not wire.reads_down and wire in self.wires:
            self.wires.remove(wire)

    def answer(self, place: int) -> None:
        """The devices have the actions of a step."""
        request = self.loop.acting.pop(place)
        action = np.full(SIZE, action_for(request.session_id, request.group, request.sequence))
        data = codec.encode_actions(request.group, request.sequence, action, 0)
        self.side.deliver(request.session_id, request.group, request.sequence, data)

    def wait(self, seconds: float) -> None:
        """Time passes: heartbeats go out, deadlines are looked at, and pings find dead connections."""
        self.now += seconds
        for wire in list(self.wires):
            if self.now >= wire.pinged_at:
                self._tell(wire, tells_worker=True, tells_learner=True)
            if wire.worker.is_awake and wire.worker.wire is wire and self.now >= wire.next_beat:
                wire.next_beat = self.now + wire.heartbeat_seconds
                if not wire.up:
                    wire.put(wire.beat())
        self.streams.watch_leases()

    # --- faults

    def kill(self, index: int) -> None:
        """A process ends without a word; the network tells the learner at once, and its supervisor starts another."""
        worker = self.workers[index]
        worker.is_dead = True
        if worker.wire is not None:
            wire, worker.wire = worker.wire, None
            wire.reads_down = False
            wire.up.append(None)
        self.workers[index] = self._process(worker.name)

    def freeze(self, worker: Process, seconds: float) -> None:
        """A process stands still (SIGSTOP); the learner's pings end its connection."""
        worker.frozen_until = max(worker.frozen_until, self.now + seconds)
        if seconds > PING_SECONDS and worker.wire is not None:
            worker.wire.up.append(None)

    def stand_still(self, seconds: float) -> None:
        """The learner's process stands still: messages wait unread, and its clock jumps."""
        self.now += seconds
        self.streams.watch_leases()

    def cut(self, wire: Wire, lost_up: int, *, tells_worker: bool, tells_learner: bool) -> None:
        """A connection breaks: the learner never reads the newest messages, and either side may learn of it later."""
        for _ in range(min(lost_up, len(wire.up))):
            wire.up.pop()
        wire.pinged_at = min(wire.pinged_at, self.now + PING_SECONDS)
        self._tell(wire, tells_worker=tells_worker, tells_learner=tells_learner)

    def _tell(self, wire: Wire, *, tells_worker: bool, tells_learner: bool) -> None:
        if tells_worker and wire.reads_down:
            self._lose_down(wire)
        if tells_learner and wire.reads_up:
            self._end_reading(wire)

    def repeat(self, wire: Wire) -> None:
        """A worker writes a message twice, as no worker of ours does."""
        if wire.up and wire.up[-1] is not None:
            wire.up.append(wire.up[-1])
            wire.worker.is_garbled = True

    def swap(self, wire: Wire) -> None:
        """A worker's two newest messages change places, as on no wire."""
        if len(wire.up) > 1 and None not in wire.up:
            wire.up[-1], wire.up[-2] = wire.up[-2], wire.up[-1]
            wire.worker.is_garbled = True

    # --- promises

    def check(self) -> None:
        """Checks what must hold at every moment."""
        found = self.loop.accounting.counts
        lost = sum(found.discarded.values())
        promised(found.acknowledged == found.stored + found.pending + lost, f"the ledger lost count: {found}")
        promised(found.pending == np.count_nonzero(self.loop.accounting._pending), "a pending step belongs to no slot")
        owned = [slot for session in self.roster._sessions.values() for slot in session.all_slots.tolist()]
        promised(len(owned) == len(set(owned)), "a slot has two owners")
        promised(len(owned) + self.roster.num_free() == LAYOUT.num_train, "a slot has no owner and is not free")
        waiting = self.reception.inbox.waiting(types.Role.TRAIN)
        slots = [slot for message in waiting for slot in message.slots.tolist()]
        promised(len(slots) == len(set(slots)), "two messages of a group wait")
        promised(self.roster._sessions.keys() == self.side.sessions.keys(), "roster and streams know other sessions")

    def settle(self) -> None:
        """Without further faults every worker is answered again, as soon as lost sessions have expired."""
        for worker in self.workers:
            worker.frozen_until = self.now
        self._rest(2 * SETTINGS.lease_seconds, 3.0)
        before = [worker.num_answers for worker in self.workers]
        self._rest(4.0, 1.0)
        for worker, count in zip(self.workers, before, strict=True):
            promised(worker.num_answers >= count + 2 * NUM_GROUPS, f"{worker.name} is not answered any more")

    def _rest(self, seconds: float, tick: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.wait(tick)
            self._turn()
            self.check()

    def _turn(self) -> None:
        for index, worker in enumerate(self.workers):
            if worker.is_dead:
                self.kill(index)
            self.connect(self.workers[index])
        for wire in list(self.wires):
            while wire.reads_up and wire.up:
                self.read_up(wire)
        self.loop.take()
        while self.loop.acting:
            self.answer(0)
        for wire in list(self.wires):
            while self.can_read_down(wire):
                self.read_down(wire)
        for worker in self.workers:
            while worker.is_awake and worker.events:
                worker.work()


class _Ended(Exception):
    """A stream's end as gRPC shows it to a worker."""

    def __init__(self, failure: grpc_status.Failure) -> None:
        super().__init__(failure.details)
        self._failure = failure

    def code(self) -> Any:
        return self._failure.code

    def details(self) -> str:
        return self._failure.details

    def trailing_metadata(self) -> aio.Metadata:
        return aio.Metadata((grpc_status.ERROR_KEY, self._failure.kind))


@contextlib.contextmanager
def virtual_time() -> Iterator[World]:
    """Yields a world whose event loop tells the world's time; nothing of the loop runs but what the world calls."""
    with asyncio.Runner() as runner:
        entered = contextlib.ExitStack()
        loop = runner.get_loop()
        asyncio.events._set_running_loop(loop)
        entered.callback(asyncio.events._set_running_loop, None)
        with entered:
            world = World()
            loop.time = lambda: world.now  # type: ignore[method-assign]
            loop.call_later = functools.partial(lambda *_, **__: None)  # type: ignore[method-assign, assignment]
            world.streams.watch_leases()
            yield world
        del loop.time, loop.call_later  # type: ignore[method-assign]
