from __future__ import annotations

from seedzero.replay import data


def test_a_replays_window_has_the_positions_and_observations_that_it_names() -> None:
    replay = data.Replay(length=6, observe=(0, 5))
    assert data.num_positions(replay) == 6
    assert data.observed_positions(replay) == (0, 5)


def test_an_unroll_has_one_position_more_than_steps_and_all_are_observed() -> None:
    queue = data.Queue(length=3, batch_size=2, max_lag=1, wait_seconds=0.0)
    assert data.num_positions(queue) == 4
    assert data.observed_positions(queue) == (0, 1, 2, 3)
