"""Decides when an agent acts, learns and reanalyses. There is one implementation for a replay and one for a queue.

Each player has a rate limiter (`replay_rate.py`, `queue_rate.py`). The scheduler asks for its present state.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from seedzero.device import steps


class Work(enum.Enum):
    """One call on the device, or none."""

    ACT = "act"
    EVALUATE = "evaluate"
    UPDATE = "update"
    REANALYSE = "reanalyse"
    WAIT = "wait"


class Progress(NamedTuple):
    """The facts that the rules use. Numbers count from the run's beginning, across resumes."""

    num_inserts: int  # training steps stored
    num_kept: int  # of these, in this replay; fewer after a resume without the saved replay
    num_updates: int  # dispatched
    num_reanalyses: int  # dispatched
    can_act: bool  # training observations are ready; in lock step, of every training environment
    can_evaluate: bool  # evaluation observations are ready and an evaluation is under way
    can_update: bool  # the update is compiled, the replay can be sampled, and no frames are being read for it
    can_reanalyse: bool  # the same of the reanalysis
    evaluating: bool  # an evaluation is under way
    evaluated_last: bool  # the last acting call was an evaluation's
    only_learns: bool = False  # all training steps are stored, so updates continue outside the band
    waits_to_act: bool = False  # it could act if calls were not in flight
    all_wait: bool = True  # the messages of all training environments wait; in lock step only


class RateState(Protocol):
    """The state of a pace at one moment: a frozen value, with the rules for its agent's data."""

    def choose(self, progress: Progress, now: float) -> Work:
        """Returns the next call on the device; now: in seconds."""

    def debt(self, progress: Progress) -> float:
        """Returns how far learning is behind acting, comparable between players; an update is due at 1 and above."""

    def num_due(self, progress: Progress) -> int:
        """Returns the updates that are owed for the steps so far."""

    @property
    def until(self) -> float:
        """The time at which `choose` may change by itself; infinity if only new progress can change it."""


class RateLimiter(Protocol):
    """Paces an agent's data; by default nobody waits. Only the loop's thread uses it, never the server's."""

    def rate(self) -> RateState:
        """Returns the present state."""

    def feed(self, num_inserts: int, now: float) -> steps.Feed:
        """Returns the input of the next update."""

    def holds(self, slots: np.ndarray) -> bool:
        """Returns whether acting must wait in one of these slots."""
        return False

    def record(self, slots: np.ndarray, group: np.ndarray, first: np.ndarray, now: float) -> int:
        """Records a new row in each of the slots [B]; group: [B] int, the first slot of its message; first: [B] bool.

        A row is first in an episode or session. Returns how many steps to these rows are lost to updates because they
        began before a restart.
        """
        return 0

    def cut(self, slots: np.ndarray) -> int:
        """Ends the histories of slots without environments; returns the number of steps lost to updates."""
        return 0

    def leave(self, slots: np.ndarray) -> int:
        """Ends the histories of slots that another player takes; returns the number of steps lost to updates."""
        return 0

    def take(self, slots: np.ndarray, before: RateLimiter | np.ndarray) -> None:
        """Begins the histories of slots that another player left.

        before: that player's rate limiter; for slots that belonged to nobody, the rows [B] that their rings have had.
        """
        return None

    def drop(self) -> int:
        """Forgets all steps that wait for an update, and returns their number."""
        return 0

    @property
    def num_waiting(self) -> int:
        """Stored steps that still wait for their only update."""
        return 0

    def num_samples(self, num_updates: int, num_stored: int) -> int:
        """Returns the windows or steps learned from in a number of updates."""

    def owed_updates(self, num_env_steps: int) -> int:
        """Returns the updates due before the last training step ends the run."""
        return 0

    def restart(self, num_updates: int, num_inserts: int) -> int:
        """Forgets what is owed or saved up for the updates and training steps so far.

        A queue forgets its steps. Returns how many stored steps are lost to updates.
        """
        return 0

    def to_json(self) -> dict[str, Any]:
        """Returns the content for a checkpoint."""
        return {}

    def restore(self, counters: Mapping[str, Any]) -> None:
        """Restores a checkpoint's rate."""
        return None
