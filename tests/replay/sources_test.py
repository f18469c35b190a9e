from __future__ import annotations

from seedzero.replay import sources


def test_a_replays_window_has_the_positions_and_observations_that_it_names() -> None:
    replay = sources.Replay(length=6, observe=(0, 5))
    assert sources.num_positions(replay) == 6
    assert sources.observed_positions(replay) == (0, 5)


def test_an_unroll_has_one_position_more_than_steps_and_all_are_observed() -> None:
    queue = sources.Queue(length=3, batch_size=2, max_lag=1, wait_seconds=0.0)
    assert sources.num_positions(queue) == 4
    assert sources.observed_positions(queue) == (0, 1, 2, 3)
