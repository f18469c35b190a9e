"""The page's endpoints: static files for the browser, and JSON about runs. Every function here runs on a thread."""

from __future__ import annotations

import functools
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from starlette import applications, requests, responses, routing, staticfiles, types

from seedzero.core import errors, host_names, json_object, printable
from seedzero.interfaces.page import (
    catalogue,
    grouping,
    guard,
    history,
    human_seat,
    league_view,
    live_feeds,
    recordings,
    summaries,
    thinker,
)
from seedzero.monitoring import league_log
from seedzero.storage.checkpoints import saved_files

STATIC = pathlib.Path(__file__).parent / "static"
MAX_METRICS = 64
"""Largest number of metrics in a request."""
MAX_RUNS = 16
"""Largest number of runs in a stream."""
MAX_BUCKETS = 4000
_NUM_BUCKETS = 600


class Page:
    """Answers requests about the runs below a directory."""

    def __init__(
        self, root: pathlib.Path, *, trusted: bool = False, human: human_seat.HumanSeat | None = None
    ) -> None:
        """trusted: see `thinker.ThoughtAnswers`. human: the seat of a person who plays, or None."""
        self.human = human
        self.root, self.places = root, live_feeds.StreamPlaces()
        self.live = live_feeds.LiveViews(root)
        self.recordings, self.thinker = recordings.Recordings(root), thinker.Thinker()
        self.thoughts = thinker.ThoughtAnswers(root, self.thinker, trusted=trusted)
        self.library = grouping.Library()
        self._leagues: dict[str, tuple[object, dict[str, Any]]] = {}  # run -> (source, league)
        self._league_locks: dict[str, threading.Lock] = {}

    def runs(self, request: requests.Request) -> dict[str, Any]:
        """Lists all runs, the newest first, with the settings of the columns, and groups if they are asked for."""
        columns = catalogue.query_list(request, "column", grouping.MAX_COLUMNS)
        found, paths = [], dict[str, pathlib.Path]()
        for name in catalogue.find(self.root):
            try:
                path = catalogue.locate(self.root, name)
                found.append(summaries.describe(path, name, columns))
            except errors.UsageError:  # deleted meanwhile
                continue
            paths[name] = path
        found.sort(key=lambda run: -run["changed"])
        grouped = grouping.group(paths, catalogue.query_list(request, "by", grouping.MAX_COLUMNS))
        groups = grouped.to_json() if request.query_params.get("groups") else {}
        root = printable.escape(str(self.root))
        return {"root": root, "runs": found, "most": catalogue.MAX_RUNS, "differing": grouped.differing, **groups}

    def run(self, request: requests.Request) -> dict[str, Any]:
        """Returns a run's summary and settings, and, once its history is read, the names of its metrics."""
        name, path = self.located(request)
        found, share = self._history(path)
        overview = {**found.overview(), "read": share}
        overview |= {"settings": summaries.read_settings(path), "run_dir": catalogue.word(path)}
        return {**summaries.describe(path, name), **overview, "best": summaries.best(path)}

    def series(self, request: requests.Request) -> dict[str, Any]:
        """Returns thinned series of metrics, or the share read so far until the history is read."""
        _, path = self.located(request)
        names, x = catalogue.query_list(request, "metric", MAX_METRICS), catalogue.query_axis(request)
        num_buckets = catalogue.query_count(request, "buckets", _NUM_BUCKETS, MAX_BUCKETS, least=1)
        low, high = catalogue.query_number(request, "low"), catalogue.query_number(request, "high")
        found, share = self._history(path)
        if share < 1:
            return {"read": share}
        return {"read": share, **found.series(names, x, num_buckets, low, high)}

    def league(self, request: requests.Request) -> dict[str, Any]:
        """Returns a run's league, which is read again after each checkpoint and each new line of its history."""
        name, path = self.located(request)
        source = (
            tuple(sorted(saved_files.finished(path / "checkpoints" / saved_files.STEPS))),
            *(catalogue.stamp(path / file) for file in (league_log.LEAGUE_FILE, league_log.NASH_FILE)),
        )
        with self._league_locks.setdefault(name, threading.Lock()):  # so that a large league delays no other run
            if name not in self._leagues or self._leagues[name][0] != source:
                self._leagues[name] = (source, league_view.read(path, name))
            return self._leagues[name][1]

    def follow(self, names: list[str], cursors: list[str]) -> Callable[[], Iterator[live_feeds.Event]]:
        """Returns a function that reads new events of runs. Raises UsageError."""
        if not 1 <= len(names) <= MAX_RUNS or len(cursors) != len(names):
            raise catalogue.BadQuery(f"a stream takes 1 to {MAX_RUNS} runs, each with a cursor")
        for name in names:
            catalogue.locate(self.root, name)
        positions = [history.parse_cursor(cursor) for cursor in cursors]
        told: list[dict[str, Any] | None] = [None] * len(names)

        def poll() -> Iterator[live_feeds.Event]:
            for place, name in enumerate(names):
                try:
                    path = catalogue.locate(self.root, name)
                    found, share = self._history(path)
                    rows = found.since(positions[place]) if share == 1 else None
                    whole = {"best": summaries.best(path), "seconds": found.overview()["seconds"]}
                    summary = {**summaries.describe(path, name), **whole}
                except errors.UsageError as error:
                    yield live_feeds.END, {"run": name, "error": str(error)}
                    return
                if rows is not None:
                    positions[place] = history.parse_cursor(rows["cursor"])
                    yield "rows", {"run": name, **rows}
                if summary != told[place]:
                    told[place] = summary
                    yield "summary", summary

        return poll

    def located(self, request: requests.Request) -> tuple[str, pathlib.Path]:
        name = request.query_params.get("run", "")
        return name, catalogue.locate(self.root, name)

    def _history(self, path: pathlib.Path) -> tuple[history.History, float]:
        """Reads a run's history for a moment; returns it and the share read so far."""
        found = self.library.of(path)
        return found, found.refresh()


