"""Live views: learners are asked seldom, readers share the answers, and another process's answer is checked."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import itertools
import json
import math
import pathlib
import types as python_types
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import numpy as np
import page_client
import pytest

from seedzero.core import errors
from seedzero.interfaces.page import app, live_feeds

EVIL = "<img src=x onerror=alert(1)>\x1b[2J"
ARRAYS = [
    {"name": "image", "shape": [2, 2, 1], "dtype": "uint8", "text": False, "low": 0, "high": 255},
    {"name": "speed", "shape": [1], "dtype": "float32", "text": False, "low": None, "high": None},
]


class Learner:
    """In place of `status.RunningLearner`: tells prepared answers."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.instance, self.num_steps, self.failure = "one", 3, cast(Exception | None, None)
        self.changes: dict[str, Any] = {}
        self.is_closed = False

    def ask(self, **asked: Any) -> tuple[dict[str, Any], bytes]:
        self.asked.append(asked)
        if self.failure is not None:
            raise self.failure
        if asked["environment"] is None:
            return self._runtime(asked.get("call", 0)), b""
        return self._game(asked["step"])

    def _runtime(self, call: int) -> dict[str, Any]:
        calls = [[number, "act", 1.0, 1.1, 1.2, 4, 8, 0, ""] for number in range(call + 1, self.num_steps + 1)]
        workers = [{"name": EVIL, "state": EVIL, "quiet_seconds": "nan"}]
        found = {"instance": self.instance, "now": 2.0, "calls": calls, "workers": workers, "num_workers": 1}
        return {**found, "status": {"stalled": EVIL}, "means": {}, **self.changes}

    def _game(self, step: int) -> tuple[dict[str, Any], bytes]:
        numbers = list(range(step, self.num_steps))
        columns = {"number": numbers, "reward": [math.nan] * len(numbers), "action": [EVIL] * len(numbers)}
        found: dict[str, Any] = {"instance": self.instance, "environments": {"train": [0], "evaluate": []}}
        found |= {"environment": 0, "spec": {"arrays": ARRAYS}, "role": "train", "worker": EVIL, "note": ""}
        frames = b"".join(bytes([number] * 4) + np.float32(number).tobytes() for number in numbers)
        return {**found, "steps": columns, **self.changes}, frames

    def close(self) -> None:
        self.is_closed = True


class World:
    """A feed with a learner and a clock."""

    def __init__(self, environment: int | None = 0) -> None:
        self.now = 0.0
        self.feed = live_feeds.Feed(pathlib.Path("/nowhere"), environment, lambda: self.now)
        self.learner = Learner()
        self.feed._learner = cast(Any, self.learner)

    def read(self, cursor: str = "", seconds: float = live_feeds.EVERY_SECONDS) -> dict[str, Any]:
        self.now += seconds
        self.feed.refresh()
        return self.feed.since(cursor)


def test_readers_share_the_answers_of_few_questions() -> None:
    world = World()
    first = world.read()
    assert [step["number"] for step in first["steps"]] == [0, 1, 2] and first["reset"]
    for _ in range(10):
        assert world.read(first["cursor"], seconds=0.0)["steps"] == []
    assert len(world.learner.asked) == 1
    world.learner.num_steps = 5
    later = world.read(first["cursor"])
    assert ([step["number"] for step in later["steps"]], later["reset"]) == ([3, 4], False)
    assert [asked["step"] for asked in world.learner.asked] == [0, 3]
    assert [step["number"] for step in world.feed.since("")["steps"]] == [0, 1, 2, 3, 4]


def test_observations_come_by_array_and_texts_are_harmless() -> None:
    step = World().read()["steps"][2]
    image, speed = (base64.b64decode(part) for part in step["observation"])
    assert (image, np.frombuffer(speed, np.float32).tolist()) == (bytes([2] * 4), [2.0])
    assert step["reward"] is None and step["action"] == r"<img src=x onerror=alert(1)>\x1b[2J"
    assert r"\x1b" in World().read()["worker"]


