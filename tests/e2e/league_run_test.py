"""Leagues by the command line: they are killed, their files are damaged, their disk is full, and they go on."""

from __future__ import annotations

import pathlib
import signal

import e2e_harness as harness
import league_stand_in
import pytest
import run_state

from seedzero.api import leagues
from seedzero.storage.checkpoints import player_files

EVERY = 150
"""Training steps between snapshots."""
OFTEN = ("--checkpoint.every_seconds=0.5", "--checkpoint.keep=1")
LEAGUE = (
    *harness.TINY,
    *OFTEN,
    "--preset=league-tictactoe",
    "--env=spiel:tic_tac_toe",
    "--muzero.n_step=9",
    "--batcher.max_batch=8",
    f"--league.freeze_every={EVERY}",
)
WILD = (*run_state.SEVERAL_PLAYERS, *OFTEN, "--league.builder=e2e_builders:wild", "--league.build_every=5")
ENDLESS = "--max_updates=1000000"


def _train(host: harness.Host, words: tuple[str, ...], budget: str) -> pathlib.Path:
    pytest.importorskip("pyspiel")
    run = host.directory / "league"
    host.train(run, *words, budget).wait().ok()
    run_state.check_league(run)
    assert len(leagues.read(run, "").pool.frozen) >= 3
    return run


@pytest.fixture(scope="module")
def league(module_host: harness.Host) -> pathlib.Path:
    """A run with some frozen players."""
    return _train(module_host, LEAGUE, f"--max_env_steps={4 * EVERY}")


def resume(host: harness.Host, run: pathlib.Path, *words: str, **environment: str) -> harness.Learner:
    """Resumes the league of one learning player; its state must be that of the newest checkpoint."""
    return run_state.resume_league(host, run, *LEAGUE, *words, **environment)


def to(run: pathlib.Path, num_players: int) -> str:
    """Returns a budget with so many more snapshots."""
    return f"--max_env_steps={run_state.newest(run).counters['ledger']['stored'] + num_players * EVERY}"


@pytest.mark.slow  # tests/storage/checkpoints/player_files_test.py kills between changes of the disk within a process
@pytest.mark.parametrize("words", [LEAGUE, WILD], ids=["one player", "several"])
def test_killed_around_a_freeze_or_reset_it_goes_on_at_its_last_checkpoint(
    host: harness.Host, words: tuple[str, ...]
) -> None:
    run = _train(host, words, "--max_updates=40")
    moments = [*league_stand_in.MOMENTS, *([league_stand_in.AFTER_RESET] if words is WILD else [])]
    for moment in moments:
        for times in range(3):
            where = {league_stand_in.MOMENT: f"{moment}:{times}"}
            learner = run_state.resume_league(host, run, *words, ENDLESS, **where)
            assert learner.wait().code == -signal.SIGKILL
            assert f"reached {moment}" in learner.output()
            if moment == league_stand_in.AFTER_FREEZE:
                assert set(player_files.names(run / "checkpoints")) > set(run_state.newest(run).frozen)
    run_state.resume_league(host, run, *words, f"--max_updates={run_state.newest(run).step + 20}").wait().ok()
    run_state.check_league(run)


# ------------------------------------------------------------------------------------ a full disk


@pytest.mark.slow  # tests/storage/checkpoints/player_files_test.py refuses players their disk
def test_a_full_disk_is_named_once_a_snapshot_and_a_resume_goes_on(
    host: harness.Host, tmp_path: pathlib.Path, league: pathlib.Path
) -> None:
    run = harness.copy_run(league, tmp_path / "run")
    learner = resume(host, run, ENDLESS)
    learner.until(lambda found: found["env_steps"] > run_state.newest(run).counters["ledger"]["stored"], "new steps")
    with harness.full_disk(learner.pid, 4000):
        learner.says(r"the frozen player main-\w+ could not be written to .* training continues")
        learner.says("4 others wait for the disk")
        began = learner.polls[-1]["env_steps"]
        now = learner.until(lambda found: found["env_steps"] > began + 6 * EVERY, "training continues")
        assert 1 <= learner.output().count("4 others wait for the disk") <= (now["env_steps"] - began) // EVERY + 1
        learner.kill()
    resume(host, run, to(run, 2)).wait().ok()
    run_state.check_league(run)
