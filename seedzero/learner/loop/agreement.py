"""The learner hosts of one run agree on one list of decisions, which every host carries out in the same order.

    host 1: ready for updates up to 12 ---+
    host 0: ready for updates up to 14 ---+--> DecisionTally, on host 0 --> UPDATE --> every host submits it
    host 0: a checkpoint is due ----------+                             --> SAVE   --> every host saves

A host carries a decision out after all earlier ones. So every host saves, ends and stops after the same update. An
update waits for the other hosts on the device, so it is submitted only if all of them will submit it, too. Hosts
announce all the updates that they owe ahead of time, and the announcements travel while the devices work.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

from seedzero.core import errors
from seedzero.learner.loop import rate_limiting, scheduler
from seedzero.monitoring.metrics import counts

Send: TypeAlias = Callable[[Mapping[str, object]], None]
"""Sends a message to host 0."""


class Kind(enum.Enum):
    """The kinds of decisions."""

    BEGIN = "begin"  # every host has built its networks
    UPDATE = "update"
    SAVE = "save"
    END = "end"  # a budget is spent, so there is one more evaluation
    SOLVED = "solved"  # an evaluation reached the requested return
    STOP = "stop"


_LENT = 8
"""Updates that a host announces at a time once its own share of a budget is done."""
_NONE = counts.Counts()
_FINAL = (Kind.SOLVED, Kind.STOP)
_GONE = -1
"""Stands for all hosts that have left the run, where others have a number."""


class Decision(NamedTuple):
    """What all hosts do after a certain number of updates."""

    kind: Kind
    num_updates: int = 0
    reason: str = ""  # of an end: the message about it
    steps: Mapping[int, counts.Counts] = {}  # of an update: every host's counters when it was ready, by index


class Readiness(NamedTuple):
    """What a host could do next if it were alone, and what it owes."""

    alone: scheduler.Call | scheduler.Wait  # at its own rate
    without_update: scheduler.Call | scheduler.Wait  # if it may not choose an update
    num_updates: int
    num_due: int = 0  # updates that its pace owes for the steps so far
    can_update: bool = True  # whether an update can be submitted now
    awaits_last: bool = False  # whether the next update waits for the end of the last one
    takes_turns: bool = False  # whether updates are slow


class DecisionTally:
    """Makes the decisions on host 0, without threads and clocks."""

    def __init__(self, num_hosts: int, max_env_steps: int = 0) -> None:
        """max_env_steps: training steps of all hosts that end the run; 0: no limit, or each host knows its share."""
        self._num_hosts, self._max_env_steps = num_hosts, max_env_steps
        self._built: dict[int, int] = {}  # by host: updates done in earlier processes
        self._resolved = ""
        self._ready: dict[int, tuple[int, counts.Counts]] = {}  # by host: its newest `ready`
        self._steps: dict[int, int] = {}  # by host, and of `_GONE`
        self._spent: set[int] = set()  # hosts that have finished their share of a budget
        self._num_updates = 0  # agreed on
        self._last: Kind | None = None  # the newest decision about the end of the run

    @property
    def has_begun(self) -> bool:
        """Whether all hosts have built their networks."""
        return len(self._built) == self._num_hosts

    def built(self, host: int, num_updates: int, resolved: str) -> list[Decision]:
        """Notes that a host has its networks, and the number of updates that earlier processes made.

        resolved: digest of its settings, including the values of its machine.
        """
        self._built[host] = num_updates
        self._resolved = self._resolved or resolved
        if resolved != self._resolved:
            raise errors.ProtocolError(
                f"the machine of host {host} implies other settings than another host's (compare their config.json); "
                "give these explicitly, and as many devices on each, by --training.num_devices"
            )
        if not self.has_begun:
            return []
        if len(set(self._built.values())) > 1:
            found = ", ".join(f"host {index}: {number}" for index, number in sorted(self._built.items()))
            raise errors.ProtocolError(f"the hosts begin after different numbers of updates ({found})")
        self._num_updates = num_updates
        return [Decision(Kind.BEGIN, num_updates)]

    def ready(self, host: int, until: int, steps: counts.Counts = _NONE) -> list[Decision]:
        """Notes that a host would submit all updates before a number, with its counters.

        Decides for the slowest host.
        """
        if until < self._num_updates:
            raise errors.ProtocolError(
                f"host {host} is ready for {until} updates, and {self._num_updates} are decided"
            )
        self._ready[host] = until, steps
        if len(self._ready) < self._num_hosts or self._last is not None:
            return []
        begin, self._num_updates = self._num_updates, min(number for number, _ in self._ready.values())
        found = {index: seen for index, (_, seen) in self._ready.items()}
        return [Decision(Kind.UPDATE, number, steps=found) for number in range(begin, self._num_updates)]

    def asked(self, kind: Kind, reason: str = "") -> list[Decision]:
        """Decides what a host asks for, unless it has been decided already or the run is over."""
        if kind in (Kind.BEGIN, Kind.UPDATE):
            raise errors.ProtocolError(f"no host decides about {kind.value}")
        if self._last in _FINAL or (self._last is Kind.END and kind not in _FINAL):
            return []
        if kind is not Kind.SAVE:
            self._last = kind
        return [Decision(kind, self._num_updates, reason)]

    def spent(self, host: int, reason: str) -> list[Decision]:
        """Notes that a host has finished its share of a budget; decides the end once all have."""
        self._spent.add(host)
        return self.asked(Kind.END, reason) if len(self._spent) == self._num_hosts else []

    def count_gone(self, num_steps: int) -> None:
        """Notes the training steps of hosts that left the run before it was resumed."""
        self._steps[_GONE] = num_steps

    def stepped(self, host: int, num_steps: int) -> list[Decision]:
        """Notes the training steps of a host so far; decides the end of their budget."""
        self._steps[host] = num_steps
        if 0 < self._max_env_steps <= sum(self._steps.values()):
            return self.asked(Kind.END, f"--max_env_steps={self._max_env_steps} reached")
        return []


class Agreed:
    """A host's view of the agreement. Other threads bring decisions, and the device loop's thread carries them out."""

    def __init__(self, index: int, num_hosts: int, send: Send) -> None:
        """send: sends a message to host 0, from any thread."""
        self.index, self.num_hosts = index, num_hosts
        self.others: Mapping[int, counts.Counts] = {}
        """The newest counters of the other hosts by index; in lock step, those of the last update's decision."""
        self.steps: Callable[[], counts.Counts] = counts.Counts
        """Returns this host's own counters."""
        self._send = send
        self._tell: Callable[[], None] = lambda: None
        self._decisions: collections.deque[Decision] = collections.deque()
        self._changed = threading.Condition()
        self._has_begun = False
        self._promised = 0  # updates that this host has announced
        self._updated_last = False
        self._is_spent = self._has_ended = False

    def follow(self, tell: Callable[[], None]) -> None:
        """Calls `tell` on another thread whenever there are new decisions."""
        self._tell = tell

    def decide(self, *decisions: Decision) -> None:
        """Any thread: takes the next decisions."""
        with self._changed:
            for decision in decisions:
                if decision.kind is Kind.BEGIN:
                    self._has_begun = True
                else:
                    self._decisions.append(decision)
            self._changed.notify_all()
        self._tell()

    def begin(self, num_updates: int, resolved: str) -> None:
        """Main thread: reports that this host has built its networks.

        Returns once all have (`DecisionTally.built`).
        """
        self._send({"built": num_updates, "resolved": resolved})
        with self._changed:
            self._changed.wait_for(lambda: self._has_begun)

    def ask(self, kind: Kind, reason: str = "") -> None:
        """Any thread: asks for a decision."""
        self._send({"ask": kind.value, "reason": reason})

    def spend(self, reason: str) -> None:
        """Reports once that this host has finished its share of a budget.

        The end, with its message, is decided when all have.
        """
        if not self._is_spent:
            self._is_spent = True
            self._send({"spent": reason})

    def lend(self, num_updates: int, max_updates: int) -> None:
        """Announces a few more updates than this host owes: other hosts may need them for the rest of their shares.

        max_updates: those of the whole run; 0: any number.
        """
        if not max_updates or num_updates < max_updates:
            self._promise(min(num_updates + _LENT, max_updates or num_updates + _LENT))

    @property
    def awaits_end(self) -> bool:
        """Whether this host has finished its share of a budget while the end is undecided: it only lends updates."""
        return self._is_spent and not self._has_ended and not self.has_update

    @property
    def has_update(self) -> bool:
        """Whether the next update is decided and nothing comes before it."""
        return bool(self._decisions) and self._decisions[0].kind is Kind.UPDATE

    def take_update(self) -> None:
        """Notes that the decided update is being submitted."""
        steps, self._updated_last = self._decisions.popleft().steps, True
        self.others = {index: found for index, found in steps.items() if index != self.index}

    def take_other(self) -> Decision | None:
        """Returns the next decision to carry out, or None if there is none or it is an update."""
        found = self._decisions.popleft() if self._decisions and not self.has_update else None
        self._has_ended = self._has_ended or (found is not None and found.kind is not Kind.SAVE)
        return found

    def next_call(self, ready: Readiness) -> scheduler.Call | scheduler.Wait:
        """Returns the next call of this host.

        The other hosts wait for a decided update on their devices, so all decided ones go first: then the hosts act
        after the same updates, at the same time. A host that waits for the others keeps acting as its pace allows
        without the update. If updates are slow, one other call may run between two of them, and one that waits at the
        end of an update runs before the next, so that a reply waits for at most one.
        """
        if ready.num_due:
            self._promise(ready.num_updates + ready.num_due)
        call = ready.without_update
        if not self.has_update and self._promised <= ready.num_updates:  # nothing is decided or announced
            if _is_update(ready.alone):
                self._promise(ready.num_updates + 1)
            else:
                call = ready.alone
        lets_pass = ready.takes_turns and self._updated_last and isinstance(call, scheduler.Call)
        if self.has_update and ready.can_update and not ready.awaits_last and not lets_pass:
            return scheduler.Call(rate_limiting.Work.UPDATE, (0,))
        if isinstance(call, scheduler.Call) and not ready.awaits_last:
            self._updated_last = False
        return call

    def _promise(self, until: int) -> None:
        if until > self._promised:
            self._promised = until
            self._send({"ready": until, "steps": dataclasses.asdict(self.steps())})


