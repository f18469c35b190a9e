"""The rule by which programs that end are started again. No threads, no clock."""

from __future__ import annotations

import collections

FIRST_DELAY_SECONDS = 0.25
MAX_DELAY_SECONDS = 5.0
LONG_LIFE_SECONDS = 10.0
"""A program that lived longer is started again after the first delay."""
MAX_FAILURES = 5
FAILURE_WINDOW_SECONDS = 60.0
"""So many failures of one program within this time are the end."""
FAILURES_OF_A_REFUSAL = 3
"""A program whose work is refused would mostly do the same again: once may be chance, twice is the end."""


class Restarts:
    """Decides after each death of one program when it is started again."""

    def __init__(self) -> None:
        self._deaths_in_a_row = 0
        self._failures: collections.deque[float] = collections.deque(maxlen=MAX_FAILURES)

    def delay_seconds(self, now: float, *, lived_seconds: float, killed: bool, refused: bool = False) -> float | None:
        """Returns the pause before the next start, None when the program has failed too often.

        now: monotonic seconds. killed: by SIGKILL, from outside: no failure of the program, but it waits like one.
        refused: another program refused its work, and it ended for that.
        """
        if lived_seconds > LONG_LIFE_SECONDS:
            self._deaths_in_a_row = 0
        if not killed:
            self._failures.extend([now] * (FAILURES_OF_A_REFUSAL if refused else 1))
            if len(self._failures) == MAX_FAILURES and now - self._failures[0] <= FAILURE_WINDOW_SECONDS:
                return None
        delay = FIRST_DELAY_SECONDS * 2.0 ** min(self._deaths_in_a_row, 16)
        self._deaths_in_a_row += 1
        return min(delay, MAX_DELAY_SECONDS)


def too_often(last: object, *, refused: bool) -> str:
    """Returns the reason to give up, for the user. last: the last death; refused: as of `Restarts`."""
    often = "again" if refused else f"{MAX_FAILURES} times"
    return f"failed {often} within {FAILURE_WINDOW_SECONDS:g} s, at last with {last}"
