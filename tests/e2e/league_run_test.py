"""Leagues by the command line: they are killed, their files are damaged, their disk is full, and they go on."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal

import e2e_harness as harness
import fake_gcs
import league_stand_in
import pytest
import run_state

from seedzero.api import leagues, runs
from seedzero.core import errors
from seedzero.storage.bucket import bucket
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


# ------------------------------------------------------------------------------------ in a bucket

URL = "gs://runs/team/league"


def objects(gcs: fake_gcs.FakeGcs) -> set[str]:
    """Returns the names of the frozen players with files in the bucket."""
    return {name.split("/")[4] for name in gcs.names("runs", "team/league/checkpoints/frozen/")}


@pytest.mark.slow
def test_killed_while_frozen_players_are_uploaded_it_goes_on_elsewhere(
    host: harness.Host, gcs: fake_gcs.FakeGcs
) -> None:
    host.environment |= gcs.environment | {"SEEDZERO_SCRATCH": os.environ["SEEDZERO_SCRATCH"]}
    parsed = bucket.parse(URL)
    assert parsed is not None
    run, words = bucket.scratch(parsed), (*LEAGUE, "--bucket.lease_seconds=2")
    learner = host.train(run, *words, ENDLESS, url=URL)
    learner.until(lambda found: found["durable_update"] and objects(gcs), "a frozen player in the bucket")
    before, uploads = objects(gcs), []

    def fault(request: fake_gcs.Request) -> int | None:
        """Kills the learner between two files of a frozen player."""
        words = request.name.split("/")
        if request.kind == "write" and "frozen" in words and words[4] not in before:
            uploads.append(request.name)
        if len(uploads) < 2:
            return None
        learner.send(signal.SIGKILL)
        return 503

    gcs.fault = fault
    assert learner.wait().code == -signal.SIGKILL
    gcs.fault = lambda request: None
    assert objects(gcs) > before  # a part of one that no manifest there names
    shutil.rmtree(run)

    budget = f"--max_env_steps={learner.polls[-1]['env_steps'] + 4 * EVERY}"
    again = host.train(run, *words, budget, url=URL)
    resumed = int(again.says(harness.RESUMED)[1])
    again.wait().ok()
    run_state.check_league(run)
    names = leagues.read(run, "").pool.frozen
    assert run_state.newest(run).step > resumed and objects(gcs) == set(names) > before
    shutil.rmtree(run)
    assert runs.evaluate(URL, 2, player=names[0]).episodes == 2
    gcs.remove("runs", f"team/league/checkpoints/frozen/{names[0]}/manifest.json")
    with pytest.raises(errors.CheckpointError, match=f"{names[0]} .*{names[1]}"):
        runs.evaluate(URL, 2, player=names[0])
    assert not run.exists()
