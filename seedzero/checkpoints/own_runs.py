"""Runs that this user trained on this machine: their code needs no new consent.

RUN_DIR/own.key              a random key; opens nothing by itself
STATE/seedzero/runs/ID.json  ID: digest of the key. The run's place, a digest of its settings, its modules' files

STATE is $XDG_STATE_HOME, else ~/.local/state. Only trainings write here, once their user has consented. The run
directory may have been anybody's meanwhile, so everything in it must equal the record, which only this user can write.
A record that cannot be had, or that others could have written, means: not an own run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import re
import secrets
import stat
from collections.abc import Mapping
from typing import Any

from seedzero.checkpoints import durable
from seedzero.checkpoints import run_dir as run_dirs
from seedzero.config import config as configs
from seedzero.core import json_object, user_code

MOST = 1000
"""Records kept: of the runs that were started last."""
_KEY = re.compile(rb"[0-9a-f]{64}")
_OF_CODE = (user_code.AGENT, "env.", "network.", "vtrace.", *user_code.NETWORKS, user_code.BUILDER)
"""Beginnings of the settings that name code, or are arguments of it."""
_MOST_BYTES = 2**20
"""Longest file that is read."""


def remember(path: pathlib.Path, saved: run_dirs.SavedConfig) -> str:
    """Remembers a run with a user's code as an own one; returns "", or a reason why it can't be.

    The caller has the user's consent to all code in `saved`, and holds the run directory's lock.
    """
    try:
        record = _record(path, saved)
        if doubt := _agreement(path, saved):
            return doubt
        folder = _made_folder()
        key = _read_key(path)
        if key is None or not _is_of(record, _file(folder, key)):  # a copy gets a key of its own
            key = secrets.token_hex(32).encode()
        file = _file(folder, key)
        durable.write_whole(file, json.dumps(record).encode(), mode=0o600)
        durable.write_whole(path / run_dirs.KEY_FILE, key, mode=0o600)
        _prune(folder, file)
    except OSError as error:
        return _said(error)
    except ValueError as error:
        return str(error)
    return ""


def forget(path: pathlib.Path) -> None:
    """Deletes the record and the key of a run directory that was begun and refused."""
    with contextlib.suppress(OSError, ValueError):
        if (key := _read_key(path)) and _is_of(_place(path), file := _file(_folder(), key)):
            file.unlink()
            (path / run_dirs.KEY_FILE).unlink()


def doubt(path: str | os.PathLike[str], saved: run_dirs.SavedConfig) -> str | None:
    """Returns None for an own run, else the reason against it; "": nothing speaks for one.

    saved: what the caller goes on with, read from the directory.
    """
    try:
        folder = _folder()
        _check_private(folder)
        key = _read_key(path)
        if key is None:
            return ""
        known = _read(_file(folder, key))
        return f"{folder} has no record of it" if known is None else _difference(known, path, saved)
    except OSError as error:
        return _said(error)
    except ValueError as error:
        return str(error)


def obstacle() -> str:
    """Returns the reason why no run can be remembered here; "": there is none."""
    try:
        _made_folder()
    except OSError as error:
        return _said(error)
    except ValueError as error:
        return str(error)
    return ""


def digest(saved: run_dirs.SavedConfig) -> str:
    """Returns a digest of the settings that name code or are arguments of it, hexadecimal.

    Both parts of config.json count. Values that are the default now, or were before there was the setting, are left
    out: a later version has more settings.
    """
    plain = configs.flatten(configs.Config())
    usual = plain | configs.earlier()
    config = {name: type(plain.get(name, ""))(value) for name, value in configs.flatten(saved.config).items()}
    values = {name: x for name, x in config.items() if x not in (plain.get(name), usual.get(name))}  # 1 for 1.0
    parts = [saved.preset, *(_of_code(part, saved.config) for part in (saved.given, values))]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _said(error: OSError) -> str:
    return f"{error.filename or 'the current directory'}: {error.strerror}"


def _of_code(values: Mapping[str, Any], config: configs.Config) -> dict[str, Any]:
    networks = (name.partition(".")[0] for name in user_code.named(configs.flatten(config)))
    sections = {config.OWN_SECTION, *networks} - {"", "run", "env", "league"}
    beginnings = (*_OF_CODE, *(f"{section}." for section in sections))
    return {name: value for name, value in values.items() if name.startswith(beginnings)}


def _record(path: str | os.PathLike[str], saved: run_dirs.SavedConfig) -> dict[str, Any]:
    """Returns the record of a run as it is now."""
    named = user_code.modules(saved.given) | user_code.modules(configs.flatten(saved.config))
    return {
        **_place(path),
        "settings": digest(saved),
        "modules": {module: user_code.files(module) for module in sorted(named)},
    }


def _agreement(path: str | os.PathLike[str], saved: run_dirs.SavedConfig) -> str:
    """Returns the reason why this directory can't be an own run, whatever its record says; "": there is none."""
    given = {name: value for name, value in saved.given.items() if name in _naming()}
    values = configs.flatten(saved.config)
    if any(value != values[name] for name, value in given.items()):
        return f"the two parts of its {run_dirs.CONFIG_FILE} name different code"
    for module in sorted(user_code.modules(values)):
        if user_code.lies_in(module, path):
            return f"Python would look for {module} inside that directory"
    return ""


