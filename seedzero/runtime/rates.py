"""Steps and updates a second, over the last seconds."""

from __future__ import annotations

import collections

_WINDOW_SECONDS = 10.0


class Rates:
    """Remembers counter readings of the last seconds."""

    def __init__(self) -> None:
        self._readings: collections.deque[tuple[float, int, int]] = collections.deque(maxlen=64)

    def add(self, now: float, env_steps: int, updates: int) -> None:
        """Adds a reading; `now` in seconds."""
        self._readings.append((now, env_steps, updates))
        while len(self._readings) > 2 and now - self._readings[1][0] > _WINDOW_SECONDS:
            self._readings.popleft()

    def per_second(self) -> tuple[float, float]:
        """Returns steps and updates a second; 0 before there are two readings."""
        if len(self._readings) < 2:
            return 0.0, 0.0
        (start, steps, updates), (end, more_steps, more_updates) = self._readings[0], self._readings[-1]
        seconds = max(end - start, 1e-9)
        return (more_steps - steps) / seconds, (more_updates - updates) / seconds
