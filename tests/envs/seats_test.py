import numpy as np

from seedzero.envs import seats


def test_random_actions_are_legal_and_equally_likely():
    generator = np.random.default_rng(0)
    drawn = [seats.random_action(np.array([False, True, False, True]), generator) for _ in range(1000)]
    counts = np.bincount(drawn, minlength=4)
    assert counts[0] == counts[2] == 0 and 440 < counts[1] < 560
