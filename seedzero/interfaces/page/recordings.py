"""Shows a run's recorded episodes, a few steps at a time, its log and videos. Does not trust the files' content."""

from __future__ import annotations

import base64
import contextlib
import os
import pathlib
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from starlette import requests, responses

from seedzero.acting.tables import records
from seedzero.core import errors, json_object, printable
from seedzero.interfaces.page import catalogue, columns, history

# The logs and the videos of a run: the end of a log, and a video in pieces. Files outside the run are never read.
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
        text = _log_text(stream.read(LOG_BYTES), is_cut=size > LOG_BYTES)
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


def _log_text(content: bytes, *, is_cut: bool) -> str:
    """Returns whole lines as text; what cannot be printed becomes escapes."""
    lines = content.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n").expandtabs()
    return printable.escape_lines(lines.partition("\n")[2] if is_cut else lines)


FOLDER = "records"
"""Folder of the records in a run directory, here or one level below."""
_ENDINGS = (".npz",)
MAX_STEPS = 64
"""Most steps in an answer."""
MAX_ANSWER_BYTES = 4 << 20
"""Most bytes of observations in an answer; a single step may have more, up to `MAX_STEP_BYTES`."""
MAX_STEP_BYTES = 16 << 20
MAX_RECORD_BYTES = 512 << 20
"""Memory for records; the least recently requested one is dropped first."""
MAX_CHOICES = 32
"""Number of actions shown for a step, the likeliest ones."""
_MAX_HEAD_BYTES = 8 << 20
_MAX_LETTERS = 200
_NUM_BUCKETS = 500
_FACTS = (
    "env",
    "agent",
    "step",
    "chosen",
    "policy",
    "seed",
    "episode",
    "return",
    "cut_off",
    "task",
    "num_simulations",
)
_BY_ACTION = ("prior", "visits", "q_value", "completed_q", "policy")

_PICTURE: Mapping[str, Any] = {"dtype": "uint8", "low": 0, "high": 255, "text": False}

_Stamp = tuple[pathlib.Path, int, int]


