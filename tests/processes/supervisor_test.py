"""Local workers are started, watched, started again and ended."""

import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import golden
import pytest

from seedzero.core import exit_codes
from seedzero.processes import program as programs
from seedzero.processes import supervisor

TIMEOUT_SECONDS = 20.0


# With processes that are made up.


class FakeProcess(programs.Process):
    """Writes its lines and ends with a status, at once or when it is told to."""

    pid = 1234

    def __init__(self, output: Sequence[bytes], status: int | None) -> None:
        self._output, self._status = output, status
        self._ended = threading.Event()

    def lines(self) -> Iterator[bytes]:
        yield from self._output

    def wait(self) -> int:
        if self._status is None:
            assert self._ended.wait(TIMEOUT_SECONDS)
        return self._status or 0

    def close_input(self) -> None:
        self._ended.set()

    def kill_group(self) -> None:
        pass

    def send_signal(self, number: int) -> None:
        raise AssertionError("not needed")


class Harness:
    """A supervisor whose starts, pauses and reports are recorded, and whose pauses take no time."""

    def __init__(self, log_dir: pathlib.Path, launch: Callable[[int], FakeProcess], *, num: int = 1) -> None:
        self.pauses: list[float] = []
        self.reports: list[str] = []
        self.failures: queue.Queue[str] = queue.Queue(maxsize=10)
        self.num_starts = 0
        self._launch_number = launch
        self.supervisor = supervisor.Supervisor(
            lambda index: [f"worker-{index}"],
            num,
            on_failure=self.failures.put,
            log_dir=log_dir,
            report=self.reports.append,
            system=programs.System(self._launch, clock=lambda: 0.0, wait=self._wait),
        )

    def _launch(self, command: Sequence[str]) -> FakeProcess:
        assert command[0].startswith("worker-")
        self.num_starts += 1
        return self._launch_number(self.num_starts)

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        return event.is_set()


def test_worker_that_keeps_failing_is_reported_once_with_its_last_line(
    tmp_path: pathlib.Path, said: golden.Said
) -> None:
    harness = Harness(tmp_path, lambda number: FakeProcess([b"Traceback:\n", b"Failure: no game Pogn\n", b"\n"], 1))
    harness.supervisor.start()
    text = harness.failures.get(timeout=TIMEOUT_SECONDS)
    harness.supervisor.stop(TIMEOUT_SECONDS)
    assert (
        "local-0" in text and "exit code 1: Failure: no game Pogn;" in text and str(tmp_path / "worker-0.log") in text
    )
    said(text, "the end")
    assert harness.num_starts == 5 and harness.failures.empty()
    assert harness.pauses == [0.25, 0.5, 1.0, 2.0]
    assert "local-0" in harness.reports[0] and " 0.25 s" in harness.reports[0]
    said(harness.reports[0], "again")
    assert (tmp_path / "worker-0.log").read_bytes() == b"Traceback:\nFailure: no game Pogn\n\n" * 5


def test_a_worker_whose_environments_hang_is_killed_and_starts_again(tmp_path: pathlib.Path) -> None:
    lives: queue.Queue[None] = queue.Queue(maxsize=10)

    class Hanging(FakeProcess):
        def lines(self) -> Iterator[bytes]:
            lives.put(None)
            return iter(())

        def kill_group(self) -> None:
            self._status = -9
            self._ended.set()

    harness = Harness(tmp_path, lambda number: Hanging([], None), num=2)
    harness.supervisor.start()
    for _ in range(2):
        lives.get(timeout=TIMEOUT_SECONDS)
    harness.supervisor.restart("a worker elsewhere")
    harness.supervisor.restart("local-1")
    lives.get(timeout=TIMEOUT_SECONDS)
    harness.supervisor.stop(TIMEOUT_SECONDS)
    assert harness.num_starts == 3
    (text,) = harness.reports
    assert "local-1" in text and "SIGKILL" in text


def test_of_several_workers_that_fail_the_first_is_reported(tmp_path: pathlib.Path) -> None:
    harness = Harness(tmp_path, lambda number: FakeProcess([], 1), num=3)
    harness.supervisor.start()
    assert "failed 5 times" in harness.failures.get(timeout=TIMEOUT_SECONDS)
    assert harness.supervisor._join(TIMEOUT_SECONDS)
    assert harness.failures.empty() and harness.num_starts == 15


def test_worker_that_cannot_be_started_is_reported(tmp_path: pathlib.Path) -> None:
    def fail(number: int) -> FakeProcess:
        raise FileNotFoundError(2, "No such file or directory", "python9")

    harness = Harness(tmp_path, fail)
    harness.supervisor.start()
    text = harness.failures.get(timeout=TIMEOUT_SECONDS)
    harness.supervisor.stop(TIMEOUT_SECONDS)
    assert "No such file or directory: python9" in text


