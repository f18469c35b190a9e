"""The page as a process: its address, its answers over real connections, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import httpx
import page_runs
import pytest
import uvicorn
from uvicorn import server as uvicorn_server

from seedzero.core import errors
from seedzero.interfaces.page import serve

_SECONDS = 600


@contextlib.contextmanager
def _serving(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yields the process of `seedzero page`, and its URL; ends it."""
    command = [sys.executable, "-m", "seedzero.cli", "page", *words]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background jobs
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"http://\S+/", line):
                yield process, found[0]
                return
        pytest.fail("".join(lines))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def _events(lines: Iterator[str]) -> Iterator[str]:
    return (line.removeprefix("event: ") for line in lines if line.startswith("event: "))


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stream_tells_new_rows_and_a_signal_ends_it(root: pathlib.Path, number: signal.Signals) -> None:
    with _serving(f"--run_dir={root}") as (process, url), httpx.Client(base_url=url, timeout=_SECONDS) as client:
        assert "seedzero" in client.get("/").text
        cursor = client.get("/api/run", params={"run": "a"}).json()["cursor"]
        with client.stream("GET", "/api/stream", params={"run": "a", "cursor": cursor}) as answer:
            events = _events(answer.iter_lines())
            assert next(events) == "summary"
            with open(root / "a" / "metrics.jsonl", "ab") as file:
                file.write(page_runs.encode(page_runs.row(2, loss=2.0)))
            assert next(events) == "rows"
            process.send_signal(number)
            assert list(events) in ([], ["summary"])
        assert process.wait(_SECONDS) == 0
        assert process.stderr is not None and process.stderr.read() == ""


