"""Q-learning's targets and priorities against numbers worked by hand, and against rlax's."""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Any

import jax
import numpy as np
import pytest

from seedzero.ops import q_learning

RLAX = json.loads((pathlib.Path(__file__).parent / "q_learning_rlax.json").read_text())
"""Written by rlax_reference.py."""

VALUE = np.array([1.0, 2.0, 3.0, 4.0, 8.0], np.float32)
REWARD = np.array([10.0, 20.0, 40.0, 80.0], np.float32)
HALF, EVERYWHERE = np.full(4, 0.5, np.float32), np.ones(4, bool)


@functools.cache
def _returns(n_step: int) -> Any:
    return jax.jit(functools.partial(q_learning.n_step_returns, n_step=n_step))


def _returned(n_step: int, discount: Any = HALF, is_step: Any = EVERYWHERE, value: Any = VALUE) -> np.ndarray:
    """Returns the returns [4] of four steps in a row."""
    rows = (REWARD, discount, value, is_step)
    return np.asarray(_returns(n_step)(*(np.asarray(x)[None] for x in rows)))[0]


def test_a_return_has_n_rewards_and_the_value_behind_them_and_is_shorter_at_the_end() -> None:
    # 10 + 2/2, 20 + 3/2, 40 + 4/2, 80 + 8/2
    np.testing.assert_allclose(_returned(1), [11.0, 21.5, 42.0, 84.0])
    # 10 + 20/2 + 40/4 + 4/8, 20 + 40/2 + 80/4 + 8/8, then 40 + 80/2 + 8/4 and 80 + 8/2: no more is known
    np.testing.assert_allclose(_returned(3), [30.5, 61.0, 82.0, 84.0])


def test_a_terminated_episode_ends_its_returns() -> None:
    ends = np.array([0.5, 0.0, 0.5, 0.5], np.float32)
    follows = np.array([True, True, False, True])  # nothing is done on the last observation
    # 10 + 20/2, 20, its own value, and the next episode: 80 + 8/2
    np.testing.assert_allclose(_returned(3, ends, follows), [20.0, 20.0, 3.0, 84.0])


def test_the_last_observation_of_a_truncated_episode_bootstraps() -> None:
    follows = np.array([True, True, False, True])
    # 10 + 20/2 + 3/4, 20 + 3/2
    np.testing.assert_allclose(_returned(3, is_step=follows), [20.75, 21.5, 3.0, 84.0])


def test_nothing_behind_the_last_observation_enters() -> None:
    follows = np.array([True, True, False, False])
    value = np.array([np.nan, np.nan, 3.0, np.nan, np.nan], np.float32)
    np.testing.assert_allclose(_returned(3, is_step=follows, value=value)[:2], [20.75, 21.5])


def test_the_best_action_is_a_legal_one() -> None:
    q = np.array([[1.0, 5.0, 3.0], [-9.0, -7.0, -8.0]], np.float32)
    assert q_learning.best_action(q, None).tolist() == [1, 1]
    legal = np.array([[True, False, True], [True, False, False]])
    assert q_learning.best_action(q, legal).tolist() == [2, 0]
    assert q_learning.of_action(q, np.array([2, 0])).tolist() == [3.0, -9.0]


def test_the_scale_squashes_and_expands_or_leaves_values_alone() -> None:
    squash, expand = q_learning.scale(rescale=True)
    # sqrt(99 + 1) - 1 + 99 / 1000
    np.testing.assert_allclose(squash(np.float32(99.0)), 9.099, rtol=1e-6)
    np.testing.assert_allclose(expand(np.float32(9.099)), 99.0, rtol=1e-5)
    squash, expand = q_learning.scale(rescale=False)
    assert (squash(np.float32(99.0)), expand(np.float32(99.0))) == (99.0, 99.0)


def test_a_sequence_has_the_priority_of_its_largest_and_its_mean_error() -> None:
    error = np.array([[1.0, -4.0, 1.0, 99.0], [3.0, 99.0, 99.0, 99.0], [99.0] * 4], np.float32)
    is_step = np.array([[True, True, True, False], [True, False, False, False], [False] * 4])
    # 0.9 * 4 + 0.1 * 6/3; 3; nothing is known
    np.testing.assert_allclose(q_learning.sequence_priority(error, is_step, eta=0.9), [3.8, 3.0, 0.0], rtol=1e-6)


@functools.cache
def _error(n_step: int, rescale: bool) -> Any:
    def error(online: Any, target: Any, action: Any, reward: Any, discount: Any) -> jax.Array:
        scale = q_learning.scale(rescale=rescale)
        value = scale.expand(q_learning.of_action(target, q_learning.best_action(online, None)))
        rows = (x[None] for x in (reward, discount, value, discount >= 0))
        returns = q_learning.n_step_returns(*rows, n_step=n_step)[0]
        return scale.squash(returns) - q_learning.of_action(online[:-1], action)

    return jax.jit(error)


@pytest.mark.parametrize("case", RLAX, ids=lambda case: f"n{case['n_step']}-rescale{case['rescale']}")
def test_errors_of_double_q_learning_over_n_steps_are_those_of_rlax(case: dict[str, Any]) -> None:
    names = ("online", "target", "reward", "discount")
    online, target, reward, discount = (np.asarray(case[name], np.float32) for name in names)
    found = _error(case["n_step"], case["rescale"])(online, target, np.asarray(case["action"]), reward, discount)
    np.testing.assert_allclose(found, case["error"], atol=1e-4)


def test_the_cases_of_rlax_cover_lengths_scales_and_ends() -> None:
    assert {(case["n_step"], case["rescale"]) for case in RLAX} == {(n, h) for n in (1, 3, 5) for h in (False, True)}
    assert sum(0.0 in case["discount"] for case in RLAX) >= 5
