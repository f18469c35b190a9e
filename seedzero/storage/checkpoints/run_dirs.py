"""Manages the run directory: a run's configuration, spec, lock and files, and what a resume may change.

RUN_DIR/lock            locked (flock) by the learner, whose pid it contains; only its user can read it
        config.json     the format's number, preset, the user's settings, and every value of the run
        learner.json    addresses, pid and start time of the running learner
        learner.sock    its unix socket for processes of the same user
        status.json     the last status
        metrics.jsonl   one row of metrics a line
        league.jsonl    the history of a league: decisions, and matches by interval
        checkpoints/    written by the checkpointer
        logs/           what the learner and local workers print
        hosts/I/        the run directory of learner host I, for I > 0
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import io
import itertools
import os
import pathlib
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import seedzero
from seedzero.config import combinations, configs, options, presets, sections
from seedzero.core import errors, json_object, plain_files, printable, types, user_code
from seedzero.storage.checkpoints import durable, formats, run_lock

# Parses `--init_from=RUN[:PLAYER]`, which names the run whose parameters a new run starts from.
ORIGIN_SETTING = "run.init_from"
_PLAYER = re.compile(r"[A-Za-z][A-Za-z0-9_]*(-[0-9a-f]+)?")
"""Name of a learning player, a policy, or a frozen player."""


class Origin(NamedTuple):
    """A run and one of its players, whose parameters another run starts from."""

    place: str  # a run directory, or gs://BUCKET/PATH
    player: str = ""  # "" for the first one that learns

    @property
    def text(self) -> str:
        """The origin as written in the setting."""
        return f"{self.place}:{self.player}" if self.player else self.place


def parse_origin(text: str) -> Origin:
    """Parses the setting's text; a directory's path becomes absolute."""
    place, colon, player = text.rpartition(":")
    if not (colon and place and _PLAYER.fullmatch(player)) or os.path.isdir(text):
        place, player = text, ""
    return Origin(place if "://" in place else os.path.abspath(place), player)


def check_origin_agent(origin: Origin, there: configs.Config, here: configs.Config) -> None:
    """Raises ConfigError if the origin's parameters are those of another agent."""
    if there.run.agent != here.run.agent:
        raise errors.ConfigError(
            f"--init_from={origin.text}: that run was trained with --agent={there.run.agent}, and this one has "
            f"--agent={here.run.agent}; give --agent={there.run.agent}, or leave --init_from out"
        )


def differing(there: configs.Config, here: configs.Config) -> list[str]:
    """Describes the settings of agent and network that differ there, because they may explain different shapes."""
    before, now = configs.flatten(there), configs.flatten(here)
    names = [
        name for name in now if name.partition(".")[0] in ("network", here.section) and configs.is_read(name, here)
    ]
    return [
        f"{configs.flag(name)}={options.shown(before[name])} there, {options.shown(now[name])} here"
        for name in names
        if before.get(name, now[name]) != now[name]
    ]


CONFIG_FILE = "config.json"
LEARNER_FILE = "learner.json"
LEARNER_LOG = "learner.log"
STATUS_FILE = "status.json"
_BESIDE_CONFIG = (STATUS_FILE, "spec.json", "metrics.jsonl", "league.jsonl")
"""Files that a run writes after config.json."""
_FILES = (
    CONFIG_FILE,
    run_lock.NAME,
    LEARNER_FILE,
    *_BESIDE_CONFIG,
    "learner.sock",
    "probe.sock",
    "wandb.json",
    "copy.json",
)
_FOLDERS = ("checkpoints", "wandb")
_FULL_FOLDERS = ("logs", "tensorboard", "xla", *(f"checkpoints/{name}" for name in ("steps", "segments", "best")))
"""Names in a run directory that must not be links; the entries of the last group must not be, either."""


def of_host(run_dir: pathlib.Path, index: int) -> pathlib.Path:
    """Returns the directory of a learner host, which is below the run's for all hosts but 0."""
    return run_dir / "hosts" / str(index) if index > 0 else run_dir


@dataclasses.dataclass(frozen=True)
class SavedConfig:
    """The content of config.json."""

    preset: str  # the run's first preset
    given: Mapping[str, str]  # the user's settings as text, by SECTION.KEY, without values chosen for the machine
    config: configs.Config  # all values of the run
    id: str = ""  # random, another one for each new run; "" for settings that no run has


