"""Numbers that an environment reports about its episodes: arrays [E] by name, with NaN where there is none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seedzero.core import errors

MAX_INFOS, MAX_NAME = 32, 64
"""The most numbers in one step, and the most characters of a name."""


def is_name(name: object) -> bool:
    """Returns whether a number may have this name."""
    return isinstance(name, str) and 1 <= len(name) <= MAX_NAME and name.isprintable()


def keys(text: str) -> tuple[str, ...]:
    """Returns the names in the setting info_keys. Raises ConfigError."""
    found = tuple(key.strip() for key in text.split(",") if key.strip())
    if len(found) > MAX_INFOS or not all(map(is_name, found)):
        raise errors.ConfigError(
            f"info_keys is {text[:200]!r}; it must have at most {MAX_INFOS} keys, separated by commas, each of 1 to "
            f"{MAX_NAME} printable characters"
        )
    return found


def those(info: Mapping[str, np.ndarray] | None, chosen: np.ndarray) -> Mapping[str, np.ndarray] | None:
    """Returns the numbers of chosen environments, [E] bool."""
    return info and {name: values[chosen] for name, values in info.items()}


def of(info: Mapping[str, np.ndarray] | None, row: int) -> dict[str, float]:
    """Returns an environment's numbers by name."""
    found = {name: float(values[row]) for name, values in (info or {}).items()}
    return {name: value for name, value in found.items() if value == value}
