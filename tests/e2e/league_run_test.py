"""A league by the command line: it is killed, its files are damaged, its disk is full, and it goes on."""

from __future__ import annotations

import json
import os
import pathlib
import random
import resource
import shutil
import signal
from typing import Any

import e2e_harness as harness
import fake_gcs
import league_stand_in
import pytest

from seedzero.api import leagues, runs
from seedzero.bucket import bucket
from seedzero.checkpoints import files as saved_files
from seedzero.checkpoints import manifest, player_files
from seedzero.core import errors
from seedzero.evaluation import agent_choice

EVERY = 150
"""Training steps between snapshots."""
LEAGUE = (
    *harness.TINY,
    "--preset=league-tictactoe",
    "--env=spiel:tic_tac_toe",
    "--muzero.n_step=9",
    "--batcher.max_batch=8",
    "--checkpoint.every_seconds=0.5",
    "--checkpoint.keep=1",
    f"--league.freeze_every={EVERY}",
)


@pytest.fixture(scope="module")
def league(module_host: harness.Host) -> pathlib.Path:
    """A run with some frozen players."""
    pytest.importorskip("pyspiel")
    run = module_host.directory / "league"
    ended = module_host.train(run, *LEAGUE, f"--max_env_steps={4 * EVERY}").wait()
    assert ended.code == 0, ended.err
    check(run)
    assert len(leagues.read(run, "").pool.frozen) >= 3
    return run


def newest(run: pathlib.Path) -> manifest.Manifest:
    """Returns the manifest of the checkpoint that a resume takes."""
    return saved_files.find(run / "checkpoints", "last", "state")[1]


def history(run: pathlib.Path, num_bytes: int | None = None) -> list[dict[str, Any]]:
    """Returns the lines of a league's history, of its first bytes or of all."""
    return [json.loads(line) for line in (run / "league.jsonl").read_bytes()[:num_bytes].splitlines()]


def check(run: pathlib.Path, lost: tuple[str, ...] = ()) -> None:
    """Every count agrees, and no file is missing or superfluous: of an ended run without these players."""
    root, found, saved = run / "checkpoints", newest(run), leagues.read(run, "")
    frozen, types = saved.pool.frozen, saved.payoff.num_matches()
    assert set(found.frozen) == set(frozen) and not set(frozen).intersection(lost)
    for one in saved_files.manifests(root):
        saved_files.verified(root, saved_files.step_directory(root, one.step))
    named = {name for one in saved_files.manifests(root) for name in one.frozen}
    assert set(player_files.names(root)) == named
    assert {path.name for path in (root / saved_files.FROZEN).iterdir()} == named  # and no leftover
    assert sum(row["games"] for row in saved.payoff.table()) == 2 * sum(types.values())
    lines = history(run, found.host["league_bytes"])
    begun = [line["player"] for line in lines if line["event"] == "freeze"]
    assert len(set(begun)) == len(begun) == saved.pool.num_frozen
    assert [name for name in begun if name not in lost] == list(frozen)
    told = [line["types"] for line in lines if line["event"] == "matches"]
    for name, count in {**types, "void": saved.num_void}.items():
        assert sum(one[name] for one in told) <= count


def resume(host: harness.Host, run: pathlib.Path, *words: str, **environment: str) -> harness.Learner:
    """Resumes a run; its state must be that of the newest checkpoint."""
    saved, digests = newest(run), league_stand_in.saved_digests(run)
    learner = host.train(run, *LEAGUE, *words, limits=league_stand_in.command(), **environment)
    told = json.loads(learner.says(r"restored (\{.*\})\n")[1])
    assert (told["update"], told["league"]) == (saved.step, saved.host["league"])
    assert told["digests"] == digests
    assert told["history"] == saved.host["league_bytes"]
    assert set(told["frozen"]) == {name for one in saved_files.manifests(run / "checkpoints") for name in one.frozen}
    return learner


def to(run: pathlib.Path, num_players: int) -> str:
    """Returns a budget with so many more snapshots."""
    return f"--max_env_steps={newest(run).host['ledger']['stored'] + num_players * EVERY}"


