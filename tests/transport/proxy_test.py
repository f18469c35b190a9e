"""The proxy of this process's variables, as gRPC itself takes it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
from collections.abc import Iterator

import grpc
import pytest

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.transport import addresses, client, messages, options, probe

NAMES = ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def _refusing() -> Iterator[tuple[int, list[bytes]]]:
    """Gives the port of a proxy that refuses everything, and the requests that came to it."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        asked.append(connection.recv(4096))
                        connection.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1], asked
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "variables", "is_caught"),
    [
        ("127.0.0.1", {"http_proxy": "http://PROXY"}, True),
        ("127.0.0.1", {"https_proxy": "http://PROXY"}, True),
        ("127.0.0.1", {"grpc_proxy": "http://user:secret@PROXY/"}, True),
        ("127.0.0.1", {"grpc_proxy": "", "http_proxy": "http://PROXY"}, False),
        ("127.0.0.1", {"http_proxy": "https://PROXY"}, False),
        ("127.0.0.1", {"http_proxy": "PROXY"}, False),
        ("127.0.0.1", {}, False),
        ("learner.example", {"http_proxy": "http://PROXY", "no_proxy": "example.com, localhost"}, True),
        ("127.0.0.1", {"http_proxy": "http://PROXY", "no_proxy": "10.0.0.0/8, 127.0.0.0/8"}, False),
        ("127.0.0.1", {"http_proxy": "http://PROXY", "no_proxy": "10.0.0.0/8"}, True),
        ("127.0.0.1", {"http_proxy": "http://PROXY", "no_proxy": "127.0.0.1"}, False),
        ("localhost", {"http_proxy": "http://PROXY", "no_proxy": "a,LOCALHOST"}, False),
        ("localhost", {"http_proxy": "http://PROXY", "no_proxy": "host"}, True),
        ("localhost", {"http_proxy": "http://PROXY", "no_proxy": ".localhost"}, False),
        ("localhost", {"http_proxy": "http://PROXY", "no_proxy": "*"}, True),
        ("localhost", {"http_proxy": "http://PROXY", "no_grpc_proxy": "a", "no_proxy": "localhost"}, True),
    ],
)
def test_it_is_the_proxy_that_grpc_takes(
    host: str, variables: dict[str, str], is_caught: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _refusing() as (port, asked):
        for name, value in variables.items():
            monkeypatch.setenv(name, value.replace("PROXY", f"127.0.0.1:{port}"))
        address = f"{host}:{_closed_port()}"
        with (
            grpc.insecure_channel(address, options=options.client(sections.TransportConfig())) as channel,
            pytest.raises(grpc.RpcError),
        ):
            channel.unary_unary("/a/b")(b"", timeout=60.0)
        remark = addresses.proxy_remark(address)
    assert bool(asked) is bool(remark) is is_caught
    if is_caught:
        name = next(name for name in NAMES if variables.get(name))
        excluding = "no_grpc_proxy" if "no_grpc_proxy" in variables else "no_proxy"
        assert f"{name}=http://127.0.0.1:{port} " in remark and "secret" not in remark
        monkeypatch.setenv(excluding, remark.rpartition(f"{excluding}=")[2])  # as it says
        assert not addresses.proxy_remark(address)


def test_other_forms_of_an_address_have_a_host_too() -> None:
    variables = {"http_proxy": "http://proxy:3128", "no_proxy": "::1"}
    assert "no_proxy=::1,learner" in addresses.proxy_remark("dns:///learner:7", variables)
    assert "no_proxy=::1,learner" in addresses.proxy_remark("dns://8.8.8.8/learner:7", variables)
    assert "no_proxy=::1,::2" in addresses.proxy_remark("[::2]:7", variables)
    for free in ("[::1]:7", "unix:/run/a"):
        assert not addresses.proxy_remark(free, variables)
    for name, is_free in (("a.b.example", True), ("example", True), ("b-example", False)):
        assert bool(addresses.proxy_remark(f"{name}:7", {**variables, "no_proxy": "example"})) is not is_free
    assert not addresses.proxy_remark("learner:7", {"http_proxy": "http://proxy:port"})


def test_a_question_that_a_proxy_catches_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with _refusing() as (port, _):
        monkeypatch.setitem(os.environ, "http_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(errors.ProtocolError, match=rf"http_proxy=http://127.0.0.1:{port} .*no_proxy=learner$"):
            probe.status("learner:7")


def test_a_worker_that_a_proxy_catches_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Watcher(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())
            worker.leave("it was told")

    watcher = Watcher()
    hello = messages.Hello("w", "", (types.Role.TRAIN,), ("catch",), 4)
    with _refusing() as (port, _):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        logging.getLogger("seedzero").addHandler(watcher)
        try:
            with client.Client("learner:7", hello, settings=sections.TransportConfig()) as worker:
                assert worker.join() is None
        finally:
            logging.getLogger("seedzero").removeHandler(watcher)
    assert re.search(rf"http_proxy=http://127.0.0.1:{port} .*no_proxy=learner; trying again", told[0])
