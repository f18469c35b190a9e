"""Streams: events, a limit of their number, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from seedzero.interfaces.page import event_streams

Message = dict[str, Any]
SCOPE: Message = {"type": "http", "headers": []}


class _Reader:
    """The other side of a stream; it leaves when `left` is set."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.left, self.read = asyncio.Event(), asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.messages.append(message)
        if message.get("body"):
            self.read.set()

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.messages).decode()


async def _open(
    places: event_streams.StreamPlaces,
    reader: _Reader,
    poll: Callable[[], Iterable[event_streams.Event]],
    method: str = "GET",
    **options: float,
) -> None:
    await event_streams.EventStream(places, poll, **options)({**SCOPE, "method": method}, reader.receive, reader.send)


def _limited(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Returns a test that runs in an event loop, for a minute at most."""

    @functools.wraps(test)
    def run() -> None:
        async def limited() -> None:
            await asyncio.wait_for(test(), 60)

        asyncio.run(limited())

    return run


@_limited
async def test_events_are_sent_until_the_reader_leaves() -> None:
    places, reader, numbers = event_streams.StreamPlaces(), _Reader(), itertools.count()
    task = asyncio.ensure_future(_open(places, reader, lambda: [("rows", {"n": next(numbers)})], poll_seconds=0.01))
    await reader.read.wait()
    assert places.num_open == 1
    reader.left.set()
    await task
    assert places.num_open == 0 and not reader.messages[-1]["more_body"]
    assert reader.messages[0]["status"] == 200
    assert reader.text.startswith('event: rows\ndata: {"n": 0}\n\n')


def test_a_text_cannot_imitate_an_event() -> None:
    assert event_streams.encode(("rows", "a\n\nevent: x\r\n")) == b'event: rows\ndata: "a\\n\\nevent: x\\r\\n"\n\n'


@_limited
async def test_the_65th_stream_is_refused() -> None:
    places = event_streams.StreamPlaces()
    readers = [_Reader() for _ in range(event_streams.MAX_STREAMS)]
    tasks = [asyncio.ensure_future(_open(places, reader, lambda: [("a", 1)])) for reader in readers]
    await asyncio.gather(*(reader.read.wait() for reader in readers))
    assert places.num_open == 64
    late = _Reader()
    await _open(places, late, list)
    assert late.messages[0]["status"] == 503 and "64 streams" in json.loads(late.text)["error"]
    readers[0].left.set()
    await tasks[0]
    again = _Reader()
    again.left.set()
    await _open(places, again, list)
    assert again.messages[0]["status"] == 200
    places.ending.set()
    await asyncio.gather(*tasks)
    assert places.num_open == 0


@_limited
async def test_silence_is_broken_by_comments() -> None:
    places, reader = event_streams.StreamPlaces(), _Reader()
    task = asyncio.ensure_future(_open(places, reader, list, poll_seconds=0.001))
    await reader.read.wait()
    reader.left.set()
    await task
    assert reader.text.startswith(":") and "data" not in reader.text


@_limited
async def test_the_last_event_ends_the_stream() -> None:
    places, reader = event_streams.StreamPlaces(), _Reader()
    await _open(places, reader, lambda: [(event_streams.END, {"error": "it was deleted"})])
    assert "it was deleted" in reader.text and not reader.messages[-1]["more_body"]


@_limited
async def test_a_failing_poll_frees_its_place() -> None:
    def fail() -> list[event_streams.Event]:
        raise MemoryError("full")

    places = event_streams.StreamPlaces()
    with contextlib.suppress(asyncio.CancelledError), pytest.raises(MemoryError):
        await _open(places, _Reader(), fail)
    assert places.num_open == 0


@_limited
async def test_head_opens_no_stream() -> None:
    reader = _Reader()
    await _open(event_streams.StreamPlaces(), reader, list, method="HEAD")
    assert reader.text == "" and len(reader.messages) == 2
