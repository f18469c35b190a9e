"""Answers what a page asks about a running learner: its calls and workers, or the steps of one environment."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.core import json_object, types
from seedzero.learner.live import observers
from seedzero.transport import messages

MAX_WORKERS = 200
"""Most workers in a list."""
MAX_LISTED = 512
"""Most environments in a list for each role."""
MAX_BYTES = 2 << 20
"""Most bytes of observations in one answer."""
_MEANS = (
    "batch_fill",
    "batch_rows",
    "batch_wait_seconds",
    "policy_age",
    "policy_lag",
    "policy_lag_max",
    "batch_padding",
)


@dataclasses.dataclass(eq=False)
class LiveView:
    """Answers pages on the server's thread; its functions return the run's present state."""

    observer: observers.LiveObserver
    status: Callable[[], Mapping[str, Any]]
    means: Callable[[], Mapping[str, float]]  # means of metrics since the last row
    sessions: Callable[[types.Role], Sequence[Any]]  # `loop.roster.Session`s that have started
    spec: Callable[[], types.EnvSpec | None]  # the environments' spec, or None if it is not known yet

    def __post_init__(self) -> None:
        self._instance = secrets.token_hex(8)

    def answer(self, asked: messages.LiveAsk, present: Sequence[messages.Presence]) -> tuple[str, bytes]:
        """Returns JSON, and the observations of the steps in it. present: all sessions."""
        self.observer.ask()
        found: dict[str, Any] = {"instance": self._instance, "now": round(self.observer.clock(), 6)}
        observations = b""
        if asked.environment is None:
            found |= self._runtime(asked.call, present)
        else:
            game, observations = self._game(asked.environment, asked.step)
            found |= game
        return json_object.encode(found), observations

    def _runtime(self, call: int, present: Sequence[messages.Presence]) -> dict[str, Any]:
        means = self.means()
        return {
            "calls": self.observer.calls_since(call),
            "status": self.status(),
            "means": {name: means[name] for name in _MEANS if name in means},
            "workers": [one.to_json() for one in present[:MAX_WORKERS]],
            "num_workers": len(present),
        }

    def _game(self, environment: int, step: int) -> tuple[dict[str, Any], bytes]:
        sessions = {role: list(self.sessions(role)) for role in types.Role}
        slots = {
            role.value: sorted(int(slot) for session in found for slot in session.all_slots)[:MAX_LISTED]
            for role, found in sessions.items()
        }
        spec = self.spec()
        found: dict[str, Any] = {
            "environments": slots,
            "environment": environment,
            "spec": None if spec is None else _spec(spec),
            **_of(environment, sessions),
        }
        kept = self.observer.steps_since(environment, step, most_bytes=MAX_BYTES)
        if kept is None:
            return {**found, "note": f"{observers.MAX_WATCHED} environments of this run are watched already"}, b""
        found["instance"] = f"{self._instance}-{kept.watch}"
        note = "an observation is too large to be shown" if kept.are_too_large else ""
        observations = b"".join(one.observation for one in kept.steps)
        return {**found, "note": note, "steps": _columns(kept, spec)}, observations


def _of(environment: int, sessions: Mapping[types.Role, Sequence[Any]]) -> dict[str, Any]:
    """Returns the role and the worker of an environment, "" if it has left."""
    for role, found in sessions.items():
        for session in found:
            if environment in session.all_slots:
                return {"role": role.value, "worker": session.worker_id}
    return {"role": "", "worker": ""}


def _spec(spec: types.EnvSpec) -> dict[str, Any]:
    return {
        "arrays": [array.to_json() for array in spec.arrays],
        "num_actions": spec.num_actions,
        "num_players": spec.num_players,
        "seats": spec.seats,
        "tasks": spec.tasks,
    }


def _columns(kept: observers.Kept, spec: types.EnvSpec | None) -> dict[str, Any]:
    """Returns steps by column; stored numbers are null if the agent stores none, or they are not available."""
    names = ("number", "reward", "first", "terminated", "truncated", "task", "action")
    found: dict[str, Any] = {name: [getattr(step, name) for step in kept.steps] for name in names}
    begin = 0
    for name, width in kept.columns:
        rows = [None if step.stored is None else step.stored[begin : begin + width] for step in kept.steps]
        begin += width
        if name in ("value", "log_prob"):
            found[name] = [None if row is None else row[0] for row in rows]
        elif spec is not None and not spec.is_continuous:
            found["policy"] = [None if row is None else _shares(row, is_log=name == "logits") for row in rows]
    return found


def _shares(row: Sequence[float], *, is_log: bool) -> list[float]:
    """Returns probabilities rounded to four digits."""
    values = np.array(row, np.float64)
    if is_log:
        values = np.exp(values - values.max())
        values = values / values.sum()
    shares: list[float] = np.round(values, 4).tolist()
    return shares
