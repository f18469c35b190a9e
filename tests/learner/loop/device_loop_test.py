"""The device loop, one decision at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import loop_world
import numpy as np
import pytest

from seedzero.core import errors, types
from seedzero.device import apart
from seedzero.learner.loop import agreement, dispatchers, facts, phase, rate_limiting, scheduler, step_accounting
from seedzero.monitoring.metrics import counts
from seedzero.storage.checkpoints import trees


def test_its_pulse_changes_with_each_call_that_returns_and_is_none_without_a_call(make: loop_world.Make) -> None:
    world = make(training__max_in_flight=2, replay__min_steps=100)  # no updates yet
    session, pulses = world.join(), [world.loop.pulse()]
    act = world.dispatcher.act

    def look_and_act(chosen: Sequence[int]) -> None:
        pulses.append(world.loop.pulse())  # a dispatch may wait for the device, too
        act(chosen)

    world.dispatcher.act = look_and_act  # type: ignore[method-assign]
    for number in range(2):
        world.show(session, 0, float(number), first=number == 0)
        assert world.step()
        pulses.append(world.loop.pulse())
    world.dispatcher.in_flight.complete_next()
    pulses.append(world.loop.pulse())
    world.complete()
    assert not world.step()
    assert [*pulses, world.loop.pulse()] == [None, 0, 0, 0, 0, 1, None]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_calls_are_in_flight_than_the_settings_say(make: loop_world.Make, most: int) -> None:
    world = make(training__max_in_flight=most, replay__min_steps=100)  # no updates yet
    session = world.join()
    for number in range(most):
        world.show(session, 0, float(number), first=number == 0)
        assert world.step()
    world.show(session, 0, float(most))
    assert not world.step()
    assert not world.replies  # dispatched calls wait for the completion thread
    world.dispatcher.in_flight.complete_next()
    assert len(world.replies) == 1
    assert world.step()
    world.complete()
    assert len(world.replies) == most + 1


@pytest.mark.thorough
def test_acting_is_answered_while_updates_of_other_devices_are_not_complete() -> None:
    device = loop_world.make_device(loop_world.MUZERO, num_learning=1).without_refresh
    world = loop_world.World(device, training__max_in_flight=1)
    session, acting, learning = world.join(), *world.dispatcher.in_flight.lanes

    def answer(step: int) -> None:
        world.show_all(session, float(step), first=step == 0)
        while world.step() or acting.number:
            if acting.number:
                world.dispatcher.in_flight.complete_next(0)

    for step in range(4):
        answer(step)
        assert len(world.replies) == 2 * (step + 1)
    assert learning.number == world.num_updates == apart.MOST_UPDATES
    world.work()
    assert learning.number == 0


@pytest.fixture(scope="module")
def taking_turns() -> loop_world.Device:
    """PPO, whose unrolls may not wait for more than one update, with learners apart."""
    return loop_world.make_device(loop_world.PPO, num_learning=1)


@pytest.mark.thorough
def test_acting_waits_for_an_update_apart_if_no_older_parameters_may_act(taking_turns: loop_world.Device) -> None:
    world = loop_world.World(taking_turns, evaluation__every_updates=1000)
    session, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    acting, learning = world.dispatcher.in_flight.lanes

    def show(*, first: bool = False) -> None:
        world.show_all(session, 0.0, first=first)

    def answers() -> list[tuple[types.Role, int]]:
        """Completes acting calls alone; returns the roles and versions of their replies."""
        num_before = len(world.replies)
        while world.step() or acting.number:
            if acting.number:
                world.dispatcher.in_flight.complete_next(0)
        return [(request.role, version) for request, _, version in world.replies[num_before:]]

    show(first=True)
    assert answers() == [(types.Role.TRAIN, 0)] * 2
    for number in range(4):
        for _ in range(loop_world.UNROLL - (number > 0)):
            show()
            assert answers() == [(types.Role.TRAIN, number)] * 2
        assert (world.num_updates, learning.number) == (number + 1, 1)
        show()
        world.show(watched, 0, 0.0, first=number == 0)
        assert answers() == [(types.Role.EVALUATE, 1)]  # which no update makes older
        world.dispatcher.in_flight.complete_next(1)
        assert answers() == [(types.Role.TRAIN, number + 1)] * 2
    assert world.gathered.means()["policy_lag_max"] <= 1.0


def test_acting_and_training_keep_the_ratio_within_the_band(make: loop_world.Make) -> None:
    world = make()
    world.play(world.join(), 40)
    snapshot = world.loop.look()
    assert snapshot.counts.stored == 40 * 4 * 3 // 4
    assert abs(snapshot.num_samples - snapshot.counts.stored) <= 2 * loop_world.BATCH  # samples per insert is 1
    assert snapshot.num_samples == world.num_updates * loop_world.BATCH
    assert snapshot.version == world.num_updates and snapshot.is_compiled
    assert world.replies[-1][2] >= world.num_updates - 2  # acting uses what training made


def test_a_return_that_was_asked_for_ends_the_run(make: loop_world.Make) -> None:
    world = make(evaluation__every_updates=1000, run__stop_at_return=5.0)
    session, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    world.show(watched, 0, 0.0, first=True)
    world.play(session, 2)
    world.show(watched, 0, 0.0, reward=5.0, final=True)
    world.show(session, 0, 2.0)
    world.complete()
    while world.step():
        world.complete()
    num_replies = len(world.replies)
    assert not world.step() and len(world.replies) == num_replies
    assert world.loop.run() == "evaluation returned 5, --stop_at_return=5"


def test_evaluations_are_booked_at_the_steps_of_all_hosts(make: loop_world.Make) -> None:
    world = make(evaluation__every_updates=1000)
    world.loop.others.restore({counts.OTHER_HOSTS: {"1": {"stored": 700}, counts.GONE: {"stored": 50}}})
    session, _ = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    world.play(session, 2)
    running = world.dispatcher.evaluator.running
    assert (
        running is not None
        and running.env_steps == 750 + world.dispatcher.players[0].accounting.ledger.counts.env_steps
    )


def test_a_baseline_that_is_cut_short_ends_no_run(make: loop_world.Make) -> None:
    world = make(evaluation__every_updates=2, run__stop_at_return=-5.0)
    session, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    world.show(watched, 0, 0.0, first=True)
    world.play(session, 16)
    assert world.num_updates >= 4 and world.results == []
    world.show(watched, 0, 0.0, reward=-1.0)  # of an episode that would return less than -5
    world.work()
    assert [result.mean_return for result in world.results] == [-1.0] and world.loop.run_phase.over is None
    assert world.loop.look().last_evaluation == {"update": 1, **world.results[0].to_json(), counts.CUT_SHORT: True}


@pytest.mark.parametrize(
    ("settings", "reason", "num_updates"),
    [
        ({"run__max_updates": 3}, "--max_updates=3 reached", 3),
        ({"run__max_env_steps": 20}, "--max_env_steps=20 reached", None),
        # Final updates follow the last step, without acting; samples per insert is 1.
        (
            {"run__max_env_steps": 20, "replay__final_updates": 7},
            "--max_env_steps=20 reached",
            20 // loop_world.BATCH + 7,
        ),
    ],
)
def test_a_budget_ends_the_run(
    make: loop_world.Make, settings: dict[str, int], reason: str, num_updates: int | None
) -> None:
    world = make(**settings)
    world.play(world.join(), 30)
    assert world.loop.run() == reason and num_updates in (None, world.num_updates)
    if "run__max_env_steps" in settings:
        assert 20 <= world.loop.look().counts.stored < 20 + loop_world.SIZES[-1]


@pytest.mark.parametrize("slow", ["environments", "updates"])
def test_a_run_of_steps_makes_the_same_updates_at_any_speed(make: loop_world.Make, slow: str) -> None:
    world = make(run__max_env_steps=200, replay__min_steps=100)  # samples per insert is 1, the band 10 windows
    session, ahead = world.join(), []
    for step in range(80):
        num_replies = len(world.replies)
        world.show_all(session, float(step % 4), first=step % 4 == 0, final=step % 4 == 3)
        while len(world.replies) < num_replies + len(session.slots) and world.step():
            world.complete()
        if slow == "environments":
            world.work()
        seen = world.loop.look()
        ahead.append(seen.num_samples - seen.counts.stored)
    assert world.loop.run() == "--max_env_steps=200 reached"
    assert ahead[55] == (12 if slow == "environments" else -12)
    assert world.num_updates == 200 // loop_world.BATCH


def test_a_run_stopped_between_its_last_step_and_its_last_update_is_unfinished(make: loop_world.Make) -> None:
    world = make(run__max_env_steps=200, replay__min_steps=100)
    session, step = world.join(), 0
    while world.loop.look().counts.stored < 200:
        assert not world.loop.state().counters[phase.IN_LAST]
        world.show_all(session, float(step % 4), first=step % 4 == 0, final=step % 4 == 3)
        world.step()
        world.complete()
        step += 1
    assert world.num_updates < 200 // loop_world.BATCH and world.loop.run_phase.over is None
    assert world.loop.state().counters[phase.IN_LAST]
    world.loop.stop("a signal")
    assert world.loop.run() == "a signal"
    assert world.loop.state().counters[phase.IN_LAST]


def test_a_run_that_cannot_sample_ends_with_its_last_step(
    make: loop_world.Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_sample = property(lambda accounting: False)  # as if another device had no environments
    monkeypatch.setattr(step_accounting.StepAccounting, "can_sample", no_sample)
    world = make(run__max_env_steps=4)  # as many as the first update needs
    session = world.join()
    for step in range(2):
        world.show_all(session, float(step), first=step == 0)
        world.work()
    assert facts.spent(world.config, world.dispatcher) == "--max_env_steps=4 reached" and world.num_updates == 0


def test_a_replay_too_short_to_learn_from_ends_the_run_without_final_updates(make: loop_world.Make) -> None:
    world = make(run__max_env_steps=20, replay__final_updates=7, replay__min_steps=1_000)
    world.play(world.join(), 30)
    assert world.loop.run() == "--max_env_steps=20 reached"
    assert world.num_updates == 0
    num_left_out = 20 // loop_world.BATCH + 7
    (told,) = (text for text in world.reports if text.startswith(f"{num_left_out} "))
    assert "holds 20 steps, and learning needs --replay.min_steps=1000" in told
    assert world.loop.state().counters[phase.LEFT_OUT] == (num_left_out, 1_000)


def test_no_update_is_left_out_silently_or_told_in_vain(make: loop_world.Make) -> None:
    final = {"replay__final_updates": 7}
    for settings in (final, {"replay__min_steps": 1_000}, {**final, "run__max_updates": 20 // loop_world.BATCH + 1}):
        world = make(run__max_env_steps=20, **settings)
        world.play(world.join(), 30)
        world.loop.run()
        assert not [text for text in world.reports if "left out" in text]
        assert world.loop.state().counters[phase.LEFT_OUT] == (0, 0)


class _FailsWhenRead:
    def __array__(self, *args: object, **kwargs: object) -> Any:
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")


def test_a_failed_call_ends_training_with_its_reason(device: loop_world.Device) -> None:
    """XLA's calls fail when their result is asked for."""
    world = loop_world.World(loop_world.replaced(device, update=lambda *given: (*given[1:3], _FailsWhenRead())))
    session = world.join()
    with pytest.raises(errors.TrainingFailure, match="RESOURCE_EXHAUSTED"):
        world.play(session, 10)
    world.show(session, 0, 0.0)
    with pytest.raises(errors.TrainingFailure, match="RESOURCE_EXHAUSTED"):
        world.step()
    with pytest.raises(errors.TrainingFailure, match="RESOURCE_EXHAUSTED"):
        world.loop.run()


