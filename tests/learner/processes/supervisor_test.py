"""Local workers are started, watched, started again and ended."""

from __future__ import annotations

import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import made_up
import pytest
from made_up import TIMEOUT_SECONDS

from seedzero.core import errors
from seedzero.learner.processes import supervisor

# With processes that are made up.


class Harness:
    """A supervisor whose processes are made up: reports and pauses are recorded."""

    def __init__(
        self,
        log_dir: pathlib.Path,
        launch: Callable[[int], made_up.Process | OSError],
        num: int = 1,
        **options: Any,
    ) -> None:
        """launch: takes the number of the start, from 1."""
        self.reports: list[str] = []
        self.failures: queue.Queue[str] = queue.Queue(maxsize=10)
        self._system = made_up.System(lambda: launch(self.num_starts))
        self.pauses = self._system.pauses
        self.supervisor = supervisor.Supervisor(
            lambda index: [f"worker-{index}"],
            num,
            on_failure=self.failures.put,
            log_dir=log_dir,
            report=self.reports.append,
            system=self._system.functions,
            **options,
        )
        self.supervisor.start()

    @property
    def num_starts(self) -> int:
        return len(self._system.commands)

    def failure(self) -> str:
        """Waits for the reason to give up; all workers have ended then."""
        text = self.failures.get(timeout=TIMEOUT_SECONDS)
        self.supervisor.stop(TIMEOUT_SECONDS)
        return text


def test_worker_that_keeps_failing_is_reported_once_with_its_last_line(tmp_path: pathlib.Path) -> None:
    lines = b"Traceback:\n", b"Failure: no game Pogn\n", b"\n"
    harness = Harness(tmp_path, lambda number: made_up.Process(*lines, status=1))
    text = harness.failure()
    assert "local-0" in text and "exit code 1: Failure: no game Pogn;" in text
    assert str(tmp_path / "worker-0.log") in text
    assert " 5 times within 60 s" in text
    assert harness.num_starts == 5 and harness.failures.empty()
    assert harness.pauses == [0.25, 0.5, 1.0, 2.0]
    assert "local-0" in harness.reports[0] and " 0.25 s" in harness.reports[0]
    assert "(exit code 1: Failure: no game Pogn)" in harness.reports[0]
    assert (tmp_path / "worker-0.log").read_bytes() == b"".join(lines) * 5


def test_a_worker_whose_environments_hang_is_killed_and_starts_again(tmp_path: pathlib.Path) -> None:
    class Hanging(made_up.Process):
        def kill_group(self) -> None:
            self.end(-signal.SIGKILL)

    started: queue.Queue[Hanging] = queue.Queue()

    def launch(number: int) -> Hanging:
        started.put(process := Hanging())
        return process

    harness = Harness(tmp_path, launch, num=2)
    for _ in range(2):
        assert started.get(timeout=TIMEOUT_SECONDS).read.wait(TIMEOUT_SECONDS)
    harness.supervisor.restart("a worker elsewhere")
    harness.supervisor.restart("local-1")
    started.get(timeout=TIMEOUT_SECONDS)
    harness.supervisor.stop(TIMEOUT_SECONDS)
    assert harness.num_starts == 3
    (text,) = harness.reports
    assert "local-1" in text and "SIGKILL" in text


def test_of_several_workers_that_fail_the_first_is_reported(tmp_path: pathlib.Path) -> None:
    harness = Harness(tmp_path, lambda number: made_up.Process(status=1), num=3)
    assert "failed 5 times" in harness.failures.get(timeout=TIMEOUT_SECONDS)
    assert harness.supervisor._join(TIMEOUT_SECONDS)
    assert harness.failures.empty() and harness.num_starts == 15


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (FileNotFoundError(2, "No such file or directory", "python9"), "No such file or directory: python9"),
        (0, "exit code 0"),  # it leaves before training is finished
    ],
    ids=["no start", "leaves"],
)
def test_whatever_ends_a_worker_too_often_is_reported(tmp_path: pathlib.Path, process: Any, words: str) -> None:
    harness = Harness(tmp_path, lambda number: process or made_up.Process(status=process))
    assert words in harness.failure() and harness.num_starts == 5


