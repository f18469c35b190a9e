"""Server-sent events for a limited number of readers: new rows and states of runs, starting at cursors."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from starlette import responses, types

MAX_STREAMS = 64
POLL_SECONDS = 1.0
_SILENT_POLLS = 15
"""After this many polls without an event a comment is sent, which shows whether the reader is still there."""

Event = tuple[str, Any]
"""(name, JSON value) of an event. `END` ends the stream."""
END = "gone"


def encode(event: Event) -> bytes:
    name, value = event
    return f"event: {name}\ndata: {json.dumps(value, allow_nan=False)}\n\n".encode()


class StreamPlaces:
    """Counts open streams and ends them. For one event loop."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self.limit, self.num_open = limit, 0
        self.ending = asyncio.Event()

    def is_full(self) -> bool:
        """Returns whether the limit of open streams is reached."""
        return self.num_open >= self.limit

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Occupies a place while the context is entered."""
        self.num_open += 1
        try:
            yield
        finally:
            self.num_open -= 1


class EventStream:
    """An ASGI application that answers with events."""

    def __init__(
        self, places: StreamPlaces, poll: Callable[[], Iterable[Event]], *, poll_seconds: float = POLL_SECONDS
    ) -> None:
        """poll: returns new events; called on a thread, every `poll_seconds`."""
        self._places, self._poll, self._poll_seconds = places, poll, poll_seconds

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        """Sends events until the reader leaves or the server ends; `connections` drops slow readers."""
        if self._places.is_full():
            text = f"{self._places.limit} streams are open, and no more are served; close other windows of this page"
            return await responses.JSONResponse({"error": text}, 503)(scope, receive, send)
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        with self._places.taken():
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if scope["method"] == "HEAD":
                return await send(_body(b"", more=False))
            ends = [asyncio.ensure_future(_left(receive)), asyncio.ensure_future(self._places.ending.wait())]
            try:
                await self._send_all(send, ends)
            finally:
                for end in ends:
                    end.cancel()
            await send(_body(b"", more=False))

    async def _send_all(self, send: types.Send, ends: Sequence[asyncio.Future[Any]]) -> None:
        num_silent = 0
        while True:
            events = list(await asyncio.to_thread(self._poll))
            num_silent = 0 if events else num_silent + 1
            content = b"".join(map(encode, events))
            if num_silent >= _SILENT_POLLS:
                content, num_silent = b": nothing new\n\n", 0
            if content:
                await send(_body(content, more=True))
            if any(name == END for name, _ in events):
                return
            done, _ = await asyncio.wait(ends, timeout=self._poll_seconds, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return


def _body(content: bytes, *, more: bool) -> types.Message:
    return {"type": "http.response.body", "body": content, "more_body": more}


async def _left(receive: types.Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