def test_hosts_agree_on_their_state_after_updates_and_before_a_checkpoint(make: loop_world.Make) -> None:
    class Alike(agreement.Alone):
        def after_update(self) -> None:
            called.append(("after", world.num_updates))

        def now(self) -> None:
            called.append(("now", len(world.saved)))

    world, called = make(), []
    world.loop.alike = Alike()
    world.loop.agreed = agreement.Agreed(0, 2, lambda message: None)
    world.loop.agreed.decide(agreement.Decision(agreement.Kind.SAVE))
    world.loop._note_news()
    assert called == [("now", 0)] and world.saved == [0]
    world.loop.agreed.decide(agreement.Decision(agreement.Kind.UPDATE))
    world.loop._submit(scheduler.Call(rate_limiting.Work.UPDATE, (0,)))
    assert called == [("now", 0), ("after", 1)]


def test_hosts_end_together_so_that_a_checkpoint_before_the_end_is_of_all(make: loop_world.Make) -> None:
    world, sent = make(run__max_updates=2), []
    agreed = world.loop.agreed = agreement.Agreed(0, 2, sent.append)
    world.play(world.join(), 10)
    for number in range(2):
        agreed.decide(agreement.Decision(agreement.Kind.UPDATE, number))
    while world.num_updates < 2:
        world.step()
        world.complete()
    world.step()
    assert sent[-1] == {"spent": "--max_updates=2 reached"} and world.loop.run_phase.phase is phase.Phase.RUNNING
    agreed.decide(agreement.Decision(agreement.Kind.SAVE, 2), agreement.Decision(agreement.Kind.END, 2, "spent"))
    world.step()
    assert world.saved == [2] and world.loop.run_phase.reason == "spent"


