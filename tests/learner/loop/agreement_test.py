"""The decisions of several hosts: by count, in one order, and carried out in that order."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Mapping
from typing import TypeAlias

import loop_world
import pytest

from seedzero.core import errors
from seedzero.learner.loop import agreement, rate_limiting, scheduler
from seedzero.monitoring.metrics import counts

UPDATE, WAIT = scheduler.Call(rate_limiting.Work.UPDATE, (0,)), scheduler.Wait()
ACT = scheduler.Call(rate_limiting.Work.ACT, (0,))
Kind = agreement.Kind


def _begun(num_hosts: int = 2, num_updates: int = 0, **budget: int) -> agreement.DecisionTally:
    tally = agreement.DecisionTally(num_hosts, **budget)
    *rest, last = [tally.built(host, num_updates, "same") for host in range(num_hosts)]
    assert rest == [[]] * (num_hosts - 1) and last == [agreement.Decision(Kind.BEGIN, num_updates)]
    return tally


def test_the_last_host_that_is_ready_decides_an_update() -> None:
    tally = _begun(3, 7)
    assert tally.ready(2, 8) == tally.ready(0, 8) == []
    (update,) = tally.ready(1, 8, counts.Counts(stored=3))
    assert update[:2] == (Kind.UPDATE, 7) and update.steps[1].stored == 3 and len(update.steps) == 3
    assert tally.ready(0, 9) == []


def test_as_many_updates_are_decided_as_all_hosts_are_ready_for() -> None:
    tally = _begun()
    tally.ready(0, 5)
    assert [decision.num_updates for decision in tally.ready(1, 3)] == [0, 1, 2]
    assert tally.ready(0, 6) == []
    assert [decision.num_updates for decision in tally.ready(1, 9)] == [3, 4, 5]


def test_a_host_that_asks_twice_is_ready_once() -> None:
    tally = _begun()
    assert tally.ready(0, 1) == tally.ready(0, 1) == []


def _built(*hosts: tuple[int, str]) -> None:
    tally = agreement.DecisionTally(2)
    for host, (num_updates, resolved) in enumerate(hosts):
        tally.built(host, num_updates, resolved)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda: _begun(num_updates=7).ready(1, 5), "host 1 is ready for 5 updates, and 7 are decided"),
        (lambda: _built((40, "same"), (20, "same")), "different numbers of updates"),
        (lambda: _built((0, "eight devices"), (0, "four devices")), "host 1 implies other settings"),
        (lambda: _begun().asked(Kind.BEGIN), "begin"),
        (lambda: _begun().asked(Kind.UPDATE), "update"),
    ],
)
def test_what_no_host_says_is_refused(wrong: Callable[[], object], match: str) -> None:
    with pytest.raises(errors.ProtocolError, match=match):
        wrong()


def test_a_save_comes_after_the_updates_decided_before() -> None:
    tally = _begun()
    tally.ready(0, 1)
    tally.ready(1, 1)
    assert tally.asked(Kind.SAVE) == [agreement.Decision(Kind.SAVE, 1)]


def test_a_run_ends_once_and_has_no_updates_then() -> None:
    tally = _begun()
    assert tally.asked(Kind.END, "spent") == [agreement.Decision(Kind.END, 0, "spent")]
    assert tally.asked(Kind.END, "spent") == tally.asked(Kind.SAVE) == []
    tally.ready(0, 1)
    assert tally.ready(1, 1) == []
    assert tally.asked(Kind.STOP, "interrupted") == [agreement.Decision(Kind.STOP, 0, "interrupted")]
    assert tally.asked(Kind.STOP, "interrupted") == tally.asked(Kind.SOLVED) == []


def test_steps_of_all_hosts_spend_a_budget() -> None:
    tally = _begun(max_env_steps=100)
    assert tally.stepped(0, 60) == tally.stepped(1, 39) == []
    (ended,) = tally.stepped(1, 40)
    assert ended.kind is Kind.END and "--max_env_steps=100" in ended.reason
    assert tally.stepped(0, 99) == []
    fewer = _begun(max_env_steps=100)
    fewer.count_gone(30)  # by hosts that left the run
    assert fewer.stepped(0, 40) == fewer.stepped(1, 29) == []
    assert [decision.kind for decision in fewer.stepped(1, 30)] == [Kind.END]


def test_the_end_is_decided_once_all_hosts_have_done_their_share() -> None:
    tally = _begun()
    assert tally.spent(1, "spent") == tally.spent(1, "spent") == []
    assert [decision.kind for decision in tally.asked(Kind.SAVE)] == [Kind.SAVE]
    assert tally.spent(0, "spent") == [agreement.Decision(Kind.END, 0, "spent")]
    assert tally.spent(0, "spent") == tally.asked(Kind.SAVE) == []


def test_a_host_that_has_done_its_share_says_so_once_and_waits_for_the_end() -> None:
    sent: list[Mapping[str, object]] = []
    host = agreement.Agreed(1, 2, sent.append)
    for _ in range(2):
        host.spend("spent")
    assert sent == [{"spent": "spent"}] and host.awaits_end
    for kind in (Kind.SAVE, Kind.UPDATE, Kind.END):
        host.decide(agreement.Decision(kind))
    assert host.take_other() is not None and not host.awaits_end  # all hosts wait for an update that is decided
    host.take_update()
    assert host.awaits_end and host.take_other() == agreement.Decision(Kind.END) and not host.awaits_end


def test_a_host_that_has_done_its_share_lends_updates_to_the_others() -> None:
    sent: list[Mapping[str, object]] = []
    host = agreement.Agreed(0, 2, sent.append)
    for num_updates, max_updates in ((5, 0), (5, 0), (6, 10), (10, 10)):
        host.lend(num_updates, max_updates)
    assert [message["ready"] for message in sent] == [13]
    host.lend(9, 15)
    assert [message["ready"] for message in sent] == [13, 15]  # never more than the run has


class Hosts:
    """Hosts with a tally, in one thread; messages to host 0 wait in `mail` until they are delivered."""

    def __init__(self, num_hosts: int) -> None:
        self.tally = _begun(num_hosts)
        self.mail: list[tuple[int, Mapping[str, object]]] = []
        self.hosts = [agreement.Agreed(index, num_hosts, self._sender(index)) for index in range(num_hosts)]
        self.log: list[list[str]] = [[] for _ in range(num_hosts)]  # of each host: what it has carried out
        self.num_updates = [0] * num_hosts

    def _sender(self, index: int) -> agreement.Send:
        return lambda message: self.mail.append((index, message))

    def deliver(self) -> None:
        index, message = self.mail.pop(0)
        if "ready" in message:
            decisions = self.tally.ready(index, int(str(message["ready"])))
        else:
            decisions = self.tally.asked(Kind(message["ask"]), str(message["reason"]))
        for decision, host in itertools.product(decisions, self.hosts):
            host.decide(decision)

    def turn(self, index: int, alone: scheduler.Call | scheduler.Wait, *, num_due: int, can_update: bool) -> None:
        host = self.hosts[index]
        while (decision := host.take_other()) is not None:
            self.log[index].append(f"{decision.kind.value} after {self.num_updates[index]}")
        without_update = WAIT if alone is UPDATE else alone
        call = host.next_call(
            agreement.Readiness(alone, without_update, self.num_updates[index], num_due=num_due, can_update=can_update)
        )
        if call == UPDATE:
            host.take_update()
            self.num_updates[index] += 1
            self.log[index].append(f"update {self.num_updates[index]}")


@pytest.mark.parametrize("seed", range(20))
def test_all_hosts_do_the_same_in_the_same_order(seed: int) -> None:
    chance, hosts = random.Random(seed), Hosts(3)
    for _ in range(2000):
        if hosts.mail and chance.random() < 0.4:
            hosts.deliver()
        elif chance.random() < 0.02:
            hosts.hosts[0].ask(Kind.SAVE)
        else:
            call, num_due = chance.choice([UPDATE, ACT, WAIT]), chance.choice([0, 0, 3])
            hosts.turn(chance.randrange(3), call, num_due=num_due, can_update=chance.random() < 0.7)
    assert min(hosts.num_updates) > 50 and max(hosts.num_updates) <= hosts.tally._num_updates
    longest = max(hosts.log, key=len)
    assert any("save" in line for line in longest)
    assert all(log == longest[: len(log)] for log in hosts.log)


def test_a_host_that_waits_for_others_goes_on_acting() -> None:
    hosts = Hosts(2)
    host = hosts.hosts[0]
    for _ in range(2):
        assert host.next_call(agreement.Readiness(UPDATE, ACT, 0)) == ACT
    assert [(index, message["ready"]) for index, message in hosts.mail] == [(0, 1)]


def test_a_host_promises_what_it_owes_and_more_as_that_grows() -> None:
    hosts = Hosts(2)
    for num_updates, num_due in ((0, 3), (1, 2), (1, 4), (2, 0)):
        hosts.hosts[0].next_call(agreement.Readiness(ACT, ACT, num_updates, num_due=num_due))
    assert [message["ready"] for _, message in hosts.mail] == [3, 5]


@pytest.fixture
def turn() -> Callable[..., scheduler.Call | scheduler.Wait]:
    """A host that has three decided updates: (can_act, and others of `Readiness`) -> its next call, submitted."""
    host = Hosts(2).hosts[0]
    for _ in range(3):
        host.decide(agreement.Decision(Kind.UPDATE))

    def take(*, can_act: bool = True, **given: bool) -> scheduler.Call | scheduler.Wait:
        alone = ACT if can_act else WAIT
        call = host.next_call(agreement.Readiness(alone, alone, 0, **{"takes_turns": True, **given}))
        if call == UPDATE:
            host.take_update()
        return call

    return take


Turn: TypeAlias = Callable[..., scheduler.Call | scheduler.Wait]


def test_all_decided_updates_go_before_acting_so_that_hosts_act_at_the_same_time(turn: Turn) -> None:
    assert [turn(takes_turns=False) for _ in range(4)] == [UPDATE, UPDATE, UPDATE, ACT]


def test_a_call_goes_between_two_decided_updates_that_cannot_be_submitted_at_once(turn: Turn) -> None:
    given = [turn(takes_turns=False, can_update=can_update) for can_update in (True, False, True)]
    assert given == [UPDATE, ACT, UPDATE]


def test_a_decided_slow_update_goes_before_acting_and_then_they_take_turns(turn: Turn) -> None:
    assert [turn(), turn(), turn(can_act=False)] == [UPDATE, ACT, UPDATE]
    assert [turn(can_act=False, can_update=False), turn(can_update=False)] == [WAIT, ACT]
    assert [turn(), turn(), turn()] == [UPDATE, ACT, ACT]


def test_a_call_that_waits_at_the_end_of_a_slow_update_goes_before_the_next(turn: Turn) -> None:
    assert turn() == UPDATE
    assert [turn(awaits_last=True), turn(awaits_last=True, can_act=False)] == [ACT, WAIT]
    assert [turn(), turn()] == [ACT, UPDATE]
    assert [turn(awaits_last=True, can_act=False), turn(can_act=False)] == [WAIT, UPDATE]


def test_begin_waits_for_all_hosts() -> None:
    sent: list[Mapping[str, object]] = []
    host, told = agreement.Agreed(1, 2, sent.append), threading.Event()
    host.follow(told.set)
    thread = threading.Thread(target=host.begin, args=(3, "same"))
    thread.start()
    host.decide(agreement.Decision(Kind.BEGIN, 3))
    thread.join(60)
    assert not thread.is_alive() and told.is_set() and sent == [{"built": 3, "resolved": "same"}]
    assert host.take_other() is None


STEPS = counts.Counts(stored=40, discarded={counts.UNFINISHED_UNROLL: 2}, num_samples=12)


def _agreed(**others: counts.Counts) -> agreement.Agreed:
    found = agreement.Agreed(0, 3, lambda message: None)
    found.others = {int(name.removeprefix("host_")): each for name, each in others.items()}
    return found


def test_steps_never_fall_with_fewer_hosts() -> None:
    """Of three hosts two come back, of which one may have lost its disk; then host 0 goes on alone."""
    saved = agreement.OtherHosts(_agreed(host_1=STEPS, host_2=STEPS)).to_json()
    for parts, kept in (((0, 1), [1]), ((0,), [])):
        agreed = _agreed()
        found = agreement.OtherHosts(agreed)
        found.restore(saved, parts)
        assert list(agreed.others) == kept
        total = counts.total(list(found.counts().values()))
        assert (total.env_steps, total.num_samples) == (84, 24)
        alone = agreement.OtherHosts()
        alone.restore(found.to_json())
        assert counts.env_steps_of({"ledger": {"stored": 5}, **alone.to_json()}) == 89


def test_a_host_that_was_always_alone_saves_nothing() -> None:
    assert agreement.OtherHosts().to_json() == {} == agreement.OtherHosts(_agreed()).to_json()


def test_a_checkpoint_has_them_and_the_screen_adds_them_up(make_queued: loop_world.Make) -> None:
    world = make_queued()
    large = counts.Counts(stored=1000, num_samples=900)
    world.loop.others = agreement.OtherHosts(_agreed(host_1=large))
    assert (world.loop.look().counts.stored, world.loop.look().num_samples) == (1000, 900)
    assert counts.env_steps_of(world.loop.state().counters) == 1000