@pytest.mark.slow  # tests/checkpoints/player_files_test.py kills between changes of the disk within a process
def test_killed_around_a_freeze_it_goes_on_at_its_last_checkpoint(
    host: harness.Host, tmp_path: pathlib.Path, league: pathlib.Path
) -> None:
    run = harness.copy_run(league, tmp_path / "run")
    moments = [moment for moment in league_stand_in.MOMENTS[:-1] for _ in range(3)]
    for number, moment in enumerate(moments):
        where = {league_stand_in.MOMENT: f"{moment}:{number % 3}"}
        learner = resume(host, run, "--max_env_steps=1000000", **where)
        assert learner.wait().code == -signal.SIGKILL
        assert f"reached {moment}" in learner.output()
        if moment == league_stand_in.AFTER_FREEZE:
            assert set(player_files.names(run / "checkpoints")) > set(newest(run).frozen)
    last = resume(host, run, to(run, 2)).wait()
    assert last.code == 0, last.err
    check(run)


@pytest.mark.slow
def test_killed_at_random_moments_it_goes_on_at_its_last_checkpoint(
    host: harness.Host, tmp_path: pathlib.Path, league: pathlib.Path
) -> None:
    run, moments = harness.copy_run(league, tmp_path / "run"), random.Random(2)
    num_orphans = 0
    for _ in range(10):
        learner = resume(host, run, "--max_env_steps=1000000")
        goal = newest(run).host["ledger"]["stored"] + moments.randrange(1, 6 * EVERY)
        learner.until(lambda found, goal=goal: found["env_steps"] >= goal, "a random moment")
        learner.kill()
        num_orphans += bool(set(player_files.names(run / "checkpoints")) - set(newest(run).frozen))
    print(f"{num_orphans} kills between a freeze and its checkpoint")
    last = resume(host, run, to(run, 2)).wait()
    assert last.code == 0, last.err
    check(run)
    shown = host.seedzero("league", "show", f"--run_dir={run}", "--json").json
    payoff = host.seedzero("league", "payoff", f"--run_dir={run}", "--json").json["payoff"]
    assert sum(row["games"] for row in payoff) == 2 * shown["matches"] == 2 * sum(shown["types"].values()) > 0
    assert [row["name"] for row in shown["players"]] == ["main", *leagues.read(run, "").pool.frozen]


@pytest.mark.slow  # tests/checkpoints/player_files_test.py saves players that wait at a stop
def test_ctrl_c_during_a_freeze_saves_the_new_player(
    host: harness.Host, tmp_path: pathlib.Path, league: pathlib.Path
) -> None:
    run, go_on = harness.copy_run(league, tmp_path / "run"), tmp_path / "go-on"
    before = set(newest(run).frozen)
    where = {league_stand_in.MOMENT: f"{league_stand_in.WAITS}:0", league_stand_in.PLACE: str(go_on)}
    learner = resume(host, run, "--max_env_steps=1000000", **where)
    learner.says(f"reached {league_stand_in.WAITS}")
    learner.send(signal.SIGINT)
    learner.says("press Ctrl-C again")
    go_on.touch()
    ended = learner.wait()
    assert ended.code == 0, ended.err
    assert set(newest(run).frozen) > before
    check(run)


@pytest.mark.slow  # tests/checkpoints/player_files_test.py resumes from an earlier checkpoint, too
def test_after_an_earlier_checkpoint_no_name_is_used_again(
    host: harness.Host, tmp_path: pathlib.Path, league: pathlib.Path
) -> None:
    run = harness.copy_run(league, tmp_path / "run")
    first = resume(host, run, to(run, 2), "--checkpoint.keep=2").wait()
    assert first.code == 0, first.err
    abandoned = newest(run)
    shutil.rmtree(saved_files.step_directory(run / "checkpoints", abandoned.step))
    earlier = newest(run)
    lost = set(abandoned.frozen) - set(earlier.frozen)
    assert earlier.step < abandoned.step and lost
    again = resume(host, run, to(run, 3)).wait()
    assert again.code == 0, again.err
    check(run)
    assert not lost.intersection(newest(run).frozen) and set(earlier.frozen) < set(newest(run).frozen)


@pytest.mark.slow
def test_a_deterministic_league_is_the_same_after_a_kill(host: harness.Host, tmp_path: pathlib.Path) -> None:
    words = (*LEAGUE, "--deterministic", "--batcher.max_batch=24", "--checkpoint.every_updates=20")
    words = (*words, "--metrics.every_updates=10", "--max_updates=60")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert host.train(whole, *words).wait().code == 0
    where = {league_stand_in.MOMENT: f"{league_stand_in.IN_CHECKPOINT}:1"}
    first = host.train(killed, *words, limits=league_stand_in.command(), **where)
    assert first.wait().code == -signal.SIGKILL
    assert newest(killed).step == 20
    assert host.train(killed, *words).wait().code == 0
    assert newest(killed).host["league"] == newest(whole).host["league"]
    assert league_stand_in.saved_digests(killed) == league_stand_in.saved_digests(whole)
    assert history(killed) == history(whole)
    assert newest(whole).host["league"]["pool"]["num_frozen"] > 2
    check(killed)


