"""Python that spends little time on looking for garbage."""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """Has Python look for garbage seldom: what was imported is none, and nor is most of what tracing makes.

    With Python's own thresholds tracing and lowering an update takes a fifth longer.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
