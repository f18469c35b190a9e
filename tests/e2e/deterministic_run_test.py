"""`--deterministic`: the same bits for the same seed, also across a kill -9 and on devices apart."""

from __future__ import annotations

import pathlib

import e2e_harness as harness
import pytest
import run_state

UPDATES, EVERY = 60, 20
ALL = "--training.acting_devices=0"
EVALUATED = ("--evaluation.every_updates=25", "--evaluation.episodes=6", "--evaluation.num_envs=4")
RUN = (*harness.TINY, *harness.lock_step(UPDATES, EVERY), *EVALUATED, "--batcher.max_batch=24", "--seed=3")
OPTIONAL = (
    "--replay.priority_alpha=0.6",
    "--reanalyse.per_insert=0.5",
    "--reanalyse.batch_size=16",
)


@pytest.fixture(scope="module")
def reference(module_host: harness.Host) -> pathlib.Path:
    """A run from beginning to end, quickly compiled; some of the slow tests compile as users do."""
    run = module_host.directory / "reference"
    module_host.train(run, *RUN).wait().ok()
    assert harness.saved_steps(run)[-1] == UPDATES
    assert len(run_state.rows(run)) > 2 * UPDATES // EVERY
    return run


@pytest.mark.thorough
def test_a_seed_gives_the_same_bits_and_metrics_though_killed_and_resumed(
    host: harness.Host, reference: pathlib.Path
) -> None:
    assert run_state.state(run_state.killed_and_resumed(host, *RUN)) == run_state.state(reference)


@pytest.mark.slow  # tests/learner and tests/device have each part within a process
@pytest.mark.parametrize("as_users_do", [False, True], ids=["quick", "as-users-do"])
def test_a_killed_run_with_priorities_and_reanalysis_equals_one_with_host_frames(
    host: harness.Host, tmp_path: pathlib.Path, reference: pathlib.Path, as_users_do: bool
) -> None:
    """Programs that are compiled quickly round alike wherever the frames are; XLA's fusions depend on it."""
    if as_users_do:
        host.compile_as_users_do()
    whole, on_host = tmp_path / "whole", "--replay.placement=host"
    host.train(whole, *RUN, *OPTIONAL, *([on_host] if as_users_do else [])).wait().ok()
    run = run_state.killed_and_resumed(host, *RUN, *OPTIONAL, on_host)
    rows = run_state.rows(whole)
    assert run_state.params(run) == run_state.params(whole) and run_state.rows(run) == rows
    if not as_users_do:  # else what is compiled differs, too
        assert run_state.params(whole) != run_state.params(reference)
    last = [row for row in rows if row.get("kind") != "evaluation"][-1]
    assert last["priority_max"] >= 1.0 and last["refresh_age"] > 4
    assert last["refreshed_per_insert"] == pytest.approx(0.5, rel=0.05)
    assert not [name for row in run_state.rows(reference) for name in row if "refresh" in name]


@pytest.mark.slow
@pytest.mark.parametrize("num_acting", [4, 2])
def test_a_run_on_devices_apart_has_the_same_bits_and_metrics_though_killed(
    host: harness.Host, tmp_path: pathlib.Path, num_acting: int
) -> None:
    """Four of eight devices learn, or six."""
    host.make_devices(8)
    shares = ("--replay.batch_size=24", "--reanalyse.batch_size=24", "--replay.num_slots=8")
    settings = (*RUN, *OPTIONAL, *shares, f"--training.acting_devices={num_acting}")
    host.train(tmp_path / "whole", *settings).wait().ok()
    run = run_state.killed_and_resumed(host, *settings)
    assert run_state.state(run) == run_state.state(tmp_path / "whole")
    if num_acting == 4:  # a larger budget, and then all eight do everything
        longer = host.train(run, *settings, f"--max_updates={UPDATES + EVERY}", ALL)
        assert longer.says(r"training\.acting_devices was 4, is 0 from now on")
        assert longer.wait().code == 0 and harness.saved_steps(run)[-1] == UPDATES + EVERY
        fewer = host.train(run, *settings, f"--max_updates={UPDATES + 2 * EVERY}", "--training.num_devices=2", ALL)
        assert fewer.says(r"training\.num_devices was 8, is 2 from now on")
        ended = fewer.wait()
        assert ended.code == 0 and harness.saved_steps(run)[-1] == UPDATES + 2 * EVERY
        assert "is lost" not in ended.err and "dealt again" not in ended.err  # the replay comes along
