"""Returns and lengths of episodes, step by step."""

import numpy as np
import pytest

from seedzero.evaluation import episodes


def _play(rewards: list[float], num_players: int) -> episodes.Episode:
    """Plays an episode in slot 1, after a few rewards of one that was given up."""
    followed = episodes.Episodes(2, num_players)
    ended: list[episodes.Episode] = []

    def record(reward: float, *, first: bool, final: bool) -> None:
        ended.extend(followed.record(np.array([1]), np.array([reward]), np.array([first]), np.array([final])))

    for number in range(3):
        record(float(number), first=number == 0, final=False)
    record(0.0, first=True, final=False)
    for number, reward in enumerate(rewards):
        record(reward, first=False, final=number == len(rewards) - 1)
    (episode,) = ended
    return episode


def test_a_return_is_the_sum_of_the_rewards() -> None:
    assert _play([1.0, 2.0, 4.0], num_players=1) == episodes.Episode(slot=1, total=7.0, length=3)


@pytest.mark.parametrize(("rewards", "total"), [([1.0, 2.0, 4.0], 3.0), ([0.0, 0.0, 0.0, 1.0], -1.0), ([1.0], 1.0)])
def test_of_two_players_it_is_what_the_first_mover_received(rewards: list[float], total: float) -> None:
    assert _play(rewards, num_players=2) == episodes.Episode(slot=1, total=total, length=len(rewards))
