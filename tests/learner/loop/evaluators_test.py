"""When evaluations are due, the phase of one, and the best so far."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import loop_world
import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import opponents, types
from seedzero.learner.loop import evaluators, phase
from seedzero.monitoring.metrics import counts, episodes

SESSION = loop_world.make_session([4, 5], role=types.Role.EVALUATE)
PARAMS: Any = {"w": 1}


def _make(
    every_updates: int = 4,
    env_id: str = "",
    *,
    now: float = 0.0,
    num_envs: int = 2,
    every_seconds: float = 0.0,
    **changes: Any,
) -> evaluators.Evaluator:
    given = dict(every_updates=every_updates, every_seconds=every_seconds, episodes=num_envs, num_envs=num_envs)
    config = sections.EvaluationConfig(**{**given, **changes})  # type: ignore[arg-type]
    return evaluators.Evaluator(config, env_id, now=now)


def _show(
    evaluator: evaluators.Evaluator,
    place: int,
    *,
    session: Any = SESSION,
    now: float = 0.0,
    num_updates: int = 0,
    is_last: bool = False,
    rewards: Sequence[float] | None = None,
    ends: Sequence[bool] | None = None,
    **shown: Any,
) -> evaluators.Ended | None:
    """Records a step of all environments; place: in the episode. rewards, ends: of each one."""
    message = loop_world.message(session, 0, 0.0, first=place == 0, **shown)
    step = message.request.step
    step = step if rewards is None else step._replace(reward=np.array(rewards, np.float32))
    step = step if ends is None else step._replace(terminated=np.array(ends))
    messages = [message._replace(request=message.request._replace(step=step))]
    return evaluator.record(messages, num_updates=num_updates, now=now, is_last=is_last)


def _play_tasks(evaluator: evaluators.Evaluator, session: Any, update: int, returns: list[float]) -> evaluators.Ended:
    """Evaluates an episode of one step in each task."""
    evaluator.begin(session, update, PARAMS, now=0.0)
    for place in range(2):
        rewards = [place * found for found in returns]
        ended = _show(evaluator, place, session=session, final=place == 1, tasks=range(len(returns)), rewards=rewards)
    assert ended is not None
    return ended


def _play(evaluator: evaluators.Evaluator, update: int, reward: float, *, is_last: bool = False) -> evaluators.Ended:
    """Evaluates episodes of two steps."""
    evaluator.begin(SESSION, update, PARAMS, now=0.0)
    for place in range(3):
        ended = _show(evaluator, place, now=float(place), is_last=is_last, final=place == 2, reward=reward)
        assert (ended is None) == (place < 2)
    assert ended is not None
    return ended


def test_the_first_is_due_after_the_first_update_and_the_others_at_multiples() -> None:
    evaluator = _make(4)
    assert not evaluator.is_due(0, 0.0) and evaluator.is_due(1, 0.0)
    _play(evaluator, 1, 1.0)
    assert not evaluator.is_due(3, 0.0) and evaluator.is_due(4, 0.0)
    _play(evaluator, 6, 1.0)  # it was late
    assert not evaluator.is_due(7, 0.0) and evaluator.is_due(8, 0.0)


def _take(evaluator: evaluators.Evaluator, update: int, *, began: float, ended: float) -> None:
    """Evaluates episodes of one step in a time."""
    evaluator.begin(SESSION, update, PARAMS, now=began)
    _show(evaluator, 0, num_updates=update, now=began)
    assert _show(evaluator, 1, num_updates=update, now=ended, final=True)


def test_slow_updates_are_evaluated_by_the_clock_unless_nothing_was_learned_since() -> None:
    evaluator = _make(200, every_seconds=30.0, now=100.0)
    assert evaluator.is_due(1, 100.0)
    _take(evaluator, 1, began=100.0, ended=101.0)
    assert not evaluator.is_due(27, 130.9) and evaluator.is_due(27, 131.0)
    assert not evaluator.is_due(1, 500.0) and evaluator.is_due(200, 102.0)
    _take(evaluator, 27, began=131.0, ended=141.0)  # four times as long as that took
    assert not evaluator.is_due(50, 180.9) and evaluator.is_due(50, 181.0)


def test_without_seconds_updates_alone_count() -> None:
    evaluator = _make(200)
    _take(evaluator, 1, began=0.0, ended=1.0)
    assert not evaluator.is_due(199, 1e9) and evaluator.is_due(200, 1.0)
    assert not _make(0).is_due(10**9, 1e9)  # no updates: none at all


def test_a_baseline_of_two_periods_by_the_clock_cuts_off_the_longer_episodes() -> None:
    for now, is_cut in ((59.0, False), (60.0, True)):
        evaluator = _make(200, every_seconds=30.0)
        evaluator.begin(SESSION, 1, PARAMS, now=0.0)
        _show(evaluator, 0, num_updates=1)
        assert (_show(evaluator, 1, num_updates=2, now=now) is not None) == is_cut


def test_a_whole_evaluation_has_its_parameters_and_statistics() -> None:
    evaluator = _make()
    assert evaluator.running is None
    ended = _play(evaluator, 3, 2.5)
    assert ended.running.params is PARAMS and ended.running.update == 3 and ended.running.session is SESSION
    assert (ended.result.episodes, ended.result.mean_return, ended.result.mean_length) == (2, 5.0, 2.0)
    assert evaluator.running is None
    assert evaluator.last is not None and evaluator.last["update"] == 3 and evaluator.last["mean_return"] == 5.0


def test_an_episode_without_end_is_cut_off() -> None:
    evaluator = _make(max_episode_steps=3)
    evaluator.begin(SESSION, 4, PARAMS, now=0.0)
    for place in range(4):
        ended = _show(evaluator, place)
    assert ended is not None and not ended.cut_short and (ended.result.mean_return, ended.result.cut_off) == (3.0, 2)


def _play_without_end(update: int, *, later: int, num_before: int = 0) -> evaluators.Ended | None:
    """One environment's episode has two steps, the other's nine; from the fifth on there are more updates."""
    evaluator = _make(every_updates=4)
    for _ in range(num_before):
        _play(evaluator, 1, 0.0)
    evaluator.begin(SESSION, update, PARAMS, now=0.0)
    for place in range(10):
        if ended := _show(evaluator, place, num_updates=update if place < 5 else later, ends=[place == 2, False]):
            return ended
    return None


def test_a_baseline_of_two_periods_cuts_off_the_longer_episodes() -> None:
    assert _play_without_end(1, later=7) is None
    ended = _play_without_end(1, later=8)
    assert ended is not None and not ended.is_best
    assert (ended.result.mean_length, ended.result.cut_off, ended.cut_short) == ((2 + 5) / 2, 1, True)


def test_later_evaluations_take_as_long_as_they_need() -> None:
    assert _play_without_end(4, later=100, num_before=1) is None


def test_training_waits_until_the_environments_of_an_evaluation_are_silent_for_long() -> None:
    evaluator, silence = _make(pauses_training=True), phase.SILENCE_SECONDS
    assert evaluator.pause_until == -math.inf
    evaluator.begin(SESSION, 4, PARAMS, now=10.0)
    assert evaluator.pause_until == 10.0 + silence
    _show(evaluator, 0, num_updates=4, now=20.0)
    assert evaluator.pause_until == 20.0 + silence
    without = _make()
    without.begin(SESSION, 4, PARAMS, now=0.0)
    assert without.pause_until == -math.inf


def test_the_best_is_higher_than_all_so_far() -> None:
    evaluator = _make()
    played = [_play(evaluator, 4, reward) for reward in (-1.0, -2.0, 3.0, 3.0, 2.0)]
    assert [ended.is_best for ended in played] == [True, False, True, False, False]
    assert [ended.is_record for ended in played] == [False, False, True, False, False]  # the first one beats nothing
    assert [ended.best_score for ended in played] == [-2.0, -2.0, 6.0, 6.0, 6.0]  # of two steps each


def test_a_record_is_higher_than_the_baseline_too_and_the_best_need_not_be() -> None:
    evaluator = _make(4)
    _play(evaluator, 1, -0.5)
    worse = _play(evaluator, 4, -1.0)
    assert worse.is_best and not worse.is_record
    equal = _play(evaluator, 8, -0.5)
    assert equal.is_best and not equal.is_record
    again = _make(4)
    again.restore(evaluator.to_json())
    assert _play(again, 12, -0.25).is_record


def test_of_tasks_with_published_scores_the_best_has_the_highest_capped_mean() -> None:
    levels = tuple(episodes.DMLAB_SCORES)
    session = loop_world.make_session(list(range(30)), role=types.Role.EVALUATE, tasks=levels)
    evaluator = _make(4, "dmlab:dmlab30", num_envs=30)
    human = [score for _, score in episodes.DMLAB_SCORES.values()]
    assert _play_tasks(evaluator, session, 4, human).is_best
    assert not _play_tasks(evaluator, session, 8, [10_000.0] + [0.0] * 29).is_best  # the higher mean return
    assert evaluator.to_json()["best_return"] == pytest.approx(1.0)


def test_the_mean_over_all_opponents_is_the_score() -> None:
    tasks = opponents.tasks(("roshambo:rockbot", "roshambo:predbot"))
    session = loop_world.make_session(list(range(4)), role=types.Role.EVALUATE, tasks=tasks)
    evaluator = _make(4, "spiel:tic_tac_toe", num_envs=4)
    assert _play_tasks(evaluator, session, 4, [0.0, 0.0, 1.0, 0.0]).is_best
    assert _play_tasks(evaluator, session, 8, [1.0, 1.0, 0.0, 0.0]).is_best  # although worse against the last one
    assert not _play_tasks(evaluator, session, 12, [0.0, 0.0, 1.0, 0.5]).is_best
    assert evaluator.to_json()["best_return"] == 0.5


def test_an_atari_game_has_its_human_normalized_score_beside_the_return() -> None:
    evaluator = _make(4, "atari:Pong")
    ended = _play(evaluator, 4, reward=14.6)
    random, human = episodes.SCORES["pong"]
    assert ended.human_normalized == pytest.approx((ended.result.mean_return - random) / (human - random))
    assert evaluator.last is not None and evaluator.last["human_normalized"] == ended.human_normalized
    without = _make()
    assert _play(without, 4, reward=14.6).human_normalized is None
    assert without.last is not None and "human_normalized" not in without.last


@pytest.mark.parametrize("is_last", [False, True])
def test_the_first_is_a_baseline_and_never_the_best(*, is_last: bool) -> None:
    evaluator = _make(4)
    assert not _play(evaluator, 3, 5.0, is_last=is_last).is_best and evaluator.to_json()["best_return"] is None
    assert _play(evaluator, 4, -5.0).is_best


def test_where_a_run_ends_one_more_is_due_and_may_be_the_best_however_early() -> None:
    evaluator = _make(4)
    _play(evaluator, 1, 5.0)
    assert not evaluator.is_due(1, 0.0) and not evaluator.is_due(3, 0.0)
    assert [evaluator.is_due(update, 0.0, is_last=True) for update in (0, 1, 3)] == [False, False, True]
    assert _play(evaluator, 3, -5.0, is_last=True).is_best
    assert not evaluator.is_due(3, 0.0, is_last=True)


def _playing(*, num_steps: int, ends: bool) -> evaluators.Evaluator:
    """Returns an evaluator in an evaluation, a step of both environments a second; one ends after two steps."""
    evaluator = _make(4)
    _play(evaluator, 4, -3.0)
    evaluator.begin(SESSION, 8, PARAMS, now=0.0)
    for place in range(num_steps + 1):
        ended = [ends and place == 2, False]
        assert _show(evaluator, place, num_updates=8, now=float(place), is_last=True, ends=ended) is None
    return evaluator


def test_one_that_is_cut_counts_what_ended_and_is_no_best() -> None:
    evaluator = _playing(num_steps=5, ends=True)
    assert evaluator.last_step == 5.0
    ended = evaluator.cut()
    assert ended is not None and (ended.result.episodes, ended.result.mean_return) == (1, 2.0)
    assert (ended.result.unfinished, ended.cut_short, ended.is_best, ended.is_record) == (1, True, False, False)
    assert evaluator.last == {"update": 8, **ended.result.to_json(), counts.CUT_SHORT: True}
    assert evaluator.to_json()["best_return"] == evaluator.to_json()["highest_return"] == -6.0
    assert evaluator.running is None and not evaluator.is_due(8, 0.0, is_last=True)


def test_without_a_finished_episode_there_is_nothing_to_cut() -> None:
    evaluator = _playing(num_steps=5, ends=False)
    assert evaluator.cut() is None and evaluator.running is not None
    evaluator.abandon()
    assert evaluator.cut() is None


@pytest.mark.parametrize("reward", [None, 4.0])
def test_its_counters_come_back(reward: float | None) -> None:
    evaluator = _make()
    if reward is not None:
        _play(evaluator, 5, reward)
    saved = evaluator.to_json()
    assert saved["best_return"] == (None if reward is None else 8.0)
    again = _make()
    again.restore(saved)
    assert again.to_json() == saved and again.last == evaluator.last
    assert again.is_due(7, 0.0) == (reward is None) and again.is_due(8, 0.0)
    assert _play(again, 9, 3.0).is_best == (reward is None)


@pytest.mark.parametrize(("every_updates", "due"), [(2, 6), (10, 10)])
def test_a_resume_with_another_period_keeps_to_it_at_once(every_updates: int, due: int) -> None:
    evaluator = _make(4)
    _play(evaluator, 1, -1.0)
    _play(evaluator, 5, -1.0)
    again = _make(every_updates)
    again.restore(evaluator.to_json())
    assert not again.is_due(due - 1, 0.0) and again.is_due(due, 0.0)


def test_a_longer_period_makes_no_second_baseline() -> None:
    evaluator = _make(4)
    _play(evaluator, 1, -1.0)
    again = _make(10)
    again.restore(evaluator.to_json())
    assert _play(again, 8, 5.0).is_best


def test_only_the_measured_rows_of_games_between_sides_count() -> None:
    evaluator = _make(num_envs=4)
    session = loop_world.make_session([4, 5, 6, 7], role=types.Role.EVALUATE)
    evaluator.begin(session, 1, PARAMS, now=0.0, sides=(0, 1))
    for place in range(2):
        rewards = [place * found for found in (1.0, 9.0, 9.0, 3.0)]
        ended = _show(evaluator, place, session=session, final=place == 1, rewards=rewards)
    assert ended is not None and (ended.result.episodes, ended.result.mean_return) == (2, 2.0)


def _play_game(evaluator: evaluators.Evaluator, update: int, returns: Sequence[float]) -> evaluators.Ended:
    """Evaluates one game of as many agents as returns."""
    tasks = tuple(f"agent_{number}" for number in range(len(returns)))
    session = loop_world.make_session(list(range(4, 4 + len(returns))), role=types.Role.EVALUATE)
    seated = dataclasses.replace(session, tasks=tasks, num_seats=len(returns))
    return _play_tasks(evaluator, seated, update, list(returns))


def test_returns_that_cancel_out_choose_no_best() -> None:
    evaluator = _make()
    _play_game(evaluator, 1, [1.0, -1.0])
    ended = [_play_game(evaluator, update, returns) for update, returns in ((4, (2.0, -2.0)), (8, (0.0, 0.0)))]
    assert [(one.is_best, one.is_record, one.best_score) for one in ended] == [(False, False, None)] * 2
    assert _play_game(evaluator, 12, [3.0, 1.0]).is_best


def test_two_policies_are_two_sides_whatever_the_number_of_their_agents() -> None:
    evaluator = _make()
    evaluator._policies_of = lambda agents: ("left", "left", "left", "right")
    _play_game(evaluator, 1, [0.0] * 4)
    assert not _play_game(evaluator, 4, [1.0, 1.0, 1.0, -1.0]).is_best
    assert _play_game(evaluator, 8, [1.0, 1.0, 1.0, 1.0]).is_best


def test_returns_of_0_are_the_best_of_rewards_that_only_punish() -> None:
    evaluator = _make()
    _play_game(evaluator, 1, [-9.0, -9.0])
    assert _play_game(evaluator, 4, [-5.0, -5.0]).is_best
    assert _play_game(evaluator, 8, [0.0, 0.0]).is_best