class Recordings:
    """Answers requests about the records of the runs below a directory. Thread-safe."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._kept: dict[_Stamp, records.Record] = {}
        self._heads: dict[_Stamp, dict[str, Any]] = {}

    def answers(self) -> Mapping[str, Callable[[requests.Request], dict[str, Any]]]:
        """Returns the endpoints by path."""
        return {"/api/records": self.listing, "/api/record": self.record, "/api/steps": self.steps}

    def listing(self, request: requests.Request) -> dict[str, Any]:
        """Returns a run's records by name, each with its facts or an error."""
        run_dir = catalogue.locate(self._root, request.query_params.get("run", ""))
        folder = run_dir / FOLDER
        rows = [{"record": name, **self._head(folder / name)} for name in catalogue.files(folder, _ENDINGS)]
        facts = {"most": catalogue.MAX_FILES, "run_dir": catalogue.word(run_dir)}
        return {"records": rows, "videos": videos(run_dir), **facts}

    def record(self, request: requests.Request) -> dict[str, Any]:
        """Returns a record's facts, the arrays in its observations, and its curves."""
        record = self._read(self._located(request))
        shown = [{**array.to_json(), "name": _text(array.name)} for array in record.spec.arrays]
        if records.RENDER in record.arrays:
            picture = record.arrays[records.RENDER]
            shown.insert(0, {**_PICTURE, "name": records.RENDER, "shape": picture.shape[1:]})
        curves = [name for name in ("value", "network_value", "reward") if name in record.arrays]
        return {
            **_facts(record.header),
            "steps": record.num_steps,
            "arrays": shown,
            "has_choices": _has_choices(record),
            "searches": "visits" in record.arrays,
            "has_movers": "mover" in record.arrays,
            "series": {name: _series(record.arrays[name] * _sides(record)) for name in curves},
        }

    def steps(self, request: requests.Request) -> dict[str, Any]:
        """Returns as many of the requested steps of a record as fit into an answer, at least one."""
        record = self._read(self._located(request))
        first = catalogue.query_count(request, "first", 0, record.num_steps)
        wanted = catalogue.query_count(request, "count", 1, MAX_STEPS, least=1)
        num_bytes = sum(array[:1].nbytes for array in _observed(record))
        if num_bytes > MAX_STEP_BYTES:
            raise errors.RecordError(
                f"an observation of this record has {num_bytes} bytes; the page shows at most {MAX_STEP_BYTES}"
            )
        fitting = max(1, MAX_ANSWER_BYTES // max(1, num_bytes))
        end = min(first + min(wanted, fitting), record.num_steps + 1)
        return {"first": first, "steps": [_step(record, number) for number in range(first, end)]}

    def _located(self, request: requests.Request) -> pathlib.Path:
        """Returns the file of a run's record."""
        run_dir = catalogue.locate(self._root, request.query_params.get("run", ""))
        return locate(run_dir, request.query_params.get("record", ""))

    def _read(self, path: pathlib.Path) -> records.Record:
        """Returns the record in a file. Raises RecordError."""
        with self._lock:
            stamp = path, *catalogue.stamp(path)
            found = self._kept.pop(stamp, None)
            if found is None:
                with opened(path) as (file, _):
                    found = records.read(file, path, MAX_RECORD_BYTES)
            self._kept[stamp] = found
            while len(self._kept) > 1 and sum(map(_size, self._kept.values())) > MAX_RECORD_BYTES:
                del self._kept[next(iter(self._kept))]
            return found

    def _head(self, path: pathlib.Path) -> dict[str, Any]:
        with self._lock:
            try:
                stamp = path, *catalogue.stamp(path)
                if stamp not in self._heads:
                    with opened(path) as (file, _):
                        header, num_steps = records.read_head(file, path, _MAX_HEAD_BYTES)
                    while len(self._heads) >= 4 * catalogue.MAX_FILES:
                        del self._heads[next(iter(self._heads))]
                    self._heads[stamp] = {**_facts(header), "steps": num_steps, "changed": stamp[2] / 1e9}
                return self._heads[stamp]
            except errors.Error as error:
                return {"error": _text(str(error))}


def locate(run_dir: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the file of a record. Raises UnknownRun for any path that is not in the list."""
    return catalogue.locate_file(run_dir / FOLDER, name, _ENDINGS, "record")


def _size(record: records.Record) -> int:
    return sum(array.nbytes for array in record.arrays.values())


def _facts(header: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the plain values of a header."""
    found = {name: header.get(name) for name in _FACTS}
    number = json_object.number
    return {name: _text(value) if isinstance(value, str) else number(value) for name, value in found.items()}


def _text(text: str) -> str:
    return printable.escape(text[:_MAX_LETTERS])


def _sides(record: records.Record) -> np.ndarray | float:
    """Returns factors that turn the movers' values into those of player 1, in games of two players."""
    return np.where(record.arrays["mover"] == 0, 1.0, -1.0) if "mover" in record.arrays else 1.0


def _series(values: np.ndarray) -> dict[str, list[float | None]]:
    kept = columns.thin(values.astype(np.float64), _NUM_BUCKETS)
    return {"x": kept.tolist(), "y": columns.shown(values[kept])}


def _step(record: records.Record, number: int) -> dict[str, Any]:
    """Returns a step with its observation's arrays in base64.

    The last observation has no action and what follows it.
    """
    arrays = record.arrays
    shown = [np.ascontiguousarray(array[number]) for array in _observed(record)]
    little = [array.astype(array.dtype.newbyteorder("<"), copy=False) for array in shown]
    found: dict[str, Any] = {"observation": [base64.b64encode(array.tobytes()).decode() for array in little]}
    if number == record.num_steps:
        return found
    action = arrays["action"][number]
    name = str(arrays["move"][number]) if "move" in arrays else _name(record, action)
    found |= {"action": action.tolist(), "name": _text(name), "reward": _one(arrays["reward"][number])}
    found |= {key: bool(arrays[key][number]) for key in ("terminated", "truncated")}
    found |= {key: _one(arrays[key][number]) for key in ("value", "network_value") if key in arrays}
    found |= {"mover": int(arrays["mover"][number])} if "mover" in arrays else {}
    found |= {"choices": list(_choices(record, number))} if _has_choices(record) else {}
    return found


def _observed(record: records.Record) -> list[np.ndarray]:
    """Returns the arrays of all observations, [T + 1, ...] each; pictures drawn by the environment come first."""
    names = [records.observation_name(record.spec, array.name) for array in record.spec.arrays]
    return [record.arrays[name] for name in (records.RENDER, *names) if name in record.arrays]


def _has_choices(record: records.Record) -> bool:
    return "policy" in record.arrays and ("sampled" in record.arrays or not record.spec.is_continuous)


def _choices(record: records.Record, number: int) -> Iterator[dict[str, Any]]:
    """Yields the likeliest actions of a step, and in any case the one taken."""
    arrays = record.arrays
    policy, mask = arrays["policy"][number], arrays.get("action_mask")
    order = np.argsort(-np.where(np.isnan(policy), -1, policy), kind="stable")
    sampled = arrays["sampled"][number] if "sampled" in arrays else None
    action = arrays["action"][number]
    taken = int(action) if sampled is None else int(np.abs(sampled - action).sum(axis=-1).argmin())
    kept = order[:MAX_CHOICES].tolist()
    kept += [taken] if 0 <= taken < len(policy) and taken not in kept else []
    for place in kept:
        numbers = {key: _one(arrays[key][number][place]) for key in _BY_ACTION if key in arrays}
        if numbers.get("visits") == 0:
            numbers["q_value"] = None
        name = _name(record, place if sampled is None else sampled[place])
        is_legal = mask is None or bool(mask[number][place])
        if not is_legal:
            numbers.pop("completed_q", None)
        yield {"number": place, "name": _text(name), "is_legal": is_legal, "is_taken": place == taken, **numbers}


def _name(record: records.Record, action: Any) -> str:
    """Returns an action as text: a discrete one's name or the environment's value, or a continuous one's numbers."""
    array = np.asarray(action)
    if array.shape:
        return " ".join(f"{value:.3g}" for value in array.reshape(-1)[:16].tolist())
    values = record.header.get("action_names") or record.header.get("actions")
    number = int(array)
    value = values[number] if isinstance(values, list) and 0 <= number < len(values) else number
    return " ".join(str(value).split())


def _one(value: Any) -> float | None:
    """Returns an array's number for JSON; None for NaN and infinities."""
    return json_object.number(value.item(), 7)
