"""What a model knows about the next step, with games and numbers worked out by hand."""

from __future__ import annotations

import model_quality  # see conftest.py
import numpy as np


class _Game:
    """Place 0 to 3: action 1 goes on, action 0 stays; the step to 2 earns 5, the one to 3 ends it."""

    def __init__(self) -> None:
        self.place = 0

    def reset(self) -> None:
        self.place = 0

    def minimal_action_set(self) -> list[int]:
        return [0, 1]

    def state(self) -> np.ndarray:
        return np.eye(4)[self.place]

    def act(self, action: int) -> tuple[int, bool]:
        self.place += action
        return 5 * (action == 1 and self.place == 2), self.place == 3


def test_states_are_those_in_which_actions_differ() -> None:
    found = model_quality.choices(_Game(), 20, seed=0)
    places = found.observation.argmax(axis=1)
    assert set(places) == {1, 2}  # at 0 both actions lead to nothing
    for place, ends, reward in zip(places, found.ends.tolist(), found.reward.tolist(), strict=True):
        assert (ends, reward) == (([False, False], [0.0, 5.0]) if place == 1 else ([False, True], [0.0, 0.0]))


def test_the_share_is_of_pairs_within_a_state() -> None:
    q = np.array([[3.0, 2.0, 1.0], [0.0, 5.0, 9.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    better = np.array([[True, False, False], [True, False, True], [False, False, False], [True, False, False]])
    worse = np.array([[False, True, True], [False, True, False], [True, True, True], [False, True, True]])
    # 2 of 2 pairs in the first state, 1 of 2 in the second; the third has no better one, and the last ones are ties.
    assert model_quality.share_ranked(q, better, worse) == (2 / 3, 3)
