"""The commands of all hosts on this machine; `tests/e2e/hosts_run_test.py` runs them."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import types

import pytest

from seedzero.api import local_hosts
from seedzero.config import sections
from seedzero.core import errors
from seedzero.learner import callbacks, endings


def test_each_host_has_its_index_and_all_meet_at_a_port_of_this_machine() -> None:
    first, second = local_hosts.commands({"preset": "catch"}, {"run.seed": "3"}, 2)
    assert first[:-1] == second[:-1]
    assert [first[-1], second[-1]] == ["--cluster.index=0", "--cluster.index=1"]
    assert {"--supervised", "--preset=catch", "--run.seed=3"} <= set(first)
    (meets,) = [word for word in first if word.startswith("--cluster.coordinator=127.0.0.1:")]
    assert int(meets.rpartition(":")[2]) > 0


@pytest.mark.thorough
@pytest.mark.parametrize(("code", "error"), [(0, None), (2, errors.UsageError), (1, errors.TrainingFailure)])
def test_the_end_of_the_hosts_is_the_end_of_the_call(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception] | None
) -> None:
    said: list[str] = []
    program = [sys.executable, "-c", f"print('a line'); raise SystemExit({code})"]
    monkeypatch.setattr(local_hosts, "commands", lambda flags, settings, num, gpus: [program] * num)
    monkeypatch.setattr(local_hosts.pool.programs, "MAX_DELAY_SECONDS", 0.01)

    def run() -> endings.Result:
        return local_hosts.run({}, {}, tmp_path / "run", 2, callbacks.Caller(said.append, handles_signals=False))

    if error is None:
        assert not run().is_finished  # nothing was trained
    else:
        with pytest.raises(error, match="host"):
            run()
    log = tmp_path / "run" / "hosts" / "1" / "logs" / local_hosts.LOG
    assert log.read_text().startswith("a line") and str(log) in said[0]


def test_hosts_share_a_token_of_this_start_that_no_command_line_shows(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = [sys.executable, "-c", f"import os; print(os.environ[{sections.TOKEN!r}])"]
    commands, seen = local_hosts.commands, []
    monkeypatch.setattr(local_hosts, "commands", lambda *given: seen.extend(commands(*given)) or [program] * 2)
    lines: list[bytes] = []
    monkeypatch.setattr(local_hosts.supervisor, "write_log", lambda _, line: lines.append(line))
    # A notebook's stream has no buffer of bytes.
    shown = types.SimpleNamespace(write=lambda text: lines.append(text.encode()), flush=lambda: None)
    monkeypatch.setattr(sys, "stderr", shown)
    for number in range(2):
        local_hosts.run({}, {}, tmp_path / str(number), 2, callbacks.Caller(lambda *_: None, handles_signals=False))
    tokens = {line.decode().strip() for line in lines}
    assert len(lines) == 4 and len(tokens) == 2 and all(len(token) == 64 for token in tokens)
    assert not any(token in " ".join(words) for words in seen for token in tokens)


@pytest.fixture
def smi(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A machine with JAX for CUDA; returns the program that lists its GPUs, five and a part of one."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    lines = [f"GPU {index}: NVIDIA H100" for index in range(5)] + ["  MIG 1g.10gb Device 0: (UUID)"]
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "jax_cuda12_plugin")
    return program


def test_hosts_share_the_gpus_of_their_machine_evenly(smi: pathlib.Path) -> None:
    hosts = local_hosts.commands({}, {}, 2, local_hosts.visible_gpus())
    assert [words[:2] for words in hosts] == [["env", "CUDA_VISIBLE_DEVICES=0,1"], ["env", "CUDA_VISIBLE_DEVICES=2,3"]]


@pytest.mark.parametrize(
    ("variable", "value", "found"),
    [
        ("JAX_PLATFORMS", "cpu", []),
        ("JAX_PLATFORMS", "cuda,cpu", ["0", "1", "2", "3", "4"]),
        ("CUDA_VISIBLE_DEVICES", "3,GPU-4", ["3", "GPU-4"]),
        ("CUDA_VISIBLE_DEVICES", "-1", []),
        ("PATH", "", []),
    ],
)
def test_gpus_are_those_that_jax_will_use(
    smi: pathlib.Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, found: list[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert local_hosts.visible_gpus() == found


def test_more_hosts_than_gpus_are_refused(
    smi: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(
        errors.UsageError, match=r"--cluster\.num_hosts=2: .*GPU.* has 1 .*num_hosts=1.*JAX_PLATFORMS=cpu"
    ):
        local_hosts.run({}, {}, tmp_path / "run", 2, callbacks.Caller(pytest.fail, handles_signals=False))
    assert not (tmp_path / "run").exists()