def _is_update(call: scheduler.Call | scheduler.Wait) -> bool:
    return isinstance(call, scheduler.Call) and call.kind is rate_limiting.Work.UPDATE


class Alone:
    """Keeps the parameters of all hosts equal (`learner/build.py`); a host without others has nothing to compare."""

    def after_update(self) -> None:
        """Device loop's thread, after each update of all hosts."""

    def now(self) -> None:
        """Device loop's thread: compares and aligns at once."""


ALONE = Alone()


class OtherHosts:
    """The other hosts as one host sees them; with `agreed` None it is alone."""

    def __init__(self, agreed: Agreed | None = None) -> None:
        self._agreed = agreed
        self._gone = counts.Counts()

    def counts(self) -> dict[str, counts.Counts]:
        """Any thread: returns their counters by index, and the sum over all hosts that have left the run."""
        now = {} if self._agreed is None else {str(index): found for index, found in self._agreed.others.items()}
        return now if self._gone == counts.Counts() else {**now, counts.GONE: self._gone}

    def to_json(self) -> dict[str, Any]:
        """Returns the part of a checkpoint's counters; {} without other hosts."""
        found = {name: dataclasses.asdict(each) for name, each in self.counts().items()}
        return {counts.OTHER_HOSTS: found} if found else {}

    def restore(self, saved: Mapping[str, Any], parts: Collection[int] = ()) -> None:
        """Restores a checkpoint's counters. parts: the hosts that resume from their own parts of it."""
        found = {name: counts.Counts(**each) for name, each in saved.get(counts.OTHER_HOSTS, {}).items()}
        if self._agreed is not None:
            self._agreed.others = {index: found.pop(str(index)) for index in parts if str(index) in found}
        self._gone = counts.total(list(found.values()))
