"""The page as a process: its address, its answers over real connections, and its end."""

from __future__ import annotations

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
from collections.abc import Iterator

import httpx
import page_runs
import pytest

from seedzero.core import errors
from seedzero.page import connections, serve

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


def test_a_supervised_page_leaves_with_its_input(root: pathlib.Path) -> None:
    command = [sys.executable, "-m", "seedzero.cli", "page", f"--run_dir={root}", "--supervised"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None and process.stdin is not None
    with process.stderr, process.stdin:
        assert b"http://" in process.stderr.readline()
        process.stdin.close()
        assert process.wait(_SECONDS) == 0


def test_a_deleted_run_ends_its_stream_and_the_server_goes_on(root: pathlib.Path) -> None:
    with _serving(f"--run_dir={root}") as (_, url), httpx.Client(base_url=url, timeout=_SECONDS) as client:
        with client.stream("GET", "/api/stream", params={"run": "a", "cursor": ""}) as answer:
            events = _events(answer.iter_lines())
            assert next(events) == "rows"
            shutil.rmtree(root / "a")
            assert "gone" in list(events)
        assert client.get("/api/runs").json()["runs"] == []


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


def test_idle_connections_shut_nobody_out(root: pathlib.Path) -> None:
    with contextlib.ExitStack() as undo:
        _, url = undo.enter_context(_serving(f"--run_dir={root}"))
        address = urllib.parse.urlsplit(url)
        for _ in range(connections.MAX_CONNECTIONS):
            held = undo.enter_context(socket.create_connection((address.hostname, address.port), timeout=_SECONDS))
            held.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        assert httpx.get(f"{url}api/runs", timeout=_SECONDS).status_code == 200


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
