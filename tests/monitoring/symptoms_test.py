"""Each symptom at its limit, on learning_curves of a few rows made by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest

from seedzero.config import configs
from seedzero.core import types
from seedzero.monitoring import learning_curves, symptoms

_TWO_ACTIONS = types.EnvSpec((4,), "float32", 2)
_TWO_NUMBERS = types.EnvSpec((4,), "float32", 0, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))


def _case(
    *rows: dict[str, Any], agent: str = "ppo", spec: types.EnvSpec | None = _TWO_ACTIONS, **settings: Any
) -> symptoms.RunCase:
    given = {name.replace("__", "."): value for name, value in settings.items()}
    curve = learning_curves.LearningCurve()
    for number, row in enumerate(rows, 1):
        curve = curve.after({"update": 1_000 * number, "loss": 0.1, **row})
    return symptoms.RunCase(configs.override(configs.Config(), {"run.agent": agent, **given}), spec, curve)


def _returns(*returns: float, **row: Any) -> list[dict[str, Any]]:
    return [{"episode_return": x, "episodes": 50, **row} for x in returns]


def test_the_steps_of_ppo_are_minibatches() -> None:
    rows = ({}, {})
    assert symptoms.num_steps(_case(*rows, ppo__num_epochs=3, ppo__num_minibatches=8)) == 2_000 * 24
    assert symptoms.num_steps(_case(*rows, agent="vtrace")) == 2_000


def test_the_steps_of_several_policies_are_those_of_each() -> None:
    row = {"update/wolf": 900, "update/sheep": 1_100, "loss/wolf": 0.1}
    assert symptoms.num_steps(_case(row, row, ppo__num_epochs=3, ppo__num_minibatches=8)) == 1_000 * 24


_UNDECIDED = {"policy_entropy": 9.0}
_GAP = 0.99 * symptoms.GAP
_HALF = math.log(2) * symptoms.DECIDED
_BINS = 2 * math.log(15) * symptoms.DECIDED
_DENSITY = 2 * (math.log(symptoms.SMALLEST_DEVIATION) + 0.5 * math.log(2 * math.pi * math.e))
_FAR = symptoms.far_from("v", "value_target_mean")

_Find = Callable[[symptoms.RunCase], str]
_Rows = list[dict[str, Any]]
_Pair = tuple[_Find, symptoms.RunCase, symptoms.RunCase]


def _pair(
    find: _Find, healthy: _Rows, sick: _Rows, **settings: Any
) -> tuple[_Find, symptoms.RunCase, symptoms.RunCase]:
    """Returns a symptom, and two runs of the same settings."""
    return find, _case(*healthy, **settings), _case(*sick, **settings)


def _at(find: _Find, rows: Callable[[Any], _Rows], healthy: float, sick: float, **settings: Any) -> _Pair:
    """Returns a symptom, and two runs that differ in a number of their rows."""
    return _pair(find, rows(healthy), rows(sick), **settings)


_RISEN = _returns(10, 50, 50, 50)


def _means(*values: float, target: float, **row: Any) -> _Rows:
    return [{"v": value, "value_target_mean": target, **row} for value in values]


def _decided(returns: tuple[float, ...], healthy: float, sick: float, **settings: Any) -> _Pair:
    """Returns runs of an entropy; the sick one had preferred nothing before."""
    rows = [_returns(*returns, policy_entropy=entropy) for entropy in (healthy, sick)]
    return _pair(symptoms.decided, rows[0], [_UNDECIDED, *rows[1]], **settings)


@pytest.mark.parametrize(
    ("find", "healthy", "sick"),
    [
        _at(symptoms.no_update, lambda x: [{"update": x}] * 3, 1_000, 0),
        _at(symptoms.same_return, lambda x: _returns(0, 0, x), 0.1, 0),
        _at(symptoms.same_return, lambda number: _returns(*[0] * number), 1, 2),
        _at(symptoms.clipped_targets, lambda x: [{types.TARGETS_CLIPPED: x}], 0.0009, 0.001),
        _pair(
            _FAR,
            _means(*(10 - 10 * gap for gap in (0.5, 0.5, _GAP)), target=10.0),
            _means(*[10 - 10.1 * symptoms.GAP] * 3, target=10.0),
        ),
        # while the return rises
        _at(_FAR, lambda v: _returns(1, 5, 9, v=v, value_target_mean=10.0), 7.1, 6.9),
        # on both sides of the target
        _pair(_FAR, _means(-5, -15, -5, target=-10.0), _means(-15, -15, -16, target=-10.0)),
        _pair(
            symptoms.far_from("q", "q_target_mean"),
            [{"q": 0.7, "q_target_mean": x} for x in (-4, 0.5, 0.5, 0.5)],
            [{"q": 0.7, "q_target_mean": 0.5}] * 3,
            agent="apex",
        ),
        # means of rare rewards
        _at(_FAR, lambda v: _means(*[v] * 3, target=0.01), 0.04, 0.05),
        # squares of the largest target, 4, or of a return, 9
        _at(symptoms.value_loss, lambda x: _means(0, target=-2.0, loss_value=x), 119.0, 121.0, agent="vtrace"),
        _at(symptoms.value_loss, lambda x: _returns(3.0, loss_value=x), 269.0, 271.0, agent="vtrace"),
        _at(
            symptoms.value_loss,
            lambda x: _returns(30.0, loss_value=x),
            269.0,
            271.0,
            agent="vtrace",
            reward__scale=0.1,
        ),
        # R2D2's loss is a sum over 80 steps
        _at(symptoms.value_loss, lambda x: [{"loss": 80 * x, "q_target_mean": 2.0}], 119.0, 121.0, agent="r2d2"),
        # normalized rewards
        _at(symptoms.value_loss, lambda x: _means(0, target=0.01, loss_value=x), 29.0, 31.0),
        # an explosion of before, in a run that has risen to twice its first return, or not
        _at(symptoms.value_loss, lambda x: [{"loss_value": 1e9}, *_returns(10, x, x, x, loss_value=1.0)], 20, 19),
        _at(symptoms.policy_loss, lambda x: [{"loss_policy": 2.0}, {"loss_policy": x}], 2.49, 2.51, agent="muzero"),
        _at(
            symptoms.policy_loss,
            lambda x: [{"loss_policy": 2}, {"loss_policy": 9}, *_returns(10, x, x, x, loss_policy=2)],
            20,
            19,
            agent="muzero",
        ),
        _decided((9, 9, 9), 1.01 * _HALF, 0.99 * _HALF),
        # risen by a quarter; risen, and lost again
        _pair(
            symptoms.decided,
            _returns(-20, -15, -15, -15, policy_entropy=0.0),
            _returns(-20, -10, -10, -10, -16, -17, -18, policy_entropy=0.0),
        ),
        # before anything can be learned, an undecided policy and a decided one; ten steps of 4 x 4 an update
        _at(symptoms.decided, lambda x: _returns(9, policy_entropy=x, update=10), 0.6, 0.0),
        # at the goal from the first row on
        (
            symptoms.decided,
            _case(*_returns(1, 1, 1, policy_entropy=0.0), run__stop_at_return=1.0),
            _case(_UNDECIDED, *_returns(1, 1, 1, policy_entropy=0.0), run__stop_at_return=1.1),
        ),
        # a mask may leave two of 50 actions
        (
            symptoms.decided,
            _case(
                *_returns(9, 9, 9, policy_entropy=1.01 * _HALF),
                spec=types.EnvSpec((4,), "float32", 50, has_action_mask=True),
            ),
            _case(
                _UNDECIDED, *_returns(9, 9, 9, policy_entropy=1.01 * _HALF), spec=types.EnvSpec((4,), "float32", 50)
            ),
        ),
        _decided((9, 9, 9), _DENSITY + 0.01, _DENSITY - 0.01, spec=_TWO_NUMBERS),
        # two numbers in bins
        _decided((9, 9, 9), 1.01 * _BINS, 0.99 * _BINS, spec=_TWO_NUMBERS, agent="muzero"),
        _at(symptoms.far_below, lambda x: [{"policy_entropy": x}], -11.9, -12.1, agent="sac", spec=_TWO_NUMBERS),
        _at(
            symptoms.far_below,
            lambda x: [{"policy_entropy": -99}, *_returns(-9, x, x, x, policy_entropy=0)],
            -4,
            -6,
            agent="sac",
            spec=_TWO_NUMBERS,
        ),
        _at(
            symptoms.undecided,
            lambda share: _returns(*[9] * 21, policy_entropy=share * math.log(2)),
            0.99,
            1.0,
            agent="vtrace",
        ),
        (
            symptoms.undecided,
            _case(*_returns(*[9] * 21, policy_entropy=math.log(2)), agent="vtrace", vtrace__entropy_weight=1.0),
            _case(*_returns(9, policy_entropy=0.6), *_returns(*[9] * 3, policy_entropy=0.69), agent="vtrace"),
        ),
        _at(
            symptoms.clipped_gradients,
            lambda norm: [{"grad_clipped": 1.0, "grad_norm": norm}] * 3,
            14.0,
            16.0,
            optimizer__clip_norm=0.5,
        ),
        _pair(
            symptoms.clipped_gradients,
            [{"grad_clipped": 0.9, "grad_norm": 16.0}] * 3,
            [{"grad_clipped": 1.0, "grad_norm": "inf"}] * 3,
            optimizer__clip_norm=0.5,
        ),
        # sums over 320 steps, twice CartPole's
        _at(
            symptoms.clipped_gradients,
            lambda norm: [{"grad_clipped": 1.0, "grad_norm": norm}],
            59.0,
            61.0,
            agent="vtrace",
            vtrace__batch_size=16,
            optimizer__clip_norm=1.0,
        ),
        _at(symptoms.refused, lambda x: [{"num_rejected": x}], 0.0, 0.02),
        _at(symptoms.large_steps, lambda x: [{"policy_kl": x}], 0.09, 0.11),
        _at(symptoms.stale, lambda x: [{"importance_mean": x, "policy_lag": 9.0}], 0.91, 0.89, agent="vtrace"),
        _at(symptoms.link_is_limit, lambda x: [{"link_environments_needed": x, "round_trip_seconds": 0.1}], 0, 640),
        _at(symptoms.worse_greedily, lambda x: [*_RISEN, {"update": 4_000, "evaluation_mean_return": x}], 21.0, 19.0),
        # an evaluation of long ago
        _at(symptoms.worse_greedily, lambda x: [*_RISEN, {"update": x, "evaluation_mean_return": 9.0}], 1_900, 2_100),
    ],
)
def test_a_symptom_begins_at_its_limit(find: _Find, healthy: symptoms.RunCase, sick: symptoms.RunCase) -> None:
    assert find(healthy) == ""
    assert find(sick) != ""


@pytest.mark.parametrize("update", [1, 400])
def test_a_policy_that_had_learned_before_the_first_row_is_healthy(update: int) -> None:
    """A quick task: the first row's return is nearly the best; the evaluation before it, if any, was not."""
    rows, every = _returns(0.9, 1.0, 1.0, policy_entropy=0.01), {"evaluation__every_updates": 401}
    assert not symptoms.decided(_case(*rows))
    assert not symptoms.decided(_case({"update": update, "evaluation_mean_return": -0.6}, *rows, **every))
    flat = _returns(1.0, 1.0, 1.0, policy_entropy=0.01)
    assert symptoms.decided(_case({"update": update, "evaluation_mean_return": 1.0}, *flat, **every))