def test_a_host_that_has_its_steps_lends_updates_to_one_that_has_not(make: loop_world.Make) -> None:
    world, sent = make(run__max_env_steps=8, cluster__num_hosts=2), []
    agreed = world.loop.agreed = agreement.Agreed(0, 2, sent.append)
    joined = world.join()
    for number in range(3):
        if number < 2:
            world.play(joined, 4)
        assert world.num_updates == number and agreed.awaits_end is (number > 0)
        agreed.decide(agreement.Decision(agreement.Kind.UPDATE, number))
        world.work()
    assert {"spent": "--max_env_steps=8 (the share of one of 2 hosts) reached"} in sent and sent[-1]["ready"] == 3 + 8


def test_a_request_runs_between_two_calls_and_sees_what_a_checkpoint_holds(make: loop_world.Make) -> None:
    world = make()
    world.play(world.join(), 10)
    seen: list[dispatchers.CheckpointState] = []
    world.loop.request(seen.append)
    assert not seen
    world.step()
    (state,) = seen
    assert state.counters["num_updates"] == world.num_updates == int(state.parts["main"]["num_updates"])
    assert state.counters["ledger"]["stored"] == world.loop.look().counts.stored
    assert state.rings is not None and state.rings.cursor.shape == (loop_world.LAYOUT.num_train,)