@dataclasses.dataclass(frozen=True)
class RunDir(contextlib.AbstractContextManager["RunDir"]):
    """A locked run directory, which is released at the end of a `with` block."""

    path: pathlib.Path  # absolute
    saved: SavedConfig  # config.json as it is now; a resume keeps the values chosen for the first machine
    resumed: bool  # whether the directory already contained a run
    notes: tuple[str, ...]  # a sentence for the user about each value that a resume changed or kept
    lock: io.FileIO  # the locked file
    earlier: Mapping[str, Any] | None = None  # what config.json contained before a resume

    @property
    def config(self) -> configs.Config:
        return self.saved.config

    @property
    def logs(self) -> pathlib.Path:
        return self.path / "logs"

    @property
    def checkpoints(self) -> pathlib.Path:
        return self.path / "checkpoints"

    def is_ours(self) -> bool:
        """Whether the directory is still the locked one, and was not replaced."""
        try:
            there = os.stat(self.path / run_lock.NAME)
        except FileNotFoundError:
            return False
        except OSError:  # a network file system that does not answer now; the next write will show
            return True
        try:
            return os.path.samestat(there, os.fstat(self.lock.fileno()))
        except (OSError, ValueError):
            # The file was deleted elsewhere but is still visible here, or the lock was released.
            return False

    def check_ours(self) -> None:
        """Raises TrainingFailure if the directory was deleted or replaced, because another learner may be using it."""
        if not self.is_ours():
            raise errors.TrainingFailure(
                f"the run directory {self.path} was deleted or replaced while this run used it; nothing more is saved "
                "there, and the run ends. Start it again for a new run"
            )

    def write_learner(self, address: str, started: float, *, local: str = "") -> None:
        """Writes the learner's addresses for `seedzero status`. Raises ResumeError.

        address: for workers on other machines. started: seconds since the epoch. local: unix socket for processes of
        this user, or "" to use `address`.
        """
        with run_lock.as_resume_errors(self.path):
            written = dict(address=address, local=local or address, pid=os.getpid(), started=started)
            write_json_atomic(self.path / LEARNER_FILE, written)

    def write_status(self, status: Mapping[str, object]) -> str | None:
        """Writes the last status if the directory is still ours.

        Returns an error, because training survives a full disk.
        """
        if not self.is_ours():
            return None
        try:
            write_json_atomic(self.path / STATUS_FILE, status)
        except OSError as error:
            return f"cannot write {self.path / STATUS_FILE}: {error.strerror}"
        return None

    def abandon(self) -> None:
        """Undoes a rejected start: restores the settings before a resume, or deletes an empty directory."""
        if self.resumed:
            with contextlib.suppress(OSError):  # the disk is full, and the error that rejected the start explains it
                write_json_atomic(self.path / CONFIG_FILE, self.earlier)
            return
        with contextlib.suppress(OSError):  # not empty
            (self.logs / LEARNER_LOG).unlink(missing_ok=True)
            for folder in (self.logs, *self.checkpoints.glob("*"), self.checkpoints):
                folder.rmdir()
            if any((self.path / name).exists() for name in _BESIDE_CONFIG):  # left by an earlier start that was killed
                return
            for name in (CONFIG_FILE, run_lock.NAME):
                (self.path / name).unlink()
            self.path.rmdir()

    def close(self) -> None:
        """Releases the lock and removes the learner's addresses."""
        if self.is_ours():
            with contextlib.suppress(OSError):
                (self.path / LEARNER_FILE).unlink(missing_ok=True)
        run_lock.release(self.lock)

    def __exit__(self, *exception: object) -> None:
        self.close()


