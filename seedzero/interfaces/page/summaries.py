"""Summarizes a run: environment, steps, evaluations, state, and the time until its budget is used."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from seedzero.config import configs, options, presets
from seedzero.core import errors, json_object
from seedzero.interfaces.page import history
from seedzero.monitoring import followed, league_log, metrics_log, rows
from seedzero.storage.checkpoints import manifest, run_dirs, run_lock, saved_files

TRAINS, STALLED, ENDED, STOPPED, UNKNOWN = "trains", "stands still", "ended", "stopped", "unknown"
"""States: running; waiting for something; finished by a budget or a return; stopped before that; another user's, so
that nobody else can know."""
_MAX_BYTES = 4 << 20
_TAIL_BYTES = 256 << 10
_number = json_object.number
_EVALUATION, _CUT = b'"evaluation_mean_return"', f'"{metrics_log.UNFINISHED}"'.encode()


def read_object(file: pathlib.Path) -> dict[str, Any]:
    """Returns the object in a JSON file; {} if it is missing, damaged or too large."""
    with contextlib.suppress(OSError, ValueError), history.opened(file) as stream:
        content = stream.read(_MAX_BYTES + 1)
        return json_object.parse(content) if len(content) <= _MAX_BYTES else {}
    return {}


def settings(path: pathlib.Path) -> dict[str, Any]:
    """Returns the preset, the given settings, and all values by SECTION.KEY as the run's version wrote them."""
    content = read_object(path / run_dirs.CONFIG_FILE)
    given, config = content.get("given"), content.get("config")
    return {
        "preset": str(content.get("preset", "")),
        "given": given if isinstance(given, dict) else {},
        "config": config if isinstance(config, dict) else {},
    }


def read_settings(path: pathlib.Path) -> dict[str, Any]:
    """Returns the settings that the run uses, and their marks; for a user's own agent, all but other agents'."""
    found = settings(path)
    agent, agents = str(found["config"].get("run.agent", "")), configs.agent_names()

    def is_read(name: str) -> bool:
        by_agent = configs.is_read(name, agent) if agent in agents else name.partition(".")[0] not in agents
        return by_agent and configs.applies(name, found["config"])

    shown = {name: value for name, value in found["config"].items() if is_read(name)}
    return {
        **found,
        "config": shown,
        "marks": {name: configs.mark(name) for name in shown if name in configs.fields()},
    }


def described(path: pathlib.Path) -> dict[str, Any]:
    """Returns the preset, and the settings that the run uses, each with help and unit as this version has them.

    is_given: by the user. usual: the preset's value, if it is another one; values of 0 that follow from the machine
    differ from none.
    """
    found, fields = read_settings(path), configs.fields()
    agent = str(found["config"].get("run.agent", ""))
    usual: Mapping[str, Any] = {}
    with contextlib.suppress(errors.ConfigError):  # a file's preset, or one of another version
        usual = configs.flatten(presets.get(found["preset"], agent)) if agent in configs.agent_names() else {}

    def one(name: str, value: Any) -> dict[str, Any]:
        about = fields[name].metadata if name in fields else {"help": "", "unit": ""}
        is_given = name in found["given"]
        is_other = name in usual and usual[name] != value and (is_given or usual[name] != options.AUTO)
        facts = {
            "help": about["help"],
            "unit": about["unit"],
            "mark": found["marks"].get(name, ""),
            "is_given": is_given,
        }
        return {"name": name, "value": value, **facts, "usual": usual[name] if is_other else None}

    return {"preset": found["preset"], "settings": [one(*item) for item in found["config"].items()]}


def describe(path: pathlib.Path, name: str, columns: Sequence[str] = ()) -> dict[str, Any]:
    """Returns a run's row in the list of runs; unknown numbers are None. columns: names of settings to add."""
    status, saved = read_object(path / run_dirs.STATUS_FILE), settings(path)
    config = saved["config"]
    shown = {name: value for name, value in {"preset": saved["preset"], **config}.items() if name in columns}
    file = path / metrics_log.METRICS_FILE
    row, evaluation = (_newest(_last_lines(file, part), part) for part in (b"", _EVALUATION))
    state, reason = state_of(path, status)
    seconds = _number(row.get("seconds"))
    return {
        "run": name,
        "name": path.name,
        "environment": str(config.get("env.id", "")),
        "agent": str(config.get("run.agent", "")),
        "has_league": has_league(path, config),
        "env_steps": _number(status.get("env_steps", row.get("env_steps"))),
        "updates": _number(status.get("updates", row.get("update"))),
        "seconds": seconds,
        "last_evaluation": _number(evaluation.get("evaluation_mean_return")),
        "best_evaluation": _number(evaluation.get("evaluation_best_score")),
        "env_steps_per_second": _number(status.get("env_steps_per_second")),
        "updates_per_second": _number(status.get("updates_per_second")),
        "state": state,
        "reason": reason,
        "time": str(row.get("time", "")),
        "changed": _changed(path),
        "settings": {
            name: value if isinstance(value, (int, float)) else str(value)[:200] for name, value in shown.items()
        },
        **budget(config, status, seconds, is_alive=state in (TRAINS, STALLED)),
    }


