"""Newer checkpoints and frozen players of a run are found, and damaged ones are tried again."""

from __future__ import annotations

import json
import pathlib
import shutil
import threading
from collections.abc import Iterator, Mapping
from typing import Any, cast

import fake_gcs
import play_runs
import pytest
import saved_league

from seedzero.acting.actors import agent_choice, saved_agents
from seedzero.core import errors
from seedzero.interfaces.serving import followers
from seedzero.storage.bucket import run_copy
from seedzero.storage.checkpoints import checkpoint_dir, run_dirs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run of Kuhn poker with a league's two frozen players."""
    return saved_league.make_seats(tmp_path_factory.mktemp("run"))


def _write(path: pathlib.Path, step: int) -> None:
    """Writes another checkpoint with the parameters of the newest one."""
    config = run_dirs.read_saved(path).config
    saved = saved_agents.load(
        agent_choice.AgentChoice(path, "last"), *saved_agents.read(agent_choice.AgentChoice(path))
    )
    files = checkpoint_dir.CheckpointDir(path / "checkpoints", config.checkpoint, lambda: 0.0)
    files.write(step, {"params": {"params": saved.params}}, {"num_updates": step}, (), None)


def _upload(gcs: fake_gcs.FakeGcs, run: pathlib.Path) -> None:
    for file in filter(pathlib.Path.is_file, run.rglob("*")):
        gcs.put("runs", f"one/{file.relative_to(run).as_posix()}", file.read_bytes())


def _fail(subject: str, error: Exception) -> None:
    raise error


def test_players_are_served_by_name(run: pathlib.Path) -> None:
    choice = agent_choice.AgentChoice(run)
    assert {name: one.update for name, one in followers.load(choice, ()).players.items()} == {"main": 90}
    both = followers.load(choice, (saved_league.OLD, "main")).players
    assert {name: one.update for name, one in both.items()} == {saved_league.OLD: 30, "main": 90}
    everyone = followers.load(choice, (followers.ALL,)).players
    assert list(everyone) == ["main", *sorted((saved_league.OLD, saved_league.NEW))]
    assert len({one.mode for one in everyone.values()}) == 1  # all draw their moves, as always in games of seats
    with pytest.raises(errors.CheckpointError, match="nobody"):
        followers.load(choice, ("main", "nobody"))
    with pytest.raises(errors.UsageError, match="does not search"):
        followers.load(agent_choice.AgentChoice(run, simulations=3), ())


def test_a_newer_checkpoint_is_loaded_once(tmp_path: pathlib.Path) -> None:
    path = play_runs.make(tmp_path / "run", "spiel:kuhn_poker")
    found: list[tuple[str, int]] = []
    follower = followers.Follower(
        followers.load(agent_choice.AgentChoice(path), ()),
        lambda name, saved: found.append((name, saved.update)),
        print,
        _fail,
    )
    follower.look()
    assert found == []
    _write(path, 100)
    follower.look()
    follower.look()
    assert found == [("main", 100)]


def test_a_run_in_a_bucket_is_followed(gcs: fake_gcs.FakeGcs, tmp_path: pathlib.Path) -> None:
    run, found, told = play_runs.make(tmp_path / "run", "spiel:kuhn_poker"), list[tuple[str, int]](), list[str]()

    _upload(gcs, run)
    now = 0.0
    with run_copy.followed("gs://runs/one", ()) as (path, refresh):
        agents = followers.load(agent_choice.AgentChoice(path), (), refresh=refresh)
        follower = followers.Follower(
            agents, lambda name, saved: found.append((name, saved.update)), told.append, _fail, lambda: now
        )
        follower.look()
        assert found == []
        _write(run, 100)
        _upload(gcs, run)
        with gcs.failing(403):
            now = 61.0
            follower.look()
        assert found == [] and len(told) == 1 and "no newer parameters could be read for 61 s" in told[0]
        follower.look()
        assert found == [("main", 100)]


def test_new_frozen_players_join_if_all_are_served(run: pathlib.Path) -> None:
    agents = followers.load(agent_choice.AgentChoice(run), (followers.ALL,))
    known = {"main": 90, saved_league.OLD: 30}
    assert [(name, saved.update) for name, saved in agents.newer(known)] == [(saved_league.NEW, 60)]
    main_alone = followers.load(agent_choice.AgentChoice(run), ())
    assert list(main_alone.newer(known)) == []


def test_a_checkpoint_that_cannot_be_read_is_tried_again_and_reported_each_minute(run: pathlib.Path) -> None:
    told: list[str] = []
    times = [1000.0]
    changes: list[str] = []
    agents = followers.load(agent_choice.AgentChoice(run), ())

    class Damaged:
        players = agents.players
        num_looks = 0

        def newer(self, versions: Mapping[str, int]) -> Iterator[tuple[str, saved_agents.SavedAgent]]:
            self.num_looks += 1
            if self.num_looks <= 4:
                raise errors.CheckpointError("it is damaged")
            yield from (("main", saved) for saved in agents.players.values())

    follower = followers.Follower(
        cast(Any, Damaged()), lambda name, saved: changes.append(name), told.append, _fail, lambda: times[-1]
    )
    for seconds, num_told in ((59, 0), (60, 1), (119, 1), (121, 2)):
        times.append(1000.0 + seconds)
        follower.look()
        assert len(told) == num_told and changes == []
    start, end = "no newer parameters could be read for", "s: it is damaged; main of update 90 is still served"
    assert told == [f"{start} {seconds} {end}" for seconds in (60, 61)]
    follower.look()
    follower.look()
    assert changes == ["main", "main"] and told[2:] == [""]