def open_run_dir(
    path: str | os.PathLike[str],
    config: configs.Config,
    *,
    preset: str,
    given: Mapping[str, options.Value],
    fill: Callable[[], None] | None = None,
) -> RunDir:
    """Makes or resumes a run directory and locks it.

    A resume keeps the values chosen for the first machine: if the preset and the user's setting of a key are the same
    as before, the saved value is used instead of `config`'s. So the same command resumes on another machine.

    Args:
      path: the directory, made if missing.
      config: all values resolved, including AUTO.
      given: the user's settings, by SECTION.KEY or alias, before anything was resolved.
      fill: called after locking and before reading the directory, to fetch a run from its bucket; None without one.

    Raises ResumeError if the path is not a directory, cannot be written or contains a link, or if a fixed setting
    differs; ConfigError if these devices cannot share its slots; Occupied if another learner uses it.
    """
    path = pathlib.Path(path).absolute()  # the program may change its working directory later
    plain_files.check_name(path)
    texts = {configs.ALIASES.get(key, key): str(value) for key, value in given.items()}
    asked = SavedConfig(preset, texts, config, secrets.token_hex(8))
    with contextlib.ExitStack() as undo:
        with run_lock.as_resume_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            _check_links(path)
            if fill is None:
                _check_not_foreign(path)  # before the lock file is written
            lock = run_lock.take(path, undo)
            for name in ("steps", "best"):  # a crash may have moved one aside that counts
                if (path / "checkpoints" / name).is_dir():
                    durable.remove_leftovers(path / "checkpoints" / name)
            if fill is not None:
                fill()
                _check_not_foreign(path)
        # Without a checkpoint there is nothing to resume, so settings of a rejected start are not binding.
        resumed = (path / CONFIG_FILE).exists() and bool(durable.numbered(path / "checkpoints" / "steps"))
        saved, notes = _resume(path, read_resumable(path), asked) if resumed else (asked, ())
        if resumed and options.AUTO not in (saved.config.training.num_devices, saved.config.replay.num_slots):
            combinations.check_devices(saved.config, is_begun=True)  # with the slots that the directory keeps
        with run_lock.as_resume_errors(path):
            earlier = json_object.parse(plain_files.read(path / CONFIG_FILE)) if resumed else None
            write_json_atomic(path / CONFIG_FILE, _content(saved))
            (path / "logs").mkdir(exist_ok=True)
            (path / "checkpoints").mkdir(exist_ok=True)
        undo.pop_all()
        return RunDir(path, saved, resumed, notes, lock, earlier)


def _check_links(path: pathlib.Path) -> None:
    """Raises ResumeError for a link where a run writes or deletes. The run directory itself may be a link."""
    alone = [path / name for name in (*_FILES, *(name + durable.TEMPORARY_SUFFIX for name in _FILES), *_FOLDERS)]
    found = [file for file in alone if file.is_symlink()]
    found += durable.links(*(path / name for name in _FULL_FOLDERS)) if not found else []
    if found:
        raise errors.ResumeError(
            f"{found[0]} is a link: a run would overwrite or delete what it points to. Put a file or directory "
            "there; a link instead of the whole run directory is fine"
        )


def _check_not_foreign(path: pathlib.Path) -> None:
    """Raises ResumeError for foreign files where a run writes its own."""
    try:
        content = json_object.parse(plain_files.read(path / CONFIG_FILE))
        is_ours, why = {"preset", "given", "config"} <= content.keys(), f"{CONFIG_FILE} is not that of a run"
    except ValueError as error:
        is_ours, why = False, f"{CONFIG_FILE} is not that of a run ({error})"
    except FileNotFoundError:
        found = [name for name in _BESIDE_CONFIG if (path / name).exists()]
        kept = (other for other in path.glob("checkpoints/*/*") if other.suffix not in durable.LEFTOVERS)
        found += [str(other.relative_to(path)) for other in itertools.islice(kept, 1)]
        is_ours, why = not found, f"it has {', '.join(found)}, but no {CONFIG_FILE}"
    if not is_ours:
        raise errors.ResumeError(
            f"{path} is not a run directory: {why}. A run would replace that; give a new or an empty --run_dir"
        )


def new_path(parent: pathlib.Path, name: str, now: datetime.datetime) -> pathlib.Path:
    """Makes a new directory, named after `name` and the time, and returns its path. Raises ResumeError."""
    base = parent / f"{name}-{now:%Y%m%d-%H%M%S}"
    with run_lock.as_resume_errors(parent):
        for path in itertools.chain([base], (base.with_name(f"{base.name}-{count}") for count in itertools.count(2))):
            with contextlib.suppress(FileExistsError):
                path.mkdir(parents=True)
                break
    return path


def _content(saved: SavedConfig) -> dict[str, Any]:
    """Returns what config.json contains."""
    head = {"format": formats.FORMAT, "version": seedzero.__version__}
    return {**head, **vars(saved), "config": configs.flatten(saved.config)}


def read_saved(path: str | os.PathLike[str]) -> SavedConfig:
    """Returns the content of a run directory's config.json, for all uses but to resume the run.

    Settings that this version lacks are ignored, and named in a message. Raises ResumeError if the file is missing,
    cannot be read, or has another format.
    """
    saved, unknown = _read_saved(path)
    if unknown:
        _say_once(f"{os.fspath(path)} has {', '.join(unknown)}, which this version of seedzero lacks and ignores")
    return saved


def read_resumable(path: str | os.PathLike[str]) -> SavedConfig:
    """Returns the content of config.json to resume the run.

    Raises ResumeError as `read_saved`, and for a setting that this version lacks.
    """
    saved, unknown = _read_saved(path)
    if unknown:
        raise errors.ResumeError(
            f"{os.fspath(path)} cannot be resumed: this version of seedzero lacks its {', '.join(unknown)}. Resume it "
            f"with the version that began it, or delete the setting from its {CONFIG_FILE} to continue without"
        )
    return saved