def test_the_newest_request_runs_once_and_before_a_stop(make: loop_world.Make) -> None:
    loop, done = make().loop, []
    loop.request(lambda state: done.append(1))
    loop.request(lambda state: loop.request(lambda state: done.append("again")))  # it may ask for another
    loop.step()
    assert not done
    loop.step()
    loop.step()
    assert done == ["again"]
    loop.stop("a signal")
    loop.request(lambda state: done.append(loop.run_phase.over))
    assert loop.run() == "a signal" and done == ["again", None]


def test_requests_wake_the_loop(make: loop_world.Make) -> None:
    world = make()
    loop = world.loop
    for ask in (lambda: loop.request(lambda state: None), lambda: loop.stop("x"), lambda: loop.end("y")):
        woken = []
        with world.inbox.news:
            asking = threading.Thread(target=ask)
            asking.start()
            woken.append(world.inbox.news.wait(timeout=60))
        asking.join()
        assert woken == [True]


def test_it_sleeps_until_a_message_comes_and_counts_what_passes_meanwhile(make: loop_world.Make) -> None:
    world = make()
    session, reasons = world.join(), []
    runs = threading.Thread(target=lambda: reasons.append(world.loop.run()))
    runs.start()
    world.show(session, 0, 0.0, first=True)
    with world.inbox.news:
        assert world.inbox.news.wait_for(lambda: bool(world.replies), timeout=60)
    world.loop.stop("told so")
    runs.join(timeout=60)
    assert reasons == ["told so"] and len(world.replies) == 1


