"""Converts run files and checkpoints of earlier versions to this version's form."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from seedzero.config import configs, options, removed, renamed
from seedzero.core import types

_COUNTERS: Mapping[str, Any] = {
    "num_reanalyses": 0,
    "waiting_steps": 0,
    "num_assigned": 0,
    "highest_return": None,
    "in_last_evaluation": False,
    "left_out": (0, 0),
}
"""Counters that checkpoints of earlier versions lack, with the values that they had then."""

_LIMITS = {float(limit) for bits in (8, 16, 32, 64) for limit in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)}
_LIMITS |= {2.0**32 - 1, 2.0**64}
"""Limits of integer types, which earlier versions took as bounds of unbounded integers."""


def counters(counters: Mapping[str, Any], samples_per_insert: float) -> dict[str, Any]:
    """Returns all counters of a checkpoint, whichever version wrote it.

    samples_per_insert: the ratio of a run that has had one ratio from its start.
    """
    pace = {"since": (0, 0), "samples_per_insert": samples_per_insert}
    return {**_COUNTERS, "pace": pace, **counters}


def manifest(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a checkpoint's manifest, which has no field `frozen` without frozen players.

    Until format 2 the field `counters` was called `host`.
    """
    renamed = {"counters" if name == "host" else name: value for name, value in fields.items()}
    return {"frozen": {}, **renamed}


def config(values: Mapping[str, options.Value]) -> configs.Config:
    """Returns the configuration in config.json, without importing a user's own agent. Raises ConfigError."""
    values = removed.of_saved(values)
    values = renamed.of_saved(values, str(values.get("run.agent", configs.agent_names()[0])))
    return configs.override(configs.kind_of_saved(values)(), {**configs.earlier(), **values})


def learner(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of learner.json. Learners of earlier versions had only one address."""
    return {"local": values["address"], **values}


def spec(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of spec.json, with sequences that earlier versions did not have."""
    return {"action_low": (), "action_high": (), "packed": (), "tasks": (), "seats": (), **values}


def as_declared(came: types.EnvSpec, expected: types.EnvSpec) -> types.EnvSpec:
    """Returns a worker's spec with what the run's spec declares, because an earlier version may have written either.

    This concerns the number of states, bounds of unbounded numbers, whether bytes are text, and the spaces if one of
    the two lacks them. So a run keeps the network that was built for its own spec.
    """
    is_silent = not (came.num_states and expected.num_states)  # a worker need not declare it
    is_same = is_silent and came.observation_shape == expected.observation_shape
    low = _bound(came.observation_low, expected.observation_low)
    high = _bound(came.observation_high, expected.observation_high)
    packed = came.packed
    if len(packed) == len(expected.packed):
        packed = tuple(
            dataclasses.replace(
                array,
                low=_bound(array.low, other.low),
                high=_bound(array.high, other.high),
                text=other.text if array.shape == other.shape and array.dtype == other.dtype else array.text,
            )
            for array, other in zip(packed, expected.packed, strict=True)
        )
    num_states = expected.num_states if is_same else came.num_states
    spaces = came.spaces if came.spaces and expected.spaces else expected.spaces
    same = dataclasses.replace(came, packed=packed, num_states=num_states, spaces=spaces)
    return dataclasses.replace(same, observation_low=low, observation_high=high)


def _bound(came: float, expected: float) -> float:
    finite, infinite = sorted((came, expected), key=abs)
    return expected if math.isinf(infinite) and finite in _LIMITS and finite * infinite > 0 else came
