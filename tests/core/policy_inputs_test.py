"""Rewards, masks and rows that callers give to a policy: what is taken, and what is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seedzero.core import errors, policy_inputs, types

PLAIN, MASKED = types.EnvSpec((2,), "float32", 3), types.EnvSpec((2,), "float32", 3, has_action_mask=True)
FIRST = np.array([True, False])


def _given(spec: types.EnvSpec = PLAIN, reward: Any = None, mask: Any = None, **given: Any) -> Any:
    given = {"is_single": False, "reads_reward": False, **given}
    return policy_inputs.rewards_and_mask(spec, FIRST, reward, mask, **given)


def test_a_number_is_every_row_s_reward_and_none_is_zero() -> None:
    for reward, expected in ((None, [0, 0]), (0.5, [0.5, 0.5]), ([1, 2], [1, 2])):
        rewards, mask = _given(reward=reward)
        assert rewards.tolist() == expected and rewards.dtype == np.float32 and mask is None
    single = policy_inputs.rewards_and_mask(MASKED, FIRST[:1], 1.0, [0, 1, 1], is_single=True, reads_reward=True)
    assert single[0].tolist() == [1.0] and single[1] is not None and single[1].tolist() == [[False, True, True]]


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"reads_reward": True}, "reward is missing"),
        ({"reward": [1, 2, 3]}, r"reward has the shape \[3\]; expected \[2\]"),
        ({"mask": np.ones((2, 3))}, "no action mask"),
        ({"spec": MASKED}, "has an action mask"),
        ({"spec": MASKED, "mask": np.ones(3)}, r"action_mask has the shape \[3\]; expected \[2, 3\]"),
        ({"spec": MASKED, "mask": np.full((2, 3), 0.5)}, "expected bool"),
    ],
)
def test_faults_are_named(given: dict[str, Any], part: str) -> None:
    with pytest.raises(errors.UsageError, match=part):
        _given(**given)


def test_rows_begin_an_episode_by_number_or_by_truth_value() -> None:
    for rows, expected in (([1], [False, True, False]), ([True, False, True], [True, False, True]), ([], [False] * 3)):
        first = np.zeros(3, bool)
        policy_inputs.restart(first, rows)
        assert first.tolist() == expected
    with pytest.raises(errors.UsageError, match=r"rows \[3\]: expected numbers from 0 to 2"):
        policy_inputs.restart(np.zeros(3, bool), [3])