def _at_once(*returns: float, newest: float = 0.93, random: float | None = None) -> symptoms.RunCase:
    """A run whose first evaluation returned 0.93; 60 thousand steps later the policy is decided."""
    rows = _returns(*returns, policy_entropy=0.05, env_steps=60_000)
    evaluated = {"update": 600, "evaluation_mean_return": newest}
    first = {"update": 1, "evaluation_mean_return": 0.93}
    found = _case(first, *rows, evaluated, evaluation__every_updates=500)
    return found._replace(random_return=random)


@pytest.mark.parametrize("find", [symptoms.decided, symptoms.not_risen])
def test_a_run_that_was_solved_at_its_first_evaluation_is_healthy(find: _Find) -> None:
    assert not find(_at_once(0.88, 0.92, 0.93, 0.93))
    assert not find(_at_once(0.88, 0.92, 0.93, 0.93, random=0.1))
    assert find(_at_once(0.93, 0.92, 0.92, 0.92)), "training has not come up to it"
    assert find(_at_once(0.88, 0.92, 0.93, 0.93, random=0.9)), "no better than random actions"
    assert find(_at_once(0.72, 0.78, 0.79, 0.79)), "below the first evaluation"


def test_training_may_still_rise_to_the_first_evaluation() -> None:
    assert not symptoms.not_risen(_at_once(0.43, 0.64, 0.66, 0.66))
    assert symptoms.not_risen(_at_once(0.43, 0.64, 0.66, 0.66, newest=0.5)), "evaluations have fallen"