class TestLockStep:
    """Deterministic mode."""

    SETTINGS = {"run__deterministic": True, "evaluation__every_updates": 0}  # noqa: RUF012

    def test_the_order_of_arrival_changes_nothing(self, make: loop_world.Make) -> None:
        worlds = [make(**self.SETTINGS) for _ in range(2)]
        for world, order in zip(worlds, ((0, 1), (1, 0)), strict=True):
            session = world.join()
            for index in range(6):
                for group in order:
                    world.show(session, group, float(index + group), first=index == 0)
                    world.step()  # may find half of the environments
                    world.complete()
                world.work()
        one, other = ([(r.group, actions, version) for r, actions, version in world.replies] for world in worlds)
        assert one == other and len(one) == 12
        assert worlds[0].num_updates > 0
        loop_world.assert_same_state(*worlds)

    def test_exactly_the_updates_that_are_owed_run(self, make: loop_world.Make) -> None:
        world = make(**self.SETTINGS)
        session = world.join()
        updates = []
        for index in range(6):
            world.show_all(session, float(index), first=index == 0)
            world.work()
            updates.append(world.num_updates)
        assert updates == [0, 1, 2, 3, 4, 5]  # four windows for each of four steps

    def test_environments_are_reset_where_a_checkpoint_is(self, make: loop_world.Make) -> None:
        world = make(**self.SETTINGS, checkpoint__every_updates=20)
        session = world.join()
        _play_to_a_checkpoint(world, session, [])
        assert world.saved == [20]
        assert world.restarts == [session.session_id]
        counts = world.loop.look().counts
        assert counts.discarded == {"checkpoint_reset": 4} and counts.pending == 0
        assert world.people.epoch == world.loop.state().counters["epoch"] == 1
        world.play(world.join(), 1)
        assert world.loop.state().counters["epoch"] == 2  # where a budget ends, its seeds are used up
        assert world.rows == list(range(2, 22, 2))

    def test_a_checkpoint_where_the_budget_ends_is_before_the_last_evaluation(self, make: loop_world.Make) -> None:
        world = make(**self.SETTINGS, checkpoint__every_updates=20, run__max_updates=20)
        saved: list[dispatchers.CheckpointState] = []
        _play_to_a_checkpoint(world, world.join(), saved)
        assert [state.counters[phase.IN_LAST] for state in saved] == [True]
        assert world.loop.run() == "--max_updates=20 reached" and not world.loop.state().counters[phase.IN_LAST]


