"""A worker's options become a command line and come back from it."""

from __future__ import annotations

import socket
import sys

import pytest

from seedzero.config import config as configs
from seedzero.config import worker_options
from seedzero.core import errors


def test_a_command_line_brings_every_option_back() -> None:
    options = worker_options.WorkerOptions(
        "unix:a b", "token", "ca.pem", "name", 7, 3, "train", "local-1", 1.5, 2.5, 0.5, supervised=True
    )
    assert all(getattr(options, field.name) != field.default for field in worker_options.FLAGS.values())
    words = worker_options.command(
        options, server=options.server, worker_id=options.worker_id, role=options.role, token_file=options.token_file
    )
    assert words[:3] == [sys.executable, "-m", "seedzero.worker"]
    assert worker_options.read(words[3:]) == options


def test_defaults_need_no_words() -> None:
    command = worker_options.command(worker_options.WorkerOptions(), server="h:1", worker_id="w", role="any")
    assert command[3:] == ["--server=h:1", "--worker_id=w", "--supervised=True"]


def test_a_learners_configuration_sets_threads_and_times() -> None:
    learner = configs.override(configs.Config(), {"worker.threads": 4, "transport.keepalive_seconds": 2.0})
    assert worker_options.of_learner(learner) == worker_options.WorkerOptions(threads=4, keepalive_seconds=2.0)
    assert worker_options.of_learner(configs.Config()) == worker_options.WorkerOptions()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("num_envs", "0", "expected at least 1"),
        ("num_envs", "5000000000", "expected at most 2147483647"),
        ("num_envs", "many", "expected a whole number"),
        ("threads", "-1", "expected at least 0"),
        ("keepalive_seconds", "long", "expected a number"),
        ("role", "idle", "expected one of any, train, evaluate"),
        ("supervised", "perhaps", "expected true or false"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, text: str, expected: str) -> None:
    with pytest.raises(errors.UsageError, match=f"--{name}={text}: {expected}"):
        worker_options.parse({name: text})


@pytest.mark.parametrize("word", ["--supervised", "--supervised=true"])
def test_a_switch_needs_no_value(word: str) -> None:
    assert worker_options.read(["--server=h:1", word]).supervised


@pytest.mark.parametrize("listen", ["0.0.0.0:17777", "[::]:17777", "learner.example:17777"])
def test_an_invitation_is_a_command_that_works_elsewhere(listen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "learner.example")
    safe = {"transport.token_file": "t", "tls.cert_file": "c", "tls.key_file": "k"}
    for values, named in (({}, {}), (safe, {"token_file": "COPY_OF_THE_TOKEN", "ca_file": "CERTIFICATE"})):
        text = worker_options.invitation(configs.override(configs.Config(), values), listen)
        assert text.startswith("seedzero worker ")
        options = worker_options.read(text.split()[2:])
        assert options == worker_options.WorkerOptions(server="learner.example:17777", **named)


def test_an_invitation_to_a_socket_names_it() -> None:
    assert worker_options.invitation(configs.Config(), "unix:/run/a") == "seedzero worker --server=unix:/run/a"


def test_an_invitation_to_a_run_with_remote_environments_is_for_the_users_own_worker() -> None:
    remote = configs.override(configs.Config(), {"env.id": "remote"})
    assert worker_options.invitation(remote, "127.0.0.1:7") == "python YOUR_WORKER.py --server=127.0.0.1:7"
