"""A learner for other machines: with a token, TLS and metrics, and how its processes are told to end."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import secrets
import signal
import urllib.request
from typing import NamedTuple

import certificates
import e2e_harness as harness
import psutil
import pytest
from prometheus_client import parser

from seedzero.config import sections
from seedzero.transport import servers


class Fleet(NamedTuple):
    """A learner, the worker that it has let in, and what that worker needed."""

    learner: harness.Learner
    worker: harness.Program
    token: str
    token_file: str
    ca_file: str
    directory: pathlib.Path

    @property
    def right(self) -> tuple[str, str]:
        return f"--token_file={self.token_file}", f"--tls.ca_file={self.ca_file}"


@pytest.fixture(scope="module")
def fleet(module_host: harness.Host) -> Fleet:
    directory = module_host.directory
    files = certificates.make(directory / "authority", ["127.0.0.1"])
    token, token_file = secrets.token_hex(16), directory / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(token)
    learner = module_host.train(
        directory / "run",
        *harness.PACED,
        "--listen=127.0.0.1:0",
        f"--token_file={token_file}",
        f"--tls.cert_file={files.cert}",
        f"--tls.key_file={files.key}",
        "--metrics_port=0",
        "--checkpoint.every_seconds=0.5",
    )
    access = f"--token_file={token_file}", f"--tls.ca_file={files.ca}"
    worker = module_host.worker(learner.address, "--num_envs=8", *access)
    learner.until(lambda found: found["workers"] == 2 and found["durable_update"], "both workers and a checkpoint")
    return Fleet(learner, worker, token, str(token_file), str(files.ca), directory)


@pytest.mark.thorough
def test_workers_that_are_refused_say_why_and_end(fleet: Fleet, host: harness.Host, tmp_path: pathlib.Path) -> None:
    wrong, stranger = tmp_path / "wrong", certificates.make(tmp_path / "stranger", ["127.0.0.1"])
    wrong.write_text("a-guess-of-some-length")
    token, ca = fleet.right
    attempts = {
        "this server needs a token, and the request has none; give --token_file=FILE": [ca],
        "the token is not this learner's; give --token_file=FILE": [ca, f"--token_file={wrong}"],
        "speaks TLS and not plain text; give --tls.ca_file=FILE": [token],
        "a certificate that --tls.ca_file=.* did not sign": [token, f"--tls.ca_file={stranger.ca}"],
    }
    for message, words in attempts.items():
        ended = host.worker(fleet.learner.address, *words).wait()
        assert ended.code == 1 and re.search(f"AccessDenied: .*{message}", ended.err), ended.err
    assert fleet.learner.trains_on()["workers"] == 2


@pytest.mark.thorough
def test_a_worker_with_tls_at_a_learner_without_says_why_and_ends(fleet: Fleet, host: harness.Host) -> None:
    """The learner's other half is not needed: nobody gets as far as that."""
    plain = servers.Server(None, sections.TransportConfig(listen="127.0.0.1:0"))  # type: ignore[arg-type]
    address = plain.start()
    try:
        ended = host.worker(address, *fleet.right).wait()
    finally:
        plain.stop(finished=False, reason="the test is over")
    assert ended.code == 1 and "--tls.cert_file" in ended.err, ended.err


def test_status_and_health_answer_who_may_ask(fleet: Fleet, host: harness.Host) -> None:
    server, (token, ca) = f"--server={fleet.learner.address}", fleet.right
    assert host.seedzero("status", server, token, ca).json["workers"] == 2
    assert host.seedzero("status", f"--run_dir={fleet.learner.run}").json["workers"] == 2  # over the local socket
    refused = host.seedzero("status", server, ca)
    assert refused.code == 1 and "--token_file=FILE" in refused.err
    healthy = host.seedzero("health", server, ca)
    assert (healthy.code, healthy.out) == (0, "SERVING\n")
    assert host.seedzero("health", f"--server=unix:{fleet.learner.run}/learner.sock").code == 0
    nobody = host.seedzero("health", "--server=127.0.0.1:1")
    assert nobody.code == 1 and "127.0.0.1:1" in nobody.err


def test_prometheus_is_shown_the_numbers_of_the_status(fleet: Fleet) -> None:
    url = fleet.learner.says(r"metrics for Prometheus at (\S+)")[1]
    before = fleet.learner.trains_on()
    with urllib.request.urlopen(url, timeout=harness.DEADLINE_SECONDS) as reply:
        text = reply.read().decode()
    after = fleet.learner.until(lambda found: True, "a status")
    found = {
        sample.name.removeprefix("seedzero_"): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    for key, name in (("env_steps", "env_steps_total"), ("updates", "updates_total")):
        assert before[key] <= found[name] <= after[key]
    assert found["workers"] == 2 and found["environments"] == 16 and found["stalled"] == 0
    row = harness.metrics_rows(fleet.learner.run)[-1]
    assert {"loss", "batch_fill", "seconds"} - found.keys() == {"seconds"} and "loss" in row


def test_the_token_is_in_its_file_and_nowhere_else(fleet: Fleet) -> None:
    token = fleet.token.encode()
    processes = [psutil.Process(fleet.learner.pid), psutil.Process(fleet.worker.pid), *fleet.learner.children()]
    assert len(processes) >= 3
    for process in processes:
        proc = pathlib.Path("/proc", str(process.pid))
        assert token not in (proc / "cmdline").read_bytes()
        assert token not in (proc / "environ").read_bytes()
    fleet.learner.until(lambda found: found["durable_update"], "a checkpoint")
    holders = []
    for directory, _, names in os.walk(fleet.directory):  # which passes over directories that went away meanwhile
        for path in (pathlib.Path(directory, name) for name in names):
            with contextlib.suppress(FileNotFoundError):  # as files of an older checkpoint do
                if path.is_file() and token in path.read_bytes():
                    holders.append(str(path))
    assert holders == [fleet.token_file]


@pytest.mark.thorough
def test_a_machine_that_is_taken_away_leaves_a_checkpoint_and_no_run_behind(fleet: Fleet, host: harness.Host) -> None:
    """Last: it ends the learner. SIGTERM comes to every process of a machine."""
    fleet.worker.send(signal.SIGTERM)
    gone = fleet.worker.wait()
    assert gone.code == 0 and " stop" in gone.err
    seen = fleet.learner.until(lambda found: found["workers"] == 1, "the worker's goodbye")
    local = fleet.learner.workers()
    fleet.learner.send(signal.SIGTERM)  # first: a busy machine may run the workers' ends before it
    for process in local.values():
        process.send_signal(signal.SIGTERM)
    ended = fleet.learner.wait().ok()
    assert "left: goodbye" in ended.err and "starting it again" not in ended.err
    assert not any(process.is_running() for process in local.values())
    assert harness.saved_steps(fleet.learner.run)[-1] >= seen["updates"]
    assert host.seedzero("checkpoint", "verify", f"--run_dir={fleet.learner.run}").code == 0
