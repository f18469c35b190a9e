"""`--deterministic`: the same bits for the same seed, also across a kill -9."""

from __future__ import annotations

import pathlib
import signal
from typing import Any

import e2e_harness as harness
import numpy as np
import pytest

from seedzero.checkpoints import files as saved_files

UPDATES, EVERY = 60, 20
OPTIONAL = (
    "--replay.priority_alpha=0.6",
    "--reanalyse.per_insert=0.5",
    "--reanalyse.min_age=4",
    "--reanalyse.batch_size=16",
)
RUN = (
    *harness.TINY,
    "--deterministic",
    "--batcher.max_batch=24",
    f"--max_updates={UPDATES}",
    f"--checkpoint.every_updates={EVERY}",
    "--metrics.every_updates=10",
    "--evaluation.every_updates=25",
    "--evaluation.episodes=6",
    "--evaluation.num_envs=4",
)
SMALL = (
    "--stop_at_return=inf",
    "--deterministic",
    "--worker.envs_per_group=4",
    f"--max_updates={UPDATES}",
    f"--checkpoint.every_updates={EVERY}",
    "--metrics.every_updates=10",
    "--metrics.tensorboard=false",
    "--evaluation.every_updates=0",
)
REPLAY = (
    "--replay.batch_size=16",
    "--replay.min_steps=100",
    "--replay.capacity=2000",
    "--replay.samples_per_insert=1",
)
OTHERS = {
    "apex": ("--preset=catch", "--apex.width=16", "--apex.target_updates=15", *REPLAY),
    "r2d2": ("--preset=catch", "--r2d2.width=16", "--r2d2.lstm_width=8", "--r2d2.target_updates=15", *REPLAY),
    "ppo": ("--preset=catch", "--ppo.width=16", "--ppo.batch_size=8", "--ppo.decay_updates=100"),
    "sac": ("--preset=continuous", "--sac.width=16", *REPLAY),
}
APART = {
    "vtrace": ("--preset=catch", "--vtrace.width=16", "--vtrace.batch_size=8"),
    "ppo": OTHERS["ppo"],
}
"""Agents with a queue."""


