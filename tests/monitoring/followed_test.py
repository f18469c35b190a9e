"""A run in a bucket on this machine: fetched, followed while it grows, and its failures told once."""

from __future__ import annotations

import json
import pathlib
import queue
import time

import fake_gcs
import pytest
import saved_league

from seedzero.core import errors
from seedzero.monitoring import followed
from seedzero.storage.bucket import bucket, lease

URL = bucket.Url("gs", "runs", "team/one")
_CONFIG, _STATUS, _METRICS = (f"team/one/{name}" for name in ("config.json", "status.json", "metrics.jsonl"))


@pytest.fixture
def run(gcs: fake_gcs.FakeGcs, tmp_path: pathlib.Path) -> followed.Followed:
    """Returns what follows a small run."""
    gcs.put("runs", _CONFIG, b'{"config": {}}')
    gcs.put("runs", _METRICS, b'{"update": 1}\n')
    return followed.Followed(URL, tmp_path / "one", report=pytest.fail, every_seconds=0.01)


def test_files_that_grow_are_lengthened(run: followed.Followed, gcs: fake_gcs.FakeGcs) -> None:
    run.refresh()
    file = run.path / "metrics.jsonl"
    inode = file.stat().st_ino
    assert file.read_bytes() == b'{"update": 1}\n' and not (run.path / "status.json").exists()
    gcs.put("runs", _METRICS, b'{"update": 1}\n{"update": 2}\n')
    run.refresh()
    assert file.read_bytes().count(b"\n") == 2 and file.stat().st_ino == inode
    gcs.put("runs", _METRICS, b'{"update": 3}\n')
    run.refresh()  # cut back by a resume
    assert file.read_bytes() == b'{"update": 3}\n' and file.stat().st_ino != inode


def test_the_lease_tells_whether_a_learner_is_at_work(run: followed.Followed, gcs: fake_gcs.FakeGcs) -> None:
    gcs.put("runs", _STATUS, b'{"updates": 5}')
    run.refresh()
    told = json.loads((run.path / "status.json").read_bytes())
    assert told == {"updates": 5, "alive": False, "followed": True}
    held = lease.Lease(bucket.open_store(URL, 1.0), "token", 30.0, report=pytest.fail)
    held.acquire()
    run.refresh()
    told = json.loads((run.path / "status.json").read_bytes())
    assert told["alive"] is True and told["followed"] is True


def test_a_league_s_newest_checkpoint_is_fetched_alone(
    run: followed.Followed, gcs: fake_gcs.FakeGcs, tmp_path: pathlib.Path
) -> None:
    path = saved_league.make(tmp_path / "league")
    (path / "league.jsonl").write_text('{"event": "freeze"}\n')
    for file in path.rglob("*"):
        if file.is_file():
            gcs.put("runs", f"team/one/{file.relative_to(path).as_posix()}", file.read_bytes())
    old = run.path / "checkpoints" / "steps" / "000000000001"
    old.mkdir(parents=True)
    run.refresh()
    (found,) = old.parent.iterdir()
    assert found.name != old.name and (found / "manifest.json").exists() and (found / "params").is_dir()
    assert not (found / "state").exists()


def test_a_bucket_without_a_run_is_named(run: followed.Followed, gcs: fake_gcs.FakeGcs) -> None:
    gcs.remove("runs", _CONFIG)
    with pytest.raises(errors.ResumeError, match=r"gs://runs/team/one.*config\.json"):
        run.refresh()


def test_a_thread_follows_and_tells_a_failure_once(run: followed.Followed, gcs: fake_gcs.FakeGcs) -> None:
    told = queue.SimpleQueue[str]()
    run._report = told.put
    run.refresh()
    gcs.remove("runs", _CONFIG)
    (run.path / "config.json").unlink()
    run.start()
    text = told.get(timeout=600)
    assert "gs://runs/team/one is not a run: config.json or the bucket is missing" in text
    assert "the page continues" in text
    before = gcs.requests["read"]
    deadline = time.monotonic() + 600
    gcs.put("runs", _CONFIG, b'{"config": {}}')
    while not (run.path / "config.json").exists() and time.monotonic() < deadline:
        run._stopped.wait(0.01)
    run.close()
    assert (run.path / "config.json").exists() and gcs.requests["read"] > before and told.empty()
