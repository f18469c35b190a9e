"""What runs have saved, runs that are killed, and resumes that must restore it: of all agents and leagues."""

from __future__ import annotations

import json
import pathlib
import re
import signal
from collections.abc import Collection, Mapping
from typing import Any

import e2e_harness as harness
import league_stand_in

from seedzero.api import leagues
from seedzero.storage.checkpoints import checkpoint, manifest, player_files, saved_files, trees

SEVERAL_PLAYERS = (
    *harness.TINY,
    "--preset=league-tictactoe",
    "--env=spiel:tic_tac_toe",
    "--muzero.n_step=2",
    "--league.main_exploiters=1",
    "--league.league_exploiters=1",
    "--league.redraw=8",
    "--optimizer.schedule=constant",
    "--worker.num_groups=4",
    "--batcher.max_batch=16",
    "--replay.num_slots=16",
)


COMING = (
    *harness.TINY,
    "--preset=league-tictactoe",
    "--env=spiel:tic_tac_toe",
    "--muzero.n_step=2",
    "--league.max_players=3",
    "--league.redraw=8",
    "--league.builder=e2e_builders:coming",
    "--optimizer.schedule=constant",
    "--worker.num_groups=4",
    "--batcher.max_batch=16",
    "--replay.num_slots=16",
)
"""A league whose builder adds players and retires them at every call."""


def newest(run: pathlib.Path) -> manifest.Manifest:
    """Returns the manifest of the checkpoint that a resume takes."""
    return saved_files.find(run / "checkpoints", "last", "state")[1]


def history(run: pathlib.Path, num_bytes: int | None = None) -> list[dict[str, Any]]:
    """Returns the lines of a league's history, of its first bytes or of all."""
    return [json.loads(line) for line in (run / "league.jsonl").read_bytes()[:num_bytes].splitlines()]


def params(run: pathlib.Path) -> list[str]:
    """Returns digests of the arrays of the newest parameters."""
    path, found, _ = saved_files.find(run / "checkpoints", "last", "params")
    return league_stand_in.digests(trees.load(path / saved_files.PARAMS, found.arrays[saved_files.PARAMS]))


def rows(run: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the values of a run's metrics that do not depend on the clock."""
    clock = re.compile(r"seconds|time|.*_seconds|.*_per_second|.*_cpu_percent|.*_memory_bytes")
    return [{name: x for name, x in row.items() if not clock.fullmatch(name)} for row in harness.metrics_rows(run)]


def state(run: pathlib.Path) -> dict[str, Any]:
    """Returns all of a run that the clock does not change: two runs of a seed have the same."""
    path, found, _ = saved_files.find(run / "checkpoints", "last")
    parts = {name: leaves for name, leaves in found.arrays.items() if name != checkpoint.OBSERVATION}
    of_this_process = {"seconds", "time", "metrics_bytes"}
    if saved_files.REPLAY not in parts:
        of_this_process |= {"stored_per_shard", "stored_per_slot"}
    league = run / "league.jsonl"
    return {
        "step": found.step,
        "arrays": {name: league_stand_in.digests(trees.load(path / name, leaves)) for name, leaves in parts.items()},
        "counters": _without(found.counters, of_this_process),
        "rows": rows(run),
        "history": league.read_text() if league.exists() else "",
        "frozen": player_files.names(run / "checkpoints"),
    }


def _without(counters: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Returns counters without some, also of each player."""
    found = {name: value for name, value in counters.items() if name not in names}
    if players := counters.get("players"):
        found["players"] = {name: _without(own, names) for name, own in players.items()}
    return found


def kill(host: harness.Host, run: pathlib.Path, *words: str, checkpoint: int = 1) -> None:
    """Trains up to the writing of a checkpoint, numbered from 0, and is killed there: steps and updates are lost."""
    where = {league_stand_in.MOMENT: f"{league_stand_in.IN_CHECKPOINT}:{checkpoint}"}
    ended = host.train(run, *words, limits=league_stand_in.command(), **where).wait()
    assert ended.code == -signal.SIGKILL, ended.err


def killed_and_resumed(host: harness.Host, *words: str, checkpoint: int = 1) -> pathlib.Path:
    """Returns a run that was killed and has gone on to its end."""
    run = host.directory / "killed"
    kill(host, run, *words, checkpoint=checkpoint)
    ended = host.train(run, *words).wait()
    assert ended.code == 0 and (resumed := re.search(harness.RESUMED, ended.err)), ended.err
    assert 0 < int(resumed[1]) < newest(run).step
    return run


def resume_league(host: harness.Host, run: pathlib.Path, *words: str, **environment: str) -> harness.Learner:
    """Resumes a league; the state of every player must be that of the newest checkpoint."""
    saved, digests = newest(run), league_stand_in.saved_digests(run)
    learner = host.train(run, *words, limits=league_stand_in.command(), **environment)
    learner.says(r"(?m)^restored$")
    told = json.loads(league_stand_in.restored(run).read_text())
    assert (told["update"], told["league"]) == (saved.step, saved.counters["league"])
    assert told["digests"] == digests
    assert told["history"] == saved.counters["league_bytes"]
    assert set(told["frozen"]) == {name for one in saved_files.manifests(run / "checkpoints") for name in one.frozen}
    if players := saved.counters.get("players"):
        assert told["updates"] == {name: found["num_updates"] for name, found in players.items()}
        assert told["paces"] == {name: found["pace"] for name, found in players.items()}
    return learner


def check_league(run: pathlib.Path, lost: tuple[str, ...] = ()) -> None:
    """Every count agrees, and no file is missing or superfluous: of an ended league without these players."""
    root, found, saved = run / "checkpoints", newest(run), leagues.read(run, "")
    pool, frozen, types = saved.pool, saved.pool.frozen, saved.payoff.num_matches()
    assert set(found.frozen) == set(frozen) and not set(frozen).intersection(lost)
    for one in saved_files.manifests(root):
        saved_files.verified(root, saved_files.step_directory(root, one.step))
    named = {name for one in saved_files.manifests(root) for name in one.frozen}
    assert set(player_files.names(root)) == named
    assert {path.name for path in (root / saved_files.FROZEN).iterdir()} == named  # and no leftover
    assert sum(row["games"] for row in saved.payoff.table()) == 2 * sum(types.values())
    lines = history(run, found.counters["league_bytes"])
    begun = [line["player"] for line in lines if line["event"] == "freeze"]
    assert len(set(begun)) == len(begun) == pool.num_frozen
    assert [name for name in begun if name not in lost] == list(frozen)
    told = [line["types"] for line in lines if line["event"] == "matches"]
    for name, count in {**types, "void": saved.num_void}.items():
        assert sum(one[name] for one in told) <= count
    for name, own in found.counters.get("players", {}).items():
        resets = [line for line in lines if line["event"] == "reset" and line["player"] == name]
        assert len(resets) == pool.of(name).resets and (not resets or resets[-1]["source"] == pool.of(name).source)
        assert all(line["version"] <= own["num_updates"] for line in resets)
    for row in harness.metrics_rows(run):
        assert min([0, *(value for key, value in row.items() if "age" in key or "lag" in key)]) >= 0, row
    if players := found.counters.get("players"):
        retired = found.counters.get("retired", {"num_updates": 0})["num_updates"]
        assert retired + sum(own["num_updates"] for own in players.values()) == found.step
    added = [line["player"] for line in lines if line["event"] == "add"]
    assert added == [member.name for member in pool.members if member.origin]
    ended = {line["player"] for line in lines if line["event"] == "retire"}
    assert {member.name for member in pool.members if member.retired} == ended