def test_the_runtime_is_asked_less_often() -> None:
    world = World(None)
    found = world.read()
    assert [call[0] for call in found["calls"]] == [1, 2, 3]
    assert found["workers"][0]["name"].endswith(r"\x1b[2J") and found["status"]["stalled"].endswith(r"\x1b[2J")
    world.read(seconds=live_feeds.EVERY_SECONDS)
    assert len(world.learner.asked) == 1
    world.learner.num_steps = 4
    assert [call[0] for call in world.read(found["cursor"], seconds=live_feeds.RUNTIME_SECONDS)["calls"]] == [4]


def test_another_learner_begins_anew() -> None:
    world = World()
    cursor = world.read()["cursor"]
    world.learner.instance, world.learner.num_steps = "two", 1
    found = world.read(cursor)
    assert (found["reset"], found["steps"]) == (True, [])  # it was asked for the part after the other one's
    assert [step["number"] for step in world.read(found["cursor"])["steps"]] == [0]


def test_a_learner_that_fails_is_left_alone_for_a_while() -> None:
    world = World()
    world.read()
    world.learner.failure = errors.ProtocolError(EVIL)
    found = world.read()
    assert found["error"] == r"<img src=x onerror=alert(1)>\x1b[2J" and len(found["steps"]) == 3
    world.learner.failure = None
    assert world.read()["error"] and len(world.learner.asked) == 2
    assert world.read(seconds=live_feeds.RETRY_SECONDS)["error"] == ""


@pytest.mark.parametrize(
    ("environment", "changes"),
    [
        (0, {"steps": {"number": [0]}}),
        (0, {"steps": {"number": ["x"] * 3}}),
        (0, {"steps": []}),
        (0, {"spec": {"arrays": [{"shape": [10**9, 10**9], "dtype": "float64"}]}}),
        (0, {"spec": {"arrays": [{"shape": [3], "dtype": "nonsense"}]}}),
        (0, {"spec": 3}),
        (0, {"instance": None, "environments": None, "spec": None}),
        (None, {"calls": [[1]]}),
        (None, {"calls": 3}),
    ],
)
def test_an_answer_that_is_none_is_named(environment: int | None, changes: dict[str, Any]) -> None:
    world = World(environment)
    world.learner.changes = changes
    assert "cannot be read" in world.read()["error"]
    world.learner.changes = {}
    assert world.read(seconds=live_feeds.RETRY_SECONDS)["error"] == ""


def test_little_is_kept_and_less_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_feeds, "MAX_STEPS", 4)
    world = World()
    world.learner.num_steps = 9
    assert [step["number"] for step in world.read()["steps"]] == [5, 6, 7, 8]
    monkeypatch.setattr(live_feeds, "MAX_SENT_BYTES", 16)
    assert [step["number"] for step in world.feed.since("")["steps"]] == [7, 8]
    monkeypatch.setattr(live_feeds, "MAX_KEPT_BYTES", 8)
    assert [step["number"] for step in World().read()["steps"]] == [2]


@pytest.mark.parametrize("cursor", ["", "x", "-", "x-9", "\ud800-1", "-1"])
def test_a_cursor_of_nobody_gets_everything(cursor: str) -> None:
    world = World()
    world.read()
    assert len(world.feed.since(cursor)["steps"]) == 3


def test_an_ended_run_says_so(client: page_client.Client) -> None:
    for parameters in ({"run": "a"}, {"run": "a", "environment": "0"}):
        found = client.get("/api/live", params=parameters).json()
        assert found["error"].startswith("no learner is at work in this run")


@pytest.mark.parametrize("environment", ["", "-1", "x", "1" * 10, "\u0661"])
@pytest.mark.parametrize("path", ["/api/live", "/api/live/stream"])
def test_an_environment_has_a_number(client: page_client.Client, path: str, environment: str) -> None:
    answer = client.get(path, params={"run": "a", "environment": environment})
    assert answer.status_code == 400 and "number" in answer.json()["error"]
    assert client.get(path, params={"run": "../a", "environment": "0"}).status_code == 404