class TestLastEvaluation:
    """Where a budget ends a run. Evaluations are due after the first update and every thousand."""

    SETTINGS = {"evaluation__every_updates": 1000, "run__max_updates": 6}  # noqa: RUF012

    def _trained(self, make: loop_world.Make, **settings: Any) -> tuple[loop_world.World, Any]:
        """Returns a world whose budget is spent while its first evaluation is under way, and its new evaluator."""
        world = make(**{**self.SETTINGS, **settings})
        watched = world.join(types.Role.EVALUATE, "evaluator")
        world.show(watched, 0, 0.0, first=True)
        world.play(world.join(), 12)
        assert world.num_updates == 6 and world.results == [] and world.loop.run_phase.over is None
        (told,) = world.reports
        assert told.startswith("--max_updates=6 ")
        # one that takes too long may end the process; in lock step a resume would differ
        assert world.saved == ([] if "run__deterministic" in settings else [6])
        assert world.restarts == [watched.session_id]  # the first evaluation says nothing about the end
        return world, world.join(types.Role.EVALUATE, "evaluator")

    def test_the_newest_parameters_are_evaluated_before_the_run_ends(self, make: loop_world.Make) -> None:
        world, watched = self._trained(make)
        world.answer(watched, 0, 0.0, first=True)
        num_steps = world.loop.look().counts.stored
        assert world.loop.state().counters[phase.IN_LAST]  # so that a resume after Ctrl-C evaluates, too
        world.answer(watched, 0, 0.0, reward=2.0, final=True)
        assert world.loop.run() == "--max_updates=6 reached"
        assert not world.loop.state().counters[phase.IN_LAST]
        assert [result.mean_return for result in world.results] == [2.0] and world.bests == []  # it is the first
        snapshot = world.loop.look()
        assert snapshot.last_evaluation is not None and snapshot.last_evaluation["update"] == 6
        assert (snapshot.num_updates, snapshot.counts.stored) == (6, num_steps)

    @pytest.mark.parametrize("is_stopped", [True, False])
    def test_hosts_of_a_queue_owe_it_until_it_is_over(self, make_queued: loop_world.Make, is_stopped: bool) -> None:
        """A host does not know whether all have the steps of the budget together, until their end is decided."""
        several = {"cluster__num_hosts": 2, "cluster__index": 0, "cluster__coordinator": "host-0:7000"}
        world = make_queued(**{**self.SETTINGS, "run__max_updates": 0}, **several)
        world.play(world.join(), 2)
        assert world.loop.state().counters[phase.IN_LAST]
        if is_stopped:
            world.loop.stop("interrupted")
        else:
            world.loop.end("--max_env_steps=8 reached")
            world.work()
            world.now += phase.SILENCE_SECONDS
        assert world.loop.run().startswith("interrupted" if is_stopped else "--max_env_steps=8 reached")
        assert world.loop.state().counters[phase.IN_LAST] == is_stopped

    def test_one_that_reaches_the_return_is_not_owed_to_a_resume_either(self, make: loop_world.Make) -> None:
        world, watched = self._trained(make, run__stop_at_return=1.0)
        world.answer(watched, 0, 0.0, first=True)
        world.answer(watched, 0, 0.0, reward=2.0, final=True)
        assert world.loop.run() == "evaluation returned 2, --stop_at_return=1"
        assert not world.loop.state().counters[phase.IN_LAST]

    def test_steps_that_a_lost_worker_takes_back_do_not_undo_it(self, make: loop_world.Make) -> None:
        world = make(**{**self.SETTINGS, "run__max_updates": 0, "run__max_env_steps": 8})
        session = world.join()
        world.play(session, 30)
        (told,) = world.reports
        assert told.startswith("--max_env_steps=8 ")
        world.player.accounting.ledger.discard_stored(4, counts.UNFINISHED_UNROLL)  # as the unrolls of a queue
        world.lose(session)
        world.work()
        world.now += phase.SILENCE_SECONDS
        ended = world.loop.run()
        assert ended.startswith("--max_env_steps=8 reached; ")
        assert "evaluation took too long" in ended

    def test_environments_that_never_come_end_it_when_they_are_late(self, make: loop_world.Make) -> None:
        world, watched = self._trained(make)
        assert world.loop.state().counters[phase.IN_LAST]  # a resume after Ctrl-C waits for them again
        world.lose(watched)
        world.work()
        assert world.seconds_left() == phase.SILENCE_SECONDS and not world.has_work()
        world.now += phase.SILENCE_SECONDS
        assert world.loop.run().startswith("--max_updates=6 reached; ")
        assert world.results == []
        assert not world.loop.state().counters[phase.IN_LAST]

    def test_a_resume_that_only_evaluates_has_as_long_for_it_once_acting_is_compiled(
        self, device: loop_world.Device
    ) -> None:
        compiling: Any = loop_world.replaced(device, sizes=())
        world = loop_world.World(compiling, **self.SETTINGS)
        world.player.num_updates = 6
        watched = world.join(types.Role.EVALUATE, "evaluator")
        world.show(watched, 0, 0.0, first=True)
        for _ in range(3):
            world.work()
            assert world.loop.run_phase.ends and world.seconds_left() == phase.SILENCE_SECONDS
            world.now += 3 * phase.SILENCE_SECONDS
        world.work()
        compiling.programs.replaced["sizes"] = device.programs.sizes
        world.work()
        world.answer(watched, 0, 0.0, reward=2.0, final=True)
        assert world.loop.run() == "--max_updates=6 reached"
        assert [result.mean_return for result in world.results] == [2.0]

    def test_an_evaluation_that_was_given_up_is_not_owed_to_a_resume(self, make: loop_world.Make) -> None:
        world, watched = self._trained(make)
        world.answer(watched, 0, 0.0, first=True)
        world.now += phase.SILENCE_SECONDS
        ended = world.loop.run()
        assert ended.startswith("--max_updates=6 reached; none of the 2 episodes ")
        assert not world.loop.state().counters[phase.IN_LAST]

    def test_episodes_without_end_cost_a_tenth_of_the_time_and_stop_no_run(self, make: loop_world.Make) -> None:
        world, watched = self._trained(make, run__max_seconds=200.0, run__stop_at_return=1.0)
        world.answer(watched, 0, 0.0, first=True)
        self._show_one_end(world, watched)
        assert world.seconds_left() == 20.0 and not world.has_work()
        world.now += 20.0
        world.work()
        assert world.loop.run_phase.over == "--max_updates=6 reached"
        (result,) = world.results
        assert (result.episodes, result.unfinished, result.mean_return) == (1, 1, 5.0) and world.bests == []
        last = world.loop.look().last_evaluation
        assert last is not None and last[counts.CUT_SHORT] and not world.loop.state().counters[phase.IN_LAST]

    def test_in_lock_step_they_cost_a_tenth_of_the_steps_however_long_they_take(self, make: loop_world.Make) -> None:
        settings = {**self.SETTINGS, "run__deterministic": True, "evaluation__max_episode_steps": 30}
        world = make(**settings, run__max_seconds=200.0)
        world.player.num_updates = 6
        watched = world.join(types.Role.EVALUATE, "evaluator")
        for place in range(3):  # 6 of 2 * 30 steps
            world.now += 50.0
            world.answer(watched, 0, 0.0, first=place == 0)
        assert world.loop.run_phase.over is None
        self._show_one_end(world, watched)
        assert world.loop.run_phase.over == "--max_updates=6 reached"
        assert [(result.episodes, result.unfinished) for result in world.results] == [(1, 1)]

    def _show_one_end(self, world: loop_world.World, watched: Any) -> None:
        """The first of two environments ends its episode."""
        message = loop_world.message(watched, 0, 0.0, reward=5.0, now=world.now)
        step = message.request.step._replace(terminated=np.array([True, False]))
        world.inbox.put(message._replace(request=message.request._replace(step=step)))
        world.work()

    def test_a_remote_environment_without_an_evaluator_ends_at_once(self, make: loop_world.Make) -> None:
        world = make(**self.SETTINGS, env__id="remote")
        world.join()
        world.player.num_updates = 6
        assert world.loop.run() == "--max_updates=6 reached"

    @pytest.mark.parametrize("comes", [True, False])
    def test_a_resume_with_a_remote_environment_waits_for_a_worker_until_its_time(
        self, make: loop_world.Make, comes: bool
    ) -> None:
        world = make(**self.SETTINGS, env__id="remote")
        world.player.num_updates = 6
        for _ in range(3):
            world.work()
            assert world.loop.run_phase.ends
            world.now += 3 * phase.SILENCE_SECONDS
        if comes:
            watched = world.join(types.Role.EVALUATE, "evaluator")
            world.answer(watched, 0, 0.0, first=True)
            world.answer(watched, 0, 0.0, reward=2.0, final=True)
        else:
            world.loop.end("--max_seconds=5 passed")
            world.work()
            world.now += phase.SILENCE_SECONDS
        assert world.loop.run().startswith("--max_updates=6 reached" if comes else "--max_updates=6 reached; ")
        assert [result.mean_return for result in world.results] == [2.0] * comes

    @pytest.mark.parametrize("settings", [{}, {"run__max_updates": 0}])
    def test_a_signal_ends_it_without_waiting(self, make: loop_world.Make, settings: dict[str, int]) -> None:
        world = make(**{**self.SETTINGS, **settings})
        world.join(types.Role.EVALUATE, "evaluator")
        world.play(world.join(), 12)
        world.loop.stop("interrupted")
        assert world.loop.run() == "interrupted"

    def test_a_budget_of_another_thread_brings_it_too(self, make: loop_world.Make) -> None:
        world = make(**{**self.SETTINGS, "run__max_updates": 0})
        world.play(world.join(), 12)
        num_updates = world.num_updates
        world.loop.end("--max_seconds=5 passed")
        world.work()
        (told,) = world.reports
        assert told.startswith("--max_seconds=5 passed: one more evaluation") and world.num_updates == num_updates
        world.now += phase.SILENCE_SECONDS
        assert world.loop.run().startswith("--max_seconds=5 passed; ")

    def test_in_lock_step_a_larger_budget_goes_on_as_if_it_had_not_been(self, make: loop_world.Make) -> None:
        world = make(**self.SETTINGS, run__deterministic=True, run__max_seconds=1.0)
        session, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
        world.player.num_updates = 1
        self._evaluate(world, watched)
        world.player.num_updates = 6
        before = world.loop.state().counters
        watched = world.join(types.Role.EVALUATE, "evaluator")
        self._evaluate(world, watched)
        after = world.loop.state().counters
        assert after["last_evaluation"]["update"] == 6 and before["last_evaluation"]["update"] == 1
        changed = {name for name in after if after[name] != before[name]}
        assert changed == {"last_evaluation", "best_return", phase.IN_LAST}
        assert session.started

    def _evaluate(self, world: loop_world.World, watched: Any) -> None:
        for first in (True, False):
            world.answer(watched, 0, 0.0, first=first, final=not first)


