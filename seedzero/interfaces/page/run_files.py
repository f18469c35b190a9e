"""The logs and the videos of a run: the end of a log, and a video in pieces. Files outside the run are never read."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

from starlette import requests, responses

from seedzero.core import printable
from seedzero.interfaces.page import catalogue, history

LOG_BYTES = 64 << 10
"""Bytes of a log's end in one answer."""
PIECE_BYTES = 4 << 20
"""Bytes of a video in one answer to a request for a range; browsers then ask for the next piece."""
MAX_WHOLE_BYTES = 32 << 20
"""Largest video that is sent as a whole, as browsers ask for a .gif."""
_LOGS = (".log", ".log.1")
_TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
_RANGE = re.compile(r"bytes=([0-9]{0,15})-([0-9]{0,15})")


def log(root: pathlib.Path, request: requests.Request) -> dict[str, Any]:
    """Returns the end of a log, by default of the newest one, and the names of all logs of the run."""
    run_dir = catalogue.locate(root, request.query_params.get("run", ""))
    found = _described(run_dir, _LOGS)
    newest = max(found, key=lambda file: file["changed"], default={"file": ""})["file"]
    name = request.query_params.get("file") or newest
    if not name:
        return {"files": [], "file": "", "text": "", "bytes": 0}
    with opened(catalogue.locate_file(run_dir, name, _LOGS, "log")) as (stream, size):
        stream.seek(max(0, size - LOG_BYTES))
        text = _text(stream.read(LOG_BYTES), is_cut=size > LOG_BYTES)
    return {"files": [file["file"] for file in found], "file": name, "text": text, "bytes": size}


def video(root: pathlib.Path, request: requests.Request) -> responses.Response:
    """Returns a video, or the asked range of it, at most `PIECE_BYTES`."""
    run_dir = catalogue.locate(root, request.query_params.get("run", ""))
    path = catalogue.locate_file(run_dir, request.query_params.get("file", ""), tuple(_TYPES), "video")
    headers = {"Accept-Ranges": "bytes"}
    with opened(path) as (stream, size):
        asked = _asked(request.headers.get("range", ""), size)
        if asked is None and size > MAX_WHOLE_BYTES:
            raise catalogue.BadQuery(f"the video has {size:,} bytes: ask for a range, as browsers do for an .mp4")
        first, end = asked or (0, size)
        if asked and first >= end:
            return responses.Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{size}"})
        stream.seek(first)
        content = stream.read(end - first)
    if asked:
        headers["Content-Range"] = f"bytes {first}-{first + len(content) - 1}/{size}"
    return responses.Response(content, 206 if asked else 200, headers, _TYPES[path.suffix])


def videos(run_dir: pathlib.Path) -> list[dict[str, Any]]:
    """Returns names, sizes and times of the videos of a run, the newest first."""
    return sorted(_described(run_dir, tuple(_TYPES)), key=lambda file: -file["changed"])


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[tuple[BinaryIO, int]]:
    """Yields a file of a run for reading, and its size. Raises UnknownRun, also for a link."""
    try:
        with history.opened(path) as stream:
            yield stream, os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise catalogue.UnknownRun(f"{path.name} cannot be read: {error.strerror or error}") from None


def _described(run_dir: pathlib.Path, endings: tuple[str, ...]) -> list[dict[str, Any]]:
    found = []
    for name in catalogue.files(run_dir, endings):
        with contextlib.suppress(OSError):  # it was deleted meanwhile
            status = os.lstat(run_dir / name)
            if stat.S_ISREG(status.st_mode):
                found.append({"file": name, "bytes": status.st_size, "changed": status.st_mtime})
    return found


def _asked(header: str, size: int) -> tuple[int, int] | None:
    """Returns the first byte and the end of a range, at most a piece; an impossible range is empty. None: no range."""
    match = _RANGE.fullmatch(header)
    if match is None or match.group(0) == "bytes=-":
        return None
    first, last = match.groups()
    begin = int(first) if first else max(0, size - int(last))  # without a first byte: the last bytes
    end = min(size, int(last) + 1) if first and last else size
    return begin, min(end, begin + PIECE_BYTES)


def _text(content: bytes, *, is_cut: bool) -> str:
    """Returns whole lines as text; what cannot be printed becomes escapes."""
    lines = content.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n").expandtabs()
    return printable.escape_lines(lines.partition("\n")[2] if is_cut else lines)