def test_last_line_of_an_earlier_life_is_not_this_ones_reason(tmp_path: pathlib.Path) -> None:
    third = threading.Event()

    def launch(number: int) -> FakeProcess:
        if number == 3:
            third.set()
            return FakeProcess([], None)
        return FakeProcess([b"first\n"] if number == 1 else [], 3)

    harness = Harness(tmp_path, launch)
    harness.supervisor.start()
    assert third.wait(TIMEOUT_SECONDS)
    harness.supervisor.stop(TIMEOUT_SECONDS)
    assert "(exit code 3: first)" in harness.reports[0]
    assert "(exit code 3);" in harness.reports[1]


def test_worker_that_ends_after_finish_stays_ended(tmp_path: pathlib.Path) -> None:
    process, started = FakeProcess([], None), threading.Event()

    def launch(number: int) -> FakeProcess:
        started.set()
        return process

    harness = Harness(tmp_path, launch)
    harness.supervisor.start()
    assert started.wait(TIMEOUT_SECONDS)
    harness.supervisor.finish()
    process.close_input()
    harness.supervisor.stop(TIMEOUT_SECONDS)
    assert harness.num_starts == 1 and harness.reports == [] and harness.failures.empty()


def test_worker_that_leaves_before_training_is_finished_is_started_again(tmp_path: pathlib.Path) -> None:
    harness = Harness(tmp_path, lambda number: FakeProcess([], 0))
    harness.supervisor.start()
    assert "exit code 0" in harness.failures.get(timeout=TIMEOUT_SECONDS)
    harness.supervisor.stop(TIMEOUT_SECONDS)
    assert harness.num_starts == 5


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
    harness = Harness(tmp_path, lambda number: FakeProcess([b"reason\n"], 1))
    harness.supervisor.start()
    assert "exit code 1: reason;" in harness.failures.get(timeout=TIMEOUT_SECONDS)
    harness.supervisor.stop(TIMEOUT_SECONDS)


# With real processes, which call the test on a unix socket and end when their standard input does.

CALLER = """
import os, socket, sys
caller = socket.socket(socket.AF_UNIX)
caller.connect(sys.argv[1])
caller.sendall(f"{os.getpid()} {os.getsid(0)} {os.environ['OMP_NUM_THREADS']}\\n".encode())
"""
WATCHING = CALLER + "sys.stdin.read()\n"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + CALLER + "signal.pause()\n"