class TestRefreshing:
    """Half a row for each stored step, two in a call."""

    def test_the_ratio_is_kept_and_what_was_done_is_measured(self, make_refreshing: loop_world.Make) -> None:
        world = make_refreshing()
        world.play(world.join(), 40)
        snapshot = world.loop.look()
        assert snapshot.counts.stored == 120
        assert snapshot.num_reanalysed == 60  # idle after every step: nothing stays owed
        world.loop.others.restore({counts.OTHER_HOSTS: {"1": {"stored": 80}}})
        assert world.loop.look().num_reanalysed == 100  # the ratio is that of all hosts
        means = world.gathered.means()
        assert 0 < means["refreshed_share"] <= 1
        assert 1 < means["refresh_age"] <= world.num_updates
        assert 0 < means["reanalyse_policy_change"] < 1 and means["reanalyse_value_change"] > 0
        versions = world.rings.stored
        assert versions["target_version"].max() == world.num_updates
        assert (versions["target_version"] >= versions["version"]).all()

    def test_without_it_the_loop_neither_runs_nor_measures_it(self, make: loop_world.Make) -> None:
        world = make()
        world.play(world.join(), 10)
        assert world.loop.look().num_reanalysed is None and world.player.num_reanalyses == 0
        assert not [name for name in world.gathered.means() if "reanalyse" in name or "reanalyse" in name]

    def test_the_newest_parameters_search_also_where_acting_has_older_ones(
        self, make_refreshing: loop_world.Make
    ) -> None:
        world = make_refreshing(training__publish_every=1000)
        world.play(world.join(), 20)
        assert world.loop.look().version == 0  # all rows were written by version 0
        assert not world.rings.stored["version"].any()
        assert world.rings.stored["target_version"].max() > 5


