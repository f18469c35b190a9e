"""A small Google Cloud Storage on loopback: the part of its JSON API that checkpoints need, and its failures.

Objects are kept in memory, with generations and the conditions on them, listing in pages, and 404, 401 and 403 as the
real one says them. `python tests/fake_gcs.py BUCKET...` serves until it is ended.
"""

from __future__ import annotations

import collections
import contextlib
import http.server
import json
import signal
import socket
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

PAGE = 50
"""Objects in one answer to a listing: small, so that tests meet the next page."""
TOKEN = "token-of-the-tests"
CUT, UNANSWERED = 1, 2
"""Faults that are no HTTP status: the connection ends within the request's or answer's body, or after the work."""


class Object(NamedTuple):
    """One object of a bucket."""

    content: bytes
    generation: int


class Request(NamedTuple):
    """What a client asks. kind: list, read, write or delete; name: of the object, of a listing its prefix."""

    kind: str
    name: str


class FakeGcs:
    """The server; a context manager.

    Attributes:
      buckets: {name: {object's name: object}}.
      requests: how many of each kind were answered.
      fault: asked before each request: the HTTP status to fail with, CUT, UNANSWERED, or None.
      answering: while it is clear, requests are accepted and nothing is answered.
      authorized: values of the Authorization header that are let in; None: everybody.
    """

    def __init__(self, buckets: Iterable[str], *, port: int = 0) -> None:
        self.buckets: dict[str, dict[str, Object]] = {name: {} for name in buckets}
        self.requests: collections.Counter[str] = collections.Counter()
        self.fault: Callable[[Request], int | None] = lambda request: None
        self.answering = threading.Event()
        self.answering.set()
        self.authorized: set[str] | None = {f"Bearer {TOKEN}"}
        self._lock = threading.Lock()
        self._generation = 0
        server = self

        class Handler(_Handler):
            gcs = server

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="fake-gcs")

    @property
    def url(self) -> str:
        """What TENSORSTORE_GCS_HTTP_URL has to be."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """What makes a program use this server."""
        return {"TENSORSTORE_GCS_HTTP_URL": self.url, "GOOGLE_AUTH_TOKEN_FOR_TESTING": TOKEN}

    def recorded(self, kind: str) -> list[str]:
        """Returns a list that gets the names of all requests of a kind from now on; no request fails meanwhile."""
        names: list[str] = []
        self.fault = lambda request: names.append(request.name) if request.kind == kind else None
        return names

    @contextlib.contextmanager
    def failing(self, status: int, *, kind: str = "", part: str = "") -> Iterator[None]:
        """Fails the requests of a kind, "" for all, for objects whose names have a part; none does afterwards."""
        self.fault = lambda request: status if kind in ("", request.kind) and part in request.name else None
        try:
            yield
        finally:
            self.fault = lambda request: None

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        """Returns the names of a bucket's objects, sorted."""
        with self._lock:
            return sorted(name for name in self.buckets[bucket] if name.startswith(prefix))

    def content(self, bucket: str, name: str) -> bytes:
        """Returns what an object holds."""
        with self._lock:
            return self.buckets[bucket][name].content

    def put(self, bucket: str, name: str, content: bytes) -> int:
        """Writes an object and returns its generation."""
        with self._lock:
            self._generation += 1
            self.buckets[bucket][name] = Object(content, self._generation)
            return self._generation

    def remove(self, bucket: str, name: str) -> None:
        """Deletes an object."""
        with self._lock:
            del self.buckets[bucket][name]

    def write_if(self, bucket: str, name: str, content: bytes, generation: int | None) -> int | None:
        """Writes an object where its generation is this one, 0: where there is none; returns the new one."""
        with self._lock:
            found = self.buckets[bucket].get(name)
            if generation is not None and generation != (found.generation if found else 0):
                return None
            self._generation += 1
            self.buckets[bucket][name] = Object(content, self._generation)
            return self._generation

    def __enter__(self) -> FakeGcs:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.answering.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    gcs: FakeGcs
    protocol_version = "HTTP/1.1"
    _is_cut = False
    disable_nagle_algorithm = True  # else every answer waits 40 ms for an acknowledgement

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parsed = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parsed.query))
        words = parsed.path.removeprefix("/upload").split("/")  # "", storage, v1, b, BUCKET, o, NAME
        if words[:4] != ["", "storage", "v1", "b"] or words[5] != "o":
            self.close_connection = True  # its body is not read
            return self._fail(400, f"no such method: {self.command} {self.path}")
        bucket, name = words[4], urllib.parse.unquote("/".join(words[6:]))
        kinds = {"POST": "write", "DELETE": "delete", "GET": "read" if name else "list"}
        request = Request(kinds[self.command], name or query.get("name", "") or query.get("prefix", ""))
        self.gcs.answering.wait()
        self.gcs.requests[request.kind] += 1
        fault = self.gcs.fault(request)
        num_bytes = int(self.headers.get("Content-Length", 0))
        self._is_cut = fault in (CUT, UNANSWERED)
        body = self.rfile.read(num_bytes // 2 if fault == CUT else num_bytes)
        if fault == CUT and request.kind in ("write", "delete"):
            return self._close()
        status = self._access(bucket) if self._is_cut or fault is None else fault
        if status:
            return self._fail(
                status,
                {
                    401: "Anonymous caller does not have access",
                    403: "Permission denied on resource",
                    404: "The specified bucket does not exist.",
                }.get(status, "fault"),
            )
        answer: Callable[..., None] = getattr(self, f"_{request.kind}")
        return answer(bucket, request.name, query, body)

    def _access(self, bucket: str) -> int | None:
        allowed = self.gcs.authorized
        header = self.headers.get("Authorization")
        if allowed is not None and header not in allowed:
            return 403 if header else 401
        return None if bucket in self.gcs.buckets else 404

    def _read(self, bucket: str, name: str, query: dict[str, str], _: bytes) -> None:
        found = self.gcs.buckets[bucket].get(name)
        if found is None:
            return self._fail(404, f"No such object: {bucket}/{name}")
        if query.get("ifGenerationNotMatch") == str(found.generation):
            return self._send(304, b"", {})
        headers = {"x-goog-generation": str(found.generation)}
        return self._send(200, found.content, headers)

    def _write(self, bucket: str, name: str, query: dict[str, str], body: bytes) -> None:
        wanted = query.get("ifGenerationMatch")
        generation = self.gcs.write_if(bucket, name, body, None if wanted is None else int(wanted))
        if generation is None:
            return self._fail(412, "At least one of the pre-conditions you specified did not hold.")
        return self._json(_described(bucket, name, Object(body, generation)))

    def _delete(self, bucket: str, name: str, query: dict[str, str], _: bytes) -> None:
        found = self.gcs.buckets[bucket].get(name)
        if found is None:
            return self._fail(404, f"No such object: {bucket}/{name}")
        if "ifGenerationMatch" in query and query["ifGenerationMatch"] != str(found.generation):
            return self._fail(412, "At least one of the pre-conditions you specified did not hold.")
        self.gcs.remove(bucket, name)
        return self._send(204, b"", {})

    def _list(self, bucket: str, _: str, query: dict[str, str], body: bytes) -> None:
        first, last = query.get("startOffset", ""), query.get("endOffset")
        names = [name for name in self.gcs.names(bucket, query.get("prefix", "")) if name >= first]
        names = [name for name in names if last is None or name < last]
        rest = [name for name in names if name > query.get("pageToken", "")]
        page = rest[:PAGE]
        objects = self.gcs.buckets[bucket]
        items = [_described(bucket, name, objects[name]) for name in page if name in objects]
        more = {"nextPageToken": page[-1]} if len(rest) > PAGE else {}
        return self._json({"kind": "storage#objects", "items": items, **more})

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _fail(self, status: int, text: str) -> None:
        content = {"error": {"code": status, "message": text, "errors": [{"message": text, "domain": "global"}]}}
        self._send(status, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _close(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self._is_cut else body)
        if self._is_cut:
            self.wfile.flush()
            self._close()


def _described(bucket: str, name: str, found: Object) -> dict[str, Any]:
    """Returns the metadata of an object as the API says it: whole numbers are text."""
    return {
        "kind": "storage#object",
        "bucket": bucket,
        "name": name,
        "size": str(len(found.content)),
        "generation": str(found.generation),
        "metageneration": "1",
        "contentType": "application/octet-stream",
    }


def main() -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with FakeGcs(sys.argv[1:]) as gcs:
        gcs.authorized = None
        print(gcs.url, flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