def test_a_later_evaluation_below_the_first_is_a_collapse() -> None:
    assert symptoms.decided(_at_once(0.88, 0.92, 0.93, 0.93, newest=0.5))


@pytest.mark.parametrize("name", ["info/is_success", "evaluation_info/is_success"])
def test_a_return_without_a_success_has_not_risen(name: str) -> None:
    def rows(success: float) -> list[dict[str, Any]]:
        evaluated = {"update": 9, "evaluation_mean_return": -1.0}
        kind = [{name: success, **(evaluated if name.startswith("evaluation") else row)} for row in _RISEN[:1]]
        return [*_RISEN, *kind, *_RISEN[-1:]]

    assert "is_success" in symptoms.not_risen(_case(*rows(0.0)))
    assert not symptoms.not_risen(_case(*rows(0.1)))


@pytest.mark.parametrize(
    ("evaluated", "deviation", "policy", "agent", "sick"),
    [
        (-0.24, 0.7, "auto", "ppo", True),
        (-0.24, 0.7, "greedy", "vtrace", True),
        (-0.24, 0.7, "auto", "apex", True),
        (-0.24, 0.7, "sample", "ppo", False),
        (-0.24, 9.0, "auto", "ppo", False),  # within the errors
        (0.45, 0.01, "auto", "ppo", False),  # beyond them, but near
    ],
)
def test_greedy_play_is_worse_by_more_than_the_errors(
    evaluated: float, deviation: float, policy: str, agent: str, *, sick: bool
) -> None:
    scores = {"evaluation_mean_return": evaluated, "evaluation_std_return": deviation, "evaluation_episodes": 100}
    rows = [{"update": number, **row} for number, row in enumerate(_returns(-3.0, 0.2, 0.5, 0.5, 0.5), 900)]
    found = symptoms.worse_greedily(_case(*rows, {"update": 900, **scores}, agent=agent, evaluation__policy=policy))
    assert bool(found) is sick
    assert ("--policy=sample" in found) is (sick and agent != "apex")