_say_once = functools.cache(printable.say)


def _read_saved(path: str | os.PathLike[str]) -> tuple[SavedConfig, list[str]]:
    """Returns the content of config.json, and the settings that this version lacks."""
    file = pathlib.Path(path) / CONFIG_FILE
    try:
        content = json_object.parse(plain_files.read(file))
        return parse_saved(content), formats.unknown(content["config"])
    except (FileNotFoundError, NotADirectoryError):
        missing = "it is a file" if os.path.exists(path) else "there is no such directory"
        missing = f"{CONFIG_FILE} is missing" if os.path.isdir(path) else missing
        raise errors.ResumeError(
            f"{os.fspath(path)} is not a run directory: {missing}; give --run_dir=DIR of a training run"
        ) from None
    except OSError as error:
        raise errors.ResumeError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.ResumeError(f"{file} is damaged ({error!r}); give another --run_dir") from None
    except errors.ConfigError as error:
        raise errors.ResumeError(f"{file} does not fit this version of seedzero: {error}") from None


def with_moved_code(saved: SavedConfig, asked: Mapping[str, str]) -> SavedConfig:
    """Returns saved settings in which modules that moved have the names that the user gives now, by SECTION.KEY."""
    names = user_code.moved(configs.flatten(saved.config), asked)
    if not names:
        return saved
    return dataclasses.replace(saved, given={**saved.given, **names}, config=configs.replaced(saved.config, names))


def parse_saved(content: Mapping[str, Any]) -> SavedConfig:
    """Parses the content of config.json. Raises KeyError, TypeError, AttributeError or ConfigError.

    Settings that this version lacks are left out.
    """
    formats.check(content)
    config = formats.config(content["config"])
    known = configs.fields(type(config))
    # Uses full names, because a search for code would miss a short one, such as env for env.id.
    given = {configs.ALIASES.get(key, key): str(value) for key, value in content["given"].items()}
    given = {key: value for key, value in given.items() if key in known}
    return SavedConfig(str(content["preset"]), given, config, str(content.get("id", "")))


def read_learner(path: str | os.PathLike[str]) -> Mapping[str, Any] | None:
    """Returns address, pid and start time of a directory's learner, or None if it has left.

    It may have been killed.
    """
    file = pathlib.Path(path) / LEARNER_FILE
    learner = _read_object(file)
    if learner is None:
        return None
    pid = learner.get("pid")
    if not (isinstance(learner.get("address"), str) and isinstance(pid, int) and 0 < pid < 2**31):
        raise errors.ResumeError(f"{file} lacks the address or pid of a learner; delete it to continue without it")
    return learner


def holder(path: str | os.PathLike[str]) -> str | None:
    """Returns the pid of a directory's learner like `run_lock.holder`, but None for one that has ended normally."""
    found = run_lock.holder(path)
    return None if found == run_lock.UNKNOWN and not (pathlib.Path(path) / LEARNER_FILE).exists() else found


def read_status(path: str | os.PathLike[str]) -> Mapping[str, Any] | None:
    """Returns the last status in a run directory, or None if there is none."""
    return _read_object(pathlib.Path(path) / STATUS_FILE)


def _read_object(file: pathlib.Path) -> Mapping[str, Any] | None:
    """Returns the object in a JSON file, or None if there is no file. Raises ResumeError if it cannot be read."""
    try:
        return json_object.parse(plain_files.read(file))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise errors.ResumeError(f"cannot read {file}: {error}; delete it to continue without it") from None


def write_json_atomic(path: pathlib.Path, value: object) -> None:
    """Writes JSON so that after a crash or an OSError the file is either the old or the new one, and whole."""
    durable.write_whole(path, (json_object.encode(value, indent=1) + "\n").encode())
    durable.flush(path.parent)


