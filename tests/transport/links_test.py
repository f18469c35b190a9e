"""Links by hand: what a worker reports and the learner sees, and the groups that hide a round trip."""

from __future__ import annotations

import math

import pytest

from seedzero.transport import links


def make_link(
    groups: tuple[int, int], step: float, round_trip: float, answer: float = 0.001, **changes: object
) -> links.WorkerLink:
    """Returns a complete measurement. Times are in seconds, the first of a group."""
    found = links.WorkerLink(*groups, step, step, round_trip, answer, 1000.0, is_complete=True)
    return found._replace(**changes)


PLANS = {
    "a local link": ((2, 16), 0.002, 0.001, 0.001, 128, None),
    "a learner that is slower than the link": ((2, 16), 0.002, 0.1, 0.2, 128, None),
    "a worker that is busy already": ((2, 16), 0.1, 0.09, 0.01, 32, None),
    "halves: 3 x 25 ms cover 70": ((2, 16), 0.05, 0.069, 0.001, 32, (4, 8)),
    "halves down to four environments": ((2, 16), 0.16, 0.3, 0.0, 32, (8, 4)),
    "never below four": ((1, 4), 0.001, 0.1, 0.001, 4, None),
    "groups of three stay whole": ((2, 3), 0.05, 0.1, 0.001, 6, None),
    "six groups: 5 x 20 ms cover 100": ((2, 16), 0.02, 0.099, 0.001, 512, (6, 16)),
    "all that there is room for": ((2, 16), 0.001, 0.1, 0.001, 128, (8, 16)),
    "never above 64 groups": ((2, 4), 0.0001, 1.0, 0.001, 10_000, (61, 4)),
    "room for half a group more": ((2, 16), 0.001, 0.1, 0.001, 40, None),
    "less room than now counts as now": ((2, 16), 0.001, 0.1, 0.001, 0, None),
}


@pytest.mark.parametrize("name", PLANS)
def test_groups_hide_the_round_trip(name: str) -> None:
    groups, step, round_trip, answer, most_envs, expected = PLANS[name]
    assert links.plan(make_link(groups, step, round_trip, answer), most_envs) == expected


def test_nothing_is_decided_before_the_measurements_are_complete() -> None:
    assert links.plan(make_link((2, 16), 0.001, 0.1, is_complete=False), 128) is None


def test_rate_of_groups_by_hand() -> None:
    link = make_link((2, 16), 0.02, 0.099, 0.001)
    assert links.rate(link, 2, 16) == pytest.approx(32 / 0.12)
    assert links.rate(link, 6, 16) == pytest.approx(96 / 0.12)
    assert links.rate(link, 7, 16) == pytest.approx(112 / 0.14)  # the worker is busy
    assert links.rate(link, 4, 8) == pytest.approx(32 / 0.11)


def test_a_link_says_what_would_hide_it() -> None:
    far = make_link((8, 16), 0.001, 0.099)
    assert far.bound == pytest.approx(1280) and far.is_limit and far.num_hiding == 16 * 101
    assert far.waits_for == "link" and far.to_json()["environments_needed"] == 16 * 101
    near = make_link((8, 16), 0.02, 0.099)  # 8 x 20 ms are longer than the way
    assert not near.is_limit and "environments_needed" not in near.to_json()
    assert make_link((1, 4), 0.02, 0.001, 0.1).waits_for == "learner"
    assert make_link((1, 4), 0.2, 0.001, 0.1).waits_for == "environments"


class World:
    """A worker whose groups step one after the other, behind a link, on a clock of its own."""

    def __init__(self) -> None:
        self.meter, self.report, self.now = links.Meter(2, 16), links.LinkReport(), 0.0

    def beat(self, round_trip: float, num_steps: int = 20, step: float = 0.01, answer: float = 0.002) -> None:
        """Lets 5 s pass with some steps and a heartbeat."""
        for _ in range(num_steps):
            self.meter.answered(answer)
            self.report = self.report.plus(step, 2 * step)  # each waits for another group
            self.meter.stepped(round_trip + 2 * step)
            self.meter.num_bytes += 100
        self.now += 5.0
        self.meter.report(self.report, self.now)

    def link(self) -> links.WorkerLink:
        found = self.meter.link
        assert found is not None
        return found


def test_the_rest_of_the_time_is_the_links() -> None:
    world = World()
    world.beat(9.0)  # before the first report, as while programs are compiled
    assert world.meter.link is None
    for number in range(6):
        world.beat(0.1)
        assert world.link().is_complete == (number == 5)
    found = world.link()
    assert found.step_seconds == pytest.approx(0.01) and found.turn_seconds == pytest.approx(0.02)
    assert found.round_trip_seconds == pytest.approx(0.1) and found.answer_seconds == pytest.approx(0.002)
    assert found.bytes_per_second == pytest.approx(20 * 100 / 5)


def test_a_link_that_jumps_is_followed_there_and_back_and_one_stall_is_no_jump() -> None:
    world = World()
    for _ in range(8):
        world.beat(0.001)
    world.beat(3.0)
    assert world.link().round_trip_seconds == pytest.approx(0.001)
    for round_trip in (0.2, 0.001):
        for _ in range(6):
            world.beat(round_trip)
        assert world.link().round_trip_seconds == pytest.approx(round_trip)


def test_slow_environments_have_longer_samples() -> None:
    world = World()
    for number in range(9):
        world.beat(0.1, num_steps=int(number % 3 == 0), step=7.0)
    assert world.link().step_seconds == pytest.approx(7.0) and world.link().is_complete


def test_a_lost_connection_and_other_numbers_of_steps_begin_anew() -> None:
    world = World()
    for _ in range(7):
        world.beat(0.1)
    world.meter.restart()
    assert world.meter.link is None
    world.beat(9.0)
    world.report = world.report.plus(0.01, 0.02)  # a step that has not come
    world.beat(0.1)
    assert world.meter.link is None
    world.beat(0.2)
    assert world.link().round_trip_seconds == pytest.approx(0.2)


@pytest.mark.parametrize("step", [math.nan, 0.0, -1.0, 86_400.0, math.inf])
def test_a_worker_that_lies_about_its_steps_is_named_and_not_believed(step: float) -> None:
    world = World()
    for _ in range(7):
        world.beat(0.1)
    world.report = world.report._replace(
        step_seconds=world.report.step_seconds + 20 * (step - 0.01),
        turn_seconds=world.report.turn_seconds + 20 * (step - 0.01),
    )
    if step == 0.0:
        world.report = world.report._replace(step_seconds=world.report.step_seconds - 1e-9)
    world.beat(0.1)
    assert world.meter.problem.startswith("steps of ") and world.meter.link is None
    world.beat(0.1)
    assert world.meter.link is None
