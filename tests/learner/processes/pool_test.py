from __future__ import annotations

import itertools
import os
import pathlib
import sys
import threading
import types
from collections.abc import Iterator, Sequence

import pytest

from seedzero.core import errors
from seedzero.learner.processes import pool, programs

_SECONDS = 600.0


class _Log:
    """The calls of a pool, by the names of its tasks."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.lines: dict[str, list[str]] = {}
        self.ends: dict[str, programs.Death] = {}
        self.changed = threading.Condition()

    def task(self, name: str, script: str) -> pool.Task:
        def begin() -> None:
            with self.changed:
                self.began.append(name)

        def write(line: bytes) -> None:
            with self.changed:
                self.lines.setdefault(name, []).append(line.decode().strip())
                self.changed.notify_all()

        def end(death: programs.Death) -> None:
            with self.changed:
                self.ends[name] = death

        return pool.Task([sys.executable, "-c", script], begin, write, end)

    def await_line(self, name: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: name in self.lines, _SECONDS)


_UNTIL_CLOSED = "print('up', flush=True); import sys; sys.stdin.read(); print('saved')"


def test_every_program_runs_once_in_order_and_a_failure_stops_none() -> None:
    log = _Log()
    tasks = [log.task(str(n), f"import os; print({n}, os.environ['GIVEN']); exit({n % 2})") for n in range(4)]
    running = pool.ProgramPool(tasks, 1, environment={"GIVEN": "x"})
    running.start()
    assert running.wait(_SECONDS)
    assert log.began == list("0123") and log.lines == {name: [f"{name} x"] for name in "0123"}
    assert [death.status for death in log.ends.values()] == [0, 1, 0, 1]


def test_a_stop_ends_running_programs_politely_and_starts_no_more() -> None:
    log = _Log()
    running = pool.ProgramPool([log.task(name, _UNTIL_CLOSED) for name in "abc"], 2)
    running.start()
    log.await_line("a")
    log.await_line("b")
    assert not running.wait(0.0)
    running.stop()
    assert running.wait(_SECONDS)
    assert log.lines == {"a": ["up", "saved"], "b": ["up", "saved"]} and sorted(log.began) == ["a", "b"]
    assert sorted(log.ends) == ["a", "b"]


def test_a_program_ends_politely_if_its_line_asks_for_it() -> None:
    log, drawn = _Log(), list[str]()

    def tasks() -> Iterator[pool.Task]:
        for name in "ab":
            drawn.append(f"{name} after {len(log.ends)}")
            task = log.task(name, _UNTIL_CLOSED)
            yield task._replace(write=lambda line, task=task: task.write(line) or line == b"up\n")

    running = pool.ProgramPool(tasks(), 1)
    running.start()
    assert running.wait(_SECONDS)
    assert drawn == ["a after 0", "b after 1"] and [death.status for death in log.ends.values()] == [0, 0]
    assert log.lines == {"a": ["up", "saved"], "b": ["up", "saved"]}


@pytest.mark.parametrize("where", ["draw", "write", "ended"])
def test_what_a_task_raises_ends_all_programs_and_wait_raises_it(where: str) -> None:
    log = _Log()

    def fail(*arguments: object) -> bool:
        log.await_line("b")
        raise ValueError(where)

    def tasks() -> Iterator[pool.Task]:
        yield log.task("b", _UNTIL_CLOSED)
        if where == "draw":
            fail()
        script = "print('up')" if where == "ended" else _UNTIL_CLOSED
        yield log.task("a", script)._replace(**{where: fail})

    running = pool.ProgramPool(tasks(), 2)
    running.start()
    with pytest.raises(ValueError, match=where):
        assert running.wait(_SECONDS)
    assert log.lines["b"] == ["up", "saved"]


def test_a_kill_waits_for_nothing() -> None:
    log = _Log()
    running = pool.ProgramPool([log.task("a", "import time; print('up', flush=True); time.sleep(600)")], 1)
    running.start()
    log.await_line("a")
    running.kill()
    assert running.wait(_SECONDS)
    assert log.ends["a"].status == -9


def test_cores_are_shared_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 2, 4, 7, 8})
    assert pool.cores(1) == [[1, 2, 4, 7, 8]]
    assert pool.cores(2) == [[1, 2], [4, 7]]
    assert pool.cores(7) == [[1], [2], [4], [7], [8], [1], [2]]


def test_a_program_sees_its_share_of_the_cores_alone() -> None:
    log, before = _Log(), os.sched_getaffinity(0)
    tasks = [log.task(name, "import os; print(len(os.sched_getaffinity(0)))") for name in "ab"]
    running = pool.ProgramPool(tasks, len(before))
    running.start()
    assert running.wait(_SECONDS)
    assert log.lines == {"a": ["1"], "b": ["1"]} and os.sched_getaffinity(0) == before


def test_programs_run_where_cores_cannot_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    log = _Log()
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    running = pool.ProgramPool([log.task("a", "print('up')")], 1)
    running.start()
    assert running.wait(_SECONDS) and log.lines == {"a": ["up"]}


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
        self.runs = pool.Ensemble(
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


@pytest.mark.thorough
def test_too_many_failures_are_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool.programs, "MAX_DELAY_SECONDS", 0.01)
    programs = Programs(["import sys; sys.exit(3)", ""])
    assert programs.runs.run() == errors.FAILED
    assert programs.num_lives == 5 and "exit code 3" in programs.said[-1]


@pytest.mark.parametrize(("num_programs", "failing", "num_lives"), [(2, (1,), 5), (4, (1,), 5), (4, (1, 3), 9)])
def test_one_of_many_that_fails_too_often_ends_all(
    monkeypatch: pytest.MonkeyPatch, num_programs: int, failing: Sequence[int], num_lives: int
) -> None:
    clock, said, indices = [0.0], list[str](), itertools.cycle(failing)
    monkeypatch.setattr(pool, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    runs = pool.Ensemble(lambda: [[]] * num_programs, write=lambda *_: None, say=said.append)

    def live(commands: Sequence[Sequence[str]]) -> dict[int, pool.programs.Death]:
        clock[0] += 1.0
        assert len(said) < 20, "it is never the end"
        return {next(indices): pool.programs.Death(1, 1.0, "it cannot begin")}

    monkeypatch.setattr(runs, "_live", live)
    monkeypatch.setattr(runs, "_stopping", types.SimpleNamespace(is_set=lambda: False, wait=lambda seconds: None))
    assert runs.run() == errors.FAILED and len(said) == num_lives
    assert "program 1 failed 5 times" in said[-1]


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


def test_a_stop_before_the_next_start_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs(["raise SystemExit('gone')"], [""])
    monkeypatch.setattr(programs.runs, "_say", lambda text: programs.runs.stop())
    assert programs.runs.run() == errors.DONE and programs.num_lives == 1


def test_a_program_that_cannot_be_started_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool.programs, "MAX_DELAY_SECONDS", 0.01)
    said: list[str] = []
    runs = pool.Ensemble(lambda: [[str(tmp_path / "none")]], write=lambda *_: None, say=said.append)
    assert runs.run() == errors.FAILED
    assert "cannot be started" in said[-1]