class Calls:
    """What children tell on a unix socket."""

    def __init__(self, path: pathlib.Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(TIMEOUT_SECONDS)
        self._listener.bind(str(path))
        self._listener.listen()

    def next(self) -> tuple[socket.socket, int, int, str]:
        """Waits for a child; returns its connection, pid, session and OMP_NUM_THREADS."""
        connection, _ = self._listener.accept()
        connection.settimeout(TIMEOUT_SECONDS)
        pid, session, threads = connection.makefile().readline().split()
        return connection, int(pid), int(session), threads

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def calls(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    calls = Calls(pathlib.Path("calls"))
    yield calls
    calls.close()


def supervise(code: str, num: int, log_dir: pathlib.Path) -> tuple[supervisor.Supervisor, "queue.Queue[str]"]:
    failures: queue.Queue[str] = queue.Queue(maxsize=10)
    command = [sys.executable, "-S", "-c", code, "calls"]
    return supervisor.Supervisor(lambda index: command, num, on_failure=failures.put, log_dir=log_dir), failures


def _pids(workers: supervisor.Supervisor) -> list[int]:
    return sorted(process.pid for process in workers._running())


def _await_pids(workers: supervisor.Supervisor, pids: Sequence[int]) -> None:
    """Waits until the supervisor knows these processes alone: a child may call before its start has returned."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while _pids(workers) != sorted(pids):
        assert time.monotonic() < deadline, f"running: {_pids(workers)}, expected: {sorted(pids)}"
        os.sched_yield()


def test_killed_worker_comes_back_and_closed_pipes_end_all(calls: Calls, tmp_path: pathlib.Path) -> None:
    workers, failures = supervise(WATCHING, 2, tmp_path)
    workers.start()
    called = [calls.next() for _ in range(2)]
    pids = [pid for _, pid, _, _ in called]
    _await_pids(workers, pids)
    os.kill(pids[0], signal.SIGKILL)
    called.append(calls.next())
    assert called[2][1] not in pids
    _await_pids(workers, [pids[1], called[2][1]])
    workers.stop(TIMEOUT_SECONDS)
    for connection, pid, _, _ in called:
        assert connection.recv(1) == b""
        connection.close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert _pids(workers) == [] and failures.empty()


def test_worker_has_a_session_and_an_environment_of_its_own(calls: Calls, tmp_path: pathlib.Path) -> None:
    workers, _ = supervise(WATCHING, 1, tmp_path)
    workers.start()
    connection, pid, session, threads = calls.next()
    workers.stop(TIMEOUT_SECONDS)
    connection.close()
    assert session == pid  # so Ctrl-C at the terminal does not reach it
    assert threads == "1"


def test_stubborn_worker_is_killed(calls: Calls, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "KILL_SECONDS", 0.5)
    workers, _ = supervise(STUBBORN, 1, tmp_path)
    workers.start()
    connection, pid, _, _ = calls.next()
    workers.stop(0.2)
    assert connection.recv(1) == b""
    connection.close()
    workers.stop(TIMEOUT_SECONDS)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_kill_needs_no_time_to_end_a_worker(calls: Calls, tmp_path: pathlib.Path) -> None:
    workers, failures = supervise(STUBBORN, 1, tmp_path)
    workers.start()
    connection, _, _, _ = calls.next()
    workers.kill()
    assert connection.recv(1) == b""
    connection.close()
    workers.stop(TIMEOUT_SECONDS)
    assert _pids(workers) == [] and failures.empty()


WITH_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", {child!r}, "calls"])
{then}
"""


@pytest.mark.parametrize("then", ["sys.stdin.read()", "child.wait()"], ids=["leaves", "hangs"])
def test_what_a_worker_started_ends_with_it(
    calls: Calls, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    monkeypatch.setattr(supervisor, "KILL_SECONDS", 0.5)
    workers, _ = supervise(WITH_CHILD.format(child=STUBBORN, then=then), 1, tmp_path)
    workers.start()
    connection, _, _, _ = calls.next()
    workers.stop(0.2)
    assert connection.recv(1) == b""
    connection.close()


LEAVING = f"""
import os, pathlib, sys
from seedzero.processes import supervisor

command = [sys.executable, "-S", "-c", {WITH_CHILD.format(child=STUBBORN, then="child.wait()")!r}]
workers = supervisor.Supervisor(lambda index: command, 1, on_failure=print, log_dir=pathlib.Path())
workers.start()
sys.stdin.readline()
workers.kill()
os._exit(0)
"""


def test_what_a_worker_started_is_killed_by_a_learner_that_leaves_at_once(calls: Calls) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", LEAVING], env=environment, stdin=subprocess.PIPE) as learner:
        connection, _, _, _ = calls.next()
        learner.communicate(b"\n")
    assert connection.recv(1) == b""
    connection.close()


def test_five_quick_failures_end_with_the_reason(tmp_path: pathlib.Path) -> None:
    failures: queue.Queue[str] = queue.Queue(maxsize=10)
    code = "import sys; print('to the log', flush=True); sys.exit('ale: no such game')"
    workers = supervisor.Supervisor(
        lambda index: [sys.executable, "-S", "-c", code],
        1,
        on_failure=failures.put,
        log_dir=tmp_path,
        name=["evaluator"].__getitem__,
        system=programs.System(wait=lambda event, seconds: event.is_set()),
    )
    workers.start()
    text = failures.get(timeout=TIMEOUT_SECONDS)
    workers.stop(TIMEOUT_SECONDS)
    assert "worker evaluator " in text and " 5 times" in text
    assert "exit code 1: ale: no such game" in text
    assert (tmp_path / "worker-0.log").read_text() == "to the log\nale: no such game\n" * 5


def test_work_that_is_refused_is_tried_twice(tmp_path: pathlib.Path, said: golden.Said) -> None:
    failures: queue.Queue[str] = queue.Queue(maxsize=10)
    code = f"import sys; print('InvalidMessage: nan', flush=True); sys.exit({exit_codes.REFUSED})"
    workers = supervisor.Supervisor(
        lambda index: [sys.executable, "-S", "-c", code],
        1,
        on_failure=failures.put,
        log_dir=tmp_path,
        system=programs.System(wait=lambda event, seconds: event.is_set()),
    )
    workers.start()
    text = failures.get(timeout=TIMEOUT_SECONDS)
    workers.stop(TIMEOUT_SECONDS)
    assert "local-0" in text and "exit code 65: InvalidMessage: nan" in text
    said(text)
    assert (tmp_path / "worker-0.log").read_text() == "InvalidMessage: nan\n" * 2


LEARNER = f"""
import pathlib, sys, threading
from seedzero.processes import program, supervisor

command = [sys.executable, "-S", "-c", {WATCHING!r}, "calls"]
supervisor.Supervisor(lambda index: command, 2, on_failure=print, log_dir=pathlib.Path()).start()
threading.Event().wait()
"""


def test_workers_end_when_the_learner_is_killed(calls: Calls) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", LEARNER], env=environment) as learner:
        called = [calls.next() for _ in range(2)]
        learner.kill()
    for connection, _, _, _ in called:
        assert connection.recv(1) == b""
        connection.close()