def _rows(run: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the values of a run's metrics that do not depend on the clock."""
    times = ("_seconds", "_per_second")
    return [
        {key: value for key, value in row.items() if key not in ("seconds", "time") and not key.endswith(times)}
        for row in harness.metrics_rows(run)
    ]


def _same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def reference(module_host: harness.Host) -> pathlib.Path:
    """A run of seed 3 from beginning to end, quickly compiled; the slow tests compile as users do."""
    run = module_host.directory / "reference"
    assert module_host.train(run, *RUN, "--seed=3").wait().code == 0
    assert harness.saved_steps(run)[-1] == UPDATES
    assert len(_rows(run)) > UPDATES // 10
    return run


def _assert_equal(run: pathlib.Path, reference: pathlib.Path) -> None:
    assert _same(harness.saved_params(run), harness.saved_params(reference))
    assert _rows(run) == _rows(reference)


def _killed_run(host: harness.Host, directory: pathlib.Path, *words: str) -> pathlib.Path:
    """Returns a run that was killed later than a checkpoint: steps, updates and rows have to come again just so.

    A run is through within a second or two. Where a busy machine asks it too late another one is begun.
    """
    for attempt in range(5):
        run = directory / f"run-{attempt}"
        learner = host.train(run, *words)

        def is_ripe_or_over(learner: harness.Learner = learner) -> bool:
            found = learner.status()
            is_ripe = found and found["durable_update"] and found["updates"] % EVERY > 3
            return bool(is_ripe) or learner.popen.poll() is not None

        harness.wait_for(is_ripe_or_over, "work to lose")
        if learner.popen.poll() is None:
            learner.send(signal.SIGKILL)
        ended = learner.wait()
        if list(saved_files.manifests(run / "checkpoints"))[-1].step < UPDATES:
            assert ended.code == -signal.SIGKILL, ended.err
            return run
    raise AssertionError("every run was through before it could be killed")


def test_a_seed_gives_the_same_bits_and_metrics_though_killed_and_resumed(
    host: harness.Host, tmp_path: pathlib.Path, reference: pathlib.Path
) -> None:
    run = _killed_run(host, tmp_path, *RUN, "--seed=3")
    resumed = host.train(run, *RUN, "--seed=3")
    assert int(resumed.says(harness.RESUMED)[1]) % EVERY == 0
    assert resumed.wait().code == 0
    _assert_equal(run, reference)


@pytest.mark.slow  # tests/learner and tests/device have each part within a process
@pytest.mark.parametrize("as_users_do", [False, True], ids=["quick", "as-users-do"])
def test_a_killed_run_with_priorities_and_reanalysis_equals_one_with_host_frames(
    host: harness.Host, tmp_path: pathlib.Path, reference: pathlib.Path, as_users_do: bool
) -> None:
    if as_users_do:
        host.compile_as_users_do()
    whole = tmp_path / "whole"
    assert host.train(whole, *RUN, *OPTIONAL, "--seed=3").wait().code == 0
    settings = (*RUN, *OPTIONAL, "--seed=3", "--replay.placement=host")
    run = _killed_run(host, tmp_path, *settings)
    assert host.train(run, *settings).wait().code == 0
    _assert_equal(run, whole)
    if not as_users_do:  # else what is compiled differs, too
        assert not _same(harness.saved_params(whole), harness.saved_params(reference))
    last = [row for row in _rows(whole) if row.get("kind") != "evaluation"][-1]
    assert last["priority_max"] >= 1.0 and last["refresh_age"] > 4
    assert last["refreshed_per_insert"] == pytest.approx(0.5, rel=0.05)
    assert not [name for row in _rows(reference) for name in row if "refresh" in name]


@pytest.mark.slow
@pytest.mark.parametrize("num_acting", [4, 2])
def test_a_run_on_devices_apart_has_the_same_bits_and_metrics_though_killed(
    host: harness.Host, tmp_path: pathlib.Path, num_acting: int
) -> None:
    """Four of eight devices learn, or six."""
    host.environment["XLA_FLAGS"] += " --xla_force_host_platform_device_count=8"
    shares = ("--replay.batch_size=24", "--reanalyse.batch_size=24", "--replay.num_slots=8")
    settings = (*RUN, *OPTIONAL, *shares, "--seed=3", f"--training.acting_devices={num_acting}")
    whole = tmp_path / "whole"
    assert host.train(whole, *settings).wait().code == 0
    run = _killed_run(host, tmp_path, *settings)
    assert host.train(run, *settings).wait().code == 0
    _assert_equal(run, whole)
    if num_acting == 4:  # a larger budget, and then all eight do everything
        longer = host.train(run, *settings, f"--max_updates={UPDATES + EVERY}", "--training.acting_devices=0")
        assert longer.says(r"training\.acting_devices was 4, is 0 from now on")
        assert longer.wait().code == 0 and harness.saved_steps(run)[-1] == UPDATES + EVERY


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "is_apart"), [*((agent, False) for agent in OTHERS), *((agent, True) for agent in APART)]
)
def test_each_agent_has_the_same_bits_and_metrics_though_killed_between_checkpoints(
    host: harness.Host, tmp_path: pathlib.Path, agent: str, *, is_apart: bool
) -> None:
    host.compile_as_users_do()
    settings = (*(APART if is_apart else OTHERS)[agent], *SMALL, f"--agent={agent}", "--seed=3")
    if is_apart:
        host.environment["XLA_FLAGS"] = (
            host.environment.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
        )
        settings += ("--training.acting_devices=1",)
    whole = tmp_path / "whole"
    ended = host.train(whole, *settings).wait()
    assert ended.code == 0, ended.err
    run = _killed_run(host, tmp_path, *settings)
    assert host.train(run, *settings).wait().code == 0
    _assert_equal(run, whole)
    assert harness.saved_steps(run)[-1] == UPDATES and len(_rows(run)) >= UPDATES // 10