def _naming() -> tuple[str, ...]:
    return (user_code.AGENT, *user_code.ARGUMENTS, *user_code.ARGUMENTS.values(), *user_code.NETWORKS)


def _difference(known: Mapping[str, Any], path: str | os.PathLike[str], saved: run_dirs.SavedConfig) -> str | None:
    """Returns the reason why a run directory is not the one of a record; None: it is."""
    now = _record(path, saved)
    if not _same_place(known, now):
        return f"you trained it as {known['run']}, and this is a copy"
    if known["settings"] != now["settings"]:
        return "its settings of code have changed since you trained it"
    for module, files in now["modules"].items():
        if known["modules"].get(module) != files:
            before, here = (" ".join(each or ["nowhere"]) for each in (known["modules"].get(module), files))
            return f"when you trained it, Python found {module} {before}, now {here}; start where it finds the former"
    return _agreement(path, saved) or None


def _place(path: str | os.PathLike[str]) -> dict[str, Any]:
    found = os.stat(path)
    return {"run": os.path.realpath(path), "inode": [found.st_dev, found.st_ino]}


def _is_of(place: Mapping[str, Any], file: pathlib.Path) -> bool:
    """Returns whether a file is a sound record of a run directory."""
    try:
        known = _read(file)
    except (OSError, ValueError):
        return False
    return known is not None and _same_place(known, place)


def _same_place(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Returns whether two records are of one directory: by its path, or renamed."""
    return bool(one["run"] == other["run"] or one["inode"] == other["inode"])


def _folder() -> pathlib.Path:
    """Returns the directory of the records, which may not exist. Raises ValueError without a home."""
    state, home = os.environ.get("XDG_STATE_HOME", ""), os.path.expanduser("~")
    if os.path.isabs(state):  # the specification wants others ignored
        return pathlib.Path(state) / "seedzero" / "runs"
    if not os.path.isabs(home) or home == "/":  # what a container gives to an unknown user
        raise ValueError("there is no home directory to remember own runs in; set XDG_STATE_HOME")
    return pathlib.Path(home) / ".local" / "state" / "seedzero" / "runs"


def _made_folder() -> pathlib.Path:
    """Returns the directory of the records, made. Raises OSError; ValueError for one that is not this user's alone."""
    folder = _folder()
    beside = next(parent for parent in folder.parents[1:] if parent.exists())
    if beside.stat().st_uid not in (os.geteuid(), 0):  # under sudo: root's files would shut its user out
        raise ValueError(f"{beside} belongs to another user")
    folder.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for made in (folder.parent, folder):
        made.mkdir(mode=0o700, exist_ok=True)
    _check_private(folder)
    return folder


def _check_private(folder: pathlib.Path) -> None:
    """Raises ValueError unless only this user and root can write to the directory of records, where there is one."""
    for each in (folder.parent, folder):
        with contextlib.suppress(FileNotFoundError):
            _check_owner(each, os.lstat(each), stat.S_IFDIR)


def _check_owner(file: pathlib.Path, found: os.stat_result, kind: int) -> None:
    if stat.S_IFMT(found.st_mode) != kind:
        raise ValueError(f"{file} is a link, or nothing that seedzero put there; delete it")
    if found.st_uid not in (os.geteuid(), 0):
        raise ValueError(f"{file} belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ValueError(f"{file} can be written by others; `chmod go-w` it if it is yours alone")


def _file(folder: pathlib.Path, key: bytes) -> pathlib.Path:
    return folder / f"{hashlib.sha256(key).hexdigest()}.json"


def _read_key(path: str | os.PathLike[str]) -> bytes | None:
    """Returns the key in a run directory; None: none, or another kind of file."""
    try:
        content = _content(pathlib.Path(path) / run_dirs.KEY_FILE)[0]
    except OSError:
        return None
    return content if _KEY.fullmatch(content) else None


def _read(file: pathlib.Path) -> dict[str, Any] | None:
    """Returns a record; None: there is none. Raises OSError; ValueError for one that is damaged or not private."""
    try:
        content, found = _content(file)
    except FileNotFoundError:
        return None
    _check_owner(file, found, stat.S_IFREG)
    try:
        record = json_object.parse(content)
        is_whole = all(isinstance(record[name], kind) for name, kind in _KINDS.items())
    except (ValueError, KeyError):
        is_whole = False
    if not is_whole:
        raise ValueError(f"{file} is damaged; delete it")
    return record


_KINDS = {"run": str, "inode": list, "settings": str, "modules": dict}


def _content(file: pathlib.Path) -> tuple[bytes, os.stat_result]:
    """Returns the content and the state of an open file; follows no link, and waits for no other program."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        return (opened.read(_MOST_BYTES) if stat.S_ISREG(found.st_mode) else b""), found


def _prune(folder: pathlib.Path, newest: pathlib.Path) -> None:
    """Deletes the records beyond `MOST`, the longest unstarted first; other learners may be at it, too."""
    for kind in ("*.json", f"*{durable.TEMPORARY_SUFFIX}"):  # apart: nobody deletes a file that is being written
        with contextlib.suppress(OSError):
            others = sorted(
                (file for file in folder.glob(kind) if file != newest), key=lambda file: file.lstat().st_mtime
            )
            for file in others[: max(0, len(others) - MOST + 1)]:
                file.unlink(missing_ok=True)
