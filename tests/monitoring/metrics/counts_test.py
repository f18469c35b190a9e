"""The share of updates whose gradient is clipped."""

from __future__ import annotations

import math
import threading

import pytest

from seedzero.config import configs
from seedzero.monitoring.metrics import counts


@pytest.mark.parametrize(("norm", "expected"), [(0.5, 0.0), (0.51, 1.0), (math.inf, 1.0)])
def test_a_gradient_beyond_the_limit_is_clipped(norm: float, expected: float) -> None:
    config = configs.override(configs.Config(), {"run.agent": "ppo", "optimizer.clip_norm": 0.5})
    assert counts.clip_share(counts.clip_limit(config), {"grad_norm": norm}) == {"grad_clipped": expected}
    without = configs.override(config, {"optimizer.clip_norm": 0.0})
    assert counts.clip_share(counts.clip_limit(without), {"grad_norm": norm}) == {}


def test_drain_returns_means_and_totals_and_starts_anew() -> None:
    gathered = counts.Aggregator()
    gathered.add_means({"loss": 1.0, "age": 2.0})
    gathered.add_means({"loss": 4.0}, weight=2.0)
    gathered.add_totals({"idle_seconds": 0.5})
    gathered.add_totals({"idle_seconds": 0.25})
    assert gathered.drain() == {"age": 2.0, "idle_seconds": 0.75, "loss": 3.0}
    assert gathered.drain() == {}


def test_batches_give_mean_fill_rows_and_wait() -> None:
    gathered = counts.Aggregator()
    gathered.add_batch(32, 32, wait_seconds=0.25)
    gathered.add_batch(8, 16, wait_seconds=0.75)
    assert gathered.drain() == {"batch_fill": 0.75, "batch_rows": 20.0, "batch_wait_seconds": 0.5}


def test_episodes_give_mean_return_and_length() -> None:
    gathered = counts.Aggregator()
    gathered.add_episode(1.0, 10)
    gathered.add_episode(-2.0, 20)
    assert gathered.recent_return() == -0.5
    assert gathered.drain() == {"episode_return": -0.5, "episode_length": 15.0, "episodes": 2}


def test_games_against_oneself_are_told_by_the_first_mover_s_return() -> None:
    gathered = counts.Aggregator()
    gathered.add_episode(1.0, 10, num_players=2)
    assert gathered.drain() == {"first_mover_return": 1.0, "episode_length": 10.0, "episodes": 1}


def test_recent_return_outlives_a_row_and_forgets_old_episodes() -> None:
    gathered = counts.Aggregator()
    assert gathered.recent_return() is None
    gathered.add_episode(1e6, 1)
    gathered.drain()
    assert gathered.recent_return() == 1e6
    for _ in range(counts.RECENT_EPISODES):
        gathered.add_episode(3.0, 1)
    assert gathered.recent_return() == 3.0


def test_threads_lose_no_value() -> None:
    gathered = counts.Aggregator()
    inside, go_on = threading.Event(), threading.Event()

    class Slow(float):
        """A number that waits in the middle of an addition, so that another thread may come between."""

        def __radd__(self, other: float) -> float:
            inside.set()
            go_on.wait(10.0)
            return other + float(self)

    slow = threading.Thread(target=gathered.add_totals, args=({"n": Slow(1.0)},))
    quick = threading.Thread(target=gathered.add_totals, args=({"n": 2.0},))
    slow.start()
    assert inside.wait(10.0)
    quick.start()
    quick.join(0.1)  # without a lock it is through by now, and its value about to be overwritten
    go_on.set()
    slow.join()
    quick.join()
    assert gathered.drain() == {"n": 3.0}


def test_numbers_of_the_environment_are_means_over_the_episodes_that_have_them() -> None:
    gathered = counts.Aggregator()
    for info in ({"success": 1.0, "depth": 4.0}, {"success": 0.0}, {}):
        gathered.add_info(info)
    assert gathered.drain() == {"info/depth": 4.0, "info/success": 0.5}


def test_ever_new_names_are_left_out_and_counted() -> None:
    gathered = counts.Aggregator()
    for number in range(70):
        gathered.add_info({str(number): 1.0})
    found = gathered.drain()
    assert len(found) == 65 and found["info_left_out"] == 6.0
    gathered.add_info({"0": 3.0, "70": 1.0})
    assert gathered.drain() == {"info/0": 3.0, "info_left_out": 1.0}
