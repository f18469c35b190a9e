"""A worker's options become a command line and come back from it."""

from __future__ import annotations

import sys

import pytest

from seedzero.config import configs, worker_options
from seedzero.core import errors


def test_a_command_line_brings_every_option_back() -> None:
    options = worker_options.WorkerOptions(
        "unix:a b", "token", "ca.pem", "name", 7, 3, "train", "local-1", 3.5, -1, supervised=True
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
    values = {"worker.threads": 4, "worker.close_seconds": 60.0}
    expected = worker_options.WorkerOptions(threads=4, close_seconds=60.0)
    assert worker_options.of_learner(configs.override(configs.Config(), values)) == expected
    assert worker_options.of_learner(configs.Config()) == worker_options.WorkerOptions()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("num_envs", "0", ".* 1"),
        ("num_envs", "5000000000", ".* 2147483647"),
        ("num_envs", "many", ""),
        ("threads", "-1", ".* 0"),
        ("close_seconds", "long", ""),
        ("close_seconds", "inf", ".* 1000000000"),
        ("close_seconds", "0", ".* 0.1"),
        ("role", "idle", ".* any, train, evaluate"),
        ("supervised", "perhaps", ".*true or false"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, text: str, expected: str) -> None:
    with pytest.raises(errors.UsageError, match=f"--{name}={text}: {expected}"):
        worker_options.parse({name: text})


@pytest.mark.parametrize("word", ["--supervised", "--supervised=true"])
def test_a_switch_needs_no_value(word: str) -> None:
    assert worker_options.read(["--server=h:1", word]).supervised