def test_few_subjects_are_open(page: app.Page, client: page_client.Client) -> None:
    for number in range(live_feeds.MAX_FEEDS):
        assert client.get("/api/live", params={"run": "a", "environment": str(number)}).status_code == 200
    answer = client.get("/api/live", params={"run": "a", "environment": "99"})
    assert answer.status_code == 409 and "16 live views" in answer.json()["error"]
    for feed in page.live._feeds.values():
        feed.read_at -= live_feeds.IDLE_SECONDS + 1
    assert client.get("/api/live", params={"run": "a", "environment": "99"}).status_code == 200


def test_events_tell_news_alone(page: app.Page) -> None:
    asked = python_types.SimpleNamespace(query_params={"run": "a", "environment": "0"})
    poll, seconds = page.live.follow(cast(Any, asked))
    (feed,) = page.live._feeds.values()
    now, learner = [0.0], Learner()
    feed._learner, feed._clock = cast(Any, learner), lambda: now[0]
    ((name, event),) = list(poll())
    assert (name, len(event["steps"]), event["worker"][:4], seconds) == (
        "live",
        3,
        "<img",
        0.9 * live_feeds.EVERY_SECONDS,
    )
    assert list(poll()) == []
    now[0], learner.num_steps = 1.0, 4
    ((_, event),) = list(poll())
    assert event.keys() == {"cursor", "reset", "steps"} and len(event["steps"]) == 1
    now[0], learner.changes = 2.0, {"note": "gone"}
    ((_, event),) = list(poll())
    assert event["note"] == "gone" and event["steps"] == []


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
    places: live_feeds.StreamPlaces,
    reader: _Reader,
    poll: Callable[[], Iterable[live_feeds.Event]],
    method: str = "GET",
    **options: float,
) -> None:
    await live_feeds.EventStream(places, poll, **options)({**SCOPE, "method": method}, reader.receive, reader.send)


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
    places, reader, numbers = live_feeds.StreamPlaces(), _Reader(), itertools.count()
    task = asyncio.ensure_future(_open(places, reader, lambda: [("rows", {"n": next(numbers)})], poll_seconds=0.01))
    await reader.read.wait()
    assert places.num_open == 1
    reader.left.set()
    await task
    assert places.num_open == 0 and not reader.messages[-1]["more_body"]
    assert reader.messages[0]["status"] == 200
    assert reader.text.startswith('event: rows\ndata: {"n": 0}\n\n')


def test_a_text_cannot_imitate_an_event() -> None:
    assert live_feeds.encode(("rows", "a\n\nevent: x\r\n")) == b'event: rows\ndata: "a\\n\\nevent: x\\r\\n"\n\n'


@_limited
async def test_the_65th_stream_is_refused() -> None:
    places = live_feeds.StreamPlaces()
    readers = [_Reader() for _ in range(live_feeds.MAX_STREAMS)]
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
    places, reader = live_feeds.StreamPlaces(), _Reader()
    task = asyncio.ensure_future(_open(places, reader, list, poll_seconds=0.001))
    await reader.read.wait()
    reader.left.set()
    await task
    assert reader.text.startswith(":") and "data" not in reader.text


@_limited
async def test_the_last_event_ends_the_stream() -> None:
    places, reader = live_feeds.StreamPlaces(), _Reader()
    await _open(places, reader, lambda: [(live_feeds.END, {"error": "it was deleted"})])
    assert "it was deleted" in reader.text and not reader.messages[-1]["more_body"]


@_limited
async def test_a_failing_poll_frees_its_place() -> None:
    def fail() -> list[live_feeds.Event]:
        raise MemoryError("full")

    places = live_feeds.StreamPlaces()
    with contextlib.suppress(asyncio.CancelledError), pytest.raises(MemoryError):
        await _open(places, _Reader(), fail)
    assert places.num_open == 0


@_limited
async def test_head_opens_no_stream() -> None:
    reader = _Reader()
    await _open(live_feeds.StreamPlaces(), reader, list, method="HEAD")
    assert reader.text == "" and len(reader.messages) == 2