# ------------------------------------------------------------------------------------ damaged files


def damage(run: pathlib.Path, name: str) -> None:
    """Flips a bit in a frozen player's files."""
    harness.flip_a_bit(run / "checkpoints" / saved_files.FROZEN / name)


@pytest.mark.slow  # tests/checkpoints/player_files_test.py names damaged players, and resumes without them
def test_damaged_and_missing_players_are_named_and_a_resume_goes_on_without_them(
    host: harness.Host, tmp_path: pathlib.Path, league: pathlib.Path
) -> None:
    run = harness.copy_run(league, tmp_path / "run")
    damaged, missing = leagues.read(run, "").pool.frozen[:2]
    damage(run, damaged)
    shutil.rmtree(run / "checkpoints" / saved_files.FROZEN / missing)
    for name in (damaged, missing):
        with pytest.raises(errors.CheckpointError, match=name):
            runs.load(run, player=name)
        with pytest.raises(errors.CheckpointError, match=name):
            runs.evaluate(run, 2, player=name)
        with pytest.raises(errors.CheckpointError, match=name):
            leagues.play(agent_choice.AgentChoice(run), "", ("main", name), 2)
    learner = host.train(run, *LEAGUE, to(run, 2))
    ended = learner.wait()
    assert ended.code == 0, ended.err
    for name in (damaged, missing):
        assert f"player {name} cannot be used" in ended.err
    check(run, lost=(damaged, missing))


@pytest.mark.slow  # tests/loop/league_seating_test.py loses players within a process
def test_players_that_are_damaged_while_it_runs_are_named_and_left_out(
    host: harness.Host, tmp_path: pathlib.Path, league: pathlib.Path
) -> None:
    run = harness.copy_run(league, tmp_path / "run")
    names = leagues.read(run, "").pool.frozen
    learner = resume(host, run, to(run, 2), "--workers=0", "--league.self_play=0", "--league.redraw=8")
    address = learner.address
    for name in names:
        damage(run, name)  # none of them has been read
    worker = host.worker(address)
    ended = learner.wait()
    assert ended.code == 0 and worker.wait().code == 0, ended.err
    lost = tuple(name for name in names if f"the league goes on without player {name}: " in ended.err)
    assert lost and not set(lost).intersection(newest(run).frozen)
    assert leagues.read(run, "").pool.num_frozen >= len(names) + 2


# ------------------------------------------------------------------------------------ a full disk


@pytest.mark.slow  # tests/checkpoints/player_files_test.py refuses players their disk
def test_a_full_disk_is_named_once_a_snapshot_and_a_resume_goes_on(
    host: harness.Host, tmp_path: pathlib.Path, league: pathlib.Path
) -> None:
    """Files that must not grow behave like a full disk: every write beyond fails."""
    run = harness.copy_run(league, tmp_path / "run")
    learner = resume(host, run, "--max_env_steps=1000000")
    learner.until(lambda found: found["env_steps"] > newest(run).host["ledger"]["stored"], "new steps")
    before = resource.prlimit(learner.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(learner.pid, resource.RLIMIT_FSIZE, (4000, before[1]))
    learner.says(r"the frozen player main-\w+ could not be written to .* training goes on")
    learner.says("4 others wait for the disk")
    began = learner.polls[-1]["env_steps"]
    now = learner.until(lambda found: found["env_steps"] > began + 6 * EVERY, "training goes on")
    assert 1 <= learner.output().count("4 others wait for the disk") <= (now["env_steps"] - began) // EVERY + 1
    learner.kill()
    again = resume(host, run, to(run, 2)).wait()
    assert again.code == 0, again.err
    check(run)


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
    learner = host.train(run, *words, "--max_env_steps=1000000", url=URL)
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
    ended = again.wait()
    assert ended.code == 0, ended.err
    check(run)
    names = leagues.read(run, "").pool.frozen
    assert newest(run).step > resumed and objects(gcs) == set(names) > before
    shutil.rmtree(run)
    assert runs.evaluate(URL, 2, player=names[0]).episodes == 2
    gcs.remove("runs", f"team/league/checkpoints/frozen/{names[0]}/manifest.json")
    with pytest.raises(errors.CheckpointError, match=f"{names[0]} .*{names[1]}"):
        runs.evaluate(URL, 2, player=names[0])
    assert not run.exists()