def test_work_that_is_refused_ends_a_worker_by_its_name_at_the_second_time(tmp_path: pathlib.Path) -> None:
    launch, name = lambda number: made_up.Process(b"nan\n", status=errors.REFUSED), ["evaluator"].__getitem__
    harness = Harness(tmp_path, launch, name=name)
    text = harness.failure()
    assert "worker evaluator " in text and "exit code 65: nan" in text and " within 60 s" in text
    assert text.endswith("worker-0.log") and harness.num_starts == 2


def test_last_line_of_an_earlier_life_is_not_this_ones_reason(tmp_path: pathlib.Path) -> None:
    lives = [made_up.Process(b"first\n", status=3), made_up.Process(status=3), made_up.Process()]
    harness = Harness(tmp_path, lambda number: lives[number - 1])
    assert lives[2].read.wait(TIMEOUT_SECONDS)
    harness.supervisor.stop(TIMEOUT_SECONDS)
    assert "(exit code 3: first)" in harness.reports[0]
    assert "(exit code 3);" in harness.reports[1]


def test_worker_that_ends_after_finish_stays_ended(tmp_path: pathlib.Path) -> None:
    process = made_up.Process()
    harness = Harness(tmp_path, lambda number: process)
    assert process.read.wait(TIMEOUT_SECONDS)
    harness.supervisor.finish()
    process.end(0)
    harness.supervisor.stop(TIMEOUT_SECONDS)
    assert harness.num_starts == 1 and harness.reports == [] and harness.failures.empty()
    assert process.signals == []


# The log.


def test_log_is_bounded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MAX_LOG_BYTES", 100)
    for number in range(100):
        supervisor.write_log(tmp_path / "worker-0.log", b"line %03d\n" % number)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) <= {"worker-0.log", "worker-0.log.1"} and all(size <= 109 for size in sizes.values())


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "worker-0.log").symlink_to(tmp_path / "mine")
    supervisor.write_log(tmp_path / "worker-0.log", b"line\n")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_full_disk_hides_no_reason(tmp_path: pathlib.Path) -> None:
    (tmp_path / "worker-0.log").symlink_to("/dev/full")
    harness = Harness(tmp_path, lambda number: made_up.Process(b"reason\n", status=1))
    assert "exit code 1: reason;" in harness.failure()


# With real processes, which call the test on a unix socket and end when their standard input does.

CALLER = """
import os, socket, sys
caller = socket.socket(socket.AF_UNIX)
caller.connect(sys.argv[1])
caller.sendall(f"{os.getpid()} {os.getsid(0)} {os.environ['OMP_NUM_THREADS']}\\n".encode())
"""
WATCHING = CALLER + "sys.stdin.read()\n"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + CALLER + "signal.pause()\n"


class Called(NamedTuple):
    """What a child tells: its connection, pid, session and OMP_NUM_THREADS."""

    connection: socket.socket
    pid: int
    session: int
    threads: str

    def check_ended(self) -> None:
        """Waits for the child's end."""
        with self.connection:
            assert self.connection.recv(1) == b""


