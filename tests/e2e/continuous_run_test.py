"""Continuous actions by the command line, with a preset that was not made for them: train and evaluate."""

from __future__ import annotations

import e2e_harness as harness
import pytest

SMALL = (
    *harness.TINY,
    "--env=gym:Pendulum-v1",
    "--search.num_sampled=4",
    "--max_updates=20",
)


@pytest.mark.thorough
def test_a_run_of_continuous_actions_is_trained_and_evaluated(host: harness.Host) -> None:
    path = host.directory / "pendulum"
    host.train(path, *SMALL).wait().ok()
    again = host.seedzero("evaluate", f"--run_dir={path}", "--episodes=2").ok()
    assert -2000 < again.json["mean_return"] < 0 and again.json["mean_length"] == 200
