"""One run of two learner hosts: the same parameters on both, whatever happens to one of them."""

from __future__ import annotations

import dataclasses
import pathlib
import platform
import re
import shutil
import signal
import socket
import threading
from typing import Any

import e2e_harness as harness
import fake_gcs
import psutil
import pytest

from seedzero.storage.bucket import bucket
from seedzero.storage.checkpoints import manifest, run_dirs, saved_files

EVERY, UPDATES = 20, 60
TWO = ("--cluster.num_hosts=2", "--replay.num_slots=8", "--batcher.max_batch=8")
HOSTS = (*harness.TINY, *TWO, *harness.lock_step(UPDATES, EVERY))
OTHERS = ("--preset=catch", "--worker.envs_per_group=4", *harness.ENDLESS, *TWO, *harness.lock_step(UPDATES, EVERY))
AGENTS = {"muzero": HOSTS, **{agent: (*OTHERS, *harness.AGENTS[agent]) for agent in ("vtrace", "ppo", "r2d2")}}


def _dirs(run: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    return run, run / "hosts" / "1"


def _steps(run: pathlib.Path) -> list[int]:
    return [found.step for found in saved_files.manifests(run / "checkpoints")]


def _kill(run: pathlib.Path, learner: harness.Learner, number: signal.Signals = signal.SIGKILL) -> psutil.Process:
    """Signals the process of a host, once it listens; a killed one has left its file behind."""

    def signalled() -> psutil.Process | None:
        found = run_dirs.read_learner(run)
        try:
            process = None if found is None else psutil.Process(found["pid"])
            if process is None or process.status() == psutil.STATUS_ZOMBIE:
                return None
            process.send_signal(number)
        except psutil.NoSuchProcess:
            return None
        return process

    return harness.wait_for(signalled, f"a learner in {run}", alive=learner)


def _assert_alike(run: pathlib.Path, *others: pathlib.Path) -> None:
    """Asserts equal bits of parameters and optimizer; host 0's are read from its files, the others' are checksums."""
    assert {harness.state_digest(place) for place in others} == {harness.state_digest(run)}
    assert not any(path.is_dir() for path in run.glob("hosts/*/checkpoints/steps/*/*") if path.name != "replay")


def _check_ledgers(run: pathlib.Path) -> int:
    """Returns the stored steps of both hosts; no step is lost."""
    stored = 0
    for place in _dirs(run):
        ledger = list(saved_files.manifests(place / "checkpoints"))[-1].counters["ledger"]
        assert ledger["acknowledged"] == ledger["stored"] + ledger["pending"] + sum(ledger["discarded"].values())
        stored += ledger["stored"]
    return stored


@pytest.mark.thorough
def test_two_hosts_learn_the_same_though_one_is_killed(host: harness.Host, tmp_path: pathlib.Path) -> None:
    run = tmp_path / "run"
    learner = host.train(run, *HOSTS)
    harness.wait_for(lambda: all(_steps(place) for place in _dirs(run)), "a checkpoint of both", alive=learner)
    _kill(run / "hosts" / "1", learner)
    learner.says("host 1: killed by SIGKILL.*; all start again together")
    assert int(learner.says(harness.RESUMED)[1]) % EVERY == 0
    learner.wait().ok()
    assert _steps(run) == _steps(run / "hosts" / "1") and _steps(run)[-1] == UPDATES
    _assert_alike(*_dirs(run))
    alone = host.seedzero("evaluate", f"--run_dir={run / 'hosts' / '1'}")
    assert alone.code == 2 and "give the run directory of host 0" in alone.err, alone.err
    stored = _check_ledgers(run)
    assert harness.metrics_rows(run)[-1]["env_steps"] == stored


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_a_host_with_a_full_disk_stops_no_saving_for_longer(
    host: harness.Host, tmp_path: pathlib.Path, index: int
) -> None:
    run = tmp_path / "run"
    words = (*harness.PACED, *TWO, "--checkpoint.every_seconds=0.5", "--metrics.every_seconds=0.1")
    learner = host.train(run, *words)
    harness.wait_for(lambda: all(any(_steps(place)) for place in _dirs(run)), "checkpoints of both", alive=learner)
    known = run_dirs.read_learner(_dirs(run)[index])
    assert known is not None
    named = f"lacks the part of host {index} \\(.*File too large.*\\)"

    def status() -> dict[str, Any]:
        return run_dirs.read_status(run) or {}

    with harness.full_disk(known["pid"]):
        harness.wait_for(lambda: re.search(named, str(status().get("hosts"))), "the host in the status", alive=learner)
    durable = status()["durable_update"]
    harness.wait_for(lambda: (status().get("durable_update") or 0) > durable, "checkpoints continue", alive=learner)
    learner.send(signal.SIGINT)
    learner.wait().ok()
    assert _steps(run) == _steps(run / "hosts" / "1")
    _assert_alike(*_dirs(run))


OTHER_CPU = {"XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}
"""Has XLA make the code of an older CPU."""


def _two_processors(host: harness.Host, run: pathlib.Path, *words: str) -> tuple[harness.Program, harness.Program]:
    """Starts two hosts, of which the second computes other bits."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        at = f"--cluster.coordinator=127.0.0.1:{probe.getsockname()[1]}"
    first, second = (
        host.start(
            host.command("train", *words, f"--run_dir={run}", f"--cluster.index={index}", at),
            "host",
            **variables,
        )
        for index, variables in enumerate(({}, OTHER_CPU))
    )
    return first, second


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flag is of x86's CPUs")
def test_hosts_of_other_processors_go_on_from_the_same_checkpoints(host: harness.Host, tmp_path: pathlib.Path) -> None:
    host.compile_as_users_do()
    run = tmp_path / "run"
    words = (*harness.TINY, *TWO, "--checkpoint.every_seconds=1", "--metrics.every_seconds=0.5")
    for most in (250, 350):
        first, second = _two_processors(host, run, *words, f"--max_updates={most}")
        assert [first.wait().code, second.wait().code] == [0, 0], first.output() + second.output()
        assert first.output().count("host 1 (") == 1 and " computes different bits from host 0 (" in first.output()
        assert _steps(run) == _steps(run / "hosts" / "1") and _steps(run)[-1] == most
        _assert_alike(*_dirs(run))
    assert "resumed at update 250\n" in first.output()
    assert sum(row.get("hosts_resynced", 0) for row in harness.metrics_rows(run)) >= 3


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flag is of x86's CPUs")
def test_a_deterministic_run_on_other_processors_ends_by_name(host: harness.Host, tmp_path: pathlib.Path) -> None:
    host.compile_as_users_do()
    hosts = _two_processors(host, tmp_path / "run", *HOSTS)
    for ended in [one.wait() for one in hosts]:
        assert ended.code == 2 and "computes different bits from host 0" in ended.err, ended.err


@pytest.mark.slow
def test_parts_of_other_parameters_do_not_count_and_another_run_is_refused(
    host: harness.Host, tmp_path: pathlib.Path
) -> None:
    run = tmp_path / "run"
    host.train(run, *HOSTS).wait().ok()
    newest = max((run / "hosts" / "1" / "checkpoints" / "steps").iterdir())
    _name_other_parameters(newest)
    ended = host.train(run, *HOSTS, f"--max_updates={UPDATES + EVERY}").wait()
    assert ended.code == 0 and f"resumed at update {UPDATES - EVERY}\n" in ended.err, ended.err
    _assert_alike(*_dirs(run))
    assert _steps(run)[-1] == UPDATES + EVERY
    for path in newest.parent.iterdir():
        _name_other_parameters(path)
    ended = host.train(run, *HOSTS, f"--max_updates={UPDATES + 2 * EVERY}").wait()
    assert ended.code == 2 and "a host refused its start" in ended.err, ended.err
    said = (run / "hosts" / "1" / "logs" / "host.log").read_text()
    assert f"checkpoint {UPDATES + EVERY} in {run}/hosts/1 has other parameters than host 0" in said
    shutil.rmtree(run / "hosts" / "1")
    ended = host.train(run, *HOSTS, f"--max_updates={UPDATES + 2 * EVERY}").wait()
    assert ended.code == 0 and f"resumed at update {UPDATES + EVERY}\n" in ended.err, ended.err
    _assert_alike(*_dirs(run))
    one = host.train(run, *HOSTS, "--cluster.num_hosts=1", f"--max_updates={UPDATES + 3 * EVERY}").wait()
    assert one.code == 0 and f"resumed at update {UPDATES + 2 * EVERY}\n" in one.err, one.err


def _name_other_parameters(path: pathlib.Path) -> None:
    """Changes the checksum in the manifest of a host's checkpoint."""
    found = manifest.read(path)
    assert len(found.state_sha256) == 64
    manifest.write(path, dataclasses.replace(found, state_sha256=found.state_sha256[::-1]))


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_hosts_killed_ten_times_have_the_bits_of_an_undisturbed_run(
    host: harness.Host, tmp_path: pathlib.Path, agent: str
) -> None:
    words = (*AGENTS[agent], f"--max_updates={10 * EVERY}")
    whole, run = tmp_path / "whole", tmp_path / "run"
    host.train(whole, *words).wait().ok()
    learner = host.train(run, *words)
    for number in range(10):
        before = max(_steps(run), default=0) if run.exists() else 0
        place = _dirs(run)[number % 2]
        if before == 10 * EVERY:
            break
        harness.wait_for(lambda before=before: max(_steps(run), default=0) > before, "another", alive=learner)
        _kill(place, learner)
    learner.wait().ok()
    _assert_alike(*_dirs(run), *_dirs(whole))
    assert _check_ledgers(run) == _check_ledgers(whole)


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_a_host_that_stands_still_is_noticed_and_all_start_again(
    host: harness.Host, tmp_path: pathlib.Path, index: int
) -> None:
    run = tmp_path / "run"
    learner = host.train(run, *HOSTS, "--cluster.silence_seconds=5", f"--max_updates={10 * EVERY}")
    harness.wait_for(lambda: all(_steps(place) for place in _dirs(run)), "a checkpoint of both", alive=learner)
    stopped = _kill(_dirs(run)[index], learner, signal.SIGSTOP)
    learner.says(f"host {index}: killed by SIGKILL.*; all start again together", seconds=60)
    assert not stopped.is_running()
    said = learner.output() + (run / "hosts" / "1" / "logs" / "host.log").read_text()
    assert f"host {index} has been silent for " in said or "stood still for 5 s" in said
    learner.wait().ok()
    _assert_alike(*_dirs(run))


@pytest.mark.slow
def test_hosts_in_a_bucket_resume_from_the_last_common_checkpoint(
    host: harness.Host, gcs: fake_gcs.FakeGcs, tmp_path: pathlib.Path
) -> None:
    """Host 1 is killed while its third checkpoint is on its way; later both machines are lost."""
    url = bucket.Url("gs", "runs", "two")
    scratch = tmp_path / "scratch"
    host.environment |= gcs.environment | {bucket.SCRATCH_VARIABLE: str(scratch)}
    words = (*HOSTS, "--bucket.lease_seconds=2")
    third = f"checkpoints/steps/{3 * EVERY:012d}/"
    sent = threading.Event()

    def fault(request: fake_gcs.Request) -> int | None:
        if request.kind != "write" or f"two/hosts/1/{third}" not in request.name:
            return None
        sent.set()
        return 503

    gcs.fault = fault
    run, other = (scratch / bucket.scratch(bucket.of_host(url, index)).name for index in range(2))
    learner = host.train(run, *words, f"--max_updates={5 * EVERY}", url=str(url))
    harness.wait_for(sent.is_set, "the third checkpoint of host 1", alive=learner)
    whole = f"two/{third}{manifest.NAME}"
    harness.wait_for(lambda: whole in gcs.names("runs"), "the third checkpoint of host 0", alive=learner)
    _kill(other, learner)
    gcs.fault = lambda request: None
    learner.says("host 1: killed by SIGKILL.*; all start again together")
    assert int(learner.says(harness.RESUMED)[1]) == 2 * EVERY
    learner.wait().ok()
    _assert_alike(run, other)

    shutil.rmtree(scratch)
    again = host.train(run, *words, f"--max_updates={6 * EVERY}", url=str(url))
    assert int(again.says(harness.RESUMED)[1]) == 5 * EVERY
    ended = again.wait()
    assert ended.code == 0 and harness.FILLS_ANEW not in ended.err, ended.err
    assert _steps(run) == _steps(other) and _steps(run)[-1] == 6 * EVERY
    _assert_alike(run, other)
    for place in ("two", "two/hosts/1"):
        last = f"{place}/checkpoints/steps/{6 * EVERY:012d}/{manifest.NAME}"
        assert (
            gcs.content("runs", last)
            == (run if place == "two" else other).joinpath(last.removeprefix(f"{place}/")).read_bytes()
        )


def test_hosts_that_do_not_fit_are_named_and_refused(host: harness.Host, tmp_path: pathlib.Path) -> None:
    meet = ("--cluster.num_hosts=2", "--cluster.join_seconds=30", f"--run_dir={tmp_path / 'run'}", *harness.TINY)
    first = host.start(host.command("train", *meet, "--cluster.index=0", "--cluster.coordinator=127.0.0.1:0"), "host")
    coordinator = first.says(r"host 0 of 2 waits for the others at (\S+)")[1]
    for wrong, named in (
        ("--cluster.index=0", "in use"),
        ("--cluster.index=1 --seed=4", "other settings than host 0"),
    ):
        second = host.start(
            host.command("train", *meet, f"--cluster.coordinator={coordinator}", *wrong.split()), "host"
        )
        assert second.wait().code == 2
        assert named in second.output()
    first.send(signal.SIGTERM)
    assert "stopped before training began" in first.wait().err
