"""The comparison with other systems: its mock environment, its windows, and its table; no other system is needed."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import peers  # see conftest.py
import pytest

mock_env = peers.mock_env

STEPPING = """
import sys, mock_env
print('0 updates/s', flush=True)
envs = [mock_env.make(sys.argv[1]) for _ in range(int(sys.argv[2]))]
[env.reset() for env in envs]
while True:
    for env in envs:
        env.step(0)
"""


@pytest.fixture
def counts(tmp_path: pathlib.Path) -> pathlib.Path:
    mock_env.Counts.make(tmp_path / "counts")
    return tmp_path / "counts"


def test_environments_show_the_same_frames_alone_and_stacked(counts: pathlib.Path) -> None:
    newest, stacked, last = (mock_env.make(str(counts), *more) for more in ((), (4,), (4, True)))
    shown = [env.reset()[0] for env in (newest, stacked, last)]
    for env, seen, shape in zip((newest, stacked, last), shown, ((84, 84), (4, 84, 84), (84, 84, 4)), strict=True):
        assert env.observation_space.contains(seen) and seen.shape == shape
    assert np.array_equal(shown[0], shown[1][-1]) and np.array_equal(shown[1], np.moveaxis(shown[2], -1, 0))
    assert np.array_equal(stacked.step(0)[0][:-1], shown[1][1:]) and not np.array_equal(shown[1][0], shown[1][1])


def test_a_case_changes_the_times_of_running_environments(
    counts: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    slow, quick = mock_env.make(str(counts)), mock_env.make(str(counts))
    for env in (slow, quick):
        env.reset()
        env.step(0)
    assert not slept
    mock_env.Counts(counts).set(peers.CASES["unequal"])
    assert slow.step(0)[2] is True  # an environment's first episode is shorter
    quick.step(0)
    mock_env.Counts(counts).set(peers.CASES["slow-resets"])
    slow.reset()
    assert slept == pytest.approx([0.02, 0.002, 0.2])


def test_a_window_counts_steps_and_processor_seconds() -> None:
    before = peers.Look(10.0, np.array([5, 7]), 1.0)
    found = peers.compare("rllib", before, peers.Look(12.0, np.array([505, 7, 500]), 4.0))
    assert found == peers.Window(500.0, 3.0, 2)
    with pytest.raises(peers.Failure, match=r"rllib: no environment .* 2\.0 s"):
        peers.compare("rllib", before, before._replace(seconds=12.0))


def test_processor_seconds_include_children() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), child.pid} <= peers.processes(os.getpid()).keys()
        assert peers.processes(child.pid).keys() == {child.pid}
        child.communicate(b"\n")
    assert peers.processes(child.pid) == {}


def test_systems_run_in_turn_and_stand_still_meanwhile(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = peers.Job(peers.ACTING, 8, False)
    command = lambda job, path, folder: [sys.executable, "-c", STEPPING, path, str(job.environments)]  # noqa: E731
    monkeypatch.setattr(peers, "own_command", command)
    monkeypatch.setattr(peers, "_WARM_SECONDS", 0.0)
    monkeypatch.setenv("PYTHONPATH", str(peers.ADAPTERS))
    with peers.started(peers.OURS, job, tmp_path) as one, peers.started(peers.OURS, job, tmp_path) as other:
        at_rest = one.num_steps
        found = peers.pairs(other, other, peers.CASES["steps-0"], 1, 0.05)
        assert one.num_steps == at_rest
    assert [each["stepping"] for each in found[peers.THEIRS]] == [8]


def measurement(**changes: object) -> dict[str, object]:
    windows = [{"steps_per_second": x, "processor_seconds_per_thousand": 0.5, "stepping": 16} for x in (1e3, 3e3, 2e3)]
    halves = [{**window, "steps_per_second": window["steps_per_second"] / 2, "stepping": 15} for window in windows]
    row = {"peer": "rllib", "kind": peers.ACTING, "case": "steps-2ms", "environments": 16}
    facts = {"versions": {"jax": "1"}, "peer_versions": {"ray": "2"}, "cores": 2, "processor": "a processor"}
    return {**row, peers.OURS: windows, peers.THEIRS: halves, **facts, **changes}


def test_a_table_has_medians_ranges_ratios_and_failures() -> None:
    text = peers.table([measurement(), measurement(case="unequal", failure="rllib ended with 1: no")])
    assert "2,000 (1,000 to 3,000) | 1,000 (500 to 1,500) | 2.00 (2.00 to 2.00) | 0.50 | 0.50" in text
    assert "rllib ended with 1: no" in text and "ray 2" in text and "jax 1" in text and "2 cores" in text
    assert "only 15 of 16 environments of rllib" in peers.line(measurement())
