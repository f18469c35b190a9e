"""Reads numbers that an environment reports in the info of an episode's last step.

It takes each number in the dictionary info["metrics"], info["is_success"], and the keys that the user names
(`--metrics.info_keys`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.core import errors, infos

METRICS, SUCCESS = "metrics", "is_success"
_LARGEST = float(np.finfo(np.float32).max)


def read(info: Mapping[str, Any], keys: Sequence[str]) -> dict[str, float]:
    """Returns the numbers in an episode's last info by name, NaN for None. Raises ValueError for anything else."""
    given = info.get(METRICS, {})
    if not isinstance(given, Mapping):
        raise ValueError(f"a {type(given).__name__} as info[{METRICS!r}]; expected a dict from names to numbers")
    if missing := [key for key in keys if key not in info]:
        raise ValueError(
            f"no info[{missing[0]!r}] in an episode's last step, which --metrics.info_keys asks for; it has "
            f"{', '.join(map(str, info)) or 'nothing'}"
        )
    named = {**given, **{key: info[key] for key in (*keys, *([SUCCESS] if SUCCESS in info else []))}}
    if len(named) > infos.MAX_INFOS:
        raise ValueError(f"{len(named)} numbers in an episode's last info; expected at most {infos.MAX_INFOS}")
    return {_name(name): _number(name, value) for name, value in named.items()}


def _name(name: object) -> str:
    if not infos.is_name(name):
        raise ValueError(
            f"a number with the name {str(name)[:100]!r} in its info; expected text of 1 to {infos.MAX_NAME} "
            "printable characters"
        )
    return str(name)


def _number(name: str, value: Any) -> float:
    array = np.asarray(value)
    is_number = array.dtype.kind in "biuf" and array.size == 1
    if not is_number or abs(found := float(array.item())) > _LARGEST:
        raise ValueError(f"{str(value)[:100]!r} as {name!r} in its info; expected one finite number, or NaN for none")
    return found


def together(name: str, found: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray] | None:
    """Returns the numbers of E environments by name, [E] float32 with NaN for missing ones; None if there are none.

    name: the environment's, for the EnvironmentFailure about too many names.
    """
    names = dict.fromkeys(name for info in found for name in info)
    if len(names) > infos.MAX_INFOS:
        raise errors.EnvironmentFailure(
            f"environment {name!r} has {len(names)} names of numbers in its infos, such as {', '.join([*names][:3])}; "
            f"expected at most {infos.MAX_INFOS}"
        )
    arrays = {key: np.array([info.get(key, math.nan) for info in found], np.float32) for key in names}
    return arrays or None