def best(path: pathlib.Path) -> dict[str, Any] | None:
    """Returns the update of a run's best checkpoint, and its training steps (None: unknown); None without one."""
    place = path / "checkpoints" / saved_files.BEST
    for step in saved_files.finished(place)[-1:]:
        with contextlib.suppress(errors.CheckpointError):  # a better one has replaced it
            found = manifest.read(place / f"{step:012d}")
            return {"update": step, "env_steps": _number(found.counters.get("env_steps"))}
    return None


def has_league(path: pathlib.Path, config: Mapping[str, Any]) -> bool:
    """Returns whether a run has a league, according to its settings or its files."""
    is_asked = bool(_number(config.get("league.freeze_every"))) or config.get("league.builder", "past") != "past"
    return is_asked or (path / league_log.LEAGUE_FILE).is_file()


def state_of(path: pathlib.Path, status: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the state of a run and its reason, or "". Tries the lock only while learner.json exists.

    A run copied from a bucket has no lock.
    """
    if status.get(followed.FOLLOWED):
        is_alive = status.get("alive") is True
    else:
        learner = read_object(path / run_dirs.LEARNER_FILE)
        holder = run_dirs.holder(path) if learner else None
        if holder == run_lock.UNKNOWN:
            return UNKNOWN, "only its user can read its lock"
        is_alive = holder is not None
    if is_alive:
        stalled = status.get("stalled")
        return (STALLED, str(stalled)) if stalled else (TRAINS, str(status.get("first_update", "")))
    finished = status.get("finished")
    return (ENDED, str(finished)) if finished else (STOPPED, "")


def budget(
    config: Mapping[str, Any], status: Mapping[str, Any], seconds: float | None, *, is_alive: bool
) -> dict[str, Any]:
    """Returns "done", the largest used share of any budget (None without one), and "eta_seconds"."""
    budgets = (
        (config.get("run.max_env_steps"), status.get("env_steps"), status.get("env_steps_per_second")),
        (config.get("run.max_updates"), status.get("updates"), status.get("updates_per_second")),
        (config.get("run.max_seconds"), seconds, 1.0),
    )
    shares, times = [], []
    for limit, now, rate in (map(_number, budget) for budget in budgets):
        if limit and limit > 0 and now is not None:
            shares.append(min(1.0, now / limit))
            if rate and rate > 0:
                times.append(max(0.0, limit - now) / rate)
    return {"done": max(shares, default=None), "eta_seconds": min(times, default=None) if is_alive else None}


def _last_lines(file: pathlib.Path, part: bytes) -> list[bytes]:
    """Returns complete lines from the end of a file, the newest first, of a longer end if the text is not in one."""
    with contextlib.suppress(OSError), history.opened(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        for most in (_TAIL_BYTES, _MAX_BYTES):
            stream.seek(max(0, size - most))
            if part in (content := stream.read(most)) or most == _MAX_BYTES:
                return content.split(b"\n")[-2 : 0 if size > most else None : -1]
    return []


def _newest(lines: list[bytes], part: bytes) -> dict[str, Any]:
    """Returns the newest row that contains a text, or {}; evaluations that were cut short have no score."""
    for line in lines:
        if part in line and not (part and _CUT in line):
            with contextlib.suppress(ValueError):
                return rows.parse(line)
    return {}


def _changed(path: pathlib.Path) -> float:
    """Returns when the metrics, or if there are none the settings, last changed, in seconds since the epoch."""
    for name in (metrics_log.METRICS_FILE, run_dirs.CONFIG_FILE):
        with contextlib.suppress(OSError):
            return os.lstat(path / name).st_mtime
    return 0.0