class Calls:
    """What children tell on a unix socket."""

    def __init__(self, path: pathlib.Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(TIMEOUT_SECONDS)
        self._listener.bind(str(path))
        self._listener.listen()

    def next(self) -> Called:
        """Waits for a child."""
        connection, _ = self._listener.accept()
        connection.settimeout(TIMEOUT_SECONDS)
        pid, session, threads = connection.makefile().readline().split()
        return Called(connection, int(pid), int(session), threads)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def calls(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    calls = Calls(pathlib.Path("calls"))
    yield calls
    calls.close()


def supervise(code: str, num: int = 1, **options: Any) -> tuple[supervisor.Supervisor, queue.Queue[str]]:
    """Starts workers whose logs are in the current directory."""
    failures: queue.Queue[str] = queue.Queue(maxsize=10)
    command = [sys.executable, "-S", "-c", code, "calls"]
    options = dict(on_failure=failures.put, log_dir=pathlib.Path.cwd(), **options)
    workers = supervisor.Supervisor(lambda index: command, num, **options)
    workers.start()
    return workers, failures


def _pids(workers: supervisor.Supervisor) -> list[int]:
    return sorted(process.pid for process in workers._running())


def _await_pids(workers: supervisor.Supervisor, pids: Sequence[int]) -> None:
    """Waits until the supervisor knows these processes alone: a child may call before its start has returned."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while _pids(workers) != sorted(pids):
        assert time.monotonic() < deadline, f"running: {_pids(workers)}, expected: {sorted(pids)}"
        os.sched_yield()


def test_killed_worker_comes_back_and_closed_pipes_end_all(calls: Calls) -> None:
    workers, failures = supervise(WATCHING, 2)
    called = [calls.next() for _ in range(2)]
    pids = [each.pid for each in called]
    _await_pids(workers, pids)
    os.kill(pids[0], signal.SIGKILL)
    called.append(calls.next())
    assert called[2].pid not in pids
    _await_pids(workers, [pids[1], called[2].pid])
    workers.stop(TIMEOUT_SECONDS)
    for each in called:
        each.check_ended()
        with pytest.raises(ProcessLookupError):
            os.kill(each.pid, 0)
    assert _pids(workers) == [] and failures.empty()


def test_worker_has_a_session_and_an_environment_of_its_own(calls: Calls) -> None:
    workers, _ = supervise(WATCHING)
    called = calls.next()
    workers.stop(TIMEOUT_SECONDS)
    called.check_ended()
    assert called.session == called.pid  # so Ctrl-C at the terminal does not reach it
    assert called.threads == "1"


def test_stubborn_worker_is_killed(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "KILL_SECONDS", 0.1)
    workers, _ = supervise(STUBBORN)
    called = calls.next()
    workers.stop(0.1)
    called.check_ended()
    workers.stop(TIMEOUT_SECONDS)
    with pytest.raises(ProcessLookupError):
        os.kill(called.pid, 0)


def test_kill_needs_no_time_to_end_a_worker(calls: Calls) -> None:
    workers, failures = supervise(STUBBORN)
    called = calls.next()
    workers.kill()
    called.check_ended()
    workers.stop(TIMEOUT_SECONDS)
    assert _pids(workers) == [] and failures.empty()


WITH_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", {child!r}, "calls"])
{then}
"""


@pytest.mark.parametrize("then", ["sys.stdin.read()", "child.wait()"], ids=["leaves", "hangs"])
def test_what_a_worker_started_ends_with_it(calls: Calls, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    monkeypatch.setattr(supervisor, "KILL_SECONDS", 0.1)
    workers, _ = supervise(WITH_CHILD.format(child=STUBBORN, then=then))
    called = calls.next()
    workers.stop(0.1)
    called.check_ended()


LEARNER = """
import os, pathlib, sys
from seedzero.learner.processes import supervisor

command = [sys.executable, "-S", "-c", {worker!r}, "calls"]
workers = supervisor.Supervisor(lambda index: command, {num}, on_failure=print, log_dir=pathlib.Path())
workers.start()
sys.stdin.readline()
workers.kill()
os._exit(0)
"""


def _learner(worker: str, num: int) -> subprocess.Popen[bytes]:
    """Starts a learner with workers, which kills them and leaves at once when it is told to."""
    command = [sys.executable, "-c", LEARNER.format(worker=worker, num=num)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)


def test_what_a_worker_started_is_killed_by_a_learner_that_leaves_at_once(calls: Calls) -> None:
    with _learner(WITH_CHILD.format(child=STUBBORN, then="child.wait()"), 1) as learner:
        called = calls.next()
        learner.communicate(b"\n")
    called.check_ended()


def test_workers_end_when_the_learner_is_killed(calls: Calls) -> None:
    with _learner(WATCHING, 2) as learner:
        called = [calls.next() for _ in range(2)]
        learner.kill()
    for each in called:
        each.check_ended()
