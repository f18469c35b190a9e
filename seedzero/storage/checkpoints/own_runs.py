"""Asks for consent before a run's own code is imported, except for runs that this user trained on this machine.

STATE/seedzero/runs/ID.json  contains a digest of the run's settings, and its modules' files; ID is a digest of the
                             run directory's path

STATE is $XDG_STATE_HOME, else ~/.local/state. Like direnv's list of allowed files, a record belongs to one path and
its content: a copied directory has no record, and everything that names or changes code must equal the record, which
only this user can write. Only trainings write here, once their user has consented. If a record cannot be read, or
others could have written it, the run does not count as the user's own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shlex
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from seedzero.config import configs
from seedzero.core import errors, json_object, plain_files, user_code
from seedzero.storage.checkpoints import durable, run_dirs

MOST = 1000
"""How many records are kept, of the runs that were started last."""
_OF_CODE = (user_code.AGENT, "env.", "network.", "vtrace.", *user_code.NETWORKS, user_code.BUILDER, user_code.MEMBERS)
"""Prefixes of settings that name code or are its arguments."""
_LEFT_OUT = {"env.action_mask": False, "network.normalize_observations": False}
"""More values that digests leave out; they had no other meaning when records began."""
_MOST_BYTES = 2**20
"""Largest record that is read, in bytes."""


class _Doubt(Exception):
    """Says why a directory does not count as a run of the user's own."""


def remember(path: pathlib.Path, saved: run_dirs.SavedConfig) -> str:
    """Remembers a run with a user's code as the user's own. Returns "", or why that is impossible.

    The caller has the user's consent to all code in `saved`, and holds the run directory's lock.
    """
    with _doubts() as found:
        _check_agrees(path, saved)
        file = _file(_made_folder(), path)
        durable.write_whole(file, json.dumps(_record(saved)).encode(), mode=0o600)
        _prune(file)
    return found[0] if found else ""


def forget(path: pathlib.Path) -> None:
    """Deletes the record of a run directory whose start was rejected."""
    with _doubts():
        _file(_folder(), path).unlink(missing_ok=True)


def run_doubt(path: str | os.PathLike[str], saved: run_dirs.SavedConfig) -> str | None:
    """Returns None for a run of the user's own, and otherwise why it is not; "" if there is no record.

    saved: the settings that were read from the directory and will be used.
    """
    with _doubts() as found:
        _check_private(_folder())
        if (known := _read(_file(_folder(), path))) is None:
            return ""
        _check_equal(known, saved)
        _check_agrees(path, saved)
    return found[0] if found else None


def obstacle() -> str:
    """Returns why no run can be remembered on this machine, or ""."""
    with _doubts() as found:
        _made_folder()
    return found[0] if found else ""


@contextlib.contextmanager
def _doubts() -> Iterator[list[str]]:
    """Yields a list that receives the reason if the block ends early."""
    found: list[str] = []
    try:
        yield found
    except OSError as error:
        found.append(f"{error.filename or 'the current directory'}: {error.strerror}")
    except _Doubt as reason:
        found.append(str(reason))


def digest(saved: run_dirs.SavedConfig) -> str:
    """Returns a hexadecimal digest of the settings that name code or are its arguments.

    Both parts of config.json count. Default values are left out, because later versions have more settings.
    """
    plain = configs.flatten(configs.Config())
    config = {name: type(plain.get(name, ""))(value) for name, value in configs.flatten(saved.config).items()}
    # so that 1 equals 1.0
    values = {name: x for name, x in config.items() if x not in (plain.get(name), _LEFT_OUT.get(name))}
    parts = [saved.preset, *(_of_code(part, saved.config) for part in (saved.given, values))]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _of_code(values: Mapping[str, Any], config: configs.Config) -> dict[str, Any]:
    """Returns the values that concern code."""
    networks = (name.partition(".")[0] for name in user_code.named(configs.flatten(config)))
    sections = {config.OWN_SECTION, *networks} - {"", "run", "env", "league"}
    beginnings = (*_OF_CODE, *(f"{section}." for section in sections))
    return {name: value for name, value in values.items() if name.startswith(beginnings)}


def _record(saved: run_dirs.SavedConfig) -> dict[str, Any]:
    """Returns the record for the run's present state."""
    named = user_code.modules(saved.given) | user_code.modules(configs.flatten(saved.config))
    return {"settings": digest(saved), "modules": {module: user_code.files(module) for module in sorted(named)}}


def _check_agrees(path: str | os.PathLike[str], saved: run_dirs.SavedConfig) -> None:
    """Raises a doubt if a directory cannot be the user's own run, whatever its record contains."""
    naming = (user_code.AGENT, *user_code.ARGUMENTS, *user_code.ARGUMENTS.values(), *user_code.NETWORKS)
    values = configs.flatten(saved.config)
    if any(value != values[name] for name, value in saved.given.items() if name in naming):
        raise _Doubt(f"the two parts of its {run_dirs.CONFIG_FILE} name different code")
    for module in sorted(user_code.modules(values)):
        if user_code.lies_in(module, path):
            raise _Doubt(f"Python would look for {module} inside that directory")


def _check_equal(known: Mapping[str, Any], saved: run_dirs.SavedConfig) -> None:
    """Raises a doubt if a record differs from the directory's present state."""
    now = _record(saved)
    if known["settings"] != now["settings"]:
        raise _Doubt("its settings of code have changed since you trained it")
    for module, files in now["modules"].items():
        if (before := known["modules"].get(module)) != files:
            then, here = (" ".join(each or ["nowhere"]) for each in (before, files))
            raise _Doubt(
                f"when you trained it, Python found {module} {then}, now {here}; start where it finds the former, or "
                "resume with the name that it has now"
            )


