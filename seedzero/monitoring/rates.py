"""Steps, updates and reanalysed positions a second, over the last seconds."""

from __future__ import annotations

import collections

_WINDOW_SECONDS = 10.0


class Rates:
    """Remembers counter readings of the last seconds."""

    def __init__(self) -> None:
        self._readings: collections.deque[tuple[float, int, int, int]] = collections.deque(maxlen=64)

    def add(self, now: float, env_steps: int, updates: int, reanalysed: int) -> None:
        """Adds a reading; `now` in seconds."""
        self._readings.append((now, env_steps, updates, reanalysed))
        while len(self._readings) > 2 and now - self._readings[1][0] > _WINDOW_SECONDS:
            self._readings.popleft()

    def per_second(self) -> tuple[float, float, float]:
        """Returns steps, updates and reanalysed positions a second; 0 before there are two readings."""
        if len(self._readings) < 2:
            return 0.0, 0.0, 0.0
        (start, *before), (end, *after) = self._readings[0], self._readings[-1]
        seconds = max(end - start, 1e-9)
        steps, updates, reanalysed = ((new - old) / seconds for old, new in zip(before, after, strict=True))
        return steps, updates, reanalysed
