"""Connections whose peers keep the page waiting, by a clock and transports of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import uvicorn
from uvicorn import server as uvicorn_server

from seedzero.page import connections

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

    def connect(self, content: bytes = b"") -> tuple[connections.BrowserConnection, _Transport]:
        made = connections.BrowserConnection(self._config, self._state, {}, cast(Any, self.loop))
        transport = _Transport()
        made.connection_made(cast(Any, transport))
        if content:
            made.data_received(content)
        return made, transport

    def answer(self, to: connections.BrowserConnection) -> None:
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
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 4)
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
        of_slow.unsent -= connections.LEAST_BYTES
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
    monkeypatch.setattr(connections, "MAX_UNSENT_BYTES", 10)
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
