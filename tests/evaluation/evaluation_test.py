"""Quotas of episodes."""

import numpy as np

from seedzero.evaluation import evaluation


def _play(lengths: list[int], num_episodes: int) -> evaluation.Evaluation:
    """Environment i has episodes of `lengths[i]` steps with reward 1 each."""
    slots = np.arange(len(lengths)) + 7
    played = evaluation.Evaluation(slots, num_episodes)
    age = np.zeros(len(lengths), int)
    while not played.done:
        final = age == np.array(lengths)
        played.record(slots, (age > 0).astype(np.float32), age == 0, final)
        age = np.where(final, 0, age + 1)
    return played


def test_short_episodes_count_no_more_often_than_long_ones() -> None:
    result = _play([1, 9], num_episodes=4).result()
    assert result == evaluation.Result(
        episodes=4, mean_return=5.0, std_return=4.0, min_return=1.0, max_return=9.0, mean_length=5.0
    )


def test_the_first_environments_play_the_remainder() -> None:
    result = _play([2, 4], num_episodes=3).result()
    assert (result.episodes, result.mean_length) == (3, (2 + 2 + 4) / 3)


def test_only_atari_has_a_human_normalized_score() -> None:
    assert evaluation.human_normalized("catch", 1.0) is None
    score = evaluation.human_normalized("atari:Pong", -20.7)
    assert score is not None and abs(score) < 1e-6