def _resume(path: pathlib.Path, saved: SavedConfig, asked: SavedConfig) -> tuple[SavedConfig, tuple[str, ...]]:
    """Returns a resumed run's settings and notes for the user. Raises ResumeError if a fixed setting differs."""
    moved = user_code.moved(configs.flatten(saved.config), asked.given)
    notes = [f"{configs.flag(name)} is {value} from now on: its module has moved" for name, value in moved.items()]
    saved = with_moved_code(saved, moved)
    if saved.config.run.agent == asked.config.run.agent:
        saved = dataclasses.replace(saved, config=configs.loaded(saved.config))
    before, now = configs.flatten(saved.config), configs.flatten(asked.config)
    resumable = {key: field.metadata["resumable"] for key, field in configs.fields(type(asked.config)).items()}
    code = {*user_code.named(before)}  # never kept, because the user must name code and its arguments
    code |= {arguments for name, arguments in user_code.ARGUMENTS.items() if name in code}
    kept: dict[str, options.Value] = {}
    refused = []
    # Another agent has other defaults of shared settings, which change with it.
    is_other = saved.config.run.agent != asked.config.run.agent
    of_agent = {key for key in now if is_other and key.partition(".")[0] in configs.SHARED}
    changed = [key for key in now if now[key] != before.get(key, now[key])]
    for key in [key for key in changed if key not in {*sections.OF_A_PROCESS, *of_agent}]:
        flag, old, new = configs.flag(key), options.shown(before[key]), options.shown(now[key])
        is_given = key in asked.given and asked.given[key] != saved.given.get(key)
        is_new_end = before[key] == presets.NO_END.get(key) and key not in {**saved.given, **asked.given}
        if is_new_end and saved.preset == asked.preset:  # the run began with another budget
            kept[key] = before[key]
            notes.append(f"{flag} stays {old} as the run began; new runs have {new}")
        elif resumable[key] == options.ANY_TIME or (resumable[key] == options.ON_RESUME and is_given):
            notes.append(f"{flag} was {old}, is {new} from now on")
        elif resumable[key] or (
            key not in code and saved.preset == asked.preset and saved.given.get(key) == asked.given.get(key)
        ):
            kept[key] = before[key]
            notes.append(f"{flag} stays {old} as the run began, though here it would be {new}")
        else:
            refused.append(f"  {flag}: saved {old}, given {new}")
    if user_code.AGENT in kept:
        kept |= {key: before[key] for key in of_agent}
    if refused:
        lines = "\n".join(refused)
        raise errors.ResumeError(
            f"{path} holds a run with another configuration:\n{lines}\n"
            f"give the saved values to resume it, or another --run_dir to start a new run"
        )
    given = {key: value for key, value in saved.given.items() if resumable.get(key) != options.ANY_TIME}
    given |= {key: value for key, value in asked.given.items() if resumable[key]}
    return dataclasses.replace(saved, given=given, config=configs.override(asked.config, kept)), tuple(notes)


SPEC_FILE = "spec.json"


def write_spec(path: pathlib.Path, spec: types.EnvSpec) -> None:
    """Writes the spec into a run directory. Raises ResumeError if the disk cannot be written."""
    with run_lock.as_resume_errors(path / SPEC_FILE, "cannot write {}"):
        write_json_atomic(path / SPEC_FILE, dataclasses.asdict(spec))


def read_spec(path: pathlib.Path) -> types.EnvSpec | None:
    """Returns the spec in a run directory, or None before the first worker has joined. Raises ResumeError."""
    file = path / SPEC_FILE
    try:
        return types.EnvSpec.from_json(json_object.parse(plain_files.read(file)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.ResumeError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, errors.SpecMismatch) as error:
        raise errors.ResumeError(f"{file} is damaged ({error}); delete it to have it made again") from None


def check_equal_spec(came: types.EnvSpec, expected: types.EnvSpec) -> None:
    """Raises SpecMismatch if a worker's environments differ from the run's, with the names of differing fields."""
    left, right = dataclasses.asdict(_as_declared(came, expected)), dataclasses.asdict(expected)
    different = [_difference(name, left[name], right[name]) for name in left if left[name] != right[name]]
    if different:
        raise errors.SpecMismatch(
            f"the worker's environment differs from this run's: {'; '.join(different)}; start the worker with the "
            f"environment of the run, or the learner with another --run_dir"
        )


def _as_declared(came: types.EnvSpec, expected: types.EnvSpec) -> types.EnvSpec:
    """Returns a worker's spec with the number of states and the spaces of the run's, if one of the two lacks them.

    A worker need not declare these.
    """
    is_silent = not (came.num_states and expected.num_states)
    is_same = is_silent and came.observation_shape == expected.observation_shape
    return dataclasses.replace(
        came,
        num_states=expected.num_states if is_same else came.num_states,
        spaces=came.spaces if came.spaces and expected.spaces else expected.spaces,
        action_names=expected.action_names if came.num_actions == expected.num_actions else came.action_names,
    )


def _difference(name: str, came: object, expected: object) -> str:
    if name == "spaces":  # it may have a megabyte
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(str(came), str(expected), strict=False))
        start = max(0, len(list(same)) - 40)
        came, expected = (f"...{str(text)[start : start + 120]}" for text in (came, expected))
    return f"{name} is {came}, expected {expected}"
