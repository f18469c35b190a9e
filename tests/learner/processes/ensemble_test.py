"""Programs that belong together end together and start again together."""

from __future__ import annotations

import pathlib
import sys
import threading
from collections.abc import Sequence

import pytest

from seedzero.core import errors
from seedzero.learner.processes import ensemble

WAITS = "import sys; print('waits', flush=True); sys.stdin.read()"


class Programs:
    """An ensemble, and its words."""

    def __init__(self, *lives: Sequence[str], grace_seconds: float = 60.0) -> None:
        """lives: the source of each program, life after life; the last one goes on."""
        self.lines: list[tuple[int, str]] = []
        self.said: list[str] = []
        self.num_lives = 0
        self.both = threading.Event()  # two lines came
        self._lives = lives
        self.runs = ensemble.Ensemble(
            self._commands, write=self._write, say=self.said.append, name="host {}".format, grace_seconds=grace_seconds
        )

    def _commands(self) -> list[Sequence[str]]:
        self.num_lives += 1
        life = self._lives[min(self.num_lives, len(self._lives)) - 1]
        return [[sys.executable, "-c", source] for source in life]

    def _write(self, index: int, line: bytes) -> None:
        self.lines.append((index, line.decode().strip()))
        if len(self.lines) == 2:
            self.both.set()


def test_all_that_end_well_have_ended_well() -> None:
    programs = Programs(["print(0)", "print(1)"])
    assert programs.runs.run() == errors.DONE
    assert sorted(programs.lines) == [(0, "0"), (1, "1")] and programs.said == []


FOLLOWS = f"import sys; sys.exit({errors.TRY_LATER})"


@pytest.mark.parametrize(
    ("life", "grace_seconds", "said"),
    [
        ([FOLLOWS, "import os; os.abort()"], 60.0, "host 1: killed by SIGABRT; all start again together"),
        ([WAITS, "raise SystemExit('gone')"], 0.0, "host 1: exit code 1: gone; all start again together"),  # is killed
    ],
    ids=["follows", "waits"],
)
def test_all_start_again_where_one_fails(life: list[str], grace_seconds: float, said: str) -> None:
    # Without grace, nothing may end before program 0 does.
    programs = Programs(life, ["", "" if grace_seconds else WAITS], grace_seconds=grace_seconds)
    assert programs.runs.run() == errors.DONE
    assert programs.num_lives == 2 and programs.said == [said]


def test_the_leader_that_ends_well_ends_all() -> None:
    programs = Programs(["", FOLLOWS])
    assert programs.runs.run() == errors.DONE and programs.num_lives == 1


@pytest.mark.parametrize("index", [0, 1])
def test_a_refusal_is_the_end(index: int) -> None:
    life = [FOLLOWS] * 2
    life[index] = f"import sys; sys.exit({errors.BAD_USAGE})"
    programs = Programs(life)
    assert programs.runs.run() == errors.BAD_USAGE and programs.num_lives == 1


def test_too_many_failures_are_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble.programs, "MAX_DELAY_SECONDS", 0.01)
    programs = Programs(["import sys; sys.exit(3)", ""])
    assert programs.runs.run() == errors.FAILED
    assert programs.num_lives == 10 and "exit code 3" in programs.said[-1]


@pytest.mark.parametrize(("end", "code"), [("stop", errors.DONE), ("kill", errors.FAILED)])
def test_stop_asks_all_to_end_and_kill_ends_them_at_once(end: str, code: int) -> None:
    programs = Programs([WAITS, WAITS])
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(programs.runs.run()))
    thread.start()
    assert programs.both.wait(60)
    getattr(programs.runs, end)()
    thread.join(60)
    assert codes == [code] and programs.num_lives == 1


def test_a_program_that_cannot_be_started_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble.programs, "MAX_DELAY_SECONDS", 0.01)
    said: list[str] = []
    runs = ensemble.Ensemble(lambda: [[str(tmp_path / "none")]], write=lambda *_: None, say=said.append)
    assert runs.run() == errors.FAILED
    assert "cannot be started" in said[-1]