def test_evaluations_without_the_rewards_of_training_are_not_compared_with_it() -> None:
    rows = [*_returns(0.2, 1.4, 1.4, 1.4), {"update": 4_000, "evaluation_mean_return": 0.4}]
    assert symptoms.worse_greedily(_case(*rows, agent="vtrace"))
    assert not symptoms.worse_greedily(_case(*rows, agent="vtrace", env__checkpoint_rewards=True))


def test_a_policy_that_decided_after_the_first_row_is_to_have_a_risen_return() -> None:
    rows = _returns(0.9, 1.0, 1.0, policy_entropy=0.01)
    assert symptoms.decided(_case(*_returns(0.9, policy_entropy=0.69), *rows))


def test_without_a_spec_or_returns_nothing_is_said_about_the_policy() -> None:
    rows = _returns(9, 9, 9, policy_entropy=-99.0)
    for find in (symptoms.decided, symptoms.undecided, symptoms.far_below):
        assert find(_case(*rows, agent="sac", spec=None)) == ""
    assert symptoms.decided(_case(*[{"policy_entropy": 0.0}] * 3)) == ""


def test_sides_of_a_game_have_values_of_1_and_their_means_are_small() -> None:
    rows = [{"v": 0.1, "value_target_mean": 0.02}] * 3
    find = _FAR
    assert find(_case(*rows, agent="muzero"))
    assert not find(_case(*rows, agent="muzero", spec=types.EnvSpec((9,), "float32", 9, num_players=2)))


