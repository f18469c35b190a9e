"""Handles arrays of an observation that only training sees, such as the joint observation of all agents."""

from __future__ import annotations

import dataclasses
from typing import Any

from seedzero.core import types


def without(spec: types.EnvSpec) -> types.EnvSpec:
    """Returns the spec for acting and for saved agents, without the arrays that are for training alone."""
    rest = tuple(array for array in spec.packed if not array.training_only)
    if len(rest) == len(spec.packed):
        return spec
    if len(rest) > 1 or rest[0].name != types.OBSERVATION:
        return _of_bytes(spec, rest)
    alone = rest[0]
    shown: dict[str, Any] = dict(observation_shape=alone.shape, observation_dtype=alone.dtype, packed=())
    return dataclasses.replace(spec, **shown, observation_low=alone.low, observation_high=alone.high)


def add(spec: types.EnvSpec, array: types.ArraySpec) -> types.EnvSpec:
    """Returns the spec with an array for training alone; its bytes follow those of the others."""
    return _of_bytes(spec, (*spec.arrays, array))


def _of_bytes(spec: types.EnvSpec, packed: tuple[types.ArraySpec, ...]) -> types.EnvSpec:
    shown: dict[str, Any] = dict(observation_shape=(sum(array.num_bytes for array in packed),), packed=packed)
    return dataclasses.replace(spec, **shown, observation_dtype="uint8", observation_low=0, observation_high=255)
