"""The benchmark runs and reports what it promises; how fast is for a quiet machine to say."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.core import errors, types
from seedzero.interfaces.benchmark import environments


@pytest.mark.thorough
@pytest.mark.parametrize(("env_id", "num_bytes"), [("catch", 50), ("gym:Pendulum-v1", 12), ("spiel:tic_tac_toe", 144)])
def test_benchmark_reports_both_rates_and_their_share(env_id: str, num_bytes: int) -> None:
    settings = {"env.id": env_id, "worker.envs_per_group": 3, "worker.num_groups": 2, "worker.threads": 1}
    figures = environments.run(settings=settings, seconds=0.3)
    assert figures["steps_per_second"] > 0
    assert figures["alone_steps_per_second"] > 0
    assert 0 < figures["share_of_alone"] < 5
    others = {key: figures[key] for key in ("environment", "environments", "groups", "threads", "observation_bytes")}
    assert others == {
        "environment": env_id,
        "environments": 6,
        "groups": 2,
        "threads": 1,
        "observation_bytes": num_bytes,
    }


def test_actions_are_legal_and_random_where_they_may_be() -> None:
    zeros, flags = np.zeros(3, np.float32), np.zeros(3, bool)
    mask = np.array([[True, True, True], [True, False, True], [True, False, False]])
    drawn = np.array([1, 1, 2], np.int32)
    assert environments._legal(drawn, types.EnvStep(zeros, zeros, flags, flags, mask)).tolist() == [1, 2, 0]
    assert environments._legal(drawn, types.EnvStep(zeros, zeros, flags, flags)) is drawn


@pytest.mark.parametrize("seed", range(4))
def test_actions_are_independent_of_the_environments_numbers(seed: int) -> None:
    spec = types.EnvSpec((1,), "float32", 1000)
    actions = environments._actions(spec, 1)
    numbers = np.random.default_rng(seed).integers(1000, size=10)  # of the environment of this seed
    assert sum(int(next(actions)[0]) == number for number in numbers) < 5


def test_an_environment_that_cannot_be_made_is_refused_before_anything_starts() -> None:
    with pytest.raises(errors.EnvironmentFailure, match="nothing-v0"):
        environments.run(settings={"env.id": "gym:nothing-v0"})


@pytest.mark.thorough
def test_rows_that_are_seats_are_measured_in_whole_games() -> None:
    figures = environments.run(settings={"env.id": "spiel:kuhn_poker(players=3)", "worker.threads": 1}, seconds=0.2)
    assert figures["environments"] == 2 * 18 and figures["steps_per_second"] > 0  # of 16 in each group
