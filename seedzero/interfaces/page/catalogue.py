"""Parses a request's query, and finds the runs below a directory; no name of a run can lead out of it."""

from __future__ import annotations

import os
import pathlib
import shlex
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING

from seedzero.core import errors, printable
from seedzero.monitoring import metrics_log
from seedzero.storage.checkpoints import run_dirs

if TYPE_CHECKING:  # an extra, which `seedzero runs` does without
    from starlette import requests


# Parses and checks the query of a request.
class BadQuery(errors.UsageError):
    """A value in a request makes no sense."""


def query_number(request: requests.Request, name: str, default: float | None = None) -> float | None:
    """Returns a finite number from a request. Raises BadQuery."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e300:
        raise BadQuery(f"{name}: expected a number")
    return value


def query_count(request: requests.Request, name: str, default: int, most: int, least: int = 0) -> int:
    """Returns a whole number from a request. Raises BadQuery."""
    found = query_number(request, name, default)
    if found is None or not least <= found <= most or found != int(found):
        raise BadQuery(f"{name}: expected {least} to {most}")
    return int(found)


def query_list(request: requests.Request, name: str, most: int, least: int = 0) -> list[str]:
    """Returns the values of a request, each once. Raises BadQuery."""
    found = request.query_params.getlist(name)
    if not least <= len(found) <= most:
        raise BadQuery(f"{name}: {len(found)} values; expected {least} to {most}")
    return list(dict.fromkeys(found))


def query_axis(request: requests.Request) -> str:
    """Returns the x of a request. Raises BadQuery."""
    x = request.query_params.get("x", "env_steps")
    if x not in metrics_log.FIRST_KEYS:
        raise BadQuery(f"x: expected one of {', '.join(metrics_log.FIRST_KEYS)}")
    return x


MAX_DEPTH = 5
MAX_RUNS = 2000
MAX_FILES = 500
"""Files of one kind of a run."""
_MAX_ENTRIES = 100_000


class UnknownRun(errors.UsageError):
    """There is no run of this name, or no such file in it, or it was deleted."""


def find(root: pathlib.Path) -> list[str]:
    """Returns the names of the runs in and below a directory: relative paths, "." for the directory itself.

    Does not follow links, and does not look inside runs.
    """
    found: list[str] = []
    waiting, num_entries = [(root, 0)], 0
    while waiting and len(found) < MAX_RUNS and num_entries < _MAX_ENTRIES:
        directory, depth = waiting.pop(0)
        if _is_run(directory):
            name = directory.relative_to(root).as_posix()
            if name.isprintable() and "\\" not in name:
                found.append(name)
            continue
        if depth == MAX_DEPTH:
            continue
        try:
            with os.scandir(directory) as entries:
                inside = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:  # deleted meanwhile, or another user's
            continue
        num_entries += len(inside)
        waiting += [(directory / name, depth + 1) for name in sorted(inside) if not name.startswith(".")]
    return found


def locate(root: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the directory of a run. Raises UnknownRun for any path that `names` would not return."""
    path = root
    for part in [] if name == "." else name.split("/"):
        if not is_name(part):
            raise UnknownRun(f"{_quoted(name)} is not the name of a run below the page's directory")
        path = path / part
        if not _has_kind(path, stat.S_ISDIR):
            raise UnknownRun(f"there is no run {_quoted(name)}: it was deleted, renamed, or is a link")
    if not _is_run(path):
        raise UnknownRun(
            f"{_quoted(name)} is not a run: its {run_dirs.CONFIG_FILE} is missing; it may have been deleted"
        )
    return path


def word(path: pathlib.Path) -> str:
    """Returns a path as a word of a shell's command."""
    return printable.escape(shlex.quote(str(path)))


def files(folder: pathlib.Path, endings: tuple[str, ...]) -> list[str]:
    """Returns the names of files in a folder of a run and one level below, relative to it; does not follow links."""
    found = list[str]()
    for name, is_folder in _entries(folder):
        inside = _entries(folder / name) if is_folder else []
        names = [f"{name}/{file}" for file, is_deeper in inside if not is_deeper] if is_folder else [name]
        found += [file for file in names if file.endswith(endings)]
        if len(found) >= MAX_FILES:
            break
    return found[:MAX_FILES]


def locate_file(folder: pathlib.Path, name: str, endings: tuple[str, ...], noun: str) -> pathlib.Path:
    """Returns a file in a folder of a run. Raises UnknownRun for any path that `files` would not return."""
    parts = name.split("/")
    if len(parts) > 2 or not name.endswith(endings) or not all(map(is_name, parts)):
        raise UnknownRun(f"{_quoted(name)} is not the name of a {noun} of this run")
    for place in (folder, folder / parts[0]) if len(parts) == 2 else (folder,):
        if place.is_symlink():
            raise UnknownRun(f"{place.name} of this run is a link, which the page does not follow")
    return folder / name


def stamp(file: pathlib.Path) -> tuple[int, int]:
    """Returns size and time of a file, which change with it; zeros if it is missing."""
    try:
        found = os.lstat(file)
        return found.st_size, found.st_mtime_ns
    except OSError:
        return 0, 0


def is_name(part: str) -> bool:
    """Returns whether a text may name a file below a directory, without leading out of it."""
    return part not in ("", ".", "..") and part.isprintable() and not set("/\\") & set(part) and len(part) <= 255


def _entries(folder: pathlib.Path) -> list[tuple[str, bool]]:
    """Lists a folder, sorted by name, each with whether it is a folder."""
    try:
        if folder.is_symlink():
            return []
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:  # missing, or deleted meanwhile
        return []
    return sorted((name, is_folder) for name, is_folder in found if is_name(name))


def _quoted(name: str) -> str:
    return repr(printable.escape(name[:200]))


def _is_run(path: pathlib.Path) -> bool:
    return _has_kind(path / run_dirs.CONFIG_FILE, stat.S_ISREG)


def _has_kind(path: pathlib.Path, is_kind: Callable[[int], bool]) -> bool:
    """Returns whether a path exists, is not a link, and is of the given kind."""
    try:
        return is_kind(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