@pytest.mark.thorough
def test_a_supervised_page_leaves_with_its_input(root: pathlib.Path) -> None:
    command = [sys.executable, "-m", "seedzero.cli", "page", f"--run_dir={root}", "--supervised"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None and process.stdin is not None
    with process.stderr, process.stdin:
        assert b"http://" in process.stderr.readline()
        process.stdin.close()
        assert process.wait(_SECONDS) == 0


@pytest.mark.thorough
def test_a_deleted_run_ends_its_stream_and_the_server_goes_on(root: pathlib.Path) -> None:
    with _serving(f"--run_dir={root}") as (_, url), httpx.Client(base_url=url, timeout=_SECONDS) as client:
        with client.stream("GET", "/api/stream", params={"run": "a", "cursor": ""}) as answer:
            events = _events(answer.iter_lines())
            assert next(events) == "rows"
            shutil.rmtree(root / "a")
            assert "gone" in list(events)
        assert client.get("/api/runs").json()["runs"] == []


@pytest.mark.thorough
def test_a_real_browser_line_cannot_leave_the_files_nor_use_another_name(root: pathlib.Path) -> None:
    with _serving(f"--run_dir={root}") as (_, url):
        host, port = url.removeprefix("http://").rstrip("/").split(":")

        def ask(line: str, name: str = "localhost") -> str:
            with socket.create_connection((host, int(port)), timeout=_SECONDS) as connection:
                connection.sendall(f"{line} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode("latin-1"))
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode("latin-1")

        assert " 200 " in ask("GET /").splitlines()[0]
        assert " 421 " in ask("GET /", "evil.example").splitlines()[0]
        assert " 405 " in ask("POST /api/runs").splitlines()[0]
        for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/../../etc/passwd", "/static/..%5capp.py"):
            assert " 404 " in ask(f"GET {path}").splitlines()[0], path
        assert "server:" not in ask("GET /").lower()


@pytest.mark.thorough
def test_idle_connections_shut_nobody_out(root: pathlib.Path) -> None:
    with contextlib.ExitStack() as undo:
        _, url = undo.enter_context(_serving(f"--run_dir={root}"))
        address = urllib.parse.urlsplit(url)
        for _ in range(serve.MAX_CONNECTIONS):
            held = undo.enter_context(socket.create_connection((address.hostname, address.port), timeout=_SECONDS))
            held.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        assert httpx.get(f"{url}api/runs", timeout=_SECONDS).status_code == 200


@pytest.mark.thorough
def test_another_address_asks_for_the_token(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("correct-horse-battery\n")
    os.chmod(token_file, 0o600)
    with contextlib.ExitStack() as undo:
        _, url = undo.enter_context(_serving(f"--run_dir={root}", "--host=0.0.0.0", f"--token_file={token_file}"))
        local = url.replace("0.0.0.0", "127.0.0.1")
        client = undo.enter_context(httpx.Client(base_url=local, timeout=_SECONDS))
        assert client.get("/api/runs").status_code == 401
        assert client.get("/", params={"token": "correct-horse-battery"}).status_code == 303
        assert [run["run"] for run in client.get("/api/runs").json()["runs"]] == ["a"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "machine.lan"])
def test_another_address_without_a_token_is_refused(root: pathlib.Path, host: str) -> None:
    with pytest.raises(errors.UsageError, match=rf"--host={host} .*--token_file=FILE .*openssl rand -hex 32"):
        serve.serve(root, host, 0, "", print)


def test_a_name_that_no_host_can_have_is_refused() -> None:
    with pytest.raises(errors.UsageError, match=r"my\.\.host:0: .*--host"):
        serve._bound("my..host", 0)


def test_a_port_in_use_is_named(root: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(errors.UsageError, match=f"127.0.0.1:{port}: Address already in use; .*--port and --host"):
            serve.serve(root, "127.0.0.1", port, "", print)


HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


class _Loop:
    """An event loop's clock and timers; requests are kept, and nothing runs."""

    def __init__(self) -> None:
        self.now, self.timers = 0.0, list[tuple[float, Callable[[], None], _Timer]]()

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> _Timer:
        timer = _Timer()
        self.timers.append((self.now + seconds, call, timer))
        return timer

    def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        work.close()
        return cast(asyncio.Future[None], _Task())

    def wait(self, seconds: float) -> None:
        """Calls the timers up to a time from now, in their order."""
        self.now += seconds
        while due := [entry for entry in self.timers if entry[0] <= self.now and not entry[2].is_cancelled]:
            entry = min(due, key=lambda one: one[0])
            self.timers.remove(entry)
            entry[1]()


class _Timer:
    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class _Task:
    def add_done_callback(self, call: Callable[[Any], object]) -> None:
        pass


class _Transport:
    """A connection's other side, and the bytes that it has not taken."""

    def __init__(self) -> None:
        self.unsent, self.is_open, self.is_ending = 0, True, False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.is_open = False

    def is_closing(self) -> bool:
        return self.is_ending or not self.is_open

    def close(self) -> None:  # once all is sent
        self.is_ending = True

    def get_extra_info(self, name: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class _Server:
    """The state of a server, and connections to it."""

    def __init__(self) -> None:
        self.loop, self._state = _Loop(), uvicorn_server.ServerState()
        self._config = uvicorn.Config(_never, lifespan="off", ws="none", log_config=None)
        self._config.load()

    def connect(self, content: bytes = b"") -> tuple[serve.BrowserConnection, _Transport]:
        made = serve.BrowserConnection(self._config, self._state, {}, cast(Any, self.loop))
        transport = _Transport()
        made.connection_made(cast(Any, transport))
        if content:
            made.data_received(content)
        return made, transport

    def answer(self, to: serve.BrowserConnection) -> None:
        """Answers the request of a connection."""
        for message in ({"type": "http.response.start", "status": 200}, {"type": "http.response.body"}):
            with pytest.raises(StopIteration):
                to.cycle.send(cast(Any, message)).send(None)


async def _never(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("no request is run")


@pytest.fixture
def server() -> _Server:
    return _Server()


def test_a_peer_has_ten_seconds_for_a_whole_request(server: _Server) -> None:
    for content in (b"", HEAD, b"POST /token HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\n"):
        made, transport = server.connect(content)
        for _ in range(9):
            server.loop.wait(1)
            made.data_received(b"x")  # a trickle gains no time
        assert transport.is_open
        server.loop.wait(1)
        assert not transport.is_open, content


def test_a_request_may_take_its_time_and_the_next_one_has_ten_seconds_again(server: _Server) -> None:
    made, transport = server.connect(HEAD + b"\r\n")
    server.loop.wait(1000)
    assert transport.is_open and made.waiting_since is None
    server.answer(made)
    server.loop.wait(4)
    made.data_received(HEAD)
    server.loop.wait(5.9)
    assert transport.is_open
    server.loop.wait(0.2)
    assert not transport.is_open


def test_a_new_peer_gets_the_place_of_the_one_that_waited_longest(
    server: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "MAX_CONNECTIONS", 4)
    busy, of_busy = server.connect(HEAD + b"\r\n")
    idle = []
    for _ in range(3):
        server.loop.wait(0.1)
        idle.append(server.connect()[1])
    server.loop.wait(0.1)
    idle.append(server.connect()[1])
    assert [transport.is_open for transport in idle] == [False, False, True, True] and of_busy.is_open
    assert len(busy.connections) == 3  # so that the newest is served: at 4 the server refuses
    assert busy.waiting_since is None


def test_a_reader_that_takes_nothing_is_dropped_and_a_slow_one_is_not(server: _Server) -> None:
    (still, of_still), (slow, of_slow) = (server.connect(HEAD + b"\r\n") for _ in range(2))
    for made, transport in ((still, of_still), (slow, of_slow)):
        server.answer(made)
        transport.unsent = 4 << 20
        made.pause_writing()
    for _ in range(20):
        server.loop.wait(9.9)
        of_slow.unsent -= serve.LEAST_BYTES
        server.loop.wait(0.1)
    assert not of_still.is_open and of_slow.is_open
    of_slow.unsent = 0
    slow.resume_writing()
    server.loop.wait(10)
    assert not of_slow.is_open  # no further request came


def test_a_stream_whose_reader_takes_its_events_stays(server: _Server) -> None:
    made, transport = server.connect(HEAD + b"\r\n")
    for _ in range(3):
        made.pause_writing()
        server.loop.wait(9)
        made.resume_writing()
        server.loop.wait(60)
        assert transport.is_open
    made.pause_writing()
    server.loop.wait(10)
    assert not transport.is_open


def test_unsent_answers_have_a_bound_and_the_longest_waiting_reader_goes(
    server: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "MAX_UNSENT_BYTES", 10)
    transports = []
    for _ in range(5):
        made, transport = server.connect(HEAD + b"\r\n")
        transport.unsent = 4
        made.pause_writing()
        transports.append(transport)
        server.loop.wait(0.1)
    assert [transport.is_open for transport in transports] == [False, False, False, True, True]


def test_a_lost_connection_has_no_timer(server: _Server) -> None:
    made, _ = server.connect()
    made.connection_lost(None)
    server.loop.wait(60)
    assert made.waiting_since is None and not made.connections
    assert all(timer.is_cancelled for _, _, timer in server.loop.timers)
