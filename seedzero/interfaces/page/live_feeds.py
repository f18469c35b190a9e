"""Sends events to a page: new rows and states of runs, and the live views that it asks learners for.

Each learner is asked at most every `EVERY_SECONDS` per subject, however many readers there are, and only while there
are any. A reader's request asks the learner, or, if it was asked just before, gets what is kept.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import math
import pathlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from starlette import requests, responses, types

from seedzero.core import errors, json_object, printable
from seedzero.interfaces.page import catalogue
from seedzero.learner.live import record
from seedzero.monitoring import status

# Server-sent events for a limited number of readers: new rows and states of runs, starting at cursors.
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


EVERY_SECONDS = 0.2
"""Time between two requests about an environment, so that a stream has 5 events per second."""
RUNTIME_SECONDS = 0.5
RETRY_SECONDS = 2.0
DEADLINE_SECONDS = 2.0
MAX_FEEDS = 16
"""Most subjects at a time."""
IDLE_SECONDS = 10.0
"""A subject without readers for this long may be dropped to make room."""
MAX_CALLS = 2000
MAX_STEPS = 512
MAX_KEPT_BYTES = 16 << 20
MAX_SENT_BYTES = 4 << 20
"""Most bytes of observations in an answer; older ones are left out."""
_MAX_LETTERS = 300
_CALL_ITEMS = 9
_EARLY = 0.9
"""The next request comes after this share of a period, because answering takes the rest."""

Step = dict[str, Any]


class Feed:
    """What is kept about a subject of a run, numbered by this process. Thread-safe."""

    def __init__(
        self, path: pathlib.Path, environment: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """environment: the number of its slot; None if the subject is the runtime."""
        self.read_at = clock()
        self._learner, self._environment, self._clock = status.RunningLearner(path), environment, clock
        self._asking, self._lock = threading.Lock(), threading.Lock()
        self._next = -math.inf  # time of the next request
        self._error = ""
        self._begin("")

    def _begin(self, instance: str) -> None:
        self._instance, self._generation = instance, secrets.token_hex(4)
        most = MAX_CALLS if self._environment is None else MAX_STEPS
        self._kept = record.Buffer[Any](most, MAX_KEPT_BYTES, first=1)
        self._cursor = 0  # the learner's cursor
        self._told: dict[str, Any] = {}

    def refresh(self) -> None:
        """Asks the learner if it is time to do so, unless another thread is asking."""
        self.read_at = self._clock()
        if self.read_at < self._next or not self._asking.acquire(blocking=False):
            return
        try:
            pause = EVERY_SECONDS if self._environment is not None else RUNTIME_SECONDS
            self._error = self._ask()
            self._next = self._clock() + (RETRY_SECONDS if self._error else _EARLY * pause)
        finally:
            self._asking.release()

    def _ask(self) -> str:
        """Asks the learner and keeps its answer; returns the reason if there is none."""
        name, asked = "call" if self._environment is None else "step", self._cursor
        try:
            answer, observations = self._learner.ask(
                **{name: asked}, environment=self._environment, deadline_seconds=DEADLINE_SECONDS
            )
            with self._lock:
                if (instance := str(answer["instance"])) != self._instance:
                    self._begin(instance)
                    if asked:
                        return ""  # the answer follows the cursor of another learner; the next answer will be complete
                self._take(answer, observations)
        except (errors.Error, OSError) as error:
            return printable.escape(str(error))[:1000]
        except (LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
            return f"the learner's answer cannot be read ({printable.escape(str(error))[:_MAX_LETTERS]})"
        return ""

    def _take(self, answer: Mapping[str, Any], observations: bytes) -> None:
        if self._environment is None:
            self._told = {name: clean(answer[name]) for name in ("now", "status", "means", "workers", "num_workers")}
            for call in answer["calls"]:
                self._kept.add(_call(call))
                self._cursor = int(call[0])
        else:
            names = ("environments", "environment", "spec", "role", "worker", "note")
            self._told = {name: clean(answer[name]) for name in names}
            for step, size in steps_of(answer, observations):
                self._kept.add(step, size)
                self._cursor = step["number"] + 1

    def since(self, cursor: str) -> dict[str, Any]:
        """Returns what is kept after the cursor of an earlier answer, with the next cursor; "" returns everything.

        "reset" is true if the cursor came from another learner.
        """
        with self._lock:
            generation, _, number = cursor.partition("-")
            name = "calls" if self._environment is None else "steps"
            is_same = generation == self._generation
            known = int(number) if is_same and number.isascii() and number.isdigit() and len(number) < 16 else 0
            return {
                "cursor": f"{self._generation}-{self._kept.next - 1}",
                "reset": not is_same,
                "error": self._error,
                name: self._kept.since(known + 1, most_bytes=MAX_SENT_BYTES),
                **self._told,
            }

    def close(self) -> None:
        """Closes the connection once a request in progress is over."""
        with self._asking:
            self._learner.close()


class LiveViews:
    """All subjects that have readers."""

    def __init__(self, root: pathlib.Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._lock = threading.Lock()
        self._feeds: dict[tuple[pathlib.Path, int | None], Feed] = {}

    def now(self, request: requests.Request) -> dict[str, Any]:
        """Returns all that is kept about a subject, after asking its learner."""
        feed = self._feed(request)
        feed.refresh()
        return feed.since("")

    def follow(self, request: requests.Request) -> tuple[Callable[[], Iterator[Event]], float]:
        """Returns a function that reads what is new about a subject, and the seconds between two calls."""
        feed, cursor = self._feed(request), request.query_params.get("cursor", "")
        told: dict[str, Any] = {}

        def poll() -> Iterator[Event]:
            nonlocal cursor
            feed.refresh()
            found = feed.since(cursor)
            cursor = found["cursor"]
            items = {name: found.pop(name) for name in ("cursor", "reset", "calls", "steps") if name in found}
            if items["reset"]:
                told.clear()
            news = {name: value for name, value in found.items() if name not in told or told[name] != value}
            told.update(news)
            if news or items["reset"] or items.get("calls") or items.get("steps"):
                yield "live", {**items, **news}

        return poll, _EARLY * (EVERY_SECONDS if "environment" in request.query_params else RUNTIME_SECONDS)

    def _feed(self, request: requests.Request) -> Feed:
        path = catalogue.locate(self._root, request.query_params.get("run", ""))
        text = request.query_params.get("environment")
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 10):
            raise catalogue.BadQuery("environment: expected the number of an environment")
        key, now = (path, None if text is None else int(text)), self._clock()
        with self._lock:
            is_full = key not in self._feeds and len(self._feeds) >= MAX_FEEDS
            idle = [old for old, feed in self._feeds.items() if is_full and now - feed.read_at > IDLE_SECONDS]
            dropped = [self._feeds.pop(old) for old in idle]
            if is_full and not dropped:
                raise errors.ResumeError(f"{MAX_FEEDS} live views are open; close other windows of this page")
            found = self._feeds.setdefault(key, Feed(path, key[1], self._clock))
            found.read_at = now
        for feed in dropped:
            feed.close()
        return found


def steps_of(answer: Mapping[str, Any], observations: bytes) -> Iterator[tuple[Step, int]]:
    """Yields steps, with the observation's arrays in base64, and the bytes of each step.

    Raises LookupError, TypeError or ValueError if the answer is malformed.
    """
    columns = dict(answer.get("steps", {}))
    numbers = columns.get("number", [])
    arrays = [_num_bytes(array) for array in (answer["spec"] or {"arrays": []})["arrays"]]
    size = sum(arrays)
    if len(observations) != size * len(numbers) or any(len(column) != len(numbers) for column in columns.values()):
        raise ValueError(f"{len(observations)} bytes of observations for {len(numbers)} steps of {size} bytes")
    ends = np.cumsum([0, *arrays]).tolist()
    for place, number in enumerate(numbers):
        frame = observations[place * size : (place + 1) * size]
        parts = [base64.b64encode(frame[begin:end]).decode() for begin, end in itertools.pairwise(ends)]
        row = {name: clean(column[place]) for name, column in columns.items()}
        yield {**row, "number": int(number), "observation": parts}, size


def _num_bytes(array: Mapping[str, Any]) -> int:
    shape = [int(side) for side in array["shape"]]
    if len(shape) > 32 or not all(0 < side < 2**31 for side in shape):
        raise ValueError("an array without a shape")
    return math.prod(shape) * np.dtype(str(array["dtype"])).itemsize


def _call(values: Sequence[Any]) -> list[Any]:
    if len(values) != _CALL_ITEMS:
        raise ValueError(f"a call of {len(values)} items")
    return [clean(value) for value in values]


def clean(value: Any) -> Any:
    """Makes a value of another process fit for the browser: escapes and cuts texts; numbers are finite or None."""
    if isinstance(value, str):
        return printable.escape(value[:_MAX_LETTERS])
    if isinstance(value, Mapping):
        return {printable.escape(str(key)[:_MAX_LETTERS]): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return json_object.number(value)