@pytest.mark.parametrize(
    ("find", "rows"),
    [
        (symptoms.decided, _returns(0.1, -0.1, 0, 0.1, policy_entropy=0.1)),
        (symptoms.undecided, _returns(*[0.1] * 21, policy_entropy=2.197)),
        (symptoms.policy_loss, [{"loss_policy": 2}, {"loss_policy": 9}, *_returns(0.1, -0.1, -0.1, loss_policy=2)]),
    ],
)
def test_the_return_of_self_play_never_rises_and_shows_nothing(find: _Find, rows: list[dict[str, Any]]) -> None:
    spec = types.EnvSpec((9,), "float32", 9)
    assert find(_case(*rows, agent="muzero", spec=spec))
    two_players = dataclasses.replace(spec, num_players=2)
    assert not find(_case(*rows, agent="muzero", spec=two_players))
    early = _case({"update": 10, "policy_entropy": 0.1}, agent="muzero", spec=two_players)
    assert symptoms.decided(early), "of the first optimizer steps"


_NAMES = ("first", "second")
_SEATS = types.EnvSpec((11,), "float32", 2, tasks=_NAMES, seats=_NAMES)


@pytest.mark.parametrize(
    ("find", "agent", "rows"),
    [
        (symptoms.same_return, "ppo", _returns(0, 0, 0)),
        (symptoms.decided, "ppo", _returns(0, 0.001, -0.001, 0, policy_entropy=0.01)),
        (symptoms.undecided, "vtrace", _returns(*[0.001] * 21, policy_entropy=0.693)),
        (
            symptoms.worse_greedily,
            "ppo",
            [*_returns(-0.001, 0.002), {"update": 2_500, "evaluation_mean_return": -0.3}, *_returns(0.002)],
        ),
        (symptoms.value_loss, "vtrace", _returns(0, 0, 0, loss_value=9.0, value_target_mean=0.01)),
        (symptoms.value_loss, "apex", _returns(0, 0, 0, loss=9.0, q_target_mean=0.01)),
        (
            symptoms.far_from("value_mean", "value_target_mean"),
            "ppo",
            [{"value_mean": 0.1, "value_target_mean": 0.02}] * 3,
        ),
        (symptoms.far_from("q_mean", "q_target_mean"), "apex", [{"q_mean": -2.0, "q_target_mean": 0.02}] * 3),
    ],
)
def test_returns_of_all_seats_have_a_mean_of_0_and_show_nothing(
    find: _Find, agent: str, rows: list[dict[str, Any]]
) -> None:
    assert find(_case(*rows, agent=agent))
    assert not find(_case(*rows, agent=agent, spec=_SEATS))


