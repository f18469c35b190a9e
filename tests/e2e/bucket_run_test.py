"""A run in a bucket: the machine is lost, the same command goes on elsewhere, and commands read it from anywhere."""

from __future__ import annotations

import pathlib
import re
import shutil
import signal
import time

import e2e_harness as harness
import fake_gcs
import pytest

from seedzero.storage.bucket import bucket

URL = "gs://runs/team/catch"
RUN = (*harness.TINY, "--checkpoint.every_seconds=1", "--bucket.lease_seconds=2")


def _copy(url: str = URL) -> pathlib.Path:
    parsed = bucket.parse(url)
    assert parsed is not None
    return bucket.scratch(parsed)


def _made() -> set[str]:
    """Returns the names of the compiled programs in the local copy."""
    return {file.name for file in (_copy() / "xla").glob("*-cache")}


def _programs(gcs: fake_gcs.FakeGcs) -> set[str]:
    """Returns the names of the compiled programs in the bucket."""
    return {name.rpartition("/")[2] for name in gcs.names("runs", "team/catch/xla/")}


def _large(programs: set[str]) -> set[str]:
    """Returns acting and updates; a resume has small programs of its own."""
    return {name for name in programs if name.startswith(("jit_act-", "jit_update-"))}


@pytest.mark.thorough
def test_a_run_outlives_its_machine_and_is_read_from_anywhere(host: harness.Host, gcs: fake_gcs.FakeGcs) -> None:
    host.environment |= gcs.environment | {"SEEDZERO_SCRATCH": str(_copy().parent)}
    host.environment.pop("JAX_COMPILATION_CACHE_DIR")  # of all tests; runs in a bucket have one of their own
    host.environment["XDG_CACHE_HOME"] = str(host.directory / "cache")  # that of `evaluate`
    learner = host.train(_copy(), *RUN, url=URL)
    learner.until(lambda found: found["durable_update"], "a durable update")
    durable = learner.trains_on()["durable_update"]
    learner.until(lambda found: _programs(gcs) >= _made(), "its compiled programs in the bucket")
    workers = learner.workers().values()
    assert workers
    learner.kill()
    harness.wait_for(lambda: not any(worker.is_running() for worker in workers), "its workers end by themselves")
    compiled = _large(_programs(gcs))
    assert len(compiled) >= 2
    shutil.rmtree(_copy())

    again = host.train(_copy(), *RUN, url=URL)
    again.says(r"waiting until it ends or has been silent for 2 s")
    resumed = int(again.says(r"resumed at update (\d+)")[1])
    assert resumed >= durable > 0
    again.until(lambda found: found["durable_update"] > resumed, "a newer durable update")
    again.send(signal.SIGTERM)
    ended = again.wait().ok()
    named = re.findall(rf"checkpoint (\d+) .*{URL}$", ended.err, re.MULTILINE)
    assert f"--run_dir={URL}" in ended.err
    assert _large(_made()) == compiled
    shutil.rmtree(_copy())

    found = host.seedzero("status", f"--run_dir={URL}").json
    last = found["durable_update"]
    assert (found["updates"], found["alive"]) == (last, False) and last > resumed
    # The one on its way is named before it; a slow learner may have had it there before the signal came.
    assert not named or int(named[-1]) == last
    played = host.seedzero("evaluate", f"--run_dir={URL}", "--step=last", "--episodes=2").json
    assert played["episodes"] == 2 and -1 <= played["mean_return"] <= 1
    rows = gcs.content("runs", "team/catch/metrics.jsonl").splitlines()
    assert f'"update": {last}' in rows[-1].decode()
    assert not _copy().exists()  # whoever only reads leaves nothing behind


@pytest.mark.slow
def test_an_outage_stops_nothing_and_a_second_learner_is_refused(
    host: harness.Host, gcs: fake_gcs.FakeGcs, tmp_path: pathlib.Path
) -> None:
    host.environment |= gcs.environment | {"SEEDZERO_SCRATCH": str(_copy().parent)}
    learner = host.train(_copy(), *RUN, url=URL)
    before = learner.until(lambda found: found["durable_update"], "a durable update")["durable_update"]

    refused = host.train(_copy(), *RUN, url=URL).wait()  # the same machine: its local copy is locked
    assert refused.code == 2 and f"{URL} " in refused.err and f"pid {learner.pid}" in refused.err
    elsewhere = host.start(
        host.command("train", *RUN, f"--run_dir={URL}"), "second", SEEDZERO_SCRATCH=str(tmp_path / "elsewhere")
    ).wait()
    assert elsewhere.code == 2 and f"{URL} " in elsewhere.err and "pid" in elsewhere.err

    gcs.answering.clear()
    learner.says("a checkpoint is due, but the last one is still on its way to gs://runs/team/catch: it waits")
    learner.trains_on()
    gcs.answering.set()

    gcs.fault = lambda request: 503
    learner.says(r"checkpoint \d+ could not be uploaded: .*training continues")
    during = learner.trains_on()
    gcs.fault = lambda request: None
    learner.says(f"{URL} answers again")
    after = learner.until(lambda found: found["durable_update"] > during["updates"], "uploads after the outage")
    assert after["durable_update"] > before

    gcs.fault = lambda request: time.sleep(0.5)  # which delays the answer
    dawdled = learner.trains_on()
    learner.until(lambda found: found["durable_update"] > dawdled["updates"], "uploads by answers that take long")
    learner.send(signal.SIGINT)
    learner.wait().ok()
    last = learner.polls[-1]["updates"]
    finished = host.train(_copy(), f"--max_updates={last}", url=URL).wait()
    assert finished.code == 0 and "finished" in finished.err, finished.err
