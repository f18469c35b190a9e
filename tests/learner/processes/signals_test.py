"""First and second Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from seedzero.learner.processes import signals

TIMEOUT_SECONDS = 600.0


@pytest.fixture(autouse=True)
def _python_s_own_handler() -> Iterator[None]:
    """Shells start what runs in the background with SIGINT ignored; Ctrl-C has to mean something here all the same."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    before_hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before)
    signal.signal(signal.SIGHUP, before_hangup)


class Log:
    """Records calls in order, and when the process would have left."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.said, self.left = threading.Event(), threading.Event()
        self.now = 0.0

    def say(self, text: str) -> None:
        self.calls.append("say")
        self.said.set()

    def leave(self, code: int) -> None:
        self.calls.append(f"leave {code}")
        self.left.set()

    def handler(self) -> signals.StopSignals:
        return signals.StopSignals(
            lambda: self.calls.append("stop"),
            say=self.say,
            cleanup=lambda: self.calls.append("cleanup"),
            clock=lambda: self.now,
            leave=self.leave,
        )


@pytest.mark.parametrize("number", signals.STOP_SIGNALS)
def test_first_signal_asks_to_stop_and_says_so(number: int) -> None:
    log = Log()
    with log.handler() as stop:
        assert not stop.requested.is_set()
        signal.raise_signal(number)
        assert stop.requested.wait(TIMEOUT_SECONDS)
    assert log.calls == ["stop", "say"]


@pytest.mark.parametrize(
    ("first", "number", "seconds", "leaves"),
    [
        (signal.SIGINT, signal.SIGINT, 1.0, True),
        (signal.SIGINT, signal.SIGTERM, 1.0, True),
        (signal.SIGTERM, signal.SIGTERM, signals.ECHO_SECONDS / 2, False),  # an echo of the first one
        (signal.SIGTERM, signal.SIGHUP, 1.0, False),
    ],
)
def test_a_second_signal_cleans_up_and_leaves_at_once(first: int, number: int, seconds: float, leaves: bool) -> None:
    log = Log()
    with log.handler():
        signal.raise_signal(first)
        assert log.said.wait(TIMEOUT_SECONDS)
        log.now = seconds
        signal.raise_signal(number)
        assert not leaves or log.left.wait(TIMEOUT_SECONDS)
    # The end of the block has waited for the thread.
    assert log.calls == ["stop", "say", *(["cleanup", "leave 130"] if leaves else [])]


def test_an_echo_may_wait_until_the_first_signal_is_handled() -> None:
    log = Log()

    def stop() -> None:
        signal.raise_signal(signal.SIGTERM)
        log.now = 1.0  # this machine is busy

    with signals.StopSignals(stop, say=log.say, cleanup=lambda: None, clock=lambda: log.now, leave=log.leave):
        signal.raise_signal(signal.SIGTERM)
        assert log.said.wait(TIMEOUT_SECONDS)
    assert log.calls == ["say"]


def test_failing_cleanup_does_not_keep_it_from_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    log = Log()

    def fail() -> None:
        raise OSError

    with signals.StopSignals(lambda: None, say=log.say, cleanup=fail, clock=lambda: log.now, leave=log.leave):
        signal.raise_signal(signal.SIGTERM)
        assert log.said.wait(TIMEOUT_SECONDS)
        log.now = 1.0
        signal.raise_signal(signal.SIGINT)
        assert log.left.wait(TIMEOUT_SECONDS)


def test_a_hangup_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log = Log()
    with log.handler():
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert log.calls == []


def test_old_handlers_are_back_afterwards() -> None:
    before = [signal.getsignal(number) for number in signals.STOP_SIGNALS]
    with Log().handler():
        assert [signal.getsignal(number) for number in signals.STOP_SIGNALS] != before
    assert [signal.getsignal(number) for number in signals.STOP_SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def _running(program: str) -> Any:
    """Starts a program in Python, with pipes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes: dict[str, Any] = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes)


MAIN_THREAD_STUCK_IN_C = """
import ctypes
from seedzero.learner.processes import signals

signals.ECHO_SECONDS = 0.0
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
libc.pthread_mutex_lock(mutex)
say = lambda text: print(text, flush=True)
with signals.StopSignals(lambda: None, say=say, cleanup=lambda: print("cleanup", flush=True)):
    say("ready")
    libc.pthread_mutex_lock(mutex)
"""


def test_second_ctrl_c_leaves_with_130_though_the_main_thread_is_stuck_in_a_library() -> None:
    with _running(MAIN_THREAD_STUCK_IN_C) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        assert "press Ctrl-C again" in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(TIMEOUT_SECONDS) == 130
        assert child.stdout.read() == "cleanup\n"


ENDS_WITH_ITS_INPUT = """
import threading
from seedzero.learner.processes import signals

with signals.StopSignals(lambda: None, say=lambda text: print(text, flush=True), cleanup=lambda: None) as stop:
    signals.terminate_with_input()
    print("ready", flush=True)
    stop.requested.wait()
"""


def test_a_process_terminates_itself_once_its_input_is_closed() -> None:
    with _running(ENDS_WITH_ITS_INPUT) as child:
        try:
            assert child.stdout.readline() == "ready\n"
            rest, _ = child.communicate("what is written there means nothing", TIMEOUT_SECONDS)
            assert "saving and leaving" in rest and child.returncode == 0
        finally:
            child.kill()


FORKED = """
import os, signal, sys
from seedzero.learner.processes import signals

signal.signal(signal.SIGINT, signal.default_int_handler)
go = os.pipe()
with signals.StopSignals(lambda: None, say=print, cleanup=lambda: None) as stop:
    children = [os.fork() for _ in range(2)]
    if 0 in children:
        os.close(go[1])
        os.read(go[0], 1)
        os._exit(7)
    os.kill(children[1], signal.SIGTERM)  # at once
    assert os.waitstatus_to_exitcode(os.waitpid(children[1], 0)[1]) == -signal.SIGTERM
    assert not stop.requested.is_set(), "the child's signal is none of this process"
print("left", flush=True)
os.close(go[1])
assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
"""


def test_a_forked_process_has_its_own_signals_and_keeps_nobody_from_leaving() -> None:
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert done.stdout + done.stderr == "left\n"