def make(
    page: Page, *, hosts: host_names.HostNames, token: str = "", cookie: str = "seedzero_page", root: str = ""
) -> types.ASGIApp:
    """Builds the application. token, cookie, root: see `guard.Gate`."""

    async def stream(request: requests.Request) -> types.ASGIApp:
        parameters = request.query_params
        try:
            poll = page.follow(parameters.getlist("run"), parameters.getlist("cursor"))
        except errors.UsageError as error:
            return _failure(error)
        return live_feeds.EventStream(page.places, poll)

    async def live_stream(request: requests.Request) -> types.ASGIApp:
        try:
            poll, seconds = page.live.follow(request)
        except errors.UsageError as error:
            return _failure(error)
        return live_feeds.EventStream(page.places, poll, poll_seconds=seconds)

    answers: Mapping[str, Callable[[requests.Request], dict[str, Any] | responses.Response]] = {
        "/api/runs": page.runs,
        "/api/curves": functools.partial(grouping.curves, page.root, page.library),
        "/api/run": page.run,
        "/api/settings": lambda request: summaries.described(page.located(request)[1]),
        "/api/log": functools.partial(recordings.log, page.root),
        "/api/video": functools.partial(recordings.video, page.root),
        "/api/series": page.series,
        "/api/league": page.league,
        "/api/live": page.live.now,
        **page.recordings.answers(),
        **page.thoughts.answers(),
        **(page.human.answers() if page.human else {}),
    }
    routes: list[routing.BaseRoute] = [routing.Route(path, _answering(read)) for path, read in answers.items()]
    routes += [
        routing.Route("/", lambda request: responses.FileResponse(STATIC / "index.html")),
        routing.Route("/api/stream", stream),
        routing.Route("/api/live/stream", live_stream),
        routing.Mount("/static", staticfiles.StaticFiles(directory=STATIC)),
    ]
    posts = {human_seat.PATH: human_seat.endpoint(page.human)} if page.human else {}
    routes += [routing.Route(path, post, methods=["POST"]) for path, post in posts.items()]
    login = (STATIC / "token.html").read_text(encoding="utf-8")
    return guard.Gate(applications.Starlette(routes=routes), hosts, token, cookie, login, root, frozenset(posts))


def _answering(
    read: Callable[[requests.Request], dict[str, Any] | responses.Response],
) -> Callable[[requests.Request], responses.Response]:
    """Returns an endpoint; since it is not a coroutine, Starlette calls it on a thread."""

    def answer(request: requests.Request) -> responses.Response:
        try:
            found = read(request)
            if isinstance(found, responses.Response):
                return found
            return responses.Response(json_object.encode(found), media_type="application/json")
        except errors.Error as error:
            return _failure(error)

    return answer


def _failure(error: errors.Error) -> responses.JSONResponse:
    code = 404 if isinstance(error, catalogue.UnknownRun) else 400 if isinstance(error, catalogue.BadQuery) else 409
    return responses.JSONResponse({"error": printable.escape(str(error))}, code)
