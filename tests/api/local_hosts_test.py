"""The commands of all hosts on this machine; `tests/e2e/hosts_run_test.py` runs them."""

from __future__ import annotations

import pathlib
import sys

import pytest

from seedzero.api import local_hosts
from seedzero.core import errors
from seedzero.host import result


def test_each_host_has_its_index_and_all_meet_at_a_port_of_this_machine() -> None:
    first, second = local_hosts.commands({"preset": "catch"}, {"run.seed": "3"}, 2)
    assert first[:-1] == second[:-1]
    assert [first[-1], second[-1]] == ["--hosts.index=0", "--hosts.index=1"]
    assert {"--supervised", "--preset=catch", "--run.seed=3"} <= set(first)
    (meets,) = [word for word in first if word.startswith("--hosts.coordinator=127.0.0.1:")]
    assert int(meets.rpartition(":")[2]) > 0


@pytest.mark.parametrize(
    ("code", "error"),
    [(0, None), (2, errors.UsageError), (1, errors.TrainingFailure)],
)
def test_the_end_of_the_hosts_is_the_end_of_the_call(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception] | None
) -> None:
    said: list[str] = []
    program = [sys.executable, "-c", f"print('a line'); raise SystemExit({code})"]
    monkeypatch.setattr(local_hosts, "commands", lambda flags, settings, num: [program] * num)
    monkeypatch.setattr(local_hosts.ensemble.programs, "MAX_DELAY_SECONDS", 0.01)

    def run() -> result.Result:
        return local_hosts.run({}, {}, tmp_path / "run", 2, said.append, handles_signals=False)

    if error is None:
        assert not run().is_finished  # nothing was trained
    else:
        with pytest.raises(error, match="host"):
            run()
    log = tmp_path / "run" / "hosts" / "1" / "logs" / local_hosts.LOG
    assert log.read_text().startswith("a line") and str(log) in said[0]