def test_normalized_values_of_seats_explode_as_others_do() -> None:
    rows = _returns(0, loss_value=31.0, value_target_mean=0.01)
    assert symptoms.value_loss(_case(*rows, reward__normalize=True, spec=_SEATS))
    find = symptoms.far_from("value_mean", "value_target_mean")
    for mean, is_far in ((0.1, False), (0.4, True)):
        rows = [{"value_mean": mean, "value_target_mean": 0.02}] * 3
        assert bool(find(_case(*rows, reward__normalize=True, spec=_SEATS))) == is_far


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", 1e300])
def test_numbers_that_are_not_finite_raise_nothing(value: object) -> None:
    names = [
        "v",
        "value_target_mean",
        "loss",
        "loss_value",
        "policy_entropy",
        "policy_kl",
        "grad_norm",
        "episode_return",
    ]
    case = _case(*[dict.fromkeys(names, value)] * 3)
    found = (
        symptoms.value_loss,
        symptoms.decided,
        symptoms.undecided,
        symptoms.same_return,
        symptoms.large_steps,
        _FAR,
    )
    for find in found:
        assert isinstance(find(case), str)


def _late(*returns: float, evaluated: tuple[float, ...] = (), **settings: Any) -> symptoms.RunCase:
    rows = [{**row, "env_steps": 20_000 * number} for number, row in enumerate(_returns(*returns), 1)]
    evaluations = [{"update": 500 * number, "evaluation_mean_return": value} for number, value in enumerate(evaluated)]
    return _case(*evaluations[:1], *rows, *evaluations[1:], evaluation__every_updates=1_000, **settings)


@pytest.mark.parametrize(
    ("returns", "evaluated", "random", "above"),
    [
        ((21.0, 22.0, 21.5), (9.8, 9.3, 9.4, 9.35), 22.3, "22.3 of random actions"),  # V-trace, learning rate times 50
        ((9.9, 18.0, 20.0), (9.3, 9.4), 22.3, "22.3 of random actions"),  # above its own beginning alone
        ((9.9, 18.0, 20.0), (9.3, 9.4), None, ""),
        ((22.0, 22.4, 22.3), (), None, "22 of the first episodes"),
        ((22.0, 22.4, 22.3), (50.0, 9.0), 22.3, "50 of the first evaluation"),
        ((-0.6, -0.6, -0.6), (-0.8, -0.2), -0.6, ""),
        ((-0.6, -0.6, -0.6), (-0.2, -0.8), -0.6, "-0.2 of the first evaluation"),
        ((22.0, 22.4, 22.3), (9.0, 9.0, 34.0, 120.0), 22.3, ""),  # greedy play alone
        ((20.0, 60.0, 110.0), (9.0, 9.0), 22.3, ""),
        ((-1200.0, -700.0, -400.0), (), -1250.0, ""),
    ],
)
def test_a_return_that_has_not_risen_is_found(
    returns: tuple[float, ...], evaluated: tuple[float, ...], random: float | None, above: str
) -> None:
    case = _late(*returns, evaluated=evaluated)._replace(random_return=random)
    found = symptoms.not_risen(case)
    assert bool(found) == bool(above) and above in found
    assert ("check-env" in found) == bool(above and random is None)


@pytest.mark.parametrize(
    ("agent", "number", "settings", "is_early"),
    [
        ("vtrace", 2, {}, True),  # 40,000 steps, 2,000 updates
        ("vtrace", 3, {}, False),
        ("muzero", 5, {}, False),
        ("ppo", 2, {"ppo__num_epochs": 1, "ppo__num_minibatches": 3}, False),  # 6,000 steps of the optimizer
        ("vtrace", 3, {"run__max_env_steps": 120_001}, True),
        ("vtrace", 3, {"run__max_env_steps": 120_000}, False),
    ],
)
def test_a_return_has_time_to_rise(agent: str, number: int, settings: dict[str, Any], is_early: bool) -> None:
    assert symptoms.is_early_to_rise(_late(*[1.0] * number, agent=agent, **settings)) == is_early