class TestQueue:
    """V-trace: each step at most once, in unrolls of three; an update takes four."""

    def test_every_step_is_learned_from_once(self, make_queued: loop_world.Make) -> None:
        world = make_queued()
        world.play(world.join(), 1 + 12 * loop_world.UNROLL)
        snapshot = world.loop.look()
        assert world.num_updates == 12 and snapshot.num_reanalysed is None
        assert snapshot.counts.stored == 4 * 3 * 9 == snapshot.num_samples  # three of four rows complete a step
        means = world.gathered.means()
        assert means["batch_padding"] == 0 and means["policy_lag"] <= means["policy_lag_max"] <= 2
        world.dispatcher.in_flight.check()

    def test_acting_waits_where_updates_cannot_follow(self, queued: loop_world.Device) -> None:
        broken = loop_world.replaced(queued, update=futures.Future())
        world = loop_world.World(broken)
        session = world.join()
        num_shown, num_rows = 0, 0
        while num_shown == num_rows:  # every message was answered
            world.show_all(session, float(num_shown), first=num_shown == 0)
            num_shown += 1
            world.work()
            num_rows = len(world.replies) // 2
        assert num_rows == 2 * loop_world.UNROLL + 1  # max_lag is 2
        assert world.num_updates == 0 and len(world.inbox.waiting(types.Role.TRAIN)) == 2
        broken.programs.replaced.clear()  # type: ignore[attr-defined]
        world.work()
        assert world.num_updates == 2 and len(world.replies) == 2 * (num_rows + 1)

    def test_a_lost_worker_stalls_nobody(self, make_queued: loop_world.Make) -> None:
        world = make_queued(worker__num_groups=1)
        one, other = world.join(name="local-0"), world.join(name="local-1")
        for index in range(2):
            for session in (one, other):
                world.show(session, 0, float(index), first=index == 0)
            world.work()
        world.lose(one)
        for index in range(2, 8 * loop_world.UNROLL):
            world.answer(other, 0, float(index))
        assert len(world.replies) == 2 + 8 * loop_world.UNROLL
        assert world.num_updates >= 3


def _play_to_a_checkpoint(world: loop_world.World, session: Any, saved: list[dispatchers.CheckpointState]) -> None:
    """Plays environments to the next checkpoint and keeps a copy of it."""
    num_saved = len(world.saved)
    with world.completions():
        for index in range(100):
            world.show_all(session, float(index), first=index == 0)
            while len(world.saved) == num_saved and world.step():
                world.dispatcher.in_flight.settle()
            if len(world.saved) > num_saved:
                state = world.loop.state()
                saved.append(dispatchers.CheckpointState(*trees.copy((state.parts, state.rings)), state.counters))
                return
    raise AssertionError("no checkpoint")