def _folder() -> pathlib.Path:
    """Returns the directory of records, which may not exist."""
    state, home = os.environ.get("XDG_STATE_HOME", ""), os.path.expanduser("~")
    if os.path.isabs(state):  # the specification says to ignore other values
        return pathlib.Path(state) / "seedzero" / "runs"
    if not os.path.isabs(home) or home == "/":  # for example what a container gives to an unknown user
        raise _Doubt("there is no home directory to remember own runs in; set XDG_STATE_HOME")
    return pathlib.Path(home) / ".local" / "state" / "seedzero" / "runs"


def _made_folder() -> pathlib.Path:
    """Makes the directory of records, for this user alone, and returns it."""
    folder = _folder()
    beside = next(parent for parent in folder.parents[1:] if parent.exists())
    if beside.stat().st_uid not in (os.geteuid(), 0):  # with sudo, files of root would lock the user out
        raise _Doubt(f"{beside} belongs to another user")
    folder.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for made in (folder.parent, folder):
        made.mkdir(mode=0o700, exist_ok=True)
    _check_private(folder)
    return folder


def _check_private(folder: pathlib.Path) -> None:
    """Raises a doubt if others than this user and root can write to the directory of records."""
    for each in (folder.parent, folder):
        with contextlib.suppress(FileNotFoundError):
            _check_owner(each, os.lstat(each), stat.S_IFDIR)


def _check_owner(file: pathlib.Path, found: os.stat_result, kind: int) -> None:
    if stat.S_IFMT(found.st_mode) != kind:
        raise _Doubt(f"{file} is a link, or nothing that seedzero put there; delete it")
    if found.st_uid not in (os.geteuid(), 0):
        raise _Doubt(f"{file} belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _Doubt(f"{file} can be written by others; `chmod go-w` it if only you use it")


def _file(folder: pathlib.Path, path: str | os.PathLike[str]) -> pathlib.Path:
    return folder / f"{hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()}.json"


def _read(file: pathlib.Path) -> dict[str, Any] | None:
    """Returns a record, or None if there is none. Raises a doubt if it is damaged or not private."""
    try:
        with plain_files.opened(file, follow=False) as opened:
            _check_owner(file, os.fstat(opened.fileno()), stat.S_IFREG)
            record = json_object.parse(opened.read(_MOST_BYTES))
        if isinstance(record["settings"], str) and isinstance(record["modules"], dict):
            return record
    except FileNotFoundError:
        return None
    except (ValueError, KeyError):
        pass
    raise _Doubt(f"{file} is damaged; delete it")


def _prune(newest: pathlib.Path) -> None:
    """Deletes the oldest records beyond `MOST`; other learners may do the same at the same time."""
    # separately, so that nobody deletes a file that is being written
    for kind in ("*.json", f"*{durable.TEMPORARY_SUFFIX}"):
        with contextlib.suppress(OSError):
            others = sorted(
                (file for file in newest.parent.glob(kind) if file != newest), key=lambda file: file.lstat().st_mtime
            )
            for file in others[: max(0, len(others) - MOST + 1)]:
                file.unlink(missing_ok=True)


# Asks for consent before code is imported that a run directory names, because its maker may be unknown.
#
# Runs that the user trained on this machine need no consent.
_UNKNOWN = "you trained none at this path, and one that was renamed or copied needs your consent again"


def check_consent(
    path: str | os.PathLike[str],
    saved: run_dirs.SavedConfig,
    *,
    trusted: bool,
    asked: Mapping[str, str] | None = None,
    makes_environments: bool = True,
    is_here: bool = True,
) -> configs.Config:
    """Returns the run's configuration. Imports the user's own agent for its settings, if the run has one.

    Args:
      saved: the directory's saved settings. Anybody may have written the file, so its `given` and `config` may differ.
      trusted: whether the user trusts the directory's maker.
      asked: settings that the user gives now, by SECTION.KEY; None for a command that takes none and does not train.
      makes_environments: whether environments are made, too, and not only the agent's network.
      is_here: whether the code runs on this machine, so that this user's own runs count (`own_runs`).

    Raises ResumeError if the run directory names modules to import and the user has not consented, and ConfigError if
    the user's own agent is impossible.
    """
    found = set() if trusted else _named(saved, asked, makes_environments=makes_environments)
    doubt = run_doubt(path, saved) if found and is_here else ""
    if found and doubt is not None:
        flags = " ".join(shlex.quote(f"{configs.flag(name)}={value}") for name, value in sorted(found))
        raise errors.ResumeError(
            f"{os.fspath(path)} names code that would run here: {flags}. If you trust its maker, "
            "give --trust_run_dir (in Python trust_run_dir=True)"
            + ("" if asked is None else ", or name the code yourself")
            + (f". It does not count as your own run: {doubt or _UNKNOWN}" if is_here else "")
        )
    return configs.loaded(saved.config)


def _named(
    saved: run_dirs.SavedConfig, asked: Mapping[str, str] | None, *, makes_environments: bool
) -> set[tuple[str, str]]:
    """Returns the settings, with values, whose code a command would import and the user has not named."""
    sources = (saved.given, configs.flatten(saved.config))
    found = {item for values in sources for item in user_code.named(values).items()} - (asked or {}).items()
    unused = {user_code.ENVIRONMENT} if not makes_environments else set()
    unused |= {user_code.BUILDER, user_code.MEMBERS, user_code.OPPONENTS} if asked is None else set()
    return {(name, value) for name, value in found if name not in unused}