def test_an_unexpected_error_is_handed_on(run: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "LOOK_SECONDS", 0.0)
    failures: list[str] = []

    def fail(subject: str, error: Exception) -> None:
        failures.append(f"{subject}: {error}")

    class Broken:
        players = followers.load(agent_choice.AgentChoice(run), ()).players

        def newer(self, versions: Mapping[str, int]) -> Iterator[tuple[str, saved_agents.SavedAgent]]:
            raise MemoryError("no room")

    follower = followers.Follower(cast(Any, Broken()), lambda name, saved: None, print, fail)
    follower.start()
    follower._thread.join()
    follower.stop()
    assert failures == ["following the run: no room"]


def test_a_stop_does_not_wait_for_a_long_download(run: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(followers, "STOP_SECONDS", 0.0)
    has_begun, may_end, failures = threading.Event(), threading.Event(), list[Exception]()

    class Stuck:
        players = followers.load(agent_choice.AgentChoice(run), ()).players

        def newer(self, versions: Mapping[str, int]) -> Iterator[tuple[str, saved_agents.SavedAgent]]:
            has_begun.set()
            may_end.wait(600.0)
            raise RuntimeError("the server has gone")

    follower = followers.Follower(
        cast(Any, Stuck()), lambda name, saved: None, print, lambda subject, error: failures.append(error)
    )
    follower.start()
    has_begun.wait()
    follower.stop()
    is_left_behind = follower._thread.is_alive()
    may_end.set()
    follower._thread.join()
    assert is_left_behind and failures == []


def test_looks_take_at_most_a_tenth_of_the_time(run: pathlib.Path) -> None:
    times = iter((0.0, 0.0, 0.1, 10.0, 13.0))

    class Slow:
        players = followers.load(agent_choice.AgentChoice(run), ()).players

        def newer(self, versions: Mapping[str, int]) -> Iterator[tuple[str, saved_agents.SavedAgent]]:
            yield from ()

    follower = followers.Follower(cast(Any, Slow()), lambda name, saved: None, print, _fail, lambda: next(times))
    assert follower.look() == followers.LOOK_SECONDS
    assert follower.look() == pytest.approx(27.0)  # after 3 s


def _replace(path: pathlib.Path, step: int) -> None:
    """Puts another run of the same kind into a run directory."""
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "id": "another"}))
    _write(path, step)


def _damage(path: pathlib.Path) -> None:
    _write(path, 100)
    params = (path / "checkpoints" / "steps" / f"{100:012d}" / "params").rglob("*")
    file = max(filter(pathlib.Path.is_file, params), key=lambda file: file.stat().st_size)
    file.write_bytes(file.read_bytes()[:-1])


def _go_back(path: pathlib.Path) -> None:
    _write(path, 80)
    shutil.rmtree(path / "checkpoints" / "steps" / f"{90:012d}")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "part"),
    [
        (shutil.rmtree, "is not a run directory: there is no such directory; give --run_dir=DIR"),
        (lambda path: _replace(path, 100), "another run is in "),
        (lambda path: _replace(path, 80), "start this server again to serve it"),
        (_go_back, "checkpoints is of update 80; "),
        (_damage, "checkpoint 100 is skipped"),
    ],
    ids=["gone", "another", "another with fewer updates", "gone back", "damaged"],
)
def test_a_run_that_is_gone_replaced_or_damaged_is_reported_with_the_version_served(
    tmp_path: pathlib.Path, change: Any, part: str
) -> None:
    path, now, found, told = play_runs.make(tmp_path / "run", "spiel:kuhn_poker"), [0.0], list[int](), list[str]()
    follower = followers.Follower(
        followers.load(agent_choice.AgentChoice(path), ()),
        lambda name, saved: found.append(saved.update),
        told.append,
        _fail,
        lambda: now[0],
    )
    change(path)
    for now[0] in (59.0, 61.0):
        follower.look()
    assert (
        found == []
        and len(told) == 1
        and " for 61 s: " in told[0]
        and part in told[0]
        and "main of update 90 is still served" in told[0]
    )


def test_another_run_with_fewer_updates_in_a_bucket_is_reported(gcs: fake_gcs.FakeGcs, tmp_path: pathlib.Path) -> None:
    run = play_runs.make(tmp_path / "run", "spiel:kuhn_poker")
    _upload(gcs, run)
    with run_copy.followed("gs://runs/one", ()) as (path, refresh):
        agents = followers.load(agent_choice.AgentChoice(path), (), refresh=refresh)
        assert list(agents.newer({"main": 90})) == []
        _replace(run, 80)
        _upload(gcs, run)
        for name in gcs.names("runs", f"one/checkpoints/steps/{90:012d}"):
            gcs.remove("runs", name)
        with pytest.raises(errors.ResumeError, match="another run"):
            list(agents.newer({"main": 90}))
